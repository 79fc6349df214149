// The layout of a graph, without an engine and without a browser.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { build } from "vite";

const source = new URL("../src/layers.ts", import.meta.url).pathname;
let layout, cornerOf, curvesOf;

before(async () => {
  const [{ output }] = await build({ configFile: false, logLevel: "silent", build: { write: false, minify: false, lib: { entry: source, formats: ["es"] } } });
  ({ layout, cornerOf, curvesOf } = await import(`data:text/javascript;base64,${Buffer.from(output[0].code).toString("base64")}`));
});

const across = { wide: 172, high: 70, apart: 44, between: 22, down: false };
const down = { wide: 140, high: 70, apart: 32, between: 10, down: true };

/** Returns random numbers below a limit, the same in each run. */
function numbers(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Returns a graph in which each step depends on up to three earlier steps, near or far. */
function generated(seed, size) {
  const below = numbers(seed);
  const after = new Map();
  for (let n = 0; n < size; n++) {
    const deps = new Set();
    for (let d = below(4); d > 0 && n > 0; d--) deps.add(`s${below(3) ? n - 1 - below(Math.min(n, 4)) : below(n)}`);
    after.set(`s${n}`, [...deps]);
  }
  return after;
}

/** Returns points along the curves of an edge. */
function* alongOf(curves) {
  for (let n = 0; n + 3 < curves.length; n += 3) {
    const [a, b, c, d] = curves.slice(n, n + 4);
    for (let t = 0; t <= 1; t += 1 / 16) {
      const [p, q, r, s] = [(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t ** 2, t ** 3];
      yield [p * a[0] + q * b[0] + r * c[0] + s * d[0], p * a[1] + q * b[1] + r * c[1] + s * d[1]];
    }
  }
}

/** Returns the steps whose boxes an edge crosses or the ends of which it does not meet, for all edges of a graph. */
function crossings(after, sizes) {
  const { places, routes } = layout([...after.keys()], after);
  const corners = new Map([...places].map(([id, place]) => [id, cornerOf(place, sizes)]));
  const found = [];
  for (const [to, deps] of after) {
    for (const from of deps) {
      const [[ax, ay], [bx, by]] = [corners.get(from), corners.get(to)];
      const ends = sizes.down ? [[ax + sizes.wide / 2, ay + sizes.high], [bx + sizes.wide / 2, by]] : [[ax + sizes.wide, ay + sizes.high / 2], [bx, by + sizes.high / 2]];
      const hit = new Set();
      for (const [x, y] of alongOf(curvesOf(...ends, routes.get(from)?.get(to) ?? [], sizes))) {
        for (const [id, [left, top]] of corners) if (id !== from && id !== to && x > left && x < left + sizes.wide && y > top && y < top + sizes.high) hit.add(id);
      }
      for (const id of hit) found.push(`${from} to ${to} crosses ${id}`);
    }
  }
  return found;
}

/** Returns the steps whose boxes overlap or are above the graph. */
function misplaced(after, sizes) {
  const { places } = layout([...after.keys()], after);
  const corners = [...places].map(([id, place]) => [id, ...cornerOf(place, sizes)]);
  const found = corners.filter(([, x, y]) => x < -0.01 || y < -0.01).map(([id]) => `${id} is outside`);
  corners.forEach(([a, x, y], n) => {
    for (const [b, u, v] of corners.slice(n + 1)) if (Math.abs(x - u) < sizes.wide && Math.abs(y - v) < sizes.high) found.push(`${a} overlaps ${b}`);
  });
  return found;
}

test("No edge crosses a step that is not one of its ends", () => {
  for (let seed = 1; seed <= 40; seed++) {
    const after = generated(seed, 4 + (seed % 37));
    for (const sizes of [across, down]) assert.deepEqual([...crossings(after, sizes), ...misplaced(after, sizes)], [], `graph ${seed}, ${sizes.down ? "down" : "across"}`);
  }
});

test("Steps in sequence are in one line, and branches are symmetric around it", () => {
  const sequence = new Map([["a", []], ["b", ["a"]], ["c", ["b"]]]);
  assert.deepEqual([...layout(["a", "b", "c"], sequence).places.values()], [0, 1, 2].map((layer) => ({ layer, row: 0 })));
  const fork = new Map([["a", []], ["b", ["a"]], ["c", ["a"]], ["d", ["b", "c"]]]);
  const { places } = layout([...fork.keys()], fork);
  assert.deepEqual(["a", "b", "c", "d"].map((id) => places.get(id)), [{ layer: 0, row: 0.5 }, { layer: 1, row: 0 }, { layer: 1, row: 1 }, { layer: 2, row: 0.5 }]);
});

test("An edge past a step keeps a distance from it", () => {
  const after = new Map([["a", []], ["b", ["a"]], ["c", ["a", "b"]]]);
  const { places, routes } = layout([...after.keys()], after);
  const [point] = routes.get("a").get("c");
  assert.equal(point.layer, 1);
  assert.ok(Math.abs(point.row - places.get("b").row) >= 0.63, `${point.row} is too close to ${places.get("b").row}`);
});

test("A graph with too many long edges is laid out without points between the steps", () => {
  const ids = Array.from({ length: 300 }, (_, n) => `s${n}`);
  const after = new Map(ids.map((id, n) => [id, ids.slice(0, n)]));
  const { places, routes } = layout(ids, after);
  assert.equal(places.get("s299").layer, 299);
  assert.deepEqual(routes.get("s0").get("s299"), []);
});
