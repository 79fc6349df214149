import type { ChildEnd, Payload, Result } from "./api.js";
import { badArgs, callOf, decoded, outcomeOf } from "./args.js";
import { maxTimer } from "./client.js";
import { maxCommands, Run, type Ctx, type Ended, type StepContext, type StepRun } from "./durable.js";
import { AttemptTimeout, Failure, messageOf, ProgressorError, Rejection } from "./errors.js";
import { bounded, causeOf, copyOf, isFinal, Journal, maxNewBytes, maxValueBytes, recorded, sizeOf, type Entry } from "./journal.js";
import { endedBy, failureOf, type Task, type TaskContext, type TaskHandlers } from "./processor.js";
import { isByStep, nearest, recordOf, repairOf, responseOf, toForget, type StepRepair } from "./repair.js";
import { cancelOf, childOf } from "./sources.js";

const maxSteps = 100; // maximum number of steps that run in one task
const maxPending = 99; // maximum number of timers for after() and for retries
const maxStepBytes = 4 << 20; // maximum size of the values of the steps of one task
const maxCalls = 500; // maximum number of calls that the function has not taken
const stepMargin = 1000; // ms before the end of an attempt at which the signals of steps are aborted
const maxRunOn = 1000; // ms for which a task with checkpoints runs steps

/** A function that returns a Restart starts again, with this input and a new history. */
export class Restart {
  constructor(readonly input?: unknown) {}
}

/** The current version of each change whose version a function reads with `version()`. */
export type Versions = { [change: string]: number };

/** Returns task handlers that run a durable function. Pass them to `processor` or to `Worker.processes`. */
export function func<In = any, Out = unknown>(
  name: string, f: (ctx: Ctx, input: In) => Promise<Out | Restart>, options: { versions?: Versions } = {},
): TaskHandlers {
  const handle = async (task: Task, context: TaskContext) => {
    const attempt = new FunctionTask(name, f as (ctx: Ctx, input: unknown) => Promise<unknown>, options.versions ?? {}, task, context);
    return attempt.process().finally(() => (attempt.run.over = true));
  };
  return { init: handle, call: handle, timeout: handle, repair: handle, cancel: handle };
}

const broken = (message: string) => new Failure("durable_journal", message, { nonRetryable: true });

/** An attempt at a task of a process that runs a function. */
class FunctionTask {
  readonly run: Run;
  private readonly result: Result = {};
  private readonly began = performance.now();
  private returned: { value?: unknown; error?: unknown } | undefined; // what the function returned or threw
  private yields = false; // the engine has asked to end the task soon
  private readonly aborted: Promise<never>; // rejects when the attempt is over

  constructor(
    private readonly name: string, private readonly f: (ctx: Ctx, input: unknown) => Promise<unknown>,
    private readonly versions: Versions, private readonly task: Task, private readonly context: TaskContext,
  ) {
    const { process, taskId, type } = task;
    this.aborted = new Promise((_, reject) => context.signal.addEventListener("abort", () => reject(context.signal.reason)));
    this.aborted.catch(() => {}); // avoids an unhandled rejection when no body is running
    const journal = new Journal(process.firstEventId || 1, process.history?.[0]?.taskId ?? taskId!);
    this.run = new Run(journal, process, type === "TASK_TYPE_CANCEL");
    this.run.addBranch("", async (ctx) => {
      try {
        this.returned = { value: await f(ctx, copyOf(this.journal.start.v)) };
      } catch (error) {
        this.returned = { error: this.run.caught(error) ?? new Error(String(error)) };
      }
    });
    try {
      journal.read(process);
    } catch (error) {
      if (type === "TASK_TYPE_TIMEOUT" || type === "TASK_TYPE_CANCEL") throw broken(messageOf(error));
      throw new Rejection("durable_journal", messageOf(error));
    }
  }

  private get journal(): Journal {
    return this.run.journal;
  }

