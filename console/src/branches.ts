// Collapsed branches of a graph: a step represents all steps that can be reached only through it.

/**
 * Returns the steps that would be hidden below each step: those that can be reached only through
 * it.
 */
export function branchesOf(ids: string[], after: Map<string, string[]>): Map<string, string[]> {
  const known = new Set(ids);
  const before = new Map(ids.map((id) => [id, (after.get(id) ?? []).filter((d) => known.has(d))]));
  const ordered = inOrder(ids, before);
  const found = new Map<string, string[]>();
  for (const id of ids) {
    const below = new Set<string>();
    for (const each of ordered) {
      const deps = before.get(each) ?? [];
      if (each !== id && deps.length && deps.every((d) => d === id || below.has(d))) below.add(each);
    }
    if (below.size) found.set(id, [...below]);
  }
  return found;
}

/** Orders steps after the steps that they depend on. */
function inOrder(ids: string[], before: Map<string, string[]>): string[] {
  const open = [...ids].reverse();
  const done = new Set<string>();
  const seen = new Set<string>();
  while (open.length) {
    const id = open.at(-1) as string;
    const missing = (before.get(id) ?? []).filter((d) => !done.has(d));
    if (missing.length && !seen.has(id)) {
      seen.add(id);
      open.push(...missing);
    } else {
      open.pop();
      done.add(id);
    }
  }
  return [...done];
}

export interface Collapsed {
  ids: string[]; // those that are shown
  after: Map<string, string[]>; // with collapsed steps in place of the steps that they hide
  hidden: Map<string, string[]>; // hidden steps, by the collapsed step
}

/** Returns the graph without the steps below the collapsed ones. */
export function collapse(ids: string[], after: Map<string, string[]>, branches: Map<string, string[]>, closed: Set<string>): Collapsed {
  const hiddenBy = new Map<string, string>();
  const hidden = new Map<string, string[]>();
  // An outer branch hides an inner one, so the larger ones come first.
  for (const id of [...closed].filter((c) => branches.has(c)).sort((a, b) => (branches.get(b)?.length ?? 0) - (branches.get(a)?.length ?? 0))) {
    if (hiddenBy.has(id)) continue;
    const own = (branches.get(id) ?? []).filter((b) => !hiddenBy.has(b));
    for (const b of own) hiddenBy.set(b, id);
    hidden.set(id, own);
  }
  const shown = ids.filter((id) => !hiddenBy.has(id));
  return { ids: shown, after: new Map(shown.map((id) => [id, [...new Set((after.get(id) ?? []).map((d) => hiddenBy.get(d) ?? d))]])), hidden };
}
