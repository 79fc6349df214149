// The graph of a flow, in a separate chunk that only pages with a graph load.
import { BaseEdge, ControlButton, Controls, Handle, MarkerType, MiniMap, Position, ReactFlow, type Edge, type EdgeProps, type Node, type NodeProps, type ReactFlowInstance, type Viewport } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { branchesOf, collapse } from "./branches";
import { plural, span } from "./format";
import { cornerOf, curvesOf, extentOf, layout, type Place, type Sizes } from "./layers";
import { Mark, stepLook, type Look, type Tone } from "./status";
import { EngineText, engineTextTitle, useNow } from "./ui";

/** A step in the graph. look is undefined in a template. */
export interface Drawn {
  id: string;
  name: string;
  kind: string; // its action, in a few words
  note?: string;
  look?: Look;
  undone?: Look;
  since?: number; // its start
  until?: number; // its end
  attempt?: number;
  part?: number; // progress, from 0 to 1
  items?: Record<string, bigint>; // items of a for_each step, by status
  each?: boolean;
  chosen: boolean;
  to: string;
}

/** The branch that begins at a step, if the graph is large enough to collapse it. */
interface Branch {
  steps: number;
  closed: boolean;
  tone: Tone; // the most important tone of its steps
  toggle: () => void;
}

type StepNode = Node<{ step: Drawn; down: boolean; branch?: Branch }, "step">;
type StepEdge = Edge<{ crossed: Place[]; sizes: Sizes }, "step">;

const high = 70;
const readable = 0.68; // the smallest scale
const large = 0.85; // the scale of a graph that is not shown as a whole
const margin = 18; // space around the steps
// A graph that is too wide for the page has narrower steps.
const sizesOf = (down: boolean, narrow: boolean): Sizes => (down ? { wide: narrow ? 140 : 172, high, apart: 32, between: narrow ? 10 : 22, down } : { wide: narrow ? 148 : 172, high, apart: narrow ? 36 : 44, between: 22, down });
const order = ["succeeded", "failed", "skipped", "cancelled", "running", "pending"];

function Items({ items }: { items: Record<string, bigint> }) {
  const all = Object.values(items).reduce((a, b) => a + b, 0n);
  const ended = all - (items["pending"] ?? 0n) - (items["running"] ?? 0n);
  return (
    <span className="items">
      <span>
        {String(ended)} of {String(all)}
      </span>
      <span className="parts" role="img" aria-label={order.filter((s) => items[s]).map((s) => `${String(items[s])} ${s}`).join(", ")}>
        {order
          .filter((s) => items[s])
          .map((s) => (
            <i key={s} className={`tone-${stepLook[s.toUpperCase()]?.tone ?? "plain"}`} style={{ flexGrow: Number(items[s]) }} title={`${String(items[s])} ${s}`} />
          ))}
      </span>
    </span>
  );
}

function Took({ step }: { step: Drawn }) {
  const now = useNow();
  if (step.since === undefined) return null;
  return <span className="took">{span(Math.max(0, (step.until ?? now) - step.since)).replace(step.until === undefined ? /\.\d+/ : /$^/, "")}</span>;
}

function Fold({ of, branch }: { of: Drawn; branch: Branch }) {
  const says = `${branch.closed ? "show" : "hide"} ${plural(branch.steps, "step")} after ${of.name}`;
  return (
    <button type="button" className={`branch nodrag nopan tone-${branch.closed ? branch.tone : "plain"}`} aria-expanded={!branch.closed} aria-label={says} title={says} onClick={branch.toggle}>
      {branch.closed ? `+${branch.steps}` : "−"}
    </button>
  );
}

function StepBox({ data: { step, down, branch } }: NodeProps<StepNode>) {
  return (
    <>
      <StepLink step={step} down={down} />
      {branch && <Fold of={step} branch={branch} />}
    </>
  );
}

function StepLink({ step, down }: { step: Drawn; down: boolean }) {
  return (
    <a className={`step nodrag nopan tone-${step.look?.tone ?? "plain"}${step.each ? " each" : ""}`} href={step.to} aria-current={step.chosen || undefined} draggable={false} title={step.note && engineTextTitle(step.note)}>
      <Handle type="target" position={down ? Position.Top : Position.Left} isConnectable={false} />
      <span className="first">
        {step.look && <Mark look={step.look} />}
        <strong>{step.name}</strong>
        <Took step={step} />
      </span>
      <span className="second">
        <span>{step.kind}</span>
        {(step.attempt ?? 0) > 1 && <span className="tone-hold">attempt {step.attempt}</span>}
        {step.undone && (
          <span className={`tone-${step.undone.tone}`}>
            <Mark look={step.undone} /> undone
          </span>
        )}
      </span>
      {step.items ? <Items items={step.items} /> : step.part !== undefined ? <progress value={step.part} max={1} aria-label={`progress of ${step.name}`} /> : <span className="note">
          <EngineText text={step.note ?? ""} />
        </span>}
      {step.look && <span className="unseen">{step.look.name}</span>}
      <Handle type="source" position={down ? Position.Bottom : Position.Right} isConnectable={false} />
    </a>
  );
}

