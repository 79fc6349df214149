// Saved views of the list of processes, kept in this browser.
import { useSyncExternalStore } from "react";

export interface View {
  name: string;
  filter: string;
  order?: string;
}

const key = "progressor.views";
export const givenViews: View[] = [
  { name: "All", filter: "" },
  { name: "In error", filter: "status = ERROR", order: "status_changed_time desc" },
  { name: "Suspended", filter: "status = SUSPENDED", order: "status_changed_time desc" },
  { name: "Running", filter: "status = RUNNING" },
];

let text = "";
let views: View[] = [];
const listeners = new Set<() => void>();

function load(): View[] {
  const stored = localStorage.getItem(key) ?? "[]";
  if (stored !== text) {
    text = stored;
    try {
      const list: unknown = JSON.parse(stored);
      views = Array.isArray(list) ? list.filter((v): v is View => typeof v?.name === "string" && typeof v?.filter === "string") : [];
    } catch {
      views = [];
    }
  }
  return views;
}

function store(list: View[]): void {
  localStorage.setItem(key, JSON.stringify(list));
  for (const listener of listeners) listener();
}

export const saveView = (view: View) => store([...load().filter((v) => v.name !== view.name), view]);
export const dropView = (name: string) => store(load().filter((v) => v.name !== name));
export const useViews = () =>
  useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, load);
