import type * as api from "./api.js";
declare const known: readonly ["canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"];
/** The codes of Connect. */
export type Code = (typeof known)[number];
/**
 * Thrown if the engine refuses a request or does not respond. Check its reason, or its code if it
 * has no reason. The message comes from the engine and is meant for people.
 */
export declare class ProgressorError extends Error {
    readonly code: Code;
    readonly detail: api.ErrorDetail;
    name: string;
    /**
     * @param code "unavailable" without a reason means that the engine could not be reached, or that the
     *   response was lost
     * @param detail the namespace, process, task and field of the error, as far as they are known
     */
    constructor(code: Code, message: string, detail?: api.ErrorDetail, options?: ErrorOptions);
    /** Why the engine refused the request, such as "REASON_PROCESS_NOT_FOUND". */
    get reason(): api.ErrorDetailReason | undefined;
}
/** The processor rejected the request, and the process did not change. */
export declare class TaskRejected extends ProgressorError {
    name: string;
    get rejection(): api.Rejection;
}
/** The processor failed, and the process is in ERROR. */
export declare class TaskFailed extends ProgressorError {
    name: string;
    get failure(): api.Failure;
}
/** Returns the error for an unsuccessful HTTP response. */
export declare function errorOf(status: number, text: string, decodeDetail: (detail: api.ErrorDetail) => api.ErrorDetail): ProgressorError;
/** Returns the message of what was thrown, which may be anything. */
export declare function messageOf(thrown: unknown): string;
/**
 * Thrown by handlers to reject a task, or to fail a job without a retry. A rejected task does not
 * change its process.
 */
export declare class Rejection extends Error {
    readonly reason: string;
    readonly details?: api.Payload;
    name: string;
    /** @param reason a short, stable name for programs */
    constructor(reason: string, message: string, details?: api.Payload);
}
export interface FailureOptions extends ErrorOptions {
    /** The task or the job is not retried. */
    nonRetryable?: boolean;
    /** Milliseconds until the next attempt, instead of the backoff. */
    retryAfter?: number;
    details?: api.Json;
}
/** Thrown by handlers to fail an attempt with a reason. Any other error has the reason "error". */
export declare class Failure extends Error {
    readonly reason: string;
    readonly options: FailureOptions;
    name: string;
    /** @param reason a short, stable name for programs */
    constructor(reason: string, message: string, options?: FailureOptions);
}
/** Thrown by handlers of a worker to return a task without an answer. No attempt is counted. */
export declare class Release extends Error {
    readonly delay: number;
    name: string;
    /** @param delay milliseconds until a worker can take the task again */
    constructor(delay?: number);
}
/** Why the signal of a handler was aborted. */
export declare class HandlerStopped extends Error {
    name: string;
}
/** The job was cancelled. */
export declare class JobCancelled extends HandlerStopped {
}
/** The lease was lost: another worker may have the task, or the task has ended. */
export declare class LeaseLost extends HandlerStopped {
}
/** The worker stops: the task goes to another worker. */
export declare class WorkerStopped extends HandlerStopped {
}
/** The attempt exceeded its timeout. */
export declare class AttemptTimeout extends HandlerStopped {
}
export {};