/** Draws an edge around the steps of the layers that it crosses. */
function StepLine({ sourceX, sourceY, targetX, targetY, data, markerEnd }: EdgeProps<StepEdge>) {
  if (!data) return null;
  const [start = [0, 0], ...rest] = curvesOf([sourceX, sourceY], [targetX, targetY], data.crossed, data.sizes);
  return <BaseEdge path={`M${start.join(" ")} C${rest.map((p) => p.join(" ")).join(" ")}`} markerEnd={markerEnd} />;
}

const kinds = { step: StepBox };
const lines = { step: StepLine };
const labels = { "controls.zoomIn.ariaLabel": "Zoom in", "controls.zoomOut.ariaLabel": "Zoom out", "controls.fitView.ariaLabel": "Show all" };
const narrow = matchMedia("(max-width: 760px)");
const useNarrow = () =>
  useSyncExternalStore(
    (listener) => {
      narrow.addEventListener("change", listener);
      return () => narrow.removeEventListener("change", listener);
    },
    () => narrow.matches,
  );

const importance: Tone[] = ["bad", "run", "hold", "wait", "good", "gone"];
const foldable = 8; // graphs with more steps have branches that can be collapsed

/**
 * The state of an edge: whether the second step has begun, and how the first one ended. A step that
 * never began was not reached through the edge.
 */
function edgeClass(from: Drawn, to: Drawn): string {
  if (!to.look) return ""; // in a template
  if (to.since === undefined) return to.look.tone === "wait" ? "" : "untaken";
  return from.until === undefined && from.since === undefined && from.look?.tone === "wait" ? "" : `went tone-${from.look?.tone ?? "plain"}`;
}

