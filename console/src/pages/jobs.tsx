import { Code, ConnectError, type CallOptions } from "@connectrpc/connect";
import { create } from "@bufbuild/protobuf";
import { useMemo, useState } from "react";
import { insight, jobs, readOnly, refresh, trouble, useRead } from "../api";
import { fieldsOfAttributes, keysOf, prefixed, quoted, searchAttributes, useSample, type Attributes } from "../attributes";
import { StatusChips, type ReadStatuses } from "../counts";
import { FilterBar, quote, splitFilter, withValue, type FieldHelp } from "../filter";
import { Form } from "../form";
import { count, duration, durationMillis, exact, millis, parseSpan, plural, span, timestamp, wrongCount, wrongWhole } from "../format";
import { JobOptionsSchema } from "../gen/progressor/v1/job_options_pb";
import { JobSchema, JobState, type Job } from "../gen/progressor/v1/worker_pb";
import { useRequestKey } from "../keys";
import { List, metadataColumns, timeText, useChosenColumns, type Column } from "../list";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { bytesOf, Payload, PayloadInput } from "../payload";
import { homeOf, stepOf } from "../home";
import { change, go, href, useParam } from "../router";
import { ActOnMatches, bulkFilter, useSelection } from "../select";
import { jobLook, lookOfJob, Status } from "../status";
import { Act, Bar, Button, Card, Commanded, Dialog, Empty, ErrorBox, Field, Fields, Line, Loading, Missing, Scroll, Table, EngineText, useToast, When } from "../ui";
import { exactJSON, plainValue, valueOf } from "../value";
import { CancelJob, RetryJob } from "./actions";
import { BulkDialog } from "./bulk";
import { Events } from "./events";
import { PausedNames, PauseName } from "./pauses";

const ordered = ["=", "!=", "<", "<=", ">", ">="];
const size = 50;
const listed = { field: "job_id", one: "job", many: "jobs" };
const metadataOf = (j: Job) => ({ metadata: j.options?.metadata });
const ended = (j: Job) => [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED].includes(j.state);

function fieldsOf(rows: Job[], names: string[], attributes: Attributes): FieldHelp[] {
  const keys = (of: (j: Job) => unknown) => [...new Set(rows.flatMap((j) => Object.keys((of(j) as object | null) ?? {})))].slice(0, 20);
  return [
    { name: "state", hint: "state of the job", operators: ["=", "!="], values: Object.keys(jobLook) },
    { name: "name", hint: "name of the job; * at the end matches any suffix", operators: ["=", "!="], values: names },
    { name: "job_id", hint: "ID; * at the end matches any suffix", operators: ordered, values: rows.slice(0, 8).map((j) => j.jobId) },
    { name: "priority", hint: "jobs with a smaller number run first", operators: ordered },
    { name: "worker_id", hint: "worker that runs it, or ran it last", operators: ["=", "!="], values: [...new Set(rows.map((j) => j.workerId).filter(Boolean))] },
    { name: "tags", hint: "a tag of the job", operators: [":"], values: [...new Set(rows.flatMap((j) => j.options?.tags ?? []))] },
    { name: "created_time", hint: "time when it was enqueued", operators: ordered, time: true },
    { name: "reason", hint: "reason of the failure", operators: ["=", "!=", ":"] },
    { name: "fingerprint", hint: "error group, as on the overview", operators: ["=", "!=", ":"] },
    ...keys((j) => (j.args?.kind.case === "structValue" ? plainValue(j.args) : {})).map((k) => ({ name: `args.${quote(k)}`, hint: "value in the args", operators: [...ordered, ":"] })),
    ...fieldsOfAttributes(attributes),
  ];
}

