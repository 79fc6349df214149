// A small shop with orders in different states, the same in each run.
import { bytes } from "./world.mjs";

export async function start(engine, id, args, more = {}) {
  return engine.post("ProcessService/Start", { namespace: "demo", processId: id, args: bytes(args), ...more });
}

const quiet = (request) => request.catch((e) => e.answer ?? Promise.reject(e));

export async function seedShop(engine, orders = 14) {
  const call = (id, args) => quiet(engine.post("ProcessService/Call", { namespace: "demo", processId: id, args: bytes(args) }));
  const all = Array.from({ length: orders }, (_, n) => n + 1);
  for (const n of all) {
    const sku = n % 4 === 0 ? "broken" : n % 5 === 0 ? "flaky" : "tea";
    await start(engine, `order-${n}`, { order: `A-${n}`, customer: ["ada", "bob", "cy"][n % 3], items: [{ sku, quantity: (n % 3) + 1 }] });
  }
  for (const n of all) if (n % 2 === 0 || n % 5 === 0) await call(`order-${n}`, { pay: ((n % 3) + 1) * 100 });
  await engine.post("ProcessService/SuspendProcess", { namespace: "demo", processId: "order-3", reason: "the customer called: wait" });
  await engine.post("ProcessService/CancelProcess", { namespace: "demo", processId: "order-7", reason: "no more" });
}

/** Waits until check returns a truthy value, and returns this value. `what` is for the error. */
export async function eventually(what, check, ms = 20_000) {
  const end = Date.now() + ms;
  for (;;) {
    const got = await check();
    if (got) return got;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}
