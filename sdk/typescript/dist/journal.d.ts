import type { Json, Payload, Process } from "./api.js";
import { Rejection } from "./errors.js";
type Kind = "start" | "step" | "try" | "value" | "timer" | "fired" | "stopped" | "call" | "first" | "end" | "fail" | "undo" | "child" | "ended" | "cancel" | "repair" | "";
/** An entry of the journal: the payload of one event. docs/journal.md describes it. */
export interface Entry {
    k: Kind;
    n: string;
    v?: Json;
    e?: RecordedError;
    u?: boolean;
    skipped?: true;
    versions?: {
        [change: string]: number;
    };
}
export type RecordedError = {
    reason: string;
    message: string;
    rejected?: true;
};
export declare const maxValueBytes: number;
export declare const maxNewBytes: number;
/**
 * An error that the journal contains: of a step, a child or the function. The function gets it
 * instead of the original error, so that the first run and a replay get the same error.
 */
export declare class StepError extends Error {
    name: string;
    readonly reason: string;
    /** The step or the child rejected its work. This is an expected outcome, and not a fault. */
    readonly rejected: boolean;
    constructor(what: string, { reason, message, rejected }: RecordedError);
}
/** Converts an error of the program for the journal. */
export declare function recorded(error: unknown): RecordedError;
/** Returns the error whose reason applies to several errors together: the first one that is not a rejection. */
export declare function causeOf(error: unknown): unknown;
/** Reports whether an error of a step is final, without a retry. */
export declare const isFinal: (error: unknown) => boolean;
/** Returns the kind of the operation that an entry is about: a try is about a step. */
export declare const operationOf: (kind: string) => string;
/** Shortens a text to what an entry may contain. */
export declare function cut(text: string): string;
/** Returns a rejection that can be stored. Details that are too large are omitted, and the message says so. */
export declare function bounded(rejection: Rejection): Rejection;
/** Returns a copy of a value, as a replay would get it. The error describes what is wrong. */
export declare function copyOf(value: unknown): any;
/** Returns the size of a value as JSON. */
export declare const sizeOf: (value: unknown) => number;
/** Decodes a payload that may be the bytes of JSON. Returns undefined if it is not JSON. */
export declare function parsed(payload: Payload | undefined): any;
/**
 * The entries of a process, in order. The entries from index saved on are new. Entries that a repair
 * has forgotten are empty, so that the others keep their places. first compares these places.
 */
export declare class Journal {
    readonly first: number;
    origin: number;
    readonly entries: Entry[];
    readonly tries: Map<string, number>;
    readonly reruns: Map<string, number>;
    repaired: boolean;
    saved: number;
    bytes: number;
    private readonly index;
    private readonly calls;
    /** origin is the number of the task that stored the first entry, or that made the last repair by step. */
    constructor(first: number, origin: number);
    /** Reads the history of a process. */
    read({ history, lastEventId }: Process): void;
    /** Adds a new entry. */
    add(entry: Entry): void;
    private insert;
    /** Empties the entries that a repair forgets. */
    private forget;
    /** Makes an entry known by its name. */
    private register;
    /** Returns the index of an entry that is neither a try nor a call. */
    position(kind: Kind, name: string): number | undefined;
    find(kind: Kind, name: string): Entry | undefined;
    has(kind: Kind, name: string): boolean;
    /** Returns the index of a call. The first call of a name has the number 0. */
    call(name: string, number: number): number | undefined;
    get start(): Entry;
    /** The entry for the end of the function. */
    get ended(): Entry | undefined;
    get unsaved(): Entry[];
    markSaved(): void;
    /** Whether a result should store the new entries before more are added. */
    get isFull(): boolean;
    /** The names of the timers of after that may be set. */
    get pendingTimers(): string[];
    /** The names of the timers of steps that may wait for their next try. */
    get pendingRetries(): string[];
}
export {};