function Stats({ ns, filter }: { ns: string; filter: string }) {
  const { data } = useRead(["queue", ns], (o) => jobs.getQueueStats({ namespace: ns }, o));
  const oldest = durationMillis(data?.oldestAvailableAge);
  const { value } = splitFilter(filter, "name");
  const total = data && Object.fromEntries(Object.keys(jobLook).map((name) => [name, { n: data.countByState[name.toLowerCase()] ?? 0n }]));
  const read: ReadStatuses = async (of, pageSize, o) => {
    const page = await jobs.listJobs({ namespace: ns, filter: of, pageSize }, o);
    return { statuses: page.jobs.map((j) => JobState[j.state] ?? ""), more: page.nextPageToken !== "" };
  };
  return (
    <>
      <StatusChips list="jobs" ns={ns} filter={filter} field="state" looks={jobLook} total={total} counted read={read} label="by state" />
      {oldest ? <p className="dim">The oldest available job has waited for {span(oldest)}.</p> : null}
      {data && data.names.length > 1 && (
        <div className="chips names" role="group" aria-label="by name">
          {data.names.slice(0, 12).map((n) => {
            const own = quote(n.name);
            const on = value === own || value === quoted(n.name);
            const all = Object.values(n.countByState).reduce((a, b) => a + b, 0n);
            return (
              <button key={n.name} type="button" className="chip" aria-pressed={on} onClick={() => change({ filter: on ? splitFilter(filter, "name").rest : withValue(filter, "name", own), after: undefined })}>
                <code>{n.name}</code> {count(all)}
                {(n.countByState["failed"] ?? 0n) > 0n && <span className="tone-bad">{count(n.countByState["failed"] ?? 0n)} failed</span>}
              </button>
            );
          })}
        </div>
      )}
    </>
  );
}

function why(j: Job): string {
  if (j.state === JobState.FAILED || j.state === JobState.RETRYABLE) {
    const f = j.failures.at(-1);
    const again = j.state === JobState.RETRYABLE && j.runTime && (millis(j.runTime) ?? 0) > Date.now() ? `retry ${new Date(millis(j.runTime) ?? 0).toISOString()}; ` : "";
    if (f) return `${again}${f.reason}: ${f.message}`;
  }
  // The progress that a job reported while it ran does not explain why it has ended. A job that waits for its next attempt shows why the last one failed.
  const last = j.state === JobState.AVAILABLE ? j.failures.at(-1) : undefined;
  return j.cancelReason || j.blockedOn.replace(/^time: /, "starts at ") || (last ? `${last.reason}: ${last.message}` : ended(j) ? "" : j.progress?.summary) || "";
}

const WorkerLink = ({ ns, id }: { ns: string; id: string }) => <a href={href("worker", { ns, id })}>{id}</a>;

/** The columns of the list. Each key of the metadata can also be a column. */
function columnsOf(keys: string[]): Column<Job>[] {
  const dash = <span className="dim">–</span>;
  return [
    { id: "state", head: "State", fixed: true, cell: (j) => <Status look={lookOfJob(j.state)} />, text: (j) => JobState[j.state] ?? "" },
    { id: "name", head: "Name", cell: (j) => <code>{j.name}</code>, text: (j) => j.name },
    { id: "job", head: "Job", fixed: true, className: "wrap id", up: "job_id", down: "job_id desc", cell: (j) => <a href={href("job", { ns: j.namespace, id: j.jobId })}>{j.jobId}</a>, text: (j) => j.jobId },
    {
      id: "attempt",
      head: "Attempt",
      number: true,
      label: "attempt",
      cell: (j) => (
        <>
          {j.attempt}
          <span className="dim">/{(j.options?.maxRetry ?? 0) + 1}</span>
        </>
      ),
      text: (j) => String(j.attempt),
    },
    {
      id: "progress",
      head: "Progress",
      cell: (j) => j.progress && j.state === JobState.RUNNING && <Bar part={j.progress.percent / 100} label={`${j.progress.percent} percent`} />,
      text: (j) => (j.progress ? String(j.progress.percent) : ""),
    },
    { id: "worker", head: "Worker", className: "wrap id", label: (j) => j.workerId && "worker", cell: (j) => j.workerId && <WorkerLink ns={j.namespace} id={j.workerId} />, text: (j) => j.workerId },
    { id: "priority", head: "Priority", off: true, number: true, label: "priority", cell: (j) => j.options?.priority ?? 0, text: (j) => String(j.options?.priority ?? 0) },
    { id: "tags", head: "Tags", off: true, className: "wrap", label: "tags", cell: (j) => j.options?.tags.join(", ") || dash, text: (j) => j.options?.tags.join(" ") ?? "" },
    { id: "args", head: "Args", off: true, className: "wrap", label: "args", cell: (j) => <code className="clamp">{argsText(j)}</code>, text: argsText },
    ...metadataColumns<Job>(keys, (j) => j.options?.metadata),
    { id: "reason", head: "Reason", className: "grow", cell: (j) => <Line fromEngine text={why(j)} />, text: why },
    { id: "enqueued", head: "Enqueued", label: "enqueued", down: "", up: "created_time", cell: (j) => <When at={millis(j.createdTime)} />, text: (j) => timeText(millis(j.createdTime)) },
    { id: "ended", head: "Ended", off: true, label: "ended", cell: (j) => <When at={millis(j.finishedTime)} none="–" />, text: (j) => timeText(millis(j.finishedTime)) },
  ];
}

