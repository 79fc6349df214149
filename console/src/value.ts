// Converts google.protobuf.Value from and to plain JSON.
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema, type Value } from "@bufbuild/protobuf/wkt";

export const plainValue = (v?: Value): unknown => (v === undefined || v.kind.case === undefined ? null : toJson(ValueSchema, v));
const most = 2n ** 53n;

/** Returns an error if the text contains an integer beyond 2^53, which would be rounded. */
export function losesDigits(text: string): string {
  const outside = text.replace(/"(?:[^"\\]|\\.)*"/g, '""'); // without strings
  const long = [...outside.matchAll(/(?<![\d.])\d{16,}/g)].find(([digits]) => BigInt(digits) > most);
  return long ? `the integer ${long[0].slice(0, 40)} is beyond 2^53 and would lose digits: write it as a string` : "";
}

/** Parses JSON. Throws a SyntaxError, or a RangeError if an integer beyond 2^53 would lose digits. */
export function exactJSON(text: string): JsonValue {
  const json = JSON.parse(text) as JsonValue;
  const lost = losesDigits(text);
  if (lost) throw new RangeError(lost);
  return json;
}

/** Converts plain JSON. As in JSON.stringify, an undefined property is left out, and an undefined item becomes null. */
export const valueOf = (json: JsonValue | undefined): Value => fromJson(ValueSchema, JSON.parse(JSON.stringify(json ?? null)) as JsonValue);
