// Calls every method of ProcessService, NamespaceService, BulkService and InsightService of a running engine, with orders of the demo shop.
// protoc-gen-es generates the clients from the proto files.
//
//   node shop.js [URL [connect | grpc | grpc-web]]

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Code } from "@connectrpc/connect";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { checkAllCalled, client, decode, encode, protocol, errorOf } from "./api.js";
import { BulkService, BulkVerb, InsightService } from "./gen/progressor/v1/admin_pb.js";
import { HealthStatus, HistoryMode, NamespaceService } from "./gen/progressor/v1/namespace_pb.js";
import { ErrorDetail_Reason, HistoryRange_Direction, ProcessService, ProcessStatus, TaskStatus, TaskType, Wait } from "./gen/progressor/v1/process_pb.js";

const processes = client(ProcessService);
const namespaces = client(NamespaceService);
const bulks = client(BulkService);
const insight = client(InsightService);

const namespace = `node-${protocol}-${Date.now().toString(36)}`; // a new one each time
const order = (processId) => ({ namespace, processId });
const items = [{ sku: "tea", quantity: 2 }];

async function tryNamespaces() {
  const put = await namespaces.putNamespace({
    namespace: {
      namespace, processor: { transport: { case: "builtin", value: { name: "orders" } } },
      stepTimeout: durationFromMs(10_000), historyMode: HistoryMode.FULL,
    },
  });
  assert.equal(put.namespace.stepTimeout.seconds, 10n); // 64-bit integers are BigInt
  const got = await namespaces.getNamespace({ namespace });
  assert.equal(got.namespace.processor.transport.value.name, "orders");
  const all = await namespaces.listNamespaces({});
  assert.ok(all.namespaces.some((one) => one.namespace === namespace));
  const health = await namespaces.getNamespaceHealth({ namespace });
  assert.equal(health.namespaces[0].status, HealthStatus.OK);
  const gone = `${namespace}-gone`;
  await namespaces.putNamespace({ namespace: { ...got.namespace, namespace: gone } });
  const counted = await namespaces.deleteNamespace({ namespace: gone, withData: true, dryRun: true });
  assert.deepEqual([counted.counts.length, counted.namespace.deletion], [0, undefined]);
  const { namespace: deleting } = await namespaces.deleteNamespace({ namespace: gone });
  assert.equal(deleting.deletion.withData, false); // the engine deletes it within a few seconds
  const detail = await errorOf(Code.NotFound, namespaces.getNamespace({ namespace: "nowhere" }));
  assert.equal(detail.reason, ErrorDetail_Reason.NAMESPACE_NOT_FOUND);
}

async function tryAnOrder() {
  const start = { ...order("order-1"), args: encode({ order: "A-1", customer: "ada", items }), metadata: { tenant: "acme" }, idempotencyKey: "new" };
  const started = await processes.start(start);
  assert.equal(decode(started.response).total, 200);
  assert.deepEqual(await processes.start(start), started); // a repeated request gets the same response

  const no = await errorOf(Code.FailedPrecondition, processes.call({ ...order("order-1"), args: encode({ pay: 1 }) }));
  assert.equal(no.reason, ErrorDetail_Reason.TASK_REJECTED);
  const exists = await errorOf(Code.AlreadyExists, processes.start({ ...start, idempotencyKey: "" }));
  assert.equal(exists.reason, ErrorDetail_Reason.PROCESS_EXISTS);

  // A watch returns new events and statuses until the process ends.
  const seen = [];
  const watch = (async () => {
    for await (const { update } of processes.watchProcess(order("order-1"))) {
      seen.push(update.case === "event" ? decode(update.value.payload).type : ProcessStatus[update.value.status]);
    }
  })();
  const paid = await processes.call({ ...order("order-1"), args: encode({ pay: 200 }), idempotencyKey: "pay" });
  assert.equal(decode(paid.response).state, "paid");
  await watch; // the order is shipped a second later
  assert.equal(seen[0], "reserved");
  assert.equal(seen.at(-1), "COMPLETED");
  assert.ok(seen.includes("shipped"), seen.join());

  const { process: shipped } = await processes.getProcess({ ...order("order-1"), range: { limit: 1, direction: HistoryRange_Direction.BACKWARD } });
  assert.equal(shipped.status, ProcessStatus.COMPLETED);
  assert.equal(decode(shipped.history[0].payload).type, "shipped");
  const { tasks } = await processes.traceProcess(order("order-1"));
  assert.deepEqual(tasks.filter((task) => task.status === TaskStatus.FINISHED).map((task) => TaskType[task.type]), ["INIT", "CALL", "CALL", "TIMEOUT"]);
}

async function tryRepairs() {
  for (const id of ["order-2", "order-3"]) {
    await processes.start({ ...order(id), args: encode({ order: id, items: [{ sku: "broken" }] }) });
    const failed = await errorOf(Code.Aborted, processes.call({ ...order(id), args: encode({ pay: 100 }) }));
    assert.equal(failed.reason, ErrorDetail_Reason.TASK_FAILED);
    assert.equal(failed.processStatus, ProcessStatus.ERROR);
  }
  const { groups } = await insight.listErrors({ namespace });
  assert.equal(groups[0].count, 2n);
  const broken = await processes.listProcesses({ namespace, filter: groups[0].filter, orderBy: "process_id" });
  assert.deepEqual(broken.processes.map((one) => one.processId), ["order-2", "order-3"]);
  const why = await insight.explainProcess(order("order-2"));
  assert.match(why.unblock, /repair/);

  await processes.repair({ ...order("order-2"), how: { case: "simple", value: {} } });
  const repaired = await processes.repair({ ...order("order-3"), how: { case: "processor", value: { args: encode({ replace: true }) } } });
  assert.equal(decode(repaired.response).items[0].sku, "replacement");
}

