// What the pages of flows say of runs, their steps and the steps of templates.
import { durationMillis, span } from "./format";
import { RunStatus, StepOrder, StepStatus, WaitAction_Kind, type Run, type Step, type StepTemplate, type Template } from "./gen/progressor/v1/flow_pb";
import { href } from "./router";

export const runEnded = (r: Run): boolean => [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED].includes(r.status);
export const stepEnded = (s: Step): boolean => s.status !== StepStatus.PENDING && s.status !== StepStatus.RUNNING;

/** What does a step, in a few words. */
export function kindWords(s: StepTemplate): string {
  const each = s.forEach ? "each: " : "";
  const a = s.action;
  switch (a.case) {
    case "job":
      return `${each}job ${a.value.name || s.stepId}`;
    case "process":
      return `${each}process${a.value.namespace ? ` in ${a.value.namespace}` : ""}`;
    case "wait":
      return each + (a.value.kind === WaitAction_Kind.HUMAN ? "a person" : "from outside");
    case "delay":
      return `${each}delay${a.value.until.case === "duration" ? ` ${span(durationMillis(a.value.until.value) ?? 0).replace(".0 ", " ")}` : ""}`;
    case "run":
      return `${each}run of ${a.value.type}`;
    default:
      return "?";
  }
}

/** What each step comes after: the one before it where steps are in line. */
export function afterOf(t: Template): Map<string, string[]> {
  const linear = t.stepOrder !== StepOrder.GRAPH;
  return new Map(t.steps.map((s, n) => [s.stepId, linear ? t.steps.slice(Math.max(0, n - 1), n).map((b) => b.stepId) : s.dependsOn]));
}

/** Where to look at what does a step. */
export function doerOf(ns: string, s: Step, t?: StepTemplate): { href: string; name: string } | undefined {
  const id = s.processId;
  if (!id) return undefined;
  const own = t?.action.case === "job" || t?.action.case === "process" ? t.action.value.namespace : "";
  if (id.startsWith("~flow/")) return { href: href("run", { ns, id: id.slice(6) }), name: `run ${id.slice(6)}` };
  if (id.startsWith("~job/")) return { href: href("job", { ns: own || ns, id }), name: "its job" };
  return { href: href("process", { ns: own || ns, id }), name: "its process" };
}

/** Why a run stands where it stands. */
export function whyRun(r: Run): string {
  if (r.failure && r.status !== RunStatus.SUCCEEDED) return `${r.failure.reason}: ${r.failure.message}`;
  if (runEnded(r)) return r.cancelReason;
  return r.blockedOn || r.cancelReason || r.progress?.summary || "";
}

export const quoted = (text: string): string => `"${text.replace(/[\\"*]/g, "\\$&")}"`;
