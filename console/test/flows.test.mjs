// Flows, as a user sees them: templates, runs as graphs, answers to waits.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before } from "node:test";
import { promisify } from "node:util";
import { eventually } from "./seed.mjs";
import { fits, program, specs, startBrowser, startEngine } from "./world.mjs";

const examples = new URL("../../examples/flows/", import.meta.url).pathname;
let engine, browser;
const spec = specs(() => ({ engine, browser }));
const parcels = [{ sku: "tea", count: 1 }, { sku: "cake", count: 2 }];
const start = (runId, payload, type = "multi_step_pipeline") => engine.post("FlowService/StartRun", { namespace: "orders", runId, type, scope: "customer", scopeId: "ada", payload });
const order = (runId, total) => start(runId, { order: runId, total, parcels });
const run = async (runId) => (await engine.post("FlowService/GetRun", { namespace: "orders", runId })).run;
const is = (runId, status) => eventually(`${runId} is ${status}`, async () => (await run(runId)).status === `RUN_STATUS_${status}`);

// The leases of the worker, by job.
const held = new Map();

/**
 * Works on jobs of a run as a worker, one step after the other. By the name of the job, answers has
 * a failure, a progress to report, or {} to complete the job. The leases of other jobs are kept.
 */
async function work(runId, answers) {
  for (const [name, answer] of Object.entries(answers)) {
    await eventually(`${name} of ${runId} is done`, async () => {
      const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["orders"], workerId: "host-1", maxLeases: 10, wait: held.size ? "0.2s" : "1s", leaseDuration: "600s" });
      for (const l of leases) held.set(l.job.jobId, l.leaseToken);
      for (const [jobId, leaseToken] of held) {
        if (jobId.replace(/\.\d+$/, "") !== `~job/${runId}/${name}`) continue;
        if (answer.progress) await engine.post("WorkerService/Heartbeat", { workerId: "host-1", beats: [{ leaseToken, progress: answer.progress }] });
        else await engine.post("WorkerService/Complete", { leaseToken, ...(answer.failure ? { response: { failure: answer.failure } } : { jobResult: { result: { did: name } } }) });
        if (!answer.progress) held.delete(jobId);
      }
      const s = (await run(runId)).steps.find((s) => s.stepId === name);
      return answer.progress ? s.progress?.percent === answer.progress.percent : s.status === `STEP_STATUS_${answer.failure ? "FAILED" : "SUCCEEDED"}`;
    });
  }
}

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "orders", processor: { pull: {} } } });
  for (const name of ["multi_step_pipeline", "demo_long_task", "external_worker_task"]) await promisify(execFile)(program, ["template", "put", "orders", "-f", `${examples}${name}.yaml`, "--address", engine.url]);
  await order("expensive", 2000);
  await work("expensive", { check: {}, reserve: {} });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("The list of runs shows the step of each run, has a filter, and works with the keyboard", async (page, go) => {
  await start("other", { target: "x" }, "demo_long_task");
  await go("#/flows?ns=orders");
  await page.getByRole("row", { name: /expensive.*multi_step_pipeline.*approve/ }).getByText("Waiting").waitFor();
  await page.getByRole("row", { name: /other.*demo_long_task.*prepare/ }).waitFor();
  assert.doesNotMatch(await page.locator("main").innerText(), /\dT\d\d:/);
  await page.getByRole("button", { name: "Waiting" }).click();
  await page.getByRole("link", { name: "other" }).waitFor({ state: "detached" });
  assert.match(page.url(), /filter=status/);
  const filter = page.getByRole("combobox", { name: "filter" });
  await filter.fill("phase = ");
  await filter.press("Enter");
  await page.getByRole("alert").waitFor();
  await filter.fill('template_type = "multi*" AND payload.total > 1000');
  await filter.press("Enter");
  await page.getByRole("link", { name: "expensive" }).waitFor();
  await filter.blur();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "expensive" }).waitFor();
});