  async process(): Promise<Result> {
    const { type, child } = this.task;
    const isNew = this.journal.entries.length === 0;
    if (type === "TASK_TYPE_INIT" || (type === "TASK_TYPE_REPAIR" && isNew)) {
      if (type === "TASK_TYPE_REPAIR" && isByStep(decoded(this.task.args))) {
        throw badArgs("durable_repair: the function has not started, so it has no steps: repair it with its args");
      }
      this.addStart(this.input());
      return this.advanceAndFinish();
    }
    if (isNew) throw broken("the function was not started");
    if (type === "TASK_TYPE_TIMEOUT") return this.timeout();
    if (type === "TASK_TYPE_CANCEL") return this.cancel();
    if (type === "TASK_TYPE_REPAIR") return this.repair();
    return child ? this.childEnded(child) : this.called();
  }

  /** Returns the args of a start. */
  private input(): any {
    const args = decoded(this.task.args);
    if (sizeOf(args) <= maxValueBytes) return args;
    throw badArgs(`the args have ${sizeOf(args)} bytes (at most ${maxValueBytes} are allowed)`);
  }

  private addStart(input: any): void {
    const versions = Object.keys(this.versions).length > 0 ? this.versions : undefined;
    this.journal.add({ k: "start", n: this.name, v: input, versions });
    if (versions) this.run.mergeMetadata({ versions });
  }

  /** Runs the function until all of its branches wait. */
  private async advance(): Promise<void> {
    await this.run.advance();
    this.context.signal.throwIfAborted();
  }

  private async advanceAndFinish(response?: Payload): Promise<Result> {
    return (await this.advanceOn(response)) ?? this.finish(response);
  }

  /**
   * Runs the function after the task has added entries. If the function then fails, advanceOn
   * returns a result that stores the entries nevertheless. The function fails again in the next
   * task. That task changes nothing, so a repair can continue the function.
   */
  private async advanceOn(response?: Payload): Promise<Result | undefined> {
    const effects = structuredClone(this.run.effects);
    const { unsaved } = this.journal;
    const due = [...this.run.due].filter((step) => !this.journal.has("step", step)); // their timers have fired
    try {
      await this.advance();
      return undefined;
    } catch (error) {
      if (this.context.signal.aborted) throw error;
      this.run.effects = effects;
      for (const step of due) this.run.setTimer(`retry:${step}`, 0);
      this.continueSoon();
      return this.store(response, unsaved);
    }
  }

  /** Accepts a call. It does not run steps, because a CALL that fails is not retried. */
  private async called(): Promise<Result> {
    const [name, args] = callOf(decoded(this.task.args));
    if (name && this.journal.ended) throw new Rejection("not_open", `call "${name}": the function has ended`);
    await this.advance();
    if (!name) return this.finish();
    const queue = this.run.queues.get(name);
    if (!queue || this.returned) {
      const open = [...this.run.queues.keys()].sort().join(", ");
      throw new Rejection("not_open", `the function does not take the call "${name}" now (it takes: ${open})`);
    }
    const waiting = this.untakenCalls();
    if (waiting.length >= maxCalls || waiting.reduce((sum, { v }) => sum + sizeOf(v), 0) >= maxNewBytes) {
      throw new Rejection("too_many_calls", "the function has not taken earlier calls yet: try again later");
    }
    let response: Payload | undefined;
    if (queue.accept) {
      const { value, error } = await this.body(`the accept of call ${name}`, name, () => queue.accept!(copyOf(args)));
      if (error) throw error instanceof Rejection ? bounded(error) : new Rejection("error", messageOf(error));
      try {
        response = copyOf(value) ?? null;
      } catch (bad) {
        throw new Rejection("bad_value", `the response of call ${name} ${messageOf(bad)}`);
      }
    }
    this.journal.add({ k: "call", n: name, v: args });
    return this.advanceAndFinish(response);
  }

  /** Returns the calls that the function has not taken, in order. */
  private untakenCalls(): Entry[] {
    const firstUntaken = (name: string) => this.journal.call(name, this.run.queues.get(name)?.taken ?? 0) ?? Infinity;
    return this.journal.entries.filter(({ k, n }, at) => k === "call" && at >= firstUntaken(n));
  }

