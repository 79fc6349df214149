// Layout of the steps of a flow: in layers, each step after the steps that it depends on and close to them.

export interface Place {
  layer: number;
  row: number; // may be fractional
}

/** The sizes of a drawn graph, in pixels. */
export interface Sizes {
  wide: number; // of a step
  high: number;
  apart: number; // space between two layers
  between: number; // space between two steps of a layer
  down: boolean; // layers follow each other from the top to the bottom instead of from the left to the right
}

export interface Layout {
  places: Map<string, Place>;
  // Where an edge crosses the layers between its steps, by source and target. An edge to the next layer crosses none.
  routes: Map<string, Map<string, Place[]>>;
  rows: number; // from the first step or edge to the last one
}

export type Point = [x: number, y: number];

/** A step, or a point at which the edges of a source cross a layer. */
interface Item {
  id: string; // of the step or of the source
  layer: number;
  row: number;
  half: number; // half of its height, in rows
  before: Item[]; // neighbors in the previous layer
  after: Item[]; // neighbors in the next layer
}

const pointHalf = 0.14;
const maxPoints = 10_000; // in a graph that needs more, edges are not routed around steps
const ordering = 4; // sweeps that order the items of the layers
const aligning = 24; // sweeps that only move them

/** Maps each known step to the known steps that it depends on. */
function knownDeps(nodes: string[], after: Map<string, string[]>): Map<string, string[]> {
  const known = new Set(nodes);
  return new Map(nodes.map((id) => [id, [...new Set(after.get(id) ?? [])].filter((d) => known.has(d))]));
}

/**
 * Returns the layer of each step of an acyclic graph, which follows the last layer of its
 * dependencies. after maps a step to its dependencies; unknown steps are ignored.
 */
export function layersOf(nodes: string[], after: Map<string, string[]>): Map<string, number> {
  const deps = knownDeps(nodes, after);
  const before = (id: string) => deps.get(id) ?? [];
  const layerOf = new Map<string, number>();
  // No recursion: a template may have a thousand steps in sequence.
  const open = [...nodes];
  while (open.length) {
    const id = open.at(-1) as string;
    const missing = before(id).filter((d) => !layerOf.has(d));
    if (missing.length && !layerOf.has(id)) open.push(...missing);
    else {
      open.pop();
      if (!layerOf.has(id)) layerOf.set(id, Math.max(-1, ...before(id).map((d) => layerOf.get(d) ?? -1)) + 1);
    }
  }
  return layerOf;
}

function connect(from: Item, to: Item): void {
  if (from.after.includes(to)) return;
  from.after.push(to);
  to.before.push(from);
}

/** Moves the items of a column as close to the wanted rows as their order and their heights allow (isotonic regression). */
function settle(column: Item[], wanted: number[]): void {
  const groups: { sum: number; n: number }[] = [];
  const offsets: number[] = [];
  let offset = 0;
  column.forEach((item, n) => {
    const above = column[n - 1];
    if (above) offset += above.half + item.half;
    offsets.push(offset);
    groups.push({ sum: (wanted[n] ?? 0) - offset, n: 1 });
    for (;;) {
      const [last, previous] = [groups.at(-1), groups.at(-2)];
      if (!last || !previous || previous.sum / previous.n <= last.sum / last.n) break;
      groups.splice(-2, 2, { sum: previous.sum + last.sum, n: previous.n + last.n });
    }
  });
  const rows = groups.flatMap((g) => Array<number>(g.n).fill(g.sum / g.n));
  column.forEach((item, n) => (item.row = (rows[n] ?? 0) + (offsets[n] ?? 0)));
}

