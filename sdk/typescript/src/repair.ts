import { badArgs } from "./args.js";
import { maxName, type Run } from "./durable.js";
import { maxValueBytes, operationOf, sizeOf, type Entry, type Journal } from "./journal.js";

const maxRepaired = 100; // names in a repair, and in its response
const rewindable = ["step", "try", "value", "timer", "child", "first"];
const maxRepairName = maxName + "timer:".length; // bytes of a name with its kind

/** A repair by step. */
export type StepRepair = { skip: string[]; set: Map<string, any>; rewind: string[] };

const isObject = (value: any) => value instanceof Object && !Array.isArray(value);
const areNames = (value: any) => Array.isArray(value) && value.every((name) => typeof name === "string");

/** Reports whether args request a repair by step, such as {"durable_repair":{"skip":["reserve"]}}. */
export const isByStep = (args: any) => isObject(args) && Object.keys(args).join() === "durable_repair";

/** Decodes the request of a repair by step. */
export function repairOf(request: any): StepRepair {
  if (!isObject(request)) throw badArgs('durable_repair: must be an object such as {"skip":["a"],"set":{"b":1},"rewind":["c"]}');
  for (const field of Object.keys(request).sort()) {
    const [value, isSet] = [request[field], field === "set"];
    if (!["skip", "set", "rewind"].includes(field)) throw badArgs("durable_repair: must have no fields other than skip, set and rewind");
    if (isSet && !isObject(value)) throw badArgs('durable_repair.set: must be an object such as {"b":1}');
    if (!isSet && !areNames(value)) throw badArgs(`durable_repair.${field}: must be a list of names such as ["a"]`);
  }
  const { skip = [], set = {}, rewind = [] } = request;
  const values = new Map<string, any>(Object.entries(set).sort(([a], [b]) => (a < b ? -1 : 1)));
  const names = skip.length + values.size + rewind.length;
  if (names === 0) throw badArgs("durable_repair: must name a step");
  if (names > maxRepaired) throw badArgs(`durable_repair: must name at most ${maxRepaired} steps (got ${names})`);
  for (const bytes of [...skip, ...values.keys(), ...rewind].map((name) => Buffer.byteLength(name))) {
    if (bytes > maxRepairName) throw badArgs(`durable_repair: a name has ${bytes} bytes, at most ${maxRepairName} are allowed`);
  }
  const both = skip.find((name: string) => values.has(name));
  if (both !== undefined) throw badArgs(`durable_repair.set: step ${both} cannot be both skipped and set`);
  const large = [...values].find(([, value]) => sizeOf(value) > maxValueBytes);
  if (large) throw badArgs(`durable_repair.set: the value of step ${large[0]} has ${sizeOf(large[1])} bytes, at most ${maxValueBytes} are allowed`);
  return { skip, set: values, rewind };
}

/** Returns the value of the entry of a repair. */
export function recordOf({ skip, set, rewind }: StepRepair, forget: number[]): any {
  const lists = Object.entries({ skip, set: [...set.keys()], rewind, forget });
  return Object.fromEntries(lists.filter(([, list]) => list.length > 0));
}

/**
 * Returns the indexes of the entries that a repair forgets, in order. The run contains the order of
 * the operations.
 */
export function toForget(journal: Journal, { skip, set, rewind }: StepRepair, order: Run): number[] {
  const { entries } = journal;
  const marked = new Set<number>();
  for (const name of rewind) markAfter(journal, rewindTo(entries, name), order, marked);
  const failed = journal.position("fail", journal.start.n);
  if (failed !== undefined) revive(journal, failed, marked);
  for (const [at, { k, n, e, skipped }] of entries.entries()) {
    if (k !== "step" || marked.has(at) || !(skip.includes(n) || set.has(n))) continue;
    if (!e && !skipped && skip.includes(n)) throw badArgs(`durable_repair.skip: step ${n} has completed and cannot be skipped: set its value, or rewind it`);
    marked.add(at);
  }
  for (const [at, { k, n }] of entries.entries()) { // a step that runs again must be undone again
    if (k === "undo" && marked.has(journal.position("step", n) ?? -1)) marked.add(at);
  }
  return [...marked].sort((a, b) => a - b);
}

/**
 * Returns the index of the first entry of the operation that a name of rewind means: KIND:NAME, the step with this name, or
 * the only other operation with this name.
 */
