// Payloads are bytes that only the processor understands. They are shown as text nodes and never become markup.
import { decodeMulti } from "@msgpack/msgpack";
import { useMemo, useState } from "react";
import { plural } from "./format";
import { Lines } from "./lines";
import { Copy } from "./ui";

export type Reading = "json" | "msgpack" | "text" | "hex";

function asText(bytes: Uint8Array, cut = false): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: cut }); // cut: the last character may be incomplete
  } catch {
    return undefined;
  }
}

function asJSON(bytes: Uint8Array): string | undefined {
  const text = asText(bytes);
  if (text === undefined) return undefined;
  try {
    JSON.parse(text);
    return indent(text);
  } catch {
    return undefined;
  }
}

/** Formats JSON without parsing numbers, so that 9007199254740993 does not change. */
export function indent(text: string): string {
  let out = "";
  let depth = 0;
  let quoted = false;
  const line = () => "\n" + "  ".repeat(depth);
  for (let n = 0; n < text.length; n++) {
    const c = text.charAt(n);
    if (quoted) {
      out += c;
      if (c === "\\") out += text.charAt(++n);
      else if (c === '"') quoted = false;
      continue;
    }
    if (/\s/.test(c)) continue;
    if (c === '"') {
      quoted = true;
      out += c;
    } else if (c === "{" || c === "[") {
      const rest = text.slice(n + 1).match(/^\s*[\]}]/);
      if (rest) {
        out += c + rest[0].trim();
        n += rest[0].length;
        continue;
      }
      depth++;
      out += c + line();
    } else if (c === "}" || c === "]") {
      depth--;
      out += line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else out += c;
  }
  return out;
}

function asMsgpack(bytes: Uint8Array): string | undefined {
  try {
    const all = [...decodeMulti(bytes, { useBigInt64: true })];
    if (all.length === 0) return undefined;
    const plain = (_: string, v: unknown) => (typeof v === "bigint" ? v.toString() : v instanceof Uint8Array ? { $bin: btoa(Array.from(v, (b) => String.fromCharCode(b)).join("")) } : v);
    return all.map((v) => JSON.stringify(v, plain, 2)).join("\n");
  } catch {
    return undefined;
  }
}

export function asHex(bytes: Uint8Array, limit = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, limit); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > limit) lines.push(`… ${bytes.length - limit} more bytes`);
  return lines.join("\n");
}

export function read(bytes: Uint8Array, how: Reading): string | undefined {
  switch (how) {
    case "json":
      return asJSON(bytes);
    case "msgpack":
      return asMsgpack(bytes);
    case "text":
      return asText(bytes);
    case "hex":
      return asHex(bytes);
  }
}

/** Guesses the format of bytes: JSON, MessagePack of a map or a list, text, or binary. */
export function guess(bytes: Uint8Array, cut = false): Reading {
  if (asJSON(bytes) !== undefined) return "json";
  const first = bytes[0] ?? 0;
  const container = (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf);
  if (container && asMsgpack(bytes) !== undefined) return "msgpack";
  const text = asText(bytes, cut);
  return text !== undefined && !/[\u0000-\u0008\u000e-\u001f]/.test(text) ? "text" : "hex";
}

/** A short form for a table. */
export function brief(bytes: Uint8Array, limit = 160): string {
  if (bytes.length === 0) return "";
  const how = bytes.length > 4096 ? guess(bytes.subarray(0, 4096), true) : guess(bytes);
  const text = how === "hex" ? asHex(bytes.subarray(0, 16)).slice(8, 55).trim() : how === "msgpack" ? (asMsgpack(bytes)?.replace(/\s+/g, " ") ?? "") : (asText(bytes.subarray(0, limit * 4), true) ?? "");
  const clean = text.replace(/\s+/g, " ");
  return clean.length > limit ? clean.slice(0, limit) + "…" : clean;
}

export const bytesOf = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

const names: [Reading, string][] = [
  ["json", "JSON"],
  ["msgpack", "MessagePack"],
  ["text", "Text"],
  ["hex", "Hex"],
];

export function Payload({ bytes, name = "payload" }: { bytes: Uint8Array; name?: string }) {
  const likely = useMemo(() => guess(bytes), [bytes]);
  const [chosen, setChosen] = useState<Reading>();
  const how = chosen ?? likely;
  const text = useMemo(() => read(bytes, how), [bytes, how]);
  if (bytes.length === 0) return <span className="dim">empty</span>;
  return (
    <div className="payload">
      <div className="readings" role="group" aria-label={`show the ${name} as`}>
        {names.map(([reading, label]) => (
          <button key={reading} type="button" aria-pressed={how === reading} onClick={() => setChosen(reading)}>
            {label}
          </button>
        ))}
        <span className="size">
          <span className="dim">{plural(bytes.length, "byte")}</span>
          {text !== undefined && <Copy text={text} label={`copy the ${name}`} />}
        </span>
      </div>
      {text === undefined ? <p className="dim">This is not {names.find(([r]) => r === how)?.[1]}.</p> : <Lines text={text} json={how === "json" || how === "msgpack"} name={name} />}
    </div>
  );
}

/** An input for payloads. JSON is checked while typing; other text is sent as it is. If json is set, only JSON is allowed, and the field shows errors. */
export function PayloadInput({ value, onChange, json, ...rest }: { value: string; onChange: (text: string) => void; json?: boolean; id?: string }) {
  let wrong = "";
  if (!json && value.trim() && /^[\s]*[[{"]/.test(value)) {
    try {
      JSON.parse(value);
    } catch (e) {
      wrong = e instanceof Error ? e.message : "no JSON";
    }
  }
  return (
    <>
      <textarea {...rest} rows={5} value={value} spellCheck={false} onChange={(e) => onChange(e.target.value)} placeholder='{"pay": 200}' />
      {wrong && <span className="hint">Not valid JSON ({wrong}). It is sent as text.</span>}
    </>
  );
}