spec("A form made from the schema of a template starts a run", async (page, go) => {
  await go("#/template?ns=orders&type=multi_step_pipeline");
  const graph = page.getByRole("group", { name: "steps of multi_step_pipeline" });
  await graph.getByRole("link", { name: /approve/ }).click();
  await page.getByRole("heading", { name: "Step approve" }).waitFor();
  await page.getByText("Approve order ${payload.order} of ${payload.total}").first().waitFor();
  await page.getByRole("button", { name: "Start…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("order", { exact: true }).fill("by-form");
  await dialog.getByLabel("total").fill("many");
  await dialog.getByText("not a number").waitFor();
  await dialog.getByLabel("total").fill("-1");
  await dialog.getByLabel("sku").fill("tea");
  await dialog.getByRole("button", { name: "Check" }).click();
  await dialog.getByText("must be greater than 0 (got -1)").waitFor();
  await dialog.getByLabel("total").fill("50");
  await dialog.getByLabel("count").fill("2");
  await dialog.getByRole("button", { name: "Add to parcels" }).click();
  await dialog.getByLabel("sku").nth(1).fill("mug");
  await dialog.getByLabel("count").nth(1).fill("1");
  await dialog.getByRole("button", { name: "remove parcels 1" }).click();
  await dialog.getByRole("button", { name: "Check" }).click();
  await dialog.getByText("The payload is valid").waitFor();
  await dialog.getByRole("button", { name: "JSON" }).click();
  assert.deepEqual(JSON.parse(await dialog.getByRole("textbox", { name: "Payload" }).inputValue()), { order: "by-form", total: 50, parcels: [{ sku: "mug", count: 1 }] });
  await dialog.getByText("ID, scope and start time").click();
  await dialog.getByLabel("ID", { exact: true }).fill("by-form");
  await dialog.getByRole("button", { name: "Start" }).click();
  await page.getByRole("heading", { name: "by-form" }).waitFor();
  assert.equal((await run("by-form")).payload.parcels[0].sku, "mug");
});

spec("The graph of a run is live, and shows the items of a step", async (page, go) => {
  await order("live", 50);
  await go("#/run?ns=orders&id=live");
  const graph = page.getByRole("group", { name: "steps of live" });
  await graph.getByRole("link", { name: /^check.*Pending/ }).waitFor();
  await work("live", { check: {}, reserve: {} });
  await graph.getByRole("link", { name: /^reserve.*Succeeded/ }).waitFor();
  await graph.getByRole("link", { name: /^approve.*Skipped/ }).waitFor();
  await work("live", { charge: { progress: { percent: 40, summary: "asks the bank" } } });
  await graph.getByRole("progressbar", { name: "progress of charge" }).waitFor();
  await page.getByText("asks the bank").first().waitFor();
  await graph.getByRole("link", { name: /^charge/ }).click();
  assert.match(page.url(), /step=charge/);
  await page.getByRole("heading", { name: /^charge/ }).waitFor();
  await page.getByRole("button", { name: "Skip…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("continue as if it had succeeded").waitFor();
  await dialog.getByLabel("Reason").fill("paid in cash");
  await dialog.getByLabel("Result").fill('{"paid": ');
  await dialog.getByText(/^not valid JSON: /).waitFor();
  assert.equal(await dialog.getByText("sent as text").count(), 0);
  await dialog.getByLabel("Result").fill('{"paid": true}');
  await dialog.getByRole("button", { name: "Skip", exact: true }).click();
  await page.getByText("charge is skipped.").waitFor();
  await graph.getByRole("link", { name: /^charge.*Skipped/ }).waitFor();
  await work("live", { ship: {}, notify: {} });
  await graph.getByRole("link", { name: /^ship.*2 of 2.*Succeeded/ }).click();
  const items = page.getByRole("region", { name: "items" });
  await items.getByRole("row", { name: /0 Succeeded.*tea.*did/ }).waitFor();
  await items.getByRole("link", { name: "host-1" }).first().waitFor();
  await page.getByRole("tab", { name: "Payload and result" }).click();
  await page.getByRole("heading", { name: "Result", level: 2 }).waitFor();
  await page.getByRole("tab", { name: "Events" }).click();
  await page.getByRole("row", { name: /skipped by hand.*charge/ }).getByText("paid in cash").waitFor();
});

spec("A user finds a wait in the inbox and approves it in three clicks", async (page, go) => {
  await order("ask", 3000);
  await work("ask", { check: {}, reserve: {} });
  await go("#/overview?ns=echo");
  await page.getByRole("navigation", { name: "pages" }).getByRole("link", { name: /^Inbox \d+/ }).click(); // 1
  await page.getByRole("row", { name: /Approve order ask of 3000.*order: ask.*orders/ }).getByText(/sku: tea/).waitFor();
  await page.getByRole("button", { name: "Answer Approve order ask of 3000" }).click(); // 2
  assert.match(page.url(), /answer=orders%2Fask/);
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("definition").getByText("3000", { exact: true }).waitFor();
  await dialog.getByRole("button", { name: "Reject…" }).click();
  assert.equal(await dialog.getByLabel("Reason").inputValue(), "rejected", "the schema allows no other answer than yes");
  await dialog.getByRole("button", { name: "Done" }).click();
  await dialog.getByLabel("note").fill("as always");
  await dialog.getByLabel("Your name").fill("ann");
  await dialog.getByRole("button", { name: "Approve" }).click(); // 3
  await page.getByText("approve of ask is approved.").waitFor();
  await page.getByRole("row", { name: /order ask/ }).waitFor({ state: "detached" });
  const step = (await run("ask")).steps.find((s) => s.stepId === "approve");
  assert.deepEqual([step.result, step.workerId], [{ approved: true, note: "as always" }, "ann"]);
  await go("#/run?ns=orders&id=ask&step=approve");
  await page.locator(".steppanel").getByText("answered by").waitFor();
});

spec("A wait is claimed, released and rejected with the keyboard", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "votes", processor: { pull: {} } } });
  const resultSchema = { type: "object", required: ["approved"], properties: { approved: { type: "boolean" } } };
  await engine.post("FlowService/PutTemplate", { template: { namespace: "votes", type: "vote", name: "Vote", steps: [{ stepId: "vote", wait: { kind: "KIND_HUMAN", title: "Vote now", resultSchema } }] } });
  await engine.post("FlowService/StartRun", { namespace: "votes", type: "vote", runId: "v-1", payload: { of: "budget" } });
  await go("#/waits?ns=votes");
  const row = page.getByRole("row", { name: /Vote now/ });
  const dialog = page.getByRole("dialog");
  await row.getByRole("button", { name: "Claim Vote now" }).press("Enter");
  await dialog.getByLabel("Your name").fill("bob");
  await page.keyboard.press("Enter");
  await row.getByText("bob").waitFor();
  await row.getByRole("button", { name: "Release Vote now" }).press("Enter");
  await row.getByText("bob").waitFor({ state: "detached" });
  await engine.post("FlowService/ReportStep", { namespace: "votes", runId: "v-1", stepId: "vote", workerId: "eve" });
  await row.getByText("eve").waitFor();
  await row.getByRole("button", { name: "Answer Vote now" }).press("Enter");
  await dialog.getByText("eve works on this.").waitFor();
  await dialog.getByText("budget").first().waitFor();
  await dialog.getByRole("button", { name: "Reject", exact: true }).press("Enter");
  await page.getByText("vote of v-1 is rejected.").waitFor();
  const { run: ended } = await engine.post("FlowService/GetRun", { namespace: "votes", runId: "v-1" });
  assert.deepEqual([ended.steps[0].result, ended.steps[0].workerId], [{ approved: false }, "bob"]);
});

