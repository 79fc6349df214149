// google.protobuf.Value, which the generated code has as a message, from and to plain JSON.
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema, type Value } from "@bufbuild/protobuf/wkt";

export const plainValue = (v?: Value): unknown => (v === undefined || v.kind.case === undefined ? null : toJson(ValueSchema, v));
const most = 2n ** 53n;

/** What is wrong with a number that is typed: an integer past 2^53 would be rounded. The engine refuses it, and so does the page, which would send it rounded. */
export function losesDigits(text: string): string {
  const outside = text.replace(/"(?:[^"\\]|\\.)*"/g, '""'); // of texts
  const long = [...outside.matchAll(/(?<![\d.])\d{16,}/g)].find(([digits]) => BigInt(digits) > most);
  return long ? `the integer ${long[0].slice(0, 40)} is past 2^53 and would lose digits: make it a text` : "";
}

/** Reads JSON that was typed; an error is a SyntaxError, or a RangeError where it would lose digits. */
export function exactJSON(text: string): JsonValue {
  const json = JSON.parse(text) as JsonValue;
  const lost = losesDigits(text);
  if (lost) throw new RangeError(lost);
  return json;
}

export const valueOf = (json: JsonValue): Value => fromJson(ValueSchema, json);
