// What goes wrong around a worker: tokens, proxies, and code of the program that throws.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, processor, Worker } from "../dist/index.js";
import { client, ended, enqueue, eventually, listen, namespace, work } from "./world.mjs";

/** Returns a client that calls seen for each request. seen may return another response. */
function watching(seen, options = {}) {
  return new Client(undefined, {
    ...options,
    async fetch(url, init) {
      const method = url.split("/").at(-1);
      return (await seen(method, init)) ?? fetch(url, init);
    },
  });
}

test("a token that cannot be read once does not change the answer of a job", async (t) => {
  const ns = await namespace({ pull: {} });
  let failures = 0;
  const token = () => {
    if (failures-- > 0) throw new Error("the issuer is down");
    return "a-token";
  };
  const { attempts } = work(t, ns, (worker) => worker.job("pay", () => {
    failures = 1;
    return "paid";
  }), { concurrency: 1 }, new Client(undefined, { token })); // it polls only after it has answered
  const job = await ended(ns, await enqueue(ns, "pay", undefined, { timeout: "60s" }));
  assert.deepEqual([job.state, job.result, job.failures], ["JOB_STATE_SUCCEEDED", "paid", undefined]);
  await eventually(() => assert.equal(attempts[0]?.outcome, "done"));
  failures = 1;
  const error = await new Client(undefined, { token }).namespace.listNamespaces({}).catch((e) => e);
  assert.deepEqual([error.code, error.message], ["unauthenticated", "there is no token: the issuer is down"]);
  const broken = new Client(undefined, { token: "two\nlines" }).namespace.listNamespaces({});
  await assert.rejects(broken, (e) => e.code === "unauthenticated" && !e.message.includes("lines"));
});

test("a token that never comes ends with the timeout of the request", async () => {
  const hanging = new Client(undefined, { token: () => new Promise(() => {}), timeout: 50 });
  await assert.rejects(hanging.namespace.listNamespaces({}), { code: "deadline_exceeded", message: /no token/ });
});

test("details of the progress may change after they were reported", async (t) => {
  const ns = await namespace({ pull: {} });
  const errors = [];
  work(t, ns, (worker) => worker.job("long", async (_, { lease, namespace, id, progress }) => {
    const details = { page: 7 };
    progress(10, "", details);
    details.big = 1n; // is not JSON
    await eventually(async () => {
      const { job } = await client.job.getJob({ namespace, jobId: id });
      assert.deepEqual(job.progress?.details, { page: 7 });
      assert.ok(Date.parse(job.leaseExpiresTime) > Date.parse(lease.expiresTime) + 500);
    });
  }), { log: (message) => errors.push(message) });
  const options = { leaseDuration: "1s", heartbeatInterval: "0.05s", timeout: "60s" };
  assert.equal((await ended(ns, await enqueue(ns, "long", undefined, options))).attempt, 1);
  assert.deepEqual(errors, []);
});

test("a worker outlives its callbacks that throw or reject", async (t) => {
  const ns = await namespace({ pull: {} });
  const calls = [];
  const fail = (name) => (...args) => {
    calls.push(name);
    if (args[0]?.outcome === "failed") return Promise.reject(new Error(`${name} rejects`));
    throw new Error(`${name} throws`);
  };
  t.mock.method(console, "error", () => {});
  const { worker, over } = work(t, ns, (worker) => worker
    .job("good", () => "done")
    .job("odd", () => { throw Object.create(null); }), { ended: fail("ended"), log: fail("log") });
  for (const name of ["good", "odd", "good"]) {
    const job = await ended(ns, await enqueue(ns, name));
    assert.equal(job.result ?? job.failures[0].reason, name === "good" ? "done" : "error");
  }
  await eventually(() => assert.equal(calls.filter((name) => name === "ended").length, 3));
  worker.stop();
  await over;
  const url = await listen(t, processor({ init() { throw new TypeError("a bug"); } }, { log: fail("log") }));
  const pushed = await namespace({ connect: { url, encoding: "ENCODING_JSON" } });
  await assert.rejects(client.process.start({ namespace: pushed }), (error) => error.failure.message === "a bug");
});

test("a heartbeat waits no longer than the shortest interval", async (t) => {
  const ns = await namespace({ pull: {} });
  let together;
  const watched = watching((method, { body, headers }) => {
    const { beats } = JSON.parse(body);
    if (method === "Heartbeat" && beats.length === 2) together ??= Number(headers["Connect-Timeout-Ms"]);
  });
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  work(t, ns, (worker) => worker.job("long", () => finished), {}, watched);
  const ids = [];
  for (const [leaseDuration, heartbeatInterval] of [["30s", "10s"], ["2s", "0.1s"]]) {
    ids.push(await enqueue(ns, "long", undefined, { leaseDuration, heartbeatInterval, timeout: "60s" }));
  }
  await eventually(() => assert.ok(together));
  finish();
  for (const id of ids) await ended(ns, id);
  assert.ok(together <= 1000, `the engine has ${together} ms for a heartbeat`);
});

