// A fake of the services of a shop. Each request has an idempotency key: a repeated one has no effect.
import { Rejection } from "@progressor-engine/sdk";

const keys = new Set();

export async function request(what, key) {
  if (what.endsWith(" declined")) throw new Rejection("declined", "the bank declined the card");
  if (!keys.has(key)) console.log(what);
  keys.add(key);
  return what;
}
