// Calls every method of JobService, WorkerService, CronService, FlowService, JobEventService and ChangeService of a running engine.
// protoc-gen-es generates the clients from the proto files. The program is also the worker of its jobs.
//
//   node queue.js [URL [connect | grpc | grpc-web]]

import assert from "node:assert/strict";
import { Code } from "@connectrpc/connect";
import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { checkAllCalled, client, plain, protocol, errorOf, value } from "./api.js";
import { ChangeService } from "./gen/progressor/v1/change_pb.js";
import { CronPolicySchema, CronService, Decision, FireStatus, OverlapAction } from "./gen/progressor/v1/cron_pb.js";
import { FlowService, JobEventService, RunStatus, StepStatus } from "./gen/progressor/v1/flow_pb.js";
import { JobService } from "./gen/progressor/v1/job_pb.js";
import { ChangeKind, NamespaceService } from "./gen/progressor/v1/namespace_pb.js";
import { ErrorDetail_Reason } from "./gen/progressor/v1/process_pb.js";
import { SinkState } from "./gen/progressor/v1/sink_pb.js";
import { WaitAction_Kind } from "./gen/progressor/v1/wait_pb.js";
import { JobState, LeaseDirective_Directive, WorkerDirective, WorkerService } from "./gen/progressor/v1/worker_pb.js";

const jobs = client(JobService);
const workers = client(WorkerService);
const crons = client(CronService);
const flows = client(FlowService);
const jobEvents = client(JobEventService);
const changes = client(ChangeService);
const namespaces = client(NamespaceService);

const namespace = `node-queue-${protocol}-${Date.now().toString(36)}`; // a new one each time
const workerId = namespace; // unique, because a directive applies to a worker in all namespaces
const job = (jobId) => ({ namespace, jobId });
const seconds = (n) => durationFromMs(1000 * n);

async function tryNamespaces() {
  const recorded = { kinds: [ChangeKind.JOB] };
  await namespaces.putNamespace({ namespace: { namespace, processor: { transport: { case: "pull", value: {} } }, changes: recorded } });
  assert.ok((await namespaces.listNamespaces({})).namespaces.some((one) => one.namespace === namespace));
  await namespaces.pauseNamespace({ namespace });
  assert.ok((await namespaces.getNamespace({ namespace })).namespace.paused);
  const health = await namespaces.getNamespaceHealth({ namespace });
  assert.equal(health.namespaces[0].paused, true);
  await namespaces.resumeNamespace({ namespace });
  const counted = await namespaces.deleteNamespace({ namespace, dryRun: true });
  assert.deepEqual([counted.counts.length, counted.namespace.deletion], [0, undefined]);
}

// lease waits for a job with one of the names, and leases it.
async function lease(...jobNames) {
  const { leases } = await workers.poll({ namespaces: [namespace], workerId, jobNames, maxLeases: 1, wait: seconds(30) });
  assert.equal(leases.length, 1, `no job of ${jobNames}`);
  return leases[0];
}

async function finish({ leaseToken }, result) {
  await workers.complete({ leaseToken, answer: { case: "jobResult", value: { result: value(result) } } });
}

const failure = (reason) => ({ case: "response", value: { outcome: { case: "failure", value: { reason, message: reason, nonRetryable: true } } } });

