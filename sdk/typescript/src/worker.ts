import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import type { CompleteRequest, Failure as FailedAttempt, Json, JsonObject, Lease, PollRequest, Progress, WorkerDirective } from "./api.js";
import { interval, maxTimer, type Client } from "./client.js";
import { AttemptTimeout, JobCancelled, messageOf, ProgressorError, Rejection, Release, Failure, WorkerStopped } from "./errors.js";
import { sizeOf } from "./journal.js";
import { decode, encode } from "./json.js";
import { ActiveLease, applyDirective, lose, now, progressEvery } from "./lease.js";
import {
  duration, endedBy, harmless, maxMessage, responseOf, runTask, wellFormed, type Checkpoint, type Task, type TaskContext,
  type TaskHandlers,
} from "./processor.js";

/** The job that a handler runs. */
export interface Job {
  readonly namespace: string;
  readonly id: string;
  readonly name: string;
  readonly args: Json;
  /** The number of the attempt, counted from 1. */
  readonly attempt: number;
  /** Grows with every attempt, so that other systems can reject late ones. */
  readonly fencingToken: number;
  /** When this attempt times out, by the clock of this machine. */
  readonly deadline: Date;
  /** Aborted when the attempt is over. Its reason is JobCancelled, LeaseLost, WorkerStopped or AttemptTimeout. */
  readonly signal: AbortSignal;
  /** The progress that the last attempt reported. */
  readonly lastProgress: Progress | undefined;
  /** The failures of earlier attempts, oldest first. */
  readonly failures: FailedAttempt[];
  /** The lease, with everything that the engine sent. */
  readonly lease: Lease;
  /** Sets the progress, which the next heartbeat sends. percent is 0 to 100, and details are for the next attempt. */
  progress(percent: number, summary?: string, details?: JsonObject): void;
}

/** Runs a job. The return value is the result of the job. */
export type JobHandler<Args = any> = (args: Args, job: Job) => unknown;

/** How an attempt ended. "lost" means that the engine did not accept an answer. */
export type Outcome = "done" | "failed" | "cancelled" | "released" | "lost";

export interface Attempt {
  lease: Lease;
  outcome: Outcome;
  /** Milliseconds. */
  duration: number;
  /** What the handler threw, if anything. */
  error?: unknown;
}

export interface WorkerOptions {
  /** The default consists of the host, the process ID and a random part. */
  id?: string;
  /** How many tasks run at a time. The default is 10. */
  concurrency?: number;
  /** How long running handlers may continue after a stop, in milliseconds. The default is 30,000. */
  stopGrace?: number;
  /** The time without a heartbeat after which tasks go to another worker, in milliseconds. The default is that of the namespace. */
  leaseDuration?: number;
  /** The signals that stop the worker. The default is SIGTERM and SIGINT; [] for none. */
  signals?: NodeJS.Signals[];
  /** Receives messages for the operator. The default is console.error. */
  log?: (message: string, fields: object) => void;
  /** Called after every attempt. */
  ended?: (attempt: Attempt) => void;
}

const maxPolled = 256; // leases per poll
const pollWait = 20_000;
const pollMargin = 2000; // ms for the last poll to end when the worker stops
const requestTimeout = 30_000;
const quietPause = 1000; // ms between two polls of a worker that takes no new tasks
const stopMargin = 2000; // ms for handlers to return after their signal was aborted
const beatRetry = 250;
const maxSummary = 4096;
const maxProgress = 64 << 10; // bytes of JSON
const maxBeat = 8 << 20; // bytes of progress in one heartbeat
const outageRetry = { initial: 100, max: 5000 }; // the waits while the engine cannot be reached

/**
 * A worker leases tasks of namespaces whose processor is `pull`, runs them and sends their answers
 * and heartbeats. All its connections are outgoing.
 */
export class Worker {
  readonly id: string;
  private readonly concurrency: number;
  private readonly log: (message: string, fields: object) => void;
  private readonly ended: (attempt: Attempt) => void;
  private readonly handlers = new Map<string, JobHandler>();
  private others: JobHandler | undefined;
  private rest: TaskHandlers | undefined;
  private readonly stopping = new AbortController();
  private readonly held = new Map<string, ActiveLease>(); // by lease token
  private readonly running = new Set<Promise<void>>();
  private freed = () => {}; // wakes the poll loop
  private quiet = false;
  private beating = false;
  private beatFailed: number | undefined;
  private beatTimer: NodeJS.Timeout | undefined;

