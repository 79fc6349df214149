// Crons, as a user sees them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually } from "./seed.mjs";
import { bytes, fits, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const target = { startProcess: { namespace: "echo", args: bytes("tick"), runEnd: "RUN_END_INIT" } };
const cronOf = async (id) => (await engine.post("CronService/GetCron", { namespace: "echo", cronId: id })).cron;

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await engine.post("CronService/CreateCron", { cron: { namespace: "echo", cronId: "often", spec: { expressions: ["* * * * * *"] }, target } });
  await engine.post("CronService/CreateCron", { cron: { namespace: "echo", cronId: "nightly", spec: { expressions: ["30 2 * * *"], timezone: "Europe/Berlin" }, target } });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("The list shows each cron with its last and next fires", async (page, go) => {
  await go("#/crons?ns=echo");
  await page.getByRole("link", { name: "often" }).waitFor();
  await page.getByRole("row", { name: /nightly/ }).getByText("30 2 * * *").waitFor();
  await page.getByRole("img", { name: /the last [1-9]\d* fires, 0 of them failed/ }).waitFor({ timeout: 30_000 });
});

spec("A cron is paused in three clicks, and triggered and resumed in its row", async (page, go) => {
  await engine.post("CronService/CreateCron", { cron: { namespace: "echo", cronId: "weekly", spec: { expressions: ["30 2 * * MON"] }, target } });
  await go("#/overview?ns=echo");
  await page.getByRole("navigation", { name: "pages" }).getByRole("link", { name: "Crons" }).click(); // 1
  const row = page.getByRole("row", { name: /weekly/ });
  const dialog = page.getByRole("dialog");
  await row.getByRole("button", { name: "Pause…" }).click(); // 2
  await dialog.getByRole("button", { name: "Pause", exact: true }).click(); // 3
  await row.getByText("Paused", { exact: true }).waitFor();
  assert.equal((await cronOf("weekly")).paused, true);
  await row.getByRole("button", { name: "Trigger…" }).click();
  await dialog.getByRole("button", { name: "Trigger", exact: true }).click();
  await eventually("it has fired", async () => (await engine.post("CronService/ListFires", { namespace: "echo", cronId: "weekly" })).fires?.some((f) => f.manual));
  await row.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume", exact: true }).click();
  await row.getByRole("button", { name: "Pause…" }).waitFor();
  assert.ok(!(await cronOf("weekly")).paused);
});

spec("A cron is created with a preview in words, changed, and deleted", async (page, go) => {
  await go("#/crons?ns=echo");
  await page.getByRole("button", { name: "New cron…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "ID", exact: true }).fill("by hand");
  await dialog.getByLabel("Expressions").fill("0 9 * * MON-FRX");
  await dialog.getByRole("alert").getByText(/expressions\[0\]/).waitFor();
  await dialog.getByLabel("Expressions").fill("0 9 * * MON-FRI");
  await dialog.getByLabel("Time zone").fill("Europe/Berlin");
  await dialog.getByText(/at 09:00/).first().waitFor();
  await dialog.getByRole("table", { name: /20\d\d/ }).first().waitFor();
  await dialog.getByRole("button", { name: "an HTTP request" }).click();
  await dialog.getByLabel("URL").fill("http://127.0.0.1:1/hook");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: /by hand/ }).waitFor();
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByLabel("Expressions").fill("0 10 * * MON-FRI");
  await dialog.getByText(/at 10:00/).first().waitFor();
  await dialog.getByText("Policies").click();
  await dialog.getByLabel("If the previous run is still running").selectOption({ label: "queue one fire" });
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("by hand is changed.").waitFor();
  const c = await cronOf("by hand");
  assert.deepEqual([c.spec.expressions, c.policy.overlapAction, c.target.http.url], [["0 10 * * MON-FRI"], "OVERLAP_ACTION_BUFFER_ONE", "http://127.0.0.1:1/hook"]);
  await page.getByRole("button", { name: "Delete…" }).click();
  await dialog.getByLabel(/Type/).fill("by hand");
  await dialog.getByRole("button", { name: "Delete permanently" }).click();
  await page.getByRole("heading", { name: "Crons" }).waitFor();
  await assert.rejects(cronOf("by hand"), /not_found/);
});

spec("A cron enqueues a job, then starts a run of a flow with a payload from the fire", async (page, go) => {
  await engine.post("FlowService/PutTemplate", { template: { namespace: "echo", type: "report", name: "A report", payloadSchema: { type: "object", required: ["at"] }, steps: [{ stepId: "render", job: {} }] } });
  await go("#/crons?ns=echo");
  await page.getByRole("button", { name: "New cron…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "ID", exact: true }).fill("reports");
  await dialog.getByLabel("Expressions").fill("0 6 * * *");
  await dialog.getByRole("button", { name: "a job" }).click();
  await dialog.getByLabel("Job name").fill("render");
  await dialog.getByLabel("Retries").fill("3");
  await dialog.getByLabel("Args").fill('{"pages": 3}');
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: /reports/ }).waitFor();
  const { enqueueJob } = (await cronOf("reports")).target;
  assert.deepEqual([enqueueJob.name, enqueueJob.args, enqueueJob.options.maxRetry], ["render", { pages: 3 }, 3]);
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByRole("button", { name: "a flow run" }).click();
  await dialog.getByRole("combobox", { name: "Template" }).fill("report");
  await dialog.locator(".hint", { hasText: "A report" }).waitFor();
  await dialog.getByLabel("Scope ID").fill("daily");
  await dialog.getByLabel("Payload").fill('{"at": "${fire_time}"');
  await dialog.getByText("not valid JSON").waitFor();
  await dialog.getByLabel("Payload").fill('{"at": "${fire_time}"}');
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("reports is changed.").waitFor();
  const { startRun } = (await cronOf("reports")).target;
  assert.deepEqual([startRun.type, startRun.scopeId, startRun.payloadTemplate], ["report", "daily", { at: "${fire_time}" }]);
  await page.getByRole("button", { name: "Trigger…" }).click();
  await dialog.getByRole("button", { name: /Trigger/ }).click();
  await eventually("a run exists", async () => (await engine.post("FlowService/ListRuns", { namespace: "echo", filter: "cron_id = reports" })).runs?.[0]?.payload?.at);
});

spec("A cron with an invalid schedule is not created; the list and the page show that a cron has ended", async (page, go) => {
  await go("#/crons?ns=echo");
  await page.getByRole("button", { name: "New cron…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "ID", exact: true }).fill("wrong");
  await dialog.getByLabel("Expressions").fill("0 25 * * *");
  await dialog.getByRole("alert").waitFor();
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByLabel("Expressions").and(dialog.locator(":focus")).waitFor();
  await dialog.getByText("is not valid: see the preview").waitFor();
  await dialog.getByLabel("Expressions").fill("0 23 * * *");
  await dialog.getByText("at 23:00 every day").waitFor();
  await dialog.getByText("is not valid: see the preview").waitFor({ state: "detached" });
  await dialog.getByRole("button", { name: "Cancel" }).click();
  const cron = { namespace: "echo", cronId: "once", spec: { expressions: ["* * * * * *"], maxFires: "1" }, target: { http: { url: "http://127.0.0.1:9/" } } };
  await engine.post("CronService/CreateCron", { cron });
  await eventually("its run has failed", async () => (await engine.post("CronService/ListFires", { namespace: "echo", cronId: "once" })).fires?.[0]?.status === "FIRE_STATUS_FAILED");
  await go("#/crons?ns=echo&filter=cron_id%20%3D%20once");
  await page.getByText("Ended, failing, 1 in a row").waitFor();
  await page.getByRole("link", { name: "once" }).click();
  await page.getByRole("heading", { name: /once.*Ended, failing, 1 in a row/ }).waitFor();
  assert.equal(await page.locator(".calendar .fires").count(), 0);
});

spec("A cron is triggered, paused with a note, resumed and backfilled", async (page, go) => {
  await go("#/cron?ns=echo&id=nightly");
  const dialog = page.getByRole("dialog");
  await page.getByText(/02:30/).first().waitFor();
  await page.getByRole("button", { name: "Trigger…" }).click();
  await dialog.getByRole("button", { name: "Trigger" }).click();
  await page.getByText("manual").waitFor();
  await page.getByText("Success").first().waitFor();
  await page.getByRole("button", { name: "Pause…" }).click();
  await dialog.getByLabel("Note").fill("the backup moves");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.getByText("the backup moves").waitFor();
  assert.equal((await cronOf("nightly")).paused, true);
  await page.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await eventually("it is resumed", async () => !(await cronOf("nightly")).paused);
  await page.getByRole("button", { name: "Backfill…" }).click();
  await dialog.getByLabel("From").fill("2026-10-01T00:00:00");
  await dialog.getByLabel("To").fill("2026-09-30T00:00:00");
  await dialog.getByText("must be after From").waitFor();
  await dialog.getByLabel("To").fill("2026-10-04T00:00:00");
  await dialog.getByRole("button", { name: "Backfill 3 fire times" }).click();
  await page.getByText("2026-10-02 02:30:00").waitFor();
});

spec("A fire leads to its run", async (page, go) => {
  await go("#/cron?ns=echo&id=often");
  await page.getByRole("region", { name: "ledger" }).getByRole("link", { name: "run", exact: true }).first().click();
  await page.getByRole("tab", { name: "Timeline" }).waitFor();
  await go("#/processes?ns=echo");
  await page.getByRole("row", { name: /cron often, due (now|.* ago)/ }).first().waitFor();
});

spec("A cron that fires often shows its last day and its ledger first, and how often it failed in a row", async (page, go) => {
  await engine.post("CronService/CreateCron", { cron: { namespace: "echo", cronId: "hopeless", spec: { expressions: ["* * * * * *"] }, target: { http: { url: "http://127.0.0.1:9/" } } } });
  await eventually("it failed twice", async () => (await engine.post("CronService/ListFires", { namespace: "echo", cronId: "hopeless" })).fires?.filter((f) => f.status === "FIRE_STATUS_FAILED").length > 1);
  await go("#/cron?ns=echo&id=hopeless");
  await page.getByText(/The last \d+ runs failed/).waitFor();
  await page.getByRole("img", { name: /fires of the last .*\d failed/ }).waitFor();
  const ledger = await page.getByRole("region", { name: "ledger" }).boundingBox();
  const calendar = page.getByText("Calendar", { exact: true });
  assert.ok(ledger.y < (await calendar.boundingBox()).y);
  await calendar.press("Enter");
  await page.getByRole("table", { name: /20\d\d/ }).first().waitFor();
  await go("#/crons?ns=echo");
  await page.getByRole("row", { name: /hopeless/ }).getByText(/[Ff]ailing, \d+ in a row/).waitFor();
  await go("#/cron?ns=echo&id=nightly");
  await page.getByRole("table", { name: /20\d\d/ }).first().waitFor();
  assert.equal(await page.getByText("Calendar", { exact: true }).count(), 0);
});

spec("Crons fit on a phone", async (page, go) => {
  for (const hash of ["#/crons?ns=echo", "#/cron?ns=echo&id=often"]) {
    await go(hash);
    await page.getByText("often").first().waitFor();
    await fits(page, hash);
  }
}, { viewport: { width: 390, height: 844 } });
