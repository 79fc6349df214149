// Puts an item into a cart: add.mjs CART ITEM.
import { Client, TaskRejected } from "@progressor-engine/sdk";

const [processId, add] = process.argv.slice(2);
const client = new Client(); // at PROGRESSOR_ADDRESS, or http://127.0.0.1:8080
try {
  const { response } = await client.process.call({ namespace: "carts-node", processId, args: { add } });
  console.log(JSON.stringify(response));
} catch (error) {
  if (!(error instanceof TaskRejected)) throw error;
  console.log("no:", error.rejection.message);
}
