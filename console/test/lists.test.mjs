// Lists: searching for a word, counts of the filtered rows, columns, sorting, export and keyboard shortcuts.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before } from "node:test";
import { eventually } from "./seed.mjs";
import { bytes, fits, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  const begin = (processId, metadata) => engine.post("ProcessService/Start", { namespace: "echo", processId, args: bytes("hello"), metadata });
  await begin("ada-1", { customer: "bob", amount: 7 });
  await begin("list-1", { customer: "ada", amount: 12, tags: ["vip", "new"] });
  await begin("list-2", { customer: "ada", amount: 40, note: '=1+1,"x"' });
  await begin("list-3", { customer: "cy", amount: 12 });
  await engine.post("ProcessService/SuspendProcess", { namespace: "echo", processId: "list-2", reason: "later" });
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "rows", processor: { pull: {} } } });
  for (let n = 1; n <= 3; n++) await engine.post("JobService/Enqueue", { namespace: "rows", jobId: `job-${n}`, name: n === 3 ? "other" : "mail", options: { metadata: { customer: n === 1 ? "ada" : "bob" }, priority: n } });
  await engine.post("FlowService/PutTemplate", { template: { namespace: "rows", type: "rows", steps: [{ stepId: "one", delay: { duration: "3600s" } }] } });
  for (let n = 1; n <= 2; n++) await engine.post("FlowService/StartRun", { namespace: "rows", runId: `run-${n}`, type: "rows" });
  await engine.post("FlowService/CancelRun", { namespace: "rows", runId: "run-2" });
  for (const cronId of ["a-cron", "b-cron"]) await engine.post("CronService/CreateCron", { cron: { namespace: "rows", cronId, spec: { expressions: ["@yearly"] }, target: { startProcess: { namespace: "echo" } } } });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

const ids = (page) => page.locator("main tbody tr td.id a").allInnerTexts();
const shows = (page, wanted) => eventually(`the list has ${wanted}`, async () => (await ids(page)).join() === wanted.join());

spec("A word finds the beginning of an ID and values of metadata of any type", async (page, go) => {
  await go("#/processes?ns=echo");
  const filter = page.getByRole("combobox", { name: "filter" });
  await filter.fill("ada");
  await page.getByText("Enter searches for ada").waitFor();
  await filter.press("Enter");
  await shows(page, ["list-2", "list-1", "ada-1"]);
  assert.match(await filter.inputValue(), /^process_id = "ada\*" OR .*metadata\.customer = "ada"/);
  for (const [word, wanted] of [["12", ["list-3", "list-1"]], ["vip", ["list-1"]], ['"list-3"', ["list-3"]]]) {
    await filter.fill(word);
    await filter.press("Enter");
    await shows(page, wanted);
  }
  await filter.fill("order:17"); // a colon is also an operator
  await filter.press("Enter");
  await page.getByText("No processes match").waitFor();
  assert.match(await filter.inputValue(), /^process_id = "order:17\*" OR /);
  await filter.fill("nothing");
  await filter.press("Enter");
  await page.getByText("No processes match").waitFor();
  await filter.fill("cy"); // the list is empty, but the keys of the metadata are known
  await filter.press("Enter");
  await shows(page, ["list-3"]);
  await go("#/jobs?ns=rows");
  await page.getByRole("combobox", { name: "filter" }).fill("ada");
  await page.keyboard.press("Enter");
  await shows(page, ["job-1"]);
  await page.getByRole("combobox", { name: "filter" }).fill("oth");
  await page.keyboard.press("Enter");
  await shows(page, ["job-3"]);
  await go("#/flows?ns=rows");
  await page.getByRole("combobox", { name: "filter" }).fill("run-2");
  await page.keyboard.press("Enter");
  await shows(page, ["run-2"]);
});

spec("Suggested metadata values are quoted if the filter requires it", async (page, go) => {
  await go("#/processes?ns=echo&filter=process_id+%3D+nothing");
  await page.getByText("No processes match").waitFor();
  const filter = page.getByRole("combobox", { name: "filter" });
  await filter.fill("metadata.customer = ");
  await page.getByRole("option", { name: '"cy"', exact: true }).click();
  await filter.press("Enter");
  await shows(page, ["list-3"]);
  await filter.fill("metadata.amount = ");
  await page.getByRole("option", { name: "40", exact: true }).waitFor();
});

spec("Chips count the matches of the filter, and narrow it", async (page, go) => {
  await go("#/processes?ns=echo&filter=metadata.customer+%3D+ada+OR+metadata.customer+%3D+cy");
  await page.getByRole("button", { name: "Running 2", exact: true }).waitFor();
  await page.getByRole("button", { name: "Suspended 1", exact: true }).click();
  await shows(page, ["list-2"]);
  assert.equal(await page.getByRole("combobox", { name: "filter" }).inputValue(), "metadata.customer = ada OR metadata.customer = cy AND status = SUSPENDED");
  await page.getByRole("columnheader", { name: "Status since" }).getByRole("button").click(); // with one status, the engine can sort by this column
  await page.locator("th[aria-sort=descending]", { hasText: "Status since" }).waitFor();
  await shows(page, ["list-2"]);
  await page.getByRole("button", { name: "Running 2", exact: true }).click();
  await shows(page, ["list-3", "list-1"]);
  await page.getByRole("button", { name: "Running 2", exact: true, pressed: true }).click();
  await shows(page, ["list-3", "list-2", "list-1"]);
  await go("#/jobs?ns=rows");
  await page.getByRole("button", { name: /^mail 2/ }).click();
  await page.getByRole("button", { name: "Available 2", exact: true }).click();
  await page.getByRole("button", { name: "Available 2", exact: true, pressed: true }).waitFor();
  await shows(page, ["job-2", "job-1"]);
  assert.equal(await page.getByRole("combobox", { name: "filter" }).inputValue(), "name = mail AND state = AVAILABLE");
  await go("#/flows?ns=rows");
  await page.getByRole("button", { name: "Cancelled 1", exact: true }).click();
  await shows(page, ["run-2"]);
});

