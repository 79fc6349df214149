// The graph of a flow, in a separate chunk that only pages with a graph load.
import { Controls, Handle, MarkerType, Position, ReactFlow, type Edge, type Node, type NodeProps, type ReactFlowInstance } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { span } from "./format";
import { layers } from "./layers";
import { Mark, stepLook, type Look } from "./status";
import { Told, toldTitle, useNow } from "./ui";

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

type StepNode = Node<{ step: Drawn; down: boolean }, "step">;

const wide = 172;
const high = 70;
const readable = 0.72; // the smallest scale
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

function StepBox({ data: { step, down } }: NodeProps<StepNode>) {
  return (
    <a className={`step nodrag nopan tone-${step.look?.tone ?? "plain"}${step.each ? " each" : ""}`} href={step.to} aria-current={step.chosen || undefined} draggable={false} title={step.note && toldTitle(step.note)}>
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
          <Told text={step.note ?? ""} />
        </span>}
      {step.look && <span className="unseen">{step.look.name}</span>}
      <Handle type="source" position={down ? Position.Bottom : Position.Right} isConnectable={false} />
    </a>
  );
}

const kinds = { step: StepBox };
const narrow = matchMedia("(max-width: 760px)");
const useNarrow = () =>
  useSyncExternalStore(
    (listener) => {
      narrow.addEventListener("change", listener);
      return () => narrow.removeEventListener("change", listener);
    },
    () => narrow.matches,
  );

/** Draws steps, each after its dependencies. label is the accessible name. */
export default function Graph({ steps, after, label }: { steps: Drawn[]; after: Map<string, string[]>; label: string }) {
  const down = useNarrow();
  const box = useRef<HTMLDivElement>(null);
  const ids = steps.map((s) => s.id).join("\n");
  const places = useMemo(() => layers(ids.split("\n"), after), [ids, after]);
  const nodes = useMemo(
    () =>
      steps.map((step): StepNode => {
        const { layer, row } = places.get(step.id) ?? { layer: 0, row: 0 };
        const position = down ? { x: row * (wide + 22), y: layer * (high + 32) } : { x: layer * (wide + 44), y: row * (high + 22) };
        return { id: step.id, type: "step", position, width: wide, height: high, data: { step, down } };
      }),
    [steps, places, down],
  );
  const edges = useMemo(() => {
    const known = new Map(steps.map((s) => [s.id, s]));
    return steps.flatMap((to) =>
      (after.get(to.id) ?? [])
        .filter((from) => known.has(from))
        .map((from): Edge => {
          const went = known.get(from)?.until !== undefined && to.since !== undefined;
          return { id: `${from}/${to.id}`, source: from, target: to.id, className: went ? "went" : "", animated: to.since !== undefined && to.until === undefined && to.look?.tone === "run", markerEnd: { type: MarkerType.ArrowClosed, color: "context-stroke", width: 16, height: 16 } };
        }),
    );
  }, [steps, after]);
  const size = {
    wide: Math.max(...nodes.map((n) => n.position.x)) + wide,
    high: Math.max(...nodes.map((n) => n.position.y)) + high,
  };
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => setRoom(Math.round(entry?.contentRect.width ?? 0)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  // Show the whole graph if it is readable, otherwise the running part.
  const whole = Math.min(1, room / (size.wide + 36));
  const zoom = whole >= readable ? whole : 0.85;
  const height = Math.min(size.high * zoom + 44, down ? 900 : 520);
  const fits = whole >= readable && size.high * zoom + 44 <= height;
  const flow = useRef<ReactFlowInstance<StepNode, Edge>>(undefined);
  const look = () => {
    const at = nodes.find((n) => n.data.step.since !== undefined && n.data.step.until === undefined) ?? nodes.find((n) => n.data.step.look?.tone === "bad") ?? nodes[0];
    if (!flow.current || !room || !at) return;
    const middle = (length: number, wanted: number, part: number) => (part * zoom + 36 <= length ? (length - part * zoom) / 2 : Math.min(18, Math.max(length - part * zoom - 18, length / 2 - wanted * zoom)));
    void flow.current.setViewport({ x: middle(room, at.position.x + wide / 2, size.wide), y: middle(height, at.position.y + high / 2, size.high), zoom });
  };
  // Only when the graph is redrawn, so that it does not move while in use.
  const looking = useRef(look);
  looking.current = look;
  useEffect(() => looking.current(), [room, down, ids]);
  return (
    <div className="graph" ref={box} style={{ height }} role="group" aria-label={label}>
      <ReactFlow
        key={`${down ? "down" : "right"}\n${ids}`}
        nodes={nodes}
        edges={edges}
        nodeTypes={kinds}
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
        panOnDrag={!fits}
        onlyRenderVisibleElements={steps.length > 150}
        minZoom={0.1}
        maxZoom={1.5}
        proOptions={{ hideAttribution: true }}
      >
        {!fits && <Controls showInteractive={false} showFitView={false} position="bottom-right" />}
      </ReactFlow>
    </div>
  );
}
