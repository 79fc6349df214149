// Payloads with colors, folding and search, and times in the form that the user chose.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { cutOff, specs, startBrowser, startEngine, bytes } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const items = Array.from({ length: 30 }, (_, n) => ({ sku: `tea-${n}`, price: 9007199254740993n.toString(), gift: n % 2 === 0, note: null }));
const document = `{"customer":"ada [*]","count":9007199254740993,"empty":{},"items":${JSON.stringify(items)}}`;

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "document", args: bytes(document) });
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "long", args: bytes(JSON.stringify(Array.from({ length: 2500 }, (_, n) => `line ${n}`))) });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("JSON has colors, is folded with the keyboard, and is searched", async (page, go) => {
  await go("#/process?ns=echo&id=document&tab=state");
  const lines = page.getByRole("group", { name: "state", exact: true }).first();
  await lines.getByText('"count": 9007199254740993').waitFor();
  assert.equal(await lines.locator(".json-number").first().innerText(), "9007199254740993");
  assert.equal(await lines.locator(".json-key").first().innerText(), '"customer"');
  const first = lines.getByText('"sku": "tea-0"');
  await lines.focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  await lines.getByText('"items": [ 30 items ]').waitFor();
  assert.equal(await first.count(), 0);
  await page.keyboard.press("ArrowRight");
  await first.waitFor();
  await page.getByRole("button", { name: "Fold all" }).first().click();
  await first.waitFor({ state: "detached" });
  const search = page.getByRole("searchbox", { name: "search the state" }).first();
  await search.fill("TEA-2");
  await page.getByText("1 of 11 lines").waitFor();
  await search.press("Enter");
  await page.getByText("2 of 11 lines").waitFor();
  assert.match(await lines.locator(".current").innerText(), /tea-20/);
  assert.equal(await lines.locator(".current mark").innerText(), "tea-2");
  await search.fill("(*");
  await page.getByText("not found").waitFor();
  await search.fill("[*]");
  await page.getByText("1 of 1 line").waitFor();
});

spec("A long text is drawn in parts, and a match in the rest is shown", async (page, go) => {
  await go("#/process?ns=echo&id=long&tab=state");
  const lines = page.getByRole("group", { name: "state", exact: true }).first();
  await lines.getByText('"line 900"').waitFor();
  assert.equal(await lines.getByText('"line 1500"').count(), 0);
  await page.getByText("2,502 lines in total").first().waitFor();
  await page.getByRole("searchbox", { name: "search the state" }).first().fill("line 1500");
  await lines.getByText('"line 1500"').waitFor();
});

spec("Times are relative, local or UTC, and the choice is kept", async (page, go) => {
  await go("#/processes?ns=echo");
  const started = page.getByRole("row", { name: /document/ }).locator("time").last();
  await started.getByText(/ago|now/).waitFor();
  const title = await started.getAttribute("title");
  assert.match(title, /\(Europe\/Berlin\)\n/);
  const times = page.getByRole("combobox", { name: "times" });
  await times.selectOption("UTC times");
  const iso = title.split("\n")[1];
  assert.equal(await started.innerText(), `${iso.slice(0, 19).replace("T", " ")}Z`);
  assert.match(await started.getAttribute("title"), /^[^\n]*Z \(UTC\)\n.*\n.*(ago|now)$/);
  await page.reload();
  await started.getByText(/Z$/).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "command" }).fill("local times");
  await page.keyboard.press("Enter");
  await started.getByText(title.slice(0, 19), { exact: true }).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.deepEqual(await cutOff(page), []);
});
