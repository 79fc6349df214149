// Durable functions with an engine.
import assert from "node:assert/strict";
import { once } from "node:events";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, func, processor, Rejection, Restart, StepError } from "../dist/index.js";
import { client, eventually, listen, losing, namespace, proxy, work } from "./world.mjs";

/** Serves a function, starts a process of it with the args, and returns functions for the test. */
async function begin(t, f, args = {}, { versions, more } = {}) {
  const handlers = func("f", f, { versions });
  const url = await listen(t, processor(handlers, { log: () => {} }));
  const ns = await namespace({ connect: { url, encoding: "ENCODING_JSON" } }, {
    retryPolicy: { initialInterval: "0.02s", maxInterval: "0.1s", maxAttempts: 3 }, ...more,
  });
  const key = { namespace: ns, processId: "p" };
  const start = () => client.process.start({ ...key, args });
  const call = async (name, args) => (await client.process.call({ ...key, args: { [name]: args } })).response;
  const get = async () => (await client.process.getProcess(key)).process;
  const until = (status) => eventually(async () => {
    const process = await get();
    assert.equal(process.status, `PROCESS_STATUS_${status}`, process.detail);
    return process;
  });
  const journal = async () => (await get()).history.map((event) => event.payload);
  return { key, start, call, get, until, journal };
}

const kinds = (journal) => journal.map(({ k, n }) => `${k} ${n}`);

test("a function runs from its start to its end", async (t) => {
  const effects = [];
  const { start, call, until, journal } = await begin(t, async (ctx, order) => {
    const pays = ctx.calls("pay", ({ amount }) => {
      if (amount !== order.price) throw new Rejection("wrong_amount", `the price is ${order.price}`);
      return { state: "paying" };
    });
    const id = await ctx.uuid("id");
    const hold = await ctx.step("reserve", async ({ key, signal }) => {
      signal.throwIfAborted();
      await sleep(1);
      effects.push(key);
      return `R ${order.item}`;
    });
    ctx.publish({ state: "reserved", hold });
    ctx.setMetadata({ item: order.item });
    const late = await ctx.after("late", 3600_000);
    const first = await ctx.first("paid-or-late", pays, late);
    assert.equal(first, pays);
    await late.stop();
    const { card } = await pays.next();
    const labels = await ctx.each("parcel", order.parcels, (ctx, parcel) => ctx.step("label", () => `L ${parcel}`), { limit: 2 });
    await ctx.sleep("return-period", 10);
    return { id, card, labels, fees: ctx.version("fees") };
  }, { item: "tea", price: 200, parcels: ["cup", "pot", "can"] }, { versions: { fees: 2 } });
  await start();
  await assert.rejects(call("pay", { amount: 1 }), (error) => error.rejection.reason === "wrong_amount");
  await assert.rejects(call("sell", {}), (error) => error.rejection.reason === "not_open");
  assert.deepEqual(await call("pay", { amount: 200, card: "visa" }), { state: "paying" });
  const process = await until("COMPLETED");
  assert.deepEqual(process.auxState, { state: "reserved", hold: "R tea" });
  assert.deepEqual(process.metadata, { item: "tea", versions: { fees: 2 } });
  const entries = await journal();
  assert.deepEqual(entries.at(-1).v, { id: entries[1].v, card: "visa", labels: ["L cup", "L pot", "L can"], fees: 2 });
  const sorted = kinds(entries).sort();
  assert.deepEqual(sorted, [
    "call pay", "end f", "fired return-period", "first paid-or-late", "start f", "step parcel[0]/label",
    "step parcel[1]/label", "step parcel[2]/label", "step reserve", "stopped late", "timer late", "timer return-period",
    "value id",
  ]);
  assert.equal(effects.length, 1);
  assert.match(effects[0], /^sdk-.*\/p\/\d{16}\.1\/reserve$/);
});

