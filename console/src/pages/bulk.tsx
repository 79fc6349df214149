import { useEffect, useState } from "react";
import { bulks, readOnly, refresh, useRead } from "../api";
import { Form } from "../form";
import { count, exact, millis, plural } from "../format";
import { BulkVerb, type Bulk } from "../gen/progressor/v1/admin_pb";
import { ProcessStatus } from "../gen/progressor/v1/process_pb";
import { useRequestKey } from "../keys";
import { methods } from "../may";
import { Pager } from "../paging";
import { go, href, useParam } from "../router";
import { lookOfProcess, Status } from "../status";
import { Act, Bar, Button, Card, Confirm, Dialog, Empty, ErrorBox, Field, Fields, Loading, Scroll, Table, When } from "../ui";

type Says = { name: string; does: string; bad?: boolean };
const ofProcesses: [BulkVerb, Says][] = [
  [BulkVerb.SIMPLE_REPAIR, { name: "Repair", does: "Each process in ERROR returns to RUNNING. If a timer had failed, it runs again. Otherwise, the processor is not called." }],
  [BulkVerb.SUSPEND, { name: "Suspend", does: "In each process, the running task finishes and no other task starts. Calls are rejected, and timers wait." }],
  [BulkVerb.RESUME, { name: "Resume", does: "Each suspended process returns to its previous status, and its waiting tasks run." }],
  [BulkVerb.CANCEL, { name: "Cancel", does: "Each processor has 30 s to clean up. Then the process is CANCELLED permanently.", bad: true }],
  [BulkVerb.REMOVE, { name: "Remove", does: "Each process is deleted with all its tasks and events, in any status. This cannot be undone.", bad: true }],
];
// Only the command line starts bulks that do this.
const byProcessor: Says = { name: "Repair", does: "The processor of each process in ERROR repairs it, with the args of the bulk." };
const ofJobs: [BulkVerb, Says][] = [
  [BulkVerb.RETRY, { name: "Retry", does: "Each failed or cancelled job runs again from its first attempt, with the same args and options. A job that waits for its next attempt runs now." }],
  [BulkVerb.CANCEL, { name: "Cancel", does: "Each waiting job is CANCELLED. The worker of a running job receives the cancel with its next heartbeat, and loses the job after the grace period.", bad: true }],
  [BulkVerb.REMOVE, { name: "Remove", does: "Each job that has ended is deleted, with its result and failures. This cannot be undone.", bad: true }],
];
const ofRuns: [BulkVerb, Says][] = [
  [BulkVerb.RETRY, { name: "Retry", does: "Each failed, expired or cancelled run continues with the steps that have not succeeded." }],
  [BulkVerb.CANCEL, { name: "Cancel", does: "The steps of each run are cancelled, and completed steps are compensated according to its template.", bad: true }],
  [BulkVerb.REMOVE, { name: "Remove", does: "Each run that has ended is deleted, with its steps and jobs. This cannot be undone.", bad: true }],
];

/** The objects of a bulk, by its kind. */
interface Acted {
  verbs: [BulkVerb, Says][];
  one: string;
  many: string;
  list: string; // the page that lists them
  page: string; // the page of one of them
  never: string; // objects that are never included
}
const processesActed: Acted = { verbs: ofProcesses, one: "process", many: "processes", list: "processes", page: "process", never: "A bulk of processes never includes jobs, flow runs and crons. Act on them on their own pages." };
const acted: Record<string, Acted> = {
  job: { verbs: ofJobs, one: "job", many: "jobs", list: "jobs", page: "job", never: "A bulk never includes the jobs of steps. Retry or cancel their runs." },
  flow: { verbs: ofRuns, one: "run", many: "runs", list: "flows", page: "run", never: "" },
};
const actedOf = (kind: string): Acted => acted[kind] ?? processesActed;
const saysOf = (kind: string, verb: BulkVerb): Says => actedOf(kind).verbs.find(([v]) => v === verb)?.[1] ?? (verb === BulkVerb.REPAIR ? byProcessor : { name: "?", does: "" });

/** Returns the most likely verb for the objects that match a filter. */
function likely(kind: string, filter: string): BulkVerb {
  if (!kind) return /\bERROR\b/.test(filter) ? BulkVerb.SIMPLE_REPAIR : BulkVerb.SUSPEND;
  if (/\b(FAILED|CANCELLED|EXPIRED|RETRYABLE)\b/.test(filter)) return BulkVerb.RETRY;
  if (/\bSUCCEEDED\b/.test(filter)) return BulkVerb.REMOVE;
  return /\b(SCHEDULED|AVAILABLE|RUNNING|PENDING|QUEUED|WAITING_WORKER|COMPENSATING|CANCEL_REQUESTED)\b/.test(filter) ? BulkVerb.CANCEL : BulkVerb.RETRY;
}

