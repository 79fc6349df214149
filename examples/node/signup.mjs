// A durable function: the signup of examples/go/signup, with the same journal.
import { createServer } from "node:http";
import { func, processor } from "@progressor-engine/sdk";

const signup = func("signup", async (ctx, { mail, seconds }) => {
  const confirmed = ctx.calls("confirm", (name) => `thank you, ${name}`);
  const step = (name) => ctx.step(name, () => console.log(`${name} ${mail}`), { tries: 2, wait: 1000 });
  await step("open");
  const late = await ctx.after("confirm-within", seconds * 1000);
  if ((await ctx.first("confirmed-or-late", confirmed, late)) === late) {
    await step("delete");
    return "too late";
  }
  const name = await confirmed.next();
  await step("welcome");
  return `welcome, ${name}`;
});

createServer(processor(signup)).listen(9107, "127.0.0.1", () => console.log("the program listens"));
