// The sinks of a namespace, and its changes as they are recorded.
import { Code, ConnectError } from "@connectrpc/connect";
import { Fragment, useEffect, useState } from "react";
import { changes, namespaces, useRead } from "../api";
import { count, exact, millis, timestamp } from "../format";
import { ChangeKind } from "../gen/progressor/v1/namespace_pb";
import type { Change } from "../gen/progressor/v1/change_pb";
import { SinkState, type Sink } from "../gen/progressor/v1/sink_pb";
import { Pager } from "../paging";
import { change, href, useParam } from "../router";
import { lookOfSink, Status } from "../status";
import { Act, Button, Card, Empty, ErrorBox, Field, Line, Loading, Table, EngineText, When } from "../ui";
import { kindName, Lag, SinkDialog, sinkActions, sinkNeeds, Subject, targetWords, type SinkAction } from "./sink";

/** Changes that the page keeps. */
const kept = 200;

function Sinks({ ns }: { ns: string }) {
  const after = useParam("after");
  const [dialog, setDialog] = useState<[Sink, SinkAction]>();
  const { data, error, isPending } = useRead(["sinks", ns, after], (o) => changes.listSinks({ namespace: ns, pageSize: 50, pageToken: after }, o), { keep: true });
  return (
    <>
      <ErrorBox error={error} what="Sinks" />
      {isPending && <Loading rows={2} />}
      {data?.sinks.length === 0 && (
        <Empty title="No sinks yet" docs="changes.md">
          A sink delivers the changes of {ns} to a webhook or to Kafka. Create one: <code>progressor sink put {ns} -f sink.yaml</code>
        </Empty>
      )}
      {(data?.sinks.length ?? 0) > 0 && (
        <Card title="Sinks">
          <Table label="sinks" heads={["State", "Sink", "Waiting", "#Delivered", "#Dead letters", "Target, and last error", ""]}>
            {data?.sinks.map((m) => (
              <tr key={m.sinkId}>
                <td>
                  <Status look={lookOfSink(m.status?.state)} />
                </td>
                <td className="wrap id">
                  <a href={href("sink", { ns, id: m.sinkId })}>{m.sinkId}</a>
                </td>
                <td data-label="waiting">
                  <Lag m={m} />
                </td>
                <td className="number" data-label="delivered">{count(m.status?.deliveredChanges ?? 0n)}</td>
                <td className={"number" + (m.status?.storedDeadLetters ? " tone-bad" : " dim")} data-label="dead letters">{count(m.status?.storedDeadLetters ?? 0n)}</td>
                <td className="what">
                  {targetWords(m)}
                  {m.status?.lastError && (
                    <div className={m.status.state === SinkState.ACTIVE ? "dim" : "tone-bad"}>
                      <EngineText text={m.status.lastError} /> <span className="dim">(<When at={millis(m.status.lastErrorTime)} />)</span>
                    </div>
                  )}
                </td>
                <td className="end">
                  {sinkActions(m).map(([action, name, kind]) => (
                    <Fragment key={action}>
                      <Act needs={sinkNeeds[action]} kind={kind} onClick={() => setDialog([m, action])}>
                        {name}
                      </Act>{" "}
                    </Fragment>
                  ))}
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {dialog && <SinkDialog m={dialog[0]} action={dialog[1]} onClose={() => setDialog(undefined)} />}
    </>
  );
}

interface Watched {
  list: Change[]; // newest first
  error: unknown;
  connected: boolean;
}

const nothing: Watched = { list: [], error: undefined, connected: false };

/** Watches the changes of a namespace. After a broken connection, it continues after the last change that it has shown. */
function useChanges(ns: string, kind: number, since: number, stopped: boolean): Watched {
  const [seen, setSeen] = useState<Watched>(nothing);
  const [cursor] = useState<{ at: string }>({ at: "" });
  useEffect(() => {
    cursor.at = "";
    setSeen(nothing);
  }, [ns, kind, since, cursor]);
  useEffect(() => {
    if (stopped) return;
    const leave = new AbortController();
    const follow = async () => {
      for (let wait = 1000; !leave.signal.aborted; wait = Math.min(wait * 2, 30_000)) {
        try {
          const from = since && !cursor.at ? { fromTime: timestamp(since === 1 ? 0 : Date.now() - since) } : { cursor: cursor.at };
          for await (const got of changes.watchChanges({ namespace: ns, kinds: kind ? [kind] : [], ...from }, { signal: leave.signal })) {
            wait = 1000;
            cursor.at = got.cursor;
            setSeen((old) => ({ list: [...got.changes.toReversed(), ...old.list].slice(0, kept), error: undefined, connected: true }));
          }
        } catch (error) {
          if (leave.signal.aborted) return;
          const code = ConnectError.from(error).code;
          setSeen((old) => ({ ...old, error, connected: false }));
          if (code === Code.InvalidArgument || code === Code.NotFound) return;
          if (code === Code.OutOfRange) cursor.at = ""; // the watch cannot continue: begin again
          await new Promise((done) => setTimeout(done, wait));
        }
      }
    };
    void follow();
    return () => leave.abort();
  }, [ns, kind, since, stopped, cursor]);
  return seen;
}

const beginnings: [number, string][] = [
  [0, "from now on"],
  [300_000, "the last 5 minutes"],
  [3_600_000, "the last hour"],
  [1, "all stored changes"],
];

function What({ c }: { c: Change }) {
  const step = c.details?.["step_id"];
  return (
    <>
      {c.type.replaceAll("_", " ")}
      {typeof step === "string" && <> <code>{step}</code></>}
      {c.eventId > 0n && <span className="dim"> event {String(c.eventId)}{c.payload.length > 0 && `, ${count(c.payload.length)} bytes`}</span>}
      {!c.eventId && (c.fromStatus || c.toStatus) && <span className="dim"> {c.fromStatus || "–"} → {c.toStatus || "–"}</span>}
    </>
  );
}

function Live({ ns, recorded }: { ns: string; recorded: ChangeKind[] }) {
  const kind = Number(useParam("kind")) || 0;
  const since = Number(useParam("since")) || 0;
  const [stopped, setStopped] = useState(false);
  const { list, error, connected } = useChanges(ns, kind, since, stopped);
  return (
    <Card
      title="Changes"
      extra={
        <>
          <span className="dim" role="status">{stopped ? "stopped" : connected ? "live" : "connecting…"}</span>{" "}
          <Button aria-pressed={stopped} onClick={() => setStopped(!stopped)}>{stopped ? "Continue" : "Stop"}</Button>
        </>
      }
    >
      <div className="bararea">
        <Field label="Kind">
          <select value={kind} onChange={(e) => change({ kind: e.target.value === "0" ? undefined : e.target.value }, "replace")}>
            <option value={0}>all</option>
            {recorded.map((k) => (
              <option key={k} value={k}>
                {kindName(k)}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Show">
          <select value={since} onChange={(e) => change({ since: e.target.value === "0" ? undefined : e.target.value }, "replace")}>
            {beginnings.map(([ms, name]) => (
              <option key={ms} value={ms}>
                {name}
              </option>
            ))}
          </select>
        </Field>
      </div>
      <ErrorBox error={error} what="Changes" />
      {!list.length && !error && <Empty title="No changes yet">They appear here as soon as they are recorded.</Empty>}
      {list.length > 0 && (
        <Table label="changes" heads={["When", "Kind", "Subject", "What happened", "Reason"]}>
          {list.map((c) => (
            <tr key={String(c.changeId)}>
              <td title={exact(millis(c.time) ?? 0)}>
                <When at={millis(c.time)} />
              </td>
              <td data-label="kind">{kindName(c.kind)}</td>
              <td>
                <Subject ns={ns} id={c.processId} kind={c.kind} />
              </td>
              <td className="wrap">
                <What c={c} />
              </td>
              <td className="what">{c.reason && <Line text={c.reason} fromEngine />}</td>
            </tr>
          ))}
        </Table>
      )}
      {list.length === kept && <p className="dim">Only the newest {kept} are shown.</p>}
    </Card>
  );
}

export function Changes({ ns }: { ns: string }) {
  const { data, error } = useRead(["namespace", ns, "changes"], (o) => namespaces.getNamespace({ namespace: ns }, o), { every: 15000 });
  const recorded = data?.namespace?.changes?.kinds;
  return (
    <>
      <h1>Changes</h1>
      <ErrorBox error={error} />
      <Sinks ns={ns} />
      {data && !recorded?.length && (
        <Empty title={`${ns} records no changes`} docs="changes.md">
          Let it record them: <code>progressor namespace get {ns} -o json | progressor namespace put {ns} -f - --changes event,lifecycle</code>
        </Empty>
      )}
      {recorded?.length ? <Live ns={ns} recorded={recorded} /> : null}
    </>
  );
}
