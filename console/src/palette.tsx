// The command palette: every page, every namespace, every action of the page that is open, by its name.
import type { DescMethod } from "@bufbuild/protobuf";
import { createContext, useContext, useEffect, useId, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";
import { useMay } from "./may";
import { Dialog } from "./ui";

export interface Command {
  name: string;
  group: string;
  keys?: string;
  needs?: DescMethod; // the method that it calls, if it changes something
  run: () => void;
}

/** What can be done now, by who offers it. */
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
const Context = createContext(new Registry());

export function Commands({ children }: { children: ReactNode }) {
  const [registry] = useState(() => new Registry());
  return <Context.Provider value={registry}>{children}</Context.Provider>;
}

/** Offers the commands that the user may execute in the palette as long as the component is there. */
export function useCommands(list: Command[]): void {
  const may = useMay();
  const commands = list.filter((c) => !c.needs || may(c.needs));
  const registry = useContext(Context);
  const owner = useId();
  useEffect(() => {
    registry.set(owner, commands);
    return () => registry.set(owner, []);
  });
}

/** How well a name fits what was typed: all letters in their order, best at the beginnings of words; 0: not at all. */
export function fits(name: string, typed: string): number {
  const text = name.toLowerCase();
  let at = 0;
  let score = 1;
  for (const c of typed.toLowerCase().replace(/\s+/g, "")) {
    const found = text.indexOf(c, at);
    if (found < 0) return 0;
    score += found === at ? 3 : 0;
    score += found === 0 || /[\s/.:-]/.test(text.charAt(found - 1)) ? 5 : 0;
    score -= Math.min(found - at, 10) / 10;
    at = found + 1;
  }
  return Math.max(score, 0.01) + (text.startsWith(typed.toLowerCase()) ? 50 : text.includes(typed.toLowerCase()) ? 20 : 0);
}

export function Palette({ onClose, more }: { onClose: () => void; more: (typed: string) => Command[] }) {
  const registry = useContext(Context);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  const version = useSyncExternalStore(registry.subscribe, registry.version);
  const found = useMemo(() => {
    const scored = registry.all().map((c) => ({ c, score: typed.trim() ? fits(`${c.name} ${c.group}`, typed.trim()) : 1 }));
    const some = scored.filter((s) => s.score > 0);
    if (typed.trim()) some.sort((a, b) => b.score - a.score);
    return [...some.map((s) => s.c).slice(0, 40), ...more(typed.trim())];
  }, [typed, registry, version, more]);
  const chosen = Math.min(at, found.length - 1);
  const run = (c?: Command) => {
    if (!c) return;
    onClose();
    c.run();
  };
  useEffect(() => {
    document.getElementById(`${list}-${chosen}`)?.scrollIntoView({ block: "nearest" }); // newer browsers give back a promise, which is no end of an effect
  }, [chosen, list]);
  return (
    <Dialog title="Search" onClose={onClose}>
      <div className="palette">
        <input
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={`${list}-${chosen}`}
          aria-label="command"
          placeholder="Page, namespace, action or process id"
          value={typed}
          onChange={(e) => {
            setTyped(e.target.value);
            setAt(0);
          }}
          onKeyDown={(e) => {
            if (e.key === "ArrowDown" || e.key === "ArrowUp") {
              e.preventDefault();
              setAt((chosen + (e.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(found.length, 1));
            } else if (e.key === "Enter") {
              e.preventDefault();
              run(found[chosen]);
            }
          }}
        />
        <ul role="listbox" id={list} aria-label="commands">
          {found.map((c, n) => (
            <li key={`${c.group}/${c.name}`} id={`${list}-${n}`} role="option" aria-selected={n === chosen} onMouseMove={() => setAt(n)} onClick={() => run(c)}>
              <span className="dim">{c.group}</span>
              <span>{c.name}</span>
              {c.keys && <kbd>{c.keys}</kbd>}
            </li>
          ))}
        </ul>
        {found.length === 0 && <p className="dim">No results. Try a page, a namespace or a process id.</p>}
      </div>
    </Dialog>
  );
}