spec("The question of a process has no template, and is answered with yes or no", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "buyers", processor: { pull: {} } } });
  const wait = { kind: "KIND_HUMAN", title: "Buy a desk?", resultSchema: { type: "boolean" } };
  for (const id of ["p-1", "p-2"]) {
    await engine.post("ProcessService/Start", { namespace: "buyers", processId: id, wait: "WAIT_ACCEPTED" });
    const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["buyers"], workerId: "host-1", wait: "10s" });
    await engine.post("WorkerService/Complete", { leaseToken: leases[0].leaseToken, response: { result: { commands: [{ startRun: { runId: `${id}/ask`, wait: { ...wait, title: `${wait.title} ${id}` } } }] } } });
  }
  await go("#/waits?ns=buyers");
  const dialog = page.getByRole("dialog");
  for (const [id, button, said] of [["p-1", "Approve", "approved"], ["p-2", "Reject", "rejected"]]) {
    await page.getByRole("button", { name: `Answer Buy a desk? ${id}` }).click();
    await dialog.getByLabel("Your name").fill("ann");
    await dialog.getByRole("button", { name: button, exact: true }).click();
    await page.getByText(`answer of ${id}/ask is ${said}.`).waitFor();
  }
  const results = [];
  for (const id of ["p-1/ask", "p-2/ask"]) results.push((await engine.post("FlowService/GetRun", { namespace: "buyers", runId: id })).run.result);
  assert.deepEqual(results, [true, false]);
  await go("#/flows?ns=buyers");
  const row = page.getByRole("row", { name: /p-1.ask/ });
  await row.getByText("~wait").waitFor();
  assert.equal(await row.getByRole("link", { name: "~wait" }).count(), 0);
  await row.getByRole("link", { name: "p-1/ask" }).click();
  await page.getByText("a wait without a template, started").waitFor();
  await page.getByRole("link", { name: /answer.*Succeeded/ }).first().waitFor();
  assert.equal(await page.getByText("Its template was deleted").count(), 0);
});

