// Jobs, constraints, workers, namespaces and nodes, as a user sees them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually } from "./seed.mjs";
import { fits, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser, leases;
const spec = specs(() => ({ engine, browser }));
const jobOf = async (id) => (await engine.post("JobService/GetJob", { namespace: "mail", jobId: id })).job;
const poll = async (workerId, more) => (await engine.post("WorkerService/Poll", { namespaces: ["mail"], workerId, wait: "5s", leaseDuration: "600s", maxLeases: 1, ...more })).leases ?? [];

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "mail", processor: { pull: {} } } });
  const enqueue = (jobId, name, args, options = {}) => engine.post("JobService/Enqueue", { namespace: "mail", jobId, name, args, options });
  await enqueue("slow", "render", { pages: 9 }, { keepResult: true, timeout: "600s" });
  leases = await poll("worker-a");
  await engine.post("WorkerService/Heartbeat", { workerId: "worker-a", beats: [{ leaseToken: leases[0].leaseToken, progress: { percent: 42, summary: "rendering page 4" } }] });
  await enqueue("bad", "send_mail", { to: "nobody" });
  const [bad] = await poll("worker-a");
  await engine.post("WorkerService/Complete", { leaseToken: bad.leaseToken, response: { failure: { reason: "smtp", message: "550 no such user" } } });
  await enqueue("later", "send_mail", { to: "ada" }, { tags: ["news"], runTime: new Date(Date.now() + 3600e3).toISOString() });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("The queue shows states, names, progress and failures, and is filtered", async (page, go) => {
  await go("#/jobs?ns=mail");
  await page.getByRole("row", { name: /slow/ }).getByRole("progressbar", { name: "42 percent" }).waitFor();
  await page.getByRole("row", { name: /bad/ }).getByText("smtp: 550 no such user").waitFor();
  await page.getByRole("button", { name: /^Failed 1/ }).click();
  await page.getByRole("row", { name: /slow/ }).waitFor({ state: "detached" });
  await page.getByRole("link", { name: "bad" }).waitFor();
  await page.getByRole("combobox", { name: "filter" }).fill("tags:news");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "later" }).waitFor();
  // Times are relative. The title of each has the exact time.
  const later = page.getByRole("row", { name: /later.*starts in \d+ min/ });
  assert.match(await later.locator("time").first().getAttribute("title"), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \(Europe\/Berlin\)/);
  assert.doesNotMatch(await later.innerText(), /\dT\d/);
});

