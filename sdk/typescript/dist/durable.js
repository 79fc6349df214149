import { AsyncLocalStorage } from "node:async_hooks";
import { randomInt, randomUUID } from "node:crypto";
import { Failure, messageOf } from "./errors.js";
import { copyOf, operationOf, StepError } from "./journal.js";
import { Child, childOf, Queue, Timer } from "./sources.js";
const maxTimers = 80; // pending timers of after; the engine allows more, for retries
const maxWait = 100 * 365 * 24 * 3600_000;
export const maxName = 200; // bytes of a name with its scope and number
export const maxCommands = 100; // of one result
/** What runs now: the body of a step or an undo, or an accept. */
const bodies = new AsyncLocalStorage();
const never = new Promise(() => { });
/**
 * Resolves when every promise that can be settled without an event of the system has been settled.
 * Node runs a function of nextTick after the queue of microtasks is empty, and before any timer or
 * I/O. If a branch has not ended and does not wait for an operation, it waits for something else.
 */
async function drained() {
    await undefined; // so that a microtask calls nextTick
    await new Promise((resolve) => process.nextTick(resolve));
}
const ownFiles = new URL(".", import.meta.url).href;
/** Returns the file and line of the program that called an operation, as in "shop/order.js:42". */
function caller() {
    const frames = (new Error().stack ?? "").split("\n").slice(1);
    const frame = frames.find((line) => !line.includes(ownFiles) && !line.includes("node:"));
    return /([^/\\(]+[/\\][^/\\]+:\d+):\d+\)?$/.exec(frame ?? "")?.[1] ?? "an unknown line";
}
/**
 * One run of the function, from its start to the point where it waits. The function and the items
 * of each are branches. advance lets one of them run at a time.
 */
