export * as api from "./api.js";
export { Client } from "./client.js";
export { AttemptTimeout, HandlerStopped, JobCancelled, LeaseLost, ProgressorError, Rejection, Release, TaskFailed, Failure, TaskRejected, WorkerStopped, } from "./errors.js";
export { func, Restart } from "./function.js";
export { StepError } from "./journal.js";
export { processor, } from "./processor.js";
export { verify } from "./signature.js";
export { Worker } from "./worker.js";
