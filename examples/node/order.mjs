// A durable function: the order of examples/go/order, with the same journal.
import { createServer } from "node:http";
import { func, processor, Rejection } from "@progressor-engine/sdk";
import { request } from "./services.mjs";

const day = 24 * 3600_000;

const order = func("order", async (ctx, { item, price, parcels = [] }) => {
  if (!(price > 0)) throw new Rejection("bad_price", "the price must be positive");
  const pays = ctx.calls("pay", ({ amount }) => {
    if (amount !== price) throw new Rejection("wrong_amount", `the price is ${price}`);
    return { state: "paying" };
  });
  const undo = (what, { key }) => request(`undo ${what}`, key);
  await ctx.step("reserve", ({ key }) => request(`reserve ${item}`, key), { tries: 5, wait: 1000, undo });
  ctx.publish({ state: "reserved" });

  const late = await ctx.after("pay-within", day);
  if ((await ctx.first("paid-or-late", pays, late)) === late) {
    ctx.publish({ state: "expired" });
    throw new Rejection("not_paid", "not paid within a day");
  }
  const { card } = await pays.next();
  const charge = await ctx.step("charge", ({ key }) => request(`charge ${card}`, key), { tries: 5, wait: 1000, undo });
  ctx.publish({ state: "paid" });

  const labels = await ctx.each("parcel", parcels, (ctx, parcel) =>
    ctx.step("label", ({ key }) => request(`label ${parcel}`, key), { tries: 5, wait: 1000 }), { limit: 4 });
  await ctx.sleep("return-period", 14 * day);
  ctx.publish({ state: "done" });
  return { charge, labels };
});

const server = createServer(processor(order));
server.listen(process.env.PORT ?? 9104, "127.0.0.1", () => console.log(`orders: http://127.0.0.1:${server.address().port}`));