export class Run {
    journal;
    process;
    cancelled;
    /** What the run changes besides the journal. Waits of timers are in milliseconds. */
    effects = {
        timers: new Map(), unset: new Set(), commands: [],
        published: undefined, metadata: undefined,
    };
    undos = new Map();
    queues = new Map();
    asked = new Map(); // the order in which the function began its operations
    due = new Set(); // steps whose wait before the next try has ended
    branches = [];
    current;
    failure; // the first misuse or error of the program
    over = false;
    constructor(journal, process, cancelled) {
        this.journal = journal;
        this.process = process;
        this.cancelled = cancelled;
    }
    setTimer(name, wait) {
        this.effects.unset.delete(name);
        this.effects.timers.set(name, wait);
    }
    unsetTimer(name) {
        if (!this.effects.timers.delete(name))
            this.effects.unset.add(name);
    }
    /** Returns the place of the operation of an entry. Operations that the function has not begun are last. */
    placeOf({ k, n }) {
        return this.asked.get(`${operationOf(k)} ${n}`) ?? this.asked.size;
    }
    mergeMetadata(fields) {
        const merged = Object.entries({ ...(this.effects.metadata ?? this.process.metadata), ...fields });
        this.effects.metadata = Object.fromEntries(merged.filter(([, value]) => value !== null && value !== undefined));
    }
    addBranch(scope, body, ready = () => true) {
        const branch = new Branch(this, scope);
        this.branches.push(branch);
        const end = () => {
            if (branch.wait)
                this.misuse("the function ended before an operation that it did not await", "");
            branch.ended = true;
        };
        branch.wait = { ready, resolve: () => void body(new Ctx(branch)).then(end) };
    }
    /** Runs the branches until each of them waits for something that the journal does not contain. */
    async advance() {
        for (let progress = true; progress;) {
            progress = false;
            for (let i = 0; i < this.branches.length; i++) { // a branch may add branches
                if (!this.branches[i].wait?.ready())
                    continue;
                await this.resume(this.branches[i]);
                progress = true;
            }
            this.branches = this.branches.filter((branch) => !branch.ended);
        }
    }
    async resume(branch) {
        const { resolve } = branch.wait;
        [branch.wait, this.current] = [undefined, branch];
        resolve();
        await drained();
        this.current = undefined;
        if (!branch.ended && !branch.wait && !this.failure) {
            this.misuse(`the function waits for something that is not a durable operation${branch.last}: do all I/O in the bodies of steps`, "");
        }
        if (this.failure)
            throw this.failure;
    }
    /** Records an operation in the wrong place. Returns the failure, which fails the task. */
    misuse(message, at = `${caller()}: `, reason = "durable_misuse") {
        return (this.failure ??= new Failure(reason, at + message, { nonRetryable: true }));
    }
    /** Records an error that reports a mistake in the program. Returns any other error. */
    caught(error) {
        if (![TypeError, ReferenceError, RangeError, SyntaxError].some((type) => error instanceof type))
            return error;
        return (this.failure ??= new Failure("panic", `the function threw ${error.stack}`, { cause: error }));
    }
    /** Runs the body of a step or undo, or an accept. Rejects if an operation was called in it. */
    body(what, run) {
        return new Promise((resolve, reject) => {
            const result = bodies.run({ what, misuse: () => reject(this.failure) }, async () => run());
            result.then((value) => resolve({ value }), (error) => resolve({ error: error ?? new Error(String(error)) }));
        });
    }
}
/** The function, or an item of each. */
export class Branch {
    run;
    scope;
    wait;
    ended = false;
    last = ""; // the last operation
    names = new Map();
    constructor(run, scope) {
        this.run = run;
        this.scope = scope;
    }
    /** Runs an operation. After a failure of the run, it never settles, so the function does not continue. */
    operation(begin) {
        const entered = async () => {
            this.enter();
            return begin();
        };
        const result = entered().catch((error) => (this.run.failure ? never : Promise.reject(error)));
        result.catch(() => { }); // the function may not await it
        return result;
    }
    /** Begins an operation, or throws if it is not allowed here. */
    enter() {
        const { run } = this;
        const body = bodies.getStore();
        if (run.current === this && !body && !this.wait && !run.failure)
            return;
        let message = "a durable operation before the last one has ended: await each one, or use each or first";
        if (body)
            message = `a durable operation in ${body.what}: call it in the function instead`;
        else if (!run.current)
            message = "a durable operation after a wait for something else: do all I/O in the bodies of steps";
        else if (run.current !== this)
            message = "a durable operation with the context of another branch";
        const failure = run.misuse(message);
        if (run.over)
            console.error(`durable function misused: ${caller()}: ${message}`); // no task is left that could fail
        body?.misuse();
        throw failure;
    }
    /** Runs an operation with a name. begin gets its name in the journal. */
    named(kind, name, begin) {
        return this.operation(() => begin(this.name(kind, name), this.run));
    }
    /** Returns the name of an operation in the journal. */
    name(kind, name) {
        if (!/^[A-Za-z0-9._-]{1,100}$/.test(name)) {
            throw this.run.misuse(`the name "${name}" must have 1 to 100 letters, digits, dots, underscores and hyphens`);
        }
        const number = (this.names.get(`${kind} ${name}`) ?? 0) + 1;
        this.names.set(`${kind} ${name}`, number);
        const full = `${this.scope}${name}${number > 1 ? `#${number}` : ""}`;
        if (full.length > maxName)
            throw this.run.misuse(`the name "${name}" is too long with its scope: ${full.length} bytes, at most ${maxName} are allowed`);
        this.last = `, after ${kind} ${full}`;
        this.run.asked.set(`${kind} ${full}`, this.run.asked.size);
        return full;
    }
    /** Waits until the journal contains what the branch needs. */
    async until(ready, more = {}) {
        if (!ready())
            await new Promise((resolve) => (this.wait = { ...more, ready, resolve }));
    }
    /**
     * Adds an entry to the journal, and a command to the result that stores the entry. If there
     * are too many new entries, this method first waits until they are stored. If the process is
     * being cancelled or the function has ended, the function does not continue at a command.
     */
    async record(entry, command) {
        const { run } = this;
        const maySend = () => !run.cancelled && !run.journal.ended && run.effects.commands.length < maxCommands;
        await this.until(() => !run.journal.isFull && (!command || maySend()), { flush: true });
        run.journal.add(entry);
        if (!command)
            return;
        run.journal.bytes += JSON.stringify(command).length;
        run.effects.commands.push(command);
    }
    /** Returns a copy of a value of the program. */
    copy(value, what) {
        try {
            return copyOf(value);
        }
        catch (error) {
            throw this.run.misuse(`${what} ${messageOf(error)}`);
        }
    }
}
/** The context of a function or of an item of each. It has one operation at a time: await each one. */
export class Ctx {
    branch;
    /** @internal */
    constructor(branch) {
        this.branch = branch;
    }
    /** The namespace and the ID of the process. */
    get process() {
        const { namespace, processId } = this.branch.run.process;
        return { namespace: namespace, processId: processId };
    }
    /**
     * Runs body until it succeeds, at most options.tries times (by default once). Returns its value or
     * throws a StepError.
     */
    step(name, body, options = {}) {
        return this.branch.named("step", name, async (full, run) => {
            const { tries = 1, wait = 0, undo } = options;
            if (!(tries >= 1 && wait >= 0))
                throw run.misuse(`step ${full}: must have at least 1 try and a wait of 0 or more`);
            const step = { name: full, tries, wait, undo: undo !== undefined, body };
            await this.branch.until(() => run.journal.has("step", full), { step });
            const { v, e } = run.journal.find("step", full);
            if (e)
                throw new StepError(`step ${full}`, e);
            if (undo)
                run.undos.set(full, (context) => undo(copyOf(v), context));
            return copyOf(v);
        });
    }
    /** Calls f for each item, in branches that run concurrently. If some of them throw, it throws an AggregateError. */
    each(name, items, f, { limit = Infinity } = {}) {
        return this.branch.named("each", name, async (full, run) => {
            if (!(limit >= 1))
                throw run.misuse(`the limit of ${full} must be at least 1`);
            const list = [...items];
            const values = new Array(list.length);
            const errors = [];
            let [running, left] = [0, list.length];
            list.forEach((item, i) => {
                const body = async (ctx) => {
                    running++;
                    try {
                        values[i] = await f(ctx, item, i);
                    }
                    catch (error) {
                        errors[i] = { message: `${full}[${i}]: ${messageOf(error)}`, error: run.caught(error) };
                    }
                    running--;
                    left--;
                };
                run.addBranch(`${full}[${i}]/`, body, () => running < limit);
            });
            await this.branch.until(() => left === 0);
            const failed = errors.filter(Boolean); // in the order of the items
            if (failed.length === 0)
                return values;
            throw new AggregateError(failed.map(({ error }) => error), failed.map(({ message }) => message).join("\n"));
        });
    }
    /** Sets a timer that fires after a number of milliseconds, and does not wait for it. */
    after(name, milliseconds) {
        return this.branch.named("timer", name, async (full, run) => {
            if (!(milliseconds <= maxWait))
                throw run.misuse(`timer ${full}: must be a number of milliseconds, at most 100 years`);
            if (!run.journal.has("timer", full)) {
                if (run.journal.pendingTimers.length >= maxTimers) {
                    throw run.misuse(`timer ${full}: ${maxTimers} timers are pending, and more are not allowed`);
                }
                await this.branch.record({ k: "timer", n: full, v: milliseconds / 1000 });
                run.setTimer(full, milliseconds);
            }
            return new Timer(this.branch, full);
        });
    }
    /** Waits for a number of milliseconds. */
    async sleep(name, milliseconds) {
        await (await this.after(name, milliseconds)).wait();
    }
    /**
     * Opens a queue of calls: clients may now call the process with { NAME: args }. accept returns the
     * response, or throws to reject the call. Without it, every call is accepted.
     */
    calls(name, accept) {
        this.branch.enter();
        const full = this.branch.name("call", name);
        const queue = new Queue(this.branch, full, accept);
        this.branch.run.queues.set(full, queue);
        return queue;
    }
    /** Starts a process, by default in the namespace of the function, and does not wait for its end. */
    child(name, args, options = {}) {
        return this.branch.named("child", name, async (full, run) => {
            const started = run.journal.find("child", full);
            if (started)
                return new Child(this.branch, full, childOf(started));
            const copy = this.branch.copy(args, `the args of child ${full}: the value`);
            const namespace = options.namespace || this.process.namespace;
            const processId = `${this.process.processId}/${full}~${run.journal.origin}`;
            const target = namespace === this.process.namespace ? "" : namespace;
            const start = { namespace: target, processId, args: copy, notifyParentArgs: full };
            await this.branch.record({ k: "child", n: full, v: { namespace, process_id: processId } }, { start });
            return new Child(this.branch, full, { namespace, processId });
        });
    }
    /** Waits until a timer has fired, a call has arrived or a child has ended, and returns the first of them. */
    first(name, ...sources) {
        return this.branch.named("first", name, async (full, run) => {
            if (sources.length === 0)
                throw run.misuse(`first ${full} has no sources`);
            const foreign = sources.find((source) => source.branch !== this.branch);
            if (foreign)
                throw run.misuse(`first ${full}: ${foreign.id} belongs to another branch`);
            const id = run.journal.find("first", full)?.v;
            if (id !== undefined) {
                const message = `first ${full} has chosen ${id}, which is not one of its sources now`;
                const chosen = sources.find((source) => source.id === id);
                if (!chosen)
                    throw run.misuse(message, undefined, "durable_journal");
                return chosen;
            }
            const position = (source) => source.position() ?? Infinity;
            const earliest = () => sources.reduce((a, b) => (position(b) < position(a) ? b : a));
            await this.branch.until(() => position(earliest()) < Infinity);
            const first = earliest();
            await this.branch.record({ k: "first", n: full, v: first.id });
            return first;
        });
    }
    /** Returns the time of the first run of this line, by the clock of this machine. */
    now(name) {
        return this.value(name, () => new Date().toISOString(), (text) => new Date(text));
    }
    /** Returns a random UUID, always the same one for this name. */
    uuid(name) {
        return this.value(name, randomUUID, String);
    }
    /** Returns a random integer from 0 to n-1, always the same one for this name. */
    random(name, n) {
        return this.value(name, () => randomInt(n), Number);
    }
    value(name, make, convert) {
        return this.branch.named("value", name, async (full, run) => {
            if (!run.journal.has("value", full))
                await this.branch.record({ k: "value", n: full, v: make() });
            return convert(run.journal.find("value", full).v);
        });
    }
    /** Returns the version of a change when the function started, or 0. */
    version(change) {
        this.branch.enter();
        return this.branch.run.journal.start.versions?.[change] ?? 0;
    }
    /** Sets the state of the process. Clients read it without the function. */
    publish(state) {
        this.branch.enter();
        this.branch.run.effects.published = { state: this.branch.copy(state, "the published value") ?? null };
    }
    /** Sets fields of the metadata of the process. A null value removes a field. */
    setMetadata(fields) {
        this.branch.enter();
        this.branch.run.mergeMetadata(this.branch.copy(fields, "the metadata"));
    }
}
