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

/** Stores a template of one job with a schema for its payload, opens its page, and opens the form that starts a run. */
async function startForm(page, go, namespace, payloadSchema) {
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace, processor: { pull: {} } } });
  await engine.post("FlowService/PutTemplate", { template: { namespace, type: "send", payloadSchema, steps: [{ stepId: "label", job: {} }] } });
  await go(`#/template?ns=${namespace}&type=send`);
  await page.getByRole("button", { name: "Start…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Start", exact: true }).waitFor();
  return dialog;
}

const object = (required, properties) => ({ type: "object", required, properties });
const errorsIn = (dialog) => dialog.locator(".wrong").allInnerTexts();

spec("An empty list of a schema that needs an entry is an incomplete form, and not an unreachable engine", async (page, go) => {
  const dialog = await startForm(page, go, "tagged", object(["tags"], { tags: { type: "array", minItems: 1, items: { type: "string", minLength: 2 } } }));
  await refuses(dialog, "Start", "1");
  assert.deepEqual(await errorsIn(dialog), ["is required"]);
  assert.equal(await dialog.getByRole("alert").count(), 0);
  await dialog.getByRole("button", { name: "Check" }).click();
  await dialog.getByRole("alert").getByText("Invalid input").waitFor();
  assert.deepEqual(await errorsIn(dialog), ["is required"]);
  await dialog.getByLabel("1", { exact: true }).fill("x");
  await refuses(dialog, "Start", "1");
  assert.deepEqual(await errorsIn(dialog), ["must have at least 2 characters (got 1)"]);
  await dialog.getByRole("button", { name: "remove tags 1" }).click();
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.getByRole("button", { name: "Add to tags" }).and(dialog.locator(":focus")).waitFor();
  assert.deepEqual(await errorsIn(dialog), ["must have at least 1 items (got 0)"]);
  await dialog.getByRole("button", { name: "Add to tags" }).click();
  await dialog.getByLabel("1", { exact: true }).fill("blue");
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  const { runs } = await engine.post("FlowService/ListRuns", { namespace: "tagged" });
  const { run } = await engine.post("FlowService/GetRun", { namespace: "tagged", runId: runs[0].runId });
  assert.deepEqual(run.payload, { tags: ["blue"] });
});

