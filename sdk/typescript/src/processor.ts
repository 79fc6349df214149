import type { IncomingMessage, RequestListener } from "node:http";
import type { ProcessRequest, ProcessResponse, Result } from "./api.js";
import { AttemptTimeout, HandlerStopped, messageOf, Rejection, Failure } from "./errors.js";
import { decode, encode, type Payloads } from "./json.js";
import { verify } from "./signature.js";

/** A task, with its process. Args and state are plain JSON. */
export type Task = ProcessRequest & { process: NonNullable<ProcessRequest["process"]> };

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
export interface TaskHandlers extends Partial<Record<"init" | "call" | "notify" | "timeout" | "repair" | "cancel", TaskHandler>> {}

export interface ProcessorOptions {
  /** Refuses requests that none of these keys has signed (see verify). */
  keys?: string[];
  /** Receives errors without a reason, whose message the caller gets. The default is console.error. */
  log?: (error: unknown) => void;
  payloads?: Payloads;
}

const maxRequestBytes = 17 << 20; // the engine sends at most 16 MiB

/**
 * Returns a function for createServer of node:http. It serves a namespace with `--connect-url` and
 * `--encoding json`.
 */
export function processor(handlers: TaskHandlers, options: ProcessorOptions = {}): RequestListener {
  const { keys, payloads } = options;
  const log = harmless(options.log ?? console.error);
  const handle = async (request: IncomingMessage, signal: AbortSignal): Promise<[number, string]> => {
    if (request.method !== "POST") return [405, "only POST is allowed"];
    const body = await read(request);
    if (!body) return [413, "the request is too large"];
    try {
      if (keys) verify(request.headers, body, keys);
    } catch (error) {
      return [401, (error as Error).message];
    }
    let task: Task;
    try {
      task = decode("ProcessRequest", JSON.parse(body.toString()), payloads);
    } catch (error) {
      return [400, `the request is not a task in JSON: ${(error as Error).message}`];
    }
    return [200, JSON.stringify(encode("ProcessResponse", await runTask(handlers, task, { signal }, log)))];
  };
  return (request, response) => {
    const closed = new AbortController();
    response.once("close", () => closed.abort(new HandlerStopped("the engine closed the request")));
    handle(request, closed.signal)
      .catch((error): [number, string] => {
        if (!closed.signal.aborted) log(error);
        return [200, JSON.stringify({ failure: failureOf(error) })];
      })
      .then(([status, text]) => {
        const type = status === 200 ? "application/json" : "text/plain; charset=utf-8";
        response.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(text) }).end(text);
      });
  };
}

/** Wraps a callback. If the callback throws or rejects, the error is written to the console. */
export function harmless<Args extends unknown[]>(call: (...args: Args) => unknown): (...args: Args) => void {
  const guarded = async (...args: Args) => call(...args);
  return (...args) => void guarded(...args).catch((error) => console.error(error));
}

/** Returns the body of a request, or undefined if it is too large. */
async function read(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    if ((size += chunk.length) > maxRequestBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Calls the function for a task, and returns the response. Throws only errors that the aborted signal has caused. */
export async function runTask(
  handlers: TaskHandlers, task: Task, context: TaskContext, log: (error: unknown) => void,
): Promise<ProcessResponse> {
  try {
    return { result: (await handlerOf(handlers, task)(task, context)) ?? {} };
  } catch (error) {
    if (!(error instanceof Rejection) && endedBy(error, context.signal)) throw error;
    if (!(error instanceof Rejection || error instanceof Failure)) log(error);
    return responseOf(error);
  }
}

function handlerOf(handlers: TaskHandlers, task: Task): TaskHandler {
  const name = task.type?.replace("TASK_TYPE_", "").toLowerCase() as keyof TaskHandlers;
  const handler = handlers[name] ?? (name === "notify" ? handlers.call : undefined);
  if (handler) return handler;
  if (name === "cancel") return () => {};
  const message = `this processor does not handle ${task.type}`;
  if (name === "timeout") throw new Failure("not_handled", message, { nonRetryable: true });
  throw new Rejection("not_handled", message);
}

/** Returns why a signal was aborted if an error only says that it was. */
export function endedBy(error: unknown, signal: AbortSignal): HandlerStopped | undefined {
  if (!signal.aborted) return undefined;
  const { name, cause } = (error ?? {}) as Error;
  return error === signal.reason || name === "AbortError" || cause === signal.reason ? signal.reason : undefined;
}

/** Returns the response to a task whose handler threw an error. */
export function responseOf(error: unknown): ProcessResponse {
  if (!(error instanceof Rejection)) return { failure: failureOf(error) };
  return { rejection: { reason: error.reason, message: wellFormed(error.message, maxMessage), details: error.details } };
}

export const maxMessage = 8 << 10;

/** Returns what is stored about an error that a handler threw. */
export function failureOf(error: unknown): NonNullable<ProcessResponse["failure"]> {
  const message = wellFormed(messageOf(error), maxMessage);
  if (error instanceof AttemptTimeout) return { reason: "timeout", message };
  if (!(error instanceof Failure)) return { reason: "error", message };
  const { nonRetryable, retryAfter, details } = error.options;
  return { reason: error.reason, message, nonRetryable, details, retryAfter: retryAfter === undefined ? undefined : duration(retryAfter) };
}

const maxDuration = 365 * 24 * 3600_000;

/** Returns the text that the API uses for a number of milliseconds, at most 365 days. */
export const duration = (milliseconds: number) => `${(Math.min(Math.max(0, milliseconds || 0), maxDuration) / 1000).toFixed(3)}s`;

/** Cuts a text, and replaces what the engine would refuse. */
export function wellFormed(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text.replaceAll("\0", "\ufffd")); // replaces lone surrogates
  return bytes.subarray(0, maxBytes).toString();
}
