import { clone, create } from "@bufbuild/protobuf";
import { useEffect, useId, useMemo, useState } from "react";
import { crons, flows, refresh, trouble, useRead } from "../api";
import { Form as EditForm } from "../form";
import { duration, durationMillis, exact, millis, parseSpan, timestamp, typedSpan, wrongCount } from "../format";
import { ConcurrencyPolicy, CronPolicySchema, CronSchema, CronSpecSchema, CronTargetSchema, EnqueueJobTargetSchema, FailureAction, HttpTargetSchema, MisfirePolicy, NotifyProcessTargetSchema, OverlapAction, StartProcessTargetSchema, type Cron } from "../gen/progressor/v1/cron_pb";
import { StartRunTargetSchema } from "../gen/progressor/v1/flow_pb";
import { ErrorDetail_Reason } from "../gen/progressor/v1/process_pb";
import { JobOptionsSchema, type JobOptions } from "../gen/progressor/v1/job_options_pb";
import { exactJSON, valueOf, plainValue } from "../value";
import { bytesOf, PayloadInput } from "../payload";
import { go } from "../router";
import { browserZone as here, zoneName } from "../times";
import { Button, Dialog, ErrorBox, Field, useToast } from "../ui";
import { Calendar } from "./calendar";
import { leftOf } from "./crons";

type Target = "startProcess" | "notifyProcess" | "enqueueJob" | "startRun" | "http";

const isJSON = (t: Target) => t === "enqueueJob" || t === "startRun";

interface Form {
  id: string;
  expressions: string;
  excludes: string;
  timezone: string;
  jitter: string;
  overlap: OverlapAction;
  failure: FailureAction;
  concurrency: ConcurrencyPolicy;
  maxConcurrency: string;
  misfire: MisfirePolicy;
  catchup: string;
  timeout: string;
  pauseAfter: string;
  target: Target;
  namespace: string;
  name: string; // name of the process or job, or type of the template
  retries: string;
  version: string;
  scope: string;
  scopeId: string;
  url: string;
  method: string;
  args: string;
}

function formOf(c?: Cron): Form {
  const t = c?.target?.target;
  const p = c?.policy;
  const text = (bytes?: Uint8Array) => (bytes ? new TextDecoder().decode(bytes) : "");
  const shown = (ms?: number) => (ms ? typedSpan(ms) : "");
  return {
    id: c?.cronId ?? "",
    expressions: c?.spec?.expressions.join("\n") ?? "",
    excludes: c?.spec?.excludeExpressions.join("\n") ?? "",
    timezone: c ? (c.spec?.timezone ?? "") : here,
    jitter: shown(durationMillis(c?.spec?.jitter)),
    overlap: p?.overlapAction ?? 0,
    failure: p?.failureAction ?? 0,
    concurrency: p?.concurrencyPolicy ?? 0,
    maxConcurrency: p?.maxConcurrency ? String(p.maxConcurrency) : "",
    misfire: p?.misfirePolicy ?? 0,
    catchup: p?.catchupLimit ? String(p.catchupLimit) : "",
    timeout: shown(durationMillis(p?.timeout)),
    pauseAfter: p?.pauseAfterFailures ? String(p.pauseAfterFailures) : "",
    target: t?.case ?? "startProcess",
    namespace: t?.case === "startProcess" || t?.case === "notifyProcess" || t?.case === "enqueueJob" ? t.value.namespace : "",
    name: t?.case === "notifyProcess" ? t.value.processId : t?.case === "enqueueJob" ? t.value.name : t?.case === "startRun" ? t.value.type : "",
    retries: t?.case === "enqueueJob" && t.value.options?.maxRetry ? String(t.value.options.maxRetry) : "",
    version: t?.case === "startRun" && t.value.version ? String(t.value.version) : "",
    scope: t?.case === "startRun" ? t.value.scope : "",
    scopeId: t?.case === "startRun" ? t.value.scopeId : "",
    url: t?.case === "http" ? t.value.url : "",
    method: t?.case === "http" ? t.value.method : "",
    args: t?.case === "startProcess" || t?.case === "notifyProcess" ? text(t.value.args) : t?.case === "enqueueJob" ? (t.value.args ? JSON.stringify(plainValue(t.value.args)) : "") : t?.case === "startRun" ? (t.value.payloadTemplate ? JSON.stringify(plainValue(t.value.payloadTemplate)) : "") : t?.case === "http" ? text(t.value.body) : "",
  };
}

const lines = (text: string) => text.split("\n").map((l) => l.trim()).filter(Boolean);

function optionsOf(f: Form, before?: JobOptions): JobOptions | undefined {
  const maxRetry = Number(f.retries) || 0;
  return before || maxRetry ? Object.assign(before ?? create(JobOptionsSchema), { maxRetry }) : undefined;
}

