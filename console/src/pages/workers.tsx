import { useState } from "react";
import { jobEvents, readOnly, useRead, workers } from "../api";
import { quote } from "../filter";
import { count, duration, millis, parseSpan, plural } from "../format";
import { WorkerDirective, type HeldLease, type Worker } from "../gen/progressor/v1/worker_pb";
import { homeOf } from "../home";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { href, useParam } from "../router";
import { Status, taskTypeName, type Look } from "../status";
import { Act, Bar, Card, Confirm, Empty, ErrorBox, Field, Fields, Loading, Missing, Table, useNow, When } from "../ui";
import { NewStatus } from "./events";

function lookOf(w: Worker, now: number): Look {
  if (w.directive === WorkerDirective.STOP) return { name: "stopping", tone: "bad", shape: "slash" };
  if (w.directive === WorkerDirective.QUIET) return { name: "quiet", tone: "hold", shape: "bars" };
  return now - (millis(w.lastSeenTime) ?? 0) > 60_000 ? { name: "silent", tone: "gone", shape: "ring" } : { name: "alive", tone: "good", shape: "check" };
}

const says: Record<number, [string, string]> = {
  [WorkerDirective.STOP]: ["Stop", "The worker accepts no more tasks, and exits. After the grace period, its remaining tasks go to other workers."],
  [WorkerDirective.QUIET]: ["Quiet", "The worker accepts no more tasks, and finishes its current ones."],
  [WorkerDirective.CONTINUE]: ["Continue", "The worker accepts tasks again."],
};

/** The commands that a worker can get now. */
const offered = (w: Worker): WorkerDirective[] => (w.directive === WorkerDirective.STOP || w.directive === WorkerDirective.QUIET ? [WorkerDirective.CONTINUE] : [WorkerDirective.QUIET, WorkerDirective.STOP]);

/** The client to which the ID of a worker belongs. Keys with the same name are those of one client. */
function Owner({ name }: { name: string }) {
  if (!name) return <span className="dim">unknown</span>;
  return name.startsWith("keys:") ? <>key {name.slice("keys:".length)}</> : <>{name}</>;
}