  private async childEnded(end: ChildEnd): Promise<Result> {
    const name = String(decoded(this.task.args));
    const child = this.journal.find("child", name);
    const { namespace, processId } = child ? childOf(child) : {};
    if (!child || namespace !== end.namespace || processId !== end.processId || this.journal.has("ended", name)) {
      throw new Rejection("not_handled", `the function does not wait for the process ${end.namespace}/${end.processId}`);
    }
    this.journal.add({ k: "ended", n: name, ...outcomeOf(end) });
    return this.advanceAndFinish();
  }

  /** Records that a timer fired, and runs steps. */
  private async timeout(): Promise<Result> {
    const { run, journal } = this;
    const { timerName = "" } = this.task;
    if (timerName.startsWith("retry:")) run.due.add(timerName.slice("retry:".length));
    else if (journal.has("timer", timerName) && !journal.has("fired", timerName)) journal.add({ k: "fired", n: timerName });
    await this.advance();
    while (!this.returned && !journal.ended) {
      const steps = this.runnable();
      if (steps.length === 0 && !this.isFlushing) break;
      // What a step depends on must be stored before the step has an effect.
      if (journal.unsaved.length > 0 && !(await this.checkpoint())) break;
      await this.runSteps(steps);
      if (run.failure && journal.unsaved.length === 0) throw run.failure;
      if (run.failure) break; // the result stores the results of the other steps
      const failed = await this.advanceOn();
      if (failed) return failed;
    }
    return this.finish();
  }

  /** Undoes the completed steps, in one task. */
  private async cancel(): Promise<Result> {
    await this.advance();
    this.run.effects.timers.clear(); // the process ends
    this.run.effects.unset.clear();
    for (const [i, name] of this.pendingUndos().entries()) {
      if (i > 0) await this.checkpoint();
      await this.undo(name);
    }
    this.cancelChildren("the parent was cancelled");
    return this.store();
  }

  /** Continues a function, or starts it again if it has ended with an error. */
  private async repair(): Promise<Result> {
    const args = decoded(this.task.args);
    if (isByStep(args)) return this.repairSteps(repairOf(args.durable_repair));
    if (this.journal.ended) {
      const input = args === undefined ? this.journal.start.v : this.input();
      await this.advance(); // to know which calls the function has taken
      return this.restart(input);
    }
    if (args !== undefined) throw badArgs("the function has not ended: a repair without args continues it, and one by step changes its steps");
    this.continueSoon();
    return this.result;
  }

  /** Changes the journal as an operator has asked, if the function can then continue. It continues in the next task. */
  private async repairSteps(repair: StepRepair): Promise<Result> {
    const { run, journal } = this;
    const old = [...journal.entries];
    const forget = toForget(journal, repair, journal.repaired ? await this.replay() : run);
    const isRunning = ({ k, n }: Entry) => k === "child" && !journal.has("ended", n) && !journal.has("cancel", n);
    const running = forget.map((at) => old[at]!).filter(isRunning);
    if (running.length > maxCommands) {
      throw badArgs(`durable_repair: must cancel at most ${maxCommands} children (got ${running.length}): rewind to a later entry`);
    }
    const timers = () => [...journal.pendingTimers, ...journal.pendingRetries];
    const before = timers();
    const effects = structuredClone(run.effects); // those of the function follow in the next task
    const made: Entry[] = [{ k: "repair", n: journal.start.n, v: recordOf(repair, forget) }];
    journal.add(made[0]!);
    made.push(...(await this.endSteps(repair, old)));
    run.effects = effects;
    const after = timers();
    for (const name of before) if (!after.includes(name)) run.unsetTimer(name);
    for (const child of running) effects.commands.push(cancelOf(run.process, childOf(child), "an operator has repaired the parent"));
    this.continueSoon();
    return this.store(responseOf(old, forget) as any, made);
  }

  /** Runs the function with the stored journal, to see the order of its operations. If it fails, the order of later ones is unknown. */
  private async replay(): Promise<Run> {
    const { run } = new FunctionTask(this.name, this.f, this.versions, this.task, this.context);
    await run.advance().catch(() => {});
    run.over = true;
    this.context.signal.throwIfAborted();
    return run;
  }

