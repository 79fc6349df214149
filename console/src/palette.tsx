// What the command palette offers: pages, namespaces, and the actions of the page. search.tsx shows it.
import type { DescMethod } from "@bufbuild/protobuf";
import { createContext, useContext, useEffect, useId, useState, type ReactNode } from "react";
import { useMay } from "./may";

export interface Command {
  name: string;
  group: string;
  keys?: string;
  needs?: DescMethod; // the method that it calls, if it changes something
  run: () => void;
}

/** The commands that can be executed now, by the component that offers them. */
class Registry {
  private kept = new Map<string, Command[]>();
  private listeners = new Set<() => void>();
  private names = "";
  set(owner: string, list: Command[]): void {
    if (list.length) this.kept.set(owner, list);
    else this.kept.delete(owner);
    const names = this.all().map((c) => c.name).join("\n");
    if (names === this.names) return;
    this.names = names;
    for (const listener of this.listeners) listener();
  }
  all = (): Command[] => [...this.kept.values()].flat();
  version = (): string => this.names;
  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
}
export const Registered = createContext(new Registry());

export function Commands({ children }: { children: ReactNode }) {
  const [registry] = useState(() => new Registry());
  return <Registered.Provider value={registry}>{children}</Registered.Provider>;
}

/**
 * Offers the commands that the user may execute in the palette as long as the component is mounted.
 */
export function useCommands(list: Command[]): void {
  const may = useMay();
  const commands = list.filter((c) => !c.needs || may(c.needs));
  const registry = useContext(Registered);
  const owner = useId();
  useEffect(() => {
    registry.set(owner, commands);
    return () => registry.set(owner, []);
  });
}

/** Reports whether a command ends or deletes something. The palette lists these last. */
export const destroys = (name: string): boolean => /^(cancel|delete|discard|drain|end|erase|remove|revoke|rewind|stop)\b/i.test(name);
