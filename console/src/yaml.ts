// Templates as YAML, in the form that `progressor template put` reads: short enum values, and durations such as 1h30m.
import { fromJson, toJson, type DescEnum, type DescField, type DescMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { CORE_SCHEMA, dump, load } from "js-yaml";
import { parseSpan } from "./format";
import { TemplateSchema, type Template } from "./gen/progressor/v1/flow_pb";

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** Fields that the file omits: those that the engine sets, and the namespace, which is that of the page. */
const ofEngine = ["namespace", "version", "enabled", "created_time", "updated_time"];

/** Converts each value of a field: of a list, of a map, or the only one. */
function each(value: unknown, field: DescField, path: string, convert: (v: unknown, path: string) => unknown): unknown {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((v, n) => convert(v, `${path}[${n}]`));
  if (field.fieldKind === "map" && isObject(value)) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, convert(v, `${path}.${k}`)]));
  return convert(value, path);
}

type Scalar = (value: unknown, field: { enum?: DescEnum; duration: boolean }, path: string) => unknown;

/** Converts a tree in the form of JSON. Types of google.protobuf are left as they are, except durations. */
function walk(tree: unknown, desc: DescMessage, path: string, scalar: Scalar): unknown {
  if (!isObject(tree)) throw new Error(`${path || "the template"} must be a mapping of fields`);
  const made: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(tree)) {
    const at = path ? `${path}.${key}` : key;
    const field = desc.fields.find((f) => f.name === key.replaceAll("-", "_") || f.jsonName === key);
    if (!field) throw new Error(`${at}: there is no such field; use one of ${desc.fields.map((f) => f.name).join(", ")}`);
    made[field.name] = each(value, field, at, (v, where) => {
      if (field.message && !field.message.typeName.startsWith("google.protobuf.")) return v === null ? v : walk(v, field.message, where, scalar);
      return scalar(v, { enum: field.enum, duration: field.message?.typeName === "google.protobuf.Duration" }, where);
    });
  }
  return made;
}

/** Shortens a duration: 172800s becomes 48h, 90s stays 90s. */
function shortDuration(text: string): string {
  const seconds = Number(/^(\d+(?:\.\d+)?)s$/.exec(text)?.[1]);
  if (!seconds) return text;
  return seconds % 3600 === 0 ? `${seconds / 3600}h` : seconds % 60 === 0 ? `${seconds / 60}m` : text;
}

export function templateYaml(t: Template): string {
  const json = toJson(TemplateSchema, t, { useProtoFieldName: true }) as JsonObject;
  for (const name of ofEngine) delete json[name];
  const short = walk(json, TemplateSchema, "", (v, field) => {
    if (typeof v !== "string") return v;
    return field.duration ? shortDuration(v) : (field.enum?.values.find((e) => e.name === v)?.localName ?? v);
  });
  return dump(short, { schema: CORE_SCHEMA, lineWidth: 100, noRefs: true });
}

/** Parses a template. Throws an Error with the problem and its position. */
export function parseTemplate(text: string, namespace: string): Template {
  const tree: unknown = load(text, { schema: CORE_SCHEMA });
  const json = walk(tree, TemplateSchema, "", (v, field, at) => {
    if (field.enum && typeof v === "string") {
      const found = field.enum.values.find((e) => e.name === v || e.localName.toUpperCase() === v.toUpperCase());
      if (!found) throw new Error(`${at}: must be one of ${field.enum.values.slice(1).map((e) => e.localName).join(", ")}`);
      return found.name;
    }
    const ms = field.duration && typeof v === "string" && !/^\d+(\.\d+)?s$/.test(v) ? parseSpan(v) : undefined;
    return ms === undefined ? v : `${ms / 1000}s`;
  }) as JsonObject;
  for (const name of ofEngine) delete json[name];
  return fromJson(TemplateSchema, { ...json, namespace } as JsonValue);
}

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

/** Returns the differences between two texts, by line. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [a, b] = [before.trimEnd().split("\n"), after.trimEnd().split("\n")];
  // common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  const of = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) common[i]![j] = a[i] === b[j] ? of(i + 1, j + 1) + 1 : Math.max(of(i + 1, j), of(i, j + 1));
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i++] ?? "" });
      j++;
    } else if (j >= b.length || (i < a.length && of(i + 1, j) >= of(i, j + 1))) lines.push({ kind: "removed", text: a[i++] ?? "" });
    else lines.push({ kind: "added", text: b[j++] ?? "" });
  }
  return lines;
}
