// The shell and the first pages, as a user sees them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, seedShop, start } from "./seed.mjs";
import { axe, bytes, cutOff, fits, openPage, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await seedShop(engine);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

const spec = specs(() => ({ engine, browser }));
const statusOf = async (id) => (await engine.post("ProcessService/GetProcess", { namespace: "demo", processId: id, range: { limit: 0 } })).process.status;
const is = (id, status) => eventually(`${id} is ${status}`, async () => (await statusOf(id)) === `PROCESS_STATUS_${status}`);

spec("The overview shows the namespaces and errors, and loads only what it needs", async (page, go) => {
  await go("");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByText("the goods broke while they were packed").waitFor();
  await page.getByRole("row", { name: /^demo/ }).getByRole("link", { name: "3", exact: true }).first().waitFor();
  await page.getByRole("link", { name: "Show 3 processes" }).waitFor();
  // Files of other pages are loaded when they are opened. The time of the first paint is not checked, because it depends on the machine.
  const loaded = await page.evaluate(() => performance.getEntriesByType("resource").map((r) => new URL(r.name).pathname).filter((name) => name.endsWith(".js")));
  assert.ok(loaded.length > 0);
  assert.deepEqual(loaded.filter((name) => /\/(graph|process|processes|jobs|crons?|runs?|templates|waits)-/.test(name)), []);
  await page.getByRole("img", { name: /Tasks per second over the last hour/ }).waitFor({ timeout: 25_000 });
});

spec("A process in ERROR is found and repaired in four clicks", async (page, go) => {
  await start(engine, "to-repair", { order: "R-1", items: [{ sku: "broken" }] });
  await engine.post("ProcessService/Call", { namespace: "demo", processId: "to-repair", args: bytes({ pay: 100 }) }).catch(() => 0);
  await go("");
  await page.getByRole("link", { name: "Show 4 processes" }).click(); // 1
  await page.getByRole("link", { name: "to-repair" }).click(); // 2
  await page.getByText("broken_goods: order R-1: the goods broke while they were packed").waitFor();
  await page.getByRole("button", { name: "Repair…", exact: true }).click(); // 3
  await page.getByRole("dialog").getByText("It returns to RUNNING").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Repair", exact: true }).click(); // 4
  await page.getByText("to-repair is repaired.").waitFor();
  await is("to-repair", "RUNNING");
  await page.getByText("Running").first().waitFor();
});

spec("The list of processes has a filter with completion, and shows the error of an invalid filter", async (page, go) => {
  await go("#/processes?ns=demo");
  const filter = page.getByRole("combobox", { name: "filter" });
  await page.keyboard.press("/");
  await filter.pressSequentially("stat");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  assert.equal(await filter.inputValue(), "status ");
  await filter.pressSequentially("= SUSP");
  await page.getByRole("option", { name: "SUSPENDED", exact: true }).click();
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "order-3" }).waitFor();
  await page.getByText("the customer called: wait").waitFor();
  await page.getByRole("link", { name: /^order-/ }).nth(1).waitFor({ state: "detached" }); // the list without the filter is gone
  assert.equal(await page.getByRole("link", { name: /^order-/ }).count(), 1);
  assert.match(page.url(), /filter=status/);
  await page.goBack();
  await page.getByRole("link", { name: "order-14" }).waitFor();
  await filter.fill("metadata.customer = ada AND");
  await filter.press("Enter");
  await page.getByRole("alert").getByText(/filter/).waitFor();
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByRole("button", { name: /^Error/ }).click();
  await page.getByRole("link", { name: "order-4", exact: true }).waitFor();
});

spec("A view is saved, found in the palette, and deleted", async (page, go) => {
  await go("#/processes?ns=demo&filter=metadata.customer+%3D+ada");
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("In error");
  await page.getByRole("dialog").getByText("this is the name of a built-in view").waitFor();
  await page.getByRole("dialog").getByLabel("Name").fill("of ada");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("The view of ada is saved.").waitFor();
  await go("#/overview");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "command" }).fill("of ada");
  await page.keyboard.press("Enter");
  await page.waitForURL(/filter=metadata.customer/);
  await page.getByRole("button", { name: "Delete view" }).click();
  await page.getByText("The view of ada is deleted.").waitFor();
});

