// What the tests share: the engine of PROGRESSOR_ADDRESS, namespaces, and proxies that lose responses.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "../dist/index.js";

export const client = new Client();

/** Returns the name of a new namespace. */
export async function namespace(processor, more = {}) {
  const name = `sdk-${randomUUID().slice(0, 8)}`;
  await client.namespace.putNamespace({ namespace: { namespace: name, processor, ...more } });
  return name;
}

/** Starts a server, and returns its address. It ends with the test. */
export async function listen(t, listener) {
  const server = createServer(listener);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/**
 * Starts a proxy of the engine. It loses the first responses of a method: the engine has done what
 * was asked, and the connection breaks. requests has the bodies that it has seen for the method.
 */
export async function losing(t, method, count = 1) {
  const requests = [];
  const url = await listen(t, (from, to) => {
    const chunks = [];
    from.on("data", (chunk) => chunks.push(chunk));
    from.on("end", () => {
      const body = Buffer.concat(chunks);
      const lose = from.url.endsWith(`/${method}`) && requests.push(JSON.parse(body.toString())) <= count;
      const forward = request(client.url + from.url, { method: from.method, headers: from.headers }, (response) => {
        if (lose) {
          response.resume().on("end", () => from.socket.destroy());
          return;
        }
        to.writeHead(response.statusCode, response.headers);
        response.pipe(to);
      });
      forward.on("error", () => from.socket.destroy());
      from.socket.on("close", () => forward.destroy());
      forward.end(body);
    });
  });
  return { url, requests };
}

/** Repeats a check until it passes. */
export async function eventually(check) {
  for (const end = Date.now() + 30_000; ; await sleep(20)) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}

/** Runs a worker until the test ends. attempts has the attempts that have ended. */
export function work(t, namespace, register, options = {}, of = client) {
  const attempts = [];
  const worker = new Worker(of, [namespace], {
    signals: [], log: () => {}, stopGrace: 0, ended: (attempt) => attempts.push(attempt), ...options,
  });
  register(worker);
  const over = worker.run();
  over.catch(() => {});
  t.after(async () => {
    worker.stop();
    await over.catch(() => {});
  });
  return { worker, over, attempts };
}

/** Enqueues a job that keeps its result, and returns its ID. */
export async function enqueue(namespace, name, args, options = {}) {
  const { job } = await client.job.enqueue({ namespace, name, args, options: { keepResult: true, ...options } });
  return job.jobId;
}

/** Waits for the end of a job. */
export async function ended(namespace, jobId) {
  const { job } = await client.job.getJob({ namespace, jobId, awaitEnd: "30s" });
  assert.ok(job.finishedTime, `job ${jobId} has not ended: ${JSON.stringify(job)}`);
  return job;
}
