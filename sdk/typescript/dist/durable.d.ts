import type { Command, JsonObject, Process } from "./api.js";
import { Failure } from "./errors.js";
import { type Entry, type Journal } from "./journal.js";
import { Child, Queue, Timer, type ProcessKey, type Source } from "./sources.js";
export declare const maxName = 200;
export declare const maxCommands = 100;
/** The argument of the body of a step. */
export interface StepContext {
    /** A key for idempotent requests. It is the same each time the body runs, and differs from those of all other steps. */
    readonly key: string;
    /** Aborted when the attempt is over. */
    readonly signal: AbortSignal;
}
export interface StepOptions<T> {
    /** How often the body may run until it succeeds. The default is 1. */
    tries?: number;
    /** Milliseconds before the second try. The wait doubles with each try, up to 100 times. The default is 0. */
    wait?: number;
    /** Undoes the step, with its value, if the function fails or the process is cancelled. */
    undo?: (value: T, step: StepContext) => unknown;
}
/** A step that is not in the journal yet. */
export type StepRun = {
    name: string;
    tries: number;
    wait: number;
    undo: boolean;
    body: (step: StepContext) => unknown;
};
/** What a branch waits for. flush means that the new entries are stored. */
type Wait = {
    ready: () => boolean;
    step?: StepRun;
    flush?: boolean;
    resolve: () => void;
};
/** How a body ended. */
export type Ended = {
    value?: unknown;
    error?: unknown;
};
/**
 * One run of the function, from its start to the point where it waits. The function and the items
 * of each are branches. advance lets one of them run at a time.
 */
export declare class Run {
    journal: Journal;
    readonly process: Process;
    readonly cancelled: boolean;
    /** What the run changes besides the journal. Waits of timers are in milliseconds. */
    effects: {
        timers: Map<string, number>;
        unset: Set<string>;
        commands: Command[];
        published: {
            state: any;
        } | undefined;
        metadata: JsonObject | undefined;
    };
    readonly undos: Map<string, (step: StepContext) => unknown>;
    readonly queues: Map<string, Queue<any>>;
    readonly asked: Map<string, number>;
    readonly due: Set<string>;
    branches: Branch[];
    current: Branch | undefined;
    failure: Failure | undefined;
    over: boolean;
    constructor(journal: Journal, process: Process, cancelled: boolean);
    setTimer(name: string, wait: number): void;
    unsetTimer(name: string): void;
    /** Returns the place of the operation of an entry. Operations that the function has not begun are last. */
    placeOf({ k, n }: Entry): number;
    mergeMetadata(fields: JsonObject): void;
    addBranch(scope: string, body: (ctx: Ctx) => Promise<void>, ready?: () => boolean): void;
    /** Runs the branches until each of them waits for something that the journal does not contain. */
    advance(): Promise<void>;
    private resume;
    /** Records an operation in the wrong place. Returns the failure, which fails the task. */
    misuse(message: string, at?: string, reason?: string): Failure;
    /** Records an error that reports a mistake in the program. Returns any other error. */
    caught(error: unknown): unknown;
    /** Runs the body of a step or undo, or an accept. Rejects if an operation was called in it. */
    body(what: string, run: () => unknown): Promise<Ended>;
}
/** The function, or an item of each. */
export declare class Branch {
    readonly run: Run;
    private readonly scope;
    wait: Wait | undefined;
    ended: boolean;
    last: string;
    private readonly names;
    constructor(run: Run, scope: string);
    /** Runs an operation. After a failure of the run, it never settles, so the function does not continue. */
    operation<T>(begin: () => T | Promise<T>): Promise<T>;
    /** Begins an operation, or throws if it is not allowed here. */
    enter(): void;
    /** Runs an operation with a name. begin gets its name in the journal. */
    named<T>(kind: string, name: string, begin: (full: string, run: Run) => T | Promise<T>): Promise<T>;
    /** Returns the name of an operation in the journal. */
    name(kind: string, name: string): string;
    /** Waits until the journal contains what the branch needs. */
    until(ready: () => boolean, more?: {
        step?: StepRun;
        flush?: boolean;
    }): Promise<void>;
    /**
     * Adds an entry to the journal, and a command to the result that stores the entry. If there
     * are too many new entries, this method first waits until they are stored. If the process is
     * being cancelled or the function has ended, the function does not continue at a command.
     */
    record(entry: Entry, command?: Command): Promise<void>;
    /** Returns a copy of a value of the program. */
    copy(value: unknown, what: string): any;
}
/** The context of a function or of an item of each. It has one operation at a time: await each one. */
export declare class Ctx {
    private readonly branch;
    /** @internal */
    constructor(branch: Branch);
    /** The namespace and the ID of the process. */
    get process(): ProcessKey;
    /**
     * Runs body until it succeeds, at most options.tries times (by default once). Returns its value or
     * throws a StepError.
     */
    step<T>(name: string, body: (step: StepContext) => T | Promise<T>, options?: StepOptions<T>): Promise<T>;
    /** Calls f for each item, in branches that run concurrently. If some of them throw, it throws an AggregateError. */
    each<Item, Out>(name: string, items: Iterable<Item>, f: (ctx: Ctx, item: Item, index: number) => Promise<Out>, { limit }?: {
        limit?: number;
    }): Promise<Out[]>;
    /** Sets a timer that fires after a number of milliseconds, and does not wait for it. */
    after(name: string, milliseconds: number): Promise<Timer>;
    /** Waits for a number of milliseconds. */
    sleep(name: string, milliseconds: number): Promise<void>;
    /**
     * Opens a queue of calls: clients may now call the process with { NAME: args }. accept returns the
     * response, or throws to reject the call. Without it, every call is accepted.
     */
    calls<Args = any>(name: string, accept?: (args: Args) => unknown): Queue<Args>;
    /** Starts a process, by default in the namespace of the function, and does not wait for its end. */
    child<Response = any>(name: string, args?: unknown, options?: {
        namespace?: string;
    }): Promise<Child<Response>>;
    /** Waits until a timer has fired, a call has arrived or a child has ended, and returns the first of them. */
    first<S extends Source>(name: string, ...sources: S[]): Promise<S>;
    /** Returns the time of the first run of this line, by the clock of this machine. */
    now(name: string): Promise<Date>;
    /** Returns a random UUID, always the same one for this name. */
    uuid(name: string): Promise<string>;
    /** Returns a random integer from 0 to n-1, always the same one for this name. */
    random(name: string, n: number): Promise<number>;
    private value;
    /** Returns the version of a change when the function started, or 0. */
    version(change: string): number;
    /** Sets the state of the process. Clients read it without the function. */
    publish(state: unknown): void;
    /** Sets fields of the metadata of the process. A null value removes a field. */
    setMetadata(fields: JsonObject): void;
}
export {};
