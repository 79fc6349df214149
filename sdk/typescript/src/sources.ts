import type { Command, Process } from "./api.js";
import type { Branch } from "./durable.js";
import { copyOf, StepError, type Journal } from "./journal.js";

/** Something that Ctx.first can wait for. */
export abstract class Source {
  /** @internal */
  constructor(readonly branch: Branch, readonly id: string) {}

  /** @internal Returns the position of its entry in the journal. */
  abstract readonly position: () => number | undefined;

  protected get journal(): Journal {
    return this.branch.run.journal;
  }
}

/** A timer that Ctx.after has set. */
export class Timer extends Source {
  /** @internal */
  constructor(branch: Branch, private readonly name: string) {
    super(branch, `timer ${name}`);
  }

  override readonly position = () => this.journal.position("fired", this.name);

  /** Waits until the timer has fired or was stopped. */
  wait(): Promise<void> {
    const isOver = () => this.journal.has("fired", this.name) || this.journal.has("stopped", this.name);
    return this.branch.operation(() => this.branch.until(isOver));
  }

  /** Stops the timer. Returns true if it had not fired yet. */
  stop(): Promise<boolean> {
    return this.branch.operation(async () => {
      if (this.journal.has("stopped", this.name)) return true;
      if (this.journal.has("fired", this.name)) return false;
      await this.branch.record({ k: "stopped", n: this.name });
      this.branch.run.unsetTimer(this.name);
      return true;
    });
  }
}

/** The calls that were accepted, in order. */
export class Queue<Args> extends Source {
  /** @internal */
  taken = 0;
  /** @internal */
  constructor(branch: Branch, private readonly name: string, readonly accept?: (args: Args) => unknown) {
    super(branch, `call ${name}`);
  }

  override readonly position = () => this.journal.call(this.name, this.taken);

  /** Waits for the next call, and returns its args. */
  next(): Promise<Args> {
    return this.branch.operation(async () => {
      await this.branch.until(() => this.position() !== undefined);
      const { v } = this.journal.entries[this.position()!]!;
      this.taken++;
      return copyOf(v);
    });
  }
}

export interface ProcessKey { namespace: string; processId: string }

/** A child process that Ctx.child has started. */
export class Child<Response> extends Source {
  /** @internal */
  constructor(branch: Branch, private readonly name: string, readonly process: ProcessKey) {
    super(branch, `child ${name}`);
  }

  override readonly position = () => this.journal.position("ended", this.name);

  /** Waits until the child has ended for the first time, and returns its response. */
  get(): Promise<Response> {
    return this.branch.operation(async () => {
      await this.branch.until(() => this.journal.has("ended", this.name));
      const { v, e } = this.journal.find("ended", this.name)!;
      if (e) throw new StepError(`child ${this.name}`, e);
      return copyOf(v);
    });
  }

  /** Asks the child to end, and does not wait for this. */
  cancel(reason: string): Promise<void> {
    return this.branch.operation(async () => {
      if (this.journal.has("ended", this.name) || this.journal.has("cancel", this.name)) return;
      await this.branch.record({ k: "cancel", n: this.name }, cancelOf(this.branch.run.process, this.process, reason));
    });
  }
}

export function cancelOf(parent: Process, { namespace, processId }: ProcessKey, reason: string): Command {
  return { cancel: { namespace: namespace === parent.namespace ? "" : namespace, processId, reason } };
}

/** Returns the child that an entry has started. */
export const childOf = ({ v }: { v?: any }): ProcessKey => ({ namespace: v.namespace, processId: v.process_id });