spec("A bulk repairs all matches after a dry run", async (page, go) => {
  await go("#/processes?ns=demo&filter=status+%3D+ERROR+AND+detail%3A%22packed%22");
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByText("3 processes match").waitFor();
  await page.getByLabel("Reason").fill("fixed");
  await page.getByRole("button", { name: "Repair 3" }).click();
  await page.getByRole("heading", { name: /Repair all processes that match/ }).waitFor();
  await page.getByText("3 of 3").waitFor();
  await page.getByText("Completed").first().waitFor();
  for (const id of ["order-4", "order-8", "order-12"]) assert.equal(await statusOf(id), "PROCESS_STATUS_RUNNING");
  await go("#/bulks?ns=demo");
  await page.getByRole("link", { name: "Repair" }).first().waitFor();
});

spec("A bulk is stopped", async (page, go) => {
  for (let n = 0; n < 5; n++) await start(engine, `many-${n}`, { order: `M-${n}`, items: [{ sku: "tea" }] });
  await go("#/processes?ns=demo&filter=process_id+%3D+%22many-*%22");
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByRole("group", { name: "what to do" }).getByRole("button", { name: "Suspend" }).click();
  await page.getByLabel("Processes per second").fill("0.1");
  await page.getByRole("button", { name: "Suspend 5" }).click();
  await page.getByRole("button", { name: "Stop bulk…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop bulk" }).click();
  await page.getByText("Cancelled").first().waitFor({ timeout: 25_000 });
});

spec("Only the selected processes are suspended", async (page, go) => {
  await start(engine, "chosen-1", { order: "C-1", items: [{ sku: "tea" }] });
  await start(engine, "chosen-2", { order: "C-2", items: [{ sku: "tea" }] });
  await go("#/processes?ns=demo");
  await page.getByRole("checkbox", { name: "select chosen-1" }).check();
  await page.getByRole("button", { name: "Act on 1 selected process…" }).click();
  await page.getByText("1 process matches").waitFor();
  await page.getByRole("button", { name: "Suspend 1" }).click();
  await page.locator("h1", { hasText: "Suspend" }).waitFor();
  await is("chosen-1", "SUSPENDED");
  assert.equal(await statusOf("chosen-2"), "PROCESS_STATUS_RUNNING");
});

spec("A process is started, called, suspended, resumed, cancelled and removed", async (page, go) => {
  await go("#/processes?ns=demo");
  await page.getByRole("button", { name: "Start…" }).click();
  await page.getByLabel("Id").fill("by/hand ü");
  await page.getByLabel("Args").fill('{"order":"H-1","items":[{"sku":"tea"}]}');
  await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
  await page.getByRole("heading", { name: /by\/hand ü/ }).waitFor();
  const act = (name) => page.locator(".head").getByRole("button", { name }).click();
  const dialog = page.getByRole("dialog");
  await act("Call…");
  await dialog.getByLabel("Args").fill('{"pay":7}');
  await dialog.getByRole("button", { name: "Call" }).click();
  await dialog.getByText("the order costs 100, not 7").waitFor();
  await dialog.getByLabel("Args").fill('{"status":true}');
  await dialog.getByRole("button", { name: "Call" }).click();
  await dialog.getByRole("status").getByText("Response", { exact: true }).waitFor();
  await dialog.getByText('"state": "reserved"').waitFor();
  await dialog.getByRole("button", { name: "Close", exact: true }).click();
  await act("Suspend…");
  await dialog.getByLabel("Reason").fill("wait a moment");
  await dialog.getByRole("button", { name: "Suspend" }).click();
  await is("by/hand ü", "SUSPENDED");
  await act("Cancel…");
  assert.equal(await dialog.getByLabel("Grace period").count(), 0, "a suspended process ends at once, regardless of its grace period");
  await dialog.getByRole("button", { name: "Don't cancel" }).click();
  await act("Resume…");
  await dialog.getByRole("button", { name: "Resume" }).click();
  await is("by/hand ü", "RUNNING");
  await page.getByRole("tab", { name: "Audit" }).click();
  await page.getByRole("cell", { name: "SuspendProcess" }).waitFor();
  await act("Cancel…");
  await dialog.getByLabel("Reason").fill("no more");
  await dialog.getByRole("button", { name: "Cancel the process" }).click();
  await is("by/hand ü", "CANCELLED");
  await act("Remove…");
  assert.equal(await dialog.getByRole("button", { name: "Remove permanently" }).isDisabled(), true);
  await dialog.getByLabel(/Type/).fill("by/hand ü");
  await dialog.getByRole("button", { name: "Remove permanently" }).click();
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await assert.rejects(statusOf("by/hand ü"), /not_found/);
});

