// Shows the steps of a run over time. Each step and each item has a lane with its waits and its attempts as bars.
import { useMemo, useState } from "react";
import { exact, millis, span } from "./format";
import { StepStatus, type JobEvent, type Step, type StepTemplate } from "./gen/progressor/v1/flow_pb";
import { lookOfStep, Mark, type Tone } from "./status";
import { axisLabel, ticksOf } from "./timeline";
import { Button, useNow } from "./ui";

type What = "queue" | "delay" | "open" | "attempt" | "undo";

interface Piece {
  what: What;
  from: number;
  to?: number; // absent while it continues
  tone: Tone;
  says: string; // what the piece waits for, or what runs; after the end, also how it ended
}

const waits: Partial<Record<string, [What, string]>> = {
  available: ["queue", "a worker"],
  scheduled: ["delay", "its scheduled time"],
  retryable: ["delay", "a retry"],
};
const outcomes: Record<string, [Tone, string]> = {
  succeeded: ["good", "succeeded"],
  failed: ["bad", "failed"],
  attempt_failed: ["bad", "failed"],
  timeout: ["bad", "timed out"],
  lease_lost: ["bad", "lost its worker"],
  released: ["gone", "was released"],
  cancelled: ["gone", "was cancelled"],
  skipped: ["gone", "was skipped"],
};

/** Returns the key of a step, or of one of its items. */
export const laneKey = (stepId: string, index?: number): string => (index === undefined ? stepId : `${stepId} ${index}`);

const timeOf = (e: JobEvent) => millis(e.createdTime) ?? 0;
const undoes = (jobId: string) => /\.undo(~\d+)?$/.test(jobId);

/** Returns the pieces of all lanes. events are those of the run and of the jobs of its steps, in any order. */
export function piecesOf(events: JobEvent[], actionOf: (stepId: string) => string | undefined): Map<string, Piece[]> {
  const lanes = new Map<string, Piece[]>();
  const ordered = events.filter((e) => e.stepId && !undoes(e.jobId)).sort((a, b) => timeOf(a) - timeOf(b) || Number(a.eventId - b.eventId));
  for (const e of ordered) {
    const key = laneKey(e.stepId, e.index);
    const lane = lanes.get(key) ?? [];
    lanes.set(key, lane);
    const undo = e.type === "compensation_changed";
    const end = (tone: Tone, says: string) => {
      const last = lane.findLast((p) => p.to === undefined && (p.what === "undo") === undo);
      if (!last) return;
      last.to = timeOf(e);
      if (last.what === "attempt" || last.what === "undo") [last.tone, last.says] = [tone, `${last.says} ${says}`];
      if (last.what === "open") [last.tone, last.says] = [tone, `${last.says}, then ${says}`];
    };
    const begin = (what: What, tone: Tone, says: string) => lane.push({ what, from: timeOf(e), tone, says });
    const [tone, outcome] = outcomes[e.type] ?? outcomes[e.to] ?? ["gone", "ended"];
    const wait = waits[e.to];
    if (undo && e.to === "running") begin("undo", "hold", "its compensation");
    else if (undo) end(e.to === "succeeded" ? "hold" : "bad", e.to);
    else if (e.type === "step_queued") begin("queue", "wait", "a worker");
    else if (e.type === "step_status_changed" && e.to === "running") {
      end("gone", "ended");
      const action = actionOf(e.stepId);
      if (action === "wait") begin("open", "wait", "an answer");
      else if (action === "delay") begin("delay", "gone", "the end of its delay");
      else begin("attempt", "run", action === undefined || action === "job" ? "its items" : `its ${action}`);
    } else if (e.type === "started") {
      end("gone", "ended");
      begin("attempt", "run", `attempt ${e.attempt || 1}${e.workerId ? ` on ${e.workerId}` : ""}`);
    } else if (wait) {
      // The run queued the step before the job was enqueued.
      if (e.type === "enqueued" && lane.some((p) => p.to === undefined && p.what === wait[0])) continue;
      end(tone, outcome);
      if (e.type !== "enqueued" || !lane.some((p) => p.to === undefined)) begin(wait[0], wait[0] === "queue" ? "wait" : "hold", wait[1]);
    } else if (e.to && e.to !== "cancel_requested" && e.to !== "running") end(tone, outcome);
  }
  return lanes;
}

/** Adds the last attempt to a lane without attempts: the namespace of the job does not keep the events of starts, or they cannot be read. */
function withAttempt(list: Piece[], s: Step): Piece[] {
  const own = pieceOf(s)[0];
  if (!own || list.some((p) => p.what === "attempt" || p.what === "open" || p.what === "delay")) return list;
  return [...list.map((p) => (p.what === "queue" ? { ...p, to: Math.max(p.from, Math.min(p.to ?? own.from, own.from)) } : p)), own];
}

