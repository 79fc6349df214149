import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  AttemptTimeout, Client, Failure, JobCancelled, LeaseLost, Rejection, Release, Worker, WorkerStopped,
} from "../dist/index.js";
import { client, ended, enqueue, eventually, losing, namespace, proxy, work } from "./world.mjs";

/** Waits until the signal of a job is aborted. */
const stopped = (job) => sleep(60_000, undefined, { signal: job.signal });

test("jobs: args, results, failures and rejections", async (t) => {
  const ns = await namespace({ pull: {} });
  const { attempts } = work(t, ns, (worker) => worker
    .job("count", (args) => {
      if (typeof args?.text !== "string") throw new Failure("bad_args", "text must be a string", { nonRetryable: true });
      return { words: args.text.split(" ").length };
    })
    .job("nothing", () => {})
    .job("bug", () => { throw new TypeError("a bug"); })
    .job("no", () => { throw new Rejection("no", "never"); })
    .job("big", () => ({ n: 1n })));
  const results = {};
  for (const [name, args] of [["count", { text: "three little words" }], ["count", 3], ["nothing"], ["bug"], ["no"], ["big"]]) {
    const job = await ended(ns, await enqueue(ns, name, args));
    results[`${name} ${args?.text ?? args}`] = job.result ?? job.failures?.[0]?.reason ?? job.state;
  }
  assert.deepEqual(results, {
    "count three little words": { words: 3 }, "count 3": "bad_args", "nothing undefined": "JOB_STATE_SUCCEEDED",
    "bug undefined": "error", "no undefined": "no", "big undefined": "bad_response",
  });
  await eventually(() => assert.equal(attempts.length, 6));
  assert.deepEqual(attempts.map((attempt) => attempt.outcome), ["done", "failed", "done", "failed", "done", "failed"]);
});

test("a retry gets the progress and the failures of the attempt before it", async (t) => {
  const ns = await namespace({ pull: {} });
  work(t, ns, (worker) => worker.job("pages", async (_, job) => {
    if (job.attempt === 2) return { from: job.lastProgress, failed: job.failures.map((failure) => failure.message) };
    job.progress(10, "page 1");
    await eventually(async () => assert.equal((await client.job.getJob({ namespace: job.namespace, jobId: job.id })).job.progress?.summary, "page 1"));
    job.progress(150, "page 7\0", { page: 7 }); // too early for the next heartbeat
    throw new Failure("busy", "not now", { retryAfter: 0 });
  }));
  const job = await ended(ns, await enqueue(ns, "pages", undefined, { maxRetry: 1, backoff: { initial: "0.001s" } }));
  assert.deepEqual(job.result, {
    from: { percent: 100, summary: "page 7\ufffd", details: { page: 7 } }, failed: ["not now"],
  });
});

test("heartbeats extend the lease and carry the progress", async (t) => {
  const ns = await namespace({ pull: {} });
  work(t, ns, (worker) => worker.job("long", async (_, { lease, namespace, id, attempt, progress }) => {
    progress(50, "half");
    await eventually(async () => {
      const { job } = await client.job.getJob({ namespace, jobId: id });
      assert.ok(Date.parse(job.leaseExpiresTime) > Date.parse(lease.expiresTime) + 1000);
      assert.equal(job.progress.summary, "half");
    });
    return attempt;
  }));
  const options = { leaseDuration: "1s", heartbeatInterval: "0.05s", timeout: "60s" };
  const job = await ended(ns, await enqueue(ns, "long", undefined, options));
  assert.equal(job.result, 1); // no other worker has taken it
});

test("a cancelled job stops", async (t) => {
  const ns = await namespace({ pull: {} });
  const { attempts } = work(t, ns, (worker) => worker.job("long", (_, job) => stopped(job)));
  const jobId = await enqueue(ns, "long", undefined, { heartbeatInterval: "0.05s", timeout: "60s" });
  await eventually(async () => assert.equal((await client.job.getJob({ namespace: ns, jobId })).job.state, "JOB_STATE_RUNNING"));
  await client.job.cancelJob({ namespace: ns, jobId, reason: "enough" });
  assert.equal((await ended(ns, jobId)).state, "JOB_STATE_CANCELLED");
  await eventually(() => assert.equal(attempts[0]?.outcome, "cancelled"));
  const { reason } = attempts[0].error.cause ? { reason: attempts[0].error.cause } : { reason: attempts[0].error };
  assert.ok(reason instanceof JobCancelled && reason.message === "enough", String(reason));
});

test("a lost lease and a timeout stop the handler", async (t) => {
  const ns = await namespace({ pull: {} });
  const reasons = [];
  const { attempts } = work(t, ns, (worker) => worker.job("long", async (_, job) => {
    await stopped(job).catch(() => reasons.push(job.signal.reason));
    throw job.signal.reason;
  }));
  const lost = await enqueue(ns, "long", undefined, { heartbeatInterval: "0.05s", timeout: "60s", cancelGrace: "0s" });
  await eventually(async () => assert.equal((await client.job.getJob({ namespace: ns, jobId: lost })).job.state, "JOB_STATE_RUNNING"));
  await client.job.cancelJob({ namespace: ns, jobId: lost }); // without a grace period, the engine ends the job at once
  await eventually(() => assert.ok(reasons[0] instanceof LeaseLost || reasons[0] instanceof JobCancelled, String(reasons[0])));
  await eventually(() => assert.equal(attempts[0]?.outcome, "lost"));
  const late = await ended(ns, await enqueue(ns, "long", undefined, { timeout: "0.2s" }));
  assert.equal(late.failures[0].reason, "timeout");
  await eventually(() => assert.ok(reasons[1] instanceof AttemptTimeout || reasons[1] instanceof LeaseLost, String(reasons[1])));
});