/** Chooses a verb, counts the matches, and starts the bulk. The kind is "" for processes, "job" or "flow". */
export function BulkDialog({ ns, kind = "", filter, chosen = 0, onClose }: { ns: string; kind?: string; filter: string; chosen?: number; onClose: () => void }) {
  const [verb, setVerb] = useState(likely(kind, filter));
  const [rate, setRate] = useState("100");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const key = useRequestKey();
  const { data, error: dryError, isFetching } = useRead(["dry", ns, kind, filter, verb], (o) => bulks.startBulk({ namespace: ns, kind, filter, verb, dryRun: true }, o), { every: 0 });
  const dry = data?.bulk;
  const says = saysOf(kind, verb);
  const { verbs, one, many, never } = actedOf(kind);
  const meets = dry ? dry.matched - dry.skipped : 0n;
  const perSecond = Number(rate);
  const wrongRate = !(perSecond >= 0.001 && perSecond <= 10_000);
  const start = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const { bulk } = await bulks.startBulk({ namespace: ns, kind, filter, verb, rate: perSecond, reason, idempotencyKey: key.of(filter, verb, perSecond, reason) });
      onClose();
      refresh();
      go("bulk", { ns, id: bulk?.bulkId ?? "" });
    } catch (failure) {
      setError(failure);
      setBusy(false);
      key.answered(failure);
    }
  };
  return (
    <Dialog title={chosen ? `Act on ${plural(chosen, `selected ${one}`, `selected ${many}`)}` : "Act on all that match"} onClose={onClose}>
      <Form onSubmit={start} error={error}>
        <p>
          <span className="dim">filter</span> <code>{filter}</code>
        </p>
        <div className="chips" role="group" aria-label="what to do">
          {verbs.map(([v, s]) => (
            <button key={v} type="button" className="chip" aria-pressed={v === verb} onClick={() => setVerb(v)}>
              {s.name}
            </button>
          ))}
        </div>
        <p className="says">{says.does}</p>
        <div className="notice" role="status" data-testid="dry">
          {dryError ? null : !dry || isFetching ? (
            `Counting matching ${many}…`
          ) : (
            <>
              <strong>
                {plural(dry.matched, `${one} matches`, `${many} match`)}
                {dry.expectedMore ? ", and more" : ""}
              </strong>
              {dry.skipped > 0n && <p>{count(dry.skipped)} of them will be skipped, because their status does not allow it.</p>}
              {never && chosen === 0 && <p className={dry.matched === 0n ? undefined : "dim"}>{never}</p>}
              {dry.sampleProcessIds.length > 0 && <p className="dim">The oldest: {dry.sampleProcessIds.slice(0, 6).join(", ")}</p>}
            </>
          )}
        </div>
        <ErrorBox error={dryError ?? error} />
        <div className="grid2">
          <Field label={`${many.charAt(0).toUpperCase()}${many.slice(1)} per second`} error={wrongRate && "must be 0.001 to 10000"} hint={!wrongRate && dry && meets > 0n ? `about ${Math.ceil(Number(meets) / perSecond)} s` : undefined}>
            <input inputMode="decimal" value={rate} onChange={(e) => setRate(e.target.value)} />
          </Field>
          <Field label="Reason" name="reason" hint="Stored in the audit log.">
            <input value={reason} onChange={(e) => setReason(e.target.value)} />
          </Field>
        </div>
        {says.bad && (
          <Field label={<>Type <code>{says.name.toLowerCase()}</code> to confirm</>}>
            <input value={typed} onChange={(e) => setTyped(e.target.value)} autoComplete="off" />
          </Field>
        )}
        <footer>
          <Button onClick={onClose}>Close</Button>
          <button type="submit" className={"button " + (says.bad ? "bad" : "main")} disabled={busy || !dry || meets === 0n || wrongRate || (says.bad && typed !== says.name.toLowerCase())}>
            {says.name} {dry ? `${count(meets)}${dry.expectedMore ? "+" : ""}` : ""}
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

const ended = (b: Bulk) => b.status === ProcessStatus.COMPLETED || b.status === ProcessStatus.CANCELLED || b.status === ProcessStatus.ERROR;
const gone = (b: Bulk) => b.done + b.failed + b.skipped;
const part = (b: Bulk) => (ended(b) && b.status === ProcessStatus.COMPLETED ? 1 : b.expected > 0n ? Number(gone(b)) / Number(b.expected) : 0);

export function BulkPage({ ns }: { ns: string }) {
  const id = useParam("id");
  const [over, setOver] = useState(false);
  const [cancelling, setCancelling] = useState(false);
  const { data, error } = useRead(["bulk", ns, id], (o) => bulks.getBulk({ namespace: ns, bulkId: id }, o), { every: over ? 0 : 1000 });
  const b = data?.bulk;
  useEffect(() => setOver(b !== undefined && ended(b)), [b]);
  if (!b) return error ? <ErrorBox error={error} /> : <Loading />;
  const says = saysOf(b.kind, b.verb);
  const { one, many, list, page } = actedOf(b.kind);
  return (
    <>
      <div className="head">
        <h1>
          {says.name} all {many} that match <code className="filtertext">{b.filter}</code>
        </h1>
        <div className="actions">
          <a className="button" href={href(list, { ns, filter: b.filter })}>
            Show matching {many}
          </a>
          {!ended(b) && (
            <Act needs={methods.cancelBulk} kind="bad" onClick={() => setCancelling(true)}>
              Stop bulk…
            </Act>
          )}
        </div>
      </div>
      <Card>
        <div className="progress">
          <Status look={lookOfProcess(b.status)} />
          <Bar part={part(b)} label="progress" tone={b.failed ? "bad" : b.status === ProcessStatus.COMPLETED ? "good" : "run"} />
          <span>
            {count(gone(b))} of {count(b.expected)}
            {b.expectedMore ? "+" : ""}
          </span>
        </div>
        {b.detail && <p className="tone-bad">{b.detail}</p>}
        <Fields
          list={[
            ["done", count(b.done)],
            ["skipped", <span key="s" title="their status did not allow it, or they were removed in the meantime">{count(b.skipped)}</span>],
            ["failed", <span key="f" className={b.failed ? "tone-bad strong" : ""}>{count(b.failed)}</span>],
            ["rate per second", String(b.rate || 100)],
            ["started", <When key="w" at={millis(b.createdTime)} />],
            ["ended", <When key="e" at={millis(b.finishedTime)} none="not yet" />],
            [`last ${one}`, b.position || "–"],
            ["reason", b.reason || "–"],
            ["by", b.actor || "–"],
          ]}
        />
      </Card>
      {b.failures.length > 0 && (
        <Card title={`The newest ${plural(b.failures.length, "failure")}`}>
          <Scroll label="failures">
            <table className="stack">
              <tbody>
                {b.failures.map((f, n) => (
                  <tr key={n}>
                    <td>
                      <a href={href(page, { ns, id: f.processId })}>{f.processId}</a>
                    </td>
                    <td className="what">{f.error}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </Card>
      )}
      {cancelling && (
        <Confirm title="Stop this bulk?" verb="Stop bulk" bad says="It stops after the current page, within about a second. Changes that it made are kept." run={() => bulks.cancelBulk({ namespace: ns, bulkId: id })} done="The bulk will stop." onClose={() => setCancelling(false)} />
      )}
    </>
  );
}

export function Bulks({ ns }: { ns: string }) {
  const after = useParam("after");
  const { data, error, isPending } = useRead(["bulks", ns, after], (o) => bulks.listBulks({ namespace: ns, pageSize: 50, pageToken: after }, o));
  return (
    <>
      <h1>Bulks</h1>
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data?.bulks.length === 0 && (
        <Empty title="No bulks yet" docs="concepts.md">
          A bulk applies an action to all processes, jobs or runs that match a filter. {!readOnly && "To start one, choose \"Act on all matches\" on the page "}
          <a href={href("processes", { ns })}>Processes</a>, <a href={href("jobs", { ns })}>Jobs</a> or <a href={href("flows", { ns })}>Flows</a>.
        </Empty>
      )}
      {(data?.bulks.length ?? 0) > 0 && (
        <Card>
          <Table label="bulks" heads={["Status", "Action", "Filter", "#Done", "#Failed", "#Skipped", "Started"]}>
            {data?.bulks.map((b) => (
              <tr key={b.bulkId}>
                <td>
                  <Status look={lookOfProcess(b.status)} />
                </td>
                <td>
                  <a href={href("bulk", { ns: b.namespace, id: b.bulkId })} title={exact(millis(b.createdTime) ?? 0)}>
                    {saysOf(b.kind, b.verb).name} {actedOf(b.kind).many}
                  </a>
                </td>
                <td className="what">
                  <code>{b.filter}</code>
                </td>
                <td className="number" data-label="done">{count(b.done)}</td>
                <td data-label="failed" className={"number" + (b.failed ? " tone-bad" : "")}>{count(b.failed)}</td>
                <td className="number" data-label="skipped">{count(b.skipped)}</td>
                <td data-label="started">
                  <When at={millis(b.createdTime)} />
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
    </>
  );
}
