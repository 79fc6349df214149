// Addresses have the form #/PAGE?name=value&…. They work under any path of a proxy, allow any character in process ids,
// and need no support in the engine.
import { useMemo, useSyncExternalStore } from "react";

export type Params = Record<string, string | undefined>;

export interface Route {
  page: string;
  params: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: path || "overview", params: new URLSearchParams(query) };
}

export function href(page: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== "") query.set(name, value);
  const text = query.toString();
  return `#/${page}${text && "?" + text}`;
}

export function go(page: string, params: Params = {}): void {
  location.hash = href(page, params);
}

/** Changes some parameters. The values undefined and "" remove a parameter. */
export function change(params: Params, how: "push" | "replace" = "push"): void {
  const now = parse(location.hash);
  const all: Params = { ...Object.fromEntries(now.params), ...params };
  const next = href(now.page, all);
  if (how === "push") location.hash = next;
  else {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

function subscribe(listener: () => void): () => void {
  addEventListener("hashchange", listener);
  return () => removeEventListener("hashchange", listener);
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(subscribe, () => location.hash);
  return useMemo(() => parse(hash), [hash]);
}

/** Returns a parameter of the address, or "". */
export function useParam(name: string): string {
  return useRoute().params.get(name) ?? "";
}