/** Lays out an acyclic graph. after maps a step to its dependencies; unknown steps are ignored. */
export function layout(nodes: string[], after: Map<string, string[]>): Layout {
  const deps = knownDeps(nodes, after);
  const before = (id: string) => deps.get(id) ?? [];
  const layerOf = layersOf(nodes, after);
  const layer = (id: string) => layerOf.get(id) ?? 0;
  const columns: Item[][] = [];
  const add = (id: string, at: number, half: number): Item => {
    const item: Item = { id, layer: at, row: 0, half, before: [], after: [] };
    (columns[at] ??= []).push(item);
    return item;
  };
  const items = new Map(nodes.map((id) => [id, add(id, layer(id), 0.5)]));
  const furthest = new Map<string, number>();
  for (const id of nodes) for (const d of before(id)) furthest.set(d, Math.max(furthest.get(d) ?? 0, layer(id)));
  const points = [...furthest].reduce((sum, [id, last]) => sum + last - layer(id) - 1, 0);
  // All edges of a source share its points, so that they are drawn as one line as long as possible.
  const chains = new Map<string, Item[]>();
  for (const [id, last] of points > maxPoints ? [] : furthest) {
    let from = items.get(id) as Item;
    const chain: Item[] = [];
    for (let at = layer(id) + 1; at < last; at++) {
      const point = add(id, at, pointHalf);
      connect(from, point);
      chain.push((from = point));
    }
    chains.set(id, chain);
  }
  const crossed = (from: string, to: string) => (chains.get(from) ?? []).slice(0, layer(to) - layer(from) - 1);
  for (const id of nodes) for (const d of before(id)) connect(crossed(d, id).at(-1) ?? (items.get(d) as Item), items.get(id) as Item);
  for (const column of columns) settle(column, column.map(() => 0));
  // The sweeps move each item to the middle of its neighbors. The first ones also order the items.
  const sweeps = ordering + (points > maxPoints / 10 ? 4 : aligning);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const [forth, orders] = [sweep % 2 === 0, sweep < ordering];
    for (const column of forth ? columns : columns.toReversed()) {
      const middle = (item: Item): number => {
        const near = orders ? (forth ? item.before : item.after) : [...item.before, ...item.after];
        return near.length ? near.reduce((sum, o) => sum + o.row, 0) / near.length : item.row;
      };
      const wanted = new Map(column.map((item) => [item, middle(item)]));
      if (orders) column.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
      settle(column, column.map((item) => wanted.get(item) ?? 0));
    }
  }
  const first = columns.flat().reduce((least, item) => Math.min(least, item.row - item.half), Infinity);
  const last = columns.flat().reduce((most, item) => Math.max(most, item.row + item.half), -Infinity);
  const place = (item: Item): Place => ({ layer: item.layer, row: item.row - first - 0.5 });
  const routes = new Map<string, Map<string, Place[]>>();
  for (const id of nodes) for (const d of before(id)) routes.set(d, (routes.get(d) ?? new Map<string, Place[]>()).set(id, crossed(d, id).map(place)));
  return { places: new Map([...items].map(([id, item]) => [id, place(item)])), routes, rows: last - first };
}

/** Returns the upper left corner of a step. */
export function cornerOf({ layer, row }: Place, s: Sizes): Point {
  return s.down ? [row * (s.wide + s.between), layer * (s.high + s.apart)] : [layer * (s.wide + s.apart), row * (s.high + s.between)];
}

/** Returns the width and the height of a graph. */
export function extentOf({ places, rows }: Layout, s: Sizes): Point {
  const layers = [...places.values()].reduce((most, { layer }) => Math.max(most, layer + 1), 1);
  return s.down ? [rows * (s.wide + s.between) - s.between, layers * (s.high + s.apart) - s.apart] : [layers * (s.wide + s.apart) - s.apart, rows * (s.high + s.between) - s.between];
}

/**
 * Returns the path of an edge as cubic Bézier curves: a start, followed by three points for each
 * curve. The edge crosses the layers between its steps in straight lines, and bends only between
 * two layers.
 */
export function curvesOf(from: Point, to: Point, crossed: Place[], s: Sizes): Point[] {
  const ends: Point[] = [from];
  for (const place of crossed) {
    const [x, y] = cornerOf(place, s);
    ends.push(...((s.down ? [[x + s.wide / 2, y], [x + s.wide / 2, y + s.high]] : [[x, y + s.high / 2], [x + s.wide, y + s.high / 2]]) as Point[]));
  }
  ends.push(to);
  return ends.flatMap((b, n): Point[] => {
    const a = ends[n - 1];
    if (!a) return [b];
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] as const;
    return s.down ? [[a[0], middle[1]], [b[0], middle[1]], b] : [[middle[0], a[1]], [middle[0], b[1]], b];
  });
}
