import { AttemptTimeout, HandlerStopped, messageOf, Rejection, Failure } from "./errors.js";
import { decode, encode } from "./json.js";
import { verify } from "./signature.js";
const maxRequestBytes = 17 << 20; // the engine sends at most 16 MiB
/**
 * Returns a function for createServer of node:http. It serves a namespace with `--connect-url` and
 * `--encoding json`.
 */
export function processor(handlers, options = {}) {
    const { keys, payloads } = options;
    const log = harmless(options.log ?? console.error);
    const handle = async (request, signal) => {
        if (request.method !== "POST")
            return [405, "only POST is allowed"];
        const body = await read(request);
        if (!body)
            return [413, "the request is too large"];
        try {
            if (keys)
                verify(request.headers, body, keys);
        }
        catch (error) {
            return [401, error.message];
        }
        let task;
        try {
            task = decode("ProcessRequest", JSON.parse(body.toString()), payloads);
        }
        catch (error) {
            return [400, `the request is not a task in JSON: ${error.message}`];
        }
        return [200, JSON.stringify(encode("ProcessResponse", await runTask(handlers, task, { signal }, log)))];
    };
    return (request, response) => {
        const closed = new AbortController();
        response.once("close", () => closed.abort(new HandlerStopped("the engine closed the request")));
        handle(request, closed.signal)
            .catch((error) => {
            if (!closed.signal.aborted)
                log(error);
            return [200, JSON.stringify({ failure: failureOf(error) })];
        })
            .then(([status, text]) => {
            const type = status === 200 ? "application/json" : "text/plain; charset=utf-8";
            response.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(text) }).end(text);
        });
    };
}
/** Wraps a callback. If the callback throws or rejects, the error is written to the console. */
export function harmless(call) {
    const guarded = async (...args) => call(...args);
    return (...args) => void guarded(...args).catch((error) => console.error(error));
}
/** Returns the body of a request, or undefined if it is too large. */
async function read(request) {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
        if ((size += chunk.length) > maxRequestBytes)
            return undefined;
        chunks.push(chunk);
    }
    return Buffer.concat(chunks);
}
/** Calls the function for a task, and returns the response. Throws only errors that the aborted signal has caused. */
export async function runTask(handlers, task, context, log) {
    try {
        return { result: (await handlerOf(handlers, task)(task, context)) ?? {} };
    }
    catch (error) {
        if (!(error instanceof Rejection) && endedBy(error, context.signal))
            throw error;
        if (!(error instanceof Rejection || error instanceof Failure))
            log(error);
        return responseOf(error);
    }
}
function handlerOf(handlers, task) {
    const name = task.type?.replace("TASK_TYPE_", "").toLowerCase();
    const handler = handlers[name] ?? (name === "notify" ? handlers.call : undefined);
    if (handler)
        return handler;
    if (name === "cancel")
        return () => { };
    const message = `this processor does not handle ${task.type}`;
    if (name === "timeout")
        throw new Failure("not_handled", message, { nonRetryable: true });
    throw new Rejection("not_handled", message);
}
/** Returns why a signal was aborted if an error only says that it was. */
export function endedBy(error, signal) {
    if (!signal.aborted)
        return undefined;
    const { name, cause } = (error ?? {});
    return error === signal.reason || name === "AbortError" || cause === signal.reason ? signal.reason : undefined;
}
/** Returns the response to a task whose handler threw an error. */
export function responseOf(error) {
    if (!(error instanceof Rejection))
        return { failure: failureOf(error) };
    return { rejection: { reason: error.reason, message: wellFormed(error.message, maxMessage), details: error.details } };
}
export const maxMessage = 8 << 10;
/** Returns what is stored about an error that a handler threw. */
export function failureOf(error) {
    const message = wellFormed(messageOf(error), maxMessage);
    if (error instanceof AttemptTimeout)
        return { reason: "timeout", message };
    if (!(error instanceof Failure))
        return { reason: "error", message };
    const { nonRetryable, retryAfter, details } = error.options;
    return { reason: error.reason, message, nonRetryable, details, retryAfter: retryAfter === undefined ? undefined : duration(retryAfter) };
}
const maxDuration = 365 * 24 * 3600_000;
/** Returns the text that the API uses for a number of milliseconds, at most 365 days. */
export const duration = (milliseconds) => `${(Math.min(Math.max(0, milliseconds || 0), maxDuration) / 1000).toFixed(3)}s`;
/** Cuts a text, and replaces what the engine would refuse. */
export function wellFormed(text, maxBytes) {
    const bytes = Buffer.from(text.replaceAll("\0", "\ufffd")); // replaces lone surrogates
    return bytes.subarray(0, maxBytes).toString();
}
