import { createHmac, createPublicKey, timingSafeEqual, verify as verifySignature } from "node:crypto";

const tolerance = 300; // seconds between webhook-timestamp and the clock of this machine
const maxSignatures = 10; // signatures of a request that are checked
const ed25519 = Buffer.from("302a300506032b6570032100", "hex"); // begins a public key in DER

/**
 * Throws an error unless one of the keys has signed the request, as defined by Standard Webhooks.
 * The engine can sign its requests to processors, to HTTP targets of crons and to webhooks. To
 * replace a key, pass the old and the new one.
 *
 * @param headers those of node:http, with names in lower case
 * @param body the bytes of the body, unchanged
 * @param keys begin with whsec_, or with whpk_ if they are public keys of Ed25519
 * @param now in seconds since 1970
 */
export function verify(
  headers: { [name: string]: string | string[] | undefined }, body: Uint8Array, keys: string[], now = Date.now() / 1000,
): void {
  const names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
  const [id = "", timestamp = "", signatures = ""] = names.map((name) => String(headers[name] ?? ""));
  if (!id || !timestamp || !signatures) throw new Error(`the request is not signed: it needs the headers ${names.join(", ")}`);
  // With a dot, the ID could contain the timestamp of another request.
  if (id.includes(".")) throw new Error("webhook-id must not contain a dot");
  if (!/^[0-9]{1,12}$/.test(timestamp)) throw new Error("webhook-timestamp must be a number of seconds");
  if (Math.abs(now - Number(timestamp)) > tolerance) throw new Error("webhook-timestamp differs too much from the clock of this machine");
  if (!Array.isArray(keys)) throw new Error("the keys must be an array");
  const content = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  const texts = signatures.split(" ").slice(0, maxSignatures);
  if (keys.some((key) => texts.some(accepts(key, content)))) return;
  throw new Error("no signature of the request was made with a known key");
}

/** Returns a function that reports whether a key has created a signature of the content. */
function accepts(key: string, content: Buffer): (text: string) => boolean {
  if (key.startsWith("whpk_")) {
    const raw = Buffer.from(key.slice(5), "base64");
    if (raw.length !== 32) throw new Error("a key must be whpk_ followed by an Ed25519 public key in base64");
    const publicKey = createPublicKey({ key: Buffer.concat([ed25519, raw]), format: "der", type: "spki" });
    return (text) => text.startsWith("v1a,") && verifySignature(null, content, publicKey, Buffer.from(text.slice(4), "base64"));
  }
  const secret = Buffer.from(key.replace(/^whsec_/, ""), "base64");
  if (!key.startsWith("whsec_") || secret.length < 24) throw new Error("a key must be whsec_ followed by 24 or more bytes in base64");
  const mine = Buffer.from("v1," + createHmac("sha256", secret).update(content).digest("base64"));
  return (text) => {
    const theirs = Buffer.from(text);
    return theirs.length === mine.length && timingSafeEqual(theirs, mine);
  };
}
