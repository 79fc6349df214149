// Usage: node verify.mjs KEY... <request. A request is its headers, an empty line and its body. The
// program fails if no key has signed the request.
import { readFileSync } from "node:fs";
import { verify } from "../dist/index.js";

const request = readFileSync(0);
const end = request.indexOf("\n\n");
const lines = request.subarray(0, end).toString().split("\n").map((line) => line.split(": "));
const headers = Object.fromEntries(lines.map(([name, value]) => [name.toLowerCase(), value]));
try {
  verify(headers, request.subarray(end + 2), process.argv.slice(2));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
