// Forms for a JSON Schema, with plain JSON for the parts that a form cannot show. The engine checks the value, so a form
// need not support everything in a schema.
import { useId, useState } from "react";
import { isWithin, pathOf, useForm, useRefusal } from "./form";
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

/** Reports whether null is the value of an empty field. In an enum, null is one of the choices. */
const allowsNull = (s: Schema): boolean => !Array.isArray(s.enum) && (s.type === "null" || (Array.isArray(s.type) && s.type.includes("null")));

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
      return Array.from({ length: Math.min(Number(s.minItems) || 0, 20) }, () => initialItem(s.items, root, depth + 1));
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
      return allowsNull(s) ? null : undefined;
  }
}

/** The initial value of an entry of a list. JSON has no undefined entries. */
const initialItem = (items: unknown, root: Schema, depth = 0): unknown => initial(items, root, depth) ?? null;

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
  path: string; // in errors of the engine
  required: boolean; // it must have a value
  item?: boolean; // it is an entry of a list
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
  const [text, setText] = useState(value instanceof Broken ? value.text : String(value ?? ""));
  const change = (typed: string) => {
    setText(typed);
    const n = Number(typed);
    const wrong = Number.isFinite(n) ? losesDigits(typed) : "not a number";
    onChange(!typed.trim() ? undefined : wrong ? new Broken(typed, wrong) : n);
  };
  return <input {...rest} inputMode="decimal" value={text} onChange={(e) => change(e.target.value)} autoComplete="off" />;
}

const inputTypes: Record<string, string> = { date: "date", time: "time", email: "email", uri: "url" };

function Check({ label, required, name, checked, onChange, children }: { label: string; required: boolean; name: string; checked: boolean; onChange: (checked: boolean) => void; children?: React.ReactNode }) {
  const id = useId();
  const { tried } = useForm();
  const refused = useRefusal(name, String(checked));
  const empty = required && tried && !checked;
  const said = empty ? "is required" : refused;
  return (
    <div className="check">
      <input id={id} type="checkbox" checked={checked} onChange={(e) => onChange(e.target.checked)} aria-required={required || undefined} aria-invalid={said ? true : undefined} aria-describedby={said || children ? `${id}-hint` : undefined} data-refused={!empty && refused ? true : undefined} />
      <label className={required ? "required" : undefined} htmlFor={id}>
        {label}
      </label>
      {(said || children) && (
        <span id={`${id}-hint`} className={said ? "wrong" : "hint"}>
          {said || children}
        </span>
      )}
    </div>
  );
}