async function tryOperators() {
  // Requests to a paused namespace are stored, and run after a resume.
  await namespaces.pauseNamespace({ namespace });
  await processes.call({ ...order("order-3"), args: encode({ status: true }), wait: Wait.ACCEPTED, idempotencyKey: "later" });
  const waiting = await processes.awaitTask({ ...order("order-3"), key: { case: "idempotencyKey", value: "later" }, timeout: durationFromMs(0) });
  assert.equal(waiting.task.status, TaskStatus.WAITING);
  await namespaces.resumeNamespace({ namespace });
  const ended = await processes.awaitTask({ ...order("order-3"), key: { case: "taskId", value: waiting.task.taskId }, timeout: durationFromMs(10_000) });
  assert.equal(ended.task.status, TaskStatus.FINISHED);

  const suspended = await processes.suspendProcess({ ...order("order-3"), reason: "inspection" });
  assert.equal(suspended.process.status, ProcessStatus.SUSPENDED);
  const status = await errorOf(Code.FailedPrecondition, processes.call({ ...order("order-3"), args: encode({ status: true }) }));
  assert.equal(status.reason, ErrorDetail_Reason.PROCESS_STATUS);
  const resumed = await processes.resumeProcess(order("order-3"));
  assert.equal(resumed.process.status, ProcessStatus.RUNNING);
  const restarted = await processes.restartHistory(order("order-3"));
  assert.ok(restarted.process.firstEventId >= 1n);
  await processes.cancelProcess({ ...order("order-3"), reason: "enough", grace: durationFromMs(0) });
  await processes.removeProcess(order("order-2"));
  const gone = await errorOf(Code.NotFound, processes.getProcess(order("order-2")));
  assert.equal(gone.reason, ErrorDetail_Reason.PROCESS_NOT_FOUND);
  const erased = await processes.eraseProcess(order("order-2")); // also removes what other tables still have about it
  assert.equal(erased.nextPageToken, "");
  assert.ok(erased.rows.audit >= 1n);

  const put = await processes.putProcess({
    ...order("imported"), status: ProcessStatus.ERROR, detail: "moved here",
    history: [{ eventId: 1n, payload: encode({ type: "moved" }), metadata: { format_version: 1 } }],
  });
  assert.equal(put.process.lastEventId, 1n);
}

async function tryInsight() {
  const { countByStatus } = await insight.countProcesses({ namespace });
  assert.deepEqual({ completed: countByStatus.completed, cancelled: countByStatus.cancelled, error: countByStatus.error },
    { completed: 1n, cancelled: 1n, error: 1n });
  const overview = await insight.getOverview({ namespace });
  assert.ok(overview.nodes.length > 0);
  const { nodes } = await insight.listNodes({});
  assert.equal(nodes.length, overview.nodes.length);
  await errorOf(Code.NotFound, insight.drainNode({ nodeId: "999999999" })); // an existing node would accept no more work
  const { entries } = await insight.listAudit({ namespace });
  assert.ok(entries.some((entry) => entry.method === "CancelProcess" && entry.subject === "order-3"));
}

async function tryBulks() {
  const filter = 'process_id = "order-b*"';
  for (const id of ["order-b1", "order-b2"]) await processes.start({ ...order(id), args: encode({ order: id, items }) });
  const suspend = { namespace, filter, verb: BulkVerb.SUSPEND, reason: "stocktaking" };
  const dry = await bulks.startBulk({ ...suspend, dryRun: true });
  assert.equal(dry.bulk.expected, 2n); // a dry run changes nothing
  const { bulk } = await bulks.startBulk(suspend);
  const ended = await endOf(bulk.bulkId);
  assert.deepEqual([ended.status, ended.done], [ProcessStatus.COMPLETED, 2n]);

  // A slow bulk is cancelled. Changes that it made are kept.
  const slow = await bulks.startBulk({ namespace, filter, verb: BulkVerb.RESUME, rate: 0.01 });
  await bulks.cancelBulk({ namespace, bulkId: slow.bulk.bulkId });
  assert.equal((await endOf(slow.bulk.bulkId)).status, ProcessStatus.CANCELLED);
  const list = await bulks.listBulks({ namespace });
  assert.equal(list.bulks.length, 2);
  await endOf((await bulks.startBulk({ namespace, filter, verb: BulkVerb.REMOVE })).bulk.bulkId);
}

// endOf waits for the end of a bulk and returns it.
async function endOf(bulkId) {
  for (;;) {
    const { bulk } = await bulks.getBulk({ namespace, bulkId });
    if (bulk.finishedTime) return bulk;
    await sleep(50);
  }
}

await tryNamespaces();
await tryAnOrder();
await tryRepairs();
await tryOperators();
await tryInsight();
await tryBulks();

checkAllCalled();