test("steps are retried, and undone when the function fails", async (t) => {
  const effects = [];
  let calls = 0;
  const { start, until, journal } = await begin(t, async (ctx) => {
    await ctx.step("a", () => "A", { undo: (value, { key }) => effects.push(`undo ${value} ${key.split("/").at(-1)}`) });
    await ctx.step("b", () => {
      if (++calls < 3) throw new Error(`failure ${calls}`);
      return "B";
    }, { tries: 3, wait: 5, undo: async (value) => effects.push(`undo ${value}`) });
    const failed = await ctx.step("c", () => Promise.reject(new Rejection("sold_out", "none left"))).catch((error) => error);
    assert.ok(failed instanceof StepError && failed.rejected);
    assert.equal(failed.reason, "sold_out");
    throw failed;
  });
  await start();
  const process = await until("COMPLETED");
  assert.equal(process.detail, undefined);
  assert.deepEqual(effects, ["undo B", "undo A undo:a"]);
  const entries = await journal();
  assert.deepEqual(kinds(entries), ["start f", "step a", "try b", "try b", "step b", "step c", "fail f", "undo b", "undo a"]);
  assert.deepEqual(entries[2].e, { reason: "error", message: "failure 1" });
  assert.deepEqual(entries[6].e, { reason: "sold_out", message: "step c: none left", rejected: true });
});

test("a rejection before the first wait rejects the start", async (t) => {
  const { start, get } = await begin(t, async () => {
    throw new Rejection("bad_price", "no");
  });
  await assert.rejects(start(), (error) => error.rejection.reason === "bad_price");
  await assert.rejects(get(), { reason: "REASON_PROCESS_NOT_FOUND" });
});

test("an error that is a bug fails the task, and a repair continues the function", async (t) => {
  let broken = true;
  const { key, start, until, journal } = await begin(t, async (ctx) => {
    await ctx.step("a", () => 1, { undo: () => {} });
    return broken ? undefined.x : "fine";
  });
  await start();
  assert.match((await until("ERROR")).detail, /TypeError/);
  assert.deepEqual(kinds(await journal()), ["start f", "step a"]);
  broken = false;
  await client.process.repair({ ...key, simple: {} });
  await until("COMPLETED");
});

test("a function that failed starts again after a repair", async (t) => {
  const { key, start, until, journal } = await begin(t, async (ctx, { fail }) => {
    await ctx.step("a", () => 1);
    if (fail) throw new Error("as asked");
    return "fine";
  }, { fail: true });
  await start();
  assert.match((await until("ERROR")).detail, /as asked/);
  await client.process.repair({ ...key, processor: { args: { fail: false } } });
  await until("COMPLETED");
  assert.deepEqual(kinds(await journal()), ["start f", "step a", "end f"]);
});

test("a function restarts with a fresh history and the calls that it has not taken", async (t) => {
  const { start, call, until, journal } = await begin(t, async (ctx, { sum = 0, rounds = 0 }) => {
    const adds = ctx.calls("add");
    await ctx.sleep("pause", 1);
    for (let i = 0; i < 2; i++) sum += await adds.next();
    return rounds === 1 ? sum : new Restart({ sum, rounds: rounds + 1 });
  }, {});
  await start();
  await Promise.all([1, 2, 3, 4].map((n) => call("add", n)));
  await until("COMPLETED");
  const entries = await journal();
  assert.equal(entries.at(-1).v, 10);
  assert.equal(kinds(entries).filter((entry) => entry === "call add").length, 2);
});

test("a function starts children, and cancels those that still run when it fails", async (t) => {
  const parent = await begin(t, async (ctx, { child, deep }) => {
    if (child) {
      if (child.wait) await ctx.sleep("wait", 3600_000);
      if (child.reject) throw new Rejection("odd", "no");
      return `label of ${await ctx.step("label", () => child.name)}`;
    }
    const slow = await ctx.child("slow", { child: { wait: true } });
    const rest = await ctx.each("item", ["cup", "pot"], async (ctx, name) => {
      const kid = await ctx.child("kid", { child: { name, reject: name === "pot" } });
      return kid.get().catch((error) => [error.reason, error.rejected]);
    });
    ctx.publish({ rest, slow: slow.process });
    throw new Error("over");
  });
  await parent.start();
  const { auxState } = await parent.until("ERROR");
  assert.deepEqual(auxState.rest, ["label of cup", ["odd", true]]);
  await eventually(async () => {
    assert.equal((await client.process.getProcess(auxState.slow)).process.status, "PROCESS_STATUS_CANCELLED");
  });
  assert.match(auxState.slow.processId, /^p\/slow~\d+$/);
});

