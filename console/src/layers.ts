// Layout of the steps of a flow: in layers, each step after the steps that it depends on and close to them.

export interface Place {
  layer: number;
  row: number; // may be fractional, because layers are centered
}

/** Lays out an acyclic graph. after maps a node to its dependencies; unknown nodes are ignored. */
export function layers(nodes: string[], after: Map<string, string[]>): Map<string, Place> {
  const known = new Set(nodes);
  const before = (id: string) => (after.get(id) ?? []).filter((d) => known.has(d));
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
  const columns: string[][] = [];
  for (const id of nodes) (columns[layerOf.get(id) ?? 0] ??= []).push(id);
  const dependents = new Map<string, string[]>();
  for (const id of nodes) for (const d of before(id)) dependents.set(d, [...(dependents.get(d) ?? []), id]);
  const at = new Map<string, number>();
  const settle = (column: string[]) => column.forEach((id, n) => at.set(id, n - (column.length - 1) / 2));
  columns.forEach(settle);
  const middle = (of: string[], otherwise: number) => (of.length ? of.reduce((sum, d) => sum + (at.get(d) ?? 0), 0) / of.length : otherwise);
  // Four sweeps move each step to the middle of its neighbors.
  for (let sweep = 0; sweep < 4; sweep++) {
    const forth = sweep % 2 === 0;
    for (const column of forth ? columns : columns.toReversed()) {
      const wanted = new Map(column.map((id) => [id, middle(forth ? before(id) : (dependents.get(id) ?? []), at.get(id) ?? 0)]));
      column.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
      settle(column);
    }
  }
  const lowest = Math.min(0, ...at.values());
  return new Map(nodes.map((id) => [id, { layer: layerOf.get(id) ?? 0, row: (at.get(id) ?? 0) - lowest }]));
}