spec("A wait for an external event is failed on the page of its run", async (page, go) => {
  await start("outside", { document: "d", language: "en" }, "external_worker_task");
  await work("outside", { submit: {} });
  await go("#/run?ns=orders&id=outside");
  await page.getByRole("button", { name: "Answer Translate d" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("external worker is expected").waitFor();
  await dialog.getByRole("button", { name: "Failed" }).click();
  await dialog.getByLabel("Reason").fill("no_translator");
  await dialog.getByLabel("Message").fill("they are on holiday");
  await dialog.getByRole("button", { name: "Fail the step" }).click();
  await page.getByText("no_translator: they are on holiday").first().waitFor();
  await is("outside", "FAILED");
});

spec("A failed run shows its failure and compensations, and is retried, cancelled and repeated", async (page, go) => {
  await order("bad", 60);
  await work("bad", { check: {}, reserve: {}, charge: { failure: { reason: "no_money", message: "the card is empty", nonRetryable: true } } });
  await eventually("the completed steps are undone", async () => {
    const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["orders"], workerId: "host-1", maxLeases: 10, wait: "1s", leaseDuration: "600s" });
    for (const l of leases) held.set(l.job.jobId, l.leaseToken);
    for (const [jobId, leaseToken] of held) {
      if (!jobId.startsWith("~job/bad/")) continue;
      await engine.post("WorkerService/Complete", { leaseToken, jobResult: { result: null } });
      held.delete(jobId);
    }
    return (await run("bad")).status === "RUN_STATUS_FAILED";
  });
  await go("#/run?ns=orders&id=bad");
  await page.getByText("no_money: the card is empty").first().waitFor();
  await page.getByText("6 steps: 3 succeeded, 1 failed, 1 skipped, 1 cancelled").waitFor();
  assert.equal(await page.getByText(/\d %/).count(), 0);
  await page.getByRole("group", { name: "steps of bad" }).getByRole("link", { name: /^reserve.*undone/ }).waitFor();
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Retry…" }).click();
  await dialog.getByLabel("Change the input of a step").selectOption("charge");
  await dialog.getByRole("textbox").first().waitFor();
  await dialog.getByLabel("Change the input of a step").selectOption("");
  await dialog.getByRole("button", { name: "Retry" }).click();
  await page.getByText("bad continues.").waitFor();
  await page.getByRole("button", { name: "Cancel…" }).click();
  await dialog.getByLabel("Reason").fill("enough");
  await dialog.getByRole("button", { name: "Cancel the run" }).click();
  await is("bad", "CANCELLED");
  await page.getByText("enough").first().waitFor();
  await page.getByRole("button", { name: "Repeat with changes…" }).click();
  await dialog.getByRole("button", { name: "Start new run" }).click();
  await page.waitForURL((url) => !url.hash.includes("id=bad"));
  await page.getByRole("tab", { name: "Payload and result" }).click();
  await page.getByRole("link", { name: "bad" }).waitFor();
});

