// Measures graphile-worker, for tools/peers: node bench.mjs migrate|enqueue|drain|latency JOBS.
// The connection comes from PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. It prints the result
// as one line of JSON on standard output.
import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";

const [mode, count] = [process.argv[2], Number(process.argv[3])];
const connectionString = `postgres:///${process.env.PGDATABASE}`; // the rest comes from PG…
const logger = new Logger(() => () => {});
const batch = 1000, clients = 4;

const argsOf = (n) =>
  ({ to: `somebody${String(n % 1000).padStart(3, "0")}@example.org`, template: "welcome", attempt: 1 });

async function enqueue() {
  const utils = await makeWorkerUtils({ connectionString, logger, maxPoolSize: clients });
  let next = 0;
  const client = async () => {
    for (let first; (first = next) < count; ) {
      next += batch;
      const jobs = Array.from({ length: batch }, (_, i) => ({ identifier: "send_mail", payload: argsOf(first + i) }));
      await utils.addJobs(jobs);
    }
  };
  const began = process.hrtime.bigint();
  await Promise.all(Array.from({ length: clients }, client));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  await utils.release();
  return { seconds };
}

async function drain() {
  let done = 0, finished;
  const all = new Promise((resolve) => (finished = resolve));
  const send_mail = async () => {
    if (++done === count) finished();
  };
  const began = process.hrtime.bigint();
  const runner = await run({
    preset: { worker: {
      connectionString, logger, concurrentJobs: 24, maxPoolSize: 12, pollInterval: 2000,
      localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0, failJobBatchDelay: 0,
    } },
    noHandleSignals: true, taskList: { send_mail },
  });
  await all;
  await runner.stop(); // also stores that the last jobs are done
  return { seconds: Number(process.hrtime.bigint() - began) / 1e9 };
}

async function latency() {
  const started = new Map();
  const send_mail = async ({ n }) => started.get(n)(process.hrtime.bigint());
  const runner = await run({
    preset: { worker: { connectionString, logger, concurrentJobs: 10, maxPoolSize: 12, pollInterval: 2000 } },
    noHandleSignals: true, taskList: { send_mail },
  });
  const millis = [];
  for (let n = 0; n < count; n++) {
    const begins = new Promise((resolve) => started.set(n, resolve));
    const began = process.hrtime.bigint();
    await runner.addJob("send_mail", { n, ...argsOf(n) });
    millis.push(Number((await begins) - began) / 1e6);
    await new Promise((resolve) => setTimeout(resolve, 5)); // so that the worker is idle
  }
  await runner.stop();
  millis.sort((a, b) => a - b);
  const quantile = (q) => millis[Math.min(millis.length - 1, Math.ceil(q * millis.length) - 1)];
  return { p50_ms: quantile(0.5), p99_ms: quantile(0.99) };
}

async function migrate() {
  await runMigrations({ connectionString, logger });
  return {};
}

console.log(JSON.stringify(await { migrate, enqueue, drain, latency }[mode]()));