const argsText = (j: Job): string => (j.args ? JSON.stringify(plainValue(j.args)) : "");

export function Jobs({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const order = useParam("order");
  const [making, setMaking] = useState(false);
  const [pausing, setPausing] = useState(false);
  const [bulk, setBulk] = useState<string>();
  const stats = useRead(["queue", ns], (o) => jobs.getQueueStats({ namespace: ns }, o));
  const page = async (pageToken: string, pageSize: number, o?: CallOptions) => {
    const answer = await jobs.listJobs({ namespace: ns, filter, orderBy: order, pageSize, pageToken }, o);
    return { rows: answer.jobs, next: answer.nextPageToken };
  };
  const { data, error, isPending } = useRead(["jobs", ns, filter, order, after], (o) => fill(after, size, (token) => page(token, size, o)), { every: after ? 0 : 5000, keep: true });
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const sample = useSample("jobs", ns, useMemo(() => rows.map(metadataOf), [rows]), (o) => jobs.listJobs({ namespace: ns, pageSize: 100 }, o).then((a) => a.jobs.map(metadataOf)));
  const columns = columnsOf(keysOf(sample.attributes, useChosenColumns("jobs")));
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  const shown = [filter, order, after].join();
  const ids = rows.map((j) => j.jobId);
  const s = useSelection(shown, ids);
  const onMatches = bulkFilter(s, listed, filter);
  const names = stats.data?.names.map((n) => n.name) ?? [];
  useCommands(
    readOnly ? [] : [{ name: "Act on all matches", group: "jobs", needs: methods.startBulk, run: () => setBulk(onMatches) }, { name: "Enqueue a job", group: "jobs", needs: methods.enqueue, run: () => setMaking(true) }, { name: "Pause the jobs of one name", group: "jobs", needs: methods.pauseJobs, run: () => setPausing(true) }],
  );
  return (
    <>
      <div className="head">
        <h1>Jobs</h1>
        <div className="actions">
          <a className="button quiet" href={href("constraints", { ns })}>
            Constraints
          </a>
          <a className="button quiet" href={href("bulks", { ns })}>
            Bulks
          </a>
          <ActOnMatches s={s} of={listed} onClick={() => setBulk(onMatches)} disabled={Boolean(wrong) || (rows.length === 0 && !data?.next)} />
          <Act needs={methods.pauseJobs} onClick={() => setPausing(true)}>Pause jobs by name…</Act>
          <Act needs={methods.enqueue} onClick={() => setMaking(true)}>Enqueue…</Act>
        </div>
      </div>
      <PausedNames ns={ns} />
      <Stats ns={ns} filter={filter} />
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows, names, sample.attributes)} wrong={wrong} search={async (word) => [`job_id = ${prefixed(word)}`, `name = ${prefixed(word)}`, ...searchAttributes(await sample.read(), word)].join(" OR ")} onFocus={sample.want} placeholder="state = FAILED AND name = send_mail, or a word   ( / )" />
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data && rows.length === 0 && !wrong && (
        <Empty title={filter ? "No jobs match" : "No jobs yet"} docs={filter ? undefined : "jobs.md"}>{filter ? <Button onClick={() => change({ filter: undefined })}>Show all</Button> : <><Act needs={methods.enqueue} kind="main" onClick={() => setMaking(true)}>Enqueue a job…</Act> <span>Command: <code>progressor job enqueue {ns} send_mail</code></span></>}</Empty>
      )}
      {rows.length > 0 && <List name="jobs" ns={ns} schema={JobSchema} columns={columns} rows={rows} idOf={(j) => j.jobId} s={s} order={order} onOrder={(o) => change({ order: o, after: undefined })} read={page} />}
      <Pager after={after} next={data?.next ?? ""} />
      {bulk !== undefined && <BulkDialog ns={ns} kind="job" filter={bulk} chosen={s.chosen.length} onClose={() => setBulk(undefined)} />}
      {making && <Enqueue ns={ns} names={names} onClose={() => setMaking(false)} />}
      {pausing && <PauseName ns={ns} names={names} onClose={() => setPausing(false)} />}
    </>
  );
}