async function tryJobs() {
  const add = { ...job("add-1"), name: "add", args: value({ a: 2, b: 3 }), options: { keepResult: true, maxRetry: 0 }, idempotencyKey: "add" };
  const first = await jobs.enqueue(add);
  assert.ok(first.enqueued);
  assert.ok(!(await jobs.enqueue(add)).enqueued); // a repeated request gets the same response
  await jobs.updateJob({ ...job("add-1"), options: { priority: -1 }, updateMask: { paths: ["priority"] } });

  const held = await lease("add");
  assert.equal(held.job.options.priority, -1);
  const beat = await workers.heartbeat({ workerId, beats: [{ leaseToken: held.leaseToken, progress: { percent: 50, summary: "half of it" } }] });
  assert.equal(beat.directives[0].directive, LeaseDirective_Directive.CONTINUE);
  assert.equal((await jobs.getJob(job("add-1"))).job.progress.summary, "half of it");
  assert.ok(!held.mayCheckpoint); // only timers and cancels of processes store events before their result
  const early = workers.checkpoint({ leaseToken: held.leaseToken, events: [{ payload: new Uint8Array(1) }] });
  assert.equal((await errorOf(Code.InvalidArgument, early)).field, "lease_token");
  const { a, b } = plain(held.job.args);
  await finish(held, a + b);
  const ended = await jobs.fetchResult({ ...job("add-1"), awaitEnd: seconds(10) });
  assert.deepEqual([ended.state, plain(ended.result)], [JobState.SUCCEEDED, 5]);
  assert.ok((await jobs.fetchResult(job("add-1"))).dropped); // a result is fetched once

  // A job that has failed permanently is retried by hand. A release uses up no attempt, and ends the lease.
  await jobs.enqueue({ ...job("mail-1"), name: "mail" });
  await workers.complete({ leaseToken: (await lease("mail")).leaseToken, answer: failure("no_address") });
  const failed = (await jobs.getJob({ ...job("mail-1"), awaitEnd: seconds(10) })).job;
  assert.deepEqual([failed.state, failed.failures[0].reason], [JobState.FAILED, "no_address"]);
  await jobs.retryJob(job("mail-1"));
  const { leaseToken } = await lease("mail");
  await workers.release({ workerId, leaseTokens: [leaseToken] });
  const lost = await errorOf(Code.FailedPrecondition, workers.complete({ leaseToken, answer: { case: "jobResult", value: {} } }));
  assert.equal(lost.reason, ErrorDetail_Reason.LEASE_LOST);
  await finish(await lease("mail"), null);
  assert.equal((await jobs.getJob({ ...job("mail-1"), awaitEnd: seconds(10) })).job.state, JobState.SUCCEEDED);

  // The worker of a running job receives the cancel with a heartbeat, and acknowledges it.
  await jobs.enqueue({ ...job("film-1"), name: "film" });
  const film = await lease("film");
  await jobs.cancelJob({ ...job("film-1"), reason: "not wanted" });
  const { directives } = await workers.heartbeat({ workerId, beats: [{ leaseToken: film.leaseToken }] });
  assert.deepEqual([directives[0].directive, directives[0].cancelReason], [LeaseDirective_Directive.CANCEL, "not wanted"]);
  await workers.complete({ leaseToken: film.leaseToken, answer: { case: "cancelled", value: { message: "stopped" } } });
  assert.equal((await jobs.getJob({ ...job("film-1"), awaitEnd: seconds(10) })).job.state, JobState.CANCELLED);
}

async function tryConstraints() {
  const constraint = { namespace, name: "one per tenant", match: 'job.name == "sync"', key: "job.args.tenant", maxRunning: 1 };
  await jobs.putConstraint({ constraint });
  const sync = (tenant) => ({ namespace, name: "sync", args: value({ tenant }) });
  const batch = await jobs.enqueueBatch({ jobs: [sync("acme"), sync("acme"), sync("globex")] });
  const poll = { namespaces: [namespace], workerId, jobNames: ["sync"], maxLeases: 10, wait: seconds(30) };
  const leases = [];
  while (leases.length < 2) leases.push(...(await workers.poll(poll)).leases); // one job of each tenant; the first poll may return only one of them
  assert.equal(leases.length, 2);
  const { constraints } = await jobs.listConstraints({ namespace });
  assert.deepEqual([constraints[0].running, constraints[0].waiting], [2n, 1n]);
  const blocked = (await jobs.listJobs({ namespace, filter: 'name = "sync" AND state = AVAILABLE' })).jobs;
  assert.equal(blocked[0].blockedOn.includes("one per tenant"), true, blocked[0].blockedOn);

  // One request completes both leases and leases the next job.
  const answers = leases.map(({ leaseToken }) => ({ leaseToken, answer: { case: "jobResult", value: {} } }));
  let { outcomes, next } = await workers.completeBatch({ answers, next: poll });
  assert.deepEqual(outcomes.map(({ error }) => error), [undefined, undefined]);
  if (next.length === 0) ({ leases: next } = await workers.poll(poll));
  await finish(next[0], null);
  assert.equal((await jobs.getJob({ ...job(batch.jobs[1].job.jobId), awaitEnd: seconds(10) })).job.state, JobState.SUCCEEDED);
  await jobs.deleteConstraint({ namespace, name: constraint.name });
  const stats = await jobs.getQueueStats({ namespace });
  assert.equal(stats.countByState.succeeded, 5n);
}

