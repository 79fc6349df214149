import type { Failure as FailedAttempt, Json, JsonObject, Lease, Progress } from "./api.js";
import { type Client } from "./client.js";
import { type TaskHandlers } from "./processor.js";
/** The job that a handler runs. */
export interface Job {
    readonly namespace: string;
    readonly id: string;
    readonly name: string;
    readonly args: Json;
    /** The number of the attempt, counted from 1. */
    readonly attempt: number;
    /** Grows with every attempt, so that other systems can reject late ones. */
    readonly fencingToken: number;
    /** When this attempt times out, by the clock of this machine. */
    readonly deadline: Date;
    /** Aborted when the attempt is over. Its reason is JobCancelled, LeaseLost, WorkerStopped or AttemptTimeout. */
    readonly signal: AbortSignal;
    /** The progress that the last attempt reported. */
    readonly lastProgress: Progress | undefined;
    /** The failures of earlier attempts, oldest first. */
    readonly failures: FailedAttempt[];
    /** The lease, with everything that the engine sent. */
    readonly lease: Lease;
    /** Sets the progress, which the next heartbeat sends. percent is 0 to 100, and details are for the next attempt. */
    progress(percent: number, summary?: string, details?: JsonObject): void;
}
/** Runs a job. The return value is the result of the job. */
export type JobHandler<Args = any> = (args: Args, job: Job) => unknown;
/** How an attempt ended. "lost" means that the engine did not accept an answer. */
export type Outcome = "done" | "failed" | "cancelled" | "released" | "lost";
export interface Attempt {
    lease: Lease;
    outcome: Outcome;
    /** Milliseconds. */
    duration: number;
    /** What the handler threw, if anything. */
    error?: unknown;
}
export interface WorkerOptions {
    /** The default consists of the host, the process ID and a random part. */
    id?: string;
    /** How many tasks run at a time. The default is 10. */
    concurrency?: number;
    /** How long running handlers may continue after a stop, in milliseconds. The default is 30,000. */
    stopGrace?: number;
    /** The time without a heartbeat after which tasks go to another worker, in milliseconds. The default is that of the namespace. */
    leaseDuration?: number;
    /** The signals that stop the worker. The default is SIGTERM and SIGINT; [] for none. */
    signals?: NodeJS.Signals[];
    /** Receives messages for the operator. The default is console.error. */
    log?: (message: string, fields: object) => void;
    /** Called after every attempt. */
    ended?: (attempt: Attempt) => void;
}
/**
 * A worker leases tasks of namespaces whose processor is `pull`, runs them and sends their answers
 * and heartbeats. All its connections are outgoing.
 */
export declare class Worker {
    private readonly client;
    private readonly namespaces;
    private readonly options;
    readonly id: string;
    private readonly concurrency;
    private readonly log;
    private readonly ended;
    private readonly handlers;
    private others;
    private rest;
    private readonly stopping;
    private readonly held;
    private readonly running;
    private freed;
    private quiet;
    private beating;
    private beatFailed;
    private beatTimer;
    constructor(client: Client, namespaces: string[], options?: WorkerOptions);
    /** Registers the handler for jobs with the given name. */
    job<Args = any>(name: string, handler: JobHandler<Args>): this;
    /** Registers the handler for all other jobs. */
    jobs(handler: JobHandler): this;
    /** Registers the functions for the tasks of processes that are not jobs. */
    processes(handlers: TaskHandlers): this;
    /** Stops taking new tasks. run() returns when the running tasks have ended or been released. */
    stop(): void;
    /**
     * Runs tasks until the worker is stopped by stop(), by a signal or by an operator. A worker can run
     * only once. Rejects if the engine refuses the first poll, for example because a namespace is
     * missing.
     */
    run(): Promise<void>;
    private poll;
    /**
     * Sends a poll. If the worker stops, the engine ends the poll. The response may contain leases,
     * so it is awaited.
     */
    private pollOnce;
    private pollRequest;
    /** Applies the engine's directive to the whole worker. */
    private obey;
    /** Runs the task of a lease. The lease is decoded here, so that an undecodable lease does not affect others. */
    private start;
    /** Runs the task of a lease and removes the lease at the end. Does not throw. */
    private attempt;
    /** Runs the handler of a lease, sends its answer, and sets the outcome of the attempt. */
    private execute;
    /** Calls the handler of a lease. */
    private handle;
    /**
     * Stores events, state and metadata of an attempt. Returns whether the attempt should end soon. If
     * the engine does not answer, the attempt is over, because the checkpoint may have been
     * stored. Other errors mean that it was not stored.
     */
    private checkpoint;
    /** Sends an answer until the engine accepts or refuses it, or the lease has expired. */
    private complete;
    /** Sends the progress of an attempt that has failed or is released, so that the next attempt gets it. */
    private sendProgress;
    private release;
    /** Sets the timer of the next heartbeat. */
    private schedule;
    /** Sends one heartbeat for all leases, and applies the engine's directives. */
    private beat;
    /** Waits for the handlers, until the grace period ends. Then it aborts their signals and releases the rest. */
    private drain;
}
