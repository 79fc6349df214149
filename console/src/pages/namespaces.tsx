import { clone, create } from "@bufbuild/protobuf";
import { useState } from "react";
import { allNamespaces, insight, namespaces, readOnly, refresh, useRead } from "../api";
import { shownCounts } from "../counts";
import { Form } from "../form";
import { count, duration, durationMillis, millis, parseSpan, plural, typedSpan, wrongCount, wrongNumber } from "../format";
import type { NamespaceOverview } from "../gen/progressor/v1/admin_pb";
import { BuiltinProcessorSchema, ConnectProcessor_Encoding, ConnectProcessorSchema, HistoryMode, NamespaceSchema, ProcessorConfigSchema, PullProcessorSchema, RetryPolicySchema, ZombiePolicy, type Namespace } from "../gen/progressor/v1/namespace_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { change, href, useParam } from "../router";
import { Status } from "../status";
import { Act, Button, Card, Confirm, Dialog, ErrorBox, Field, Fields, Loading, Table, useToast, When } from "../ui";

const low = (text?: string) => (text ?? "?").toLowerCase().replaceAll("_", " ");

export function processorWords(n: Namespace): string {
  const t = n.processor?.transport;
  switch (t?.case) {
    case "connect":
      return `calls ${t.value.url} (${low(ConnectProcessor_Encoding[t.value.encoding || 1])})`;
    case "pull":
      return "pulled by workers";
    case "builtin":
      return `built-in: ${t.value.name}`;
    default:
      return "?";
  }
}

const shown = (d: Parameters<typeof durationMillis>[0]) => (d ? typedSpan(durationMillis(d) ?? 0) : "");