/** Draws steps, each after its dependencies. label is the accessible name. */
export default function Graph({ steps, after, label }: { steps: Drawn[]; after: Map<string, string[]>; label: string }) {
  const down = useNarrow();
  const box = useRef<HTMLDivElement>(null);
  const ids = steps.map((s) => s.id).join("\n");
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const [full, setFull] = useState(false);
  const [map, setMap] = useState(false);
  const branches = useMemo(() => (steps.length > foldable ? branchesOf(ids.split("\n"), after) : new Map<string, string[]>()), [ids, after, steps.length]);
  const shown = useMemo(() => collapse(ids.split("\n"), after, branches, closed), [ids, after, branches, closed]);
  const placed = useMemo(() => layout(shown.ids, shown.after), [shown]);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => setRoom(Math.round(entry?.contentRect.width ?? 0)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  // Show the whole graph if it is readable. Otherwise show its beginning or, if that is elsewhere, the step that matters.
  const scaleOf = (length: number, needed: number) => Math.min(1, length / (needed + 2 * margin));
  const narrowSteps = scaleOf(room, extentOf(placed, sizesOf(down, false))[0]) < readable;
  const sizes = useMemo(() => sizesOf(down, narrowSteps), [down, narrowSteps]);
  const [allWide, allHigh] = extentOf(placed, sizes);
  const controls = steps.length > 2 || full;
  const around = controls ? 76 : 44; // space for the controls below the steps
  const most = full ? innerHeight : down ? 900 : 520;
  const across = scaleOf(room, allWide);
  const whole = Math.min(across, (most - around) / allHigh);
  const fits = whole >= readable;
  const zoom = fits ? whole : across >= readable ? across : large;
  const mapped = map && !fits && !full ? 84 : 0; // space for the map below the steps
  const height = full ? most : Math.min(allHigh * zoom + around, most) + mapped;
  const nodes = useMemo(() => {
    const known = new Map(steps.map((s) => [s.id, s]));
    return shown.ids.flatMap((id): StepNode[] => {
      const step = known.get(id);
      if (!step) return [];
      const [x, y] = cornerOf(placed.places.get(id) ?? { layer: 0, row: 0 }, sizes);
      const below = branches.get(id) ?? [];
      const tones = below.map((b) => known.get(b)?.look?.tone);
      const branch: Branch | undefined =
        below.length < 2
          ? undefined
          : { steps: below.length, closed: closed.has(id), tone: importance.find((t) => tones.includes(t)) ?? "plain", toggle: () => setClosed((old) => (old.has(id) ? new Set([...old].filter((o) => o !== id)) : new Set([...old, id]))) };
      return [{ id, type: "step", position: { x, y }, width: sizes.wide, height: high, data: { step, down, branch } }];
    });
  }, [steps, shown, placed, branches, closed, sizes, down]);
  const edges = useMemo(() => {
    const known = new Map(steps.map((s) => [s.id, s]));
    return shown.ids.flatMap((id) =>
      (shown.after.get(id) ?? []).flatMap((from): StepEdge[] => {
        const [a, b] = [known.get(from), known.get(id)];
        if (!a || !b) return [];
        const now = b.since !== undefined && b.until === undefined && b.look?.tone === "run";
        const crossed = placed.routes.get(from)?.get(id) ?? [];
        return [{ id: `${from}/${id}`, type: "step", source: from, target: id, className: edgeClass(a, b), animated: now, data: { crossed, sizes }, markerEnd: { type: MarkerType.ArrowClosed, color: "context-stroke", width: 16, height: 16 } }];
      }),
    );
  }, [steps, shown, placed, sizes]);
  useEffect(() => {
    if (!full) return;
    const leave = (e: KeyboardEvent) => e.key === "Escape" && setFull(false);
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, [full]);
  const flow = useRef<ReactFlowInstance<StepNode, StepEdge>>(undefined);
  const view = useRef<Viewport>(undefined);
  const [, redraw] = useState(0);
  const within = (from: number, needed: number, length: number) => from >= -1 && from + needed <= length + 1;
  const isWhole = (v?: Viewport) => (v ? within(v.x, allWide * v.zoom, room) && within(v.y, allHigh * v.zoom, height) : fits);
  const all = isWhole(view.current);
  const look = () => {
    const at = nodes.find((n) => n.data.step.since !== undefined && n.data.step.until === undefined) ?? nodes.find((n) => n.data.step.look?.tone === "bad") ?? nodes[0];
    if (!flow.current || !room || !at) return;
    const begin = (length: number, needed: number, from: number, part: number) => {
      if (needed * zoom + 2 * margin <= length + 1) return (length - needed * zoom) / 2;
      if ((from + part) * zoom + 2 * margin <= length) return margin;
      return Math.max(length - margin - needed * zoom, length / 2 - (from + part / 2) * zoom);
    };
    void flow.current.setViewport({ x: begin(room, allWide, at.position.x, sizes.wide), y: begin(height - mapped - around + 2 * margin + 8, allHigh, at.position.y, high), zoom });
  };
  // Position the graph only when it is redrawn, so that it does not move while in use.
  const looking = useRef(look);
  looking.current = look;
  useEffect(() => looking.current(), [room, down, narrowSteps, ids, full]);
  return (
    <div className={"graph" + (full ? " full" : "")} ref={box} style={{ height }} role="group" aria-label={label}>
      <ReactFlow
        key={`${down ? "down" : "right"}\n${ids}`}
        nodes={nodes}
        edges={edges}
        nodeTypes={kinds}
        edgeTypes={lines}
        ariaLabelConfig={labels}
        onViewportChange={(to) => {
          view.current = to;
          if (isWhole(to) !== all) redraw((n) => n + 1);
        }}
        onInit={(made) => {
          flow.current = made;
          looking.current();
        }}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        edgesFocusable={false}
        elementsSelectable={false}
        deleteKeyCode={null}
        selectionKeyCode={null}
        multiSelectionKeyCode={null}
        zoomOnScroll={false}
        preventScrolling={false}
        zoomOnDoubleClick={false}
        panOnDrag={!all}
        onlyRenderVisibleElements={steps.length > 150}
        minZoom={0.1}
        maxZoom={1.5}
        proOptions={{ hideAttribution: true }}
      >
        {map && !all && <MiniMap<StepNode> position="bottom-left" style={{ width: 150, height: 100 }} ariaLabel="map of the steps" pannable zoomable nodeStrokeWidth={2} nodeClassName={(n) => `tone-${n.data.step.look?.tone ?? "plain"}`} />}
        {controls && (
          <Controls orientation="horizontal" showInteractive={false} position="bottom-right" fitViewOptions={{ padding: 0.08 }}>
            <ControlButton aria-pressed={map} aria-label="Map" title={all ? "Map: not needed, because all steps are visible" : "Map"} disabled={all} onClick={() => setMap(!map)}>
              <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d="M1 3h14v10H1zM9 8h6v5H9z" fill="none" stroke="currentColor" strokeWidth="1.6" />
              </svg>
            </ControlButton>
            <ControlButton aria-pressed={full} aria-label={full ? "Leave full screen" : "Full screen"} title={full ? "Leave full screen (Esc)" : "Full screen"} onClick={() => setFull(!full)}>
              <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d={full ? "M6 1v5H1m9-5v5h5M6 15v-5H1m9 5v-5h5" : "M1 6V1h5m4 0h5v5M1 10v5h5m4 0h5v-5"} fill="none" stroke="currentColor" strokeWidth="1.8" />
              </svg>
            </ControlButton>
          </Controls>
        )}
      </ReactFlow>
    </div>
  );
}