/** Returns the cron of the form. Settings that the form does not show are kept. */
function cronOf(f: Form, ns: string, before?: Cron): Cron {
  const c = before ? clone(CronSchema, before) : create(CronSchema, { namespace: ns });
  c.cronId = f.id.trim();
  c.spec = Object.assign(c.spec ?? create(CronSpecSchema), { expressions: lines(f.expressions), excludeExpressions: lines(f.excludes), timezone: f.timezone.trim(), jitter: f.jitter.trim() ? duration(parseSpan(f.jitter) ?? 0) : undefined });
  c.policy = Object.assign(c.policy ?? create(CronPolicySchema), {
    overlapAction: f.overlap,
    failureAction: f.failure,
    concurrencyPolicy: f.concurrency,
    maxConcurrency: Number(f.maxConcurrency) || 0,
    misfirePolicy: f.misfire,
    catchupLimit: Number(f.catchup) || 0,
    timeout: f.timeout.trim() ? duration(parseSpan(f.timeout) ?? 0) : undefined,
    pauseAfterFailures: Number(f.pauseAfter) || 0,
  });
  const t = c.target?.target;
  const namespace = f.namespace.trim();
  // Unchanged args are sent as they were: they need not be text.
  const args = f.args === formOf(before).args && t?.case === f.target ? {} : { args: bytesOf(f.args) };
  const body = "args" in args ? { body: args.args } : {};
  const json = f.args.trim() ? valueOf(isJSON(f.target) ? exactJSON(f.args) : null) : undefined;
  switch (f.target) {
    case "startProcess":
      c.target = create(CronTargetSchema, { target: { case: f.target, value: Object.assign(t?.case === f.target ? t.value : create(StartProcessTargetSchema), { namespace }, args) } });
      break;
    case "notifyProcess":
      c.target = create(CronTargetSchema, { target: { case: f.target, value: Object.assign(t?.case === f.target ? t.value : create(NotifyProcessTargetSchema), { namespace, processId: f.name.trim() }, args) } });
      break;
    case "enqueueJob":
      c.target = create(CronTargetSchema, { target: { case: f.target, value: Object.assign(t?.case === f.target ? t.value : create(EnqueueJobTargetSchema), { namespace, name: f.name.trim(), options: optionsOf(f, t?.case === f.target ? t.value.options : undefined) }, "args" in args ? { args: json } : {}) } });
      break;
    case "startRun":
      c.target = create(CronTargetSchema, { target: { case: f.target, value: Object.assign(t?.case === f.target ? t.value : create(StartRunTargetSchema), { type: f.name.trim(), version: Number(f.version) || 0, scope: f.scope.trim(), scopeId: f.scopeId.trim() }, "args" in args ? { payloadTemplate: json } : {}) } });
      break;
    case "http":
      c.target = create(CronTargetSchema, { target: { case: f.target, value: Object.assign(t?.case === f.target ? t.value : create(HttpTargetSchema), { url: f.url.trim(), method: f.method.trim() }, body) } });
      break;
  }
  return c;
}

function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const wait = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(wait);
  }, [value, ms]);
  return settled;
}

function Preview({ expressions, excludes, timezone, jitter, left, onWrong }: Pick<Form, "expressions" | "excludes" | "timezone" | "jitter"> & { left: number; onWrong: (wrong: boolean) => void }) {
  const text = useSettled(JSON.stringify([lines(expressions), lines(excludes), timezone.trim(), jitter.trim()]), 250);
  const [list, never, zone, late] = JSON.parse(text) as [string[], string[], string, string];
  const { data, error } = useRead(
    ["preview", text],
    (o) => crons.previewCron({ of: { case: "spec", value: create(CronSpecSchema, { expressions: list, excludeExpressions: never, timezone: zone, jitter: late && parseSpan(late) ? duration(parseSpan(late) ?? 0) : undefined }) }, limit: 1000, toTime: timestamp(Date.now() + 62 * 86_400_000) }, o),
    { every: 0, enabled: list.length > 0, keep: true },
  );
  const wrong = Boolean(error && trouble(error).detail?.reason === ErrorDetail_Reason.INVALID);
  useEffect(() => onWrong(wrong), [wrong, onWrong]);
  if (list.length === 0) return <p className="dim">Such as <code>*/15 9-17 * * MON-FRI</code>, <code>0 9 LW * *</code>, <code>@every 90s</code>; one per line.</p>;
  if (error) return <p className="wrong" role="alert">{trouble(error).text.replace(/^spec\./, "")}</p>;
  if (!data) return <p className="dim">…</p>;
  const times = data.fireTimes.slice(0, left).map((t) => millis(t) ?? 0);
  return (
    <div className="preview" role="status">
      <strong>{data.words}</strong>
      <p className="dim">{times.length ? `next ${times.slice(0, 3).map((t) => exact(t, false)).join(", ")} (${zoneName()})` : "no fire times in the next two months"}</p>
      <Calendar times={times} zone={zone || "UTC"} more={times.length === 1000} />
    </div>
  );
}

