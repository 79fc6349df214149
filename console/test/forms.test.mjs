// What forms send: unchanged values as they were, and new values as they were typed. A request
// whose response was lost is executed only once.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { axe, bytes, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Clicks the button of a form in which a field is wrong, and checks that the field gets the focus. */
async function refuses(dialog, button, label) {
  await dialog.getByRole("button", { name: button, exact: true }).click();
  await dialog.getByLabel(label, { exact: true }).and(dialog.locator(":focus")).waitFor();
}

spec("A form marks what it requires, shows each error at its field, and focuses the first", async (page, go) => {
  await go("#/jobs?ns=echo");
  await page.getByRole("button", { name: "Enqueue…" }).click();
  const dialog = page.getByRole("dialog");
  const name = dialog.getByLabel("Name", { exact: true });
  assert.equal(await name.getAttribute("aria-required"), "true");
  await refuses(dialog, "Enqueue", "Name");
  await dialog.getByText("is required").waitFor();
  await name.fill("look");
  await dialog.getByText("is required").waitFor({ state: "detached" });
  await dialog.getByLabel("ID", { exact: true }).fill("x".repeat(300));
  await refuses(dialog, "Enqueue", "ID"); // the engine refuses this ID
  await dialog.getByRole("alert").getByText("Correct the marked field.").waitFor();
  assert.equal(await dialog.getByLabel("ID", { exact: true }).getAttribute("aria-invalid"), "true");
  assert.deepEqual(await axe(page), []);
  await dialog.getByLabel("ID", { exact: true }).fill("short");
  assert.equal(await dialog.getByLabel("ID", { exact: true }).getAttribute("aria-invalid"), null);
  await dialog.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByRole("heading", { name: "short" }).waitFor();
});

spec("A form does not change durations that were not edited", async (page, go) => {
  const namespace = { namespace: "exact", processor: { pull: {} }, stepTimeout: "3661s", retention: "8985600.250s", retryPolicy: { initialInterval: "12.500s", maxInterval: "59.700s" } };
  await engine.post("NamespaceService/PutNamespace", { namespace });
  await engine.post("JobService/PutConstraint", { constraint: { namespace: "exact", name: "slowly", match: "true", rate: { count: 10, per: "3661.250s" } } });
  await engine.post("CronService/CreateCron", {
    cron: { namespace: "exact", cronId: "tick", spec: { expressions: ["@daily"], jitter: "12.500s" }, policy: { timeout: "3661s" }, target: { startProcess: { namespace: "echo" } } },
  });
  const dialog = page.getByRole("dialog");
  await go("#/namespaces?ns=exact");
  await page.getByRole("row", { name: /exact/ }).getByRole("button", { name: "Configure…" }).click();
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const put = (await engine.post("NamespaceService/GetNamespace", { namespace: "exact" })).namespace;
  assert.deepEqual([put.stepTimeout, put.retention, put.retryPolicy.initialInterval, put.retryPolicy.maxInterval], ["3661s", "8985600.250s", "12.500s", "59.700s"]);

  await go("#/constraints?ns=exact");
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByLabel("Maximum running").fill("1O");
  await refuses(dialog, "Save", "Maximum running");
  await dialog.getByLabel("Maximum running").fill("5");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const [{ constraint }] = (await engine.post("JobService/ListConstraints", { namespace: "exact" })).constraints;
  assert.deepEqual([constraint.maxRunning, constraint.rate.per], [5, "3661.250s"]);

  await go("#/cron?ns=exact&id=tick");
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByLabel("Expressions").fill("@hourly");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const { cron } = await engine.post("CronService/GetCron", { namespace: "exact", cronId: "tick" });
  assert.deepEqual([cron.spec.expressions, cron.spec.jitter, cron.policy.timeout], [["@hourly"], "12.500s", "3661s"]);
});