spec("A retry after a failed expression is warned about, and its dialog belongs to one run", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "exprs", processor: { pull: {} } } });
  const one = { stepId: "pay", job: {}, input: { amount: "${payload.amount}" } };
  const items = { stepId: "ship", job: {}, input: { to: "${payload.address}" }, forEach: { items: "payload.parcels" } };
  for (const [type, step, payload] of [["one", one, { n: 1 }], ["items", items, { parcels: [1, 2] }]]) {
    await engine.post("FlowService/PutTemplate", { template: { namespace: "exprs", type, steps: [step] } });
    await engine.post("FlowService/StartRun", { namespace: "exprs", type, runId: type, payload });
  }
  const dialog = page.getByRole("dialog");
  const again = page.getByRole("button", { name: "Retry…" });
  await go("#/run?ns=exprs&id=one");
  await again.click();
  await dialog.getByText("An expression of the template failed.").waitFor();
  await dialog.getByLabel("Change the input of a step").selectOption("pay");
  const input = dialog.getByLabel("Input of pay");
  assert.deepEqual(JSON.parse(await input.inputValue()), { amount: "${payload.amount}" });
  const retry = dialog.getByRole("button", { name: "Retry", exact: true });
  assert.ok(await retry.isDisabled(), "an unchanged input is not sent");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await go("#/run?ns=exprs&id=items");
  await page.locator("button.main", { hasText: "Repeat with changes…" }).waitFor();
  await again.click();
  await dialog.getByText("An expression of the template failed.").waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: /^one/ }).waitFor();
  assert.equal(await dialog.count(), 0, "the dialog of another run");
  await again.click();
  await dialog.getByLabel("Change the input of a step").selectOption("pay");
  await input.fill('{"amount": 3}');
  await retry.click();
  await page.getByText("one continues.").waitFor();
  const { leases = [] } = await engine.post("WorkerService/Poll", { namespaces: ["exprs"], workerId: "host-1", wait: "10s" });
  assert.deepEqual(leases[0].job.args, { amount: 3 });
});

spec("A template is disabled, enabled, and shown in another version", async (page, go) => {
  const put = (title) => engine.post("FlowService/PutTemplate", { template: { namespace: "orders", type: "sign", name: title, steps: [{ stepId: "sign", wait: { kind: "KIND_HUMAN", title } }] } });
  await put("Sign here");
  await put("Sign there");
  await go("#/templates?ns=orders");
  await page.getByRole("link", { name: "sign", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Disable…" }).click();
  await dialog.getByRole("button", { name: "Disable" }).click();
  await page.getByText("New runs are rejected, including those of crons.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Start…" }).isDisabled(), true);
  await page.getByRole("button", { name: "Enable…" }).click();
  await dialog.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("combobox", { name: "version" }).selectOption("1");
  await page.getByText("This is version 1. New runs use version 2").waitFor();
  await page.getByText("Sign here").first().waitFor();
  await page.getByRole("button", { name: "Delete…" }).click();
  await dialog.getByLabel(/Type/).fill("sign");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("sign is deleted.").waitFor();
  await page.getByRole("link", { name: "demo_long_task" }).waitFor();
});

