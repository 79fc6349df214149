// Bulks of jobs and runs, as a user sees them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually } from "./seed.mjs";
import { specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const jobState = async (jobId) => (await engine.post("JobService/GetJob", { namespace: "mail", jobId })).job.state;
const runStatus = async (runId) => (await engine.post("FlowService/GetRun", { namespace: "mail", runId })).run.status;

/** Fails the next jobs of a name, as a worker. */
async function fail(name, count) {
  for (let n = 0; n < count; n++) {
    const { leases } = await engine.post("WorkerService/Poll", { namespaces: ["mail"], workerId: "w", jobNames: [name], maxLeases: 1, wait: "10s" });
    await engine.post("WorkerService/Complete", { leaseToken: leases[0].leaseToken, response: { failure: { reason: "smtp", message: "the server is away" } } });
  }
}

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "mail", processor: { pull: {} } } });
  await engine.post("FlowService/PutTemplate", { template: { namespace: "mail", type: "letter", steps: [{ stepId: "print", job: { name: "print" } }] } });
  for (const n of [1, 2, 3]) {
    await engine.post("JobService/Enqueue", { namespace: "mail", jobId: `bad-${n}`, name: "send" });
    await engine.post("FlowService/StartRun", { namespace: "mail", runId: `letter-${n}`, type: "letter" });
  }
  await fail("send", 3);
  await fail("print", 3);
  for (const n of [1, 2, 3]) await eventually("the run has failed", async () => (await runStatus(`letter-${n}`)) === "RUN_STATUS_FAILED");
  await engine.post("JobService/Enqueue", { namespace: "mail", jobId: "waits", name: "send" });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("Failed runs are all retried in four clicks, after a dry run", async (page, go) => {
  await go("#/overview?ns=mail");
  await page.getByRole("navigation", { name: "pages" }).getByRole("link", { name: "Flows" }).click(); // 1
  await page.getByRole("group", { name: "by status" }).getByRole("button", { name: "Failed" }).click(); // 2
  await page.getByRole("button", { name: "Act on all matches…" }).click(); // 3
  await page.getByText("3 runs match").waitFor();
  await page.getByText("letter-1, letter-2, letter-3").waitFor();
  await page.getByRole("button", { name: "Retry 3" }).click(); // 4
  await page.getByRole("heading", { name: /Retry all runs that match/ }).waitFor();
  await page.getByText("3 of 3").waitFor();
  await page.getByText("Completed").first().waitFor();
  for (const n of [1, 2, 3]) assert.notEqual(await runStatus(`letter-${n}`), "RUN_STATUS_FAILED");
  assert.match(await page.getByRole("link", { name: "Show matching runs" }).getAttribute("href"), /^#\/flows\?ns=mail&filter=/);
  await go("#/bulks?ns=mail");
  await page.getByRole("link", { name: "Retry runs" }).waitFor();
});

spec("A selected run is cancelled, and then removed", async (page, go) => {
  await go("#/flows?ns=mail");
  await page.getByRole("checkbox", { name: "select letter-2" }).check();
  await page.getByRole("button", { name: "Act on 1 selected run…" }).click();
  const what = page.getByRole("group", { name: "what to do" });
  await what.getByRole("button", { name: "Remove" }).click();
  await page.getByText("1 of them will be skipped").waitFor();
  await what.getByRole("button", { name: "Cancel" }).click();
  await page.getByLabel("Type cancel to confirm").fill("cancel");
  await page.getByRole("button", { name: "Cancel 1" }).click();
  await page.locator("h1", { hasText: "Cancel" }).waitFor();
  await eventually("it is cancelled", async () => (await runStatus("letter-2")) === "RUN_STATUS_CANCELLED");
  assert.notEqual(await runStatus("letter-1"), "RUN_STATUS_CANCELLED");
  await go("#/flows?ns=mail&filter=status+%3D+CANCELLED");
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await what.getByRole("button", { name: "Remove" }).click();
  await page.getByLabel("Type remove to confirm").fill("remove");
  await page.getByRole("button", { name: "Remove 1" }).click();
  await page.locator("h1", { hasText: "Remove" }).waitFor();
  await eventually("it is removed", () => runStatus("letter-2").then(() => false, () => true));
});

spec("A bulk retries failed jobs, except the jobs of steps", async (page, go) => {
  await go("#/jobs?ns=mail");
  assert.equal(await page.getByRole("checkbox", { name: "select ~job/letter-1/print", exact: true }).isDisabled(), true);
  await page.getByRole("checkbox", { name: "select all on this page" }).check();
  await page.getByRole("button", { name: "Act on 4 selected jobs…" }).click();
  await page.getByText("4 jobs match").waitFor();
  await page.getByText("1 of them will be skipped").waitFor();
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await page.getByRole("button", { name: /^Failed 3/ }).click();
  await page.getByRole("button", { name: "Act on all matches…" }).click();
  await page.getByText("3 jobs match").waitFor();
  await page.getByLabel("Reason").fill("the server is back");
  await page.getByRole("button", { name: "Retry 3" }).click();
  await page.getByRole("heading", { name: /Retry all jobs that match/ }).waitFor();
  await page.getByText("3 of 3").waitFor();
  for (const n of [1, 2, 3]) assert.equal(await jobState(`bad-${n}`), "JOB_STATE_AVAILABLE");
  await page.getByRole("link", { name: "Show matching jobs" }).click();
  await page.getByText("No jobs match").waitFor();
});

spec("The keyboard moves through a list and selects rows", async (page, go) => {
  await go("#/jobs?ns=mail&filter=name+%3D+send");
  await page.getByRole("link", { name: "waits" }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByRole("button", { name: "Act on 1 selected job…" }).waitFor();
  assert.equal(await page.getByRole("checkbox", { name: "select waits" }).isChecked(), true);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "waits" }).waitFor();
});

spec("The list of processes shows those of users, and others only on request", async (page, go) => {
  await engine.post("ProcessService/Start", { namespace: "mail", processId: "order", wait: "WAIT_ACCEPTED" });
  await go("#/processes?ns=mail");
  const chip = (name) => page.getByRole("group", { name: "by status" }).getByRole("button", { name });
  const internal = page.getByRole("checkbox", { name: "Internal" });
  await page.getByRole("link", { name: "order", exact: true }).waitFor();
  await chip(/^Running 1$/).waitFor();
  assert.equal(await page.getByRole("row").count(), 2);
  await internal.click(); // the box is checked when the address has changed
  await page.getByRole("link", { name: "waits", exact: true }).waitFor();
  await page.getByRole("link", { name: "~flow/letter-1", exact: true }).waitFor();
  assert.equal(await chip(/^Running 1$/).count(), 0);
  assert.equal(await page.getByRole("checkbox", { name: "select waits" }).isDisabled(), true);
  await internal.click();
  await page.getByRole("link", { name: "waits", exact: true }).waitFor({ state: "detached" });
  await page.getByRole("combobox", { name: "filter" }).fill("kind = job AND process_id = waits");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "waits", exact: true }).waitFor();
  assert.equal(await internal.isDisabled(), true);
  await go("#/overview");
  const running = page.getByRole("row", { name: /^mail / }).getByRole("link").nth(1);
  await running.and(page.getByText(/^1$/)).waitFor();
  await page.getByRole("checkbox", { name: /^[1-9]\d* internal$/ }).click();
  await running.and(page.getByText(/^([2-9]|\d\d+)$/)).waitFor();
  await running.click();
  await page.getByRole("checkbox", { name: "Internal", checked: true }).waitFor();
});