test("a cancelled process undoes its steps", async (t) => {
  const undone = [];
  const { key, start, until } = await begin(t, async (ctx) => {
    for (const name of ["a", "b"]) await ctx.step(name, () => name, { undo: (value) => undone.push(value) });
    ctx.publish("waits");
    await ctx.sleep("long", 3600_000);
  });
  await start();
  await eventually(async () => assert.equal((await client.process.getProcess(key)).process.auxState, "waits"));
  await client.process.cancelProcess({ ...key, reason: "no more" });
  await until("CANCELLED");
  assert.deepEqual(undone, ["b", "a"]);
});

test("more operations than one result can store", async (t) => {
  const { start, until } = await begin(t, async (ctx) => {
    let sum = 0;
    for (let i = 0; i < 1200; i++) sum += await ctx.random("r", 1);
    return sum;
  });
  await start();
  const { lastEventId, history } = await until("COMPLETED");
  assert.equal(lastEventId, 1202);
  assert.deepEqual(history.at(-2)?.payload.n, "r#1200");
});

/** Runs a function in workers, and returns what the test needs. */
async function pulled(t, f, of) {
  const ns = await namespace({ pull: {} });
  const worker = (options, client) => work(t, ns, (worker) => worker.processes(func("f", f)), options, client);
  const running = worker({}, of);
  const key = { namespace: ns, processId: "p" };
  await client.process.start(key);
  const completed = () => eventually(async () => {
    const { process } = await client.process.getProcess(key);
    assert.equal(process.status, "PROCESS_STATUS_COMPLETED", process.detail);
    return process;
  });
  return { key, running, worker, completed };
}

const steps = async (ctx) => {
  for (const name of ["a", "b", "c"]) await ctx.step(name, () => name);
  ctx.publish({ done: await ctx.uuid("id") });
  ctx.setMetadata({ steps: 3 });
  await ctx.step("d", () => "d");
  return "end";
};

test("a worker runs many steps in one task", async (t) => {
  const { completed } = await pulled(t, steps);
  const { history, auxState, metadata } = await completed();
  const tasks = new Set(history.slice(1).map((event) => event.taskId));
  assert.equal(tasks.size, 1);
  assert.equal(auxState.done, history[4].payload.v);
  assert.deepEqual(metadata, { steps: 3 });
});

test("a checkpoint whose response is lost is sent again and stored once", async (t) => {
  const { url, requests } = await losing(t, "Checkpoint");
  const { completed } = await pulled(t, steps, new Client(url));
  const entries = (await completed()).history.map((event) => event.payload);
  assert.deepEqual(kinds(entries), ["start f", "step a", "step b", "step c", "value id", "step d", "end f"]);
  assert.deepEqual(requests[0], requests[1]);
});

test("another worker continues after the last checkpoint", async (t) => {
  const ran = [];
  let stop;
  const blocked = new Promise((resolve) => (stop = resolve));
  const { running, worker, completed } = await pulled(t, async (ctx) => {
    await ctx.step("a", () => ran.push("a"));
    await ctx.step("b", async ({ signal }) => {
      ran.push("b");
      if (ran.length > 2) return "B";
      stop();
      await once(signal, "abort");
      throw signal.reason;
    });
    return "end";
  });
  await blocked;
  running.worker.stop();
  await running.over;
  assert.equal(running.attempts.at(-1).outcome, "released");
  worker();
  const entries = (await completed()).history.map((event) => event.payload);
  assert.deepEqual(kinds(entries), ["start f", "step a", "step b", "end f"]);
  assert.deepEqual(ran, ["a", "b", "b"]);
});

