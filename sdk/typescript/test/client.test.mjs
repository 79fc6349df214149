import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Client, Failure, ProgressorError, Rejection, TaskFailed, TaskRejected, processor } from "../dist/index.js";
import { client, eventually, listen, losing, namespace } from "./world.mjs";

const carts = {
  init({ args }) {
    if (args?.no) throw new Rejection("no", "not this one", { why: [1] });
    return { auxState: { items: [] }, response: null };
  },
  call({ args, process: { auxState } }) {
    if (args.fail) throw new Failure("broken", "the cart broke", { details: { at: args.fail } });
    if (args.bug) throw new TypeError("a bug");
    auxState.items.push(args.add);
    return { auxState, response: auxState.items, events: [{ payload: { added: args.add } }], setTimer: { after: "3600s" } };
  },
  repair: () => ({ response: "repaired" }),
};

async function pushed(t, handlers = carts, options = { log() {} }, more = {}) {
  const url = await listen(t, processor(handlers, options));
  return namespace({ connect: { url, encoding: "ENCODING_JSON", ...more } });
}

test("a processor and its calls: plain JSON in and out", async (t) => {
  const ns = await pushed(t);
  const started = await client.process.start({ namespace: ns, processId: "ada" });
  assert.equal(started.processId, "ada");
  assert.equal(started.response, null);
  assert.ok(Number.isSafeInteger(started.taskId));
  for (const [n, add] of ["tea", { sku: "cäke" }].entries()) {
    const { response } = await client.process.call({ namespace: ns, processId: "ada", args: { add } });
    assert.deepEqual(response, ["tea", { sku: "cäke" }].slice(0, n + 1));
  }
  const { process: ada } = await client.process.getProcess({ namespace: ns, processId: "ada" });
  assert.deepEqual(ada.auxState, { items: ["tea", { sku: "cäke" }] });
  assert.deepEqual(ada.history.map((event) => event.payload), [{ added: "tea" }, { added: { sku: "cäke" } }]);
  assert.equal(ada.lastEventId, 2);
  const { countByStatus } = await client.insight.countProcesses({ namespace: ns });
  assert.equal(countByStatus.running, 1); // a map of 64-bit integers
});

test("errors have a type, a code, a reason and the engine's message", async (t) => {
  const ns = await pushed(t);
  const rejected = await client.process.start({ namespace: ns, processId: "no", args: { no: true } }).catch((e) => e);
  assert.ok(rejected instanceof TaskRejected && rejected instanceof ProgressorError);
  assert.deepEqual(rejected.rejection, { reason: "no", message: "not this one", details: { why: [1] } });
  assert.deepEqual([rejected.code, rejected.reason], ["failed_precondition", "REASON_TASK_REJECTED"]);

  await client.process.start({ namespace: ns, processId: "ada" });
  const failed = await client.process.call({ namespace: ns, processId: "ada", args: { fail: 7 } }).catch((e) => e);
  assert.ok(failed instanceof TaskFailed);
  assert.deepEqual([failed.failure.reason, failed.failure.details], ["broken", { at: 7 }]);
  assert.match(failed.message, /the cart broke/);
  assert.equal(failed.detail.processStatus, "PROCESS_STATUS_ERROR");
  assert.ok(Number.isSafeInteger(failed.detail.taskId));
  const call = { namespace: ns, processId: "ada", args: { bug: true } };
  await assert.rejects(client.process.call(call), { code: "failed_precondition", reason: "REASON_PROCESS_STATUS" });
  const { response } = await client.process.repair({ namespace: ns, processId: "ada", processor: { args: null } });
  assert.equal(response, "repaired");
  await assert.rejects(client.process.call(call), (error) => error.failure.reason === "error" && error.failure.message === "a bug");

  await assert.rejects(client.process.getProcess({ namespace: ns, processId: "bob" }), { code: "not_found", reason: "REASON_PROCESS_NOT_FOUND" });
  const invalid = await client.process.start({ namespace: "no spaces" }).catch((e) => e);
  assert.deepEqual([invalid.reason, invalid.detail.field], ["REASON_INVALID", "namespace"]);
  await assert.rejects(client.process.start({ namespaces: ns }), { code: "invalid_argument", message: /namespaces/ });
  await assert.rejects(new Client("http://127.0.0.1:1", { retry: { maxAttempts: 1 } }).namespace.listNamespaces({}), {
    code: "unavailable", reason: undefined, message: /127\.0\.0\.1:1/,
  });
  const other = await listen(t, (_, response) => response.writeHead(404).end("not here"));
  await assert.rejects(new Client(other).namespace.listNamespaces({}), { code: "unimplemented", message: /404.*not here/ });
  const page = await listen(t, (_, response) => response.end("<html>"));
  await assert.rejects(new Client(page).namespace.listNamespaces({}), { code: "unknown", message: /address of an engine/ });
});