const overlaps: [OverlapAction, string][] = [[0, "follow the concurrency policy"], [OverlapAction.SKIP, "skip"], [OverlapAction.CANCEL_PREV, "cancel it, start at once"], [OverlapAction.PARALLEL, "start in parallel"], [OverlapAction.BUFFER_ONE, "queue one fire"]];
export const failures: [FailureAction, string][] = [[0, "run as usual"], [FailureAction.SKIP, "skip one fire"], [FailureAction.RETRY, "limit the attempts"], [FailureAction.BACKOFF, "limit the attempts, with backoff"], [FailureAction.HALF_OPEN, "use a circuit breaker"]];
export const concurrencies: [ConcurrencyPolicy, string][] = [[0, "skip"], [ConcurrencyPolicy.QUEUE, "queue"]];
export const misfires: [MisfirePolicy, string][] = [[0, "fire the newest that can start or wait"], [MisfirePolicy.SKIP, "fire only the newest, unless it is late"], [MisfirePolicy.CATCH_UP_LIMITED, "fire the newest few"]];

function Choice<V extends number>({ label, value, list, onChange }: { label: string; value: V; list: [V, string][]; onChange: (v: V) => void }) {
  return (
    <Field label={label}>
      <select value={list.some(([v]) => v === value) ? value : 0} onChange={(e) => onChange(Number(e.target.value) as V)}>
        {list.map(([v, name]) => (
          <option key={v} value={v}>
            {name}
          </option>
        ))}
      </select>
    </Field>
  );
}

type Text = (name: keyof Form) => { value: string; onChange: (e: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => void };

function RunTarget({ ns, f, text }: { ns: string; f: Form; text: Text }) {
  const { data } = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 0 });
  const names = useId();
  const known = data?.templates.find((t) => t.type === f.name.trim());
  const no = known?.schedulable === false && "crons may not start this template: schedulable is false";
  return (
    <>
      <Field label="Template" name="cron.target.start_run.type" required hint={known?.name || (data?.templates.length === 0 && `No templates in ${ns} yet.`)} error={no}>
        <input {...text("name")} list={names} spellCheck={false} autoComplete="off" />
      </Field>
      <datalist id={names}>
        {data?.templates.map((t) => (
          <option key={t.type} value={t.type}>
            {t.name}
          </option>
        ))}
      </datalist>
      <Field label="Version" hint="If empty, the newest when the cron fires." error={wrongCount(f.version)}>
        <input inputMode="numeric" {...text("version")} placeholder={known ? String(known.version) : ""} />
      </Field>
      <Field label="Scope" hint="Kind of subject: user, account, …">
        <input {...text("scope")} />
      </Field>
      <Field label="Scope ID" hint="ID of the subject.">
        <input {...text("scopeId")} />
      </Field>
    </>
  );
}

