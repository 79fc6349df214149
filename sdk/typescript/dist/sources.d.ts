import type { Command, Process } from "./api.js";
import type { Branch } from "./durable.js";
import { type Journal } from "./journal.js";
/** Something that Ctx.first can wait for. */
export declare abstract class Source {
    readonly branch: Branch;
    readonly id: string;
    /** @internal */
    constructor(branch: Branch, id: string);
    /** @internal Returns the position of its entry in the journal. */
    abstract readonly position: () => number | undefined;
    protected get journal(): Journal;
}
/** A timer that Ctx.after has set. */
export declare class Timer extends Source {
    private readonly name;
    /** @internal */
    constructor(branch: Branch, name: string);
    readonly position: () => number | undefined;
    /** Waits until the timer has fired or was stopped. */
    wait(): Promise<void>;
    /** Stops the timer. Returns true if it had not fired yet. */
    stop(): Promise<boolean>;
}
/** The calls that were accepted, in order. */
export declare class Queue<Args> extends Source {
    private readonly name;
    readonly accept?: ((args: Args) => unknown) | undefined;
    /** @internal */
    taken: number;
    /** @internal */
    constructor(branch: Branch, name: string, accept?: ((args: Args) => unknown) | undefined);
    readonly position: () => number | undefined;
    /** Waits for the next call, and returns its args. */
    next(): Promise<Args>;
}
export interface ProcessKey {
    namespace: string;
    processId: string;
}
/** A child process that Ctx.child has started. */
export declare class Child<Response> extends Source {
    private readonly name;
    readonly process: ProcessKey;
    /** @internal */
    constructor(branch: Branch, name: string, process: ProcessKey);
    readonly position: () => number | undefined;
    /** Waits until the child has ended for the first time, and returns its response. */
    get(): Promise<Response>;
    /** Asks the child to end, and does not wait for this. */
    cancel(reason: string): Promise<void>;
}
export declare function cancelOf(parent: Process, { namespace, processId }: ProcessKey, reason: string): Command;
/** Returns the child that an entry has started. */
export declare const childOf: ({ v }: {
    v?: any;
}) => ProcessKey;