test("an answer whose response is lost is sent again, and counts once", async (t) => {
  const ns = await namespace({ pull: {} });
  const lossy = await losing(t, "Complete");
  let runs = 0;
  const { attempts } = work(t, ns, (worker) => worker.job("once", () => ++runs), {}, new Client(lossy.url));
  const job = await ended(ns, await enqueue(ns, "once"));
  await eventually(() => assert.equal(attempts[0]?.outcome, "done"));
  assert.deepEqual([job.result, runs, lossy.requests.length, job.attempt], [1, 1, 2, 1]);
});

test("concurrency limits the jobs that run at a time", async (t) => {
  const ns = await namespace({ pull: {} });
  const running = [];
  let most = 0;
  work(t, ns, (worker) => worker.job("slow", () => new Promise((resolve) => {
    most = Math.max(most, running.push(resolve));
  })), { concurrency: 2 });
  const ids = await Promise.all(Array.from({ length: 5 }, () => enqueue(ns, "slow")));
  await eventually(() => assert.equal(most, 2));
  for (const id of ids) {
    await eventually(async () => {
      running.shift()?.();
      assert.ok((await client.job.getJob({ namespace: ns, jobId: id })).job.finishedTime);
    });
  }
  assert.equal(most, 2);
});

test("a worker that stops finishes its jobs, and releases those that take too long", async (t) => {
  const ns = await namespace({ pull: {} });
  let finish;
  const jobs = (worker) => worker
    .job("short", () => new Promise((resolve) => (finish = resolve)))
    .job("long", (_, job) => stopped(job))
    .job("later", () => { throw new Release(60_000); });
  const { over, attempts } = work(t, ns, jobs, { stopGrace: 500, signals: ["SIGTERM"] });
  const [short, long, later] = await Promise.all(["short", "long", "later"].map((name) => enqueue(ns, name, undefined, { timeout: "60s" })));
  await eventually(async () => {
    assert.equal(attempts[0]?.outcome, "released");
    assert.equal((await client.job.getJob({ namespace: ns, jobId: long })).job.state, "JOB_STATE_RUNNING");
    assert.ok(finish);
  });
  process.emit("SIGTERM");
  finish("done");
  await over;
  assert.equal((await ended(ns, short)).result, "done");
  for (const [jobId, state] of [[long, "JOB_STATE_AVAILABLE"], [later, "JOB_STATE_SCHEDULED"]]) {
    const { job } = await client.job.getJob({ namespace: ns, jobId });
    assert.deepEqual([job.state, job.failures], [state, undefined]);
  }
  assert.deepEqual(attempts.map((attempt) => attempt.outcome).sort(), ["done", "released", "released"]);
  const reason = attempts.find((attempt) => attempt.lease.job.name === "long").error.cause;
  assert.ok(reason instanceof WorkerStopped, String(reason));
});

test("a stop releases what the last poll returns", async (t) => {
  const ns = await namespace({ pull: {} });
  let running;
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const url = await proxy(t, async (method, _, response, socket) => {
    if (method === "Release") release();
    if (method !== "Poll" || !JSON.parse(response).leases) return;
    running.worker.stop(); // while the response is on its way
    await Promise.race([released, once(socket, "close")]);
  });
  running = work(t, ns, (worker) => worker.job("late", () => {}), {}, new Client(url));
  const jobId = await enqueue(ns, "late");
  await running.over;
  assert.equal((await client.job.getJob({ namespace: ns, jobId })).job.state, "JOB_STATE_AVAILABLE");
  assert.deepEqual(running.attempts, []);
});

test("an operator stops a worker", async (t) => {
  const ns = await namespace({ pull: {} });
  const { worker, over } = work(t, ns, (worker) => worker.job("none", () => {}));
  const { id } = worker;
  await eventually(() => client.worker.stopWorker({ namespace: ns, workerId: id }));
  await over;
});

test("a worker handles tasks of processes", async (t) => {
  const ns = await namespace({ pull: {} });
  work(t, ns, (worker) => worker.processes({
    init: ({ args }) => ({ auxState: args, response: args }),
    call: ({ process }) => ({ response: process.auxState, complete: {} }),
  }));
  const key = { namespace: ns, processId: "ada" };
  assert.deepEqual((await client.process.start({ ...key, args: [1] })).response, [1]);
  assert.deepEqual((await client.process.call(key)).response, [1]);
  assert.equal((await client.process.getProcess(key)).process.status, "PROCESS_STATUS_COMPLETED");
});

test("a worker with a wrong configuration ends with an error", async () => {
  await assert.rejects(new Worker(client, ["nowhere"], { signals: [] }).run(), /no handler/);
  const worker = new Worker(client, ["nowhere"], { signals: [] }).job("a", () => {});
  await assert.rejects(worker.run(), { reason: "REASON_NAMESPACE_NOT_FOUND" });
});
