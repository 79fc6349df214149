// The filter bar: AIP-160 filters with completion. The engine checks the filter.
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { Button, typing, useKey } from "./ui";

export interface FieldHelp {
  name: string;
  hint: string;
  operators: string[];
  values?: string[]; // suggested after an operator
  literals?: string[]; // the same, as literals of the filter
  time?: boolean;
}

export interface Offer {
  text: string; // inserted
  hint?: string;
}

type Expects = "field" | "operator" | "value" | "joiner";

interface Token {
  text: string;
  from: number;
  to: number;
}

function tokens(text: string): Token[] {
  const found: Token[] = [];
  for (const m of text.matchAll(/"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[()]|<=|>=|!=|[=<>:]|-(?=[a-z])|[^\s()"'=<>!:]+|!/g)) found.push({ text: m[0], from: m.index, to: m.index + m[0].length });
  return found;
}

const operator = /^(=|!=|<|<=|>|>=|:)$/;

/**
 * Reports whether a text such as order:17 is an ID with a colon, and not a comparison, because no
 * field has that name.
 */
function isID(text: string, fields: FieldHelp[]): boolean {
  const name = text.match(/^([^-\s()"'=<>!:][^\s()"'=<>!:]*):[^\s()"'=<>!]+$/)?.[1];
  return name !== undefined && !/^(args|metadata|payload)\./.test(name) && !fields.some((f) => f.name === name);
}

/** Returns the text of a filter that is only a word, or a text in quotes, without fields and operators. */
export function bareWord(text: string, fields: FieldHelp[]): string | undefined {
  if (isID(text.trim(), fields)) return text.trim();
  const all = tokens(text);
  if (!all.length || all.some((t) => operator.test(t.text) || /^([()!-]|AND|OR|NOT)$/.test(t.text))) return undefined;
  const only = all.length === 1 ? text.trim().match(/^"((?:[^"\\]|\\.)*)"$|^'((?:[^'\\]|\\.)*)'$/) : null;
  return only ? (only[1] ?? only[2] ?? "").replace(/\\(.)/g, "$1") : text.trim();
}

/** Splits a filter into the value that a field must have, "" for any, and the rest. Only a comparison that is joined with AND counts. */
export function splitFilter(filter: string, field: string): { value: string; rest: string } {
  const all = tokens(filter);
  let depth = 0;
  for (const [n, t] of all.entries()) {
    depth += t.text === "(" ? 1 : t.text === ")" ? -1 : 0;
    const [is, value] = [all[n + 1], all[n + 2]];
    const before = all[n - 1]?.text ?? "";
    const next = all[n + 3]?.text ?? "";
    if (depth || t.text !== field || is?.text !== "=" || !value || /^(OR|NOT|-)$/.test(before) || next === "OR") continue;
    const head = filter.slice(0, t.from).replace(/\s*(\bAND)?\s*$/, "");
    const tail = filter.slice(value.to).replace(/^\s*(AND\b)?\s*/, "");
    return { value: value.text, rest: head && tail ? `${head} AND ${tail}` : head + tail };
  }
  return { value: "", rest: filter };
}

/** Adds a comparison to a filter, in place of another one of the same field. OR binds closer than AND. */
export function withValue(filter: string, field: string, value: string): string {
  const { rest } = splitFilter(filter, field);
  return `${rest}${rest.trim() ? " AND " : ""}${field} = ${value}`;
}

/** Returns what the filter expects at the caret, and the part of it that is already typed. */
export function context(text: string, caret: number): { expects: Expects; typed: string; from: number; field: string } {
  const before = tokens(text.slice(0, caret));
  const last = before.at(-1);
  const touching = last !== undefined && last.to === caret && !/^[()]$/.test(last.text);
  const settled = touching && !operator.test(last.text) ? before.slice(0, -1) : before;
  let expects: Expects = "field";
  let field = "";
  for (const t of settled) {
    if (t.text === "(" || t.text === "-" || t.text === "AND" || t.text === "OR" || t.text === "NOT") expects = "field";
    else if (t.text === ")") expects = "joiner";
    else if (operator.test(t.text)) expects = "value";
    else if (expects === "field") {
      field = t.text;
      expects = "operator";
    } else if (expects === "joiner") {
      field = t.text;
      expects = "operator";
    } else expects = "joiner";
  }
  const typed = touching && !operator.test(last.text) ? last.text : "";
  return { expects, typed, from: typed ? (last?.from ?? caret) : caret, field };
}

export const quote = (value: string): string => (/^[A-Za-z0-9_][A-Za-z0-9_./@+-]*$/.test(value) && !["AND", "OR", "NOT"].includes(value) ? value : `"${value.replace(/[\\"*]/g, "\\$&")}"`);

function times(): Offer[] {
  const now = Date.now();
  return (
    [
      ["an hour ago", 3_600_000],
      ["a day ago", 86_400_000],
      ["a week ago", 7 * 86_400_000],
    ] as const
  ).map(([hint, back]) => ({ text: `"${new Date(now - back).toISOString().slice(0, 19)}Z"`, hint }));
}

export function offers(text: string, caret: number, fields: FieldHelp[]): { list: Offer[]; from: number; typed: string } {
  const { expects, typed, from, field } = context(text, caret);
  const help = fields.find((f) => f.name === field) ?? (field.startsWith("metadata.") ? fields.find((f) => f.name === "metadata.") : undefined);
  let all: Offer[] = [];
  if (expects === "field") all = fields.filter((f) => f.name !== "metadata.").map((f) => ({ text: f.name, hint: f.hint }));
  else if (expects === "operator") all = (help?.operators ?? ["=", "!="]).map((o) => ({ text: o }));
  else if (expects === "value") all = help?.time ? times() : (help?.literals ?? help?.values?.map(quote) ?? []).map((text) => ({ text }));
  else all = [{ text: "AND" }, { text: "OR", hint: "binds closer than AND" }];
  const low = typed.toLowerCase();
  const list = all.filter((o) => o.text.toLowerCase().includes(low) && o.text !== typed);
  list.sort((a, b) => Number(b.text.toLowerCase().startsWith(low)) - Number(a.text.toLowerCase().startsWith(low)));
  return { list: list.slice(0, 12), from, typed };
}

interface Props {
  value: string;
  onChange: (filter: string) => void;
  fields: FieldHelp[];
  wrong?: string;
  placeholder?: string;
  search?: (word: string) => Promise<string>; // the filter that searches a word
  onFocus?: () => void;
}

export function FilterBar({ value, onChange, fields, wrong, placeholder, search, onFocus }: Props) {
  const [text, setText] = useState(value);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const [caret, setCaret] = useState(value.length);
  const input = useRef<HTMLInputElement>(null);
  const list = useId();
  useEffect(() => setText(value), [value]);
  const offered = useMemo(() => offers(text, caret, fields), [text, caret, fields]);
  useKey((e) => {
    if (e.key === "/" && !typing(e)) {
      e.preventDefault();
      input.current?.focus();
    }
  });
  const take = (o: Offer) => {
    const head = text.slice(0, offered.from);
    const space = head && !/[\s(-]$/.test(head) ? " " : "";
    const inserted = head + space + o.text + (text.charAt(caret) === " " ? "" : " ");
    flushSync(() => setText(inserted + text.slice(caret)));
    input.current?.setSelectionRange(inserted.length, inserted.length); // before the user types more
    setCaret(inserted.length);
    setAt(-1);
  };
  const apply = (filter: string) => {
    setOpen(false);
    setAt(-1);
    const word = search && bareWord(filter, fields);
    if (word === undefined) onChange(filter.trim());
    else void search?.(word).then(onChange);
  };
  const word = search && bareWord(text, fields);
  const shown = open && offered.list.length > 0;
  return (
    <form
      className="filter"
      role="search"
      onSubmit={(e) => {
        e.preventDefault();
        apply(text);
      }}
    >
      <div className="box">
        <input
          ref={input}
          type="text"
          value={text}
          spellCheck={false}
          autoComplete="off"
          role="combobox"
          aria-label="filter"
          aria-expanded={shown}
          aria-controls={list}
          aria-autocomplete="list"
          aria-invalid={wrong ? true : undefined}
          aria-activedescendant={shown && at >= 0 ? `${list}-${at}` : undefined}
          placeholder={placeholder}
          onChange={(e) => {
            setText(e.target.value);
            setCaret(e.target.selectionStart ?? e.target.value.length);
            setOpen(true);
            setAt(-1);
          }}
          onSelect={(e) => setCaret(e.currentTarget.selectionStart ?? 0)}
          onFocus={() => {
            setOpen(true);
            onFocus?.();
          }}
          onBlur={() => setOpen(false)}
          onKeyDown={(e) => {
            if (e.key === "ArrowDown" || e.key === "ArrowUp") {
              e.preventDefault();
              setOpen(true);
              const n = offered.list.length;
              setAt(e.key === "ArrowDown" ? Math.min(at + 1, n - 1) : Math.max(at - 1, -1));
            } else if ((e.key === "Enter" && shown && at >= 0) || (e.key === "Tab" && !e.shiftKey && shown && (at >= 0 || offered.typed))) {
              // Tab accepts the selected suggestion, or the first one if a part of it is typed.
              // Otherwise, Tab leaves the field.
              e.preventDefault();
              const o = offered.list[Math.max(at, 0)];
              if (o) take(o);
            } else if (e.key === "Escape") {
              if (open) setOpen(false);
              else input.current?.blur();
            }
          }}
        />
        {open && (shown || word) && (
          <div className="drop">
            {shown && (
              <ul id={list} role="listbox" aria-label="suggestions">
                {offered.list.map((o, n) => (
                  <li
                    key={o.text}
                    id={`${list}-${n}`}
                    role="option"
                    aria-selected={n === at}
                    onMouseDown={(e) => {
                      e.preventDefault();
                      take(o);
                    }}
                  >
                    <code>{o.text}</code> {o.hint && <span className="dim">{o.hint}</span>}
                  </li>
                ))}
              </ul>
            )}
            {word && <p className="bare">Enter searches for {word}</p>}
          </div>
        )}
      </div>
      <button type="submit" className="button" title={search && "Apply the filter, or search for a word"}>
        Find
      </button>
      {value && (
        <Button
          kind="quiet"
          onClick={() => {
            setText("");
            apply("");
          }}
        >
          Clear
        </Button>
      )}
      {wrong && (
        <p className="wrong" role="alert">
          {wrong}
        </p>
      )}
    </form>
  );
}
