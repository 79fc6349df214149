import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { flows, readOnly, useRead } from "../api";
import { afterOf, evaluationFailed, hasTemplate, kindWords, quoted, runEnded, whyRun } from "../flow";
import { exact, millis, plural, span } from "../format";
import { RunStatus, StepStatus, type OpenWait, type Run, type Step, type Template } from "../gen/progressor/v1/flow_pb";
import { WaitAction_Kind } from "../gen/progressor/v1/wait_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { bytesOf, Payload } from "../payload";
import { change, href, useParam } from "../router";
import { lookOfRun, lookOfStep, Status, stepLook } from "../status";
import { Act, Bar, Card, ErrorBox, Fields, Loading, Missing, Tabs, EngineText, useNow, When } from "../ui";
import { plainValue } from "../value";
import { AnswerDialog, keyOfWait, titleOf } from "./answer";
import { Events } from "./events";
import { RunDialog, type RunAction } from "./runactions";
import { RunTime } from "./runtime";
import { StepPanel, Steps } from "./steps";


const loadGraph = () => import("../graph");
const Graph = lazy(loadGraph);

const runNeeds = { retry: methods.retryRun, repeat: methods.repeatRun, cancel: methods.cancelRun, skip: methods.skipStep };

/** The actions that a run allows, most likely first. */
function offered(r: Run, t?: Template): { action: RunAction; name: string; kind?: "main" | "bad" }[] {
  const list: { action: RunAction; name: string; kind?: "main" | "bad" }[] = [];
  const repeatable = t && t.repeatable !== false && t.enabled !== false;
  // A retry with the same values fails again if an expression failed.
  const other = repeatable && evaluationFailed(r);
  if ([RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED].includes(r.status)) list.push({ action: "retry", name: "Retry…", kind: other ? undefined : "main" });
  if (repeatable) list.push({ action: "repeat", name: "Repeat with changes…", kind: other ? "main" : undefined });
  if (!runEnded(r) && r.status !== RunStatus.CANCEL_REQUESTED && r.status !== RunStatus.COMPENSATING && t?.cancelPolicy?.supported !== false) list.push({ action: "cancel", name: "Cancel…", kind: "bad" });
  return list;
}

function drawnOf(ns: string, r: Run, t: Template | undefined, chosen: string, keep: Record<string, string | undefined>) {
  const templates = new Map(t?.steps.map((s) => [s.stepId, s]));
  return r.steps.map((s: Step) => {
    const own = templates.get(s.stepId);
    return {
      id: s.stepId,
      name: s.name || s.stepId,
      kind: own ? kindWords(own) : "",
      note: s.failure ? `${own?.ignoreFailure ? "ignored, " : ""}${s.failure.reason}: ${s.failure.message}` : s.progress?.summary || s.reason,
      look: lookOfStep(s.status),
      undone: s.compensationStatus === undefined ? undefined : lookOfStep(s.compensationStatus),
      since: s.status === StepStatus.PENDING ? undefined : millis(s.runningTime),
      until: millis(s.finishedTime),
      attempt: s.attempt,
      part: s.status === StepStatus.RUNNING && s.progress ? s.progress.percent / 100 : undefined,
      items: Object.keys(s.itemsByStatus).length ? s.itemsByStatus : undefined,
      each: Boolean(own?.forEach),
      chosen: s.stepId === chosen,
      to: href("run", { ns, id: r.runId, ...keep, step: s.stepId === chosen ? undefined : s.stepId }),
    };
  });
}

function Waiting({ waits, answer }: { waits: OpenWait[]; answer: (w: OpenWait) => void }) {
  return (
    <>
      {waits.map((w) => (
        <div key={keyOfWait(w)} className="notice hold waiting">
          <div>
            <strong>{titleOf(w)}</strong>
            <p className="dim">
              {w.kind === WaitAction_Kind.HUMAN ? `waits for ${w.assignees.join(", ") || "a person"}` : "waits for an external worker"}
              {w.workerId && `, claimed by ${w.workerId}`}
              {w.dueTime && (
                <>
                  , due <When at={millis(w.dueTime)} />
                </>
              )}
            </p>
          </div>
          {w.answerable && (
            <Act needs={methods.completeStep} kind="main" aria-label={`Answer ${titleOf(w)}`} onClick={() => answer(w)}>
              Answer…
            </Act>
          )}
        </div>
      ))}
    </>
  );
}

function Took({ r }: { r: Run }) {
  const now = useNow();
  const began = millis(r.runningTime);
  if (began === undefined) return <>not started</>;
  return <span title={`since ${exact(began)}`}>{span(Math.max(0, (millis(r.finishedTime) ?? now) - began))}</span>;
}

