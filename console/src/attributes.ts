// The metadata of objects: the values that a filter suggests, the keys that a word without an operator searches, and the columns of lists.
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { useMemo, useState } from "react";
import { queries, useRead } from "./api";
import { quote, type FieldHelp } from "./filter";

/** The keys of metadata, each with its values as literals of a filter. */
export type Attributes = Map<string, Map<string, "text" | "number" | "truth" | "list">>;

const mostValues = 20;
const mostSearched = 12; // keys that a word without an operator searches

export const quoted = (text: string): string => `"${text.replace(/[\\"*]/g, "\\$&")}"`;
const fieldOf = (key: string): string => `metadata.${quote(key)}`;

/** Collects the metadata of some objects. Nested objects are left out. */
export function attributesOf(rows: { metadata?: JsonObject }[]): Attributes {
  const all: Attributes = new Map();
  for (const row of rows)
    for (const [key, value] of Object.entries(row.metadata ?? {})) {
      const values = all.get(key) ?? new Map();
      all.set(key, values);
      for (const one of Array.isArray(value) ? value : [value]) {
        if (values.size >= mostValues) break;
        if (typeof one === "string") values.set(quoted(one), Array.isArray(value) ? "list" : "text");
        else if (typeof one === "number" || typeof one === "boolean") values.set(String(one), Array.isArray(value) ? "list" : typeof one === "number" ? "number" : "truth");
      }
    }
  return all;
}

/** Returns the fields of a filter for metadata. */
export function fieldsOfAttributes(all: Attributes): FieldHelp[] {
  const operators = ["=", "!=", "<", "<=", ">", ">=", ":"];
  return [...[...all].map(([key, values]) => ({ name: fieldOf(key), hint: "metadata", operators, literals: [...values.keys()] })), { name: "metadata.", hint: "metadata", operators }];
}

/** Returns comparisons, to be joined with OR, that find a word in metadata. */
export function searchAttributes(all: Attributes, word: string): string[] {
  const found: string[] = [];
  for (const [key, values] of [...all].slice(0, mostSearched)) {
    const kinds = new Set(values.values());
    if (kinds.has("list")) found.push(`${fieldOf(key)}:${quoted(word)}`);
    else if (kinds.has("text") || !kinds.size) found.push(`${fieldOf(key)} = ${quoted(word)}`);
    if (kinds.has("number") && /^-?\d+(\.\d+)?$/.test(word)) found.push(`${fieldOf(key)} = ${word}`);
    if (kinds.has("truth") && /^(true|false)$/.test(word)) found.push(`${fieldOf(key)} = ${word}`);
  }
  return found;
}

/** The value of a filter that matches all texts with a prefix. */
export const prefixed = (text: string): string => `${quoted(text).slice(0, -1)}*"`;

interface Has {
  metadata?: JsonObject;
}

/**
 * Returns the metadata of the rows of a list. After want is called, it also returns the metadata of the newest objects, because a filtered
 * list may have no rows. read waits for these objects. If they cannot be read, it returns the metadata that is known.
 */
export function useSample<T extends Has>(list: string, ns: string, rows: T[], newest: (o?: CallOptions) => Promise<T[]>) {
  const [wanted, setWanted] = useState(false);
  const key = ["sample", list, ns];
  const { data } = useRead(key, newest, { every: 0, enabled: wanted });
  const attributes = useMemo(() => attributesOf([...rows, ...(data ?? [])]), [rows, data]);
  return {
    attributes,
    want: () => setWanted(true),
    read: (): Promise<Attributes> => queries.fetchQuery({ queryKey: key, queryFn: () => newest(), staleTime: 60_000 }).then((found) => attributesOf([...rows, ...found]), () => attributes),
  };
}

/** Returns the keys that can be columns: those that are known, and those that were chosen. */
export const keysOf = (all: Attributes, chosen: string[] = []): string[] => [...new Set([...all.keys(), ...chosen.filter((id) => id.startsWith("metadata.")).map((id) => id.slice("metadata.".length))])].slice(0, 40);

/** The text of a value in a list. */
export const attributeText = (value: JsonValue | undefined): string => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