spec("A process is repaired by its processor", async (page, go) => {
  await start(engine, "by-processor", { order: "P-1", items: [{ sku: "broken" }] });
  await engine.post("ProcessService/Call", { namespace: "demo", processId: "by-processor", args: bytes({ pay: 100 }) }).catch(() => 0);
  await go("#/process?ns=demo&id=by-processor");
  await page.getByRole("button", { name: "Repair by processor…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Args").fill('{"nonsense":1}');
  await dialog.getByRole("button", { name: "Repair" }).click();
  await dialog.getByText(/unknown field "nonsense"/).waitFor();
  await dialog.getByLabel("Args").fill('{"replace":true}');
  await dialog.getByRole("button", { name: "Repair" }).click();
  await dialog.getByText('"sku": "replacement"').waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Repair" }).count(), 0, "after the repair, there is nothing left to repair");
  await is("by-processor", "RUNNING");
});

spec("One process shows its time, its tasks and its payloads, live", async (page, go) => {
  await start(engine, "looked-at", { order: "L-1", customer: "ada", items: [{ sku: "tea" }] });
  await go("#/process?ns=demo&id=looked-at");
  await page.getByRole("img", { name: /^timeline of/ }).waitFor();
  await page.getByText("The default timer").first().waitFor();
  await engine.post("ProcessService/Call", { namespace: "demo", processId: "looked-at", args: bytes({ pay: 100 }) });
  await page.getByText("Completed").first().waitFor({ timeout: 25_000 }); // the order is shipped a second later, and the stream reports this
  await page.getByRole("tab", { name: /Tasks/ }).click();
  await page.getByRole("row", { name: /CALL/ }).getByRole("button").click();
  await page.getByText('"pay": 100').waitFor();
  await page.getByRole("group", { name: "show the args as" }).getByRole("button", { name: "Hex" }).click();
  await page.getByText("7b 22 70 61 79 22").waitFor();
  await page.getByRole("tab", { name: /History/ }).click();
  await page.getByText('"type": "shipped"').waitFor();
  await page.getByRole("tab", { name: "State" }).click();
  await page.getByText('"customer": "ada"').first().waitFor();
  await page.getByRole("tab", { name: "Relations" }).click();
  await page.getByRole("link", { name: "customer = ada" }).click();
  await page.getByRole("link", { name: "looked-at" }).waitFor();
});

spec("Payloads are text: no script in them runs, and no markup in them becomes an element", async (page, go) => {
  const evil = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>';
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "evil", args: bytes(evil), metadata: { note: evil } });
  await engine.post("ProcessService/SuspendProcess", { namespace: "echo", processId: "evil", reason: evil });
  for (const tab of ["timeline", "tasks", "history", "state", "audit"]) {
    await go(`#/process?ns=echo&id=evil&tab=${tab}`);
    await page.getByText("<script>window.hit=1").first().waitFor();
  }
  await go("#/processes?ns=echo&filter=status+%3D+SUSPENDED");
  await page.getByText("<img src=x").first().waitFor();
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assert.equal(await page.locator("main img").count(), 0);
});

spec("MessagePack is decoded", async (page, go) => {
  const packed = Buffer.from([0x82, 0xa1, 0x61, 0x01, 0xa1, 0x62, 0xcf, 0, 0x20, 0, 0, 0, 0, 0, 1]);
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "packed", args: packed.toString("base64") });
  await go("#/process?ns=echo&id=packed&tab=state");
  await page.getByText('"b": "9007199254740993"').waitFor();
});