test("an attempt without the response to a checkpoint is released", async (t) => {
  let lost = 0;
  let released = 0;
  const url = await proxy(t, (method) => {
    if (method === "Release") released++;
    return !(method === "Checkpoint" && ++lost < 3);
  });
  const engine = new Client(url, { retry: { maxAttempts: 1 } });
  const checkpoint = engine.worker.checkpoint.bind(engine.worker);
  engine.worker.checkpoint = (request, options) => checkpoint(request, { ...options, maxAttempts: 1 });
  const { running, completed } = await pulled(t, steps, engine);
  const entries = (await completed()).history.map((event) => event.payload);
  assert.deepEqual(kinds(entries), ["start f", "step a", "step b", "step c", "value id", "step d", "end f"]);
  assert.equal(running.attempts.filter(({ outcome }) => outcome === "lost").length, 2);
  assert.equal(released, 2); // otherwise the next attempt would wait for the end of the lease
});

test("a function continues without checkpoints if the engine is older", async (t) => {
  let refused = 0;
  const fetchOlder = (url, init) => {
    if (!url.endsWith("/Checkpoint")) return fetch(url, init);
    refused++;
    return Response.json({ code: "unimplemented" }, { status: 501 });
  };
  const { running, completed } = await pulled(t, steps, new Client(undefined, { fetch: fetchOlder }));
  const entries = (await completed()).history.map((event) => event.payload);
  assert.deepEqual(kinds(entries), ["start f", "step a", "step b", "step c", "value id", "step d", "end f"]);
  assert.ok(refused > 0);
  assert.deepEqual(new Set(running.attempts.map(({ outcome }) => outcome)), new Set(["done"]));
});

test("a checkpoint that is not JSON fails the task", async (t) => {
  const ns = await namespace({ pull: {} }, { retryPolicy: { maxAttempts: 3, initialInterval: "0.02s" } });
  const circular = {};
  circular.self = circular;
  const { attempts } = work(t, ns, (worker) => worker.processes({
    init: () => ({ setTimer: { after: "0s" } }),
    timeout: ({ process }, { checkpoint }) => checkpoint({ events: [{ payload: process.processId === "p" ? circular : 1n }] }),
  }));
  for (const processId of ["p", "q"]) {
    await client.process.start({ namespace: ns, processId });
    await eventually(async () => {
      const { process } = await client.process.getProcess({ namespace: ns, processId });
      assert.equal(process.status, "PROCESS_STATUS_ERROR");
      assert.match(process.detail, /the checkpoint is not JSON: /);
    });
  }
  await eventually(() => assert.deepEqual(attempts.map(({ outcome }) => outcome), ["done", "failed", "done", "failed"]));
});

/** Repairs a process with this history, without an engine. */
function repair(f, history, args) {
  const payloads = history.map((payload, i) => ({ eventId: i + 1, taskId: 1, payload }));
  const process = {
    namespace: "ns", processId: "p", createdTime: "2026-01-01T00:00:00Z", lastEventId: history.length, history: payloads,
  };
  const task = { type: "TASK_TYPE_REPAIR", process, taskId: 2, attempt: 1, args };
  return f.repair(task, { signal: new AbortController().signal });
}

/** Calls a function that has opened the call "pay", without an engine. */
function pay(accept) {
  const f = func("f", (ctx) => ctx.calls("pay", accept).next());
  const history = [{ eventId: 1, taskId: 1, payload: { k: "start", n: "f" } }];
  const process = { namespace: "ns", processId: "p", createdTime: "2026-01-01T00:00:00Z", lastEventId: 1, history };
  return f.call({ type: "TASK_TYPE_CALL", process, taskId: 2, attempt: 1, args: { pay: 1 } }, { signal: new AbortController().signal });
}

test("a rejection or a response of accept that is too large rejects the call", async () => {
  const large = "x".repeat(1 << 20);
  const reject = (message, details) => () => { throw new Rejection("no", message, details); };
  for (const [accept, reason, message, details] of [
    [reject("x", "kept"), "no", "x", "kept"],
    [reject("x", large), "no", "x (details omitted: they have 1048578 bytes, at most 1028096 are allowed)"],
    [reject("x", Buffer.from(large)), "no", "x (details omitted: they have 1048576 bytes, at most 1028096 are allowed)"],
    [() => large, "bad_value", "the response of call pay has 1048578 bytes as JSON, at most 1044480 are allowed"],
  ]) {
    await assert.rejects(pay(accept), (error) => {
      assert.deepEqual([error.reason, error.message, error.details], [reason, message, details]);
      return error instanceof Rejection;
    });
  }
});

