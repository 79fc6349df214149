// One sink: its state, the reason if it does not deliver, its settings and its dead letters.
import { useState } from "react";
import { changes, readOnly, useRead } from "../api";
import { count, durationMillis, exact, millis, plural, span, timestamp } from "../format";
import { ChangeKind } from "../gen/progressor/v1/namespace_pb";
import { SinkFormat, SinkState, type ExplainSinkResponse, type Sink } from "../gen/progressor/v1/sink_pb";
import { homeOf } from "../home";
import { methods } from "../may";
import { useCommands } from "../palette";
import { go, href, useParam } from "../router";
import { lookOfSink, Status } from "../status";
import { Act, Card, Commanded, Confirm, ErrorBox, Field, Fields, Loading, Missing, Table, EngineText, When } from "../ui";

export const kindName = (kind: ChangeKind): string => (ChangeKind[kind] ?? "?").toLowerCase();

/** A link to the page of the process, job, run or cron of a change. */
export function Subject({ ns, id, kind }: { ns: string; id: string; kind: ChangeKind }) {
  const home = homeOf(ns, id, kind === ChangeKind.JOB ? "job" : "");
  return (
    <a className="line short" title={id} href={home?.to ?? href("process", { ns, id })}>
      {id}
    </a>
  );
}

export function targetWords(m: Sink): string {
  if (m.target.case === "kafka") return `topic ${m.target.value.topic} at ${m.target.value.brokers.join(", ")}`;
  return m.target.value?.url ?? "?";
}

export function Lag({ m }: { m: Sink }) {
  const s = m.status;
  if (!s?.lagChanges) return <span className="dim">none</span>;
  return (
    <>
      {plural(s.lagChanges, "change")} <span className="dim">for {span(durationMillis(s.lag) ?? 0)}</span>
    </>
  );
}

export type SinkAction = "pause" | "resume" | "retry" | "rewind" | "delete";

export const sinkNeeds = { resume: methods.resumeSink, pause: methods.pauseSink, retry: methods.retrySinkDeadLetters, rewind: methods.rewindSink, delete: methods.deleteSink };

/** The actions that the state of a sink allows. */
export function sinkActions(m: Sink): [SinkAction, string, ("main" | "bad")?][] {
  const state = m.status?.state;
  const list: [SinkAction, string, ("main" | "bad")?][] = [];
  if (state === SinkState.FAILING) list.push(["resume", "Try now…"]);
  else if (state !== SinkState.ACTIVE) list.push(["resume", "Resume…"]);
  if (state === SinkState.ACTIVE || state === SinkState.FAILING) list.push(["pause", "Pause…"]);
  if ((m.status?.storedDeadLetters ?? 0n) > (m.status?.retries ?? 0n)) list.push(["retry", "Deliver again…"]);
  return [...list, ["rewind", "Rewind…"], ["delete", "Delete…", "bad"]];
}

const starts = [
  ["time", "the changes since a time"],
  ["oldest", "the oldest change"],
  ["now", "the changes from now on"],
] as const;