function rewindTo(entries: Entry[], text: string): number {
  const [, prefix, name] = /^(?:([^:]*):)?([^]*)$/.exec(text)!;
  const refused = (why: string) => badArgs(`durable_repair.rewind: ${why}`);
  if (prefix !== undefined && !rewindable.includes(prefix)) throw refused(`${text}: the kind must be step, value, timer, child or first`);
  const kind = prefix && operationOf(prefix);
  const known = entries.filter(({ k }) => rewindable.includes(k) && (!kind || operationOf(k) === kind));
  const found = [...new Set(known.filter(({ n }) => n === name).map(({ k }) => operationOf(k)))];
  const of = found.includes("step") ? "step" : found[0];
  if (!of) throw refused(`the journal has no ${kind ?? "entry"} ${name} to rewind to: ${nearest(name!, known.map(({ n }) => n))}`);
  const names = found.map((each) => `${each}:${name}`).join(" or ");
  if (of !== "step" && found.length > 1) throw refused(`the journal has several entries ${name}: name one of them as ${names}`);
  return entries.findIndex(({ k, n }) => n === name && operationOf(k) === of);
}

/**
 * Marks an entry and what the function did afterwards. It marks neither calls nor the events of
 * timers and children that are kept.
 */
function markAfter(journal: Journal, first: number, order: Run, marked: Set<number>): void {
  const { entries } = journal;
  const scope = scopeOf(entries[first]!.n);
  const place = (at: number) => order.placeOf(entries[at]!) * entries.length + at;
  const isMarked = (kind: "timer" | "child", name: string) => marked.has(journal.position(kind, name) ?? -1);
  for (const [at, { k, n }] of entries.entries()) {
    const again = rewindable.includes(k) ? place(at) >= place(first) && !areSiblings(scope, scopeOf(n))
      : k === "fired" || k === "stopped" ? isMarked("timer", n)
        : k === "ended" || k === "cancel" ? isMarked("child", n) : k === "fail" || k === "end";
    if (again) marked.add(at);
  }
}

/** Marks the end of a function that has failed, with the steps that were undone and the children that were cancelled. */
function revive(journal: Journal, failed: number, marked: Set<number>): void {
  marked.add(failed);
  const [steps, children] = [new Set<string>(), new Set<string>()];
  for (const { k, n } of journal.entries.slice(failed)) {
    if (k === "undo") steps.add(n);
    const ended = k === "cancel" ? journal.find("ended", n) : undefined;
    if (k === "cancel" && (!ended || ended.e?.reason === "child_cancelled")) children.add(n);
  }
  for (const [at, { k, n }] of journal.entries.entries()) {
    if (["step", "try", "undo"].includes(k) && steps.has(n)) marked.add(at);
    if (["child", "ended", "cancel"].includes(k) && children.has(n)) marked.add(at);
  }
}

/** Returns the scope of a full name, such as "parcel[1]/". */
const scopeOf = (name: string) => name.slice(0, name.lastIndexOf("/") + 1);

/** Reports whether two scopes are in different branches of the same each: neither depends on the other. */
function areSiblings(a: string, b: string): boolean {
  const [as, bs] = [a.split("/"), b.split("/")];
  const at = as.findIndex((branch, i) => branch !== bs[i]);
  const [one, other] = [as[at], bs[at]];
  return Boolean(one && other) && one!.slice(0, one!.lastIndexOf("[")) === other!.slice(0, other!.lastIndexOf("["));
}

/** Returns some names for a message. */
export function nearest(name: string, names: string[]): string {
  const known = [...new Set(names)].sort();
  if (known.length === 0) return "there are none yet";
  const common = (other: string) => [...name].filter((letter, i) => other[i] === letter).length;
  if (known.length <= 5) return `the names are ${known.join(", ")}`;
  return `similar names are ${known.sort((a, b) => common(b) - common(a)).slice(0, 5).join(", ")}`;
}

/** Returns the response of a repair: what the journal has forgotten. */
export function responseOf(entries: Entry[], forget: number[]): { forgotten: string[] } {
  const names = forget.slice(0, maxRepaired).map((at) => `${entries[at]!.k} ${entries[at]!.n}`);
  return { forgotten: forget.length > maxRepaired ? [...names, "…"] : names };
}
