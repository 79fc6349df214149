import { Failure, messageOf, Rejection } from "./errors.js";
import { jsonOf } from "./json.js";
import { failureOf, maxMessage } from "./processor.js";
export const maxValueBytes = (1 << 20) - 4096;
export const maxNewBytes = 2 << 20; // new entries after which a result is stored before more are added
const maxNewEntries = 500;
const maxDetails = maxValueBytes - 2 * maxMessage; // of a rejection, without its reason and message
/**
 * An error that the journal contains: of a step, a child or the function. The function gets it
 * instead of the original error, so that the first run and a replay get the same error.
 */
export class StepError extends Error {
    name = "StepError";
    reason;
    /** The step or the child rejected its work. This is an expected outcome, and not a fault. */
    rejected;
    constructor(what, { reason, message, rejected = undefined }) {
        super(`${what}: ${message}`);
        this.reason = reason;
        this.rejected = Boolean(rejected);
    }
}
/** Converts an error of the program for the journal. */
export function recorded(error) {
    const cause = causeOf(error);
    if (cause instanceof Rejection)
        return { reason: cut(cause.reason), message: cut(cause.message), rejected: true };
    const message = cut(messageOf(error));
    if (!(cause instanceof StepError))
        return { reason: cut(failureOf(cause).reason), message };
    return cause.rejected ? { reason: cause.reason, message, rejected: true } : { reason: cause.reason, message };
}
/** Returns the error whose reason applies to several errors together: the first one that is not a rejection. */
export function causeOf(error) {
    if (!(error instanceof AggregateError) || error.errors.length === 0)
        return error;
    const causes = error.errors.map(causeOf);
    return causes.find((cause) => !(cause instanceof Rejection || (cause instanceof StepError && cause.rejected))) ?? causes[0];
}
/** Reports whether an error of a step is final, without a retry. */
export const isFinal = (error) => error instanceof Rejection || (error instanceof Failure && Boolean(error.options.nonRetryable));
/** Returns the kind of the operation that an entry is about: a try is about a step. */
export const operationOf = (kind) => (kind === "try" ? "step" : kind);
/** Shortens a text to what an entry may contain. */
export function cut(text) {
    const bytes = Buffer.from(text);
    return bytes.length <= maxMessage ? text : `${bytes.subarray(0, maxMessage).toString().replace(/\ufffd$/, "")}…`;
}
/** Returns a rejection that can be stored. Details that are too large are omitted, and the message says so. */
export function bounded(rejection) {
    const { reason, message, details } = rejection;
    const size = details instanceof Uint8Array ? details.length : sizeOf(details);
    const omitted = ` (details omitted: they have ${size} bytes, at most ${maxDetails} are allowed)`;
    return size <= maxDetails ? rejection : new Rejection(reason, cut(message) + omitted);
}
/** Returns a copy of a value, as a replay would get it. The error describes what is wrong. */
export function copyOf(value) {
    let text;
    try {
        text = JSON.stringify(value);
    }
    catch (error) {
        throw new Error(`cannot be encoded as JSON: ${messageOf(error)}`);
    }
    if (text === undefined)
        return undefined;
    const size = Buffer.byteLength(text);
    if (size > maxValueBytes)
        throw new Error(`has ${size} bytes as JSON, at most ${maxValueBytes} are allowed`);
    return JSON.parse(text);
}
/** Returns the size of a value as JSON. */
export const sizeOf = (value) => (value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value)));
/** Decodes a payload that may be the bytes of JSON. Returns undefined if it is not JSON. */
export function parsed(payload) {
    return payload instanceof Uint8Array ? jsonOf(Buffer.from(payload).toString()) : payload;
}
/**
 * The entries of a process, in order. The entries from index saved on are new. Entries that a repair
 * has forgotten are empty, so that the others keep their places. first compares these places.
 */