async function tryCrons() {
  const cron = {
    namespace, cronId: "nightly", spec: { expressions: ["0 3 * * *"], timezone: "Europe/Berlin" },
    target: { target: { case: "enqueueJob", value: { name: "report", args: value({ kind: "nightly" }) } } },
  };
  const preview = await crons.previewCron({ of: { case: "spec", value: cron.spec }, fromTime: timestampFromDate(new Date("2026-03-28T12:00:00Z")), limit: 2 });
  assert.deepEqual(preview.fireTimes.map(({ seconds: at }) => new Date(1000 * Number(at)).toISOString()), ["2026-03-29T01:00:00.000Z", "2026-03-30T01:00:00.000Z"]);
  const created = (await crons.createCron({ cron })).cron;
  const updated = (await crons.updateCron({ cron: { ...created, policy: create(CronPolicySchema, { overlapAction: OverlapAction.SKIP }) } })).cron;
  await errorOf(Code.Aborted, crons.updateCron({ cron: created })); // its etag is no longer current
  await crons.pauseCron({ namespace, cronId: "nightly", note: "the disk is full" });
  assert.equal((await crons.getCron({ namespace, cronId: "nightly" })).cron.pauseNote, "the disk is full");
  await crons.resumeCron({ namespace, cronId: "nightly" });

  // A manual fire starts a job, which a worker takes like any other job.
  const { fire } = await crons.triggerCron({ namespace, cronId: "nightly" });
  assert.deepEqual([fire.decision, fire.manual], [Decision.FIRED, true]);
  await finish(await lease("report"), null);
  for (;;) {
    const { fires } = await crons.listFires({ namespace, cronId: "nightly" });
    if (fires[0].status === FireStatus.SUCCESS) break;
    assert.ok([FireStatus.SCHEDULED, FireStatus.RUNNING].includes(fires[0].status), FireStatus[fires[0].status]);
  }
  const from = Date.parse("2026-01-01T00:00:00Z");
  const { fires } = await crons.backfillCron({ namespace, cronId: "nightly", fromTime: timestampFromMs(from), toTime: timestampFromMs(from + 86_400_000) });
  assert.equal(fires, 1);
  await finish(await lease("report"), null);
  await crons.stopBackfills({ namespace, cronId: "nightly" });

  // A fire is cancelled before a worker takes its job, and is then run again.
  const late = (await crons.triggerCron({ namespace, cronId: "nightly" })).fire;
  const byTime = { namespace, cronId: "nightly", fireTime: late.fireTime };
  await crons.cancelFire({ ...byTime, reason: "too late" });
  while ((await crons.listFires({ namespace, cronId: "nightly" })).fires[0].status === FireStatus.RUNNING);
  await crons.rerunFire(byTime);
  await finish(await lease("report"), null);
  assert.equal((await crons.listCrons({ namespace })).crons[0].cronId, updated.cronId);
  assert.equal((await crons.listNextCrons({ namespace })).crons[0].cronId, updated.cronId);
  await crons.deleteCron({ namespace, cronId: "nightly" });
}