  /** Adds the entries of the steps that a repair skips or sets, and returns them. Runs the function to find steps without an entry. */
  private async endSteps({ skip, set }: StepRepair, old: Entry[]): Promise<Entry[]> {
    const { run, journal } = this;
    const made: Entry[] = [];
    const end = (n: string, u?: true) => {
      const entry: Entry = set.has(n) ? { k: "step", n, v: set.get(n), u } : { k: "step", n, skipped: true };
      journal.add(entry);
      made.push(entry);
    };
    const waiting = () => run.branches.flatMap(({ wait }) => wait?.step ?? []).filter(({ name }) => !journal.has("step", name));
    for (let found: StepRun[] | undefined; found === undefined || found.length > 0; ) {
      await this.rehearse();
      found = waiting().filter(({ name }) => set.has(name) || skip.includes(name));
      for (const { name, undo } of found) end(name, undo || undefined);
    }
    const added = made.length;
    const steps = old.filter(({ k }) => k === "step" || k === "try");
    for (const name of [...skip, ...set.keys()]) {
      if (journal.has("step", name)) continue;
      const entry = steps.find(({ n }) => n === name);
      const known = () => [...steps.map(({ n }) => n), ...waiting().map((step) => step.name)];
      const field = set.has(name) ? "set" : "skip";
      if (!entry) throw badArgs(`durable_repair.${field}: the function has not reached a step ${name}: ${nearest(name, known())}`);
      end(name, entry.u ? true : undefined);
    }
    if (made.length > added) await this.rehearse();
    return made;
  }

  /** Runs the function, to see that it does not fail after a repair. */
  private async rehearse(): Promise<void> {
    await this.advance().catch((error) => {
      if (this.context.signal.aborted) throw error;
      throw new Rejection(failureOf(error).reason!, `the function would fail after this repair: ${messageOf(error)}`);
    });
  }

  /** Begins a new history. The function starts in the next task. */
  private restart(input: any, response?: Payload): Result {
    const { run, journal: old } = this;
    const calls = this.untakenCalls();
    for (const name of [...old.pendingTimers, ...old.pendingRetries]) run.unsetTimer(name);
    run.effects.timers.clear();
    run.journal = new Journal(old.first, old.origin);
    this.addStart(input);
    for (const call of calls) this.journal.add(call);
    this.result.restartHistory = true;
    this.continueSoon();
    return this.store(response);
  }

  /** Returns the result of the task, after the function has run as far as it can. */
  private async finish(response?: Payload): Promise<Result> {
    if (this.journal.ended) return this.finishFailed(this.journal.ended, response);
    if (!this.returned) {
      this.scheduleSteps();
      return this.store(response);
    }
    let { value, error } = this.returned;
    const cause = causeOf(error);
    if (cause instanceof Rejection && this.task.type === "TASK_TYPE_INIT") throw bounded(cause);
    try {
      if (value instanceof Restart) return this.restart(copyOf(value.input), response);
      value = copyOf(value);
    } catch (bad) {
      error = new Failure("bad_value", `the value that function ${this.name} returned ${messageOf(bad)}`);
    }
    if (error) this.journal.add({ k: "fail", n: this.journal.start.n, e: recorded(error) });
    if (error || response !== undefined) { // the last task responds with the value
      this.continueSoon();
      return this.store(response);
    }
    this.journal.add({ k: "end", n: this.journal.start.n, v: value as any });
    this.result.complete = {};
    return this.store(value as Payload);
  }