spec("An error of a form that is not an error of the network does not say that the engine is unreachable", async (page, go) => {
  await go("#/jobs?ns=echo");
  await page.getByRole("button", { name: "Enqueue…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("look");
  const enqueue = dialog.getByRole("button", { name: "Enqueue", exact: true });
  await page.route("**/progressor.v1.JobService/Enqueue", (route) => route.fulfill({ status: 418, contentType: "text/html", body: "<p>a proxy</p>" }));
  await enqueue.click();
  await dialog.getByRole("alert").getByText("Something went wrong").waitFor();
  await page.unroute("**/progressor.v1.JobService/Enqueue");
  await page.route("**/progressor.v1.JobService/Enqueue", (route) => route.abort("connectionrefused"));
  await enqueue.click();
  await dialog.getByRole("alert").getByText("The engine cannot be reached").waitFor();
  await dialog.getByRole("alert").and(dialog.locator(":focus")).waitFor(); // the error belongs to no field
});

spec("The form of a schema marks required fields, and shows each error of the engine at its field", async (page, go) => {
  const parcel = object(["count"], { count: { type: "integer", minimum: 1 }, note: { type: "string" } });
  const address = object(["street"], { street: { type: "string" }, city: { type: "string" } });
  const dialog = await startForm(page, go, "marked", {
    ...object(["order", "parcels", "terms"], {
      order: { type: "string", minLength: 3 },
      parcels: { type: "array", minItems: 1, items: parcel },
      terms: { const: true },
      address,
      remark: { type: "string" },
    }),
    dependentRequired: { remark: ["phone"] },
  });
  const field = (label) => dialog.getByLabel(label, { exact: true });
  const required = async () => (await dialog.locator("[aria-required=true]").all()).length;
  assert.equal(await required(), 3, "order, count and terms");
  assert.equal(await dialog.getByText("optional").count(), 0);
  for (const label of ["order", "count", "terms"]) assert.equal(await field(label).getAttribute("aria-required"), "true", label);
  await refuses(dialog, "Start", "order");
  assert.deepEqual(await errorsIn(dialog), ["is required", "is required", "is required"]);
  await field("order").fill("A1");
  await refuses(dialog, "Start", "count");
  await field("count").fill("0");
  await refuses(dialog, "Start", "terms");
  await field("terms").check();
  // An optional object requires its fields as soon as one of them is set.
  await field("city").fill("Graz");
  await refuses(dialog, "Start", "street");
  await field("city").fill("");
  assert.equal(await required(), 3);
  await field("remark").fill("ring twice");
  await refuses(dialog, "Start", "order");
  assert.deepEqual(await errorsIn(dialog), ["must have at least 3 characters (got 2)", "must be at least 1 (got 0)"]);
  const box = dialog.getByRole("alert");
  await box.getByText("Correct the marked fields.").waitFor();
  await box.getByText("payload.phone: is required if remark is set").waitFor(); // the form has no such field
  assert.doesNotMatch(await box.innerText(), /order|parcels/);
  assert.deepEqual(await axe(page), []);
  // The error stays at its row.
  await dialog.getByRole("button", { name: "Add to parcels" }).click();
  await field("count").nth(1).fill("2");
  await dialog.getByRole("button", { name: "remove parcels 1" }).click();
  assert.deepEqual(await errorsIn(dialog), ["must have at least 3 characters (got 2)"]);
  await field("remark").fill("");
  await field("order").fill("A12");
  await dialog.getByRole("button", { name: "JSON" }).click();
  await dialog.getByRole("textbox", { name: "Payload" }).fill('{"order": "A12", "parcels": [{"count": 0}, {}], "terms": true}');
  await refuses(dialog, "Start", "Payload");
  assert.deepEqual(await errorsIn(dialog), ["parcels, item 1, count: must be at least 1 (got 0); parcels, item 2, count: is required"]);
  await dialog.getByRole("textbox", { name: "Payload" }).fill('{"order": "A12", "parcels": [{"count": 2}], "terms": true}');
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
});

spec("Args that a processor cannot decode are marked, and get the focus", async (page, go) => {
  await go("#/processes?ns=demo");
  await page.getByRole("button", { name: "Start…" }).click();
  const dialog = page.getByRole("dialog");
  await refuses(dialog, "Start", "Args");
  assert.deepEqual(await errorsIn(dialog), ["decode the args: must not be empty"]);
  await dialog.getByRole("alert").getByText("Rejected by the processor").waitFor();
  await dialog.getByLabel("Args").fill('{"order": "args-1", "items": [{"sku": "tea"}]}');
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
});

spec("A long list of a form is folded, and unfolds if an entry is wrong", async (page, go) => {
  const schema = (minimum) => object(["parcels"], { parcels: { type: "array", items: object(["count"], { count: { type: "integer", minimum } }) } });
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "folded", processor: { pull: {} } } });
  const template = (minimum) => engine.post("FlowService/PutTemplate", { template: { namespace: "folded", type: "send", payloadSchema: schema(minimum), steps: [{ stepId: "label", job: {} }] } });
  await template(1);
  await engine.post("FlowService/StartRun", { namespace: "folded", runId: "many", type: "send", payload: { parcels: Array.from({ length: 60 }, (_, n) => ({ count: n + 1 })) } });
  await engine.post("FlowService/CancelRun", { namespace: "folded", runId: "many" });
  await template(2);
  await go("#/run?ns=folded&id=many");
  await page.getByRole("button", { name: "Repeat with changes…" }).click();
  const dialog = page.getByRole("dialog");
  const inputs = dialog.getByLabel("count");
  await dialog.getByRole("button", { name: "Show 60 entries" }).click();
  assert.equal(await inputs.count(), 60);
  await dialog.getByRole("button", { name: "Hide 60 entries" }).click();
  assert.equal(await inputs.count(), 0);
  await dialog.getByRole("button", { name: "Start new run" }).click();
  await inputs.first().and(dialog.locator(":focus")).waitFor();
  assert.deepEqual(await errorsIn(dialog), ["must be at least 2 (got 1)"]);
  assert.deepEqual(await axe(page), []);
  await inputs.first().fill("7");
  await dialog.getByRole("button", { name: "Start new run" }).click();
  await page.waitForURL((url) => url.hash.includes("run?") && !url.hash.includes("id=many"));
});
