// Formats times, durations and numbers.
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import { chosenTimes } from "./times";

export const millis = (t?: Timestamp): number | undefined => (t ? Number(t.seconds) * 1000 + t.nanos / 1e6 : undefined);
export const timestamp = (ms: number): Timestamp => ({ $typeName: "google.protobuf.Timestamp", seconds: BigInt(Math.floor(ms / 1000)), nanos: Math.round((ms - Math.floor(ms / 1000) * 1000) * 1e6) });
export const durationMillis = (d?: Duration): number | undefined => (d ? Number(d.seconds) * 1000 + d.nanos / 1e6 : undefined);
export const duration = (ms: number): Duration => ({ $typeName: "google.protobuf.Duration", seconds: BigInt(Math.trunc(ms / 1000)), nanos: Math.round((ms % 1000) * 1e6) });

const units: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
];

/** Formats a duration, such as 1.2 ms, 34 ms, 5.6 s, 2 min 3 s, 4 h 5 min, or 6 d 7 h. */
export function span(ms: number): string {
  if (ms <= 0) return "0 s";
  if (ms < 0.995) return `${ms.toFixed(2)} ms`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 59_500) return `${Math.round(ms / 1000)} s`;
  for (const [n, [size, name]] of units.entries()) {
    if (ms < size) continue;
    const [small, smallName] = units[n + 1] ?? [1000, "s"];
    const rest = Math.floor((ms % size) / small);
    const whole = `${Math.floor(ms / size)} ${name}`;
    return rest && ms < size * 100 ? `${whole} ${rest} ${smallName}` : whole;
  }
  return "1 min";
}

/**
 * Formats a time relative to now, such as 5 s ago, 3 min ago, 2 h 5 min ago, 6 d ago, or in 3 min 2
 * s. If a past time has minutes, its seconds are omitted.
 */
export function ago(ms: number, now: number): string {
  const past = now - ms;
  if (Math.abs(past) < 1000) return "now";
  if (past < 0) return `in ${span(-past).replace(/\.\d+/, "")}`;
  const [n = "", unit = "", ...rest] = span(past).replace(/\.\d+/, "").split(" ");
  return [n, unit, ...(unit === "min" || Number(n) > 9 ? [] : rest), "ago"].join(" ");
}

const pad = (n: number, width = 2) => String(n).padStart(width, "0");

/**
 * Formats a time, such as 2026-11-22 14:03:05.123, in the time zone of the browser or, if UTC was
 * chosen, in UTC with a Z.
 */
export function exact(ms: number, fraction = true): string {
  if (chosenTimes() === "utc") return `${new Date(ms).toISOString().slice(0, fraction ? 23 : 19).replace("T", " ")}Z`;
  const d = new Date(ms);
  const text = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return fraction ? `${text}.${pad(d.getMilliseconds(), 3)}` : text;
}

export const iso = (ms: number): string => new Date(ms).toISOString();

const numbers = new Intl.NumberFormat("en-US");
export const count = (n: bigint | number): string => numbers.format(n);
export const plural = (n: bigint | number, one: string, many = one + "s"): string => `${count(n)} ${Number(n) === 1 ? one : many}`;
export const rate = (n: number): string => (n === 0 ? "0" : n < 10 ? n.toFixed(1) : count(Math.round(n)));

/** Formats a duration for a form, without rounding. parseSpan is the inverse. */
export function typedSpan(ms: number): string {
  let text = "";
  let rest = ms;
  for (const [size, unit] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"]] as const) {
    const whole = Math.floor(rest / size);
    if (whole) text += `${whole}${unit}`;
    rest -= whole * size;
  }
  const least = Number(rest.toFixed(6)); // rounded to nanoseconds
  return least || !text ? `${text}${least}ms` : text;
}

/** Returns the error for the text of a whole number in a form, or "". An empty text is valid. */
export const wrongCount = (text: string): string => (/^\s*\d*\s*$/.test(text) ? "" : "must be a whole number, or empty");

/** Returns the error for the text of a whole number that may be negative, or "". */
export const wrongWhole = (text: string): string => (/^\s*(-?\d+)?\s*$/.test(text) ? "" : "must be a whole number, or empty");
/** Returns the error for the text of a number that may have a fraction, or "". */
export const wrongNumber = (text: string): string => (/^\s*(\d+(\.\d+)?)?\s*$/.test(text) ? "" : "must be a number, or empty");

/**
 * Parses durations such as 90s, 5m, 1h30m, 250ms and 2d. Returns undefined if the text is not a
 * duration.
 */
export function parseSpan(text: string): number | undefined {
  const sizes: Record<string, number> = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };
  const clean = text.replace(/\s+/g, "");
  if (!/^(\d+(\.\d+)?(ms|s|min|m|h|d))+$/.test(clean)) return undefined;
  let sum = 0;
  for (const [, number = "0", unit = "s"] of clean.matchAll(/(\d+(?:\.\d+)?)(ms|s|min|m|h|d)/g)) sum += Number(number) * (sizes[unit] ?? 0);
  return sum;
}
