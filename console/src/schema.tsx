// Forms for a JSON Schema, with plain JSON for the parts that a form cannot show. The engine checks the value, so a form
// need not support everything in a schema.
import { useState } from "react";
import { PayloadInput } from "./payload";
import { Button, Field } from "./ui";
import { exactJSON, losesDigits } from "./value";

export type Schema = Record<string, unknown>;
type Kind = "const" | "enum" | "object" | "list" | "text" | "number" | "boolean" | "json";

/** Typed text that is not yet valid. */
class Broken {
  constructor(
    readonly text: string,
    readonly why: string,
  ) {}
}

const isObject = (v: unknown): v is Schema => typeof v === "object" && v !== null && !Array.isArray(v) && !(v instanceof Broken);

/** Follows references (#/…) within the schema. */
function resolve(schema: unknown, root: Schema, depth = 0): Schema {
  if (!isObject(schema)) return {};
  const ref = schema["$ref"];
  if (typeof ref !== "string" || !ref.startsWith("#/") || depth > 8) return schema;
  let found: unknown = root;
  for (const part of ref.slice(2).split("/")) found = isObject(found) ? found[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  return { ...resolve(found, root, depth + 1), ...Object.fromEntries(Object.entries(schema).filter(([k]) => k !== "$ref")) };
}

function kindOf(s: Schema): Kind {
  if ("const" in s) return "const";
  if (Array.isArray(s.enum)) return "enum";
  const type = Array.isArray(s.type) ? s.type.find((t) => t !== "null") : s.type;
  if (["oneOf", "anyOf", "allOf", "not", "if", "$ref"].some((k) => k in s)) return "json";
  if (type === "object" || (type === undefined && isObject(s.properties))) return isObject(s.properties) ? "object" : "json";
  if (type === "array") return isObject(s.items) && kindOf(s.items) !== "const" ? "list" : "json";
  if (type === "string") return "text";
  if (type === "number" || type === "integer") return "number";
  return type === "boolean" ? "boolean" : "json";
}

const requiredOf = (s: Schema): string[] => (Array.isArray(s.required) ? s.required.filter((n): n is string => typeof n === "string") : []);

/** The initial value of a form: defaults and required fields. */
function initial(given: unknown, root: Schema, depth = 0): unknown {
  const s = resolve(given, root);
  if (s.default !== undefined) return s.default;
  switch (kindOf(s)) {
    case "const":
      return typeof s.const === "boolean" ? undefined : s.const;
    case "boolean":
      return false;
    case "list":
      return Array.from({ length: Math.min(Number(s.minItems) || 0, 20) }, () => initial(s.items, root, depth + 1));
    case "object": {
      const value: Schema = {};
      for (const [name, of] of propertiesOf(s)) {
        if (depth > 6 || (!requiredOf(s).includes(name) && resolve(of, root).default === undefined)) continue;
        const v = initial(of, root, depth + 1);
        if (v !== undefined) value[name] = v;
      }
      return value;
    }
    default:
      return undefined;
  }
}

/** Returns the properties in the order of the form: first the required ones, in the order of their list. Messages do not keep the order of the others. */
function propertiesOf(s: Schema): [string, unknown][] {
  const all = isObject(s.properties) ? s.properties : {};
  const first = requiredOf(s).filter((name) => name in all);
  return [...first, ...Object.keys(all).filter((name) => !first.includes(name))].map((name) => [name, all[name]]);
}

function brokenIn(v: unknown): Broken | undefined {
  if (v instanceof Broken) return v;
  if (typeof v !== "object" || v === null) return undefined;
  for (const each of Object.values(v)) {
    const found = brokenIn(each);
    if (found) return found;
  }
  return undefined;
}

function hintOf(s: Schema): string {
  if (typeof s.description === "string") return s.description;
  const said = [
    s.type === "integer" && "a whole number",
    s.minimum !== undefined && `at least ${String(s.minimum)}`,
    s.exclusiveMinimum !== undefined && `more than ${String(s.exclusiveMinimum)}`,
    s.maximum !== undefined && `at most ${String(s.maximum)}`,
    s.exclusiveMaximum !== undefined && `less than ${String(s.exclusiveMaximum)}`,
    typeof s.pattern === "string" && `must match ${s.pattern}`,
    typeof s.format === "string" && s.format,
  ];
  return said.filter(Boolean).join(", ");
}

interface PartProps {
  given: unknown;
  root: Schema;
  name: string;
  optional: boolean;
  value: unknown;
  onChange: (v: unknown) => void;
  depth: number;
}

function Json({ value, onChange, ...rest }: { value: unknown; onChange: (v: unknown) => void; id?: string }) {
  const [text, setText] = useState(value instanceof Broken ? value.text : value === undefined ? "" : JSON.stringify(value, null, 2));
  const change = (typed: string) => {
    setText(typed);
    if (!typed.trim()) return onChange(undefined);
    try {
      onChange(exactJSON(typed));
    } catch (e) {
      onChange(new Broken(typed, e instanceof RangeError ? e.message : `not valid JSON${e instanceof Error ? `: ${e.message}` : ""}`));
    }
  };
  return <PayloadInput json {...rest} value={text} onChange={change} />;
}

function NumberInput({ value, onChange, ...rest }: { value: unknown; onChange: (v: unknown) => void; id?: string }) {
  const [text, setText] = useState(value instanceof Broken ? value.text : value === undefined ? "" : String(value));
  const change = (typed: string) => {
    setText(typed);
    const n = Number(typed);
    const wrong = Number.isFinite(n) ? losesDigits(typed) : "not a number";
    onChange(!typed.trim() ? undefined : wrong ? new Broken(typed, wrong) : n);
  };
  return <input {...rest} inputMode="decimal" value={text} onChange={(e) => change(e.target.value)} autoComplete="off" />;
}

const inputTypes: Record<string, string> = { date: "date", time: "time", email: "email", uri: "url" };

function Part({ given, root, name, optional, value, onChange, depth }: PartProps) {
  const s = resolve(given, root);
  const kind = kindOf(s);
  const title = typeof s.title === "string" ? s.title : name;
  const label = <>{title} {optional && <span className="dim optional">optional</span>}</>;
  const wrong = value instanceof Broken ? value.why : undefined;
  const field = (input: React.ReactElement<{ id?: string }>) => (
    <Field label={label} hint={hintOf(s)} error={wrong}>
      {input}
    </Field>
  );
  if (kind === "boolean" || (kind === "const" && typeof s.const === "boolean"))
    return (
      <label className="check">
        <input type="checkbox" checked={kind === "const" ? value === s.const : value === true} onChange={(e) => onChange(kind === "const" ? (e.target.checked ? s.const : undefined) : e.target.checked)} />
        {title}
        {kind === "const" && s.const === false && ": no"}
        {kind === "const" && !optional && value !== s.const && <span className="hint">&nbsp;required</span>}
        {hintOf(s) && <span className="hint">&nbsp;{hintOf(s)}</span>}
      </label>
    );
  if (kind === "const") return field(<input readOnly value={typeof s.const === "string" ? s.const : JSON.stringify(s.const)} />);
  if (kind === "enum") {
    const list = s.enum as unknown[];
    return field(
      <select value={list.findIndex((v) => JSON.stringify(v) === JSON.stringify(value))} onChange={(e) => onChange(list[Number(e.target.value)])}>
        <option value={-1}>{optional ? "–" : "choose…"}</option>
        {list.map((v, n) => (
          <option key={n} value={n}>
            {typeof v === "string" ? v : JSON.stringify(v)}
          </option>
        ))}
      </select>,
    );
  }
  if (kind === "number") return field(<NumberInput value={value} onChange={onChange} />);
  if (kind === "text") {
    const text = typeof value === "string" ? value : "";
    const set = (e: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => onChange(e.target.value === "" ? undefined : e.target.value);
    return field(Number(s.maxLength) > 200 ? <textarea rows={3} value={text} onChange={set} /> : <input type={inputTypes[String(s.format)] ?? "text"} value={text} onChange={set} autoComplete="off" spellCheck={false} />);
  }
  if (depth > 6 || kind === "json") return field(<Json value={value} onChange={onChange} />);
  return (
    <fieldset>
      <legend>{label}</legend>
      {kind === "object" ? <Properties schema={s} root={root} value={value} onChange={onChange} depth={depth} /> : <List schema={s} root={root} name={title} value={value} onChange={onChange} depth={depth} />}
    </fieldset>
  );
}

function Properties({ schema, root, value, onChange, depth }: { schema: Schema; root: Schema; value: unknown; onChange: (v: unknown) => void; depth: number }) {
  const own = isObject(value) ? value : {};
  return (
    <>
      {propertiesOf(schema).map(([name, of]) => (
        <Part
          key={name}
          given={of}
          root={root}
          name={name}
          optional={!requiredOf(schema).includes(name)}
          value={own[name]}
          depth={depth + 1}
          onChange={(v) => {
            const next = { ...own };
            if (v === undefined) delete next[name];
            else next[name] = v;
            onChange(next);
          }}
        />
      ))}
    </>
  );
}

function List({ schema, root, name, value, onChange, depth }: { schema: Schema; root: Schema; name: string; value: unknown; onChange: (v: unknown) => void; depth: number }) {
  const all: unknown[] = Array.isArray(value) ? value : [];
  // Stable keys keep typed text in its row when another row is removed.
  const [keys, setKeys] = useState(() => all.map((_, n) => n));
  const [next, setNext] = useState(all.length);
  return (
    <>
      {all.map((each, n) => (
        <div className="item" key={keys[n] ?? n}>
          <Part given={schema.items} root={root} name={String(n + 1)} optional={false} value={each} depth={depth + 1} onChange={(v) => onChange(all.map((old, at) => (at === n ? (v ?? null) : old)))} />
          <Button
            kind="quiet"
            aria-label={`remove ${name} ${n + 1}`}
            onClick={() => {
              onChange(all.filter((_, at) => at !== n));
              setKeys(keys.filter((_, at) => at !== n));
            }}
          >
            ✕
          </Button>
        </div>
      ))}
      <Button
        onClick={() => {
          onChange([...all, initial(schema.items, root) ?? null]);
          setKeys([...keys, next]);
          setNext(next + 1);
        }}
      >
        Add to {name}
      </Button>
    </>
  );
}

/** The JSON to send, or why it is not yet valid. */
export interface Filled {
  json: unknown;
  wrong?: string;
}

export function startOf(schema?: Schema): Filled {
  return { json: schema && kindOf(resolve(schema, schema)) !== "json" ? initial(schema, schema) : undefined };
}

/** A form for a value with a schema. It can also be edited as plain JSON. */
export function JsonForm({ schema, label, value, onChange }: { schema?: Schema; label: string; value: unknown; onChange: (v: Filled) => void }) {
  const drawn = schema !== undefined && kindOf(resolve(schema, schema)) !== "json";
  const [plain, setPlain] = useState(!drawn);
  const [held, setHeld] = useState<unknown>(value);
  const change = (v: unknown) => {
    setHeld(v);
    const broken = brokenIn(v);
    onChange(broken ? { json: undefined, wrong: broken.why } : { json: v });
  };
  const root = schema ? resolve(schema, schema) : {};
  const switchable = drawn && !brokenIn(held);
  return (
    <div className="jsonform">
      {drawn && (
        <div className="chips" role="group" aria-label={`fill in the ${label.toLowerCase()} as`}>
          <button type="button" className="chip" aria-pressed={!plain} disabled={!switchable && plain} onClick={() => setPlain(false)}>
            Form
          </button>
          <button type="button" className="chip" aria-pressed={plain} disabled={!switchable && !plain} onClick={() => setPlain(true)}>
            JSON
          </button>
        </div>
      )}
      {plain || !schema ? (
        <Field label={label} hint="JSON" error={held instanceof Broken && held.why}>
          <Json value={held} onChange={change} />
        </Field>
      ) : kindOf(root) === "object" ? (
        <Properties schema={root} root={schema} value={held} onChange={change} depth={0} />
      ) : (
        <Part given={root} root={schema} name={label} optional={false} value={held} onChange={change} depth={0} />
      )}
    </div>
  );
}