test("a request whose response is lost is sent again with its key, and done once", async (t) => {
  const ns = await pushed(t);
  await client.process.start({ namespace: ns, processId: "ada" });
  const lossy = await losing(t, "Call", 2);
  const { response } = await new Client(lossy.url).process.call({ namespace: ns, processId: "ada", args: { add: "tea" } });
  assert.deepEqual(response, ["tea"]);
  const keys = lossy.requests.map((request) => request.idempotencyKey);
  assert.equal(keys.length, 3);
  assert.match(keys[0], /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const age = Date.now() - parseInt(keys[0].slice(0, 13).replace("-", ""), 16);
  assert.ok(age >= 0 && age < 60_000);
  assert.ok(keys.every((key) => key === keys[0]));
  const { tasks } = await client.process.traceProcess({ namespace: ns, processId: "ada" });
  assert.equal(tasks.filter((task) => task.type === "TASK_TYPE_CALL").length, 1);

  const starts = await losing(t, "StartRun");
  await client.flow.putTemplate({ template: { namespace: ns, type: "t", steps: [{ stepId: "a", job: {} }] } });
  const { run } = await new Client(starts.url).flow.startRun({ namespace: ns, type: "t" });
  assert.deepEqual(starts.requests.map((request) => request.runId), [run.runId, run.runId]);

  const keyless = await losing(t, "Call");
  const call = { namespace: ns, processId: "ada", args: { add: "cake" } };
  await assert.rejects(new Client(keyless.url, { autoKeys: false }).process.call(call), { code: "unavailable" });
  assert.equal(keyless.requests.length, 1);
  const own = await losing(t, "Call");
  await new Client(own.url, { autoKeys: false }).process.call({ ...call, idempotencyKey: "mine" });
  assert.deepEqual(own.requests.map((request) => request.idempotencyKey), ["mine", "mine"]);
  const reading = await losing(t, "GetProcess");
  await new Client(reading.url).process.getProcess({ namespace: ns, processId: "ada" });
  assert.equal(reading.requests.length, 2);
  const changing = await losing(t, "CancelProcess");
  await assert.rejects(new Client(changing.url).process.cancelProcess({ namespace: ns, processId: "ada" }), { code: "unavailable" });
  assert.equal(changing.requests.length, 1);
});

test("a request to an overloaded engine is sent again, even without a key", async (t) => {
  let asked = 0;
  const url = await listen(t, (_, response) => {
    if (++asked === 3) return response.end("{}");
    const details = [{ type: "progressor.v1.ErrorDetail", value: "", debug: { reason: "REASON_OVERLOADED" } }];
    response.writeHead(429).end(JSON.stringify({ code: "resource_exhausted", message: "busy", details }));
  });
  await new Client(url).process.removeProcess({ namespace: "a", processId: "b" });
  assert.equal(asked, 3);
});

test("a timeout ends the wait, and a signal the request", async (t) => {
  const ns = await namespace({ pull: {} }); // without a worker
  const start = { namespace: ns, processId: "ada" };
  const waited = await client.process.start(start, { timeout: 100 }).catch((e) => e);
  assert.deepEqual([waited.code, waited.reason], ["deadline_exceeded", "REASON_WAIT_TIMEOUT"]);
  const hanging = await listen(t, () => {});
  await assert.rejects(new Client(hanging, { timeout: 10 }).process.start(start), { code: "deadline_exceeded", message: /timeout/ });
  const reason = new Error("enough");
  await assert.rejects(client.process.start(start, { signal: AbortSignal.abort(reason) }), reason);
  const stop = new AbortController();
  const started = new Client(await listen(t, () => stop.abort(reason))).process.start(start, { signal: stop.signal });
  await assert.rejects(started, reason);
});

test("payloads that are not JSON are bytes", async () => {
  const ns = await namespace({ builtin: { name: "echo" } });
  for (const args of [new Uint8Array([0, 255, 1]), new Uint8Array(Buffer.from('"\xff"', "latin1")), [], "text", 0, false, null]) {
    const { response } = await client.process.start({ namespace: ns, args });
    assert.deepEqual(response, args);
  }
  assert.equal((await client.process.start({ namespace: ns })).response, undefined);
  const { response } = await new Client(undefined, { payloads: "bytes" }).process.start({ namespace: ns, args: { a: 1 } });
  assert.deepEqual(response, new Uint8Array(Buffer.from('{"a":1}')));
});

test("a processor refuses requests that are not signed", async (t) => {
  const ns = "signed"; // has the secret "key"
  const url = await listen(t, processor(carts, { keys: [process.env.SIGNING_KEY] }));
  const put = (signingSecrets) => client.namespace.putNamespace({
    namespace: { namespace: ns, processor: { connect: { url, encoding: "ENCODING_JSON", signingSecrets } } },
  });
  await put(["key"]);
  assert.equal((await client.process.start({ namespace: ns, processId: "signed" })).response, null);
  await put([]);
  const refused = await client.process.start({ namespace: ns, processId: "unsigned" }).catch((e) => e);
  assert.equal(refused.failure.reason, "bad_response");
  assert.match(refused.message, /401/);
  assert.equal((await fetch(url)).status, 405);
  const keyless = await listen(t, processor(carts, { keys: [] }));
  assert.equal((await fetch(keyless, { method: "POST", body: "{}" })).status, 401);
});

test("tasks without a function are refused, and a cancel is not", async (t) => {
  const ns = await pushed(t, { init() {} });
  await client.process.start({ namespace: ns, processId: "ada" });
  const call = client.process.call({ namespace: ns, processId: "ada" });
  await assert.rejects(call, (error) => error.rejection.reason === "not_handled");
  await client.process.start({ namespace: ns, processId: "bob" });
  await client.process.cancelProcess({ namespace: ns, processId: "bob" });
  await eventually(async () => {
    const { process: bob } = await client.process.getProcess({ namespace: ns, processId: "bob" });
    assert.equal(bob.status, "PROCESS_STATUS_CANCELLED");
  });
});

test("a token is a text, a function or a file", async (t) => {
  const seen = [];
  const url = await listen(t, (request, response) => {
    seen.push(request.headers.authorization);
    response.end("{}");
  });
  const tokenFile = join(tmpdir(), `token-${process.pid}`);
  await writeFile(tokenFile, "of-a-file\n");
  for (const options of [{}, { token: "text" }, { token: async () => "called" }, { tokenFile }]) {
    await new Client(`${url}/`, options).namespace.listNamespaces({});
  }
  assert.deepEqual(seen, [undefined, "Bearer text", "Bearer called", "Bearer of-a-file"]);
  assert.throws(() => new Client("127.0.0.1:8080"), /http/);
});

test("errors as JSON contain a rejection or a failure once", () => {
  const of = (error) => JSON.parse(JSON.stringify(error));
  const rejection = { reason: "no", message: "not this one" };
  const rejected = new TaskRejected("aborted", "rejected", { reason: "REASON_TASK_REJECTED", rejection });
  assert.equal(rejected.rejection, rejection);
  assert.deepEqual(of(rejected), {
    name: "TaskRejected", code: "aborted", detail: { reason: "REASON_TASK_REJECTED", rejection },
  });
  const failed = new TaskFailed("aborted", "failed", {});
  assert.deepEqual(failed.failure, {});
  assert.deepEqual(of(failed), { name: "TaskFailed", code: "aborted", detail: {} });
});
