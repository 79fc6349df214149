// Finds objects whose ID begins with a text, for the palette.
import type { CallOptions } from "@connectrpc/connect";
import { flows, processes, queries, useRead, workers } from "./api";
import { homeOf } from "./home";
import { fill } from "./paging";
import { href } from "./router";
import { lookOfProcess, type Look } from "./status";

export interface Found {
  kind: string;
  id: string;
  ns: string;
  to: string; // the address of its page
  look?: Look;
}

/** The maximum number of namespaces to search if none is chosen. */
export const mostNamespaces = 6;
const mostOfKind = 8;

/**
 * Returns a complete list, which is cached for a while, because the engine has no filter for it.
 */
const whole = <T>(what: string, ns: string, page: (token: string) => Promise<{ rows: T[]; next: string }>) => queries.fetchQuery({ queryKey: ["find", what, ns], queryFn: () => fill("", 1000, page), staleTime: 15_000 });

/** Jobs have IDs like those of processes. The processes of runs and crons have a prefix. */
async function findProcesses(ns: string, prefix: string, typed: string, options: CallOptions): Promise<Found[]> {
  const filter = `process_id = "${(prefix + typed).replace(/[\\"*]/g, "\\$&")}*"`;
  const page = await processes.listProcesses({ namespace: ns, filter, orderBy: "process_id", pageSize: mostOfKind }, options);
  return page.processes.map((p) => {
    const home = homeOf(ns, p.processId, p.kind);
    return home ? { kind: home.kind, id: home.name, ns, to: home.to } : { kind: "process", id: p.processId, ns, to: href("process", { ns, id: p.processId }), look: lookOfProcess(p.status) };
  });
}

async function findTemplates(ns: string, typed: string): Promise<Found[]> {
  const { rows } = await whole("templates", ns, async (pageToken) => {
    const page = await flows.listTemplates({ namespace: ns, pageSize: 1000, pageToken });
    return { rows: page.templates.map((t) => t.type), next: page.nextPageToken };
  });
  const matching = rows.filter((type) => type.startsWith(typed)).slice(0, mostOfKind);
  return matching.map((type) => ({ kind: "template", id: type, ns, to: href("template", { ns, type }) }));
}

async function findWorkers(ns: string, typed: string): Promise<Found[]> {
  const { rows } = await whole("workers", ns, async (pageToken) => {
    const page = await workers.listWorkers({ namespace: ns, pageSize: 1000, pageToken });
    return { rows: page.workers.map((w) => w.workerId), next: page.nextPageToken };
  });
  const matching = rows.filter((id) => id.startsWith(typed)).slice(0, mostOfKind);
  return matching.map((id) => ({ kind: "worker", id, ns, to: href("worker", { ns, id }) }));
}

/** Finds objects in some namespaces. Objects that the user may not read are left out. */
async function find(namespaces: string[], typed: string, options: CallOptions): Promise<Found[]> {
  const searches = namespaces.flatMap((ns) => [
    findProcesses(ns, "", typed, options),
    ...(typed.startsWith("~") ? [] : [findProcesses(ns, "~flow/", typed, options), findProcesses(ns, "~cron/", typed, options)]),
    findTemplates(ns, typed),
    findWorkers(ns, typed),
  ]);
  const ended = await Promise.allSettled(searches);
  const answered = ended.filter((e) => e.status === "fulfilled");
  const failed = ended.find((e) => e.status === "rejected");
  if (failed && !answered.length) throw failed.reason;
  const found = new Map(answered.flatMap((e) => e.value).map((f) => [f.to, f])); // a run has several processes
  const all = [...found.values()];
  return [...all.filter((f) => f.id === typed), ...all.filter((f) => f.id !== typed)];
}

/** Returns the objects whose ID begins with a text, or none if the text is "". */
export function useFound(typed: string, namespaces: string[]) {
  return useRead(["find", namespaces.join(), typed], (o) => find(namespaces, typed, o), { every: 0, enabled: typed !== "" && namespaces.length > 0, age: 2 });
}
