// A worker: it takes jobs named remind. worker.js is one with heartbeats, progress, cancels and an orderly stop.
async function ask(method, request) {
  const response = await fetch(`http://127.0.0.1:8080/progressor.v1.WorkerService/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  return response.json();
}

for (;;) {
  const { leases = [] } = await ask("Poll", { namespaces: ["mails-node"], workerId: "node-1", jobNames: ["remind"], wait: "20s" });
  for (const { leaseToken, job } of leases) {
    await ask("Complete", { leaseToken, jobResult: { result: { text: `Dear ${job.args.to}, your cart waits.` } } });
  }
}
