// The page of a process that is a job, a flow run, a cron or a bulk.
import { href } from "./router";

export interface Home {
  kind: string;
  name: string;
  to: string;
}

/** Returns the run and step of a job with the id ~job/RUN/STEP, optionally followed by .INDEX (an item), .undo and ~ROUND. */
export function stepOf(jobId: string): { run: string; step: string } | undefined {
  const found = jobId.match(/^~job\/(.+)\/([^/]+?)(?:\.\d+)?(?:\.undo)?(?:~\d+)?$/);
  return found ? { run: found[1]!, step: found[2]! } : undefined;
}

export function homeOf(ns: string, id: string, kind: string): Home | undefined {
  const step = stepOf(id);
  if (step) return { kind: "run", name: step.run, to: href("run", { ns, id: step.run, step: step.step }) };
  if (id.startsWith("~flow/")) return { kind: "run", name: id.slice(6), to: href("run", { ns, id: id.slice(6) }) };
  if (id.startsWith("~bulk/")) return { kind: "bulk", name: id.slice(6), to: href("bulk", { ns, id: id.slice(6) }) };
  const cron = id.match(/^~cron\/(.+)$/)?.[1] ?? id.match(/^~run\/(.+)\/[^/]+$/)?.[1];
  if (cron) return { kind: "cron", name: cron, to: href("cron", { ns, id: cron }) };
  return kind === "job" ? { kind: "job", name: id, to: href("job", { ns, id }) } : undefined;
}
