import { type Run } from "./durable.js";
import { type Entry, type Journal } from "./journal.js";
/** A repair by step. */
export type StepRepair = {
    skip: string[];
    set: Map<string, any>;
    rewind: string[];
};
/** Reports whether args request a repair by step, such as {"durable_repair":{"skip":["reserve"]}}. */
export declare const isByStep: (args: any) => boolean;
/** Decodes the request of a repair by step. */
export declare function repairOf(request: any): StepRepair;
/** Returns the value of the entry of a repair. */
export declare function recordOf({ skip, set, rewind }: StepRepair, forget: number[]): any;
/**
 * Returns the indexes of the entries that a repair forgets, in order. The run contains the order of
 * the operations.
 */
export declare function toForget(journal: Journal, { skip, set, rewind }: StepRepair, order: Run): number[];
/** Returns some names for a message. */
export declare function nearest(name: string, names: string[]): string;
/** Returns the response of a repair: what the journal has forgotten. */
export declare function responseOf(entries: Entry[], forget: number[]): {
    forgotten: string[];
};
