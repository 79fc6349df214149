import type { Lease, LeaseDirective, Progress } from "./api.js";
export declare const progressEvery = 1000;
export declare const now: () => number;
/** A lease, from the poll that returned it until its answer is settled. */
export declare class ActiveLease {
    readonly lease: Lease;
    readonly undecodable?: Error | undefined;
    readonly began: number;
    readonly ending: AbortController;
    expires: number;
    interval: number;
    lastBeat: number;
    progress: Progress | undefined;
    progressSent: number;
    answering: boolean;
    lost: boolean;
    lastEventId: number | undefined;
    uncertain: boolean;
    /** undecodable is what the handler would throw for a lease that cannot be decoded. */
    constructor(lease: Lease, undecodable?: Error | undefined);
    /** Converts a time of the engine's clock to the clock of now(). */
    localTime(time: string): number;
    /** Identifies the attempt in logs. */
    get name(): object;
}
/** Applies the response to a heartbeat. sent is the progress that the heartbeat contained. */
export declare function applyDirective(held: ActiveLease, directive: LeaseDirective, sent: Progress | undefined): void;
/** Ends the attempt of a lease that the worker no longer has. */
export declare function lose(held: ActiveLease, why: string): void;
