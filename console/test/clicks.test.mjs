// The tasks of an operator, each with the maximum number of clicks from the overview.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, start as startOrder } from "./seed.mjs";
import { bytes, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const run = async (runId) => (await engine.post("FlowService/GetRun", { namespace: "parcels", runId })).run;
const startRun = (runId, type, payload) => engine.post("FlowService/StartRun", { namespace: "parcels", runId, type, payload });

/** Checks that a task takes at most `most` clicks, starting at the overview of a namespace. Fields are clicked before they are filled in. */
const within = (most, name, ns, task) =>
  spec(`${name} in at most ${most} clicks`, async (page, go) => {
    let clicks = 0;
    await page.exposeFunction("clicked", () => clicks++);
    await page.addInitScript(() => addEventListener("pointerdown", (e) => e.isTrusted && window.clicked(), true));
    await go(`#/overview?ns=${ns}`);
    await task(page, async (field, text) => {
      await field.click();
      await page.keyboard.press("ControlOrMeta+A");
      await page.keyboard.insertText(text);
    });
    assert.ok(clicks > 0 && clicks <= most, `${clicks} clicks, want at most ${most}`);
  });

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "parcels", processor: { pull: {} } } });
  const templates = {
    send: { stepId: "label", input: { to: "${payload.address}" }, job: {} },
    return: { stepId: "label", input: { from: "${payload.sender}" }, job: {} },
    ask: { stepId: "approve", wait: { kind: "KIND_HUMAN", title: "Send it?" } },
  };
  for (const [type, step] of Object.entries(templates)) await engine.post("FlowService/PutTemplate", { template: { namespace: "parcels", type, steps: [step] } });
  await startRun("lost", "send", { order: "A-1" });
  await startRun("asking", "ask");
  await startOrder(engine, "order-1", { order: "A-1", items: [{ sku: "broken" }] });
  await engine.post("ProcessService/Call", { namespace: "demo", processId: "order-1", args: bytes({ pay: 100 }) }).catch(() => 0);
  await engine.post("CronService/CreateCron", { cron: { namespace: "parcels", cronId: "nightly", spec: { expressions: ["30 2 1 1 *"] }, target: { startRun: { type: "ask" } } } });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

within(3, "A broken process is repaired", "demo", async (page) => {
  await page.getByRole("row", { name: /1 process/ }).getByRole("link").first().click();
  await page.getByRole("heading", { name: /order-1/ }).waitFor();
  await page.getByRole("button", { name: "Repair…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Repair", exact: true }).click();
  await eventually("the order runs", async () => (await engine.post("ProcessService/GetProcess", { namespace: "demo", processId: "order-1" })).process.status === "PROCESS_STATUS_RUNNING");
});

within(5, "The cause of a failed run is found, and the run retried with another input", "parcels", async (page, fill) => {
  await page.getByRole("link", { name: /expression.*address/ }).click();
  await page.getByRole("heading", { name: /lost/ }).waitFor();
  await page.getByText(/there is no field "address" in payload/).first().waitFor();
  await page.getByRole("group", { name: "steps of lost" }).getByRole("link", { name: /^label/ }).click();
  await page.getByRole("button", { name: "Edit the input and retry…" }).click();
  await fill(page.getByRole("dialog").getByRole("textbox", { name: "Input of label" }), '{"to": "Elm Street 2"}');
  await page.getByRole("dialog").getByRole("button", { name: "Retry", exact: true }).click();
  await eventually("the job has the input", async () => {
    const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["parcels"], workerId: "printer-1", jobNames: ["label"], maxLeases: 1 });
    if (leases.length) assert.deepEqual(leases[0].job.args, { to: "Elm Street 2" });
    return leases.length;
  });
});

within(2, "An operator sees what a worker does", "parcels", async (page) => {
  await startRun("sent", "send", { address: "Elm Street 2" });
  await eventually("a worker has the job", async () => {
    const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["parcels"], workerId: "printer-2", jobNames: ["label"], maxLeases: 1 });
    return leases.some((lease) => lease.job.jobId.includes("sent"));
  });
  await page.getByRole("navigation").getByRole("link", { name: "Workers" }).click();
  await page.getByRole("link", { name: "printer-2" }).click();
  await page.getByRole("row", { name: /sent\/label/ }).waitFor();
});

within(3, "A cron is paused", "parcels", async (page) => {
  await page.getByRole("navigation").getByRole("link", { name: "Crons" }).click();
  await page.getByRole("row", { name: /nightly/ }).getByRole("button", { name: "Pause…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause", exact: true }).click();
  await eventually("the cron is paused", async () => (await engine.post("CronService/GetCron", { namespace: "parcels", cronId: "nightly" })).cron.paused);
});

within(3, "A wait for a person is answered", "parcels", async (page) => {
  await page.getByRole("navigation").getByRole("link", { name: /^Inbox/ }).click();
  await page.getByRole("button", { name: "Answer Send it?" }).click();
  await page.getByRole("dialog").getByLabel("Your name").fill("ann");
  await page.getByRole("dialog").getByRole("button", { name: "Answer", exact: true }).click();
  await eventually("the run succeeds", async () => (await run("asking")).status === "RUN_STATUS_SUCCEEDED");
});

within(5, "500 failed runs are retried", "parcels", async (page) => {
  for (let begun = 0; begun < 500; begun += 50)
    await Promise.all(Array.from({ length: 50 }, (_, n) => startRun(`back-${begun + n}`, "return", {})));
  await eventually("all runs have failed", async () => {
    const { runs = [] } = await engine.post("FlowService/ListRuns", { namespace: "parcels", filter: "status = FAILED", pageSize: 1000 });
    return runs.filter((failed) => failed.runId.startsWith("back-")).length === 500;
  }, 60_000);
  await page.reload();
  await page.getByRole("link", { name: "Show 500 runs" }).click({ timeout: 25_000 }); // shared responses are up to 10 s old
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Retry 500" }).click();
  await page.getByText("500 of 500").waitFor({ timeout: 60_000 });
  for (const n of [0, 499]) assert.ok((await run(`back-${n}`)).steps[0].attempt > 1, `back-${n} ran again`);
});