  /** Cancels the children of a function that has ended with an error, undoes its steps, and then ends the process. */
  private async finishFailed(ended: Entry, response?: Payload): Promise<Result> {
    const asked = ended.k === "fail" && this.cancelChildren("the parent has failed");
    const pending = this.pendingUndos();
    if (asked || pending.length > 0) {
      const mayUndo = this.journal.unsaved.length === 0 && this.task.type === "TASK_TYPE_TIMEOUT";
      for (const [i, name] of mayUndo ? pending.entries() : []) {
        if (i > 0 && !(await this.checkpoint())) break;
        await this.undo(name);
      }
      this.continueSoon();
      return this.store(response);
    }
    if (ended.e && !ended.e.rejected) throw new Failure(ended.e.reason, ended.e.message, { nonRetryable: true });
    this.result.complete = {};
    return this.store(ended as any); // a parent that is a function finds the reason in it
  }

  /** Returns the completed steps that must be undone, newest first. */
  private pendingUndos(): string[] {
    const { run, journal } = this;
    const isDone = ({ k, e, skipped }: Entry) => k === "step" && !e && !skipped;
    const mustUndo = ({ n, u }: Entry) => (u || run.undos.has(n)) && !journal.has("undo", n);
    const steps = journal.entries.filter((entry) => isDone(entry) && mustUndo(entry)).reverse();
    if (journal.repaired) steps.sort((a, b) => run.placeOf(b) - run.placeOf(a));
    return steps.map(({ n }) => n);
  }

  private async undo(name: string): Promise<void> {
    const undo = this.run.undos.get(name);
    if (!undo) throw broken(`step ${name} must be undone, but the function no longer contains it, or it has no undo`);
    const { error } = await this.body(`the undo of step ${name}`, `undo:${name}`, undo);
    if (error) throw new Failure(failureOf(error).reason!, `undo of step ${name}: ${messageOf(error)}`, { cause: error });
    this.journal.add({ k: "undo", n: name });
  }

  /** Asks running children to end, up to the number of commands that the result can hold. Reports whether there were any. */
  private cancelChildren(reason: string): boolean {
    const { run, journal } = this;
    const { commands } = run.effects;
    const running = journal.entries.filter(({ k, n }) => k === "child" && !journal.has("ended", n) && !journal.has("cancel", n));
    for (const child of running.slice(0, maxCommands - commands.length)) {
      journal.add({ k: "cancel", n: child.n });
      commands.push(cancelOf(run.process, childOf(child), reason));
    }
    return running.length > 0;
  }

  /** Returns the steps that wait to be run, without those that wait for their next try. */
  private get steps(): StepRun[] {
    const steps = this.run.branches.flatMap(({ wait }) => wait?.step ?? []);
    return steps.filter(({ name }) => !this.journal.tries.has(name) || this.run.due.has(name));
  }

  /** Returns the steps that the next task can run. A step that may be retried needs a timer. */
  private runnable(): StepRun[] {
    let room = maxPending - this.journal.pendingTimers.length - this.journal.pendingRetries.length;
    return this.steps.filter(({ name, tries }) => tries === 1 || this.run.due.has(name) || room-- > 0).slice(0, maxSteps);
  }

  /** Whether the function waits until its new entries are stored. */
  private get isFlushing(): boolean {
    return this.run.branches.some(({ wait }) => wait?.flush);
  }

  /** Sets the timers of the tasks that run the steps for which the function waits. */
  private scheduleSteps(): void {
    const { due } = this.run;
    for (const { name } of this.steps) if (due.has(name)) this.run.setTimer(`retry:${name}`, 0); // only the task of its timer may run it
    if (this.isFlushing || this.runnable().some(({ name }) => !due.has(name))) this.continueSoon();
  }

  /** Runs the bodies of steps in parallel, and adds their results to the journal. */
  private async runSteps(steps: StepRun[]): Promise<void> {
    const run = ({ name, body }: StepRun) => this.body(`the body of step ${name}`, name, body).catch(() => undefined);
    const results = await Promise.all(steps.map(run));
    this.context.signal.throwIfAborted(); // nothing can be stored
    steps.forEach((step, i) => results[i] && this.stepEnded(step, results[i]));
  }