/** Shows how many steps of an unsuccessful run have each status. A percentage would count failed steps as done. */
function Ended({ r }: { r: Run }) {
  const ended = ["SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED", "RUNNING", "PENDING"];
  const parts = ended.map((status) => ({ status, n: r.steps.filter((s) => StepStatus[s.status] === status).length })).filter((p) => p.n > 0);
  const says = parts.map((p) => `${p.n} ${p.status.toLowerCase()}`).join(", ");
  return (
    <div className="progress ended">
      <span>
        {plural(r.steps.length, "step")}: {says}
      </span>
      <span className="parts" role="img" aria-label={says}>
        {parts.map((p) => (
          <i key={p.status} className={`tone-${stepLook[p.status]?.tone ?? "plain"}`} style={{ flexGrow: p.n }} title={`${p.n} ${p.status.toLowerCase()}`} />
        ))}
      </span>
    </div>
  );
}

function About({ r }: { r: Run }) {
  const ns = r.namespace;
  const list: [string, React.ReactNode][] = [
    ["attempt", `${r.attempt} of ${r.maxAttempts}`],
    ["took", <Took key="t" r={r} />],
    ["scope", [r.scope, r.scopeId].filter(Boolean).join(" ") || "–"],
    ["ended", <When key="e" at={millis(r.finishedTime)} none="not yet" />],
  ];
  if (r.runTime) list.push(["earliest start", <When key="n" at={millis(r.runTime)} />]);
  if (r.cronId) list.push(["started by cron", <a key="c" href={href("cron", { ns, id: r.cronId })}>{r.cronId}</a>]);
  if (r.parentRunId) list.push(["started by run", <a key="p" href={href("run", { ns, id: r.parentRunId })}>{r.parentRunId}</a>]);
  if (r.repeatOfRunId) list.push(["repeats", <a key="r" href={href("run", { ns, id: r.repeatOfRunId })}>{r.repeatOfRunId}</a>]);
  if (r.cancelRequestedTime) list.push(["cancel requested", <When key="a" at={millis(r.cancelRequestedTime)} />]);
  for (const [k, v] of Object.entries(r.metadata ?? {})) list.push([k, typeof v === "string" ? v : JSON.stringify(v)]);
  return <Fields list={list} />;
}