/** Asks for confirmation, and sends a command to a worker. */
function Tell({ ns, w, what, onClose }: { ns: string; w: Worker; what: WorkerDirective; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const [grace, setGrace] = useState("30s");
  const [verb, effect] = says[what] ?? ["", ""];
  return (
    <Confirm
      title={`${verb}: ${w.workerId}?`}
      says={`${effect} This applies to all its namespaces (${w.namespaces.join(", ")}), from its next poll or heartbeat.`}
      verb={verb}
      bad={what === WorkerDirective.STOP}
      disabled={parseSpan(grace) === undefined}
      run={() => workers.stopWorker({ namespace: ns, workerId: w.workerId, directive: what, reason, grace: what === WorkerDirective.STOP ? duration(parseSpan(grace) ?? 30_000) : undefined })}
      done={`${w.workerId} will receive the command with its next poll or heartbeat.`}
      onClose={onClose}
    >
      <>
        {what !== WorkerDirective.CONTINUE && (
          <Field label="Reason" name="reason">
            <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
          </Field>
        )}
        {what === WorkerDirective.STOP && (
          <Field label="Grace period" error={parseSpan(grace) === undefined && "a duration, such as 30s or 5m"}>
            <input value={grace} onChange={(e) => setGrace(e.target.value)} />
          </Field>
        )}
      </>
    </Confirm>
  );
}

function Commands({ w, onChoose }: { w: Worker; onChoose: (what: WorkerDirective) => void }) {
  return offered(w).map((what) => (
    <span key={what}>
      <Act needs={methods.stopWorker} kind={what === WorkerDirective.STOP ? "bad" : undefined} onClick={() => onChoose(what)}>
        {says[what]?.[0]}…
      </Act>{" "}
    </span>
  ));
}

export function Workers({ ns }: { ns: string }) {
  const after = useParam("after");
  const now = useNow();
  const [telling, setTelling] = useState<[Worker, WorkerDirective]>();
  const { data, error, isPending } = useRead(["workers", ns, after], (o) => workers.listWorkers({ namespace: ns, pageSize: 100, pageToken: after }, o));
  const owned = data?.workers.some((w) => w.owner); // if so, the engine authenticates requests
  return (
    <>
      <h1>Workers</h1>
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data?.workers.length === 0 && (
        <Empty title="No workers yet" docs="workers.md">
          Workers run the tasks and jobs of namespaces with a <code>pull</code> processor. Start one: <code>progressor worker run --namespace {ns} --job send --exec ./send.sh</code>
        </Empty>
      )}
      {(data?.workers.length ?? 0) > 0 && (
        <Card>
          <Table label="workers" heads={["State", "Worker", "#Leases", "Namespaces", ...(owned ? ["Client"] : []), "Last seen", ""]}>
            {data?.workers.map((w) => (
              <tr key={w.workerId}>
                <td>
                  <Status look={lookOf(w, now)} />
                </td>
                <td className="wrap id">
                  <a href={href("worker", { ns, id: w.workerId })}>{w.workerId}</a>
                </td>
                <td className="number" data-label="leases">{count(w.leases)}</td>
                <td className="wrap" data-label="namespaces">{w.namespaces.join(", ")}</td>
                {owned && (
                  <td className="wrap" data-label="client">
                    <Owner name={w.owner} />
                  </td>
                )}
                <td data-label="last seen">
                  <When at={millis(w.lastSeenTime)} />
                </td>
                <td className="end">
                  <Commands w={w} onChoose={(what) => setTelling([w, what])} />
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {telling && <Tell ns={ns} w={telling[0]} what={telling[1]} onClose={() => setTelling(undefined)} />}
    </>
  );
}

function LeaseRow({ ns, l }: { ns: string; l: HeldLease }) {
  return (
    <tr>
      <td className="wrap id">
        <a href={(l.jobName && homeOf(ns, l.processId, "job")?.to) || href("process", { ns, id: l.processId })}>{l.processId}</a>
      </td>
      <td>{l.jobName ? <code>{l.jobName}</code> : <>a {taskTypeName(l.taskType)} task</>}</td>
      <td className="number" data-label="attempt">{l.attempt}</td>
      <td className="grow">
        {l.progress ? (
          <span className="usage">
            <Bar part={l.progress.percent / 100} label={`${Math.round(l.progress.percent)} percent`} /> <span className="dim">{l.progress.summary}</span>
          </span>
        ) : (
          <span className="dim">not reported</span>
        )}
      </td>
      <td data-label="since">
        <When at={millis(l.leasedTime)} />
      </td>
      <td data-label="lease until">
        <When at={millis(l.expiresTime)} />
      </td>
    </tr>
  );
}

/** How the most recent job attempts of a worker ended. */
function Results({ ns, id }: { ns: string; id: string }) {
  const { data, error, isPending } = useRead(["worker", ns, id, "results"], (o) => jobEvents.listJobEvents({ namespace: ns, filter: `worker_id = ${quote(id)} AND type != started`, pageSize: 20 }, o));
  const none = data?.events.length === 0;
  return (
    <Card title="Last results" extra={<a href={href("jobs", { ns, filter: `worker_id = ${quote(id)}` })}>Show jobs of this worker</a>}>
      <ErrorBox error={error} />
      {isPending && <Loading rows={3} />}
      {none && <Empty title="No results">When an attempt of a job ends on this worker, it appears here, if the namespace keeps events of jobs (see its setting job_events).</Empty>}
      {data && !none && (
        <Table label="results" heads={["Result", "Job", "#Attempt", "Message", "When"]}>
          {data.events.map((e) => (
            <tr key={String(e.eventId)}>
              <td>{e.to ? <NewStatus e={e} ofStep={false} /> : e.type.replaceAll("_", " ")}</td>
              <td className="wrap id">
                <a href={homeOf(ns, e.jobId, "job")?.to}>{e.jobId}</a>
              </td>
              <td className="number" data-label="attempt">{e.attempt || ""}</td>
              <td className="what" title={e.message}>
                <span className="clamp">{e.message}</span>
              </td>
              <td>
                <When at={millis(e.createdTime)} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

export function WorkerPage({ ns }: { ns: string }) {
  const id = useParam("id");
  const now = useNow();
  const [telling, setTelling] = useState<WorkerDirective>();
  const { data, error } = useRead(["worker", ns, id], (o) => workers.getWorker({ namespace: ns, workerId: id }, o), { every: 2000 });
  const w = data?.worker;
  useCommands(readOnly || !w ? [] : offered(w).map((what) => ({ name: `${says[what]?.[0]} the worker`, group: "worker", needs: methods.stopWorker, run: () => setTelling(what) })));
  if (!w) return error ? <Missing error={error} what="worker" id={id} ns={ns} to={href("workers", { ns })} list="Show workers" /> : <Loading />;
  const elsewhere = w.leases - data.leases.length;
  return (
    <>
      <div className="head">
        <h1>
          {w.workerId}
          <span className="under">
            <Status look={lookOf(w, now)} /> <span className="dim">last seen</span> <When at={millis(w.lastSeenTime)} />
          </span>
        </h1>
        <div className="actions">
          <Commands w={w} onChoose={setTelling} />
        </div>
      </div>
      <ErrorBox error={error} />
      <Card title="Leases" extra={<span className="dim">{plural(w.leases, "lease")}{elsewhere > 0 && !data.moreLeases && `, ${count(elsewhere)} of them in other namespaces`}</span>}>
        {data.leases.length === 0 ? (
          <Empty title={`No leases in ${ns}`}>The worker waits for tasks, or works only in its other namespaces.</Empty>
        ) : (
          <Table label="leases" heads={["Process", "Job or task", "#Attempt", "Progress", "Since", "Lease until"]}>
            {data.leases.map((l) => (
              <LeaseRow key={String(l.taskId)} ns={ns} l={l} />
            ))}
          </Table>
        )}
        {data.moreLeases && <p className="dim">These are the oldest {count(data.leases.length)}.</p>}
      </Card>
      <Results ns={ns} id={id} />
      <Card>
        <Fields
          list={[
            ["address", w.address || "–"],
            ["program", w.userAgent || "–"],
            ["namespaces", w.namespaces.join(", ") || "–"],
            ...(w.owner ? [["client", <Owner key="o" name={w.owner} />] as [string, React.ReactNode]] : []),
          ]}
        />
      </Card>
      {telling !== undefined && <Tell ns={ns} w={w} what={telling} onClose={() => setTelling(undefined)} />}
    </>
  );
}
