// The statuses, each with a color and a shape that are the same on all pages. The shape is sufficient without the color.
import { ProcessStatus, TaskStatus, TaskType } from "./gen/progressor/v1/process_pb";
import { JobState } from "./gen/progressor/v1/worker_pb";
import { Decision, FireStatus } from "./gen/progressor/v1/cron_pb";
import { RunStatus, StepStatus } from "./gen/progressor/v1/flow_pb";
import { SinkState } from "./gen/progressor/v1/sink_pb";

export type Tone = "wait" | "run" | "good" | "bad" | "hold" | "gone" | "plain";
type Shape = "ring" | "dot" | "check" | "cross" | "bars" | "slash" | "stop" | "clock";

const shapes: Record<Shape, React.ReactNode> = {
  ring: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.8" />,
  dot: <path d="M3 1.5 10.5 6 3 10.5z" fill="currentColor" />,
  check: <path d="m1.8 6.4 2.9 2.9 5.5-6.4" fill="none" stroke="currentColor" strokeWidth="2" />,
  cross: <path d="m2.2 2.2 7.6 7.6m0-7.6-7.6 7.6" fill="none" stroke="currentColor" strokeWidth="2.2" />,
  bars: <path d="M3.6 1.8v8.4m4.8-8.4v8.4" stroke="currentColor" strokeWidth="2.2" />,
  slash: <path d="M6 1.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2M2.8 9.2l6.4-6.4" fill="none" stroke="currentColor" strokeWidth="1.6" />,
  stop: <rect x="2.5" y="2.5" width="7" height="7" fill="currentColor" />,
  clock: <path d="M6 1.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2M6 3.4V6l2 1.2" fill="none" stroke="currentColor" strokeWidth="1.5" />,
};

export interface Look {
  name: string;
  tone: Tone;
  shape: Shape;
}

export const processLook: Record<string, Look> = {
  INIT: { name: "Init", tone: "wait", shape: "ring" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  ERROR: { name: "Error", tone: "bad", shape: "cross" },
  SUSPENDED: { name: "Suspended", tone: "hold", shape: "bars" },
  COMPLETED: { name: "Completed", tone: "good", shape: "check" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
};

const taskLook: Record<string, Look> = {
  WAITING: { name: "Waiting", tone: "wait", shape: "clock" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  BLOCKED: { name: "Blocked", tone: "hold", shape: "bars" },
  FINISHED: { name: "Finished", tone: "good", shape: "check" },
  ERROR: { name: "Error", tone: "bad", shape: "cross" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
};

export const jobLook: Record<string, Look> = {
  SCHEDULED: { name: "Scheduled", tone: "wait", shape: "clock" },
  AVAILABLE: { name: "Available", tone: "wait", shape: "ring" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  RETRYABLE: { name: "Retryable", tone: "hold", shape: "clock" },
  CANCEL_REQUESTED: { name: "Cancel requested", tone: "hold", shape: "slash" },
  SUCCEEDED: { name: "Succeeded", tone: "good", shape: "check" },
  FAILED: { name: "Failed", tone: "bad", shape: "cross" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
};

const fireLook: Record<string, Look> = {
  SCHEDULED: { name: "Scheduled", tone: "wait", shape: "clock" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  SUCCESS: { name: "Success", tone: "good", shape: "check" },
  FAILED: { name: "Failed", tone: "bad", shape: "cross" },
  TIMEOUT: { name: "Timeout", tone: "bad", shape: "clock" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
  SKIPPED: { name: "Skipped", tone: "plain", shape: "ring" },
};

export const runLook: Record<string, Look> = {
  PENDING: { name: "Pending", tone: "hold", shape: "clock" },
  QUEUED: { name: "Queued", tone: "wait", shape: "ring" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  WAITING_WORKER: { name: "Waiting", tone: "wait", shape: "clock" },
  CANCEL_REQUESTED: { name: "Cancel requested", tone: "hold", shape: "slash" },
  COMPENSATING: { name: "Compensating", tone: "hold", shape: "dot" },
  SUCCEEDED: { name: "Succeeded", tone: "good", shape: "check" },
  FAILED: { name: "Failed", tone: "bad", shape: "cross" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
  EXPIRED: { name: "Expired", tone: "bad", shape: "clock" },
};

export const stepLook: Record<string, Look> = {
  PENDING: { name: "Pending", tone: "wait", shape: "ring" },
  RUNNING: { name: "Running", tone: "run", shape: "dot" },
  SUCCEEDED: { name: "Succeeded", tone: "good", shape: "check" },
  FAILED: { name: "Failed", tone: "bad", shape: "cross" },
  SKIPPED: { name: "Skipped", tone: "gone", shape: "bars" },
  CANCELLED: { name: "Cancelled", tone: "gone", shape: "slash" },
};

const sinkLook: Record<string, Look> = {
  ACTIVE: { name: "Active", tone: "good", shape: "check" },
  PAUSED: { name: "Paused", tone: "hold", shape: "bars" },
  FAILING: { name: "Failing", tone: "bad", shape: "clock" },
  BROKEN: { name: "Broken", tone: "bad", shape: "cross" },
  DISABLED: { name: "Disabled", tone: "gone", shape: "slash" },
};

const unknown: Look = { name: "?", tone: "plain", shape: "ring" };
// The process of a run is COMPLETED when the run has ended, even if the run failed.
const endedRun: Look = { name: "Ended", tone: "gone", shape: "stop" };
const runKinds = ["flow", "run"];
export const lookOfProcess = (s: ProcessStatus, kind = ""): Look => (s === ProcessStatus.COMPLETED && runKinds.includes(kind) ? endedRun : (processLook[ProcessStatus[s] ?? ""] ?? unknown));
/** The looks of counts by status. With internal processes, COMPLETED includes failed runs. */
export const countLooks = (internal: boolean): Record<string, Look> => (internal ? { ...processLook, COMPLETED: endedRun } : processLook);
export const lookOfTask = (s: TaskStatus): Look => taskLook[TaskStatus[s] ?? ""] ?? unknown;
export const lookOfJob = (s: JobState): Look => jobLook[JobState[s] ?? ""] ?? unknown;
export const lookOfFire = (s: FireStatus): Look => fireLook[FireStatus[s] ?? ""] ?? unknown;
export const lookOfRun = (s: RunStatus): Look => runLook[RunStatus[s] ?? ""] ?? unknown;
export const lookOfStep = (s: StepStatus): Look => stepLook[StepStatus[s] ?? ""] ?? unknown;
export const lookOfSink = (s?: SinkState): Look => sinkLook[SinkState[s ?? 0] ?? ""] ?? unknown;
export const taskTypeName = (t: TaskType): string => TaskType[t] ?? "?";
export const decisionName = (d: Decision): string => (Decision[d] ?? "?").toLowerCase().replaceAll("_", " ");

export function Mark({ look }: { look: Look }) {
  return (
    <svg className={`mark tone-${look.tone}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {shapes[look.shape]}
    </svg>
  );
}

export function Status({ look, children }: { look: Look; children?: React.ReactNode }) {
  return (
    <span className={`status tone-${look.tone}`}>
      <Mark look={look} />
      {children ?? look.name}
    </span>
  );
}
