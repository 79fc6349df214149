// How times are shown: relative to now, in the time zone of the browser, or in UTC. The choice is stored in the browser.
import { useSyncExternalStore } from "react";

export type Times = "relative" | "local" | "utc";
export const allTimes: [Times, string][] = [
  ["relative", "Relative times"],
  ["local", "Local times"],
  ["utc", "UTC times"],
];

const name = "progressor.times";
const listeners = new Set<() => void>();
const stored = localStorage.getItem(name);
let chosen: Times = stored === "local" || stored === "utc" ? stored : "relative";

export const chosenTimes = (): Times => chosen;

export function chooseTimes(times: Times): void {
  chosen = times;
  localStorage.setItem(name, times);
  for (const listener of listeners) listener();
}

/** Returns how times are shown. The component is drawn again when that changes. */
export const useTimes = (): Times =>
  useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, chosenTimes);

export const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The name of the time zone in which times are shown. */
export const zoneName = (): string => (chosen === "utc" ? "UTC" : browserZone);