spec("A template is stored from a file, edited as YAML, and compared with the previous version", async (page, go) => {
  await go("#/templates?ns=orders");
  await page.getByRole("button", { name: "New template…" }).click();
  const dialog = page.getByRole("dialog");
  const text = dialog.getByRole("textbox", { name: "Template" });
  await text.fill("type: paper\nstep: []\n");
  await dialog.getByText("step: there is no such field").waitFor();
  await text.fill("type: paper\nsteps:\n  - step_id: sign\n    wait: {kind: ROBOT}\n");
  await dialog.getByText("steps[0].wait.kind: must be one of EXTERNAL, HUMAN").waitFor();
  const yaml = "type: paper\nname: A paper\nsteps:\n  - step_id: sign\n    wait: {kind: human, title: Sign, due: 1h30m}\n";
  await dialog.getByLabel("Or open a file").setInputFiles({ name: "paper.yaml", mimeType: "text/yaml", buffer: Buffer.from(yaml) });
  await dialog.getByRole("button", { name: "Check" }).click();
  await dialog.getByText("The template is valid.").waitFor();
  await dialog.getByRole("button", { name: "Store" }).click();
  await page.getByText("Version 1 of paper is stored.").waitFor();
  const definition = page.locator("pre[aria-label='definition as YAML']");
  assert.match(await definition.innerText(), /kind: HUMAN[^]*due: 90m/);
  await page.getByRole("button", { name: "Edit…" }).click();
  await text.fill((await text.inputValue()).replace("due: 90m", "due: 2h"));
  await dialog.getByRole("button", { name: "Save as new version" }).click();
  await page.getByText("Version 2 of paper is stored.").waitFor();
  await page.getByRole("combobox", { name: "compare with" }).selectOption("1");
  await page.getByText("2 lines changed from version 1 to version 2.").waitFor();
  assert.match(await definition.innerText(), /- +due: 90m\n\+ +due: 2h/);
  const { template } = await engine.post("FlowService/GetTemplate", { namespace: "orders", type: "paper" });
  assert.deepEqual([template.version, template.steps[0].wait.kind, template.steps[0].wait.due], [2, "KIND_HUMAN", "7200s"]);
});

spec("The overview leads from the failed job of a step to its run, which is retried, in four clicks", async (page, go) => {
  await order("hopeless", 10);
  await work("hopeless", { check: { failure: { reason: "stock", message: "there is none", nonRetryable: true } }, notify: {} });
  await is("hopeless", "FAILED");
  await go("#/job?ns=orders&id=~job/hopeless/check");
  await page.getByRole("heading", { name: "1 failed attempt" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Retry|Cancel/ }).count(), 0);
  await page.getByRole("link", { name: "Timeline" }).click();
  await page.getByRole("tab", { name: "Timeline" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Retry|Repair|Cancel/ }).count(), 0);
  await go("#/overview?ns=orders");
  await page.getByRole("row", { name: /there is none/ }).getByRole("link", { name: "Show 1 run" }).click(); // 1
  await page.getByRole("link", { name: "hopeless" }).click(); // 2
  await page.getByText("stock: there is none").first().waitFor();
  await page.getByRole("button", { name: "Retry…" }).click(); // 3
  await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click(); // 4
  await page.getByText("hopeless continues.").waitFor();
  await page.getByRole("group", { name: "steps of hopeless" }).getByRole("link", { name: /^check.*(Pending|Running)/ }).waitFor();
  await go("#/job?ns=orders&id=~job/hopeless/check");
  await page.getByRole("link", { name: "Run hopeless" }).click();
  await page.getByRole("heading", { name: "hopeless" }).waitFor();
  await page.getByRole("button", { name: "Cancel…" }).waitFor();
});

spec("The events of a run include those of the jobs of its steps", async (page, go) => {
  await go("#/run?ns=orders&id=expensive&tab=events");
  const events = page.getByRole("region", { name: "events" });
  await events.getByRole("row", { name: /Running started.*check.*1.*host-1/ }).waitFor();
  await events.getByRole("row", { name: /step queued.*check/ }).waitFor();
  await events.getByRole("row", { name: /Waiting.*the run/ }).first().waitFor();
  await go("#/job?ns=orders&id=~job/expensive/check");
  await events.getByRole("row", { name: /Running started.*host-1/ }).waitFor();
  assert.equal(await events.getByRole("row", { name: /step queued/ }).count(), 0);
});

spec("The events of a run show the time of day, the time since the previous event, and who caused them", async (page, go) => {
  await go("#/run?ns=orders&id=expensive&tab=events");
  const started = page.getByRole("region", { name: "events" }).getByRole("row", { name: /Running started.*check/ });
  assert.match(await started.innerText(), /\d\d:\d\d:\d\d\.\d{3}/);
  assert.match(await started.innerText(), /\+\d+(\.\d+)? (ms|s|min)/);
  await started.getByRole("link", { name: "host-1" }).click();
  await page.getByRole("heading", { name: "host-1" }).waitFor();
});

