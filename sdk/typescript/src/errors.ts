import type * as api from "./api.js";
import { jsonOf } from "./json.js";

const known = [
  "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
  "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
  "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
] as const;

/** The codes of Connect. */
export type Code = (typeof known)[number];

/**
 * Thrown if the engine refuses a request or does not respond. Check its reason, or its code if it
 * has no reason. The message comes from the engine and is meant for people.
 */
export class ProgressorError extends Error {
  override name = "ProgressorError";

  /**
   * @param code "unavailable" without a reason means that the engine could not be reached, or that the
   *   response was lost
   * @param detail the namespace, process, task and field of the error, as far as they are known
   */
  constructor(readonly code: Code, message: string, readonly detail: api.ErrorDetail = {}, options?: ErrorOptions) {
    super(message, options);
  }

  /** Why the engine refused the request, such as "REASON_PROCESS_NOT_FOUND". */
  get reason(): api.ErrorDetailReason | undefined {
    return this.detail.reason;
  }
}

/** The processor rejected the request, and the process did not change. */
export class TaskRejected extends ProgressorError {
  override name = "TaskRejected";

  get rejection(): api.Rejection {
    return this.detail.rejection ?? {};
  }
}

/** The processor failed, and the process is in ERROR. */
export class TaskFailed extends ProgressorError {
  override name = "TaskFailed";

  get failure(): api.Failure {
    return this.detail.failure ?? {};
  }
}

// Connect defines these codes for HTTP responses that do not come from the engine.
const codes: { [status: number]: Code } = {
  400: "internal", 401: "unauthenticated", 403: "permission_denied", 404: "unimplemented",
  429: "unavailable", 502: "unavailable", 503: "unavailable", 504: "unavailable",
};

/** Returns the error for an unsuccessful HTTP response. */
export function errorOf(status: number, text: string, decodeDetail: (detail: api.ErrorDetail) => api.ErrorDetail): ProgressorError {
  const body = jsonOf(text);
  if (!body || !known.includes(body.code)) { // a proxy may also send JSON
    return new ProgressorError(codes[status] ?? "unknown", `HTTP status ${status}: ${text.slice(0, 200)}`);
  }
  const { code, message: sent, details } = body;
  const message = typeof sent === "string" ? sent : code;
  const found = Array.isArray(details) && details.find((d: any) => d?.type === "progressor.v1.ErrorDetail" && d.debug instanceof Object);
  const detail = found ? decodeDetail(found.debug!) : {};
  if (detail.reason === "REASON_TASK_REJECTED") return new TaskRejected(code, message, detail);
  if (detail.reason === "REASON_TASK_FAILED") return new TaskFailed(code, message, detail);
  return new ProgressorError(code, message, detail);
}

/** Returns the message of what was thrown, which may be anything. */
export function messageOf(thrown: unknown): string {
  try {
    return String((thrown as Error)?.message ?? thrown);
  } catch {
    return typeof thrown; // the error has no text
  }
}

/**
 * Thrown by handlers to reject a task, or to fail a job without a retry. A rejected task does not
 * change its process.
 */
export class Rejection extends Error {
  override name = "Rejection";
  /** @param reason a short, stable name for programs */
  constructor(readonly reason: string, message: string, readonly details?: api.Payload) {
    super(message);
  }
}

export interface FailureOptions extends ErrorOptions {
  /** The task or the job is not retried. */
  nonRetryable?: boolean;
  /** Milliseconds until the next attempt, instead of the backoff. */
  retryAfter?: number;
  details?: api.Json;
}

/** Thrown by handlers to fail an attempt with a reason. Any other error has the reason "error". */
export class Failure extends Error {
  override name = "Failure";
  /** @param reason a short, stable name for programs */
  constructor(readonly reason: string, message: string, readonly options: FailureOptions = {}) {
    super(message, options);
  }
}

/** Thrown by handlers of a worker to return a task without an answer. No attempt is counted. */
export class Release extends Error {
  override name = "Release";
  /** @param delay milliseconds until a worker can take the task again */
  constructor(readonly delay = 0) {
    super("the task was released");
  }
}

/** Why the signal of a handler was aborted. */
export class HandlerStopped extends Error {
  override name = "AbortError";
}

/** The job was cancelled. */
export class JobCancelled extends HandlerStopped {}

/** The lease was lost: another worker may have the task, or the task has ended. */
export class LeaseLost extends HandlerStopped {}

/** The worker stops: the task goes to another worker. */
export class WorkerStopped extends HandlerStopped {}

/** The attempt exceeded its timeout. */
export class AttemptTimeout extends HandlerStopped {}
