import { BulkService, ChangeService, CronService, FlowService, InsightService, JobEventService, JobService, NamespaceService, ProcessService, WorkerService } from "./api.js";
import { type Payloads } from "./json.js";
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
/** The longest time that setTimeout supports, in milliseconds. With a longer time, setTimeout does not wait. */
export declare const maxTimer: number;
/**
 * A client of one engine, or of a load balancer in front of several. Requests that can have an
 * idempotency key (Start, Call, Enqueue, StartRun, …) get a random one, so that they can be sent
 * again after a lost response. Reads can also be sent again. Other requests are sent again only if
 * the engine reported that it stored nothing.
 */
export declare class Client {
    readonly url: string;
    private readonly sender;
    readonly process: ProcessService;
    readonly job: JobService;
    readonly flow: FlowService;
    readonly cron: CronService;
    readonly namespace: NamespaceService;
    readonly worker: WorkerService;
    readonly insight: InsightService;
    readonly bulk: BulkService;
    readonly change: ChangeService;
    readonly jobEvent: JobEventService;
    /** @internal */
    readonly options: ClientOptions;
    private readonly retry;
    private readonly token;
    /**
     * @param url such as "https://progressor.example.com". Without it, the client reads
     * PROGRESSOR_ADDRESS (default: http://127.0.0.1:8080), PROGRESSOR_TOKEN and PROGRESSOR_TOKEN_FILE.
     */
    constructor(url?: string, options?: ClientOptions);
    private send;
    /** @internal Sends the JSON of a request once. Returns the JSON of the response. */
    post(path: string, body: string, end: number, signal?: AbortSignal): Promise<any>;
    /** Returns the token, unless a signal is aborted first. */
    private readToken;
}
/** Returns the wait after an attempt, counted from 1, in milliseconds. */
export declare function interval(retry: Omit<Retry, "maxAttempts">, attempt: number): number;
