// The timeline of a process, to scale: a lane for each task with its waits and attempts as bars, events as marks, and
// future timers.
import { useEffect, useMemo, useRef, useState } from "react";
import { exact, millis, span } from "./format";
import type { Span } from "./gen/progressor/v1/admin_pb";
import type { Event, Timer } from "./gen/progressor/v1/process_pb";
import { change, useRoute } from "./router";
import { Button } from "./ui";

const rowHeight = 20;
const labelWidth = 118;
const maxLanes = 40;

export const whatNames: Record<string, [string, string]> = {
  processing: ["running", "--run"],
  back_off: ["waits for a retry", "--hold"],
  time: ["waits for a time", "--gone"],
  place: ["waits for a slot", "--wait"],
  worker: ["waits for a worker", "--wait"],
  process: ["waits for another task", "--wait"],
  operator: ["waits for an operator", "--bad"],
  constraint: ["waits for a constraint", "--hold"],
  idle: ["idle", "--line"],
};

interface Piece {
  what: string;
  from: number;
  to: number;
  open: boolean;
  detail: string;
}

interface Lane {
  id: string; // ID of the task; "" for the process itself
  pieces: Piece[];
  events: Event[];
}

function lanesOf(spans: Span[], events: Event[], now: number): Lane[] {
  const lanes = new Map<string, Lane>();
  const lane = (id: string): Lane => {
    let l = lanes.get(id);
    if (!l) lanes.set(id, (l = { id, pieces: [], events: [] }));
    return l;
  };
  for (const s of spans) {
    const from = millis(s.fromTime) ?? 0;
    lane(s.taskId ? String(s.taskId) : "").pieces.push({ what: s.what, from, to: millis(s.toTime) ?? Math.max(now, from), open: !s.toTime, detail: s.detail });
  }
  for (const e of events) lanes.get(String(e.taskId))?.events.push(e);
  return [...lanes.values()].sort((a, b) => (a.id === "" ? -1 : b.id === "" ? 1 : Number(a.id) - Number(b.id)));
}

/** Returns the number of tasks that the lanes show. The lane of the process itself does not count. */
const tasksIn = (lanes: Lane[]): number => lanes.filter((l) => l.id !== "").length;

/** Returns when the repair of a lane began, if that time is visible. */
function repairOf(l: Lane, from: number, to: number): number | undefined {
  const at = l.pieces.find((p) => p.what === "processing")?.from;
  return at !== undefined && at >= from && at <= to ? at : undefined;
}

/** Returns the times of the ticks on the axis, at round intervals. */
export function ticksOf(from: number, to: number, wanted: number): number[] {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 31536e6];
  const step = steps.find((s) => (to - from) / s <= wanted) ?? (to - from) / wanted;
  const ticks: number[] = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) ticks.push(t);
  return ticks;
}

/** Returns the label of a tick on an axis that spans width milliseconds. */
export function axisLabel(t: number, width: number): string {
  const text = exact(t);
  if (width < 10_000) return text.slice(14);
  if (width < 86_400_000) return text.slice(11, 19);
  return text.slice(5, 16);
}

interface Props {
  spans: Span[];
  events: Event[];
  timers: Timer[];
  types: Map<string, string>;
  now: number;
  over: boolean; // the process has ended
  onTask: (id: string) => void;
}