export function EditCron({ ns, cron, onClose }: { ns: string; cron?: Cron; onClose: () => void }) {
  const [f, setForm] = useState(() => formOf(cron));
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [wrongSpec, setWrongSpec] = useState(false);
  const tell = useToast();
  const set = (some: Partial<Form>) => setForm((all) => ({ ...all, ...some }));
  const text = (name: keyof Form) => ({ value: String(f[name]), onChange: (e: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => set({ [name]: e.target.value }) });
  const wrongSpan = (v: string) => Boolean(v.trim()) && parseSpan(v) === undefined && "a duration, such as 30s or 5m";
  const wrongArgs = useMemo(() => {
    if (!isJSON(f.target) || !f.args.trim()) return "";
    try {
      exactJSON(f.args);
      return "";
    } catch (e) {
      return e instanceof RangeError ? e.message : `not valid JSON${e instanceof Error ? `: ${e.message}` : ""}`;
    }
  }, [f.target, f.args]);
  const save = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const wanted = cronOf(f, ns, cron);
      await (cron ? crons.updateCron({ cron: wanted }) : crons.createCron({ cron: wanted }));
      refresh();
      tell(cron ? `${wanted.cronId} is changed.` : `${wanted.cronId} is created.`);
      onClose();
      if (!cron) go("cron", { ns, id: wanted.cronId });
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={cron ? `Edit ${cron.cronId}` : `New cron in ${ns}`} wide onClose={onClose}>
      <EditForm onSubmit={save} error={error} wrong={wrongSpec} className="edit">
        <div className="two">
          <div>
            {!cron && (
              <Field label="ID" name="cron.cron_id" required>
                <input autoFocus {...text("id")} autoComplete="off" spellCheck={false} />
              </Field>
            )}
            <Field label="Expressions" name="cron.spec.expressions" required error={wrongSpec && "is not valid: see the preview"} hint="One per line. The cron fires at the times of all of them.">
              <textarea rows={2} spellCheck={false} {...text("expressions")} />
            </Field>
            <Field label="Excluded times" name="cron.spec.excludes" hint="Expressions, one per line.">
              <textarea rows={1} spellCheck={false} {...text("excludes")} />
            </Field>
            <div className="grid2">
              <Field label="Time zone" name="cron.spec.timezone" hint="If empty, UTC.">
                <input {...text("timezone")} spellCheck={false} />
              </Field>
              <Field label="Jitter" name="cron.spec.jitter" error={wrongSpan(f.jitter)}>
                <input {...text("jitter")} placeholder="none" />
              </Field>
            </div>
          </div>
          <div>
            <h3>Preview</h3>
            <Preview {...f} left={cron ? leftOf(cron) : Infinity} onWrong={setWrongSpec} />
          </div>
        </div>
        <h3>Target</h3>
        <div className="chips" role="group" aria-label="target">
          {(
            [
              ["startProcess", "a new process"],
              ["notifyProcess", "a notification"],
              ["enqueueJob", "a job"],
              ["startRun", "a flow run"],
              ["http", "an HTTP request"],
            ] as [Target, string][]
          ).map(([t, name]) => (
            <button key={t} type="button" className="chip" aria-pressed={t === f.target} onClick={() => set({ target: t })}>
              {name}
            </button>
          ))}
        </div>
        <div className="grid2">
          {f.target === "http" && (
            <>
              <Field label="URL" name="cron.target.http.url" required>
                <input {...text("url")} placeholder="https://…" spellCheck={false} />
              </Field>
              <Field label="Method" name="cron.target.http.method">
                <input {...text("method")} placeholder="POST" />
              </Field>
            </>
          )}
          {f.target === "startRun" && <RunTarget ns={ns} f={f} text={text} />}
          {f.target !== "http" && f.target !== "startRun" && (
            <Field label="Namespace" hint={`If empty, ${ns}.`}>
              <input {...text("namespace")} spellCheck={false} />
            </Field>
          )}
          {f.target === "notifyProcess" && (
            <Field label="Process" name="cron.target.notify_process.process_id" required>
              <input {...text("name")} spellCheck={false} />
            </Field>
          )}
          {f.target === "enqueueJob" && (
            <>
              <Field label="Job name" name="cron.target.enqueue_job.name" required>
                <input {...text("name")} spellCheck={false} />
              </Field>
              <Field label="Retries" error={wrongCount(f.retries)}>
                <input inputMode="numeric" {...text("retries")} placeholder="0" />
              </Field>
            </>
          )}
        </div>
        <Field
          label={f.target === "http" ? "Body" : f.target === "startRun" ? "Payload" : "Args"}
          hint={f.target === "startRun" && <>JSON, in which <code>{"${fire_time}"}</code>, <code>{"${cron_id}"}</code> and <code>{"${attempt}"}</code> are replaced.</>}
          error={wrongArgs}
        >
          <PayloadInput json={isJSON(f.target)} value={f.args} onChange={(args) => set({ args })} />
        </Field>
        <details>
          <summary>Policies</summary>
          <div className="grid2">
            <Choice label="If the previous run is still running" value={f.overlap} list={overlaps} onChange={(overlap) => set({ overlap })} />
            <Choice label="If the previous run failed" value={f.failure} list={failures} onChange={(failure) => set({ failure })} />
            <Field label="Concurrent runs" error={wrongCount(f.maxConcurrency)}>
              <input inputMode="numeric" {...text("maxConcurrency")} placeholder="1" />
            </Field>
            <Choice label="At this limit" value={f.concurrency} list={concurrencies} onChange={(concurrency) => set({ concurrency })} />
            <Choice label="Missed fire times" value={f.misfire} list={misfires} onChange={(misfire) => set({ misfire })} />
            {f.misfire === MisfirePolicy.CATCH_UP_LIMITED && (
              <Field label="How many" error={wrongCount(f.catchup)}>
                <input inputMode="numeric" {...text("catchup")} />
              </Field>
            )}
            <Field label="Timeout of a run" error={wrongSpan(f.timeout)}>
              <input {...text("timeout")} placeholder={f.target === "http" ? "10 s" : "none"} />
            </Field>
            <Field label="Pause after consecutive failures" error={wrongCount(f.pauseAfter)}>
              <input inputMode="numeric" {...text("pauseAfter")} placeholder="never" />
            </Field>
          </div>
        </details>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            {busy ? "…" : cron ? "Save" : "Create"}
          </button>
        </footer>
      </EditForm>
    </Dialog>
  );
}
