// Texts about runs, their steps and the steps of templates, shared by the pages of flows.
import { durationMillis, span } from "./format";
import { RunStatus, StepOrder, StepStatus, type Run, type Step, type StepTemplate, type Template } from "./gen/progressor/v1/flow_pb";
import { WaitAction_Kind } from "./gen/progressor/v1/wait_pb";
import { href } from "./router";
import { plainValue } from "./value";

/** Reports whether a run has a template. A run that a process starts may have a wait instead. */
export const hasTemplate = (r: Run): boolean => !r.templateType.startsWith("~");

export const runEnded = (r: Run): boolean => [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED].includes(r.status);
export const stepEnded = (s: Step): boolean => s.status !== StepStatus.PENDING && s.status !== StepStatus.RUNNING;

/** Describes the action of a step. */
export function kindWords(s: StepTemplate): string {
  const each = s.forEach ? "each: " : "";
  const a = s.action;
  switch (a.case) {
    case "job":
      return `${each}job ${a.value.name || s.stepId}`;
    case "process":
      return `${each}process${a.value.namespace ? ` in ${a.value.namespace}` : ""}`;
    case "wait":
      return each + (a.value.kind === WaitAction_Kind.HUMAN ? "wait for a person" : "wait for an external worker");
    case "delay":
      return `${each}delay${a.value.until.case === "duration" ? ` ${span(durationMillis(a.value.until.value) ?? 0).replace(".0 ", " ")}` : ""}`;
    case "run":
      return `${each}${a.value.type} run`;
    default:
      return "?";
  }
}

/** Maps each step to the steps that it depends on: the previous one if the steps run in sequence. */
export function afterOf(t: Template): Map<string, string[]> {
  const linear = t.stepOrder !== StepOrder.GRAPH;
  return new Map(t.steps.map((s, n) => [s.stepId, linear ? t.steps.slice(Math.max(0, n - 1), n).map((b) => b.stepId) : s.dependsOn]));
}

/** Returns a link to the job, process or run that executes a step. */
export function doerOf(ns: string, s: Step, t?: StepTemplate): { href: string; name: string } | undefined {
  const id = s.processId;
  if (!id) return undefined;
  const own = t?.action.case === "job" || t?.action.case === "process" ? t.action.value.namespace : "";
  if (id.startsWith("~flow/")) return { href: href("run", { ns, id: id.slice(6) }), name: `run ${id.slice(6)}` };
  if (id.startsWith("~job/")) return { href: href("job", { ns: own || ns, id }), name: "its job" };
  return { href: href("process", { ns: own || ns, id }), name: "its process" };
}

/** Reports whether an expression of the template failed: a retry with the same values fails again. */
export function evaluationFailed(r: Run): boolean {
  const item = r.failure?.reason === "items_failed" && r.failure.details ? (plainValue(r.failure.details) as { reason?: string }) : {};
  if (r.failure?.reason === "expression" || item.reason === "expression") return true;
  return r.steps.some((s) => s.status === StepStatus.FAILED && s.failure?.reason === "expression");
}

/**
 * Returns the input of a step. If the step has none yet, returns the input in the template, with its
 * expressions. Without an input in the template, a step gets the payload of the run.
 */
export function inputOf(s: Step, r: Run, t?: StepTemplate): unknown {
  const input = s.input ?? t?.input ?? r.payload;
  return input ? plainValue(input) : null;
}

/** Explains the status of a run. */
export function whyRun(r: Run): string {
  if (r.failure && r.status !== RunStatus.SUCCEEDED) return `${r.failure.reason}: ${r.failure.message}`;
  if (runEnded(r)) return r.cancelReason;
  return r.blockedOn || r.cancelReason || r.progress?.summary || "";
}

export const quoted = (text: string): string => `"${text.replace(/[\\"*]/g, "\\$&")}"`;
