import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import {
  BulkService, ChangeService, CronService, FlowService, InsightService, JobEventService, JobService, NamespaceService,
  ProcessService, WorkerService, type CallOptions, type Method, type Send,
} from "./api.js";
import { errorOf, messageOf, ProgressorError } from "./errors.js";
import { decode, encode, jsonOf, type Payloads } from "./json.js";
import { version } from "./version.js";

/**
 * How requests are retried if the engine is unavailable or overloaded, or a connection breaks. The
 * wait before attempt n is a random time from 50% to 100% of min(initial * 2^(n-2), max).
 */
export interface Retry {
  /** Includes the first attempt. */
  maxAttempts: number;
  /** Milliseconds. */
  initial: number;
  /** Milliseconds. */
  max: number;
}

export interface ClientOptions {
  /**
   * Sent as `Authorization: Bearer`. A function is called for each request. If it throws, the request
   * fails with the code "unauthenticated".
   */
  token?: string | (() => string | Promise<string>);
  /** A file with the token. It is read again every 10 s. */
  tokenFile?: string;
  /** Milliseconds for a request, including its retries. The default is 60,000. */
  timeout?: number;
  /** The default is 10 attempts, 50 ms to 2 s apart. They take about 9 s. */
  retry?: Partial<Retry>;
  /** If false, requests without an idempotency key do not get one, and are not sent again. */
  autoKeys?: boolean;
  /** With "bytes", payloads of processes are not decoded. Use it for payloads that are not JSON. */
  payloads?: Payloads;
  /** Replaces the fetch of Node, for example for a proxy or a client certificate. */
  fetch?: typeof fetch;
}

// How much longer than its timeout a request waits for a response that reports its outcome.
const timeoutMargin = 500;
const tokenFileTime = 10_000;

/** The longest time that setTimeout supports, in milliseconds. With a longer time, setTimeout does not wait. */
export const maxTimer = 2 ** 31 - 1;

/**
 * A client of one engine, or of a load balancer in front of several. Requests that can have an
 * idempotency key (Start, Call, Enqueue, StartRun, …) get a random one, so that they can be sent
 * again after a lost response. Reads can also be sent again. Other requests are sent again only if
 * the engine reported that it stored nothing.
 */
export class Client {
  readonly url: string;
  private readonly sender: Send = (method, request, call) => this.send(method, request, call);
  readonly process = new ProcessService(this.sender);
  readonly job = new JobService(this.sender);
  readonly flow = new FlowService(this.sender);
  readonly cron = new CronService(this.sender);
  readonly namespace = new NamespaceService(this.sender);
  readonly worker = new WorkerService(this.sender);
  readonly insight = new InsightService(this.sender);
  readonly bulk = new BulkService(this.sender);
  readonly change = new ChangeService(this.sender);
  readonly jobEvent = new JobEventService(this.sender);
  /** @internal */
  readonly options: ClientOptions;
  private readonly retry: Retry;
  private readonly token: (() => string | Promise<string>) | undefined;

