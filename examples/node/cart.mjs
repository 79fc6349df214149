// The processor of carts: a cart takes items, and is abandoned when nothing has come for as long as it keeps them.
import { createServer } from "node:http";

const pack = (value) => Buffer.from(JSON.stringify(value)).toString("base64"); // bytes are base64 in JSON
const unpack = (text) => (text ? JSON.parse(Buffer.from(text, "base64").toString()) : {});

function decide(task) {
  const cart = unpack(task.process.auxState);
  const args = unpack(task.args);
  switch (task.type) {
    case "TASK_TYPE_INIT": {
      const empty = pack({ keep: args.keep ?? "60s", items: [] });
      return { result: { auxState: empty, response: empty } };
    }
    case "TASK_TYPE_CALL":
      if (!args.add) return { rejection: { reason: "nothing_to_add", message: "add is empty" } };
      cart.items.push(args.add);
      return {
        result: {
          auxState: pack(cart),
          response: pack(cart),
          events: [{ payload: pack({ added: args.add }) }],
          setTimer: { after: cart.keep },
        },
      };
    case "TASK_TYPE_TIMEOUT":
      return { result: { events: [{ payload: pack({ abandoned: cart.items }) }], complete: {} } };
    case "TASK_TYPE_CANCEL":
      return { result: {} };
    default:
      return { rejection: { reason: "not_handled", message: `${task.type} is not handled` } };
  }
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const answer = decide(JSON.parse(Buffer.concat(chunks).toString()));
  response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(answer));
}).listen(9102, "127.0.0.1");