spec("The timeline of a run shows its steps with their attempts and items", async (page, go) => {
  await order("timed", 50);
  await work("timed", { check: {}, reserve: {}, charge: {}, ship: {}, notify: {} });
  await is("timed", "SUCCEEDED");
  await go("#/run?ns=orders&id=timed");
  await page.getByRole("tab", { name: "Over time" }).click();
  const rows = page.getByRole("region", { name: "steps of timed over time" });
  await rows.getByRole("img", { name: /^check: waited .* for a worker; attempt 1 on host-1 succeeded after/ }).waitFor();
  await rows.getByRole("button", { name: "items of ship" }).click();
  await rows.getByRole("img", { name: /^item 1: .*attempt 1 on host-1 succeeded/ }).waitFor();
  await page.getByRole("button", { name: "zoom in", exact: true }).click();
  await rows.getByRole("link", { name: "charge" }).click();
  await page.getByRole("heading", { name: /^charge/ }).waitFor();
});

spec("A large graph is fitted, shown in full screen with a map, and its branches are collapsed", async (page, go) => {
  const after = { s: [], a1: ["s"], a2: ["a1"], a3: ["a2"], a4: ["a3"], b1: ["s"], b2: ["b1"], b3: ["b2"], end: ["a4", "b3"] };
  const steps = Object.entries(after).map(([stepId, dependsOn]) => ({ stepId, dependsOn, wait: { kind: "KIND_HUMAN", title: stepId }, ...(stepId === "b1" && { condition: "false" }) }));
  await engine.post("FlowService/PutTemplate", { template: { namespace: "orders", type: "wide", name: "Wide", stepOrder: "STEP_ORDER_GRAPH", steps } });
  await start("wide-1", {}, "wide");
  await engine.post("FlowService/CompleteStep", { namespace: "orders", runId: "wide-1", stepId: "s", result: true });
  await go("#/run?ns=orders&id=wide-1");
  const graph = page.getByRole("group", { name: "steps of wide-1" });
  await graph.getByRole("link", { name: /^a1.*Running/ }).waitFor();
  assert.equal(await graph.locator(".react-flow__edge.went.tone-good").count(), 1, "only a1 was reached, from s");
  assert.ok((await graph.locator(".react-flow__edge.untaken").count()) >= 1, "b1 was skipped");
  await graph.getByRole("button", { name: "hide 3 steps after a1" }).press("Enter");
  await graph.getByRole("link", { name: /^a3/ }).waitFor({ state: "detached" });
  await graph.getByRole("link", { name: /^end/ }).waitFor();
  await graph.getByRole("button", { name: "show 3 steps after a1" }).press("Enter");
  await graph.getByRole("link", { name: /^a3/ }).waitFor();
  await graph.getByRole("button", { name: "Full screen" }).click();
  const box = await graph.boundingBox();
  assert.deepEqual([box.width, box.height], [1280, 860]);
  await graph.getByRole("button", { name: "Show all" }).click();
  await graph.getByRole("button", { name: "Zoom in" }).click();
  await graph.getByRole("button", { name: "Map" }).click();
  await graph.getByRole("img", { name: "map of the steps" }).waitFor();
  await page.keyboard.press("Escape");
  await graph.getByRole("button", { name: "Full screen" }).waitFor();
  assert.ok((await graph.boundingBox()).height < 700);
});

spec("The pages of flows fit on a phone, in the dark theme", async (page, go) => {
  for (const hash of ["#/flows?ns=orders", "#/run?ns=orders&id=expensive&step=approve", "#/run?ns=orders&id=expensive&tab=events", "#/run?ns=orders&id=expensive&tab=time", "#/templates?ns=orders", "#/template?ns=orders&type=multi_step_pipeline&step=ship", "#/waits?ns=orders", "#/waits"]) {
    await go(hash);
    await page.locator("main .card").first().waitFor();
    if (/\/(run|template)\?/.test(hash)) await page.getByRole("link", { name: /^charge/ }).first().waitFor();
    await fits(page, hash);
  }
}, { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