function Edit({ before, onClose }: { before?: Namespace; onClose: () => void }) {
  const t = before?.processor?.transport;
  const [f, setForm] = useState({
    name: before?.namespace ?? "",
    transport: (t?.case ?? "connect") as "connect" | "pull" | "builtin",
    url: t?.case === "connect" ? t.value.url : "",
    encoding: t?.case === "connect" ? t.value.encoding : ConnectProcessor_Encoding.JSON,
    builtin: t?.case === "builtin" ? t.value.name : "",
    step: shown(before?.stepTimeout),
    running: before?.maxRunning ? String(before.maxRunning) : "",
    backlog: before?.maxBacklog ? String(before.maxBacklog) : "",
    waiting: before?.maxWaiting ? String(before.maxWaiting) : "",
    retention: shown(before?.retention),
    fairness: before?.fairnessKey ?? "",
    zombie: before?.zombiePolicy ?? 0,
    history: before?.historyMode ?? 0,
    attempts: before?.retryPolicy?.maxAttempts ? String(before.retryPolicy.maxAttempts) : "",
    interval: shown(before?.retryPolicy?.initialInterval),
    most: shown(before?.retryPolicy?.maxInterval),
    factor: before?.retryPolicy?.backoffCoefficient ? String(before.retryPolicy.backoffCoefficient) : "",
  });
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const tell = useToast();
  type Texts = "name" | "url" | "builtin" | "step" | "running" | "backlog" | "waiting" | "retention" | "fairness" | "attempts" | "interval" | "most" | "factor";
  const text = (name: Texts) => ({ value: f[name], onChange: (e: React.ChangeEvent<HTMLInputElement>) => setForm({ ...f, [name]: e.target.value }) });
  const wrong = (v: string) => Boolean(v.trim()) && parseSpan(v) === undefined && "a duration, such as 30s or 5m";
  const given = (v: string) => (v.trim() ? duration(parseSpan(v) ?? 0) : undefined);
  const save = async () => {
    setBusy(true);
    try {
      const n = before ? clone(NamespaceSchema, before) : create(NamespaceSchema, { namespace: f.name.trim() });
      const was = n.processor?.transport;
      if (f.transport === "connect") n.processor = create(ProcessorConfigSchema, { transport: { case: "connect", value: Object.assign(was?.case === "connect" ? was.value : create(ConnectProcessorSchema), { url: f.url.trim(), encoding: f.encoding }) } });
      else if (f.transport === "pull") n.processor = create(ProcessorConfigSchema, { transport: { case: "pull", value: was?.case === "pull" ? was.value : create(PullProcessorSchema) } });
      else n.processor = create(ProcessorConfigSchema, { transport: { case: "builtin", value: create(BuiltinProcessorSchema, { name: f.builtin.trim() }) } });
      Object.assign(n, { stepTimeout: given(f.step), maxRunning: Number(f.running) || 0, maxBacklog: Number(f.backlog) || 0, maxWaiting: Number(f.waiting) || 0, retention: given(f.retention), fairnessKey: f.fairness.trim(), zombiePolicy: f.zombie, historyMode: f.history });
      if (n.retryPolicy || f.attempts || f.interval || f.most || f.factor)
        n.retryPolicy = Object.assign(n.retryPolicy ?? create(RetryPolicySchema), { maxAttempts: Number(f.attempts) || 0, initialInterval: given(f.interval), maxInterval: given(f.most), backoffCoefficient: Number(f.factor) || undefined });
      await namespaces.putNamespace({ namespace: n });
      refresh();
      tell(`${n.namespace} is saved. All nodes use it within a second.`);
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={before ? `Configure ${before.namespace}` : "New namespace"} wide onClose={onClose}>
      <Form onSubmit={save} error={error}>
        {!before && (
          <Field label="Name" name="namespace.namespace" required hint="Letters, digits, and . _ / -">
            <input autoFocus {...text("name")} />
          </Field>
        )}
        <h3>Processor</h3>
        <div className="chips" role="group" aria-label="processor">
          {(
            [
              ["connect", "a URL"],
              ["pull", "workers (pull)"],
              ["builtin", "a built-in processor"],
            ] as const
          ).map(([v, name]) => (
            <button key={v} type="button" className="chip" aria-pressed={f.transport === v} onClick={() => setForm({ ...f, transport: v })}>
              {name}
            </button>
          ))}
        </div>
        {f.transport === "connect" && (
          <div className="grid2">
            <Field label="URL" name="namespace.processor.connect.url" required>
              <input placeholder="http://127.0.0.1:9000" {...text("url")} />
            </Field>
            <Field label="Encoding">
              <select value={f.encoding} onChange={(e) => setForm({ ...f, encoding: Number(e.target.value) })}>
                <option value={0}>protobuf</option>
                <option value={ConnectProcessor_Encoding.JSON}>JSON</option>
                <option value={ConnectProcessor_Encoding.MSGPACK}>MessagePack</option>
              </select>
            </Field>
          </div>
        )}
        {f.transport === "builtin" && (
          <Field label="Processor name" name="namespace.processor.builtin.name" required hint="For example orders or echo.">
            <input {...text("builtin")} />
          </Field>
        )}
        <h3>Limits</h3>
        <div className="grid2">
          <Field label="Step timeout" name="namespace.step_timeout" error={wrong(f.step)}>
            <input placeholder="60s" {...text("step")} />
          </Field>
          <Field label="Running tasks per node" name="namespace.max_running" error={wrongCount(f.running)}>
            <input placeholder="1000" inputMode="numeric" {...text("running")} />
          </Field>
          <Field label="Tasks waiting for a slot" name="namespace.max_backlog" error={wrongCount(f.backlog)}>
            <input placeholder="10 × running tasks" inputMode="numeric" {...text("backlog")} />
          </Field>
          <Field label="Waiting requests per process" name="namespace.max_waiting" error={wrongCount(f.waiting)}>
            <input placeholder="1000" inputMode="numeric" {...text("waiting")} />
          </Field>
          <Field label="Retention" name="namespace.retention" hint="How long ended processes are kept." error={wrong(f.retention)}>
            <input placeholder="no limit" {...text("retention")} />
          </Field>
          <Field label="Fairness key" name="namespace.fairness_key" hint="Jobs of the same priority take turns by this CEL expression.">
            <input placeholder="job.metadata.tenant" {...text("fairness")} />
          </Field>
        </div>
        <h3>Retries</h3>
        <div className="grid2">
          <Field label="Attempts" name="namespace.retry_policy.max_attempts" error={wrongCount(f.attempts)}>
            <input placeholder="3" inputMode="numeric" {...text("attempts")} />
          </Field>
          <Field label="First interval" name="namespace.retry_policy.initial_interval" error={wrong(f.interval)}>
            <input placeholder="5s" {...text("interval")} />
          </Field>
          <Field label="Longest interval" name="namespace.retry_policy.max_interval" error={wrong(f.most)}>
            <input placeholder="180s" {...text("most")} />
          </Field>
          <Field label="Backoff factor" name="namespace.retry_policy.backoff_coefficient" error={wrongNumber(f.factor)}>
            <input placeholder="1" inputMode="decimal" {...text("factor")} />
          </Field>
          <Field label="If a node dies">
            <select value={f.zombie} onChange={(e) => setForm({ ...f, zombie: Number(e.target.value) })}>
              <option value={0}>retry the task</option>
              <option value={ZombiePolicy.ERROR}>set the process to ERROR</option>
            </select>
          </Field>
          <Field label="History sent to the processor">
            <select value={f.history} onChange={(e) => setForm({ ...f, history: Number(e.target.value) })}>
              <option value={0}>full</option>
              <option value={HistoryMode.LAST}>last event</option>
              <option value={HistoryMode.NONE}>none, only the state</option>
            </select>
          </Field>
        </div>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Save
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

const sum = (counts: Record<string, bigint>) => count(Object.values(counts).reduce((a, b) => a + b, 0n));

function One({ n, o }: { n: Namespace; o?: NamespaceOverview }) {
  const r = n.retryPolicy;
  return (
    <Fields
      list={[
        ["processor", processorWords(n)],
        ["step timeout", shown(n.stepTimeout) || "60s"],
        ["running tasks per node", count(n.maxRunning || 1000)],
        ["tasks waiting for a slot", count(n.maxBacklog || 10 * (n.maxRunning || 1000))],
        ["waiting requests per process", count(n.maxWaiting || 1000)],
        ["retention", shown(n.retention) || "no limit"],
        ["fairness key", n.fairnessKey || "–"],
        ["attempts", `${r?.maxAttempts || 3}, ${shown(r?.initialInterval) || "5s"} apart${(r?.backoffCoefficient ?? 1) > 1 ? `, backoff factor ${r?.backoffCoefficient}, at most ${shown(r?.maxInterval) || "180s"}` : ""}`],
        ["not retried", r?.nonRetryableErrors.join(", ") || "–"],
        ["if a node dies", low(ZombiePolicy[n.zombiePolicy || 1])],
        ["history", low(HistoryMode[n.historyMode || 1]?.replace("HISTORY_MODE_", ""))],
        ["created", <When key="m" at={millis(n.createdTime)} />],
        ["processes", o ? sum(shownCounts(o, false)) : "…"],
        ["internal processes", o ? `${sum(o.internalByStatus)}${o.internalMore ? "+" : ""}: jobs, flow runs, crons and bulks` : "…"],
      ]}
    />
  );
}

export function Namespaces() {
  const open = useParam("open");
  const [editing, setEditing] = useState<Namespace | "new">();
  const [pausing, setPausing] = useState<Namespace>();
  const { data, error, isPending } = useRead(["namespaces"], allNamespaces);
  const overview = useRead(["overview", ""], (o) => insight.getOverview({ namespace: "" }, o));
  useCommands(readOnly ? [] : [{ name: "New namespace", group: "namespaces", needs: methods.putNamespace, run: () => setEditing("new") }]);
  return (
    <>
      <div className="head">
        <h1>Namespaces</h1>
        <div className="actions">
          <Act needs={methods.putNamespace} ns="" onClick={() => setEditing("new")}>New namespace…</Act>
        </div>
      </div>
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data && (
        <Card>
          <Table label="namespaces" heads={["Namespace", "State", "Processor", "#Backlog", "#Workers", ""]}>
            {data.namespaces.map((n) => {
              const o = overview.data?.namespaces.find((x) => x.namespace === n.namespace);
              const counts = o && shownCounts(o, false);
              const errors = counts?.["error"] ?? 0n;
              const failed = o?.internalByStatus["error"] ?? 0n;
              const on = open === n.namespace;
              return [
                <tr key={n.namespace} className={on ? "at" : ""}>
                  <td>
                    <button type="button" className="fold strong" aria-expanded={on} onClick={() => change({ open: on ? undefined : n.namespace }, "replace")}>
                      {on ? "▾" : "▸"} {n.namespace}
                    </button>
                  </td>
                  <td>
                    {n.paused ? <Status look={{ name: "Paused", tone: "hold", shape: "bars" }} /> : <Status look={{ name: "Active", tone: "good", shape: "check" }} />}{" "}
                    {errors > 0n && (
                      <a className="tone-bad" href={href("processes", { ns: n.namespace, filter: "status = ERROR" })}>
                        {count(errors)} in error
                      </a>
                    )}{" "}
                    {failed > 0n && (
                      <a className="tone-bad" href={href("processes", { ns: n.namespace, filter: 'status = ERROR AND process_id = "~*"' })} title="jobs, flow runs, crons and bulks">
                        {count(failed)} internal in error
                      </a>
                    )}{" "}
                    {(o?.failingCrons ?? 0n) > 0n && (
                      <a className="tone-bad" href={href("crons", { ns: n.namespace, filter: "failing = true" })}>
                        {plural(o?.failingCrons ?? 0n, "failing cron", "failing crons")}
                      </a>
                    )}
                  </td>
                  <td className="what">{processorWords(n)}</td>
                  <td className="number" data-label="backlog">{o ? count(o.runnable) : "…"}</td>
                  <td className="number" data-label="workers">{o ? <a href={href("workers", { ns: n.namespace })}>{count(o.workers)}</a> : "…"}</td>
                  <td className="end">
                    <Act needs={n.paused ? methods.resumeNamespace : methods.pauseNamespace} ns={n.namespace} onClick={() => setPausing(n)}>{n.paused ? "Resume…" : "Pause…"}</Act> <Act needs={methods.putNamespace} ns={n.namespace} onClick={() => setEditing(n)}>Configure…</Act>
                  </td>
                </tr>,
                on && (
                  <tr key={n.namespace + " open"} className="opened">
                    <td colSpan={6}>
                      <One n={n} o={o} />
                    </td>
                  </tr>
                ),
              ];
            })}
          </Table>
        </Card>
      )}
      {editing && <Edit before={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} />}
      {pausing && (
        <Confirm
          title={`${pausing.paused ? "Resume" : "Pause"} ${pausing.namespace}?`}
          says={pausing.paused ? "Waiting tasks and due timers run. Crons apply their misfire policy to the fire times that they missed." : "No more tasks start, and crons do not fire. Requests are still accepted, and wait. Running tasks finish."}
          verb={pausing.paused ? "Resume" : "Pause"}
          run={() => (pausing.paused ? namespaces.resumeNamespace({ namespace: pausing.namespace }) : namespaces.pauseNamespace({ namespace: pausing.namespace }))}
          done={`${pausing.namespace} is ${pausing.paused ? "resumed" : "paused"}.`}
          onClose={() => setPausing(undefined)}
        />
      )}
    </>
  );
}
