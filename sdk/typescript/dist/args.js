import { Rejection } from "./errors.js";
import { cut, maxValueBytes, parsed, sizeOf } from "./journal.js";
export const badArgs = (message) => new Rejection("bad_args", message);
/** Returns args as JSON. */
export function decoded(payload) {
    const value = parsed(payload);
    if (payload !== undefined && value === undefined)
        throw badArgs("the args are not JSON");
    return value;
}
/** Splits args such as {"pay":{"amount":200}}. The name is empty for {}, which only wakes the function. */
export function callOf(args) {
    const names = args instanceof Object && !Array.isArray(args) ? Object.keys(args) : undefined;
    const [name = ""] = names ?? [];
    if (!names || names.length > 1)
        throw badArgs('the args must be an object with one field, the name of the call, as in {"pay":{}}');
    if (names.length === 1 && !name)
        throw badArgs("the name of the call must not be empty");
    if (sizeOf(args) > maxValueBytes)
        throw badArgs("the args are too large");
    return [name, args[name]];
}
/** Returns the response of a child, or its error. */
export function outcomeOf({ status, response, detail = "", reason: why = "child_failed" }) {
    const failed = (reason, message) => ({ e: { reason: cut(reason), message: cut(message) } });
    const rejected = (reason, message) => ({ e: { ...failed(reason, message).e, rejected: true } });
    if (status === "PROCESS_STATUS_CANCELLED")
        return failed("child_cancelled", "the process was cancelled");
    if (status === "PROCESS_STATUS_ERROR")
        return failed(why, detail);
    if (status !== "PROCESS_STATUS_COMPLETED") { // the child was removed
        const [, reason, message] = /^rejected: (.*?)(?:: ([^]*))?$/.exec(detail) ?? [];
        if (reason !== undefined)
            return rejected(reason, message || reason);
        if (detail.startsWith("not started: "))
            return failed("child_failed", detail);
        if (response === undefined)
            return failed("child_removed", "the process was removed");
    }
    const v = parsed(response);
    if (response !== undefined && v === undefined)
        return failed("bad_value", "the response is not JSON");
    if (v?.k === "fail" && v.e?.rejected)
        return rejected(v.e.reason, v.e.message);
    if (sizeOf(v) <= maxValueBytes)
        return { v };
    return failed("bad_value", `the response has ${sizeOf(v)} bytes, at most ${maxValueBytes} are allowed`);
}
