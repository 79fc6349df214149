// Changes and sinks, as a user sees them.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before } from "node:test";
import { eventually, start } from "./seed.mjs";
import { fits, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser, receiver;
const spec = specs(() => ({ engine, browser }));
let answer = 500; // the status with which the webhook responds
const sinkOf = async (sinkId) => (await engine.post("ChangeService/GetSink", { namespace: "demo", sinkId })).sink;
const stateOf = async (sinkId) => (await sinkOf(sinkId)).status.state.replace("SINK_STATE_", "");
const order = (id) => start(engine, id, { order: id, items: [{ sku: "tea" }] });

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  receiver = createServer((request, response) => request.resume().on("end", () => response.writeHead(answer).end(answer === 413 ? "too large" : "the disk is full")));
  await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
  const { namespace } = await engine.post("NamespaceService/GetNamespace", { namespace: "demo" });
  await engine.post("NamespaceService/PutNamespace", { namespace: { ...namespace, changes: { kinds: ["CHANGE_KIND_EVENT", "CHANGE_KIND_LIFECYCLE"] } } });
  await engine.post("ChangeService/PutSink", { sink: { namespace: "demo", sinkId: "audit", webhook: { url: `http://127.0.0.1:${receiver.address().port}/x` } } });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
  receiver?.close();
});

spec("A failing sink shows why, is paused, resumed and retried, and then delivers", async (page, go) => {
  await order("first");
  await go("#/changes?ns=demo");
  const row = page.getByRole("row", { name: /audit/ });
  await row.getByText("Failing").waitFor();
  await row.getByText("2 changes").waitFor();
  await row.getByText(/500/).waitFor();
  const dialog = page.getByRole("dialog");
  await row.getByRole("button", { name: "Pause…" }).click();
  await dialog.getByText(/for at most 7 d/).waitFor();
  await dialog.getByRole("button", { name: "Pause" }).click();
  await row.getByText("Paused").waitFor();
  await row.getByRole("link", { name: "audit" }).click();
  await page.getByText("Sink audit is paused. 2 changes wait. The oldest was recorded").waitFor();
  await page.getByRole("code").getByText("progressor sink resume demo audit").waitFor();
  await page.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByText(/deliver(y|ies) of sink audit failed/).waitFor();
  answer = 204;
  await page.getByRole("button", { name: "Try now…" }).click();
  await dialog.getByRole("button", { name: "Try now" }).click();
  await page.getByText("has delivered all changes").waitFor();
  await page.getByRole("heading", { name: /audit.*Active/ }).waitFor();
});

spec("Dead letters are listed and delivered again, and a rewind delivers again", async (page, go) => {
  answer = 413;
  await order("large");
  await eventually("two dead letters", async () => (await sinkOf("audit")).status.deadLetters === "2");
  answer = 204;
  await go("#/sink?ns=demo&id=audit");
  await page.getByText(/2 changes became dead letters/).waitFor();
  const letters = page.getByRole("region", { name: "dead letters" });
  await letters.getByRole("row", { name: /large.*413/ }).first().waitFor();
  const delivered = Number((await sinkOf("audit")).status.deliveredChanges);
  await page.getByRole("button", { name: "Rewind…" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Rewind" }).isDisabled(), "a rewind without a time");
  await dialog.getByLabel("Time").fill("2099-01-01T00:00:00");
  assert.ok(await dialog.getByRole("button", { name: "Rewind" }).isEnabled());
  await dialog.getByLabel("Continue with").selectOption({ label: "the oldest change" });
  await dialog.getByRole("button", { name: "Rewind" }).click();
  await page.getByText("audit is rewound.").waitFor();
  await eventually("all are delivered again", async () => Number((await sinkOf("audit")).status.deliveredChanges) === delivered + 4);
  await page.getByRole("button", { name: "Deliver again…" }).click();
  await dialog.getByRole("button", { name: "Deliver again" }).click();
  await page.getByText("audit delivers its dead letters again.").waitFor();
  await eventually("no dead letter is left", async () => !(await sinkOf("audit")).status.storedDeadLetters);
  await letters.waitFor({ state: "detached" });
  assert.equal(Number((await sinkOf("audit")).status.deliveredChanges), delivered + 6);
});

spec("Changes appear as they are recorded, by kind, and the list can be stopped", async (page, go) => {
  await go("#/changes?ns=demo");
  await page.getByText("live", { exact: true }).waitFor();
  await page.getByText("No changes yet").waitFor();
  await order("live-1");
  const list = page.getByRole("region", { name: "changes" });
  await list.getByRole("row", { name: /lifecycle live-1 created – → INIT/ }).waitFor();
  await list.getByRole("row", { name: /event live-1 stored event 1/ }).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("stopped", { exact: true }).waitFor();
  await order("live-2");
  await page.getByRole("button", { name: "Continue" }).click();
  await list.getByRole("row", { name: /lifecycle live-2 created/ }).waitFor(); // no change is missed
  await list.getByRole("row", { name: /live-1/ }).first().waitFor();
  await page.getByLabel("Kind").selectOption({ label: "event" });
  await page.getByLabel("Show").selectOption({ label: "all stored changes" });
  await list.getByRole("row", { name: /event first stored event 1/ }).waitFor();
  assert.equal(await list.getByText("lifecycle").count(), 0);
  await list.getByRole("link", { name: "live-2" }).first().click();
  await page.getByRole("heading", { name: "live-2" }).waitFor();
});

spec("A sink is deleted after its name is typed; a namespace without changes says how to record them", async (page, go) => {
  await engine.post("ChangeService/PutSink", { sink: { namespace: "demo", sinkId: "old", kafka: { brokers: ["127.0.0.1:1"], topic: "x" } } });
  await go("#/sink?ns=demo&id=old");
  await page.getByText("topic x at 127.0.0.1:1").first().waitFor();
  await page.getByRole("button", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/Type/).fill("ol");
  assert.ok(await dialog.getByRole("button", { name: "Delete permanently" }).isDisabled());
  await dialog.getByLabel(/Type/).fill("old");
  await dialog.getByRole("button", { name: "Delete permanently" }).click();
  await page.getByRole("heading", { name: "Changes" }).first().waitFor();
  await assert.rejects(stateOf("old"), /not_found/);
  await go("#/sink?ns=demo&id=never");
  await page.getByRole("link", { name: "Show sinks" }).click();
  await page.getByRole("link", { name: "audit", exact: true }).waitFor();
  await go("#/changes?ns=echo");
  await page.getByText("echo records no changes").waitFor();
  await page.getByText("No sinks yet").waitFor();
  const documentation = await page.getByRole("link", { name: "Documentation: Changes" }).first().getAttribute("href");
  assert.match(documentation, /^https:.*\/docs\/changes\.md$/);
});

spec("Changes and sinks fit on a phone, and the keyboard opens them", async (page, go) => {
  answer = 500;
  await order("narrow");
  await eventually("it fails", async () => (await stateOf("audit")) === "FAILING");
  for (const hash of ["#/changes?ns=demo&since=1", "#/sink?ns=demo&id=audit", "#/changes?ns=echo"]) {
    await go(hash);
    await page.getByText(/Failing|No sinks yet/).first().waitFor();
    await fits(page, hash);
  }
  await page.keyboard.press("g");
  await page.keyboard.press("o");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: "Changes" }).first().waitFor();
}, { viewport: { width: 390, height: 844 } });
