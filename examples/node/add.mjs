// Puts an item into a cart: add.mjs CART ITEM.
import { randomUUID } from "node:crypto";

const [processId, add] = process.argv.slice(2);
const response = await fetch("http://127.0.0.1:8080/progressor.v1.ProcessService/Call", {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({
    namespace: "carts-node",
    processId,
    args: Buffer.from(JSON.stringify({ add })).toString("base64"),
    idempotencyKey: randomUUID(), // sent again, after a lost answer, it is done once
  }),
});
const answer = await response.json();
if (response.ok) {
  console.log(Buffer.from(answer.response, "base64").toString());
} else {
  const detail = answer.details?.[0].debug;
  console.log("no:", detail?.reason === "REASON_TASK_REJECTED" ? detail.rejection.message : answer.message);
}
