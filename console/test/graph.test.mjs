// The graph of a run and its steps over time, as a user sees them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually } from "./seed.mjs";
import { specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser;
const spec = specs(() => ({ engine, browser }));
const put = (template) => engine.post("FlowService/PutTemplate", { template: { namespace: "orders", stepOrder: "STEP_ORDER_GRAPH", ...template } });
const start = (type, runId) => engine.post("FlowService/StartRun", { namespace: "orders", type, runId });
const is = (runId, status) => eventually(`${runId} is ${status}`, async () => (await engine.post("FlowService/GetRun", { namespace: "orders", runId })).run.status === `RUN_STATUS_${status}`);
const answer = (runId, stepId, ending = { result: true }) => engine.post("FlowService/CompleteStep", { namespace: "orders", runId, stepId, ...ending });
const wait = { kind: "KIND_HUMAN", title: "Go on?" };

before(async () => {
  engine = await startEngine();
  browser = await startBrowser();
  for (const namespace of ["orders", "depot"]) await engine.post("NamespaceService/PutNamespace", { namespace: { namespace, processor: { pull: {} } } });
  const deps = { check: [], fast_lane: ["check"], slow_lane: ["check"], slow_pack: ["slow_lane"], slow_label: ["slow_pack"], fast_pack: ["fast_lane"], merge: ["slow_label", "fast_pack"], audit: ["check"], charge: ["merge"], ship: ["charge"], invoice: ["charge"], notify: ["ship"] };
  const more = { fast_lane: { condition: "false" }, audit: { ignoreFailure: true }, merge: { joinRule: "JOIN_RULE_ALL_ENDED", wait: undefined, job: { name: "merge_the_parcels_of_both_lanes" } } };
  await put({ type: "parcels", steps: Object.entries(deps).map(([stepId, dependsOn]) => ({ stepId, dependsOn, wait, ...more[stepId] })) });
  await start("parcels", "parcel-1");
  await answer("parcel-1", "check");
  await answer("parcel-1", "audit", { failure: { reason: "ill", message: "the auditor is ill" } });
  await put({ type: "long", steps: Array.from({ length: 24 }, (_, n) => ({ stepId: `s${n}`, dependsOn: n ? [`s${n - 1}`] : [], wait })) });
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Returns what is wrong in a graph: steps that are not visible as a whole, steps that lines cross, texts that buttons cover. */
const wrongIn = (graph) =>
  graph.evaluate((box) => {
    const found = [];
    const frame = box.getBoundingClientRect();
    const nodes = [...box.querySelectorAll(".react-flow__node")].map((n) => ({ id: n.dataset.id, r: n.getBoundingClientRect(), n }));
    for (const { id, r } of nodes) if (r.left < frame.left || r.top < frame.top || r.right > frame.right || r.bottom > frame.bottom) found.push(`${id} is not visible`);
    for (const edge of box.querySelectorAll(".react-flow__edge")) {
      const path = edge.querySelector(".react-flow__edge-path");
      const [from, to] = edge.dataset.id.split("/");
      const hit = new Set();
      for (let at = 0; at <= path.getTotalLength(); at += 4) {
        const p = path.getPointAtLength(at).matrixTransform(path.getScreenCTM());
        for (const { id, r } of nodes) if (id !== from && id !== to && p.x > r.left && p.x < r.right && p.y > r.top && p.y < r.bottom) hit.add(id);
      }
      for (const id of hit) found.push(`the line from ${from} to ${to} crosses ${id}`);
    }
    const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    for (const { id, n } of nodes) {
      const button = n.querySelector(".branch")?.getBoundingClientRect();
      if (!button) continue;
      for (const text of n.querySelectorAll(".second > span, .note, .took")) if (text.textContent && overlap(button, text.getBoundingClientRect())) found.push(`the button of ${id} covers "${text.textContent}"`);
    }
    const map = box.querySelector(".react-flow__minimap")?.getBoundingClientRect();
    for (const { id, r } of nodes) if (map && overlap(map, r)) found.push(`the map covers ${id}`);
    return found;
  });

for (const [device, options] of [["desktop", {}], ["phone", { viewport: { width: 390, height: 844 } }]]) {
  spec(`A graph of twelve steps is shown as a whole on a ${device}, and no line crosses a step`, async (page, go) => {
    await go("#/run?ns=orders&id=parcel-1");
    const graph = page.getByRole("group", { name: "steps of parcel-1" });
    await graph.getByRole("link", { name: /^notify/ }).waitFor();
    await eventually("the graph is placed", async () => (await wrongIn(graph)).every((w) => !w.endsWith("is not visible")));
    assert.deepEqual(await wrongIn(graph), []);
    await graph.getByRole("button", { name: "hide 2 steps after slow_lane" }).press("Enter");
    await graph.getByRole("link", { name: /^slow_pack/ }).waitFor({ state: "detached" });
    assert.deepEqual(await wrongIn(graph), []);
    assert.deepEqual(await graph.locator(".react-flow__controls button").evaluateAll((list) => list.map((b) => b.ariaLabel)), ["Zoom in", "Zoom out", "Show all", "Map", "Full screen"]);
    assert.equal(await graph.getByRole("button", { name: "Map" }).isDisabled(), true, "all steps are visible");
  }, options);
}

spec("A graph that does not fit begins at its first step or at the running one, and has a map below the steps", async (page, go) => {
  await start("long", "long-1");
  await go("#/run?ns=orders&id=long-1");
  const graph = page.getByRole("group", { name: "steps of long-1" });
  const left = async (name) => (await graph.getByRole("link", { name }).boundingBox()).x - (await graph.boundingBox()).x;
  await graph.getByRole("link", { name: /^s0.*Running/ }).waitFor();
  await eventually("s0 is at the left", async () => Math.abs((await left(/^s0/)) - 18) < 3);
  await graph.getByRole("button", { name: "Map" }).click();
  await graph.getByRole("img", { name: "map of the steps" }).waitFor();
  assert.deepEqual((await wrongIn(graph)).filter((w) => !w.endsWith("is not visible")), []);
  await graph.getByRole("button", { name: "Show all" }).click();
  await graph.getByRole("img", { name: "map of the steps" }).waitFor({ state: "detached" });
  for (let n = 0; n < 15; n++) await answer("long-1", `s${n}`);
  await graph.getByRole("link", { name: /^s15.*Running/ }).waitFor();
  await page.reload();
  await graph.getByRole("link", { name: /^s15.*Running/ }).waitFor();
  const { width } = await graph.boundingBox();
  await eventually("s15 is visible", async () => (await left(/^s15/)) > 0 && (await left(/^s15/)) < width - 150);
});

spec("The list of steps says that a failure is ignored", async (page, go) => {
  await go("#/run?ns=orders&id=parcel-1");
  const row = page.getByRole("row", { name: /^audit/ });
  await row.getByText("Failed").waitFor();
  await row.getByText(", ignored").waitFor();
  assert.equal(await page.getByText(", ignored").count(), 1);
  await row.getByRole("link", { name: "audit" }).click();
  await page.locator(".steppanel").getByText("The run continues, because the template ignores a failure of this step").waitFor();
});

spec("The timeline of a run shows all attempts of jobs in another namespace", async (page, go) => {
  const job = (name) => ({ namespace: "depot", name, options: { maxRetry: 0 } });
  await put({ type: "far", steps: [{ stepId: "fetch", job: job("fetch"), compensation: job("bring_back") }, { stepId: "pack", dependsOn: ["fetch"], job: job("pack") }] });
  await start("far", "far-1");
  const work = async (name, ending = { jobResult: { result: true } }) => {
    const lease = await eventually(`${name} is enqueued`, async () => (await engine.post("WorkerService/Poll", { namespaces: ["depot"], workerId: "host-9", maxLeases: 1, wait: "1s" })).leases?.[0]);
    assert.equal(lease.job.name, name);
    await engine.post("WorkerService/Complete", { leaseToken: lease.leaseToken, ...ending });
  };
  await work("fetch");
  await work("pack", { response: { failure: { reason: "no_box", message: "the box is too small", nonRetryable: true } } });
  await work("bring_back");
  await is("far-1", "FAILED");
  await engine.post("FlowService/RetryRun", { namespace: "orders", runId: "far-1", inputs: [{ stepId: "pack", input: { box: "large" } }] });
  await work("fetch");
  await work("pack");
  await is("far-1", "SUCCEEDED");
  const read = [];
  page.on("request", (r) => r.url().endsWith("/ListJobEvents") && read.push(r.postDataJSON().namespace));
  await go("#/run?ns=orders&id=far-1&tab=time");
  const rows = page.getByRole("region", { name: "steps of far-1 over time" });
  await rows.getByRole("img", { name: /^pack: waited [^;]* for a worker; attempt 1 on host-9 failed [^;]*; waited [^;]* for a worker; attempt \d on host-9 succeeded/ }).waitFor();
  await rows.getByRole("img", { name: /^fetch: waited [^;]* for a worker; attempt 1 on host-9 succeeded [^;]*; its compensation [^;]*; waited [^;]* for a worker; attempt \d on host-9 succeeded/ }).waitFor();
  assert.deepEqual([...new Set(read)].sort(), ["depot", "orders"]);
});