spec("Columns can be chosen, including metadata fields, and the list can be sorted", async (page, go) => {
  await go("#/processes?ns=echo");
  await shows(page, ["list-3", "list-2", "list-1", "ada-1"]);
  await page.getByRole("button", { name: "Columns…" }).click();
  await page.getByRole("dialog").getByLabel("customer").check();
  await page.getByRole("dialog").getByLabel("Status since").uncheck();
  await page.getByRole("dialog").getByRole("button", { name: "Done" }).click();
  await page.getByRole("columnheader", { name: "customer" }).waitFor();
  await page.getByRole("cell", { name: "cy", exact: true }).waitFor();
  await page.reload();
  await page.getByRole("columnheader", { name: "customer" }).waitFor();
  assert.equal(await page.getByRole("columnheader", { name: "Status since" }).count(), 0);
  await page.getByRole("columnheader", { name: "Process" }).getByRole("button").click();
  await shows(page, ["list-3", "list-2", "list-1", "ada-1"]);
  assert.equal(await page.getByRole("columnheader", { name: "Process" }).getAttribute("aria-sort"), "descending");
  await page.getByRole("columnheader", { name: "Process" }).getByRole("button").click();
  await shows(page, ["ada-1", "list-1", "list-2", "list-3"]);
  await page.getByRole("button", { name: "Columns…" }).click();
  await page.getByRole("button", { name: "Show the default columns" }).click();
  await page.getByRole("columnheader", { name: "customer" }).waitFor({ state: "detached" });
});

spec("An export has the filter, the order and the columns of the list", async (page, go) => {
  await page.addInitScript(() => localStorage.setItem("progressor.columns.processes", '["metadata.customer","metadata.note"]'));
  await go("#/processes?ns=echo&filter=process_id+%3D+%22list-*%22&order=process_id");
  const save = async (format) => {
    await page.getByRole("button", { name: "Export…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: format, exact: true }).click();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("dialog").getByRole("button", { name: "Export", exact: true }).click()]);
    await page.getByText("Exported 3 rows.").first().waitFor();
    return [file.suggestedFilename(), await readFile(await file.path(), "utf8")];
  };
  const [name, table] = await save("CSV");
  assert.equal(name, "processes-echo.csv");
  const rows = table.split("\r\n");
  const columns = rows[0].split(",");
  assert.deepEqual(columns.slice(0, 2), ["Status", "Process"]);
  assert.deepEqual([...columns.slice(2)].sort(), ["customer", "note"]);
  assert.deepEqual(rows.slice(1).map((r) => r.split(",").slice(0, 2).join()), ["RUNNING,list-1", "SUSPENDED,list-2", "RUNNING,list-3", ""]);
  assert.ok(rows[2].includes(`"'=1+1,""x"""`), rows[2]);
  const [, json] = await save("JSON");
  assert.deepEqual(JSON.parse(json).map((p) => [p.processId, p.metadata.customer]), [["list-1", "ada"], ["list-2", "ada"], ["list-3", "cy"]]);
});

spec("j, k, x and Enter work on lists of each kind", async (page, go) => {
  for (const [hash, first, second, heading] of [["#/crons?ns=rows", "a-cron", "b-cron", "b-cron"], ["#/flows?ns=rows", "run-2", "run-1", "run-1"], ["#/jobs?ns=rows", "job-3", "job-2", "job-2"]]) {
    await go(hash);
    await page.getByRole("link", { name: second, exact: true }).waitFor();
    await page.keyboard.press("j");
    await page.locator("tr:focus-within").filter({ hasText: first }).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    await page.keyboard.press("j");
    await page.locator("tr:focus-within").filter({ hasText: second }).waitFor();
    if (!hash.includes("crons")) {
      await page.keyboard.press("x");
      await page.getByRole("checkbox", { name: `select ${second}`, checked: true }).waitFor();
    }
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: heading }).first().waitFor();
  }
  await go("#/namespaces");
  await page.getByRole("button", { name: /rows/ }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator("tr:focus-within").getByRole("button", { expanded: true }).waitFor();
});

spec("On a phone, lists with all columns fit", async (page, go) => {
  await page.addInitScript(() => localStorage.setItem("progressor.columns.jobs", '["name","attempt","progress","worker","priority","tags","args","metadata.customer","reason","enqueued","ended"]'));
  for (const hash of ["#/processes?ns=echo", "#/jobs?ns=rows", "#/flows?ns=rows"]) {
    await go(hash);
    await page.getByRole("button", { name: "Columns…" }).waitFor();
    await fits(page, hash, { scrolls: true });
  }
}, { viewport: { width: 390, height: 844 } });