async function tryFlows() {
  const template = {
    namespace, type: "order", concurrencyPolicy: 1, repeatable: true,
    payloadSchema: { type: "object", required: ["total"] },
    steps: [
      { stepId: "charge", action: { case: "job", value: { options: { maxRetry: 0 } } } },
      { stepId: "approve", action: { case: "wait", value: { kind: WaitAction_Kind.EXTERNAL, title: "Approve ${payload.total}" } } },
    ],
  };
  const run = (runId) => ({ namespace, runId });
  assert.equal((await flows.putTemplate({ template })).template.version, 1);
  assert.deepEqual((await flows.getTemplate({ namespace, type: "order" })).versions, [1]);
  await flows.disableTemplate({ namespace, type: "order" });
  await errorOf(Code.FailedPrecondition, flows.startRun({ ...run("run-0"), type: "order", payload: value({ total: 1 }) }));
  await flows.enableTemplate({ namespace, type: "order" });
  assert.equal((await flows.listTemplates({ namespace })).templates.length, 1);
  await errorOf(Code.InvalidArgument, flows.startRun({ ...run("run-0"), type: "order", payload: value({}) })); // the schema requires a total

  // The first step of the run fails and is retried. The second step waits for an external system.
  await flows.startRun({ ...run("run-1"), type: "order", payload: value({ total: 20 }) });
  await workers.complete({ leaseToken: (await lease("charge")).leaseToken, answer: failure("card_declined") });
  assert.equal((await flows.getRun({ ...run("run-1"), awaitEnd: seconds(10) })).run.status, RunStatus.FAILED);
  await flows.retryRun(run("run-1"));
  await finish(await lease("charge"), { receipt: 7 });
  const wait = await openWait("run-1");
  assert.equal(wait.title, "Approve 20");
  const step = { ...run("run-1"), stepId: "approve", token: wait.token };
  await flows.reportStep({ ...step, progress: { percent: 10, summary: "asked" } });
  await flows.completeStep({ ...step, workerId: "auditor", outcome: { case: "result", value: value("yes") } });
  const done = (await flows.getRun({ ...run("run-1"), awaitEnd: seconds(10) })).run;
  assert.deepEqual([done.status, plain(done.result)], [RunStatus.SUCCEEDED, "yes"]);
  const { steps } = await flows.listSteps(run("run-1"));
  assert.deepEqual(steps.map((one) => StepStatus[one.status]), ["SUCCEEDED", "SUCCEEDED"]);

  // In a second run, the wait is skipped. A third run is cancelled.
  const again = (await flows.repeatRun(run("run-1"))).run;
  await finish(await lease("charge"), null);
  await openWait(again.runId);
  await flows.skipStep({ ...run(again.runId), stepId: "approve", reason: "known" });
  assert.equal((await flows.getRun({ ...run(again.runId), awaitEnd: seconds(10) })).run.status, RunStatus.SUCCEEDED);
  await flows.startRun({ ...run("run-2"), type: "order", payload: value({ total: 1 }) });
  await flows.cancelRun({ ...run("run-2"), reason: "changed their mind" });
  assert.equal((await flows.getRun({ ...run("run-2"), awaitEnd: seconds(10) })).run.status, RunStatus.CANCELLED);
  const { runs } = await flows.listRuns({ namespace, filter: "status = SUCCEEDED" });
  assert.equal(runs.length, 2);
  await flows.removeRun(run("run-2"));
  await errorOf(Code.NotFound, flows.getRun(run("run-2")));

  await flows.putTemplate({ template: { ...template, type: "unused" } });
  await flows.deleteTemplate({ namespace, type: "unused" });
}

// openWait waits until the wait of a run is open, and returns it.
async function openWait(runId) {
  for (;;) {
    const { waits } = await flows.listOpenWaits({ namespace });
    const wait = waits.find((one) => one.runId === runId);
    if (wait) return wait;
  }
}

