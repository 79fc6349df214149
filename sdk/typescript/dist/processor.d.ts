import type { RequestListener } from "node:http";
import type { ProcessRequest, ProcessResponse, Result } from "./api.js";
import { HandlerStopped } from "./errors.js";
import { type Payloads } from "./json.js";
/** A task, with its process. Args and state are plain JSON. */
export type Task = ProcessRequest & {
    process: NonNullable<ProcessRequest["process"]>;
};
export interface TaskContext {
    /** Aborted when the attempt is over: an answer would be ignored. */
    signal: AbortSignal;
    /** When the attempt times out, by performance.now(). Missing if it is unknown. */
    deadline?: number;
    /**
     * Stores events, state and metadata before the result, one checkpoint at a time. Returns whether
     * the attempt should end soon. Missing if the attempt cannot store checkpoints. Rejects with the
     * code "unimplemented" if the engine is too old for them: then nothing is stored.
     */
    checkpoint?: (stored: Checkpoint) => Promise<boolean>;
}
/** What a checkpoint stores. It has at least one event. */
export type Checkpoint = Pick<Result, "events" | "auxState" | "metadata">;
/** Returns what the task changes. Without a return value, it changes nothing. */
export type TaskHandler = (task: Task, context: TaskContext) => Result | void | Promise<Result | void>;
/**
 * The functions of a processor by type of task. Without notify, call handles notifications. Without
 * cancel, a cancelled process ends without a cleanup. Other tasks without a function are refused.
 */
export interface TaskHandlers extends Partial<Record<"init" | "call" | "notify" | "timeout" | "repair" | "cancel", TaskHandler>> {
}
export interface ProcessorOptions {
    /** Refuses requests that none of these keys has signed (see verify). */
    keys?: string[];
    /** Receives errors without a reason, whose message the caller gets. The default is console.error. */
    log?: (error: unknown) => void;
    payloads?: Payloads;
}
/**
 * Returns a function for createServer of node:http. It serves a namespace with `--connect-url` and
 * `--encoding json`.
 */
export declare function processor(handlers: TaskHandlers, options?: ProcessorOptions): RequestListener;
/** Wraps a callback. If the callback throws or rejects, the error is written to the console. */
export declare function harmless<Args extends unknown[]>(call: (...args: Args) => unknown): (...args: Args) => void;
/** Calls the function for a task, and returns the response. Throws only errors that the aborted signal has caused. */
export declare function runTask(handlers: TaskHandlers, task: Task, context: TaskContext, log: (error: unknown) => void): Promise<ProcessResponse>;
/** Returns why a signal was aborted if an error only says that it was. */
export declare function endedBy(error: unknown, signal: AbortSignal): HandlerStopped | undefined;
/** Returns the response to a task whose handler threw an error. */
export declare function responseOf(error: unknown): ProcessResponse;
export declare const maxMessage: number;
/** Returns what is stored about an error that a handler threw. */
export declare function failureOf(error: unknown): NonNullable<ProcessResponse["failure"]>;
/** Returns the text that the API uses for a number of milliseconds, at most 365 days. */
export declare const duration: (milliseconds: number) => string;
/** Cuts a text, and replaces what the engine would refuse. */
export declare function wellFormed(text: string, maxBytes: number): string;