/** Waits for a repair that is rejected as bad_args, and compares its message. */
async function rejectsArgs(repair, message) {
  await assert.rejects(repair, (error) => {
    assert.deepEqual([error.reason, error.message], ["bad_args", message]);
    return error instanceof Rejection;
  });
}

test("a function whose start has failed has no steps to repair", async () => {
  const f = func("f", (ctx, { n }) => ctx.step("a", () => n));
  await rejectsArgs(repair(f, [], { durable_repair: { skip: ["a"] } }),
    "durable_repair: the function has not started, so it has no steps: repair it with its args");
  const { events } = await repair(f, [], { n: 2 });
  assert.deepEqual(events[0].payload, { k: "start", n: "f", v: { n: 2 }, versions: undefined });
});

test("a repair by step is checked", async () => {
  const f = func("f", (ctx) => ctx.step("a", () => 1));
  const list = 'must be a list of names such as ["a"]';
  const object = 'durable_repair.set: must be an object such as {"b":1}';
  const fields = "durable_repair: must have no fields other than skip, set and rewind";
  const format = 'durable_repair: must be an object such as {"skip":["a"],"set":{"b":1},"rewind":["c"]}';
  const large = "a".repeat((1 << 20) - 4097);
  for (const [request, message] of [
    [null, format], [["a"], format], [{ undo: ["a"] }, fields], [{ Skip: ["a"] }, fields],
    [{ skip: "a" }, `durable_repair.skip: ${list}`], [{ skip: null }, `durable_repair.skip: ${list}`],
    [{ rewind: [null] }, `durable_repair.rewind: ${list}`], [{ set: null }, object], [{ set: ["a"] }, object],
    [{}, "durable_repair: must name a step"], [{ skip: [], set: {} }, "durable_repair: must name a step"],
    [{ skip: Array(101).fill("a") }, "durable_repair: must name at most 100 steps (got 101)"],
    [{ skip: ["a"], set: { a: 1 } }, "durable_repair.set: step a cannot be both skipped and set"],
    [{ set: { a: large } }, "durable_repair.set: the value of step a has 1044481 bytes, at most 1044480 are allowed"],
    ...[{ skip: ["é".repeat(104)] }, { set: { ["a".repeat(208)]: 1 } }, { rewind: ["a".repeat(208)] }].map((request) => [
      request, "durable_repair: a name has 208 bytes, at most 206 are allowed",
    ]),
  ]) {
    await rejectsArgs(repair(f, [{ k: "start", n: "f" }], { durable_repair: request }), message);
  }
  const history = [{ k: "start", n: "f" }, { k: "step", n: "a", v: 1 }, { k: "fail", n: "f", e: { reason: "x", message: "y" } }];
  for (const [request, message] of [
    [{ skip: ["b"] }, "durable_repair.skip: the function has not reached a step b: the names are a"],
    [{ set: { b: 1 } }, "durable_repair.set: the function has not reached a step b: the names are a"],
    [{ skip: ["a"] }, "durable_repair.skip: step a has completed and cannot be skipped: set its value, or rewind it"],
    [{ rewind: ["b"] }, "durable_repair.rewind: the journal has no entry b to rewind to: the names are a"],
  ]) await rejectsArgs(repair(f, history, { durable_repair: request }), message);
});

test("a name of a rewind means the step with this name, and KIND:NAME any operation", async () => {
  const f = func("f", (ctx) => ctx.sleep("pause", 1000));
  const history = [
    { k: "start", n: "f" }, { k: "value", n: "x", v: 1 }, { k: "timer", n: "x", v: 1 }, { k: "try", n: "x", e: { reason: "a", message: "b" } },
    { k: "step", n: "x", v: 2 }, { k: "value", n: "y", v: 1 }, { k: "timer", n: "y", v: 1 }, { k: "value", n: "z", v: 1 },
    { k: "fail", n: "f", e: { reason: "a", message: "b" } },
  ];
  const rewind = (name) => repair(f, history, { durable_repair: { rewind: [name] } });
  for (const [name, first] of [["x", "try x"], ["step:x", "try x"], ["try:x", "try x"], ["timer:x", "timer x"], ["value:x", "value x"],
    ["timer:y", "timer y"], ["z", "value z"]]) assert.equal((await rewind(name)).response.forgotten[0], first, name);
  for (const [name, message] of [
    ["y", "the journal has several entries y: name one of them as value:y or timer:y"],
    ["first:y", "the journal has no first y to rewind to: there are none yet"],
    ["timer:z", "the journal has no timer z to rewind to: the names are x, y"],
    ["w", "the journal has no entry w to rewind to: the names are x, y, z"],
    ["fired:x", "fired:x: the kind must be step, value, timer, child or first"],
    [":x", ":x: the kind must be step, value, timer, child or first"],
  ]) await rejectsArgs(rewind(name), `durable_repair.rewind: ${message}`);
});

