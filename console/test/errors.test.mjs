// Errors, as an operator handles them: groups, failing crons, repairs, and runs that are repeated or retried with changes.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, start as startOrder } from "./seed.mjs";
import { bytes, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const run = async (runId) => (await engine.post("FlowService/GetRun", { namespace: "parcels", runId })).run;
const runIs = (runId, status) => eventually(`${runId} is ${status}`, async () => (await run(runId)).status === `RUN_STATUS_${status}`);

/** Leases a task of a namespace, ends the task, and returns its job. */
async function work(namespace, response) {
  const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: [namespace], workerId: "host-1", maxLeases: 1, wait: "10s", leaseDuration: "600s" });
  assert.equal(leases.length, 1, "a task");
  await engine.post("WorkerService/Complete", { leaseToken: leases[0].leaseToken, ...response });
  return leases[0].job;
}

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  for (const namespace of ["mail", "parcels"]) await engine.post("NamespaceService/PutNamespace", { namespace: { namespace, processor: { pull: {} } } });
  // Two causes with the same reason and similar messages.
  for (const [n, message] of ["order 1 is late", "order 2 has no customer", "order 3 is late", "order 4 is late", "order 5 has no customer"].entries()) {
    const started = engine.post("ProcessService/Start", { namespace: "mail", processId: `mail-${n + 1}` }).catch(() => 0);
    await work("mail", { response: { failure: { reason: "bad_order", message, nonRetryable: true } } });
    await started;
  }
  const template = {
    namespace: "parcels",
    type: "send",
    payloadSchema: { type: "object", required: ["order"], properties: { order: { type: "string" }, address: { type: "string" } } },
    steps: [{ stepId: "label", input: { to: "${payload.address}" }, job: {} }],
  };
  await engine.post("FlowService/PutTemplate", { template });
  await engine.post("FlowService/StartRun", { namespace: "parcels", runId: "lost", type: "send", payload: { order: "A-1" } });
  await runIs("lost", "FAILED");
  await engine.post("CronService/CreateCron", { cron: { namespace: "parcels", cronId: "nightly", spec: { expressions: ["30 2 1 1 *"] }, target: { startRun: { type: "send", payloadTemplate: { order: "${fire_time}" } } } } });
  await engine.post("CronService/TriggerCron", { namespace: "parcels", cronId: "nightly" });
  await eventually("the cron is failing", async () => (await engine.post("CronService/GetCron", { namespace: "parcels", cronId: "nightly" })).cron.failures === 1);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("The processes of an error group are exactly those that are shown and acted on", async (page, go) => {
  await go("#/overview?ns=mail");
  await page.getByRole("row", { name: /is late/ }).getByRole("link", { name: "Show 3 processes" }).click();
  for (const id of ["mail-1", "mail-3", "mail-4"]) await page.getByRole("link", { name: id, exact: true }).waitFor();
  assert.equal(await page.getByRole("link", { name: "mail-2", exact: true }).count(), 0);
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByRole("dialog").getByText("3 processes match").waitFor();
  await go("#/overview?ns=mail");
  await page.getByRole("row", { name: /has no customer/ }).getByRole("link", { name: "Show 2 processes" }).click();
  for (const id of ["mail-2", "mail-5"]) await page.getByRole("link", { name: id, exact: true }).waitFor();
  assert.equal(await page.getByRole("link", { name: "mail-1", exact: true }).count(), 0);
});

spec("The failed jobs of an error group are retried together", async (page, go) => {
  for (const jobId of ["letter-1", "letter-2"]) {
    await engine.post("JobService/Enqueue", { namespace: "mail", jobId, name: "print" });
    await work("mail", { response: { failure: { reason: "bad_order", message: `order ${jobId.at(-1)} is late`, nonRetryable: true } } });
  }
  await go("#/overview?ns=mail");
  await page.getByRole("row", { name: /is late/ }).getByRole("link", { name: "Show 3 processes" }).waitFor();
  await page.getByRole("row", { name: /is late/ }).getByRole("link", { name: "Show 2 jobs" }).click();
  await page.getByRole("link", { name: "letter-1", exact: true }).waitFor();
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Retry 2" }).click();
  await page.locator("h1", { hasText: "Retry" }).waitFor();
  for (const jobId of ["letter-1", "letter-2"]) await eventually(`${jobId} waits again`, async () => (await engine.post("JobService/GetJob", { namespace: "mail", jobId })).job.state === "JOB_STATE_AVAILABLE");
});

spec("A failing cron is in the errors, the overview and the namespaces", async (page, go) => {
  await go("#/overview?ns=parcels");
  await page.getByRole("link", { name: /Failing crons 1/ }).waitFor();
  await page.getByRole("row", { name: /cron nightly/ }).getByRole("link", { name: "Show the cron" }).click();
  await page.getByText("Failing, 1 in a row").waitFor();
  await go("#/namespaces");
  await page.getByRole("row", { name: /^▸ parcels/ }).getByRole("link", { name: "1 failing cron" }).click();
  await page.getByRole("link", { name: "nightly" }).waitFor();
});

spec("The process of a failed run is not shown as completed", async (page, go) => {
  await go("#/process?ns=parcels&id=~flow/lost");
  await page.getByText("The run is FAILED").waitFor();
  assert.equal(await page.getByText("Completed").count(), 0);
});

spec("A run that failed because of its payload is repeated with another one", async (page, go) => {
  await go("#/flows?ns=parcels");
  await page.getByRole("link", { name: "lost", exact: true }).click();
  await page.getByRole("button", { name: "Repeat with changes…" }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("order", { exact: true }).inputValue(), "A-1");
  await dialog.getByRole("button", { name: "JSON" }).click();
  await dialog.getByRole("textbox", { name: "Payload" }).fill('{"order": "A-1", "address": "Lime Street 1"}');
  await dialog.getByRole("button", { name: "Start new run" }).click();
  await page.waitForURL((url) => url.hash.includes("run?") && !url.hash.includes("id=lost"));
  const job = await work("parcels", { jobResult: { result: {} } });
  assert.deepEqual(job.args, { to: "Lime Street 1" });
  await page.getByText("Succeeded").first().waitFor();
});

spec("The input of a failed step is edited, and the run retried", async (page, go) => {
  await go("#/run?ns=parcels&id=lost&step=label");
  await page.getByRole("button", { name: "Edit the input and retry…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("An expression of the template failed").waitFor();
  await dialog.getByRole("textbox", { name: "Input of label" }).fill('{"to": "Elm Street 2"}');
  await dialog.getByRole("button", { name: "Retry", exact: true }).click();
  await page.getByText("lost continues.").waitFor();
  const job = await work("parcels", { jobResult: { result: {} } });
  assert.deepEqual(job.args, { to: "Elm Street 2" });
  await runIs("lost", "SUCCEEDED");
});

spec("A repair is marked in the timeline and in the tasks", async (page, go) => {
  await startOrder(engine, "to-mark", { order: "R-9", items: [{ sku: "broken" }] });
  await engine.post("ProcessService/Call", { namespace: "demo", processId: "to-mark", args: bytes({ pay: 100 }) }).catch(() => 0);
  await engine.post("ProcessService/Repair", { namespace: "demo", processId: "to-mark", simple: {} });
  await go("#/process?ns=demo&id=to-mark");
  await page.locator(".legend").getByText("repair", { exact: true }).waitFor();
  await page.getByRole("tab", { name: /^Tasks/ }).click();
  await page.getByText(/repaired by task \d+/).waitFor();
  await page.getByRole("row", { name: /REPAIR/ }).getByText("without the processor").waitFor();
});
