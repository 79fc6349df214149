import { conversions } from "./api.js";

type Leaf = (how: string, value: any) => any;

/** Whether bytes of processes are shown as the JSON that they contain. */
export type Payloads = "json" | "bytes";

/** Converts a request or a response of a processor to the JSON of the API. */
export function encode(message: string, value: object): any {
  return convert(message, value, (how, v) => {
    if (how === "bytes") return Buffer.from(v instanceof Uint8Array ? v : JSON.stringify(v)).toString("base64");
    return typeof v === "bigint" ? String(v) : v;
  });
}

/** Converts a response or a task from the JSON of the API. */
export function decode(message: string, value: any, payloads: Payloads = "json"): any {
  return convert(message, value, (how, v) => (how === "bytes" ? payload(v, payloads) : integer(v)));
}

function convert(message: string, value: any, leaf: Leaf): any {
  const fields = conversions[message];
  if (!fields || typeof value !== "object" || value === null) return value;
  const converted = { ...value };
  for (const [field, how] of Object.entries(fields)) {
    if (converted[field] === undefined || (converted[field] === null && how !== "bytes")) continue;
    converted[field] = convertField(how, converted[field], leaf);
  }
  return converted;
}

function convertField(how: string, value: any, leaf: Leaf): any {
  if (how === "bytes") return leaf(how, value);
  if (how.startsWith("{")) {
    const values = Object.entries(value).map(([key, v]) => [key, convertField(how.slice(1, -1), v, leaf)]);
    return Object.fromEntries(values);
  }
  if (Array.isArray(value)) return value.map((v) => convertField(how, v, leaf));
  return how === "int64" ? leaf(how, value) : convert(how, value, leaf);
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function payload(base64: string, payloads: Payloads): any {
  const bytes = new Uint8Array(Buffer.from(base64, "base64"));
  if (payloads === "bytes") return bytes;
  if (bytes.length === 0) return undefined;
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch {
    return bytes; // not JSON
  }
}

function integer(value: string | number): number {
  const n = Number(value);
  if (!Number.isSafeInteger(n)) throw new RangeError(`the engine sent ${value}, which is beyond 2^53`);
  return n;
}
