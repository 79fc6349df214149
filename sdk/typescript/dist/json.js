import { conversions } from "./api.js";
/** Parses JSON. Returns undefined if the text is not JSON. */
export function jsonOf(text) {
    try {
        return JSON.parse(text);
    }
    catch {
        return undefined;
    }
}
/** Converts a request or a response of a processor to the JSON of the API. */
export function encode(message, value) {
    return convert(message, value, (how, v) => {
        if (how === "bytes")
            return Buffer.from(v instanceof Uint8Array ? v : JSON.stringify(v)).toString("base64");
        return typeof v === "bigint" ? String(v) : v;
    });
}
/** Converts a response or a task from the JSON of the API. */
export function decode(message, value, payloads = "json") {
    return convert(message, value, (how, v) => (how === "bytes" ? payload(v, payloads) : integer(v)));
}
function convert(message, value, leaf) {
    const fields = conversions[message];
    if (!fields || typeof value !== "object" || value === null)
        return value;
    const converted = { ...value };
    for (const [field, how] of Object.entries(fields)) {
        if (converted[field] === undefined || (converted[field] === null && how !== "bytes"))
            continue;
        converted[field] = convertField(how, converted[field], leaf);
    }
    return converted;
}
function convertField(how, value, leaf) {
    if (how === "bytes")
        return leaf(how, value);
    if (how.startsWith("{")) {
        const values = Object.entries(value).map(([key, v]) => [key, convertField(how.slice(1, -1), v, leaf)]);
        return Object.fromEntries(values);
    }
    if (Array.isArray(value))
        return value.map((v) => convertField(how, v, leaf));
    return how === "int64" ? leaf(how, value) : convert(how, value, leaf);
}
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
function payload(base64, payloads) {
    const bytes = new Uint8Array(Buffer.from(base64, "base64"));
    if (payloads === "bytes")
        return bytes;
    if (bytes.length === 0)
        return undefined;
    try {
        const text = utf8.decode(bytes);
        const value = JSON.parse(text);
        return isExact(text) ? value : bytes;
    }
    catch {
        return bytes; // not JSON
    }
}
const maybeInexact = /\d{16}|[eE]\+?\d{3}/;
const number = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
/**
 * Reports whether JSON.parse keeps every number of a text: all integers are below 2^53, and no
 * number becomes infinite. Otherwise, the numbers would change if the value were stored again.
 */
function isExact(json) {
    if (!maybeInexact.test(json))
        return true;
    for (let i = 0; i < json.length; i++) {
        const c = json[i];
        if (c === '"') {
            for (i++; json[i] !== '"'; i++)
                if (json[i] === "\\")
                    i++;
        }
        else if (c === "-" || (c >= "0" && c <= "9")) {
            number.lastIndex = i;
            const [text, fraction, exponent] = number.exec(json);
            const value = Number(text);
            if (!Number.isFinite(value) || (!fraction && !exponent && !Number.isSafeInteger(value)))
                return false;
            i += text.length - 1;
        }
    }
    return true;
}
function integer(value) {
    const n = Number(value);
    if (!Number.isSafeInteger(n))
        throw new RangeError(`the engine sent ${value}, which is beyond 2^53`);
    return n;
}