export function RunPage({ ns }: { ns: string }) {
  // Load the code of the graph at the same time as the run.
  useEffect(() => void loadGraph().catch(() => undefined), []);
  const id = useParam("id");
  const step = useParam("step");
  const asked = useParam("tab");
  const tab = asked === "data" || asked === "events" || asked === "time" ? asked : "steps";
  const answering = useParam("answer");
  const [action, setAction] = useState<{ action: RunAction; step?: Step }>();
  const { data, error } = useRead(["run", ns, id], (o) => flows.getRun({ namespace: ns, runId: id }, o), { every: 3000, age: 2 });
  const r = data?.run;
  const live = r !== undefined && !runEnded(r);
  const template = useRead(["template", ns, r?.templateType, r?.templateVersion], (o) => flows.getTemplate({ namespace: ns, type: r?.templateType, version: r?.templateVersion }, o), { every: 30000, enabled: r !== undefined && hasTemplate(r) });
  // The template may have been deleted and stored again. Then this version has other steps.
  const known = template.data?.template;
  const t = known && r?.steps.every((s) => known.steps.some((k) => k.stepId === s.stepId)) ? known : undefined;
  const waiting = r?.status === RunStatus.WAITING_WORKER || r?.steps.some((s) => s.status === StepStatus.RUNNING && t?.steps.find((k) => k.stepId === s.stepId)?.action.case === "wait");
  const waits = useRead(["waits", ns, "of", id], (o) => flows.listOpenWaits({ namespace: ns, filter: `run_id = ${quoted(id)}`, pageSize: 20 }, o), { every: 3000, enabled: live && Boolean(waiting) });
  const open = live && waiting ? (waits.data?.waits ?? []) : [];
  const drawn = useMemo(() => (r ? drawnOf(ns, r, t, step, { tab: tab === "steps" ? undefined : tab }) : []), [r, t, ns, step, tab]);
  const after = useMemo(() => (t ? afterOf(t) : new Map<string, string[]>()), [t]);
  const actions = r && !readOnly ? offered(r, t) : [];
  const answer = (w: OpenWait) => change({ answer: keyOfWait(w) });
  useCommands([
    ...actions.map((a) => ({ name: a.name.replace("…", "").replace(/^\w+/, "$& the run"), group: "run", needs: runNeeds[a.action], run: () => setAction({ action: a.action }) })),
    ...(readOnly ? [] : open.filter((w) => w.answerable).map((w) => ({ name: `Answer ${titleOf(w)}`, group: "run", needs: methods.completeStep, run: () => answer(w) }))),
  ]);
  if (!r) return error ? <Missing error={error} what="run" id={id} ns={ns} to={href("flows", { ns })} list="Show runs" /> : <Loading />;
  const chosen = r.steps.find((s) => s.stepId === step);
  const why = whyRun(r);
  const answered = open.find((w) => w.answerable && keyOfWait(w) === answering);
  const ofStep = (s: Step) => t?.steps.find((k) => k.stepId === s.stepId);
  return (
    <>
      <div className="head">
        <h1>
          {r.runId}
          <span className="under">
            <Status look={lookOfRun(r.status)} />{" "}
            {hasTemplate(r) && <a href={href("template", { ns, type: r.templateType, version: String(r.templateVersion) })}>{r.templateType}</a>}{" "}
            <span className="dim">{hasTemplate(r) ? `version ${r.templateVersion}` : "a wait without a template"}, started</span> <When at={millis(r.createdTime)} />
          </span>
        </h1>
        <div className="actions">
          <a className="button quiet" href={href("process", { ns, id: `~flow/${r.runId}` })}>
            Timeline
          </a>
          {actions.map((a) => (
            <Act key={a.action} needs={runNeeds[a.action]} kind={a.kind} onClick={() => setAction({ action: a.action })}>
              {a.name}
            </Act>
          ))}
        </div>
      </div>
      <ErrorBox error={error} />
      {why && why !== r.progress?.summary && <div className={"notice " + (r.failure && runEnded(r) ? "bad" : "hold")}>
          <EngineText text={why} />
        </div>}
      <Waiting waits={open} answer={answer} />
      <Card>
        {runEnded(r) && r.status !== RunStatus.SUCCEEDED ? (
          <Ended r={r} />
        ) : (
          <div className="progress">
            <span>{Math.round(r.progress?.percent ?? 0)} %</span>
            <Bar part={(r.progress?.percent ?? 0) / 100} label="progress of the run" tone={r.status === RunStatus.SUCCEEDED ? "good" : "run"} />
            <span className="dim">{r.progress?.summary}</span>
          </div>
        )}
        {drawn.length > 0 && (
          <Suspense fallback={<Loading rows={4} />}>{(template.data || template.error || !hasTemplate(r)) && <Graph steps={drawn} after={after} label={`steps of ${r.runId}`} />}</Suspense>
        )}
        {(template.error || (known && !t)) && <p className="dim">Its template was deleted, so the order of the steps is unknown.</p>}
      </Card>
      {chosen && <StepPanel key={chosen.stepId} run={r} s={chosen} t={ofStep(chosen)} skip={(s) => setAction({ action: "skip", step: s })} retry={actions.some((a) => a.action === "retry") ? (s) => setAction({ action: "retry", step: s }) : undefined} />}
      <Tabs
        tabs={[
          ["steps", plural(r.steps.length, "step")],
          ["time", "Over time"],
          ["data", "Payload and result"],
          ["events", "Events"],
        ]}
        now={tab}
        onChange={(name) => change({ tab: name === "steps" ? undefined : name, events: undefined }, "replace")}
      />
      {tab === "steps" && <Steps run={r} after={after} ofStep={ofStep} chosen={step} />}
      {tab === "time" && <RunTime run={r} ofStep={ofStep} />}
      {tab === "data" && (
        <>
          <Card>
            <About r={r} />
          </Card>
          <div className="two">
            <Card title="Payload">{r.payload ? <Payload bytes={bytesOf(JSON.stringify(plainValue(r.payload)))} name="payload" /> : <p className="dim">none</p>}</Card>
            <Card title="Result">{r.result ? <Payload bytes={bytesOf(JSON.stringify(plainValue(r.result)))} name="result" /> : <p className="dim">{live ? "The run has not ended yet." : "none"}</p>}</Card>
          </div>
        </>
      )}
      {tab === "events" && (
        <Card>
          <Events ns={ns} id={r.runId} steps live={live} />
        </Card>
      )}
      {action && <RunDialog r={r} t={t} action={action.action} step={action.step} onClose={() => setAction(undefined)} />}
      {answered && !readOnly && <AnswerDialog w={answered} onClose={() => change({ answer: undefined }, "replace")} />}
    </>
  );
}
