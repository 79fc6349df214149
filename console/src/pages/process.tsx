import { useEffect, useMemo, useRef, useState } from "react";
import { insight, processes, queries, readOnly, useRead } from "../api";
import { quote } from "../filter";
import { count, durationMillis, exact, millis, span } from "../format";
import type { ExplainProcessResponse } from "../gen/progressor/v1/admin_pb";
import { HistoryRange_Direction, ProcessStatus, TaskStatus, TaskType, type Event, type Process, type Task } from "../gen/progressor/v1/process_pb";
import { useMay } from "../may";
import { useCommands } from "../palette";
import { brief, bytesOf, Payload } from "../payload";
import { Pager } from "../paging";
import { homeOf } from "../home";
import { change, href, useParam } from "../router";
import { lookOfProcess, lookOfTask, Status, taskTypeName } from "../status";
import { Timeline, whatNames } from "../timeline";
import { plainValue } from "../value";
import { Button, Card, Commanded, Copy, Empty, ErrorBox, Fields, Line, Loading, Missing, Since, Table, Tabs, EngineText, Took, useNow, When } from "../ui";
import { actionNeeds, ActionDialog, offered, repairs, type Action } from "./actions";
import { Journal, journalOf } from "./journal";

const page = 100;
const atEnd = (s: ProcessStatus) => s === ProcessStatus.COMPLETED || s === ProcessStatus.CANCELLED;

/** Watches a process, and reloads its data shortly after a change. */
function useWatch(ns: string, id: string): void {
  const pending = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    const leave = new AbortController();
    // Shared responses are at most a second old, so a later read contains the change.
    let lastReload = 0;
    const scheduleReload = () => {
      pending.current ??= setTimeout(
        () => {
          pending.current = undefined;
          lastReload = Date.now();
          void queries.invalidateQueries({ queryKey: ["process", ns, id] });
        },
        Math.max(1100, lastReload + 5000 - Date.now()),
      );
    };
    const follow = async (last: bigint) => {
      scheduleReload(); // the data on the page may be up to a second older than the event last
      for (let wait = 1000; !leave.signal.aborted; wait = Math.min(wait * 2, 30_000)) {
        try {
          let first = true;
          for await (const { update } of processes.watchProcess({ namespace: ns, processId: id, afterEventId: last }, { signal: leave.signal })) {
            wait = 1000;
            if (update.case === "event") last = update.value.eventId;
            if (!first) scheduleReload();
            first = false;
          }
          return; // the process has ended or was removed
        } catch {
          await new Promise((done) => setTimeout(done, wait));
        }
      }
    };
    void processes
      .getProcess({ namespace: ns, processId: id, range: { limit: 0 } }, { signal: leave.signal })
      .then(({ process: p }) => (p && !atEnd(p.status) ? follow(p.lastEventId) : undefined))
      .catch(() => undefined);
    return () => {
      leave.abort();
      clearTimeout(pending.current);
      pending.current = undefined;
    };
  }, [ns, id]);
}

