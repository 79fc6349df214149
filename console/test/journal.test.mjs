// The journal of a durable function, as the console describes it.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before } from "node:test";
import { func, processor } from "../../sdk/typescript/dist/index.js";
import { bytes, fits, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser, server;
const spec = specs(() => ({ engine, browser }));

const order = func("order", async (ctx, { item }) => {
  const pays = ctx.calls("pay");
  await ctx.step("reserve", () => ({ item, price: 7 }));
  const late = await ctx.after("pay-within", 24 * 60 * 60 * 1000);
  await ctx.first("paid-or-late", pays, late);
  const { card } = await pays.next();
  const charge = await ctx.step("charge", () => {
    if (card === "bad") throw new Error("the bank declined the card");
    return card;
  });
  await ctx.sleep("return-period", 60 * 60 * 1000);
  return charge;
});

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  server = createServer(processor(order));
  const port = await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(server.address().port)));
  await engine.post("NamespaceService/PutNamespace", {
    namespace: { namespace: "orders-ts", processor: { connect: { url: `http://127.0.0.1:${port}`, encoding: "ENCODING_JSON" } } },
  });
  await engine.post("ProcessService/Start", { namespace: "orders-ts", processId: "A-7", args: bytes({ item: "tea" }) });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
  server?.close();
});

spec("a durable function shows its journal, and what a repair has forgotten", async (page, go) => {
  await go("#/process?ns=orders-ts&id=A-7&tab=journal");
  const waits = page.getByRole("list", { name: "what the function waits for" });
  await waits.getByText("Timer pay-within fires").waitFor();
  await page.getByText('The function "order" waits for timer "pay-within"').waitFor();
  const row = (text) => page.getByRole("row").filter({ hasText: text });
  assert.match(await row("step done").innerText(), /reserve\s+\{"item":"tea","price":7\}/);

  await engine.post("ProcessService/Call", { namespace: "orders-ts", processId: "A-7", args: bytes({ pay: { card: "bad" } }) });
  await row("function failed").getByText("the bank declined the card").waitFor();
  await row("step failed").getByText("the bank declined the card").waitFor();
  await page.getByText('The function "order" ended with the error: step charge: the bank declined the card.').waitFor();
  await page.getByText("progressor repair orders-ts A-7 --rewind charge").waitFor();
  await page.getByText("ERROR").or(page.getByText("Error")).first().waitFor();

  await engine.post("ProcessService/Repair", { namespace: "orders-ts", processId: "A-7", processor: { args: bytes({ durable_repair: { set: { charge: "by hand" } } }) } });
  await row("repaired by step").waitFor();
  assert.equal(await row("forgotten by a repair").count(), 2);
  await waits.getByText("Timer return-period fires").waitFor();
  await fits(page, "journal");
});

spec("a process that is not a durable function has no journal", async (page, go) => {
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "plain", args: bytes({ k: "other", n: "x" }) });
  await go("#/process?ns=echo&id=plain&tab=journal");
  await page.getByRole("tab", { name: "Timeline", selected: true }).waitFor();
  assert.equal(await page.getByRole("tab", { name: "Journal" }).count(), 0);
});