export function Timeline({ spans, events, timers, types, now, over, onTask }: Props) {
  const { params } = useRoute();
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [drag, setDrag] = useState<[number, number]>();
  useEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setWidth(entry.contentRect.width));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const all = useMemo(() => lanesOf(spans, events, now), [spans, events, now]);
  const lanes = all.length > maxLanes ? [...all.filter((l) => l.id === ""), ...all.filter((l) => l.id !== "").slice(1 - maxLanes)] : all;
  const busy = lanes.flatMap((l) => l.pieces.filter((p) => l.id !== "" && p.what !== "time"));
  const begin = Math.min(...lanes.flatMap((l) => l.pieces.map((p) => p.from)), now);
  const soon = timers.map((t) => millis(t.fireTime) ?? 0).filter((t) => t > now);
  const lastBusy = Math.max(begin, ...busy.map((p) => p.to));
  const end = over ? lastBusy : now;
  const whole: [number, number] = [begin, Math.max(end, begin + 1)];
  const presets: [string, [number, number] | undefined][] = [
    ["All", undefined],
    ["Last attempts", busy.length ? [Math.max(begin, Math.min(...busy.slice(-3).map((p) => p.from))), lastBusy] : undefined],
    ["Until the next timers", soon.length ? [begin, Math.max(...soon)] : undefined],
  ];
  const given = [Number(params.get("from")), Number(params.get("to"))] as const;
  let [from, to] = given[0] > 0 && given[1] > given[0] ? given : whole;
  const pad = Math.max((to - from) * 0.02, 0.5);
  from -= pad;
  to += pad;
  const room = Math.max(width - labelWidth - 8, 60);
  const x = (t: number) => labelWidth + ((t - from) / (to - from)) * room;
  const timeAt = (px: number) => from + ((px - labelWidth) / room) * (to - from);
  const top = timers.some((t) => (millis(t.fireTime) ?? 0) >= from) ? 16 : 0; // space for the names of the timers, above the bars
  const height = lanes.length * rowHeight + 26 + top;
  const clip = (t: number) => Math.max(labelWidth, Math.min(labelWidth + room, x(t)));
  const pointer = (e: React.PointerEvent) => e.clientX - (box.current?.getBoundingClientRect().left ?? 0);
  const zoom = (range?: [number, number]) => change({ from: range && String(Math.floor(range[0])), to: range && String(Math.ceil(range[1])) }, "replace");
  const shownWhats = [...new Set(lanes.flatMap((l) => l.pieces.map((p) => p.what)))];
  return (
    <div className="timeline">
      <div className="actions">
        {presets.map(
          ([name, range], n) =>
            (n === 0 || range) && (
              <button key={name} type="button" className="chip" aria-pressed={n === 0 ? !(given[0] > 0) : range?.[0] !== undefined && Math.floor(range[0]) === given[0]} onClick={() => zoom(range && [range[0], Math.max(range[1], range[0] + 1)])}>
                {name}
              </button>
            ),
        )}
        <Button kind="quiet" aria-label="zoom in" onClick={() => zoom([from + (to - from) / 4, to - (to - from) / 4])}>
          +
        </Button>
        <Button kind="quiet" aria-label="zoom out" onClick={() => zoom([Math.max(1, from - (to - from) / 2), to + (to - from) / 2])}>
          −
        </Button>
        <span className="dim">{span(to - from - 2 * pad)} · drag to zoom in</span>
      </div>
      <div ref={box} className="drawing">
        <svg
          width={width}
          height={height}
          role="img"
          aria-label={`timeline of ${lanes.length} lanes over ${span(to - from)}`}
          onPointerDown={(e) => {
            if (pointer(e) < labelWidth || e.button !== 0) return;
            setDrag([pointer(e), pointer(e)]);
          }}
          onPointerMove={(e) => drag && setDrag([drag[0], pointer(e)])}
          onPointerLeave={() => setDrag(undefined)}
          onPointerUp={() => {
            if (drag && Math.abs(drag[1] - drag[0]) > 8) zoom([timeAt(Math.min(...drag)), timeAt(Math.max(...drag))]);
            setDrag(undefined);
          }}
          onDoubleClick={() => zoom(undefined)}
        >
          {ticksOf(from, to, Math.max(2, Math.floor(room / 110))).map((t) => (
            <g key={t}>
              <line x1={x(t)} x2={x(t)} y1={0} y2={height - 20} className="grid" />
              <text x={x(t)} y={height - 6} textAnchor={x(t) > width - 34 ? "end" : "middle"} className="tick">
                {axisLabel(t, to - from)}
              </text>
            </g>
          ))}
          {lanes.map((l, n) => (
            <g key={l.id} transform={`translate(0 ${n * rowHeight + top})`} className="lane">
              <text x={4} y={14} className={l.id ? "name" : "name dimtext"} onClick={() => l.id && onTask(l.id)}>
                {l.id ? `${l.id} ${types.get(l.id) ?? ""}` : "process"}
              </text>
              {l.pieces.map((p, i) => {
                const [a, b] = [clip(p.from), clip(p.to)];
                if (x(p.to) < labelWidth || x(p.from) > labelWidth + room) return null;
                const thick = p.what === "processing";
                return (
                  <rect key={i} x={a} y={thick ? 3 : 8} width={Math.max(b - a, 2)} height={thick ? 14 : 5} rx={thick ? 3 : 2} className={`what-${p.what}`}>
                    <title>{`${whatNames[p.what]?.[0] ?? p.what} ${span(p.to - p.from)}${p.open ? ", ongoing" : ""}\n${exact(p.from)} – ${p.open ? "now" : exact(p.to)}${p.detail ? "\n" + p.detail : ""}`}</title>
                  </rect>
                );
              })}
              {types.get(l.id) === "REPAIR" && repairOf(l, from, to) !== undefined && (
                <g className="repair" transform={`translate(${x(repairOf(l, from, to) ?? 0)} 0)`}>
                  <line x1={0} x2={0} y1={-n * rowHeight} y2={height - 20 - top - n * rowHeight} />
                  <path d="M0 1l5 5-5 5-5-5z" />
                  <title>{`repair, task ${l.id}\n${exact(repairOf(l, from, to) ?? 0)}`}</title>
                </g>
              )}
              {l.events.map((e) => {
                const t = millis(e.timestamp) ?? 0;
                if (t < from || t > to) return null;
                return (
                  <path key={String(e.eventId)} d={`M${x(t)} 3l4.5 7-4.5 7-4.5-7z`} className="event">
                    <title>{`event ${e.eventId}\n${exact(t)}`}</title>
                  </path>
                );
              })}
            </g>
          ))}
          {timers.map((t) => {
            const at = millis(t.fireTime) ?? 0;
            const ahead = at > to;
            const px = ahead ? labelWidth + room : x(at);
            if (at < from) return null;
            return (
              <g key={t.name} className="timer">
                <line x1={px} x2={px} y1={0} y2={height - 20} />
                <text x={px - 5} y={11} textAnchor="end">
                  {`${t.name || "timer"} ${ahead ? "in " + span(at - now) + " →" : "fires"}`}
                </text>
                <title>{exact(at)}</title>
              </g>
            );
          })}
          {!over && now >= from && now <= to && <line x1={x(now)} x2={x(now)} y1={top} y2={height - 20} className="nowline" />}
          {drag && <rect x={Math.min(...drag)} y={0} width={Math.abs(drag[1] - drag[0])} height={height - 20} className="brush" />}
        </svg>
      </div>
      <div className="legend">
        {shownWhats.map((w) => (
          <span key={w}>
            <svg width="16" height="12" aria-hidden="true">
              <rect x="0" y={w === "processing" ? 1 : 4} width="16" height={w === "processing" ? 10 : 4} rx="2" className={`what-${w}`} />
            </svg>
            {whatNames[w]?.[0] ?? w}
          </span>
        ))}
        {events.length > 0 && (
          <span>
            <svg width="12" height="14" aria-hidden="true">
              <path d="M6 0l4.5 7-4.5 7-4.5-7z" className="event" />
            </svg>
            event
          </span>
        )}
        {lanes.some((l) => types.get(l.id) === "REPAIR") && (
          <span>
            <svg width="12" height="14" aria-hidden="true">
              <path d="M6 2l5 5-5 5-5-5z" className="repair" />
            </svg>
            repair
          </span>
        )}
        {all.length > lanes.length && <span>the newest {tasksIn(lanes)} of {tasksIn(all)} tasks</span>}
      </div>
    </div>
  );
}
