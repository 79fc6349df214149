// The functions of the conformance kit: progressor conformance run --cmd "node conformance.mjs".
import { createServer } from "node:http";
import { Failure, func, processor, Rejection, Restart, StepError } from "../dist/index.js";

const hour = 3600_000;
const undo = () => {};

function charge(card) {
  if (card === "declined") throw new Rejection("declined", "the bank declined the card");
  if (card === "broken") throw new Error("the bank is down");
  return `charge ${card}`;
}

const order = func("order", async (ctx, { item = "", price = 0, parcels }) => {
  if (price <= 0) throw new Rejection("bad_price", "the price must be positive");
  const pays = ctx.calls("pay", ({ amount }) => {
    if (amount !== price) throw new Rejection("wrong_amount", `the price is ${price}`);
    return { state: "paying" };
  });
  await ctx.step("reserve", () => `reserve ${item}`, { undo });
  ctx.publish({ state: "reserved" });
  const late = await ctx.after("pay-within", 24 * hour);
  if ((await ctx.first("paid-or-late", pays, late)) === late) {
    ctx.publish({ state: "expired" });
    throw new Rejection("not_paid", "not paid within a day");
  }
  await late.stop();
  const { card } = await pays.next();
  const charged = await ctx.step("charge", () => charge(card), { tries: 2, wait: 1000, undo });
  const labels = await ctx.each("parcel", parcels ?? [], (ctx, parcel) => ctx.step("label", () => `label ${parcel}`), { limit: 2 });
  await ctx.sleep("return-period", 14 * 24 * hour);
  ctx.publish({ state: "done" });
  return { charge: charged ?? "", labels };
});

const names = func("names", async (ctx, { rounds }) => {
  const out = { texts: [], nested: [], random: 0 };
  await ctx.now("value");
  await ctx.uuid("value");
  out.random = await ctx.random("value", 1);
  for (let i = 0; i < rounds; i++) {
    out.texts.push(await ctx.step("text", () => `text ${i}`));
    out.nested.push(await ctx.each("outer", [i, i + 1], async (ctx, n) => {
      const parts = await ctx.each("inner", [n, n * n], async (ctx, m) => {
        await ctx.random("value", 1);
        await ctx.sleep("pause", m * 1000);
        return ctx.step("text", () => String(m));
      });
      return parts.join(" ");
    }));
  }
  return out;
});

const failed = new Map();

const retries = func("retries", async (ctx, { failures = 0, tries, reject }) => {
  const body = ({ key }) => {
    failed.set(key, (failed.get(key) ?? 0) + 1);
    if (failed.get(key) <= failures) throw new Failure("busy", "try again later");
    return key.split("/").at(-1);
  };
  const key = await ctx.step("a", body, { tries, wait: 1000, undo });
  if (reject) throw new Rejection("as_asked", "no");
  await ctx.each("e", ["x", "y"], async (_, item) => {
    throw new Error(`${item} is broken`);
  });
  return key;
});

const family = func("family", async (ctx, { item = "", price = 0, parcels }) => {
  const invoice = await ctx.child("invoice", { item, price, parcels }, { namespace: "invoices" });
  const late = await ctx.after("late", 24 * hour);
  const labels = await ctx.each("parcel", parcels, async (ctx, parcel) => {
    const child = await ctx.child("label", parcel);
    return (await child.get().catch((error) => {
      if (error instanceof StepError && error.rejected) return error.reason;
      throw error;
    })) ?? "";
  }, { limit: 2 });
  if ((await ctx.first("invoice-or-late", invoice, late)) === late) {
    await invoice.cancel("too late");
    return { charge: "", labels };
  }
  return { charge: await invoice.get(), labels };
});

const sum = func("sum", async (ctx, { sum = 0, rounds = 0 }) => {
  const adds = ctx.calls("add", (n) => sum + n);
  ctx.setMetadata({ rounds, version: ctx.version("sums") });
  await ctx.after("unused", 30 * 24 * hour);
  for (let i = 0; i < 3; i++) {
    sum += await adds.next();
    await ctx.sleep("pause", 60_000);
  }
  ctx.publish({ sum, rounds });
  return ++rounds < 2 ? new Restart({ sum, rounds }) : sum;
}, { versions: { sums: 2 } });

const misuse = func("misuse", async (ctx) => {
  await ctx.step("good", () => "good");
  return ctx.step("bad", () => ctx.uuid("id"));
});

const functions = { order, names, retries, family, sum, misuse };
const servers = Object.fromEntries(Object.entries(functions).map(([name, f]) => [`/${name}`, processor(f)]));
const server = createServer((request, response) => servers[request.url](request, response));
server.listen(process.env.PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