spec("A failed job is found in the overview and retried in four clicks", async (page, go) => {
  await engine.post("JobService/Enqueue", { namespace: "mail", jobId: "mail-3", name: "send_mail", args: { to: "eve" } });
  const [lease] = await poll("worker-a", { jobNames: ["send_mail"] });
  await engine.post("WorkerService/Complete", { leaseToken: lease.leaseToken, response: { failure: { reason: "smtp", message: `relay access is denied ${"by a relay that says so at length, ".repeat(30)}` } } });
  for (const width of [1024, 1280, 390]) {
    await page.setViewportSize({ width, height: 860 });
    await go("");
    const show = page.getByRole("row", { name: /relay access is denied/ }).getByRole("link", { name: "Show 1 job" });
    await show.waitFor();
    const box = await show.boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= width, `Show ends at ${box.x + box.width} of ${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.getByRole("row", { name: /relay access is denied/ }).getByRole("link", { name: "Show 1 job" }).click(); // 1
  await page.getByRole("link", { name: "mail-3" }).click(); // 2
  await page.getByText(/relay access is denied/).first().waitFor();
  await page.getByRole("button", { name: "Retry…" }).click(); // 3
  await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click(); // 4
  await eventually("the job waits again", async () => (await jobOf("mail-3")).state === "JOB_STATE_AVAILABLE");
  await go("#/process?ns=mail&id=mail-3");
  await page.getByRole("link", { name: "Job", exact: true }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Repair|Call/ }).count(), 0);
  assert.match(await page.getByRole("link", { name: "Job", exact: true }).getAttribute("href"), /^#\/job\?ns=mail&id=mail-3$/);
  await page.getByRole("button", { name: "Cancel…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click();
  await eventually("it is cancelled", async () => (await jobOf("mail-3")).state === "JOB_STATE_CANCELLED");
});

spec("A failed job shows its failure, is retried, and then cancelled", async (page, go) => {
  await go("#/job?ns=mail&id=bad");
  await page.getByRole("heading", { name: "1 failed attempt" }).waitFor();
  await page.getByRole("region", { name: "failures" }).getByRole("row", { name: /^1 .*worker-a smtp 550 no such user/ }).waitFor();
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Retry…" }).click();
  await dialog.getByRole("button", { name: "Retry" }).click();
  await eventually("the job waits again", async () => (await jobOf("bad")).state === "JOB_STATE_AVAILABLE");
  await page.getByRole("button", { name: "Cancel…" }).click();
  await dialog.getByLabel("Reason").fill("no such user");
  await dialog.getByRole("button", { name: "Cancel the job" }).click();
  await eventually("it is cancelled", async () => (await jobOf("bad")).state === "JOB_STATE_CANCELLED");
  await page.getByText("Cancelled").first().waitFor();
  const events = page.getByRole("region", { name: "events" });
  await events.getByRole("row", { name: /Cancelled/ }).first().waitFor();
  await events.getByRole("row", { name: /retried/ }).waitFor();
  await events.getByRole("row", { name: /Failed.*worker-a.*550 no such user/ }).waitFor();
});

spec("Without a chosen namespace, the page says which one it shows, and the palette offers a search in each", async (page, go) => {
  await go("");
  await page.getByRole("navigation", { name: "pages" }).getByRole("link", { name: "Jobs" }).click();
  const only = page.getByRole("status").filter({ hasText: "this page shows one namespace at a time" });
  await only.getByRole("button", { name: "mail" }).click();
  await page.getByRole("link", { name: "mail-3" }).waitFor();
  await only.waitFor({ state: "detached" });
  await go("#/overview");
  await page.getByRole("button", { name: /Search…/ }).click();
  await page.getByRole("combobox", { name: "command" }).fill("mail-3");
  await page.getByRole("option", { name: "job mail-3 mail" }).click();
  await page.getByRole("heading", { name: "mail-3" }).waitFor();
});

spec("A job that has succeeded shows its last progress, and no warning", async (page, go) => {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "posts", processor: { pull: {} } } });
  await engine.post("JobService/Enqueue", { namespace: "posts", jobId: "halfway", name: "render", args: { pages: 2 } });
  const [{ leaseToken }] = await poll("worker-h", { namespaces: ["posts"] });
  await engine.post("WorkerService/Heartbeat", { workerId: "worker-h", beats: [{ leaseToken, progress: { percent: 50, summary: "page 1 of 2" } }] });
  await engine.post("WorkerService/Complete", { leaseToken, jobResult: { result: null } });
  await go("#/job?ns=posts&id=halfway");
  await page.getByRole("heading", { name: "Last reported progress" }).waitFor();
  await page.getByText("50 %: page 1 of 2").waitFor();
  assert.equal(await page.locator("main .notice").count(), 0);
  assert.equal(await page.getByRole("progressbar").count(), 0);
});

spec("A job is enqueued, and its timeline opened", async (page, go) => {
  await go("#/jobs?ns=mail");
  await page.getByRole("button", { name: "Enqueue…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Name" }).fill("send_mail");
  await dialog.getByLabel("Id").fill("by-hand");
  await dialog.getByLabel("Args").fill('{"to":"bob"');
  await dialog.getByText(/^not valid JSON: /).waitFor();
  assert.equal(await dialog.getByText("sent as text").count(), 0);
  await dialog.getByLabel("Args").fill('{"to":"bob"}');
  await dialog.getByLabel("Retries").fill("2");
  await dialog.getByRole("button", { name: "Enqueue" }).click();
  await page.getByRole("heading", { name: "by-hand" }).waitFor();
  await page.getByText(/has waited for a worker for/).waitFor();
  const j = await jobOf("by-hand");
  assert.deepEqual([j.args, j.options.maxRetry], [{ to: "bob" }, 2]);
  await page.getByRole("link", { name: "Timeline" }).click();
  await page.getByRole("tab", { name: "Timeline" }).waitFor();
});

spec("Constraints are created, shown in use, changed and deleted", async (page, go) => {
  await go("#/constraints?ns=mail");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New constraint…" }).click();
  await dialog.getByLabel("Name").fill("one-render");
  await dialog.getByLabel("Match").fill("job.name = 1");
  await dialog.getByLabel("Maximum running").fill("1");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Match").fill('job.name == "render"');
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("one-render is saved.").waitFor();
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByLabel("Maximum starts").fill("5");
  await dialog.getByLabel("Per", { exact: true }).fill("1m");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("5 starts per 1 min").waitFor();
  await page.getByRole("button", { name: "Delete…" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("No constraints yet").waitFor();
});

spec("The jobs of one name are paused with a reason, shown as paused, and resumed", async (page, go) => {
  await engine.post("JobService/Enqueue", { namespace: "mail", jobId: "fax-paused", name: "fax" });
  await go("#/jobs?ns=mail");
  const dialog = page.getByRole("dialog");
  const paused = page.getByRole("region", { name: "paused names" });
  await page.getByRole("row", { name: /fax-paused/ }).waitFor();
  assert.equal(await paused.count(), 0);
  await page.getByRole("button", { name: "Pause jobs by name…" }).click();
  await dialog.getByRole("button", { name: "Pause" }).click();
  await dialog.getByLabel("Name").and(dialog.locator(":focus")).waitFor(); // the name is required
  await dialog.getByLabel("Name").fill("fax");
  await dialog.getByLabel("Reason").fill("x".repeat(1025));
  await dialog.getByRole("button", { name: "Pause" }).click();
  await dialog.getByText("must be at most 1024 bytes").waitFor();
  await dialog.getByLabel("Reason").fill("the line is down");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.getByText("fax is paused.").waitFor();
  const row = paused.getByRole("row", { name: /fax/ });
  await row.getByText("the line is down").waitFor();
  await row.getByText("unknown", { exact: true }).waitFor(); // the engine does not know who sends requests
  const [{ pausedTime }] = (await engine.post("JobService/ListPausedJobs", { namespace: "mail" })).paused;
  const shown = await row.locator("time").getAttribute("datetime");
  assert.equal(new Date(shown).getTime(), Math.floor(new Date(pausedTime).getTime()));
  await page.route("**/ListPausedJobs", async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    for (const p of json.paused) p.actor = "ada";
    await route.fulfill({ response, json });
  });
  await row.getByText("ada", { exact: true }).waitFor();
  await page.unroute("**/ListPausedJobs");
  assert.deepEqual(await poll("worker-a", { jobNames: ["fax"], wait: "0s" }), []);
  await row.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByText("fax is resumed.").waitFor();
  await paused.waitFor({ state: "detached" });
  const [lease] = await poll("worker-a", { jobNames: ["fax"] });
  await engine.post("WorkerService/Complete", { leaseToken: lease.leaseToken, jobResult: {} });
});

spec("A slot of a job that no worker has taken is shown as held, not as running", async (page, go) => {
  await engine.post("JobService/PutConstraint", { constraint: { namespace: "mail", name: "one-fax", match: 'job.name == "fax"', maxRunning: 1 } });
  for (const jobId of ["fax-1", "fax-2"]) await engine.post("JobService/Enqueue", { namespace: "mail", jobId, name: "fax" });
  await eventually("fax-2 waits for its slot", async () => /1 of 1 slots in use/.test((await jobOf("fax-2")).blockedOn ?? ""));
  await go("#/job?ns=mail&id=fax-2");
  const explanation = page.locator(".notice").filter({ hasText: "one-fax: 1 of 1 slots in use (fax-1)" });
  await explanation.getByText("progressor job get mail fax-1", { exact: true }).and(page.locator("code")).waitFor();
  await page.getByRole("region", { name: "events" }).getByRole("cell", { name: "needs one-fax", exact: true }).waitFor();
  await explanation.getByRole("link", { name: "Show constraints" }).click();
  await page.getByRole("row", { name: /one-fax/ }).getByText("1, 1 held").waitFor();
  await page.getByRole("progressbar", { name: "1 of 1 slots in use" }).waitFor();
  await page.getByText("no worker has taken yet").waitFor();
  await go("#/process?ns=mail&id=fax-2");
  await page.getByText("1 of 1 slots in use (fax-1)").waitFor();
  for (const jobId of ["fax-2", "fax-1"]) await engine.post("JobService/CancelJob", { namespace: "mail", jobId });
  await engine.post("JobService/DeleteConstraint", { namespace: "mail", name: "one-fax" });
});

spec("What a worker does is seen in two clicks: its leases and its last results", async (page, go) => {
  await eventually("the worker is listed", async () => (await engine.post("WorkerService/ListWorkers", { namespace: "mail" })).workers?.length);
  await go("#/overview?ns=mail");
  await page.getByRole("navigation", { name: "pages" }).getByRole("link", { name: "Workers" }).click(); // 1
  await page.getByRole("link", { name: "worker-a" }).click(); // 2
  const lease = page.getByRole("region", { name: "leases" }).getByRole("row", { name: /slow render 1 .*rendering page 4/ });
  await lease.getByRole("progressbar", { name: "42 percent" }).waitFor();
  await lease.getByText(/in \d+ min/).waitFor();
  await page.getByRole("region", { name: "results" }).getByRole("row", { name: /Failed.* bad 1 .*550 no such user/ }).waitFor();
  await page.getByRole("link", { name: "Show jobs of this worker" }).click();
  await page.getByRole("row", { name: /slow/ }).waitFor();
  await page.getByRole("combobox", { name: "filter" }).fill("worker_id = worker-a AND state = RUNNING");
  await page.keyboard.press("Enter");
  await page.getByRole("row", { name: /bad/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /slow/ }).getByRole("link", { name: "worker-a" }).click();
  await lease.getByRole("link", { name: "slow" }).click();
  await page.getByRole("heading", { name: "slow" }).waitFor();
  await page.getByRole("link", { name: "worker-a" }).first().waitFor();
  await go("#/worker?ns=mail&id=worker-z");
  await page.getByText("The worker worker-z does not exist in mail").waitFor();
});

spec("A worker is told to stop, and then to continue", async (page, go) => {
  await eventually("the worker is listed", async () => (await engine.post("WorkerService/ListWorkers", { namespace: "mail" })).workers?.length);
  await go("#/workers?ns=mail");
  const dialog = page.getByRole("dialog");
  await page.getByRole("row", { name: /worker-a/ }).getByRole("cell", { name: "1", exact: true }).waitFor();
  await page.getByRole("button", { name: "Stop…" }).click();
  await dialog.getByLabel("Reason").fill("the host goes away");
  await dialog.getByRole("button", { name: "Stop" }).click();
  await page.getByText("worker-a will receive the command").waitFor();
  await page.getByText("stopping").waitFor();
  await page.getByRole("button", { name: "Continue…" }).click();
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Quiet…" }).click();
  assert.equal(await dialog.getByLabel("Reason").inputValue(), "", "the dialog offers the reason of the previous command");
  await dialog.getByRole("button", { name: "Cancel" }).click();
});

spec("A namespace is created, configured, paused and resumed", async (page, go) => {
  await go("#/namespaces");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New namespace…" }).click();
  await dialog.getByLabel("Name").fill("play");
  await dialog.getByRole("button", { name: "a built-in processor" }).click();
  await dialog.getByLabel("Processor name").fill("nobody");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.locator(".field", { hasText: "Processor name" }).getByText(/"nobody"/).waitFor();
  await dialog.getByLabel("Processor name").fill("echo");
  await dialog.getByRole("button", { name: "Save" }).click();
  const row = page.getByRole("row", { name: /play/ });
  await row.getByText("built-in: echo").waitFor();
  await row.getByRole("button", { name: "Configure…" }).click();
  await dialog.getByLabel("Step timeout").fill("5s");
  await dialog.getByLabel("Attempts").fill("7");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const n = (await engine.post("NamespaceService/GetNamespace", { namespace: "play" })).namespace;
  assert.deepEqual([n.stepTimeout, n.retryPolicy.maxAttempts], ["5s", 7]);
  await row.getByRole("button", { name: "Pause…" }).click();
  await dialog.getByRole("button", { name: "Pause" }).click();
  await row.getByText("Paused").waitFor();
  await go("#/jobs?ns=play");
  await page.getByRole("status").filter({ hasText: "play is paused: it accepts requests" }).getByRole("link", { name: "Show namespaces" }).click();
  await row.getByText("Paused").waitFor();
  await row.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await row.getByText("Active").waitFor();
  await row.getByRole("button", { name: "play" }).click();
  await page.getByText("7, 5s apart").waitFor();
});

spec("The pages fit on a phone", async (page, go) => {
  for (const hash of ["#/jobs?ns=mail", "#/job?ns=mail&id=slow", "#/job?ns=mail&id=bad", "#/constraints?ns=mail", "#/workers?ns=mail", "#/worker?ns=mail&id=worker-a", "#/namespaces", "#/nodes"]) {
    await go(hash);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.locator("main .card, main .empty").first().waitFor();
    await fits(page, hash);
  }
}, { viewport: { width: 390, height: 844 } });

spec("A node is drained", async (page, go) => {
  await go("#/nodes");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Drain…" }).click();
  await dialog.getByText("It is the only node").waitFor();
  await dialog.getByLabel(/Type/).fill(await dialog.locator("code").innerText());
  await dialog.getByRole("button", { name: "Drain" }).click();
  await page.getByText("draining").first().waitFor();
  page.wrong.length = 0; // from now on the engine refuses other requests of the page
});
