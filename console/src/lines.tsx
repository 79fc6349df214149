// A text in lines. JSON has colors, and its objects and lists can be folded. The text can be
// searched, and never becomes markup.
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { plural } from "./format";
import { Button } from "./ui";

interface Text {
  lines: string[];
  closes: Map<number, number>; // the last line of the object or list that a line opens
  under: number[]; // the line that opens the innermost object or list around each line, or -1
  inside: Map<number, number>; // the number of fields or items of the object or list that a line opens
}

/** Splits formatted JSON, in which each line opens or closes at most one object or list. Other texts have nothing to fold. */
function split(text: string, json: boolean): Text {
  const lines = text.split("\n");
  const closes = new Map<number, number>();
  const inside = new Map<number, number>();
  const open: number[] = [];
  const under = lines.map((line, n) => {
    if (!json) return -1;
    const start = /^\s*[\]}]/.test(line) ? open.pop() : undefined;
    const around = open.at(-1) ?? -1;
    if (start !== undefined) closes.set(start, n);
    else inside.set(around, (inside.get(around) ?? 0) + 1);
    if (/[[{]$/.test(line)) open.push(n);
    return around;
  });
  return { lines, closes, under, inside };
}

const parts = /("(?:[^"\\]|\\.)*")(:?)|(-?\d[\d.eE+-]*)|(true|false|null)/g;

/** Splits a line of formatted JSON into parts with a class each. */
function colored(line: string): [string, string][] {
  const found: [string, string][] = [];
  let at = 0;
  for (const m of line.matchAll(parts)) {
    found.push([line.slice(at, m.index), ""]);
    if (m[1] !== undefined) found.push([m[1], m[2] ? "json-key" : "json-string"], [m[2] ?? "", ""]);
    else found.push([m[0], m[3] !== undefined ? "json-number" : "json-word"]);
    at = m.index + m[0].length;
  }
  found.push([line.slice(at), ""]);
  return found.filter(([text]) => text !== "");
}

const pattern = (sought: string, flags: string) => new RegExp(sought.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags);

function Marked({ text, sought }: { text: string; sought: string }) {
  if (!sought) return text;
  const found = text.match(pattern(sought, "giu"));
  return found ? text.split(pattern(sought, "iu")).map((part, n) => [part, found[n] !== undefined && <mark key={n}>{found[n]}</mark>]) : text;
}

const step = 1000; // lines that are drawn at first, and with each click
const short = 12; // texts with fewer lines need no search

export function Lines({ text, json, name }: { text: string; json: boolean; name: string }) {
  const { lines, closes, under, inside } = useMemo(() => split(text, json), [text, json]);
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const [room, setRoom] = useState(step);
  const [typed, setTyped] = useState("");
  const [match, setMatch] = useState(0);
  const [tab, setTab] = useState(0); // the line whose toggle can be reached with Tab; the arrow keys reach the others
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => {
    setFolded(new Set());
    setRoom(step);
  }, [text]);
  const matches = useMemo(() => {
    const sought = pattern(typed, "iu");
    return typed ? lines.flatMap((line, n) => (sought.test(line) ? [n] : [])) : [];
  }, [lines, typed]);
  const current = matches[match];
  const inner = useMemo(() => [...closes.keys()].filter((n) => under[n] !== -1), [closes, under]);

  const show = (n: number) => {
    const line = matches[n];
    setMatch(n);
    if (line === undefined) return;
    const around = new Set<number>();
    for (let at = under[line] ?? -1; at !== -1; at = under[at] ?? -1) around.add(at);
    setFolded((all) => new Set([...all].filter((f) => !around.has(f))));
    setRoom((most) => Math.max(most, line + 100));
  };
  useEffect(() => show(0), [matches]);
  useEffect(() => {
    if (current !== undefined) document.getElementById(`${id}-${current}`)?.scrollIntoView({ block: "nearest" });
  }, [current, folded, room, id]);

  const drawn: number[] = [];
  let n = 0;
  for (; n < lines.length && drawn.length < room; n++) {
    drawn.push(n);
    if (folded.has(n)) n = closes.get(n) ?? n;
  }
  const reached = drawn.includes(tab) && closes.has(tab) ? tab : drawn.find((line) => closes.has(line));
  const toggle = (line: number, fold = !folded.has(line)) => setFolded((all) => (fold ? new Set([...all, line]) : new Set([...all].filter((f) => f !== line))));
  const move = (e: React.KeyboardEvent, line: number) => {
    const toggles = drawn.filter((d) => closes.has(d));
    const to = e.key === "ArrowDown" || e.key === "ArrowUp" ? toggles[toggles.indexOf(line) + (e.key === "ArrowDown" ? 1 : -1)] : undefined;
    if (e.key === "ArrowLeft") toggle(line, true);
    else if (e.key === "ArrowRight") toggle(line, false);
    else if (to === undefined) return;
    e.preventDefault();
    if (to !== undefined) document.getElementById(`${id}-${to}`)?.querySelector("button")?.focus();
  };

  return (
    <>
      {lines.length > short && (
        <div className="finding">
          <input
            type="search"
            aria-label={`search the ${name}`}
            placeholder="Search"
            value={typed}
            onChange={(e) => setTyped(e.target.value)}
            onKeyDown={(e) => {
              if (e.key !== "Enter") return;
              e.preventDefault(); // the field may be in a form
              if (matches.length) show((match + (e.shiftKey ? matches.length - 1 : 1)) % matches.length);
            }}
          />
          <span className="dim" role="status">{typed && (matches.length ? `${match + 1} of ${plural(matches.length, "line")}` : "not found")}</span>
          {inner.length > 0 && (
            <Button kind="quiet" onClick={() => setFolded(folded.size ? new Set() : new Set(inner))}>
              {folded.size ? "Unfold all" : "Fold all"}
            </Button>
          )}
        </div>
      )}
      <div ref={box} className="lines" role="group" aria-label={name} tabIndex={0}>
        {drawn.map((line) => {
          const end = closes.get(line);
          const content = lines[line] ?? "";
          return (
            <div key={line} id={`${id}-${line}`} className={line === current ? "current" : undefined}>
              {end !== undefined && end > line + 1 && (
                <button type="button" className="toggle" aria-expanded={!folded.has(line)} aria-label={`${folded.has(line) ? "unfold" : "fold"} ${content.trim()}`} tabIndex={line === reached ? 0 : -1} onFocus={() => setTab(line)} onKeyDown={(e) => move(e, line)} onClick={() => toggle(line)}>
                  {folded.has(line) ? "▸" : "▾"}
                </button>
              )}
              {(json ? colored(content) : [[content, ""]]).map(([part = "", look = ""], k) =>
                look || typed ? (
                  <span key={k} className={look || undefined}>
                    <Marked text={part} sought={typed} />
                  </span>
                ) : (
                  part
                ),
              )}
              {folded.has(line) && end !== undefined && (
                <span className="dim">
                  {" "}
                  {plural(inside.get(line) ?? 0, content.endsWith("{") ? "field" : "item")} {lines[end]?.trim()}
                </span>
              )}
              {content === "" && " "}
            </div>
          );
        })}
      </div>
      {n < lines.length && (
        <p>
          <Button onClick={() => setRoom(room + step)}>Show more lines</Button> <span className="dim">{plural(lines.length, "line")} in total</span>
        </p>
      )}
    </>
  );
}