async function tryEvents() {
  const { events } = await jobEvents.listJobEvents({ namespace, filter: 'job_id = "mail-1"' });
  assert.deepEqual(events.map((event) => event.to).filter((to) => ["failed", "succeeded"].includes(to)).sort(), ["failed", "succeeded"]);

  // A watch first returns a cursor, and then new events.
  const seen = [];
  const enough = new AbortController(); // leaving the loop does not end the stream
  for await (const { event } of jobEvents.watchJobEvents({ namespace, filter: 'job_id = "add-2"' }, { signal: enough.signal })) {
    if (!event) await jobs.enqueue({ ...job("add-2"), name: "add" }).then(() => lease("add")).then((held) => finish(held, 0));
    else seen.push(event.to);
    if (seen.at(-1) === "succeeded") break;
  }
  enough.abort();
  assert.deepEqual(seen, ["available", "running", "succeeded"]);
  await jobs.removeJob(job("add-2"));

  await jobs.pauseJobs({ namespace, name: "add", reason: "maintenance" });
  const { paused } = await jobs.listPausedJobs({ namespace });
  assert.deepEqual(paused.map((one) => [one.name, one.reason]), [["add", "maintenance"]]);
  assert.ok((await jobs.resumeJobs({ namespace, name: "add" })).wasPaused);
  await errorOf(Code.NotFound, jobs.getJob(job("add-2")));
}

async function tryChanges() {
  const types = [];
  let last = "";
  for await (const { changes: some, cursor } of changes.watchChanges({ namespace, processId: "add-2", fromTime: timestampFromMs(0), stop: true })) {
    types.push(...some.map((change) => change.type));
    last = cursor;
  }
  assert.deepEqual([types[0], types.at(-1)], ["enqueued", "removed"]);
  for await (const { changes: some } of changes.watchChanges({ namespace, cursor: last, stop: true })) assert.equal(some.length, 0);
}

async function trySinks() {
  const webhook = { url: "http://127.0.0.1:9/unused", secrets: ["whsec_c2VjcmV0LWtleS1mb3ItdGhlLWV4YW1wbGU="] };
  const named = { namespace, sinkId: "audit" };
  const put = (sink) => changes.putSink({ sink: { ...named, kinds: [ChangeKind.JOB], target: { case: "webhook", value: webhook }, ...sink } });
  assert.equal((await put({})).sink.target.value.signed, true);
  await errorOf(Code.InvalidArgument, put({ filter: "change.typo" }));
  assert.equal((await changes.pauseSink(named)).sink.status.state, SinkState.PAUSED);
  assert.match((await changes.explainSink(named)).unblock, /progressor sink resume /);
  assert.deepEqual((await changes.listSinks({ namespace })).sinks.map((one) => one.sinkId), ["audit"]);
  const { sink } = await changes.rewindSink({ ...named, toTime: timestampFromMs(0) });
  assert.ok(sink.status.lagChanges > 0n);
  assert.deepEqual((await changes.getSink(named)).sink.target.value.secrets, []);
  assert.deepEqual((await changes.retrySinkDeadLetters({ ...named, all: true })).deadLetters, []);
  await errorOf(Code.InvalidArgument, changes.retrySinkDeadLetters(named));
  await changes.rewindSink({ ...named, toTime: timestampFromMs(Date.now() + 60_000) });
  assert.equal((await changes.resumeSink(named)).sink.status.state, SinkState.ACTIVE);
  await changes.deleteSink(named);
  await errorOf(Code.NotFound, changes.getSink(named));
}

async function tryWorkers() {
  const list = await workers.listWorkers({ namespace });
  assert.equal(list.workers[0].workerId, workerId);
  const { worker, leases } = await workers.getWorker({ namespace, workerId });
  assert.equal(worker.workerId, workerId);
  assert.deepEqual(leases, []); // all leases were completed
  await workers.stopWorker({ namespace, workerId, directive: WorkerDirective.QUIET, reason: "that was all" });
  assert.equal((await workers.heartbeat({ workerId })).worker, WorkerDirective.QUIET);
}

await tryNamespaces();
await tryJobs();
await tryConstraints();
await tryCrons();
await tryFlows();
await tryEvents();
await tryChanges();
await trySinks();
await tryWorkers();
checkAllCalled();
