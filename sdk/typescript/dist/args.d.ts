import type { ChildEnd, Payload } from "./api.js";
import { Rejection } from "./errors.js";
import { type Entry } from "./journal.js";
export declare const badArgs: (message: string) => Rejection;
/** Returns args as JSON. */
export declare function decoded(payload: Payload | undefined): any;
/** Splits args such as {"pay":{"amount":200}}. The name is empty for {}, which only wakes the function. */
export declare function callOf(args: any): [string, any];
/** Returns the response of a child, or its error. */
export declare function outcomeOf({ status, response, detail, reason: why }: ChildEnd): Pick<Entry, "v" | "e">;
