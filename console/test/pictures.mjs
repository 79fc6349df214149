// Takes the screenshots of the docs (make pictures). Check each of them before you commit it.
import { mkdir } from "node:fs/promises";
import { seedShop, start } from "./seed.mjs";
import { bytes, openPage, startBrowser, startEngine } from "./world.mjs";

const out = new URL("../../docs/images/", import.meta.url).pathname;
await mkdir(out, { recursive: true });
const engine = await startEngine("--demo-flow");
const browser = await startBrowser();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const quiet = (request) => request.catch(() => 0);

await seedShop(engine, 24);
const tick = { startProcess: { namespace: "echo", args: bytes("tick"), runEnd: "RUN_END_INIT" } };
const cron = (cronId, expression, timezone, target = tick) => engine.post("CronService/CreateCron", { cron: { namespace: "demo", cronId, spec: { expressions: [expression], timezone }, target } });
await cron("heartbeat", "*/3 * * * * *", "");
await cron("nightly-report", "30 2 * * *", "Europe/Berlin");
await cron("last-workday", "0 9 LW * *", "America/New_York");
await cron("hook", "*/5 * * * * *", "", { http: { url: "http://127.0.0.1:1/hook" } });
await cron("cleanup", "@hourly", "");
await engine.post("CronService/PauseCron", { namespace: "demo", cronId: "cleanup", note: "until the disk is bigger" });
await start(engine, "order-100", { order: "A-100", customer: "ada", items: [{ sku: "flaky" }] });
await quiet(engine.post("ProcessService/Call", { namespace: "demo", processId: "order-100", args: bytes({ pay: 100 }) }));

// Some minutes of load, for the charts.
for (let n = 0; n < Number(process.env.MINUTES ?? 2) * 60; n++) {
  for (let k = 0; k < 4 + (n % 20); k++) await quiet(engine.post("ProcessService/Start", { namespace: "echo", processId: `visit-${n}-${k}`, args: bytes("hello") }));
  await pause(900);
}

// Running jobs. They are enqueued last and with long timeouts, so they still run when the picture
// is taken.
await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "mail", processor: { pull: {} }, maxRunning: 50 } });
for (let n = 1; n <= 12; n++) {
  const options = { maxRetry: 2, timeout: "600s", tags: ["news"], ...(n > 10 ? { runTime: new Date(Date.now() + 3600e3).toISOString() } : {}) };
  await engine.post("JobService/Enqueue", { namespace: "mail", jobId: `mail-${n}`, name: n % 3 ? "send_mail" : "render_pdf", args: { to: `user${n}@example.com`, region: n % 2 ? "eu" : "us" }, options });
}
await engine.post("JobService/PutConstraint", { constraint: { namespace: "mail", name: "by-region", match: 'job.name == "send_mail"', key: "job.args.region", maxRunning: 2 } });
const leases = [];
while (leases.length < 4) leases.push(...((await engine.post("WorkerService/Poll", { namespaces: ["mail"], workerId: "host-1", maxLeases: 4 - leases.length, wait: "5s", leaseDuration: "600s" })).leases ?? []));
const complete = (n, answer) => leases[n] && engine.post("WorkerService/Complete", { leaseToken: leases[n].leaseToken, ...answer });
await complete(0, { jobResult: { result: { sent: true } } });
await complete(1, { response: { failure: { reason: "smtp", message: "451 try again later" } } });
if (leases[2]) await engine.post("WorkerService/Heartbeat", { workerId: "host-1", beats: [{ leaseToken: leases[2].leaseToken, progress: { percent: 62, summary: "31 of 50 addresses" } }] });

async function picture(name, hash, options = {}, before = async () => {}) {
  const page = await openPage(browser, { viewport: { width: 1280, height: 800 }, ...options });
  await page.goto(`${engine.url}/${hash}`);
  await page.getByRole("heading").first().waitFor();
  await before(page);
  await pause(2000);
  await page.screenshot({ path: `${out}${name}.png` });
  await page.context().close();
}

const dark = { colorScheme: "dark" };
const phone = { viewport: { width: 390, height: 800 } };
await picture("overview", "#/overview");
await picture("overview-dark", "#/overview", dark);
await picture("overview-narrow", "#/overview", phone);
await picture("processes", "#/processes?ns=demo");
await picture("processes-narrow", "#/processes?ns=demo", phone);
await picture("process-error", "#/process?ns=demo&id=order-4");
await picture("process-dark", "#/process?ns=demo&id=order-100", dark);
await picture("process-narrow", "#/process?ns=demo&id=order-4", phone);
await picture("tasks", "#/process?ns=demo&id=order-2&tab=tasks");
await picture("bulk", "#/processes?ns=demo&filter=status+%3D+ERROR", {}, (page) => page.getByRole("button", { name: "Act on all matches…" }).click());
await picture("palette-dark", "#/overview", dark, (page) => page.keyboard.press("Control+k"));
await picture("jobs", "#/jobs?ns=mail");
await picture("jobs-narrow", "#/jobs?ns=mail", phone);
await picture("constraints-dark", "#/constraints?ns=mail", dark);
await picture("crons", "#/crons?ns=demo");
await picture("cron-dark", "#/cron?ns=demo&id=hook", dark);
await picture("cron-edit", "#/cron?ns=demo&id=last-workday", {}, (page) => page.getByRole("button", { name: "Edit…" }).click());
await picture("flows", "#/flows?ns=demo");
await picture("run", "#/run?ns=demo&id=A-3&step=ship");
await picture("run-dark", "#/run?ns=demo&id=A-2", dark);
await picture("run-narrow", "#/run?ns=demo&id=A-2", phone);
await picture("start-run", "#/template?ns=demo&type=order", {}, (page) => page.getByRole("button", { name: "Start…" }).click());
await picture("inbox-dark", "#/waits?ns=demo", dark, (page) => page.getByRole("button", { name: /Answer/ }).click());
await picture("namespaces", "#/namespaces?open=demo");
// A worker without requests since the previous pictures would be shown as silent.
for (const workerId of ["host-1", "host-2"]) await engine.post("WorkerService/Poll", { namespaces: ["mail"], workerId, maxLeases: 1, wait: "0s", jobNames: ["nothing"] });
await picture("workers-dark", "#/workers?ns=mail", dark);
await browser.close();
await engine.stop();
