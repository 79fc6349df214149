// Measures how long each page takes to show its content (make console-speed). Each page is opened
// several times, each time in a new browser context, which has no cached files.
import { bytes, openPage, startBrowser, startEngine } from "./world.mjs";

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const [processes, runs, workers, rounds] = [number("PROCESSES", 100_000), number("RUNS", 5_000), number("WORKERS", 500), number("ROUNDS", 3)];
const engine = await startEngine("--demo-flow");

/** Makes requests 1 to count, 64 at a time. */
async function all(count, request) {
  let next = 1;
  await Promise.all(Array.from({ length: 64 }, async () => {
    while (next <= count) await request(next++);
  }));
}

async function store() {
  console.log(`storing ${processes} processes, ${runs} runs and ${workers} workers with a job each`);
  await all(processes, (n) => engine.post("ProcessService/Start", { namespace: "echo", processId: `p-${n}`, args: bytes({ n }), metadata: { region: n % 2 ? "eu" : "us" } }));
  const steps = [{ stepId: "work", job: {} }, { stepId: "sign", wait: { kind: "KIND_HUMAN" } }];
  await engine.post("FlowService/PutTemplate", { template: { namespace: "echo", type: "short", steps: steps.slice(0, 1) } });
  await engine.post("FlowService/PutTemplate", { template: { namespace: "echo", type: "signed", steps } });
  await all(runs, (n) => engine.post("FlowService/StartRun", { namespace: "echo", runId: `r-${n}`, type: n % 10 ? "short" : "signed" }));
  while ((await engine.post("FlowService/ListRuns", { namespace: "echo", filter: 'template_type = short AND status != SUCCEEDED', pageSize: 1 })).runs?.length) await new Promise((done) => setTimeout(done, 500));
  await engine.post("NamespaceService/PutNamespace", { namespace: { namespace: "mail", processor: { pull: {} } } });
  await all(2 * workers, (n) => engine.post("JobService/Enqueue", { namespace: "mail", jobId: `j-${n}`, name: "send", args: { n }, options: { timeout: "3600s" } }));
  await all(workers, (n) => engine.post("WorkerService/Poll", { namespaces: ["mail"], workerId: `w-${n}`, maxLeases: 1, leaseDuration: "3600s" }));
  await engine.post("CronService/CreateCron", { cron: { namespace: "echo", cronId: "hourly", spec: { expressions: ["@hourly"] }, target: { startProcess: { namespace: "echo", args: bytes("tick") } } } });
}

// The address of each page, and a text in lower case that appears only with its content, if there
// is one.
const pages = [
  ["#/overview", "tasks per second"],
  ["#/overview?ns=echo", "tasks per second"],
  ["#/processes?ns=echo", "p-"],
  ["#/processes?ns=echo&filter=metadata.region+%3D+%22eu%22", "p-"],
  ["#/processes?ns=echo&filter=status+%3D+COMPLETED", ""],
  ["#/process?ns=echo&id=p-77", "p-77"],
  ["#/flows?ns=echo", "r-"],
  ["#/run?ns=echo&id=r-10", "sign"],
  ["#/templates?ns=echo", "signed"],
  ["#/template?ns=echo&type=signed", "sign"],
  ["#/waits?ns=echo", "r-"],
  ["#/waits", "r-"],
  ["#/jobs?ns=mail", "j-"],
  ["#/job?ns=mail&id=j-1", "j-1"],
  ["#/constraints?ns=mail", ""],
  ["#/crons?ns=echo", "hourly"],
  ["#/cron?ns=echo&id=hourly", "hourly"],
  ["#/changes?ns=echo", ""],
  ["#/workers?ns=mail", "w-"],
  ["#/worker?ns=mail&id=w-7", "w-7"],
  ["#/namespaces", "mail"],
  ["#/nodes", "last heartbeat"],
  ["#/audit", "puttemplate"],
  ["#/access", ""],
];

/** Returns the milliseconds until a page shows its content. */
async function open(browser, [hash, text]) {
  const page = await openPage(browser);
  const end = Date.now() + 15_000;
  try {
    await page.goto(`${engine.url}/${hash}`, { waitUntil: "commit" });
    for (;;) {
      const shown = await page.evaluate((text) => {
        const main = document.querySelector("main");
        return main && document.querySelector("h1") && !main.querySelector(".loading") && main.innerText.toLowerCase().includes(text) && performance.now();
      }, text);
      if (shown) return shown;
      if (Date.now() > end) throw new Error(`${hash}: not shown in 15 s`);
    }
  } finally {
    await page.context().close();
  }
}

async function measure(browser) {
  const times = new Map(pages.map(([hash]) => [hash, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const page of pages) {
      const time = await open(browser, page);
      if (round > 0) times.get(page[0]).push(time); // the first round warms the browser up
    }
  }
  console.log(`${"page".padEnd(60)}median  longest (ms, ${rounds} rounds)`);
  for (const [hash, list] of times) {
    list.sort((a, b) => a - b);
    console.log(`${hash.padEnd(60)}${String(Math.round(list[list.length >> 1])).padStart(6)}${String(Math.round(list.at(-1))).padStart(9)}`);
  }
}

try {
  await store();
  const browser = await startBrowser();
  await measure(browser).finally(() => browser.close());
} finally {
  await engine.stop();
}