/** Returns the piece of a step without events: the namespace does not keep them, or they have expired. */
function pieceOf(s: Step): Piece[] {
  const from = millis(s.runningTime);
  if (from === undefined || s.status === StepStatus.PENDING) return [];
  const look = lookOfStep(s.status);
  return [{ what: "attempt", from, to: millis(s.finishedTime), tone: look.tone, says: look.name.toLowerCase() }];
}

/** Describes a piece and its duration. */
function describe(p: Piece, now: number): string {
  const time = span(Math.max(0, (p.to ?? now) - p.from));
  const isWait = p.what === "queue" || p.what === "delay" || p.what === "open";
  if (p.to === undefined) return isWait ? `has waited ${time} for ${p.says}` : `${p.says} for ${time} so far`;
  return isWait ? `waited ${time} for ${p.says}` : `${p.says} after ${time}`;
}

export interface Lane {
  step: Step;
  name: string;
  to: string; // address of the step
  items: number; // number of its items; 0 if it has none
  item: boolean;
}

interface Props {
  lanes: Lane[];
  events: JobEvent[];
  ofStep: (stepId: string) => StepTemplate | undefined;
  from: number; // the start of the run
  to?: number; // its end
  label: string;
  opened: string; // the step whose items are shown
  onOpen: (stepId: string) => void;
}

const zooms = [1, 2, 5, 10, 20, 50];

export function Gantt({ lanes, events, ofStep, from, to, label, opened, onOpen }: Props) {
  const now = useNow();
  const [zoom, setZoom] = useState(1);
  const pieces = useMemo(() => piecesOf(events, (id) => ofStep(id)?.action.case), [events, ofStep]);
  const drawn = lanes.map((lane) => ({ lane, pieces: withAttempt(pieces.get(laneKey(lane.step.stepId, lane.step.index)) ?? [], lane.step) }));
  const all = drawn.flatMap((d) => d.pieces);
  const begin = Math.min(from, ...all.map((p) => p.from));
  const end = Math.max(to ?? now, begin + 1, ...all.map((p) => p.to ?? 0));
  const percent = (t: number) => ((t - begin) / (end - begin)) * 100;
  const at = zooms.indexOf(zoom);
  const says = (list: Piece[]) => list.map((p) => describe(p, now)).join("; ") || "has not begun";
  return (
    <div className="gantt">
      <div className="actions">
        <Button kind="quiet" aria-label="zoom in" disabled={at === zooms.length - 1} onClick={() => setZoom(zooms[at + 1] ?? zoom)}>
          +
        </Button>
        <Button kind="quiet" aria-label="zoom out" disabled={at === 0} onClick={() => setZoom(zooms[at - 1] ?? zoom)}>
          −
        </Button>
        <span className="dim">
          {span(end - begin)} from {exact(begin, false)}
        </span>
      </div>
      <div className="rows" role="region" aria-label={label} tabIndex={0}>
        <div className="inner" style={{ width: `${zoom * 100}%` }}>
          <div className="row axis" aria-hidden="true">
            <span className="lanename" />
            <span className="track">
              {ticksOf(begin, end, (innerWidth < 760 ? 2 : 6) * zoom).map((t) => (
                <i key={t} style={{ left: `${percent(t)}%` }}>
                  {axisLabel(t, (end - begin) / zoom)}
                </i>
              ))}
            </span>
          </div>
          {drawn.map(({ lane, pieces: list }) => (
            <div key={laneKey(lane.step.stepId, lane.step.index)} className={"row" + (lane.item ? " item" : "")}>
              <span className="lanename">
                {lane.items > 0 && (
                  <button type="button" className="fold" aria-expanded={opened === lane.step.stepId} aria-label={`items of ${lane.name}`} onClick={() => onOpen(opened === lane.step.stepId ? "" : lane.step.stepId)}>
                    {opened === lane.step.stepId ? "▾" : "▸"}
                  </button>
                )}
                <Mark look={lookOfStep(lane.step.status)} />
                <a href={lane.to}>{lane.name}</a>
              </span>
              <span className="track" role="img" aria-label={`${lane.name}: ${says(list)}`}>
                {list.map((p, n) => (
                  <i
                    key={n}
                    className={`piece is-${p.what} tone-${p.tone}${p.to === undefined ? " continues" : ""}`}
                    style={{ left: `${percent(p.from)}%`, width: `${percent(p.to ?? end) - percent(p.from)}%` }}
                    title={`${describe(p, now)}\n${exact(p.from)} – ${p.to === undefined ? "now" : exact(p.to)}`}
                  />
                ))}
              </span>
            </div>
          ))}
        </div>
      </div>
      <p className="legend dim" aria-hidden="true">
        <span><i className="piece is-queue tone-wait" /> waits for a worker or an answer</span>
        <span><i className="piece is-delay tone-hold" /> waits for its scheduled time or a retry</span>
        <span><i className="piece is-attempt tone-good" /> succeeded</span>
        <span><i className="piece is-attempt tone-bad" /> failed</span>
        <span><i className="piece is-attempt tone-run" /> runs</span>
        <span><i className="piece is-undo tone-hold" /> undone</span>
      </p>
    </div>
  );
}