test("the signal of a step is aborted before its attempt times out", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let begin;
  const begun = new Promise((resolve) => { begin = resolve; });
  const f = func("f", (ctx) => ctx.step("slow", (step) => new Promise((_, reject) => {
    step.signal.addEventListener("abort", () => reject(step.signal.reason));
    begin();
  })));
  const payload = { k: "start", n: "f" };
  const history = [{ eventId: 1, taskId: 1, payload }];
  const process = { namespace: "ns", processId: "p", createdTime: "2026-01-01T00:00:00Z", lastEventId: 1, history };
  const context = { signal: new AbortController().signal, deadline: performance.now() + 60_000 };
  const ended = f.timeout({ type: "TASK_TYPE_TIMEOUT", process, taskId: 2, attempt: 1 }, context);
  await begun;
  t.mock.timers.tick(59_000);
  const { events } = await ended;
  assert.equal(events[0].payload.e.reason, "timeout");
});

const misuses = {
  "an operation in the body of a step": [async (ctx) => ctx.step("a", () => ctx.uuid("b")), /durable.test.mjs:\d+: .*in the body of step a/],
  "an operation in accept": [async (ctx) => {
    ctx.calls("x", () => ctx.uuid("b"));
    await ctx.sleep("s", 3600_000);
  }, /in the accept of call x/, "x"],
  "a wait for something else": [async (ctx) => {
    await ctx.uuid("a");
    await sleep(1);
    await ctx.uuid("b");
  }, /waits for something that is not a durable operation, after value a/],
  "two operations at a time": [(ctx) => Promise.all([ctx.step("a", () => 1), ctx.step("b", () => 2)]),
    /durable.test.mjs:\d+: a durable operation before the last one has ended/],
  "a race": [(ctx) => Promise.race([ctx.sleep("a", 5), ctx.calls("x").next()]), /before the last one has ended/],
  "an operation that is not awaited": [async (ctx) => void ctx.step("a", () => 1), /before an operation that it did not await/],
  "the context of another branch": [(ctx) => ctx.each("e", [1], () => ctx.uuid("a")), /context of another branch/],
  "a bad name": [(ctx) => ctx.step("a b", () => 1), /the name "a b" must have/],
  "a value that is no JSON": [async (ctx) => ctx.publish(1n), /the published value cannot be encoded as JSON/],
};
for (const [name, [f, message, call]] of Object.entries(misuses)) {
  test(`misuse: ${name}`, async (t) => {
    const run = await begin(t, async (ctx) => {
      if (!call) await ctx.step("first", () => 1);
      return f(ctx);
    });
    await run.start();
    if (call) await assert.rejects(run.call(call, {}), message);
    const { detail } = await run.until("ERROR");
    assert.match(detail, message);
    if (!call) assert.deepEqual(kinds(await run.journal()), ["start f", "step first"]);
  });
}

test("an operation after the end of its task does not change anything", async (t) => {
  const logged = [];
  t.mock.method(console, "error", (message) => logged.push(message));
  const { start, until, journal } = await begin(t, async (ctx) => {
    await ctx.step("a", () => {
      setTimeout(() => ctx.uuid("b"), 20);
    });
    return 1;
  });
  await start();
  await until("COMPLETED");
  await eventually(() => assert.match(logged.join(), /durable function misused: .*in the body of step a/));
  assert.deepEqual(kinds(await journal()), ["start f", "step a", "end f"]);
});
