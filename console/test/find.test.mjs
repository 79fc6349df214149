// The palette: it finds objects by the beginning of their ID, and offers nothing without a page.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { start } from "./seed.mjs";
import { specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  await start(engine, "find-process", { order: "F-1", items: [{ sku: "tea" }] });
  await start(engine, "find:more \"*", { order: "F-2", items: [{ sku: "tea" }] });
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "found", processor: { pull: {} } } });
  await engine.post("JobService/Enqueue", { namespace: "found", jobId: "find-job", name: "look" });
  await engine.post("FlowService/PutTemplate", { template: { namespace: "found", type: "find_template", steps: [{ stepId: "one", delay: { duration: "3600s" } }] } });
  await engine.post("FlowService/StartRun", { namespace: "found", runId: "find-run", type: "find_template" });
  await engine.post("CronService/CreateCron", { cron: { namespace: "found", cronId: "find-cron", spec: { expressions: ["@yearly"] }, target: { startProcess: { namespace: "echo" } } } });
  await engine.post("WorkerService/Poll", { namespaces: ["found"], workerId: "find-worker", wait: "0s", jobNames: ["nothing"] });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

const type = async (page, text) => {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "command" }).fill(text);
};

spec("What is typed before the palette has been loaded is not lost", async (page, go) => {
  let load;
  const typed = new Promise((done) => (load = done));
  await page.route(/\/search-[^/]*\.js$/, async (route) => {
    await typed;
    await route.continue();
  });
  await go("#/overview");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("gor"); // also keys of the page
  load();
  await page.getByRole("combobox", { name: "command" }).and(page.locator('[value="gor"]')).waitFor();
  assert.match(page.url(), /#\/overview/);
});

spec("Objects of each kind are found by the beginning of their ID, in all namespaces or in one", async (page, go) => {
  await go("#/overview");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await type(page, "find");
  for (const name of ["process find-process demo", "job find-job found", "run find-run found", "cron find-cron found", "template find_template found", "worker find-worker found"])
    await page.getByRole("option", { name, exact: true }).waitFor();
  await page.keyboard.press("Escape");
  for (const [id, page_, heading] of [["find-job", "job", "find-job"], ["find-run", "run", "find-run"], ["find-cron", "cron", "find-cron"], ["find_template", "template", "find_template"], ["find-worker", "worker", "find-worker"]]) {
    await go("#/jobs?ns=found");
    await page.getByRole("heading", { name: "Jobs" }).waitFor();
    await type(page, id);
    await page.keyboard.press("Enter"); // before the engine has answered
    await page.waitForURL(new RegExp(`#/${page_}\\?`));
    await page.getByRole("heading", { name: heading }).first().waitFor();
  }
  await type(page, "find-process");
  await page.getByText("Nothing found").waitFor();
});

spec("An ID with quotes and asterisks is found, and a text with which no ID begins offers nothing", async (page, go) => {
  await go("#/processes?ns=demo");
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await type(page, 'find:more "*');
  await page.getByRole("option", { name: 'process find:more "*' }).click();
  await page.getByRole("heading", { name: 'find:more "*' }).waitFor();
  await type(page, "zzzz");
  await page.getByText("Nothing found").waitFor();
  assert.equal(await page.getByRole("dialog").getByRole("option").count(), 0);
});

spec("Actions that end or delete something come last", async (page, go) => {
  await go("#/process?ns=demo&id=find-process");
  await page.getByRole("heading", { name: "find-process" }).waitFor();
  await page.getByRole("button", { name: "Suspend…" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("option", { name: /Remove…/ }).waitFor();
  const names = await page.getByRole("dialog").getByRole("option").allInnerTexts();
  assert.deepEqual(names.slice(-2).map((n) => n.replace(/\s+/g, " ")), ["process Cancel…", "process Remove…"]);
  assert.ok(!names.some((n) => /namespace\s+demo$/.test(n)), "the palette offers the namespace that is already shown");
});

spec("Another namespace shows its list, not the page of an object that it does not have", async (page, go) => {
  await go("#/process?ns=demo&id=find-process");
  await page.getByRole("heading", { name: "find-process" }).waitFor();
  await type(page, "found");
  await page.getByRole("option", { name: "namespace found", exact: true }).click();
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  assert.match(page.url(), /ns=found/);
  await page.getByLabel("namespace", { exact: true }).selectOption("demo");
  await page.getByRole("link", { name: "find-process" }).waitFor();
});