spec("The audit shows who did what, and what a change of a configuration changed", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "watched", processor: { pull: {} } } });
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "watched", processor: { pull: {} }, stepTimeout: "7s" } });
  await go("#/overview");
  await page.getByRole("link", { name: "Audit" }).waitFor(); // now the page knows that the user may see the audit
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  await page.getByRole("row", { name: /CancelProcess.*order-7.*no more/ }).getByRole("link", { name: "order-7" }).waitFor();
  const filter = page.getByRole("combobox", { name: "filter" });
  await filter.fill("method = PutNamespace");
  await filter.press("Enter");
  await page.getByRole("row", { name: /CancelProcess.*order-7/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /watched/ }).first().getByRole("button", { name: /^details/ }).press("Enter");
  await page.getByRole("listitem").filter({ hasText: "7s" }).waitFor();
  await filter.fill("subject = ");
  await filter.press("Enter");
  await page.getByRole("alert").waitFor();
});

spec("The overview counts jobs, runs and waits, shows the next fires, and the charts of a chosen time", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "shop", processor: { pull: {} } } });
  await engine.post("JobService/Enqueue", { namespace: "shop", jobId: "j-1", name: "send" });
  await engine.post("FlowService/PutTemplate", { template: { namespace: "shop", type: "ask", name: "Ask", steps: [{ stepId: "ask", wait: { kind: "KIND_HUMAN" } }] } });
  for (const runId of ["r-1", "r-2"]) await engine.post("FlowService/StartRun", { namespace: "shop", type: "ask", runId });
  await engine.post("FlowService/CompleteStep", { namespace: "shop", runId: "r-2", stepId: "ask", failure: { reason: "no" } });
  const http = { url: "http://127.0.0.1:9/" };
  await engine.post("CronService/CreateCron", { cron: { namespace: "shop", cronId: "monthly", spec: { expressions: ["0 3 1 * *"] }, target: { http } } });
  await go("#/overview?ns=shop");
  const work = page.getByRole("group", { name: "jobs, flow runs and workers" });
  for (const [name, n] of [["Jobs queued", 1], ["Jobs running", 0], ["Runs active", 1], ["Runs failed", 1], ["Open waits", 1]]) await work.getByRole("link", { name: new RegExp(`${name} ?${n}\\b`) }).waitFor();
  await page.getByRole("region", { name: "next fires" }).getByRole("link", { name: "monthly" }).waitFor();
  await page.getByRole("group", { name: "time range of the charts" }).getByRole("button", { name: "24 h" }).press("Enter");
  await page.getByRole("img", { name: /Backlog over the last 24 h/, includeHidden: true }).waitFor({ state: "attached" });
  assert.match(page.url(), /range=24h/);
  await go("#/overview");
  const next = page.getByRole("region", { name: "next fires" });
  // Shared responses are up to 10 s old.
  await next.getByRole("row", { name: /monthly/ }).getByRole("link", { name: "shop" }).waitFor({ timeout: 25_000 });
  await go("#/overview?ns=shop");
  await work.getByRole("link", { name: /Runs failed/ }).click();
  await page.getByRole("link", { name: "r-2" }).waitFor();
});

spec("Pages, lists and the theme work with the keyboard alone", async (page, go) => {
  await go("");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("p");
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await page.getByRole("link", { name: /./ }).first().waitFor();
  await page.locator("tbody tr").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const id = await page.locator("tr:focus-within a").first().innerText();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: id }).waitFor();
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const was = await theme();
  await page.keyboard.press("t");
  assert.notEqual(await theme(), was);
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("search pages, actions, and objects by ID").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
});

spec("On a phone nothing is wider than the screen, or cut off at its edge", async (page, go) => {
  for (const hash of ["#/overview", "#/processes?ns=demo", "#/process?ns=demo&id=order-4", "#/process?ns=demo&id=order-4&tab=tasks", "#/process?ns=demo&id=order-3&tab=audit", "#/process?ns=demo&id=order-1&tab=state", "#/bulks?ns=demo"]) {
    await go(hash);
    await page.getByRole("heading").first().waitFor();
    await page.waitForLoadState("networkidle").catch(() => 0);
    await fits(page, hash);
  }
}, { viewport: { width: 390, height: 844 } });

