// The processor of carts: a cart takes items, and is abandoned if nothing is added for a while.
import { createServer } from "node:http";
import { processor, Rejection } from "@progressor-engine/sdk";

const carts = processor({
  init({ args }) {
    const cart = { keep: args?.keep ?? "60s", items: [] };
    return { auxState: cart, response: cart };
  },
  call({ args, process: { auxState: cart } }) {
    if (!args.add) throw new Rejection("nothing_to_add", "add is empty");
    cart.items.push(args.add);
    return { auxState: cart, response: cart, events: [{ payload: { added: args.add } }], setTimer: { after: cart.keep } };
  },
  timeout({ process: { auxState: cart } }) {
    return { events: [{ payload: { abandoned: cart.items } }], complete: {} };
  },
});

createServer(carts).listen(9102, "127.0.0.1");
