// The command palette: pages, namespaces, actions of the page, and objects by the beginning of their ID.
import { useContext, useEffect, useId, useMemo, useRef, useState, useSyncExternalStore, type RefObject } from "react";
import { trouble } from "./api";
import { mostNamespaces, useFound } from "./find";
import { destroys, Registered, type Command } from "./palette";
import { Mark, type Look } from "./status";
import { Dialog } from "./ui";

/** Scores how well a name matches what was typed: all letters in their order, best at the beginnings of words. A score of 0 means that the name does not match. */
function fits(name: string, typed: string): number {
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
  return Math.max(score, 0.01) + (text.startsWith(typed.toLowerCase()) ? 2 * contains : text.includes(typed.toLowerCase()) ? contains : 0);
}
const contains = 1000; // the lowest score of a name that contains what was typed

interface Entry extends Omit<Command, "needs"> {
  look?: Look;
  ns?: string;
}

/** Returns a text after it has not changed for a moment. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 150);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

/** typed contains what was typed before the palette was loaded. */
export function Palette({ onClose, namespaces, typed: early }: { onClose: () => void; namespaces: string[]; typed: RefObject<string> }) {
  const registry = useContext(Registered);
  const [text, setText] = useState("");
  useEffect(() => setText((now) => early.current + now), [early]); // the dialog is open, and its field has the focus
  const [at, setAt] = useState(0);
  const list = useId();
  const typed = text.trim();
  const version = useSyncExternalStore(registry.subscribe, registry.version);
  const searched = useMemo(() => namespaces.slice(0, mostNamespaces), [namespaces]);
  const settled = useSettled(typed);
  const { data, error } = useFound(settled, searched);
  const searching = typed !== "" && searched.length > 0 && !error && (typed !== settled || !data);
  const found = useMemo(() => {
    const scored = registry.all().map((c) => ({ c: c as Entry, score: typed ? fits(`${c.name} ${c.group}`, typed) : contains })).filter((s) => s.score > 0);
    if (typed) scored.sort((a, b) => b.score - a.score);
    const good = scored.filter((s) => !destroys(s.c.name));
    const objects = typed && typed === settled ? (data ?? []) : [];
    const named = objects.map((f): Entry => ({ name: f.id, group: f.kind, look: f.look, ns: searched.length > 1 ? f.ns : undefined, run: () => (location.hash = f.to) }));
    return [
      ...good.filter((s) => s.score >= contains).slice(0, 40).map((s) => s.c),
      ...named,
      ...good.filter((s) => s.score < contains).slice(0, 10).map((s) => s.c),
      ...scored.filter((s) => destroys(s.c.name)).slice(0, 10).map((s) => s.c),
    ];
  }, [typed, settled, registry, version, data, searched]);
  const chosen = Math.min(at, found.length - 1);
  const entered = useRef(false); // Enter was pressed before anything was found
  const run = (c: Entry | undefined) => {
    if (!c) return;
    onClose();
    c.run();
  };
  useEffect(() => {
    if (!searching && entered.current) {
      entered.current = false;
      if (found[0] && !destroys(found[0].name)) run(found[0]);
    }
  });
  useEffect(() => {
    document.getElementById(`${list}-${chosen}`)?.scrollIntoView({ block: "nearest" }); // newer browsers return a promise, which is not a cleanup function of an effect
  }, [chosen, list]);
  return (
    <Dialog title="Search" onClose={onClose}>
      <div className="palette">
        <input
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={found.length ? `${list}-${chosen}` : undefined}
          aria-label="command"
          placeholder="Page, action, or the beginning of an ID"
          spellCheck={false}
          autoComplete="off"
          value={text}
          onChange={(e) => {
            setText(e.target.value);
            setAt(0);
            entered.current = false;
          }}
          onKeyDown={(e) => {
            if (e.key === "ArrowDown" || e.key === "ArrowUp") {
              e.preventDefault();
              setAt((chosen + (e.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(found.length, 1));
            } else if (e.key === "Enter") {
              e.preventDefault();
              if (found.length) run(found[chosen]);
              else entered.current = searching;
            }
          }}
        />
        <ul role="listbox" id={list} aria-label="commands">
          {found.map((c, n) => (
            <li key={`${c.group}/${c.name}/${c.ns ?? ""}`} id={`${list}-${n}`} role="option" aria-selected={n === chosen} onMouseMove={() => setAt(n)} onClick={() => run(c)}>
              <span className="dim">{c.group}</span>
              <span className={destroys(c.name) ? "tone-bad" : undefined}>
                {c.look && <Mark look={c.look} />} {c.name}
              </span>
              {c.keys ? <kbd>{c.keys}</kbd> : c.ns && <span className="dim">{c.ns}</span>}
            </li>
          ))}
        </ul>
        <p className="dim" role="status">
          {error
            ? `IDs could not be searched: ${trouble(error).text}`
            : searching
              ? "Searching…"
              : found.length === 0
                ? `Nothing found${namespaces.length === 1 ? ` in the namespace ${namespaces[0]}` : ""}. Type the name of a page, a namespace or an action, or the beginning of an ID.`
                : typed && namespaces.length > searched.length
                  ? `IDs were searched in ${searched.length} of ${namespaces.length} namespaces. Choose a namespace to search in another one.`
                  : ""}
        </p>
      </div>
    </Dialog>
  );
}