spec("The axis of a chart with one sample shows the last minutes", async (page, go) => {
  await page.addInitScript(() => {
    window.drawn = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      window.drawn.push(text);
      return draw.call(this, text, ...rest);
    };
  });
  const time = "2026-05-04T10:20:30Z"; // 12:20 in Berlin
  await page.route("**/*/GetOverview", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), samples: [{ time, tasksPerSecond: 3, runnable: "2" }] } });
  });
  await go("");
  await page.getByRole("img", { name: /Tasks per second over the last hour, now +3/ }).waitFor();
  const times = await eventually("the axis is drawn", async () => {
    const all = (await page.evaluate(() => window.drawn)).filter((t) => /^\d\d:\d\d$/.test(t));
    return all.length && all;
  });
  assert.deepEqual(times.filter((t) => t < "12:10" || t > "12:20"), []);
});

spec("The values of a field are suggested, and Tab accepts the first one", async (page, go) => {
  await go("#/processes?ns=demo");
  // Make frames slow. If the caret waited for a frame, it would move while the user types.
  await page.evaluate(() => {
    window.requestAnimationFrame = (draw) => setTimeout(draw, 100);
  });
  const filter = page.getByRole("combobox", { name: "filter" });
  await filter.pressSequentially("sta");
  await page.keyboard.press("Tab");
  assert.equal(await filter.inputValue(), "status ");
  await filter.pressSequentially("= ", { delay: 100 });
  for (const status of ["INIT", "RUNNING", "ERROR", "SUSPENDED", "COMPLETED", "CANCELLED"]) await page.getByRole("option", { name: status, exact: true }).waitFor();
  await filter.pressSequentially("ca");
  await page.keyboard.press("Tab");
  assert.equal(await filter.inputValue(), "status = CANCELLED ");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "order-7" }).waitFor();
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Find" }).and(page.locator(":focus")).waitFor();
});

spec("Pages report what does not exist", async (page, go) => {
  await go("#/process?ns=demo&id=nobody");
  await page.getByRole("heading", { name: "The process nobody does not exist in demo" }).waitFor();
  await page.getByRole("link", { name: "Show processes" }).click();
  await page.getByRole("link", { name: "order-14" }).waitFor();
  for (const [hash, what] of [["run?ns=demo&id=nobody", "run nobody"], ["job?ns=demo&id=nobody", "job nobody"], ["cron?ns=demo&id=nobody", "cron nobody"], ["template?ns=demo&type=nobody", "template nobody"]]) {
    await go(`#/${hash}`);
    await page.getByRole("heading", { name: `The ${what} does not exist in demo` }).waitFor();
  }
  await go("#/process?ns=nowhere&id=nobody");
  await page.getByRole("heading", { name: "Namespace nowhere does not exist" }).waitFor();
  assert.deepEqual(await axe(page), [], "the next step is recognizable as a link");
  await go("#/nowhere");
  await page.getByText("This page does not exist").waitFor();
  await go("#/processes?ns=demo&filter=process_id+%3D+nobody");
  await page.getByText("No processes match").waitFor();
});

spec("If a proxy requires a token, the console asks for it once, sends it from then on, and keeps it in the tab", async (page, go) => {
  let sent = "";
  await page.route("**/progressor.v1.*/*", (route) => {
    sent = route.request().headers()["authorization"] ?? "";
    if (sent === "Bearer sesame") return route.continue();
    return route.fulfill({ status: 401, contentType: "application/json", body: '{"code":"unauthenticated","message":"who are you?"}' });
  });
  await go("#/processes?ns=demo");
  const dialog = page.getByRole("dialog", { name: /requires a token/ });
  await dialog.getByLabel("Token").fill("wrong");
  await dialog.getByRole("button", { name: "Log in" }).click();
  await eventually("the wrong token is sent", () => sent === "Bearer wrong");
  await dialog.getByLabel("Token").fill("sesame");
  await dialog.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("link", { name: "order-14" }).waitFor();
  await page.reload();
  await page.getByRole("link", { name: "order-14" }).waitFor();
  assert.equal(await dialog.count(), 0);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("sesame")), false);
});