  /**
   * @param url such as "https://progressor.example.com". Without it, the client reads
   * PROGRESSOR_ADDRESS (default: http://127.0.0.1:8080), PROGRESSOR_TOKEN and PROGRESSOR_TOKEN_FILE.
   */
  constructor(url?: string, options: ClientOptions = {}) {
    if (!url) {
      const { PROGRESSOR_ADDRESS, PROGRESSOR_TOKEN, PROGRESSOR_TOKEN_FILE } = process.env;
      url = PROGRESSOR_ADDRESS || "http://127.0.0.1:8080";
      if (options.token === undefined && options.tokenFile === undefined) {
        options = { ...options, token: PROGRESSOR_TOKEN || undefined, tokenFile: PROGRESSOR_TOKEN_FILE || undefined };
      }
    }
    if (!/^https?:\/\//.test(url)) throw new TypeError(`url: must begin with http:// or https:// (got ${url})`);
    this.url = url.replace(/\/+$/, "");
    this.options = options;
    this.retry = { maxAttempts: 10, initial: 50, max: 2000, ...options.retry };
    const { token, tokenFile } = options;
    if (token !== undefined) this.token = typeof token === "string" ? () => token : token;
    else if (tokenFile !== undefined) this.token = tokenOfFile(tokenFile);
  }

  private async send(method: Method, request: any, call: CallOptions = {}): Promise<any> {
    if (method.repeat === "key" && this.options.autoKeys !== false && !request.idempotencyKey) {
      request = { ...request, idempotencyKey: newKey() };
      // The IDs that the engine derives from keys grow with time, except those of runs.
      if (method.path === "FlowService/StartRun" && !request.runId && !request.validateOnly) request.runId = request.idempotencyKey;
    }
    const safe = method.repeat === "always" || (method.repeat === "key" && Boolean(request.idempotencyKey));
    const body = JSON.stringify(encode(method.request, request));
    const end = performance.now() + (call.timeout ?? this.options.timeout ?? 60_000);
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await this.post(method.path, body, end, call.signal);
        return decode(method.response, response, this.options.payloads);
      } catch (error) {
        const wait = interval(this.retry, attempt);
        const last = attempt >= (call.maxAttempts ?? this.retry.maxAttempts) || performance.now() + wait >= end;
        if (last || !isRepeatable(error, safe)) throw error;
        await sleep(wait, undefined, { signal: call.signal }).catch(() => {
          throw call.signal!.reason;
        });
      }
    }
  }

  /** @internal Sends the JSON of a request once. Returns the JSON of the response. */
  async post(path: string, body: string, end: number, signal?: AbortSignal): Promise<any> {
    signal?.throwIfAborted();
    const headers: Record<string, string> = {
      "Content-Type": "application/json", "Connect-Protocol-Version": "1", "User-Agent": `progressor-node/${version}`,
    };
    const left = () => Math.min(Math.max(1, Math.ceil(end - performance.now())), maxTimer - timeoutMargin);
    // AbortSignal.any keeps memory for each request while the signal of a worker lives.
    const ending = new AbortController();
    const abort = () => ending.abort(signal!.reason);
    signal?.addEventListener("abort", abort);
    let awaited = "token";
    const expire = () => ending.abort(new ProgressorError("deadline_exceeded", `${path}: no ${awaited} within the timeout`));
    const timer = setTimeout(expire, left() + timeoutMargin);
    try {
      if (this.token) headers.Authorization = `Bearer ${await this.readToken(this.token, ending.signal)}`;
      awaited = "response";
      headers["Connect-Timeout-Ms"] = String(left());
      const request = { method: "POST", headers, body, signal: ending.signal, redirect: "manual" } as const;
      const response = await (this.options.fetch ?? fetch)(`${this.url}/progressor.v1.${path}`, request);
      const text = await response.text();
      if (!response.ok) throw errorOf(response.status, text, (detail) => decode("ErrorDetail", detail, this.options.payloads));
      const value = jsonOf(text);
      if (value instanceof Object) return value;
      throw new ProgressorError("unknown", `${this.url} did not send JSON: is it the address of an engine?`);
    } catch (error) {
      if (error instanceof ProgressorError) throw error;
      if (ending.signal.aborted) throw ending.signal.reason;
      const { code, message } = ((error as Error).cause ?? error) as NodeJS.ErrnoException;
      throw new ProgressorError("unavailable", `no response from ${this.url}: ${message || code}`, {}, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Returns the token, unless a signal is aborted first. */
  private async readToken(read: () => string | Promise<string>, signal: AbortSignal): Promise<string> {
    const aborted = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    try {
      const token = await Promise.race([read(), aborted]);
      if (typeof token !== "string" || !/^[!-~]*$/.test(token)) throw new Error("it must be a string of printable ASCII characters");
      return token;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw new ProgressorError("unauthenticated", `there is no token: ${messageOf(error)}`, {}, { cause: error });
    }
  }
}

/** Returns the wait after an attempt, counted from 1, in milliseconds. */
export function interval(retry: Omit<Retry, "maxAttempts">, attempt: number): number {
  return Math.min(retry.initial * 2 ** (attempt - 1), retry.max, maxTimer) * (0.5 + Math.random() / 2);
}

/** Returns a UUIDv7. The IDs that the engine derives from such keys grow with time. */
function newKey(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** Reports whether another attempt may succeed and does no harm. */
function isRepeatable(error: unknown, safe: boolean): boolean {
  if (!(error instanceof ProgressorError)) return false;
  // Without a reason, resource_exhausted means that the message is too large.
  return error.reason === "REASON_OVERLOADED" || (safe && error.code === "unavailable");
}

function tokenOfFile(path: string): () => Promise<string> {
  let last: { token: Promise<string>; time: number } | undefined;
  const read = async () => {
    const token = (await readFile(path, "utf8")).trim();
    if (!token || /[\r\n]/.test(token)) throw new Error(`token file ${path}: must contain one token`);
    return token;
  };
  return () => {
    if (!last || performance.now() - last.time >= tokenFileTime) last = { token: read(), time: performance.now() };
    last.token.catch(() => (last = undefined)); // the next request reads the file again
    return last.token;
  };
}