  private stepEnded({ name, tries, wait, undo }: StepRun, { value, error }: Ended): void {
    const { run, journal } = this;
    let v: any;
    try {
      v = copyOf(value);
      if (journal.bytes + sizeOf(v) > maxStepBytes) throw new Error(`and those of the other steps of its task have more than ${maxStepBytes} bytes`);
    } catch (bad) { // trying again would repeat the effect
      error = new Failure("bad_value", `the value ${messageOf(bad)}`, { nonRetryable: true });
    }
    const failures = (journal.tries.get(name) ?? 0) + 1;
    if (!error) return journal.add({ k: "step", n: name, v, u: undo || undefined });
    if (failures >= tries || isFinal(error)) return journal.add({ k: "step", n: name, e: recorded(error) });
    journal.add({ k: "try", n: name, e: recorded(error) });
    run.due.delete(name);
    run.setTimer(`retry:${name}`, wait * Math.min(2 ** (failures - 1), 100));
  }

  /** Runs the body of a step or undo, or an accept. Throws only after misuse, and when the attempt is over. */
  private async body(what: string, name: string, f: (step: StepContext) => unknown): Promise<Ended> {
    const { process, journal } = this.run;
    const { signal, deadline = Infinity } = this.context;
    const reruns = journal.reruns.get(name.replace(/^undo:/, "")); // Without a new key, services would return the result of the forgotten run.
    const again = reruns ? `~${reruns + 1}` : "";
    const key = `${process.namespace}/${process.processId}/${microseconds(process.createdTime)}.${journal.first}/${name}${again}`;
    const expired = new AbortController();
    const expire = () => expired.abort(new AttemptTimeout("the attempt exceeded its timeout"));
    const left = deadline - performance.now();
    const timer = setTimeout(expire, Math.min(left - Math.min(stepMargin, left / 10), maxTimer));
    const ending = AbortSignal.any([signal, expired.signal]);
    const body = this.run.body(what, () => f({ key, signal: ending }));
    const { value, error } = await Promise.race([body, this.aborted]).finally(() => clearTimeout(timer));
    return { value, error: error && (endedBy(error, ending) ?? error) };
  }

  /** Stores the new entries now, so that more steps may run in this task. Returns false if the task must end instead. */
  private async checkpoint(): Promise<boolean> {
    const { timers, unset, commands } = this.run.effects;
    const { checkpoint, deadline = Infinity } = this.context;
    if (!checkpoint || timers.size + unset.size + commands.length > 0) return false; // a checkpoint cannot store them
    const limit = Math.min(maxRunOn, (deadline - this.began) / 10);
    const isLate = this.task.attempt! > 1 || this.yields || performance.now() - this.began >= limit;
    if (isLate && !this.run.cancelled) return false;
    const { events, auxState, metadata } = this.store();
    try {
      this.yields = await checkpoint({ events, auxState, metadata });
    } catch (error) {
      if (error instanceof ProgressorError && error.code === "unimplemented") return false; // the engine has no checkpoints
      throw error;
    }
    this.journal.markSaved();
    for (const field of ["events", "auxState", "metadata"] as const) delete this.result[field];
    this.run.process.metadata = this.run.effects.metadata ?? this.run.process.metadata;
    this.run.effects.published = this.run.effects.metadata = undefined;
    return !this.yields;
  }

  private continueSoon(): void {
    this.result.setTimer = { after: "0s" };
  }

  /** Adds entries and effects to the result. */
  private store(response?: Payload, entries = this.journal.unsaved): Result {
    const { timers, unset, commands, published, metadata } = this.run.effects;
    const namedTimers = [...timers].map(([name, wait]) => ({ name, after: `${(Math.max(wait, 0) / 1000).toFixed(3)}s` }));
    const stored = { events: entries.map((payload) => ({ payload: payload as any })), namedTimers, unsetNamedTimers: [...unset], commands, metadata };
    return Object.assign(this.result, stored, { response }, published && { auxState: published.state });
  }
}

/** Returns a time of the API in microseconds since 1970. */
function microseconds(time = ""): number {
  const [seconds, fraction = ""] = time.replace("Z", "").split(".");
  return Date.parse(`${seconds}Z`) * 1000 + Number(fraction.padEnd(6, "0").slice(0, 6));
}