test("Below the path of a proxy, read-only, and with the engine away", async () => {
  const { createServer, request } = await import("node:http");
  const shown = await startEngine("--console", "read-only", "--demo-flow");
  let now = shown;
  const proxy = createServer((from, to) => {
    if (!from.url.startsWith("/some/path/")) return void to.writeHead(404).end();
    const through = request(now.url + from.url.slice("/some/path".length), { method: from.method, headers: from.headers }, (answer) => answer.pipe(to.writeHead(answer.statusCode, answer.headers)));
    through.on("error", () => (to.headersSent ? to.destroy() : to.writeHead(502).end()));
    from.pipe(through);
  });
  let page;
  try {
    await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
    page = await openPage(browser);
    await start(shown, "seen", { order: "S-1", items: [{ sku: "tea" }] });
    await page.goto(`http://127.0.0.1:${proxy.address().port}/some/path/#/process?ns=demo&id=seen`);
    await page.getByRole("heading", { name: "seen" }).waitFor();
    await page.getByText("read-only").waitFor();
    assert.equal(await page.getByRole("button", { name: /Cancel|Remove|Suspend|Call|Repair/ }).count(), 0);
    await page.goto(`http://127.0.0.1:${proxy.address().port}/some/path/#/processes?ns=demo`);
    await page.getByRole("link", { name: "seen" }).waitFor();
    assert.equal(await page.getByRole("button", { name: /^Start…|Act on/ }).count(), 0);
    await page.goto(`http://127.0.0.1:${proxy.address().port}/some/path/#/run?ns=demo&id=A-2&step=approve`);
    await page.getByText("Approve order A-2 of 1200").first().waitFor();
    await page.getByRole("group", { name: "steps of A-2" }).getByRole("link", { name: /^approve/ }).waitFor();
    assert.equal(await page.getByRole("button", { name: /Cancel|Repeat|Skip|Answer/ }).count(), 0);
    await page.setViewportSize({ width: 390, height: 844 });
    assert.deepEqual(await cutOff(page), []);
    const refused = await page.evaluate(() => fetch("progressor.v1.ProcessService/RemoveProcess", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"namespace":"demo","processId":"seen"}' }).then((r) => r.status));
    assert.equal(refused, 403);
    assert.deepEqual(page.wrong, []);
    await shown.stop();
    await page.getByRole("button", { name: /theme/ }).focus();
    await page.keyboard.press("r");
    await page.getByRole("alert").first().waitFor({ timeout: 30_000 });
    // A page that was not opened before cannot be loaded either. It loads when the engine is available again.
    await page.goto(`http://127.0.0.1:${proxy.address().port}/some/path/#/workers?ns=demo`);
    await page.getByRole("alert").filter({ hasText: "The engine cannot be reached" }).filter({ hasText: "The page keeps trying" }).waitFor();
    now = engine;
    await page.getByRole("heading", { name: "Workers" }).waitFor({ timeout: 30_000 });
    await page.getByText("No workers yet").waitFor();
  } finally {
    await page?.context().close().catch(() => {}); // go on: the engine must stop, or the run of the tests does not end
    proxy.closeAllConnections();
    proxy.close();
    await shown.stop();
  }
});

spec("A timeline with many lanes shows how many of the tasks it contains", async (page, go) => {
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "busy", args: bytes("0") });
  for (let n = 1; n <= 45; n++) await engine.post("ProcessService/Call", { namespace: "echo", processId: "busy", args: bytes(String(n)) });
  await go("#/process?ns=echo&id=busy");
  await page.getByRole("img", { name: /^timeline of 40 lanes/ }).waitFor();
  assert.equal(await page.locator(".timeline .lane .name").filter({ hasText: /^\d+ / }).count(), 39);
  await page.locator(".timeline .legend").getByText("the newest 39 of 46 tasks", { exact: true }).waitFor();
});
