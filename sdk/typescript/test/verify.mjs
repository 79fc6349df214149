// node verify.mjs KEY... <request: headers, an empty line, the body. It fails if no key has signed it.
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