function Part({ given, root, name, path, required, item, value, onChange, depth }: PartProps) {
  const s = resolve(given, root);
  const kind = kindOf(s);
  const title = typeof s.title === "string" ? s.title : name;
  const wrong = value instanceof Broken ? value.why : undefined;
  const field = (input: React.ReactElement<{ id?: string }>) => (
    <Field label={title} name={path} required={required && !allowsNull(s)} hint={hintOf(s)} error={wrong}>
      {input}
    </Field>
  );
  if (kind === "boolean" || (kind === "const" && typeof s.const === "boolean"))
    return (
      <Check
        label={`${title}${kind === "const" && s.const === false ? ": no" : ""}`}
        required={kind === "const" && required}
        name={path}
        checked={kind === "const" ? value === s.const : value === true}
        onChange={(checked) => onChange(kind === "const" ? (checked ? s.const : undefined) : checked)}
      >
        {hintOf(s)}
      </Check>
    );
  if (kind === "const") return field(<input readOnly value={typeof s.const === "string" ? s.const : JSON.stringify(s.const)} />);
  if (kind === "enum") {
    const list = s.enum as unknown[];
    const chosen = list.findIndex((v) => JSON.stringify(v) === JSON.stringify(value));
    return field(
      <select value={chosen < 0 ? "" : chosen} onChange={(e) => onChange(e.target.value === "" ? undefined : list[Number(e.target.value)])}>
        <option value="">{required ? "choose…" : "–"}</option>
        {list.map((v, n) => (
          <option key={n} value={n}>
            {typeof v === "string" ? v : JSON.stringify(v)}
          </option>
        ))}
      </select>,
    );
  }
  if (kind === "number") return field(<NumberInput value={value ?? ""} onChange={onChange} />);
  if (kind === "text") {
    const text = typeof value === "string" ? value : "";
    const set = (e: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => onChange(e.target.value === "" ? undefined : e.target.value);
    return field(Number(s.maxLength) > 200 ? <textarea rows={3} value={text} onChange={set} /> : <input type={inputTypes[String(s.format)] ?? "text"} value={text} onChange={set} autoComplete="off" spellCheck={false} />);
  }
  if (depth > 6 || kind === "json") return field(<Json value={value} onChange={onChange} />);
  const empty = JSON.stringify(kind === "list" ? [] : initial(s, root, depth));
  return (
    <Group
      title={title}
      path={path}
      required={kind === "list" && required && Number(s.minItems) > 0}
      value={value}
      // An optional list or object without values is left out.
      onChange={(v) => onChange(!required && !item && JSON.stringify(v) === empty ? undefined : v)}
    >
      {(change) => (kind === "object" ? <Properties schema={s} root={root} path={path} present={item || required} value={value} onChange={change} depth={depth} /> : <List schema={s} root={root} name={title} path={path} value={value} onChange={change} depth={depth} />)}
    </Group>
  );
}

/** An object or a list, with the errors that are not about one of its parts. */
function Group({ title, path, required, value, onChange, children }: { title: string; path: string; required: boolean; value: unknown; onChange: (v: unknown) => void; children: (onChange: (v: unknown) => void) => React.ReactNode }) {
  const id = useId();
  const refused = useRefusal(path, JSON.stringify(value) ?? "", true);
  return (
    <fieldset aria-describedby={refused ? id : undefined} data-refused={refused ? true : undefined}>
      <legend className={required ? "required" : undefined}>{title}</legend>
      {children(onChange)}
      {refused && (
        <span id={id} className="wrong">
          {refused}
        </span>
      )}
    </fieldset>
  );
}

interface ContentProps {
  schema: Schema;
  root: Schema;
  path: string;
  value: unknown;
  onChange: (v: unknown) => void;
  depth: number;
}

/** The properties of an object. If present is false, the object may be left out: it then requires no properties. */
function Properties({ schema, root, path, present, value, onChange, depth }: ContentProps & { present: boolean }) {
  const own = isObject(value) ? value : undefined;
  const required = own || present ? requiredOf(schema) : [];
  return (
    <>
      {propertiesOf(schema).map(([name, of]) => (
        <Part
          key={name}
          given={of}
          root={root}
          name={name}
          path={pathOf(path, name)}
          required={required.includes(name)}
          value={own?.[name]}
          depth={depth + 1}
          onChange={(v) => {
            const next = { ...(own ?? (initial(schema, root, depth) as Schema)) };
            if (v !== undefined) next[name] = v;
            else if (required.includes(name) && allowsNull(resolve(of, root))) next[name] = null;
            else delete next[name];
            onChange(next);
          }}
        />
      ))}
    </>
  );
}

const longest = 10; // a longer list is folded at first

function List({ schema, root, name, path, value, onChange, depth }: ContentProps & { name: string }) {
  const all: unknown[] = Array.isArray(value) ? value : [];
  // Stable keys keep typed text and errors in their row when another row is removed.
  const [stable, setKeys] = useState<number[]>([]);
  const keys = all.map((_, n) => stable[n] ?? n);
  const [folded, setFolded] = useState(all.length > longest);
  const { refused } = useForm();
  const [sent, setSent] = useState<{ error: unknown; rows: number[] }>({ error: undefined, rows: [] });
  if (sent.error !== refused?.key) {
    setSent({ error: refused?.key, rows: keys });
    if (refused?.problems.some((p) => isWithin(p.field, path))) setFolded(false);
  }
  // The engine numbered the rows as they were sent. Its errors are not about rows that were added later.
  const pathOfRow = (n: number) => `${path}[${refused ? (sent.rows.includes(keys[n]!) ? sent.rows.indexOf(keys[n]!) : "new") : n}]`;
  return (
    <>
      {all.length > longest && (
        <Button aria-expanded={!folded} onClick={() => setFolded(!folded)}>
          {folded ? "Show" : "Hide"} {all.length} entries
        </Button>
      )}
      {(!folded || all.length <= longest) &&
        all.map((each, n) => (
          <div className="item" key={keys[n]}>
            <Part given={schema.items} root={root} name={String(n + 1)} path={pathOfRow(n)} required item value={each} depth={depth + 1} onChange={(v) => onChange(all.map((old, at) => (at === n ? (v ?? null) : old)))} />
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
          onChange([...all, initialItem(schema.items, root)]);
          setKeys([...keys, Math.max(-1, ...keys) + 1]);
          setFolded(false);
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

/** A form for a value with a schema. It can also be edited as plain JSON. In errors of the engine, the name of the value is the label in lower case. */
export function JsonForm({ schema, label, value, onChange }: { schema?: Schema; label: string; value: unknown; onChange: (v: Filled) => void }) {
  const path = label.toLowerCase();
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
        <div className="chips" role="group" aria-label={`fill in the ${path} as`}>
          <button type="button" className="chip" aria-pressed={!plain} disabled={!switchable && plain} onClick={() => setPlain(false)}>
            Form
          </button>
          <button type="button" className="chip" aria-pressed={plain} disabled={!switchable && !plain} onClick={() => setPlain(true)}>
            JSON
          </button>
        </div>
      )}
      {plain || !schema ? (
        <Field label={label} name={path} hint="JSON" error={held instanceof Broken && held.why}>
          <Json value={held} onChange={change} />
        </Field>
      ) : kindOf(root) === "object" ? (
        <Properties schema={root} root={schema} path={path} present value={held} onChange={change} depth={0} />
      ) : (
        <Part given={root} root={schema} name={label} path={path} required value={held} onChange={change} depth={0} />
      )}
    </div>
  );
}
