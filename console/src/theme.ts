// The theme, light or dark. It is the setting of the system, unless one was chosen here.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const name = "progressor.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function chosen(): Theme {
  const text = localStorage.getItem(name);
  return text === "light" || text === "dark" ? text : "system";
}

function apply(): void {
  document.documentElement.dataset.theme = shown();
  for (const listener of listeners) listener();
}

export function choose(theme: Theme): void {
  if (theme === "system") localStorage.removeItem(name);
  else localStorage.setItem(name, theme);
  apply();
}

const shown = (): "light" | "dark" => {
  const c = chosen();
  return c === "system" ? (dark.matches ? "dark" : "light") : c;
};

dark.addEventListener("change", apply);
apply();

/** Returns the current theme. */
export function useTheme(): "light" | "dark" {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, shown);
}
