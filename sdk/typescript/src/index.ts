export * as api from "./api.js";
export type { CallOptions, Json, JsonObject, Payload } from "./api.js";
export { Client, type ClientOptions, type Retry } from "./client.js";
export type { Ctx, StepContext, StepOptions } from "./durable.js";
export {
  AttemptTimeout, HandlerStopped, JobCancelled, LeaseLost, ProgressorError, Rejection, Release, TaskFailed, Failure,
  TaskRejected, WorkerStopped, type Code, type FailureOptions,
} from "./errors.js";
export { func, Restart, type Versions } from "./function.js";
export { StepError } from "./journal.js";
export type { Payloads } from "./json.js";
export {
  processor, type Checkpoint, type ProcessorOptions, type Task, type TaskContext, type TaskHandler, type TaskHandlers,
} from "./processor.js";
export type { Child, Queue, Source, Timer } from "./sources.js";
export { verify } from "./signature.js";
export { Worker, type Attempt, type Job, type JobHandler, type Outcome, type WorkerOptions } from "./worker.js";