function Enqueue({ ns, names, onClose }: { ns: string; names: string[]; onClose: () => void }) {
  const [f, setForm] = useState({ name: "", id: "", args: "", priority: "0", retries: "0", runIn: "", timeout: "", tags: "" });
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const key = useRequestKey();
  const tell = useToast();
  const text = (name: keyof typeof f) => ({ value: f[name], onChange: (e: React.ChangeEvent<HTMLInputElement>) => setForm({ ...f, [name]: e.target.value }) });
  let wrong = "";
  if (f.args.trim())
    try {
      exactJSON(f.args);
    } catch (e) {
      wrong = e instanceof RangeError ? e.message : `not valid JSON${e instanceof Error ? `: ${e.message}` : ""}`;
    }
  const wrongSpan = (v: string) => Boolean(v.trim()) && parseSpan(v) === undefined && "a duration, such as 30s or 5m";
  const submit = async () => {
    setBusy(true);
    try {
      const options = create(JobOptionsSchema, { priority: Number(f.priority) || 0, maxRetry: Number(f.retries) || 0, tags: f.tags.split(/[\s,]+/).filter(Boolean) });
      if (f.runIn.trim()) options.runTime = timestamp(Date.now() + (parseSpan(f.runIn) ?? 0));
      if (f.timeout.trim()) options.timeout = duration(parseSpan(f.timeout) ?? 0);
      const { job } = await jobs.enqueue({ namespace: ns, jobId: f.id.trim(), name: f.name.trim(), args: f.args.trim() ? valueOf(exactJSON(f.args)) : undefined, options, idempotencyKey: key.of(f) });
      refresh();
      tell(`${job?.jobId} is enqueued.`);
      onClose();
      go("job", { ns, id: job?.jobId });
    } catch (failure) {
      setError(failure);
      setBusy(false);
      key.answered(failure);
    }
  };
  return (
    <Dialog title={`Enqueue a job in ${ns}`} onClose={onClose}>
      <Form onSubmit={submit} error={error}>
        <p className="says">Stores the job. It runs when a worker or a processor has a free slot.</p>
        <div className="grid2">
          <Field label="Name" name="name" required>
            <input autoFocus list="jobnames" {...text("name")} />
          </Field>
          <Field label="ID" name="job_id" hint="If empty, the engine chooses one.">
            <input {...text("id")} />
          </Field>
        </div>
        <datalist id="jobnames">
          {names.map((n) => (
            <option key={n} value={n} />
          ))}
        </datalist>
        <Field label="Args" name="args" hint="JSON" error={wrong}>
          <PayloadInput json value={f.args} onChange={(args) => setForm({ ...f, args })} />
        </Field>
        <div className="grid2">
          <Field label="Retries" name="options.max_retry" error={wrongCount(f.retries)}>
            <input inputMode="numeric" {...text("retries")} />
          </Field>
          <Field label="Priority" name="options.priority" hint="Jobs with a smaller number run first." error={wrongWhole(f.priority)}>
            <input inputMode="numeric" {...text("priority")} />
          </Field>
          <Field label="Start in" name="options.run_time" hint="A duration from now, such as 5m." error={wrongSpan(f.runIn)}>
            <input {...text("runIn")} placeholder="now" />
          </Field>
          <Field label="Timeout of an attempt" name="options.timeout" error={wrongSpan(f.timeout)}>
            <input {...text("timeout")} placeholder="30s" />
          </Field>
        </div>
        <Field label="Tags" name="options.tags" hint="Separated by commas.">
          <input {...text("tags")} />
        </Field>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Enqueue
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

const value = (v: Parameters<typeof plainValue>[0]) => bytesOf(v === undefined ? "" : JSON.stringify(plainValue(v)));

export function JobPage({ ns }: { ns: string }) {
  const id = useParam("id");
  const [action, setAction] = useState<"retry" | "cancel">();
  const { data, error } = useRead(["job", ns, id], (o) => jobs.getJob({ namespace: ns, jobId: id }, o), { every: 2000 });
  const j = data?.job;
  // Only ExplainProcess returns whether the job waits for a worker, and which jobs use the slots of its constraint.
  const blocked = j?.state === JobState.AVAILABLE && j.blockedOn.startsWith("constraint ");
  const said = useRead(["process", ns, id, "explain"], (o) => insight.explainProcess({ namespace: ns, processId: id }, o), { every: 5000, enabled: j?.state === JobState.AVAILABLE && (blocked || !why(j)) });
  // The job of a step cannot be retried or cancelled separately from its run.
  const of = stepOf(id) && homeOf(ns, id, "job");
  const can = j && !of && { retry: j.state === JobState.FAILED || j.state === JobState.CANCELLED, cancel: !ended(j) && j.state !== JobState.CANCEL_REQUESTED };
  useCommands(
    readOnly || !can ? [] : [...(can.retry ? [{ name: "Retry", group: "job", needs: methods.retryJob, run: () => setAction("retry") }] : []), ...(can.cancel ? [{ name: "Cancel", group: "job", needs: methods.cancelJob, run: () => setAction("cancel") }] : [])],
  );
  if (!j) return error ? <Missing error={error} what="job" id={id} ns={ns} to={href("jobs", { ns })} list="Show jobs" /> : <Loading />;
  const o = j.options;
  const span0 = (d: Parameters<typeof durationMillis>[0], none: string) => (d ? span(durationMillis(d) ?? 0) : none);
  return (
    <>
      <div className="head">
        <h1>
          {j.jobId}
          <span className="under">
            <Status look={lookOfJob(j.state)} /> <code>{j.name}</code> <span className="dim">enqueued</span> <When at={millis(j.createdTime)} />
          </span>
        </h1>
        <div className="actions">
          <a className="button" href={href("process", { ns, id: j.jobId })}>
            Timeline
          </a>
          {of && (
            <a className="button main" href={of.to} title="This job belongs to a step of the run. To retry or cancel it, retry or cancel the run.">
              Run {of.name}
            </a>
          )}
          {can && can.retry && (
            <Act needs={methods.retryJob} kind="main" onClick={() => setAction("retry")}>
              Retry…
            </Act>
          )}
          {can && can.cancel && (
            <Act needs={methods.cancelJob} kind="bad" onClick={() => setAction("cancel")}>
              Cancel…
            </Act>
          )}
        </div>
      </div>
      <ErrorBox error={error} />
      {why(j) && !(blocked && said.data) && (
        <div className={"notice " + (j.state === JobState.FAILED ? "bad" : "hold")}>
          <EngineText text={why(j)} />
        </div>
      )}
      {(blocked || !why(j)) && said.data && (
        <div className={"notice explain" + (blocked ? " hold" : "")}>
          <p>
            <EngineText text={said.data.waitsForDetail} /> {blocked && <a href={href("constraints", { ns })}>Show constraints</a>}
          </p>
          {said.data.next && (
            <p>
              <span className="label">Next</span> <EngineText text={said.data.next} />
            </p>
          )}
          {said.data.unblock && (
            <p>
              <span className="label">To continue</span> <Commanded text={said.data.unblock} />
            </p>
          )}
        </div>
      )}
      {j.progress && (
        <Card title={ended(j) ? "Last reported progress" : "Progress"}>
          {ended(j) ? (
            <p className="dim">{[`${Math.round(j.progress.percent)} %`, j.progress.summary].filter(Boolean).join(": ")}</p>
          ) : (
            <div className="progress">
              <span>{Math.round(j.progress.percent)} %</span>
              <Bar part={j.progress.percent / 100} label="progress" />
              <span>{j.progress.summary}</span>
            </div>
          )}
          {j.progress.details && <Payload bytes={bytesOf(JSON.stringify(j.progress.details))} name="details" />}
        </Card>
      )}
      <Card>
        <Fields
          list={[
            ["attempt", `${j.attempt} of ${(o?.maxRetry ?? 0) + 1}`],
            ["worker", j.workerId ? <WorkerLink key="k" ns={ns} id={j.workerId} /> : "–"],
            ["lease until", <When key="l" at={millis(j.leaseExpiresTime)} none="–" />],
            ["earliest start", <When key="r" at={millis(j.runTime)} none="–" />],
            ["last start", <When key="n" at={millis(j.runningTime)} none="not yet" />],
            ["ended", <When key="f" at={millis(j.finishedTime)} none="not yet" />],
            ["priority", String(o?.priority ?? 0)],
            ["timeout of an attempt", span0(o?.timeout, "30 s")],
            ["result", o?.keepResult ? `kept for ${span0(o.resultTtl, "1 h")}` : "not kept"],
            ["tags", o?.tags.join(", ") || "–"],
          ]}
        />
      </Card>
      <div className="two">
        <Card title="Args">
          <Payload bytes={value(j.args)} name="args" />
        </Card>
        <Card title="Result">{j.result ? <Payload bytes={value(j.result)} name="result" /> : <p className="dim">{ended(j) ? "No result was kept, or it was already fetched." : "The job has not ended yet."}</p>}</Card>
      </div>
      {j.failures.length > 0 && (
        <Card title={plural(j.failures.length, "failed attempt")}>
          <Table label="failures" heads={["#Attempt", "When", "Worker", "Failure", ""]}>
            {j.failures.map((f, n) => (
              <tr key={n}>
                <td className="number" data-label="attempt">{f.attempt || n + 1}</td>
                <td>
                  <When at={millis(f.failedTime)} none="" />
                </td>
                <td data-label={f.workerId && "on"}>{f.workerId}</td>
                <td className="what">
                  <code className="tag">{f.reason}</code> {f.message}
                  {f.details && <Payload bytes={bytesOf(JSON.stringify(plainValue(f.details)))} name={`details of attempt ${f.attempt || n + 1}`} />}
                </td>
                <td>{f.nonRetryable ? "not retried" : f.takeover ? "not counted as a retry" : ""}</td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      {j.workerRuns.length > 0 && (
        <Card title="By worker">
          <Scroll label="runs">
            <table className="stack">
              <tbody>
                {j.workerRuns.map((r) => (
                  <tr key={r.workerId}>
                    <td>
                      <WorkerLink ns={ns} id={r.workerId} />
                    </td>
                    <td>
                      <Status look={lookOfJob(r.state)} />
                    </td>
                    <td className="number">{plural(r.attempts, "attempt")}</td>
                    <td title={r.finishedTime && exact(millis(r.finishedTime) ?? 0)}>
                      <When at={millis(r.finishedTime)} none="" />
                    </td>
                    <td className="what">{r.failure && `${r.failure.reason}: ${r.failure.message}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </Card>
      )}
      <Card title="Events">
        <Events ns={ns} id={j.jobId} live={!ended(j)} />
      </Card>
      {action === "retry" && <RetryJob ns={ns} id={id} onClose={() => setAction(undefined)} />}
      {action === "cancel" && <CancelJob ns={ns} id={id} onClose={() => setAction(undefined)} />}
    </>
  );
}