spec("A field shows that its text is not a number, and does not use the default instead", async (page, go) => {
  const dialog = page.getByRole("dialog");
  const refused = async (fields, button) => {
    for (const [label, text] of fields) {
      const field = dialog.getByLabel(label, { exact: true });
      const before = await field.inputValue();
      await field.fill(text);
      await dialog.getByText(/^must be a (whole )?number, or empty$/).waitFor();
      await refuses(dialog, button, label);
      await field.fill(before);
      await dialog.getByText(/^must be a (whole )?number, or empty$/).waitFor({ state: "detached" });
    }
    await dialog.getByRole("button", { name: "Cancel" }).click();
  };
  await go("#/jobs?ns=echo");
  await page.getByRole("button", { name: "Enqueue…" }).click();
  await dialog.getByLabel("Name").fill("count");
  await refused([["Retries", "many"], ["Retries", "-1"], ["Priority", "high"]], "Enqueue");
  await go("#/namespaces");
  await page.getByRole("row", { name: /echo/ }).getByRole("button", { name: "Configure…" }).click();
  await refused([["Attempts", "many"], ["Backoff factor", "twice"], ["Running tasks per node", "1O"], ["Waiting requests per process", "1.5"]], "Save");
  await go("#/crons?ns=echo");
  await page.getByRole("button", { name: "New cron…" }).click();
  await dialog.getByRole("textbox", { name: "ID", exact: true }).fill("number");
  await dialog.getByLabel("Expressions").fill("@daily");
  await dialog.getByText("Policies").click();
  await refused([["Concurrent runs", "two"], ["Pause after consecutive failures", "few"]], "Create");
  await go("#/constraints?ns=echo");
  await page.getByRole("button", { name: "New constraint…" }).click();
  await dialog.getByLabel("Name").fill("rate");
  await dialog.getByLabel("Match").fill("true");
  await dialog.getByLabel("Per", { exact: true }).fill("1m");
  await dialog.getByText("required with a duration or a burst").waitFor();
  await refuses(dialog, "Save", "Maximum starts");
});

spec("The field of an integer that would lose digits shows an error", async (page, go) => {
  await go("#/jobs?ns=echo");
  await page.getByRole("button", { name: "Enqueue…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("count");
  await dialog.getByLabel("Args").fill('{"text": "9007199254740993", "part": 0.12345678901234567, "id": 9007199254740993}');
  await dialog.getByText("the integer 9007199254740993 is beyond 2^53").waitFor();
  await dialog.getByLabel("Args").fill('{"text": "9007199254740993", "part": 0.12345678901234567, "id": 9007199254740992}');
  await dialog.getByRole("button", { name: "Enqueue", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  const { jobs } = await engine.post("JobService/ListJobs", { namespace: "echo", filter: "name = count" });
  assert.deepEqual(jobs.map((j) => j.args.id), [9007199254740992]);
});

spec("A call whose response was lost is not executed twice", async (page, go) => {
  await engine.post("ProcessService/Start", { namespace: "echo", processId: "once", args: bytes("born") });
  await go("#/process?ns=echo&id=once");
  await page.getByRole("button", { name: "Call…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Args").fill("pay");
  let lost = 0;
  await page.route("**/progressor.v1.ProcessService/Call", async (route) => {
    if (lost++ > 0) return route.continue();
    await route.fetch();
    await route.abort("connectionreset");
  });
  const call = dialog.getByRole("button", { name: "Call", exact: true });
  await call.click();
  await dialog.getByRole("alert").waitFor();
  await call.click();
  await dialog.getByRole("status").getByText("Response", { exact: true }).waitFor();
  const another = page.waitForResponse("**/progressor.v1.ProcessService/Call");
  await call.click();
  await another;
  const history = async () => (await engine.post("ProcessService/GetProcess", { namespace: "echo", processId: "once" })).process.history.map((e) => Buffer.from(e.payload, "base64").toString());
  assert.deepEqual([lost, await history()], [3, ["born", "pay", "pay"]]);
});
