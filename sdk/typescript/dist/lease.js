import { JobCancelled, LeaseLost } from "./errors.js";
export const progressEvery = 1000;
export const now = () => performance.now();
/** A lease, from the poll that returned it until its answer is settled. */
export class ActiveLease {
    lease;
    undecodable;
    began = now();
    ending = new AbortController();
    expires;
    interval;
    lastBeat = this.began;
    progress; // not sent yet
    progressSent = -progressEvery;
    answering = false; // the handler has returned
    lost = false;
    lastEventId; // of the last checkpoint
    uncertain = false; // it is unknown whether the last checkpoint is stored
    /** undecodable is what the handler would throw for a lease that cannot be decoded. */
    constructor(lease, undecodable) {
        this.lease = lease;
        this.undecodable = undecodable;
        this.expires = this.localTime(lease.expiresTime);
        this.interval = milliseconds(lease.heartbeatInterval);
    }
    /** Converts a time of the engine's clock to the clock of now(). */
    localTime(time) {
        return this.began + Date.parse(time) - Date.parse(this.lease.leasedTime);
    }
    /** Identifies the attempt in logs. */
    get name() {
        const { namespace, request } = this.lease;
        return { namespace, processId: request?.process?.processId, taskId: request?.taskId, attempt: request?.attempt };
    }
}
/** Applies the response to a heartbeat. sent is the progress that the heartbeat contained. */
export function applyDirective(held, directive, sent) {
    held.lastBeat = now();
    if (sent) {
        held.progressSent = held.lastBeat;
        if (held.progress === sent)
            held.progress = undefined;
    }
    if (directive.directive === "DIRECTIVE_LOST") {
        // An answer in flight may already be stored. The response to it decides.
        if (!held.answering)
            lose(held, "another worker has the task, or it has ended");
        return;
    }
    if (directive.directive === "DIRECTIVE_CANCEL")
        held.ending.abort(new JobCancelled(directive.cancelReason || "the job was cancelled"));
    if (directive.expiresTime)
        held.expires = held.localTime(directive.expiresTime);
    if (directive.heartbeatInterval)
        held.interval = milliseconds(directive.heartbeatInterval);
}
/** Ends the attempt of a lease that the worker no longer has. */
export function lose(held, why) {
    held.lost = true;
    held.ending.abort(new LeaseLost(`the lease was lost: ${why}`));
}
/** Returns a duration of the API in milliseconds, at least 10. */
function milliseconds(text) {
    return Math.max(10, 1000 * Number.parseFloat(text ?? "10s"));
}
