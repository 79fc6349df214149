// The journal of a durable function: the events of its process, as docs/journal.md describes them.
import { millis } from "../format";
import type { Event, Process } from "../gen/progressor/v1/process_pb";
import { Line, Table, When } from "../ui";
import { href } from "../router";

/** An entry of a journal. */
export interface Entry {
  event: Event;
  kind: string;
  name: string;
  value: string; // JSON as it is stored, or ""
  error?: { reason?: string; message?: string };
  skipped: boolean;
  forgotten: boolean; // it does not count after a repair
}

/** What each kind of entry says. */
const says: Record<string, string> = {
  start: "function started",
  step: "step done",
  try: "step failed and is retried",
  value: "value made",
  timer: "timer set",
  fired: "timer fired",
  stopped: "timer stopped",
  call: "call accepted",
  first: "first of several",
  end: "function returned",
  fail: "function failed",
  undo: "step undone",
  child: "child started",
  ended: "child ended",
  cancel: "child asked to end",
  repair: "repaired by step",
};

const whatOf = (e: Entry) => (e.kind === "step" && e.error ? "step failed" : says[e.kind]);

/** Cuts the value out of the text of an entry, so that 9007199254740993 does not change. */
function valueIn(text: string, kind: string, name: string, v: unknown): string {
  if (v === undefined) return "";
  const before = `{"k":${JSON.stringify(kind)},"n":${JSON.stringify(name)},"v":`;
  const value = text.slice(before.length, -1);
  try {
    if (text.startsWith(before)) {
      JSON.parse(value);
      return value;
    }
  } catch {
    // fields follow the value
  }
  return JSON.stringify(v);
}

function entryOf(event: Event): Entry | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(event.payload);
    const { k, n, v, e, skipped } = JSON.parse(text) as Record<string, unknown>;
    if (typeof k !== "string" || typeof n !== "string" || !says[k]) return undefined;
    return { event, kind: k, name: n, value: valueIn(text, k, n, v), error: e as Entry["error"], skipped: skipped === true, forgotten: false };
  } catch {
    return undefined;
  }
}

/**
 * Returns the entries of a page of the history, newest first, or undefined if the process is not a
 * durable function.
 */
export function journalOf(p: Process): Entry[] | undefined {
  const entries: Entry[] = [];
  for (const event of p.history) {
    const entry = entryOf(event);
    if (!entry) return undefined;
    entries.push(entry);
  }
  const forgotten = new Set<bigint>();
  for (const { kind, value } of entries) {
    if (kind !== "repair") continue;
    for (const at of (JSON.parse(value || "{}") as { forget?: number[] }).forget ?? []) forgotten.add(p.firstEventId + BigInt(at));
  }
  for (const entry of entries) entry.forgotten = forgotten.has(entry.event.eventId);
  return entries.length > 0 ? entries : undefined;
}

/** What the function waits for, as far as the process and these entries show it. */
function Waits({ p, entries }: { p: Process; entries: Entry[] }) {
  const ended = new Set(entries.filter((e) => e.kind === "ended" && !e.forgotten).map((e) => e.name));
  const children = entries.filter((e) => e.kind === "child" && !e.forgotten && !ended.has(e.name));
  const timers = p.timers.filter((t) => t.name !== "");
  if (timers.length + children.length === 0) return null;
  return (
    <ul className="plain" aria-label="what the function waits for">
      {timers.map((t) => (
        <li key={t.name}>
          {t.name.startsWith("retry:") ? <>Step <strong>{t.name.slice("retry:".length)}</strong> is retried</> : <>Timer <strong>{t.name}</strong> fires</>} <When at={millis(t.fireTime)} />
        </li>
      ))}
      {children.map((e) => {
        const child = JSON.parse(e.value) as { namespace: string; process_id: string; job?: boolean };
        return (
          <li key={e.name}>
            {child.job ? "Job" : "Child"} <strong>{e.name}</strong> runs: <a href={href("process", { ns: child.namespace, id: child.process_id })}>{child.process_id}</a>
          </li>
        );
      })}
    </ul>
  );
}

export function Journal({ p, entries, older }: { p: Process; entries: Entry[]; older: boolean }) {
  return (
    <>
      <Waits p={p} entries={entries} />
      {older && <p className="dim">Repairs among the newer entries may have forgotten entries of this page.</p>}
      <Table label="journal" heads={["#Entry", "What", "Name", "Value", "Task", "When"]}>
        {entries.map((e) => (
          <tr key={String(e.event.eventId)}>
            <td className="number">{String(e.event.eventId)}</td>
            <td>
              {e.forgotten ? <s>{whatOf(e)}</s> : whatOf(e)} {e.skipped && <span className="tag">skipped</span>}
              {e.forgotten && <span className="tag">forgotten by a repair</span>}
            </td>
            <td data-label="name">
              <code>{e.name}</code>
            </td>
            <td className="grow mono">
              {e.error ? <span className="line tone-bad">{[e.error.reason, e.error.message].filter(Boolean).join(": ")}</span> : <Line text={e.value.slice(0, 160)} />}
            </td>
            <td data-label="task">
              <a href={href("process", { ns: p.namespace, id: p.processId, tab: "tasks", task: String(e.event.taskId) })}>{String(e.event.taskId)}</a>
            </td>
            <td>
              <When at={millis(e.event.timestamp)} />
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}
