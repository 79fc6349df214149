import { copyOf, StepError } from "./journal.js";
/** Something that Ctx.first can wait for. */
export class Source {
    branch;
    id;
    /** @internal */
    constructor(branch, id) {
        this.branch = branch;
        this.id = id;
    }
    get journal() {
        return this.branch.run.journal;
    }
}
/** A timer that Ctx.after has set. */
export class Timer extends Source {
    name;
    /** @internal */
    constructor(branch, name) {
        super(branch, `timer ${name}`);
        this.name = name;
    }
    position = () => this.journal.position("fired", this.name);
    /** Waits until the timer has fired or was stopped. */
    wait() {
        const isOver = () => this.journal.has("fired", this.name) || this.journal.has("stopped", this.name);
        return this.branch.operation(() => this.branch.until(isOver));
    }
    /** Stops the timer. Returns true if it had not fired yet. */
    stop() {
        return this.branch.operation(async () => {
            if (this.journal.has("stopped", this.name))
                return true;
            if (this.journal.has("fired", this.name))
                return false;
            await this.branch.record({ k: "stopped", n: this.name });
            this.branch.run.unsetTimer(this.name);
            return true;
        });
    }
}
/** The calls that were accepted, in order. */
export class Queue extends Source {
    name;
    accept;
    /** @internal */
    taken = 0;
    /** @internal */
    constructor(branch, name, accept) {
        super(branch, `call ${name}`);
        this.name = name;
        this.accept = accept;
    }
    position = () => this.journal.call(this.name, this.taken);
    /** Waits for the next call, and returns its args. */
    next() {
        return this.branch.operation(async () => {
            await this.branch.until(() => this.position() !== undefined);
            const { v } = this.journal.entries[this.position()];
            this.taken++;
            return copyOf(v);
        });
    }
}
/** A child process that Ctx.child has started. */
export class Child extends Source {
    name;
    process;
    /** @internal */
    constructor(branch, name, process) {
        super(branch, `child ${name}`);
        this.name = name;
        this.process = process;
    }
    position = () => this.journal.position("ended", this.name);
    /** Waits until the child has ended for the first time, and returns its response. */
    get() {
        return this.branch.operation(async () => {
            await this.branch.until(() => this.journal.has("ended", this.name));
            const { v, e } = this.journal.find("ended", this.name);
            if (e)
                throw new StepError(`child ${this.name}`, e);
            return copyOf(v);
        });
    }
    /** Asks the child to end, and does not wait for this. */
    cancel(reason) {
        return this.branch.operation(async () => {
            if (this.journal.has("ended", this.name) || this.journal.has("cancel", this.name))
                return;
            await this.branch.record({ k: "cancel", n: this.name }, cancelOf(this.branch.run.process, this.process, reason));
        });
    }
}
export function cancelOf(parent, { namespace, processId }, reason) {
    return { cancel: { namespace: namespace === parent.namespace ? "" : namespace, processId, reason } };
}
/** Returns the child that an entry has started. */
export const childOf = ({ v }) => ({ namespace: v.namespace, processId: v.process_id });
