// A worker that runs the jobs named remind.
import { Client, Worker } from "@progressor-engine/sdk";

const worker = new Worker(new Client(), ["mails-node"], { concurrency: 5 });

worker.job("remind", async ({ to }, job) => {
  job.progress(50, "half of the letter");
  return { text: `Dear ${to}, your cart waits.` };
});

await worker.run(); // until SIGTERM or Ctrl-C
