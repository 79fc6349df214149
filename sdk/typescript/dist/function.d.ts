import { type Ctx } from "./durable.js";
import { type TaskHandlers } from "./processor.js";
/** A function that returns a Restart starts again, with this input and a new history. */
export declare class Restart {
    readonly input?: unknown;
    constructor(input?: unknown);
}
/** The current version of each change whose version a function reads with `version()`. */
export type Versions = {
    [change: string]: number;
};
/** Returns task handlers that run a durable function. Pass them to `processor` or to `Worker.processes`. */
export declare function func<In = any, Out = unknown>(name: string, f: (ctx: Ctx, input: In) => Promise<Out | Restart>, options?: {
    versions?: Versions;
}): TaskHandlers;