  constructor(private readonly client: Client, private readonly namespaces: string[], private readonly options: WorkerOptions = {}) {
    this.id = options.id ?? `${hostname().slice(0, 100)}-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.concurrency = Math.min(Math.max(options.concurrency ?? 10, 1), 10_000);
    this.log = harmless(options.log ?? ((message, fields) => console.error(message, fields)));
    this.ended = harmless((attempt) => options.ended?.(attempt));
  }

  /** Registers the handler for jobs with the given name. */
  job<Args = any>(name: string, handler: JobHandler<Args>): this {
    this.handlers.set(name, handler);
    return this;
  }

  /** Registers the handler for all other jobs. */
  jobs(handler: JobHandler): this {
    this.others = handler;
    return this;
  }

  /** Registers the functions for the tasks of processes that are not jobs. */
  processes(handlers: TaskHandlers): this {
    this.rest = handlers;
    return this;
  }

  /** Stops taking new tasks. run() returns when the running tasks have ended or been released. */
  stop(): void {
    this.stopping.abort(new WorkerStopped("the worker stops"));
    this.freed();
  }

  /**
   * Runs tasks until the worker is stopped by stop(), by a signal or by an operator. A worker can run
   * only once. Rejects if the engine refuses the first poll, for example because a namespace is
   * missing.
   */
  async run(): Promise<void> {
    if (this.handlers.size === 0 && !this.others && !this.rest) throw new Error("the worker has no handler");
    const stop = () => this.stop();
    const signals = this.options.signals ?? ["SIGTERM", "SIGINT"];
    for (const signal of signals) process.once(signal, stop);
    try {
      await this.poll();
    } finally {
      this.stop();
      await this.drain();
      clearTimeout(this.beatTimer);
      for (const signal of signals) process.removeListener(signal, stop);
    }
  }

  private async poll(): Promise<void> {
    const { signal } = this.stopping;
    let accepted = false;
    for (let failures = 0; !signal.aborted; ) {
      const free = this.concurrency - this.held.size;
      if (free <= 0) {
        await new Promise<void>((resolve) => (this.freed = resolve));
        continue;
      }
      try {
        const body = JSON.stringify(encode("PollRequest", this.pollRequest(Math.min(free, maxPolled))));
        const { leases = [], worker } = await this.pollOnce(body);
        if (signal.aborted) {
          if (leases.length > 0) await this.release(leases.map((lease: Lease) => lease.leaseToken!));
          return;
        }
        [accepted, failures] = [true, 0];
        for (const lease of leases) this.start(lease);
        this.obey(worker);
        if (this.quiet) await sleep(quietPause, undefined, { signal }).catch(() => {});
      } catch (error) {
        if (signal.aborted) return;
        if (!accepted && isPermanent(error)) throw error;
        if (failures++ === 0) this.log("engine unreachable; retrying", { workerId: this.id, error: (error as Error).message });
        await sleep(interval(outageRetry, failures), undefined, { signal }).catch(() => {});
      }
    }
  }

  /**
   * Sends a poll. If the worker stops, the engine ends the poll. The response may contain leases,
   * so it is awaited.
   */
  private async pollOnce(body: string): Promise<any> {
    const { signal } = this.stopping;
    const ending = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const end = () => {
      timer = setTimeout(() => ending.abort(signal.reason), pollMargin);
      const options = { timeout: pollMargin, signal: ending.signal };
      void this.client.worker.release({ workerId: this.id, endPolls: true }, options).catch(() => {}); // the timer ends the poll
    };
    signal.addEventListener("abort", end);
    return this.client.post("WorkerService/Poll", body, now() + pollWait + requestTimeout, ending.signal).finally(() => {
      signal.removeEventListener("abort", end);
      clearTimeout(timer);
      ending.abort();
    });
  }

  private pollRequest(maxLeases: number): PollRequest {
    const { leaseDuration } = this.options;
    return {
      namespaces: this.namespaces, workerId: this.id, maxLeases, wait: duration(pollWait),
      jobNames: this.others || this.rest ? [] : [...this.handlers.keys()], jobsOnly: !this.rest,
      leaseDuration: leaseDuration === undefined ? undefined : duration(leaseDuration),
    };
  }

  /** Applies the engine's directive to the whole worker. */
  private obey(directive: WorkerDirective | undefined): void {
    this.quiet = directive === "WORKER_DIRECTIVE_QUIET";
    if (directive === "WORKER_DIRECTIVE_STOP") this.stop();
  }

  /** Runs the task of a lease. The lease is decoded here, so that an undecodable lease does not affect others. */
  private start(json: Lease): void {
    let lease = json;
    let undecodable: Error | undefined;
    try {
      lease = decode("Lease", json, this.client.options.payloads);
    } catch (error) {
      const refusable = ["TASK_TYPE_CALL", "TASK_TYPE_REPAIR"].includes(json.request?.type ?? "");
      undecodable = new (refusable ? Rejection : Failure)("undecodable", `decode the request: ${messageOf(error)}`);
    }
    const held = new ActiveLease(lease, undecodable);
    this.held.set(lease.leaseToken!, held);
    const run = this.attempt(held).finally(() => this.running.delete(run));
    this.running.add(run);
    this.schedule();
  }

  /** Runs the task of a lease and removes the lease at the end. Does not throw. */
  private async attempt(held: ActiveLease): Promise<void> {
    const attempt: Attempt = { lease: held.lease, outcome: "lost", duration: 0 };
    const expires = (error: unknown) => this.log("attempt without an answer: its lease will expire", { ...held.name, error });
    await this.execute(held, attempt).catch(expires);
    this.held.delete(held.lease.leaseToken!);
    this.freed();
    attempt.duration = now() - held.began;
    this.ended(attempt);
  }

  /** Runs the handler of a lease, sends its answer, and sets the outcome of the attempt. */
  private async execute(held: ActiveLease, attempt: Attempt): Promise<void> {
    const { signal } = held.ending;
    const left = held.localTime(held.lease.request!.deadline!) - now();
    const expire = () => held.ending.abort(new AttemptTimeout("the attempt exceeded its timeout"));
    const timer = left <= maxTimer ? setTimeout(expire, left) : undefined;
    let answer: CompleteRequest | undefined;
    let outcome: Outcome = "released";
    let delay = 0;
    try {
      answer = await this.handle(held, signal);
      outcome = answer.response?.failure ? "failed" : "done";
    } catch (thrown) {
      attempt.error = thrown;
      const reason = endedBy(thrown, signal);
      if (reason instanceof JobCancelled) {
        answer = { cancelled: { message: wellFormed(reason.message, maxSummary) } };
        outcome = "cancelled";
      } else if (thrown instanceof Release) {
        delay = thrown.delay;
      } else if (!(reason instanceof WorkerStopped)) {
        answer = { response: responseOf(reason ?? thrown) };
        outcome = answer.response!.failure ? "failed" : "done";
      }
    }
    clearTimeout(timer);
    held.answering = true;
    if (held.progress && !held.lost && outcome !== "done") await this.sendProgress(held);
    if (held.uncertain) await this.release([held.lease.leaseToken!]); // an answer may not match what is stored
    if (held.lost) outcome = "lost";
    else if (!this.held.has(held.lease.leaseToken!)) outcome = "released"; // drain has released it
    else if (answer) outcome = await this.complete(held, answer, outcome);
    else await this.release([held.lease.leaseToken!], delay);
    attempt.outcome = outcome;
  }

  /** Calls the handler of a lease. */
  private async handle(held: ActiveLease, signal: AbortSignal): Promise<CompleteRequest> {
    const { job, request } = held.lease;
    if (held.undecodable) throw held.undecodable;
    const handler = job && (this.handlers.get(job.name!) ?? this.others);
    if (handler) return { jobResult: { result: (await handler(job.args, jobOf(held, () => this.schedule()))) as Json } };
    if (this.rest) {
      const log = (error: unknown) => this.log("handler failed", { ...held.name, error });
      const context: TaskContext = { signal, deadline: held.localTime(request!.deadline!) };
      if (held.lease.mayCheckpoint) context.checkpoint = (stored) => this.checkpoint(held, stored);
      return { response: await runTask(this.rest, request as Task, context, log) };
    }
    throw new Failure("not_handled", `this worker handles only jobs named ${[...this.handlers.keys()].join(", ")}`);
  }

  /**
   * Stores events, state and metadata of an attempt. Returns whether the attempt should end soon. If
   * the engine does not answer, the attempt is over, because the checkpoint may have been
   * stored. Other errors mean that it was not stored.
   */
  private async checkpoint(held: ActiveLease, stored: Checkpoint): Promise<boolean> {
    const { leaseToken, request } = held.lease;
    const { signal } = held.ending;
    const options = { timeout: requestTimeout, maxAttempts: Infinity, signal };
    const failure = (message: string) => new Failure("bad_response", message, { nonRetryable: true });
    const checkpoint = { leaseToken, lastEventId: held.lastEventId ?? request!.process!.lastEventId ?? 0, ...stored };
    try {
      JSON.stringify(encode("CheckpointRequest", checkpoint));
    } catch (error) {
      throw failure(`the checkpoint is not JSON: ${messageOf(error)}`);
    }
    try {
      const response = await this.client.worker.checkpoint(checkpoint, options);
      held.lastEventId = response.lastEventId!;
      return Boolean(response.yield) || this.stopping.signal.aborted;
    } catch (error) {
      if (isRefused(error)) throw failure(`the engine refused the checkpoint: ${error.message}`);
      if (error instanceof ProgressorError && error.code === "unimplemented") throw error; // from an older engine
      held.uncertain = !isLost(error);
      lose(held, `a checkpoint is not stored: ${messageOf(error)}`);
      throw signal.reason;
    }
  }

  /** Sends an answer until the engine accepts or refuses it, or the lease has expired. */
  private async complete(held: ActiveLease, answer: CompleteRequest, outcome: Outcome): Promise<Outcome> {
    const leaseToken = held.lease.leaseToken!;
    const encoded = (value: CompleteRequest) => JSON.stringify(encode("CompleteRequest", { ...value, leaseToken, lastEventId: held.lastEventId }));
    let replaced = false;
    // Fail the attempt permanently. Otherwise, the lease would expire, and the next worker would
    // run into the same error.
    const replacement = (why: string) => {
      [replaced, outcome] = [true, "failed"];
      return encoded({ response: { failure: { reason: "bad_response", message: wellFormed(why, maxMessage), nonRetryable: true } } });
    };
    let body: string;
    try {
      body = encoded(answer); // once: the program may change the value afterwards
    } catch (error) {
      body = replacement(`the answer is not JSON: ${messageOf(error)}`);
    }
    for (let failures = 0; ; ) {
      try {
        await this.client.post("WorkerService/Complete", body, now() + requestTimeout);
        return outcome;
      } catch (error) {
        if (isLost(error)) return "lost";
        if (isRefused(error)) {
          if (replaced) {
            this.log("answer dropped: the engine refused it twice", { ...held.name, error: error.message });
            return "lost";
          }
          body = replacement(`the engine refused the answer: ${error.message}`);
          continue;
        }
        if (!this.held.has(leaseToken) || now() > held.expires) {
          this.log("answer dropped: it did not reach the engine before the lease expired", held.name);
          return "lost";
        }
        if (failures++ === 0) this.log("sending an answer failed; retrying until its lease expires", { ...held.name, error });
        await sleep(interval(outageRetry, failures));
      }
    }
  }

  /** Sends the progress of an attempt that has failed or is released, so that the next attempt gets it. */
  private async sendProgress(held: ActiveLease): Promise<void> {
    const beats = [{ leaseToken: held.lease.leaseToken, progress: held.progress }];
    held.progress = undefined;
    await this.client.worker.heartbeat({ workerId: this.id, beats }, { timeout: 5000, maxAttempts: 1 }).catch((error: Error) => {
      this.log("sending the last progress failed", { ...held.name, error: error.message });
    });
  }

  private async release(leaseTokens: string[], delay = 0): Promise<void> {
    const request = { workerId: this.id, leaseTokens, delay: delay > 0 ? duration(delay) : undefined };
    await this.client.worker.release(request, { timeout: requestTimeout }).catch((error: Error) => {
      this.log("releasing tasks failed: their leases will expire", { leases: leaseTokens.length, error: error.message });
    });
  }

  /** Sets the timer of the next heartbeat. */
  private schedule(): void {
    clearTimeout(this.beatTimer);
    if (this.beating) return;
    let due = Infinity;
    for (const held of this.held.values()) {
      if (held.lost) continue;
      due = Math.min(due, held.lastBeat + held.interval);
      if (held.progress) due = Math.min(due, held.progressSent + progressEvery);
    }
    if (this.beatFailed !== undefined) due = Math.max(due, this.beatFailed + beatRetry);
    if (due < Infinity) this.beatTimer = setTimeout(() => void this.beat(), Math.min(Math.max(due - now(), 0), maxTimer));
  }

  /** Sends one heartbeat for all leases, and applies the engine's directives. */
  private async beat(): Promise<void> {
    this.beating = true;
    const all = [...this.held.values()].filter((held) => !held.lost);
    try {
      const time = now();
      let room = maxBeat;
      const beats = all.map((held) => {
        const send = held.progress && time - held.progressSent >= progressEvery && (room -= sizeOf(held.progress)) > 0;
        return { leaseToken: held.lease.leaseToken, progress: send ? held.progress : undefined };
      });
      // Use the shortest interval, because the leases that have it expire first.
      const timeout = Math.min(requestTimeout, ...all.map((held) => Math.max(held.interval, 1000)));
      const { directives = [], worker } = await this.client.worker.heartbeat({ workerId: this.id, beats }, { timeout, maxAttempts: 1 });
      all.forEach((held, n) => applyDirective(held, directives[n] ?? {}, beats[n]!.progress));
      this.obey(worker);
      this.beatFailed = undefined;
    } catch (error) {
      if (this.beatFailed === undefined) this.log("heartbeat failed; retrying", { workerId: this.id, error: messageOf(error) });
      this.beatFailed = now();
      // One invalid progress report makes the engine reject the whole heartbeat.
      if (isRefused(error)) all.forEach((held) => (held.progress = undefined));
      for (const held of all) {
        if (!held.answering && now() > held.expires) lose(held, "the heartbeats did not reach the engine");
      }
    } finally {
      this.beating = false;
      this.schedule();
    }
  }

  /** Waits for the handlers, until the grace period ends. Then it aborts their signals and releases the rest. */
  private async drain(): Promise<void> {
    const ended = async (limit: number) => {
      const timer = new AbortController();
      const all = Promise.allSettled(this.running).then(() => true);
      const result = await Promise.race([all, sleep(Math.min(limit, maxTimer), false, { signal: timer.signal })]);
      timer.abort();
      return result;
    };
    if (await ended(this.options.stopGrace ?? 30_000)) return;
    for (const held of this.held.values()) held.ending.abort(this.stopping.signal.reason);
    if (await ended(stopMargin)) return;
    const rest = [...this.held.values()];
    this.held.clear();
    for (const held of rest) this.log("handler did not stop; releasing its task anyway", held.name);
    await this.release(rest.map((held) => held.lease.leaseToken!));
  }
}

function jobOf(held: ActiveLease, changed: () => void): Job {
  const { job, request, namespace } = held.lease;
  return {
    namespace: namespace!, id: job!.jobId!, name: job!.name!, args: job!.args, attempt: request!.attempt!,
    fencingToken: request!.fencingToken!, deadline: new Date(Date.now() + held.localTime(request!.deadline!) - now()),
    signal: held.ending.signal, lastProgress: job!.progress, failures: job!.failures ?? [], lease: held.lease,
    progress(percent, summary = "", details) {
      const progress = { percent: Math.min(Math.max(percent || 0, 0), 100), summary: wellFormed(summary, maxSummary) };
      const json = JSON.stringify({ ...progress, details: details || undefined });
      if (Buffer.byteLength(json) > maxProgress) throw new RangeError(`progress: must have at most ${maxProgress} bytes of JSON`);
      held.progress = JSON.parse(json); // a copy: the program may change details afterwards
      changed();
    },
  };
}

/** Reports whether every poll would fail with an error: the worker is misconfigured. */
function isPermanent(error: unknown): boolean {
  const codes = ["invalid_argument", "not_found", "unauthenticated", "permission_denied", "unimplemented"];
  return !(error instanceof ProgressorError) || codes.includes(error.code);
}

const isLost = (error: unknown) => error instanceof ProgressorError && error.reason === "REASON_LEASE_LOST";

/** Reports whether the engine would refuse a request each time it is sent. */
function isRefused(error: unknown): error is ProgressorError {
  if (!(error instanceof ProgressorError)) return false;
  return error.code === "invalid_argument" || (error.code === "resource_exhausted" && error.reason !== "REASON_OVERLOADED");
}