test("a lease that cannot be decoded fails alone", async (t) => {
  const ns = await namespace({ pull: {} });
  const ids = await Promise.all(["bad", "good"].map((name) => enqueue(ns, name, undefined, { maxRetry: 0 })));
  const watched = watching(async (method, init) => {
    if (method !== "Poll") return undefined;
    const response = await fetch(`${client.url}/progressor.v1.WorkerService/Poll`, init);
    const polled = await response.json();
    const bad = polled.leases?.find((lease) => lease.job.name === "bad");
    if (bad) bad.request.taskId = "9007199254740993";
    return Response.json(polled, { status: response.status });
  });
  work(t, ns, (worker) => worker.jobs(({ job }) => job.name), {}, watched);
  const [bad, good] = await Promise.all(ids.map((id) => ended(ns, id)));
  assert.equal(bad.failures[0].reason, "undecodable");
  assert.match(bad.failures[0].message, /2\^53/);
  assert.equal(good.state, "JOB_STATE_FAILED"); // the handler expects args
  assert.equal(good.failures[0].reason, "error");
});

test("payloads with numbers that JavaScript would change stay bytes", async (t) => {
  const ns = await namespace({ builtin: { name: "echo" } });
  const big = "9007199254740993";
  for (const text of [`{"id": ${big}}`, `[-${big}]`, `["\\\\", ${big}]`, big, "1e400"]) {
    const { response } = await client.process.start({ namespace: ns, args: Buffer.from(text) });
    assert.equal(Buffer.from(response).toString(), text);
    assert.ok(response instanceof Uint8Array, text);
  }
  for (const text of [`{"id": "${big}"}`, `["\\"${big}"]`, `{"${big}": 1}`, "9007199254740991", "0.12345678901234567", "1e-400"]) {
    const { response } = await client.process.start({ namespace: ns, args: Buffer.from(text) });
    assert.deepEqual(response, JSON.parse(text));
  }
  // A handler that returns such a state changes nothing.
  const carts = await namespace({ pull: {} });
  work(t, carts, (worker) => worker.processes({
    init: ({ args }) => ({ auxState: args }),
    call: ({ process: { auxState } }) => ({ auxState, response: auxState }),
  }));
  const key = { namespace: carts, processId: "ada" };
  await client.process.start({ ...key, args: Buffer.from(`{"id":${big}}`) });
  assert.equal(Buffer.from((await client.process.call(key)).response).toString(), `{"id":${big}}`);
});

test("infinite times are long times", async (t) => {
  const warnings = [];
  const warned = (warning) => warnings.push(warning.name); // a timer that does not wait
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  await new Client(undefined, { timeout: Infinity }).namespace.listNamespaces({});
  const slow = await listen(t, (_, response) => setTimeout(() => response.end("{}"), 50));
  await new Client(slow, { timeout: 2 ** 31 }).namespace.listNamespaces({});
  const ns = await namespace({ pull: {} });
  let finish;
  const { worker, over, attempts } = work(t, ns, (worker) => worker.job("long", (_, job) => new Promise((resolve, reject) => {
    finish = resolve;
    job.signal.addEventListener("abort", () => reject(job.signal.reason));
  })), { stopGrace: Infinity });
  const jobId = await enqueue(ns, "long", undefined, { timeout: "60s" });
  await eventually(() => assert.ok(finish));
  worker.stop();
  await client.job.getJob({ namespace: ns, jobId });
  finish("done");
  await over;
  assert.equal(attempts[0].outcome, "done");
  assert.equal((await ended(ns, jobId)).result, "done");
  assert.deepEqual(warnings, []);
});

test("an error of a proxy has the code of its HTTP status", async (t) => {
  const details = [null, { type: "progressor.v1.ErrorDetail", debug: "text" }, { type: "other" }];
  const bodies = [
    { code: 503 }, { code: "Overloaded" }, { code: "Overloaded", details }, null, [], "busy",
    { code: "unavailable", message: null, details: null }, { code: "unavailable", details },
  ];
  for (const body of bodies) {
    let asked = 0;
    const url = await listen(t, (_, response) => {
      if (++asked === 2) return response.end("{}");
      response.writeHead(503).end(JSON.stringify(body));
    });
    await assert.rejects(new Client(url).namespace.listNamespaces({}, { maxAttempts: 1 }), { code: "unavailable", reason: undefined });
    asked = 0;
    await new Client(url).namespace.listNamespaces({});
    assert.equal(asked, 2, `${JSON.stringify(body)} is not repeated`);
  }
  const url = await listen(t, (_, response) => response.writeHead(403).end('{"code": "AccessDenied"}'));
  await assert.rejects(new Client(url).namespace.listNamespaces({}), { code: "permission_denied", message: /AccessDenied/ });
  await assert.rejects(new Worker(new Client(url), ["a"], { signals: [] }).jobs(() => {}).run(), { code: "permission_denied" });
});
