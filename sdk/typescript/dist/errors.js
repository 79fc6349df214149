import { jsonOf } from "./json.js";
const known = [
    "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
    "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
    "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
];
/**
 * Thrown if the engine refuses a request or does not respond. Check its reason, or its code if it
 * has no reason. The message comes from the engine and is meant for people.
 */
export class ProgressorError extends Error {
    code;
    detail;
    name = "ProgressorError";
    /**
     * @param code "unavailable" without a reason means that the engine could not be reached, or that the
     *   response was lost
     * @param detail the namespace, process, task and field of the error, as far as they are known
     */
    constructor(code, message, detail = {}, options) {
        super(message, options);
        this.code = code;
        this.detail = detail;
    }
    /** Why the engine refused the request, such as "REASON_PROCESS_NOT_FOUND". */
    get reason() {
        return this.detail.reason;
    }
}
/** The processor rejected the request, and the process did not change. */
export class TaskRejected extends ProgressorError {
    name = "TaskRejected";
    get rejection() {
        return this.detail.rejection ?? {};
    }
}
/** The processor failed, and the process is in ERROR. */
export class TaskFailed extends ProgressorError {
    name = "TaskFailed";
    get failure() {
        return this.detail.failure ?? {};
    }
}
// Connect defines these codes for HTTP responses that do not come from the engine.
const codes = {
    400: "internal", 401: "unauthenticated", 403: "permission_denied", 404: "unimplemented",
    429: "unavailable", 502: "unavailable", 503: "unavailable", 504: "unavailable",
};
/** Returns the error for an unsuccessful HTTP response. */
export function errorOf(status, text, decodeDetail) {
    const body = jsonOf(text);
    if (!body || !known.includes(body.code)) { // a proxy may also send JSON
        return new ProgressorError(codes[status] ?? "unknown", `HTTP status ${status}: ${text.slice(0, 200)}`);
    }
    const { code, message: sent, details } = body;
    const message = typeof sent === "string" ? sent : code;
    const found = Array.isArray(details) && details.find((d) => d?.type === "progressor.v1.ErrorDetail" && d.debug instanceof Object);
    const detail = found ? decodeDetail(found.debug) : {};
    if (detail.reason === "REASON_TASK_REJECTED")
        return new TaskRejected(code, message, detail);
    if (detail.reason === "REASON_TASK_FAILED")
        return new TaskFailed(code, message, detail);
    return new ProgressorError(code, message, detail);
}
/** Returns the message of what was thrown, which may be anything. */
export function messageOf(thrown) {
    try {
        return String(thrown?.message ?? thrown);
    }
    catch {
        return typeof thrown; // the error has no text
    }
}
/**
 * Thrown by handlers to reject a task, or to fail a job without a retry. A rejected task does not
 * change its process.
 */
export class Rejection extends Error {
    reason;
    details;
    name = "Rejection";
    /** @param reason a short, stable name for programs */
    constructor(reason, message, details) {
        super(message);
        this.reason = reason;
        this.details = details;
    }
}
/** Thrown by handlers to fail an attempt with a reason. Any other error has the reason "error". */
export class Failure extends Error {
    reason;
    options;
    name = "Failure";
    /** @param reason a short, stable name for programs */
    constructor(reason, message, options = {}) {
        super(message, options);
        this.reason = reason;
        this.options = options;
    }
}
/** Thrown by handlers of a worker to return a task without an answer. No attempt is counted. */
export class Release extends Error {
    delay;
    name = "Release";
    /** @param delay milliseconds until a worker can take the task again */
    constructor(delay = 0) {
        super("the task was released");
        this.delay = delay;
    }
}
/** Why the signal of a handler was aborted. */
export class HandlerStopped extends Error {
    name = "AbortError";
}
/** The job was cancelled. */
export class JobCancelled extends HandlerStopped {
}
/** The lease was lost: another worker may have the task, or the task has ended. */
export class LeaseLost extends HandlerStopped {
}
/** The worker stops: the task goes to another worker. */
export class WorkerStopped extends HandlerStopped {
}
/** The attempt exceeded its timeout. */
export class AttemptTimeout extends HandlerStopped {
}
