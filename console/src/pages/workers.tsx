import { useState } from "react";
import { useRead, workers } from "../api";
import { count, duration, millis, parseSpan } from "../format";
import { WorkerDirective, type Worker } from "../gen/progressor/v1/worker_pb";
import { methods } from "../may";
import { Pager } from "../paging";
import { useParam } from "../router";
import { Status, type Look } from "../status";
import { Act, Card, Confirm, Empty, ErrorBox, Field, Loading, Table, useNow, When } from "../ui";

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

/** The client to which the ID of a worker belongs. Keys with the same name are those of one client. */
function Owner({ name }: { name: string }) {
  if (!name) return <span className="dim">unknown</span>;
  return name.startsWith("keys:") ? <>key {name.slice("keys:".length)}</> : <>{name}</>;
}

export function Workers({ ns }: { ns: string }) {
  const after = useParam("after");
  const now = useNow();
  const [telling, setTelling] = useState<[Worker, WorkerDirective]>();
  const [reason, setReason] = useState("");
  const [grace, setGrace] = useState("30s");
  const tell = (w: Worker, what: WorkerDirective) => {
    setReason(""); // do not keep the input for another worker
    setGrace("30s");
    setTelling([w, what]);
  };
  const { data, error, isPending } = useRead(["workers", ns, after], (o) => workers.listWorkers({ namespace: ns, pageSize: 100, pageToken: after }, o));
  const owned = data?.workers.some((w) => w.owner); // the engine authenticates
  return (
    <>
      <h1>Workers</h1>
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data?.workers.length === 0 && (
        <Empty title="No workers yet">
          Workers run the tasks and jobs of namespaces with a <code>pull</code> processor. Start one: <code>progressor worker run --namespace {ns} --exec …</code>
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
                <td className="wrap id strong">{w.workerId}</td>
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
                  {w.directive === WorkerDirective.STOP || w.directive === WorkerDirective.QUIET ? (
                    <Act needs={methods.stopWorker} onClick={() => tell(w, WorkerDirective.CONTINUE)}>Continue…</Act>
                  ) : (
                    <>
                      <Act needs={methods.stopWorker} onClick={() => tell(w, WorkerDirective.QUIET)}>Quiet…</Act>{" "}
                      <Act needs={methods.stopWorker} kind="bad" onClick={() => tell(w, WorkerDirective.STOP)}>
                        Stop…
                      </Act>
                    </>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {telling && (
        <Confirm
          title={`${says[telling[1]]?.[0]}: ${telling[0].workerId}?`}
          says={`${says[telling[1]]?.[1]} This applies to all its namespaces (${telling[0].namespaces.join(", ")}), from its next poll or heartbeat.`}
          verb={says[telling[1]]?.[0] ?? ""}
          bad={telling[1] === WorkerDirective.STOP}
          disabled={parseSpan(grace) === undefined}
          run={() => workers.stopWorker({ namespace: ns, workerId: telling[0].workerId, directive: telling[1], reason, grace: telling[1] === WorkerDirective.STOP ? duration(parseSpan(grace) ?? 30_000) : undefined })}
          done={`${telling[0].workerId} will receive the command with its next poll or heartbeat.`}
          onClose={() => setTelling(undefined)}
        >
          <>
            {telling[1] !== WorkerDirective.CONTINUE && (
              <Field label="Reason">
                <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
              </Field>
            )}
            {telling[1] === WorkerDirective.STOP && (
              <Field label="Grace period" error={parseSpan(grace) === undefined && "a duration, such as 30s or 5m"}>
                <input value={grace} onChange={(e) => setGrace(e.target.value)} />
              </Field>
            )}
          </>
        </Confirm>
      )}
    </>
  );
}