function Explained({ e, p, act }: { e: ExplainProcessResponse; p: Process; act: (a: Action) => void }) {
  const may = useMay();
  const bad = p.status === ProcessStatus.ERROR;
  const onHold = p.status === ProcessStatus.SUSPENDED || p.cancelRequestedTime !== undefined;
  return (
    <div className={"notice explain " + (bad ? "bad" : onHold ? "hold" : lookOfProcess(p.status, p.kind).tone === "good" ? "good" : "")}>
      {bad && <strong className="detail">{p.detail}</strong>}
      {e.waitsForDetail && (
        <p>
          <EngineText text={e.waitsForDetail} />
        </p>
      )}
      {e.next && (
        <p>
          <span className="label">Next</span> <EngineText text={e.next} />
          {e.nextTime && !/\d{4}-\d\d-\d\dT/.test(e.next) && (
            <>
              {" "}
              <strong>
                <When at={millis(e.nextTime)} />
              </strong>
            </>
          )}
        </p>
      )}
      {e.unblock && !atEnd(p.status) && (
        <p>
          <span className="label">To continue</span> <Commanded text={e.unblock} />
        </p>
      )}
      {bad && !readOnly && (
        <div className="actions">
          {offered(p)
            .filter((o) => repairs(o) && may(actionNeeds[o.action]))
            .map((o) => (
              <Button key={o.action} kind={o.main ? "main" : undefined} onClick={() => act(o.action)}>
                {o.name}
              </Button>
            ))}
          {p.corruptedBy > 0n && (
            <Button kind="quiet" onClick={() => change({ tab: "tasks", task: String(p.corruptedBy) })}>
              Show the failed task {String(p.corruptedBy)}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

function Times({ e }: { e: ExplainProcessResponse }) {
  const list = Object.entries(e.timeByWhat)
    .map(([what, d]): [string, number] => [what, durationMillis(d) ?? 0])
    .sort((a, b) => b[1] - a[1]);
  if (list.length === 0) return null;
  return <span className="dim">{list.map(([what, ms]) => `${whatNames[what]?.[0] ?? what} ${span(ms)}`).join(" · ")}</span>;
}

function Outcome({ t }: { t: Task }) {
  if (t.failure) return <span className="line tone-bad" title={t.failure.message}><code className="tag">{t.failure.reason}</code> {t.failure.message}</span>;
  if (t.rejection) return <span className="line tone-hold" title={t.rejection.message}><code className="tag">{t.rejection.reason}</code> rejected: {t.rejection.message}</span>;
  return <span className="mono"><Line text={brief(t.response)} /></span>;
}

/** The tasks that put the process into ERROR, with the tasks that repaired it. The tasks are in the order of their numbers. */
function repairsOf(tasks: Task[]): Map<string, string> {
  const found = new Map<string, string>();
  let failed: string | undefined;
  for (const t of tasks) {
    if (t.type !== TaskType.REPAIR && t.status === TaskStatus.ERROR) failed = String(t.taskId);
    else if (t.type === TaskType.REPAIR && t.status === TaskStatus.FINISHED && failed) {
      found.set(failed, String(t.taskId));
      failed = undefined;
    }
  }
  return found;
}

function TaskRow({ t, repairedBy, open, toggle }: { t: Task; repairedBy?: string; open: boolean; toggle: () => void }) {
  const [began, ended] = [millis(t.runningTime), millis(t.finishedTime)];
  const row = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    if (open) row.current?.scrollIntoView({ block: "nearest" });
  }, [open]);
  return (
    <>
      <tr ref={row} className={open ? "at" : ""}>
        <td>
          <button type="button" className="fold" aria-expanded={open} onClick={toggle}>
            {open ? "▾" : "▸"} {String(t.taskId)}
          </button>
        </td>
        <td>
          {taskTypeName(t.type)} {t.timerName && <span className="tag">{t.timerName}</span>}
          {t.type === TaskType.REPAIR && t.attempt === 0 && t.status === TaskStatus.FINISHED && <span className="tag">without the processor</span>}
          {repairedBy !== undefined && <span className="tag">repaired by task {repairedBy}</span>}
        </td>
        <td>
          <Status look={lookOfTask(t.status)} />
        </td>
        <td className="number" data-label="attempt">{t.attempt || <span className="dim">–</span>}</td>
        <td data-label="scheduled">
          <When at={millis(t.scheduledTime)} />
        </td>
        <td className="number" data-label="took">
          <Took ms={began !== undefined && ended !== undefined ? ended - began : undefined} />
        </td>
        <td className="grow mono"><Line text={brief(t.args)} /></td>
        <td className="grow"><Outcome t={t} /></td>
      </tr>
      {open && (
        <tr className="opened">
          <td colSpan={8}>
            <div className="two">
              <div>
                <h3>Args</h3>
                <Payload bytes={t.args} name="args" />
                {t.context.length > 0 && (
                  <>
                    <h3>Context</h3>
                    <Payload bytes={t.context} name="context" />
                  </>
                )}
              </div>
              <div>
                <h3>{t.failure ? "Failure" : t.rejection ? "Rejection" : "Response"}</h3>
                {t.failure ? (
                  <div className="notice bad">
                    <strong>{t.failure.reason}</strong>
                    <p>{t.failure.message}</p>
                    {t.failure.nonRetryable && <p className="dim">It is not retried.</p>}
                    {t.failure.details && <Payload bytes={bytesOf(JSON.stringify(plainValue(t.failure.details)))} name="details" />}
                  </div>
                ) : t.rejection ? (
                  <div className="notice hold">
                    <strong>{t.rejection.reason}</strong>
                    <p>{t.rejection.message}</p>
                    {t.rejection.details.length > 0 && <Payload bytes={t.rejection.details} name="details" />}
                  </div>
                ) : (
                  <Payload bytes={t.response} name="response" />
                )}
                {t.failures.length > 0 && <h3>Failed attempts</h3>}
                {t.failures.map((f) => (
                  <p key={f.attempt}>
                    {f.attempt}: <code className="tag">{f.reason}</code> {f.message}{" "}
                    <span className="dim">{exact(millis(f.failedTime) ?? 0)}, node {f.nodeId}</span>
                  </p>
                ))}
                {t.events.map((e) => (
                  <div key={String(e.eventId)}>
                    <h3>Event {String(e.eventId)}</h3>
                    <Payload bytes={e.payload} name={`event ${e.eventId}`} />
                  </div>
                ))}
              </div>
            </div>
            <p className="dim">
              scheduled {exact(millis(t.scheduledTime) ?? 0)}
              {began !== undefined && `, ran ${exact(began)}`}
              {ended !== undefined && `, ended ${exact(ended)}`}
              {t.firstScheduledTime && `, first scheduled ${exact(millis(t.firstScheduledTime) ?? 0)}`}
              {t.retryInterval && `, ${span(durationMillis(t.retryInterval) ?? 0)} after the previous attempt`}
              {t.idempotencyKey && `, key ${t.idempotencyKey}`}
              {t.priority !== 0 && `, priority ${t.priority}`}
            </p>
          </td>
        </tr>
      )}
    </>
  );
}

function Tasks({ tasks, next, after }: { tasks: Task[]; next: string; after: string }) {
  const open = useParam("task");
  const repaired = useMemo(() => repairsOf(tasks), [tasks]);
  if (tasks.length === 0) return <Empty title="No tasks yet">The tasks of the process appear here when it has started.</Empty>;
  return (
    <>
      <Table label="tasks" heads={["Task", "Type", "Status", "#Attempt", "Scheduled", "#Took", "Args", "Outcome"]}>
        {tasks.map((t) => {
          const id = String(t.taskId);
          return <TaskRow key={id} t={t} repairedBy={repaired.get(id)} open={open === id} toggle={() => change({ task: open === id ? undefined : id }, "replace")} />;
        })}
      </Table>
      <Pager name="tasks" after={after} next={next} />
    </>
  );
}

function History({ events, next, before }: { events: Event[]; next: string; before: string }) {
  if (events.length === 0) return <Empty title="No events yet">Events appear here when the processor returns them with a result.</Empty>;
  return (
    <>
      <ol className="history">
        {events.map((e) => (
          <li key={String(e.eventId)}>
            <header>
              <strong>{String(e.eventId)}</strong> <When at={millis(e.timestamp)} />
              <span className="dim">
                by task <a href={href("process", { ...Object.fromEntries(new URLSearchParams(location.hash.split("?")[1])), tab: "tasks", task: String(e.taskId) })}>{String(e.taskId)}</a>
              </span>
              {e.metadata && Object.keys(e.metadata).length > 0 && <code className="dim">{JSON.stringify(e.metadata)}</code>}
            </header>
            <Payload bytes={e.payload} name={`event ${e.eventId}`} />
          </li>
        ))}
      </ol>
      <Pager name="before" after={before} next={next} />
    </>
  );
}

function Relations({ p }: { p: Process }) {
  const ns = p.namespace;
  const home = homeOf(ns, p.processId, p.kind);
  const alike = Object.entries(p.metadata ?? {}).filter(([, v]) => ["string", "number", "boolean"].includes(typeof v) && v !== "");
  return (
    <>
      {home && <Fields list={[[home.kind, <a key="home" href={home.to}>{home.name}</a>]]} />}
      <h3>Processes with the same attribute</h3>
      {alike.length === 0 ? (
        <p className="dim">This process has no attributes. A start or a result sets them as metadata.</p>
      ) : (
        <ul className="plain">
          {alike.map(([key, v]) => {
            const filter = `metadata.${quote(key)} = ${typeof v === "string" ? `"${v.replace(/[\\"*]/g, "\\$&")}"` : String(v)}`;
            return (
              <li key={key}>
                <a href={href("processes", { ns, filter })}>
                  {key} = {String(v)}
                </a>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}

function Audit({ ns, id }: { ns: string; id: string }) {
  const { data, error, isPending } = useRead(["process", ns, id, "audit"], (o) => insight.listAudit({ namespace: ns, filter: `subject = "${id.replace(/[\\"*]/g, "\\$&")}"`, pageSize: 50 }, o), { every: 30000, age: 1 });
  if (isPending) return <Loading rows={3} />;
  if (error) return <ErrorBox error={error} />;
  if (!data?.entries.length) return <Empty title="No commands yet">Commands of operators are recorded here for 90 days.</Empty>;
  return (
    <Table label="audit" heads={["When", "Command", "By", "From", "Details"]}>
      {data.entries.map((a) => (
        <tr key={String(a.auditId)}>
          <td>
            <When at={millis(a.time)} />
          </td>
          <td>{a.method}</td>
          <td data-label="by">{a.actor || <span className="dim">unknown</span>}</td>
          <td data-label="from">{a.source}</td>
          <td className="wrap mono">{a.details && Object.keys(a.details).length > 0 ? JSON.stringify(a.details) : ""}</td>
        </tr>
      ))}
    </Table>
  );
}

export function ProcessPage({ ns }: { ns: string }) {
  const id = useParam("id");
  return id ? <One key={id} ns={ns} id={id} /> : <Empty title="No process selected">Choose one from the list. <a href={href("processes", { ns })}>Show processes</a></Empty>;
}

function One({ ns, id }: { ns: string; id: string }) {
  const asked = useParam("tab");
  const after = useParam("tasks");
  const before = useParam("before");
  const [action, setAction] = useState<Action>();
  const clock = useNow();
  useWatch(ns, id);
  const slow = { every: 30_000, age: 1, keep: true };
  const range = { limit: page, direction: HistoryRange_Direction.BACKWARD, offset: before ? BigInt(before) : undefined };
  const read = useRead(["process", ns, id, "process", before], (o) => processes.getProcess({ namespace: ns, processId: id, range }, o), slow);
  const explanation = useRead(["process", ns, id, "explain"], (o) => insight.explainProcess({ namespace: ns, processId: id }, o), slow);
  const traced = useRead(["process", ns, id, "trace", after], (o) => processes.traceProcess({ namespace: ns, processId: id, pageSize: page, pageToken: after }, o), slow);
  const p = read.data?.process;
  const tasks = useMemo(() => traced.data?.tasks ?? [], [traced.data]);
  const types = useMemo(() => new Map(tasks.map((t) => [String(t.taskId), taskTypeName(t.type)])), [tasks]);
  const journal = useMemo(() => (p ? journalOf(p) : undefined), [p]);
  const tab = ["tasks", "history", "state", "relations", "audit"].includes(asked) || (asked === "journal" && journal) ? asked : "timeline";
  const may = useMay();
  const actions = p ? offered(p).filter((o) => may(actionNeeds[o.action])) : [];
  useCommands(actions.map((o) => ({ name: o.name, group: "process", run: () => setAction(o.action) })));
  if (!p) return read.error ? <Missing error={read.error} what="process" id={id} ns={ns} to={href("processes", { ns })} list="Show processes" /> : <Loading />;
  const home = homeOf(ns, p.processId, p.kind);
  const oldest = p.history.at(-1)?.eventId ?? 0n;
  const olderEvents = p.history.length === page && oldest > p.firstEventId ? String(oldest) : "";
  const failed = tasks.filter((t) => t.status === TaskStatus.ERROR).length;
  return (
    <>
      <div className="head">
        <h1>
          {p.processId} <Copy text={p.processId} label="copy id" />
          <span className="under">
            <Status look={lookOfProcess(p.status, p.kind)} /> <Since at={millis(p.statusChangedTime)} /> <span className="dim">· started</span> <When at={millis(p.createdTime)} />
            {p.kind && (home ? <a className="tag" href={home.to}>{p.kind}</a> : <span className="tag">{p.kind}</span>)}
          </span>
        </h1>
        <div className="actions">
          {home && (
            <a className="button" href={home.to}>
              {home.kind === "job" ? "Job" : `${home.kind[0]?.toUpperCase()}${home.kind.slice(1)} ${home.name}`}
            </a>
          )}
          {actions.filter((o) => p.status !== ProcessStatus.ERROR || !repairs(o)).map((o) => (
            <Button key={o.action} kind={o.main ? "main" : o.bad ? "bad" : undefined} onClick={() => setAction(o.action)}>
              {o.name}
            </Button>
          ))}
        </div>
      </div>
      {read.error ? <ErrorBox error={read.error} what="Out of date" /> : null}
      {explanation.data && <Explained e={explanation.data} p={p} act={setAction} />}
      {p.cancelRequestedTime && (
        <div className="notice hold">
          A cancel was requested <When at={millis(p.cancelRequestedTime)} />
          {p.cancelReason && <>: {p.cancelReason}</>}
        </div>
      )}
      {p.historyRestartedTime && (
        <div className="notice">
          The history was restarted <When at={millis(p.historyRestartedTime)} />. It begins with event {String(p.firstEventId)}; earlier events and tasks were removed.
        </div>
      )}
      <Tabs
        now={tab}
        onChange={(name) => change({ tab: name === "timeline" ? undefined : name }, "replace")}
        tabs={[
          ["timeline", "Timeline"],
          ["tasks", <>Tasks{failed > 0 && <span className="badge bad">{failed}</span>}</>],
          ["history", <>History <span className="badge">{count(p.lastEventId - p.firstEventId + 1n)}</span></>],
          ...(journal ? [["journal", "Journal"] as [string, string]] : []),
          ["state", "State"],
          ["relations", "Relations"],
          ["audit", "Audit"],
        ]}
      />
      {tab === "timeline" && (
        <Card extra={explanation.data && <Times e={explanation.data} />} title="Timeline">
          {explanation.error ? <ErrorBox error={explanation.error} /> : null}
          {explanation.data && <Timeline spans={explanation.data.spans} events={p.history} timers={p.timers} types={types} now={clock} over={atEnd(p.status)} onTask={(task) => change({ tab: "tasks", task })} />}
        </Card>
      )}
      {tab === "tasks" && (
        <Card>
          {traced.error ? <ErrorBox error={traced.error} /> : null}
          {traced.isPending ? <Loading /> : <Tasks tasks={tasks} next={traced.data?.nextPageToken ?? ""} after={after} />}
        </Card>
      )}
      {tab === "history" && (
        <Card>
          <History events={p.history} next={olderEvents} before={before} />
        </Card>
      )}
      {tab === "journal" && journal && (
        <Card>
          <Journal p={p} entries={journal} older={before !== ""} />
          <Pager name="before" after={before} next={olderEvents} />
        </Card>
      )}
      {tab === "state" && (
        <>
          <Card title="State">
            <Payload bytes={p.auxState} name="state" />
          </Card>
          <div className="two">
            <Card title="Metadata">{p.metadata && Object.keys(p.metadata).length ? <Payload bytes={bytesOf(JSON.stringify(p.metadata))} name="metadata" /> : <p className="dim">none</p>}</Card>
            <Card title="Timers">
              {p.timers.length === 0 ? (
                <p className="dim">none</p>
              ) : (
                <table className="stack">
                  <tbody>
                    {p.timers.map((t) => (
                      <tr key={t.name}>
                        <td>{t.name || "default"}</td>
                        <td>
                          <When at={millis(t.fireTime)} />
                        </td>
                        <td>{t.remove ? "removes the process" : "runs a timeout"}</td>
                        <td>
                          <Status look={lookOfTask(t.status)} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )}
            </Card>
          </div>
        </>
      )}
      {tab === "relations" && (
        <Card>
          <Relations p={p} />
        </Card>
      )}
      {tab === "audit" && (
        <Card title="Commands of operators">
          <Audit ns={ns} id={id} />
        </Card>
      )}
      {action && <ActionDialog p={p} action={action} onClose={() => setAction(undefined)} />}
    </>
  );
}