function Rewind({ m, onClose }: { m: Sink; onClose: () => void }) {
  const [from, setFrom] = useState<(typeof starts)[number][0]>("time");
  const [text, setText] = useState("");
  const at = from === "oldest" ? 0 : from === "now" ? Date.now() : Date.parse(text);
  return (
    <Confirm
      title={`Rewind ${m.sinkId}?`}
      says="The sink continues from the new position. Delivered changes after it are delivered again. Undelivered changes before it are skipped. The state of the sink does not change."
      verb="Rewind"
      disabled={Number.isNaN(at)}
      run={() => changes.rewindSink({ namespace: m.namespace, sinkId: m.sinkId, toTime: timestamp(from === "now" ? Date.now() : at) })}
      done={`${m.sinkId} is rewound.`}
      onClose={onClose}
    >
      <>
        <Field label="Continue with">
          <select autoFocus value={from} onChange={(e) => setFrom(e.target.value as typeof from)}>
            {starts.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </Field>
        {from === "time" && (
          <Field label="Time" hint="Your browser's time, inclusive.">
            <input type="datetime-local" step="1" value={text} onChange={(e) => setText(e.target.value)} />
          </Field>
        )}
      </>
    </Confirm>
  );
}

export function SinkDialog({ m, action, onClose, onDeleted }: { m: Sink; action: SinkAction; onClose: () => void; onDeleted?: () => void }) {
  const key = { namespace: m.namespace, sinkId: m.sinkId };
  switch (action) {
    case "rewind":
      return <Rewind m={m} onClose={onClose} />;
    case "pause":
      return <Confirm title={`Pause ${m.sinkId}?`} says={`Deliveries stop within about a second. Changes wait for the sink, for at most ${span(durationMillis(m.maxLag) || 7 * 86_400_000)} (max_lag).`} verb="Pause" run={() => changes.pauseSink(key)} done={`${m.sinkId} is paused.`} onClose={onClose} />;
    case "resume":
      return m.status?.state === SinkState.FAILING ? (
        <Confirm title={`Repeat the delivery of ${m.sinkId}?`} says="The delivery that failed is repeated now, instead of at its next attempt." verb="Try now" run={() => changes.resumeSink(key)} done={`${m.sinkId} repeats the delivery.`} onClose={onClose} />
      ) : (
        <Confirm title={`Resume ${m.sinkId}?`} says="It continues with the oldest change that it has not delivered. If changes were deleted in the meantime, rewind it first." verb="Resume" run={() => changes.resumeSink(key)} done={`${m.sinkId} is resumed.`} onClose={onClose} />
      );
    case "retry":
      return <Confirm title={`Deliver the dead letters of ${m.sinkId} again?`} says="Each is delivered once more, after newer changes of its process. If that fails, it remains a dead letter with the new error." verb="Deliver again" run={() => changes.retrySinkDeadLetters({ ...key, all: true })} done={`${m.sinkId} delivers its dead letters again.`} onClose={onClose} />;
    case "delete":
      return (
        <Confirm
          title={`Delete ${m.sinkId}?`}
          says="Its target receives no more changes. Its position and its dead letters are also deleted."
          verb="Delete permanently"
          bad
          typed={m.sinkId}
          run={async () => {
            await changes.deleteSink(key);
            onDeleted?.();
          }}
          done={`${m.sinkId} is deleted.`}
          onClose={onClose}
        />
      );
  }
}

function Explained({ e, m }: { e: ExplainSinkResponse; m: Sink }) {
  const state = m.status?.state;
  const tone = state === SinkState.ACTIVE ? (m.status?.storedDeadLetters ? "" : "good") : state === SinkState.PAUSED ? "hold" : "bad";
  return (
    <div className={`notice explain ${tone}`}>
      <p>
        <EngineText text={e.detail} />
      </p>
      <p>
        <span className="label">Next</span> <EngineText text={e.next} />
      </p>
      <p>
        <span className="label">To continue</span> <Commanded text={e.unblock} />
      </p>
    </div>
  );
}

function Letters({ m }: { m: Sink }) {
  const letters = m.status?.recentDeadLetters ?? [];
  if (!letters.length) return null;
  const all = m.status?.storedDeadLetters ?? 0n;
  return (
    <Card title="Dead letters" extra={all > BigInt(letters.length) && <span className="dim">the newest {letters.length} of {count(all)}</span>}>
      <p className="dim">The target rejected these changes permanently. The sink continued with the next ones.</p>
      <Table label="dead letters" heads={["Failed", "#Change", "Kind", "What happened", "Subject", "#Attempts", "Error"]}>
        {letters.map((d) => (
          <tr key={String(d.changeId)}>
            <td title={exact(millis(d.time) ?? 0)}>
              <When at={millis(d.time)} />
            </td>
            <td className="number" data-label="change">{String(d.changeId)}</td>
            <td data-label="kind">{kindName(d.kind)}</td>
            <td>{d.type.replaceAll("_", " ")}</td>
            <td>
              <Subject ns={m.namespace} id={d.processId} kind={d.kind} />
            </td>
            <td className="number" data-label="attempts">{count(d.attempts)}</td>
            <td className="what">
              {d.error}
              {d.retryTime && <div className="dim">It waits to be delivered again.</div>}
              {!d.retryTime && d.changeDeleted && <div className="dim">Its change was deleted: it cannot be delivered again.</div>}
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

export function SinkPage({ ns }: { ns: string }) {
  const id = useParam("id");
  const [action, setAction] = useState<SinkAction>();
  const explained = useRead(["sink", ns, id, "explained"], (o) => changes.explainSink({ namespace: ns, sinkId: id }, o), { every: 3000 });
  const { data, error } = useRead(["sink", ns, id], (o) => changes.getSink({ namespace: ns, sinkId: id }, o), { every: 3000 });
  const m = data?.sink;
  const list = m ? sinkActions(m) : [];
  useCommands(readOnly ? [] : list.map(([a, name]) => ({ name, group: "sink", needs: sinkNeeds[a], run: () => setAction(a) })));
  if (!m) return error ? <Missing error={error} what="sink" id={id} ns={ns} to={href("changes", { ns })} list="Show sinks" /> : <Loading />;
  const s = m.status;
  return (
    <>
      <div className="head">
        <h1>
          {m.sinkId}
          <span className="under">
            <Status look={lookOfSink(s?.state)} /> <span className="dim">· {targetWords(m)}</span>
          </span>
        </h1>
        <div className="actions">
          {list.map(([a, name, kind]) => (
            <Act key={a} needs={sinkNeeds[a]} kind={kind} onClick={() => setAction(a)}>
              {name}
            </Act>
          ))}
        </div>
      </div>
      <ErrorBox error={error ?? explained.error} />
      {explained.data && <Explained e={explained.data} m={explained.data.sink ?? m} />}
      <Card title="Deliveries">
        <Fields
          list={[
            ["waiting", <Lag key="l" m={m} />],
            ["delivered", plural(s?.deliveredChanges ?? 0n, "change")],
            ["last delivery", <When key="d" at={millis(s?.deliveredTime)} />],
            ["failures in a row", count(s?.failures ?? 0)],
            ["last error", s?.lastError ? <>{s.lastError} <span className="dim">(<When at={millis(s.lastErrorTime)} />)</span></> : <span key="e" className="dim">none</span>],
            ["dead letters", `${count(s?.storedDeadLetters ?? 0n)} (${count(s?.deadLetters ?? 0n)} in all)`],
            ["node", s?.nodeId ? <a key="n" href={href("nodes", { ns })}>{String(s.nodeId)}</a> : <span key="n" className="dim">none</span>],
          ]}
        />
      </Card>
      <Letters m={m} />
      <Card title="Settings">
        <Fields
          list={[
            ["target", targetWords(m)],
            ["format", (SinkFormat[m.format || SinkFormat.CLOUDEVENTS] ?? "?").toLowerCase()],
            ["kinds", m.kinds.map(kindName).join(", ") || "all that the namespace records"],
            ["filter", m.filter ? <code key="f">{m.filter}</code> : <span key="f" className="dim">none</span>],
            ["waits at most", `${span(durationMillis(m.maxLag) || 7 * 86_400_000)} (max_lag)`],
            ...(m.target.case === "webhook" ? [["signed", m.target.value.signed ? "yes" : "no"] as [string, string]] : []),
            ["created", <When key="c" at={millis(m.createdTime)} />],
            ["changed", <When key="u" at={millis(m.updatedTime)} />],
          ]}
        />
        <p className="dim">
          <Commanded text={`To change them: progressor sink get ${m.namespace} ${m.sinkId} -o json > sink.json, edit the file, and progressor sink put ${m.namespace} -f sink.json.`} />
        </p>
      </Card>
      {action && <SinkDialog m={m} action={action} onClose={() => setAction(undefined)} onDeleted={() => go("changes", { ns })} />}
    </>
  );
}
