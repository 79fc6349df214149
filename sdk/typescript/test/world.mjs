// What the tests share: the engine of PROGRESSOR_ADDRESS, namespaces, and proxies that lose responses.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "../dist/index.js";

export const client = new Client();

/** Returns the name of a new namespace. */
export async function namespace(processor, more = {}) {
  const name = `sdk-${randomUUID().slice(0, 8)}`;
  await client.namespace.putNamespace({ namespace: { namespace: name, processor, ...more } });
  return name;
}

/** Starts a server, and returns its address. The server ends with the test. */
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
 * Starts a proxy of the engine. It calls answered(method, request, response, socket) with the bodies
 * before it sends a response. If that returns false, the connection breaks instead.
 */
export function proxy(t, answered) {
  return listen(t, async (from, to) => {
    try {
      const body = await buffer(from);
      const forward = request(client.url + from.url, { method: from.method, headers: from.headers });
      forward.on("error", () => from.socket.destroy());
      from.socket.on("close", () => forward.destroy());
      forward.end(body);
      const [response] = await once(forward, "response");
      const answer = await buffer(response);
      const method = from.url.slice(from.url.lastIndexOf("/") + 1);
      if ((await answered(method, body, answer, from.socket)) === false) throw new Error("lost");
      to.writeHead(response.statusCode, response.headers).end(answer);
    } catch {
      from.socket.destroy();
    }
  });
}

/**
 * Starts a proxy that loses the first responses of a method: the engine has done what was asked,
 * and the connection breaks. requests contains the bodies that it has seen for the method.
 */
export async function losing(t, method, count = 1) {
  const requests = [];
  const url = await proxy(t, (called, body) => called !== method || requests.push(JSON.parse(body)) > count);
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

/** Runs a worker until the test ends. attempts contains the attempts that have ended. */
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
