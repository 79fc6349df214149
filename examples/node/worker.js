// A worker without packages: it leases jobs by long polls, and sends heartbeats and answers. All requests are JSON.
//
//   node worker.js [URL [NAMESPACE [SLOTS]]]

import { hostname } from "node:os";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const [url = "http://127.0.0.1:8080", namespace = "jobs", slots = "4"] = process.argv.slice(2);
const workerId = `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
const grace = 10_000; // time for running jobs after SIGTERM; the rest are released
const stopping = new AbortController();
const held = new Map(); // by lease token
const seconds = (duration) => Number.parseFloat(duration) * 1000;

// ask sends a request until the engine has answered it. All requests of a worker may be repeated.
async function ask(method, request, signal = new AbortController().signal) {
  const body = JSON.stringify(request);
  for (let wait = 100; ; wait = Math.min(2 * wait, 5000)) {
    try {
      const response = await fetch(`${url}/progressor.v1.WorkerService/${method}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body, signal: AbortSignal.any([signal, AbortSignal.timeout(60_000)]),
      });
      const answer = await response.json().catch(() => ({ code: "unknown" }));
      if (response.ok) return answer;
      if (![408, 429, 502, 503, 504].includes(response.status)) throw Object.assign(new Error(answer.message), { code: answer.code ?? "unknown" });
    } catch (error) {
      if (signal.aborted || typeof error.code === "string") throw error;
    }
    await sleep(wait, undefined, { signal });
  }
}

// Handlers throw a Failure to name its reason. Any other error has the reason "error".
class Failure extends Error {
  constructor(reason, message, nonRetryable = false) {
    super(message);
    Object.assign(this, { reason, nonRetryable });
  }
}

async function run(message) {
  const lease = {
    token: message.leaseToken, job: message.job, interval: seconds(message.heartbeatInterval), progress: undefined, lost: false, over: new AbortController(),
    report(percent, summary = "") { lease.progress = { percent, summary }; },
  };
  held.set(lease.token, lease);
  const answer = { leaseToken: lease.token };
  try {
    const result = (await handlers[lease.job.name](lease.job.args, lease)) ?? null;
    JSON.stringify(result); // an error fails the job
    answer.jobResult = { result };
  } catch (error) {
    if (lease.over.signal.aborted) answer.cancelled = { message: String(lease.over.signal.reason) };
    else answer.response = { failure: { reason: error.reason ?? "error", message: String(error.message ?? error), nonRetryable: error.nonRetryable ?? false } };
  }
  try {
    if (!lease.lost && held.has(lease.token)) {
      await ask("Complete", answer);
      console.log(`${lease.job.name} ${lease.job.jobId}: ${answer.jobResult ? "done" : JSON.stringify(answer)}`);
    }
  } catch (error) { // failed_precondition: the lease was lost in the meantime
    console.log(`${lease.job.name} ${lease.job.jobId}: not answered: ${error.message}`);
  } finally {
    held.delete(lease.token);
  }
}

// work runs one job after the other.
async function work() {
  const poll = { namespaces: [namespace], workerId, jobNames: Object.keys(handlers), maxLeases: 1, wait: "20s" };
  while (!stopping.signal.aborted) {
    const { leases = [], worker } = await ask("Poll", poll, stopping.signal).catch((error) => {
      if (!stopping.signal.aborted) throw error;
      return {};
    });
    if (worker === "WORKER_DIRECTIVE_STOP") stopping.abort(); // progressor worker stop
    for (const message of leases) await run(message);
  }
}

// beat extends all leases with one request, at the shortest of their intervals.
async function beat() {
  for (;;) {
    const all = [...held.values()];
    await sleep(Math.min(500, ...all.map((lease) => lease.interval)), undefined, { ref: false });
    const due = [...held.values()].filter((lease) => !lease.lost && (lease.progress || Date.now() - (lease.beaten ?? 0) >= lease.interval));
    if (due.length === 0) continue;
    const beats = due.map(({ token, progress }) => ({ leaseToken: token, ...(progress && { progress }) }));
    // After a failed heartbeat, the next one contains all current leases.
    const timeout = AbortSignal.timeout(Math.max(1000, Math.min(...due.map((lease) => lease.interval))));
    const { directives = [], worker } = await ask("Heartbeat", { workerId, beats }, timeout).catch((error) => (console.log(`heartbeat: ${error.message}`), {}));
    directives.forEach((directive, n) => {
      const lease = due[n];
      lease.beaten = Date.now();
      if (lease.progress === beats[n].progress) lease.progress = undefined;
      if (directive.heartbeatInterval) lease.interval = seconds(directive.heartbeatInterval);
      if (directive.directive === "DIRECTIVE_LOST") lease.lost = true;
      if (directive.directive !== "DIRECTIVE_CONTINUE") lease.over.abort(directive.cancelReason ?? "the lease was lost");
    });
    if (worker === "WORKER_DIRECTIVE_STOP") stopping.abort();
  }
}

// Replace these with your own jobs.
const handlers = {
  count({ text } = {}) {
    if (typeof text !== "string") throw new Failure("bad_args", "text must be a string", true);
    return { words: text.split(/\s+/).filter(Boolean).length };
  },
  async crawl({ pages }, lease) {
    for (let page = 0; page < pages; page++) {
      lease.report((100 * page) / pages, `page ${page}`);
      await sleep(50, undefined, { signal: lease.over.signal });
    }
    return pages;
  },
};

for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stopping.abort());
void beat();
const working = Promise.all(Array.from({ length: Number(slots) }, work));
working.catch((error) => { console.error(error.message); process.exit(1); });
console.log(`worker ${workerId} takes jobs named ${Object.keys(handlers).join(", ")}`);
if (!stopping.signal.aborted) await new Promise((stop) => stopping.signal.addEventListener("abort", stop));
await Promise.race([working, sleep(grace)]);
if (held.size > 0) { // a release uses up no attempt
  const leaseTokens = [...held.keys()];
  held.clear();
  await ask("Release", { workerId, leaseTokens }, AbortSignal.timeout(5000));
}
process.exit(0);
