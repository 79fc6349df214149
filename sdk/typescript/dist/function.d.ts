import { type Ctx } from "./durable.js";
import { type TaskHandlers } from "./processor.js";
/** A function that returns it starts again, with this input and a new history. */
export declare class Restart {
    readonly input?: unknown;
    constructor(input?: unknown);
}
/** The current version of each change that a function asks for with version. */
export type Versions = {
    [change: string]: number;
};
/** Returns the handlers of processes that run a durable function: for processor, and for Worker.processes. */
export declare function func<In = any, Out = unknown>(name: string, f: (ctx: Ctx, input: In) => Promise<Out | Restart>, options?: {
    versions?: Versions;
}): TaskHandlers;