export class Journal {
    first;
    origin;
    entries = [];
    tries = new Map();
    reruns = new Map(); // how often a completed step was forgotten
    repaired = false; // a step was repaired: the entries may be in another order than the operations
    saved = 0;
    bytes = 0; // approximate size of the new entries
    index = new Map();
    calls = new Map();
    /** origin is the number of the task that stored the first entry, or that made the last repair by step. */
    constructor(first, origin) {
        this.first = first;
        this.origin = origin;
    }
    /** Reads the history of a process. */
    read({ history = [], lastEventId = 0 }) {
        const want = lastEventId - this.first + 1;
        if (history.length !== want) {
            throw new Error(`the task has ${history.length} of ${want} events: durable functions need the namespace's history_mode FULL, and calls without a range`);
        }
        for (const [at, event] of history.entries()) {
            const entry = entryOf(event, at);
            if (entry.k === "repair")
                this.origin = event.taskId;
            this.insert(entry);
        }
        if (history.length > 0 && this.start.k !== "start") {
            throw new Error("the journal does not begin with the start of the function: the history was restarted by someone else");
        }
        this.markSaved();
    }
    /** Adds a new entry. */
    add(entry) {
        this.bytes += 100 + sizeOf(entry.v) + sizeOf(entry.e);
        this.insert(entry);
    }
    insert(entry) {
        const at = this.entries.push(entry) - 1;
        if (entry.k === "repair")
            this.forget(entry.v.forget ?? []);
        this.register(entry, at);
    }
    /** Empties the entries that a repair forgets. */
    forget(forgotten) {
        this.repaired = true;
        for (const at of forgotten) {
            const { k, n, e, skipped } = this.entries[at];
            if (k === "step" && !e && !skipped)
                this.reruns.set(n, (this.reruns.get(n) ?? 0) + 1);
            this.entries[at] = { k: "", n: "" };
        }
        for (const known of [this.tries, this.index, this.calls])
            known.clear();
        this.entries.slice(0, -1).forEach((entry, at) => entry.k && this.register(entry, at));
    }
    /** Makes an entry known by its name. */
    register(entry, at) {
        const key = `${entry.k} ${entry.n}`;
        if (entry.k === "try")
            this.tries.set(entry.n, (this.tries.get(entry.n) ?? 0) + 1);
        else if (entry.k === "call" && this.calls.has(entry.n))
            this.calls.get(entry.n).push(at);
        else if (entry.k === "call")
            this.calls.set(entry.n, [at]);
        else if (!this.index.has(key))
            this.index.set(key, at);
    }
    /** Returns the index of an entry that is neither a try nor a call. */
    position(kind, name) {
        return this.index.get(`${kind} ${name}`);
    }
    find(kind, name) {
        return this.entries[this.position(kind, name) ?? -1];
    }
    has(kind, name) {
        return this.index.has(`${kind} ${name}`);
    }
    /** Returns the index of a call. The first call of a name has the number 0. */
    call(name, number) {
        return this.calls.get(name)?.[number];
    }
    get start() {
        return this.entries[0];
    }
    /** The entry for the end of the function. */
    get ended() {
        return this.find("end", this.start.n) ?? this.find("fail", this.start.n);
    }
    get unsaved() {
        return this.entries.slice(this.saved);
    }
    markSaved() {
        this.saved = this.entries.length;
        this.bytes = 0;
    }
    /** Whether a result should store the new entries before more are added. */
    get isFull() {
        return this.entries.length - this.saved >= maxNewEntries || this.bytes >= maxNewBytes;
    }
    /** The names of the timers of after that may be set. */
    get pendingTimers() {
        const isPending = ({ k, n }) => k === "timer" && !this.has("fired", n) && !this.has("stopped", n);
        return this.entries.filter(isPending).map(({ n }) => n);
    }
    /** The names of the timers of steps that may wait for their next try. */
    get pendingRetries() {
        return [...this.tries.keys()].filter((name) => !this.has("step", name)).map((name) => `retry:${name}`);
    }
}
function entryOf({ eventId, payload }, index) {
    const entry = parsed(payload);
    const mayForget = (at) => Number.isInteger(at) && at >= 1 && at < index;
    const isRepair = () => entry.v instanceof Object && (entry.v.forget ?? []).every(mayForget);
    if (entry?.k && (entry.k !== "fail" || entry.e) && (entry.k !== "repair" || isRepair()))
        return entry;
    throw new Error(`event ${eventId} is not an entry of a journal`);
}
