// The steps of a run as a list, the details of one step, and the items of a for_each step.
import { useMemo } from "react";
import { flows, readOnly, useRead } from "../api";
import { doerOf, kindWords, runEnded, stepEnded } from "../flow";
import { millis, plural, span } from "../format";
import { StepStatus, type Run, type Step, type StepTemplate } from "../gen/progressor/v1/flow_pb";
import { layersOf } from "../layers";
import { methods } from "../may";
import { Pager } from "../paging";
import { brief, bytesOf, Payload } from "../payload";
import { change, href, useParam, useRoute } from "../router";
import { lookOfStep, Status } from "../status";
import { Act, Bar, Card, ErrorBox, Fields, Line, Loading, Table, EngineText, useNow, When } from "../ui";
import { plainValue } from "../value";

const itemsPage = 50;
const bytes = (v: Parameters<typeof plainValue>[0]) => bytesOf(v === undefined ? "" : JSON.stringify(plainValue(v)));
const why = (s: Step) => (s.failure ? `${s.failure.reason}: ${s.failure.message}` : s.reason || s.progress?.summary || "");
const ignored = (s: Step, t?: StepTemplate) => s.status === StepStatus.FAILED && Boolean(t?.ignoreFailure);
const ignoredWords = "The run continues, because the template ignores a failure of this step (ignore_failure).";
export const mayHaveItems = (s: Step, t?: StepTemplate) => Boolean(t?.forEach) || Object.keys(s.itemsByStatus).length > 0;

function Took({ s }: { s: Step }) {
  const now = useNow();
  const began = s.status === StepStatus.PENDING ? undefined : millis(s.runningTime);
  if (began === undefined) return null;
  const until = millis(s.finishedTime);
  const text = span(Math.max(0, (until ?? now) - began));
  return <>{until === undefined ? text.replace(/\.\d+/, "") : text}</>;
}

function items(s: Step): string {
  const order = ["succeeded", "failed", "skipped", "cancelled", "running", "pending"];
  return order.filter((k) => s.itemsByStatus[k]).map((k) => `${String(s.itemsByStatus[k])} ${k}`).join(", ");
}

export function Steps({ run, after, ofStep, chosen }: { run: Run; after: Map<string, string[]>; ofStep: (s: Step) => StepTemplate | undefined; chosen: string }) {
  const { params } = useRoute();
  const keep = Object.fromEntries(params);
  const ids = run.steps.map((s) => s.stepId).join("\n");
  const layers = useMemo(() => layersOf(ids.split("\n"), after), [ids, after]);
  const graph = useMemo(() => [...after.values()].some((d) => d.length > 1) || new Set(layers.values()).size < layers.size, [after, layers]);
  return (
    <Card>
      <Table label="steps" heads={["Step", "Status", "By", "#Attempt", "#Took", "Worker", "Note"]}>
        {run.steps.map((s) => {
          const t = ofStep(s);
          const doer = doerOf(run.namespace, s, t);
          const deep = graph ? Math.min(layers.get(s.stepId) ?? 0, 10) : 0;
          return (
            <tr key={s.stepId} className={s.stepId === chosen ? "at" : ""}>
              <td className="stepname" style={{ "--deep": deep } as React.CSSProperties}>
                <a href={href("run", { ...keep, step: s.stepId === chosen ? undefined : s.stepId })} aria-current={s.stepId === chosen || undefined}>
                  {s.name || s.stepId}
                </a>
              </td>
              <td>
                <Status look={lookOfStep(s.status)} />
                {ignored(s, t) && <span className="dim" title={ignoredWords}>, ignored</span>}
                {s.compensationStatus !== undefined && <span className="dim">, undone: {lookOfStep(s.compensationStatus).name.toLowerCase()}</span>}
              </td>
              <td>{doer ? <a href={doer.href}>{t ? kindWords(t) : doer.name}</a> : t ? kindWords(t) : ""}</td>
              <td className="number" data-label="attempt">{s.attempt || ""}</td>
              <td className="number" data-label="took">
                <Took s={s} />
              </td>
              <td data-label="on">{s.workerId}</td>
              <td className="grow">{Object.keys(s.itemsByStatus).length ? <Line fromEngine text={[items(s), why(s)].filter(Boolean).join("; ")} /> : <Line fromEngine text={why(s)} />}</td>
            </tr>
          );
        })}
      </Table>
    </Card>
  );
}

function Values({ s }: { s: Step }) {
  if (!s.input && !s.result) return null;
  return (
    <div className="two">
      {s.input && (
        <div>
          <h3>Input</h3>
          <Payload bytes={bytes(s.input)} name="input" />
        </div>
      )}
      {s.result && (
        <div>
          <h3>Result</h3>
          <Payload bytes={bytes(s.result)} name="result" />
        </div>
      )}
    </div>
  );
}

// GetRun omits the values of a step if the steps before it have 8 MiB of values.
function OmittedValues({ run, s }: { run: Run; s: Step }) {
  const { data, error, isPending } = useRead(["values", run.namespace, run.runId, s.stepId, stepEnded(s)], (o) => flows.listSteps({ namespace: run.namespace, runId: run.runId, stepId: s.stepId, pageSize: 1 }, o), { every: stepEnded(s) ? 15000 : 3000, age: 3 });
  if (isPending) return <Loading rows={3} />;
  if (error) return <ErrorBox error={error} />;
  return data?.steps[0] ? <Values s={data.steps[0]} /> : null;
}

function Items({ run, s, t, skip }: { run: Run; s: Step; t?: StepTemplate; skip: (s: Step) => void }) {
  const after = useParam("items");
  const over = runEnded(run) || stepEnded(s);
  const { data, error, isPending } = useRead(["items", run.namespace, run.runId, s.stepId, after, over], (o) => flows.listSteps({ namespace: run.namespace, runId: run.runId, stepId: s.stepId, pageSize: itemsPage, pageToken: after }, o), { every: over ? 15000 : 3000, age: over ? 1 : 3, keep: true });
  if (isPending) return <Loading rows={3} />;
  if (error) return <ErrorBox error={error} />;
  const rows = data?.steps.filter((i) => i.index !== undefined) ?? [];
  return (
    <>
      <h3>
        Items <span className="dim">{items(s)}</span>
      </h3>
      {rows.length === 0 && <p className="dim">No item has started.</p>}
      {rows.length > 0 && (
        <Table label="items" heads={["#Item", "Status", "#Attempt", "#Took", "By", "Input", "Result or reason", ""]}>
          {rows.map((i) => {
            const doer = doerOf(run.namespace, i, t);
            return (
              <tr key={i.index}>
                <td className="number" data-label="item">{i.index}</td>
                <td>
                  <Status look={lookOfStep(i.status)} />
                </td>
                <td className="number" data-label="attempt">{i.attempt || ""}</td>
                <td className="number" data-label="took">
                  <Took s={i} />
                </td>
                <td data-label="by">{doer && <a href={doer.href}>{i.workerId || doer.name}</a>}</td>
                <td>
                  <code className="line short" title={brief(bytes(i.input), 400)}>
                    {brief(bytes(i.input), 120)}
                  </code>
                </td>
                <td className={i.failure ? "what" : "grow"}>{i.failure ? why(i) : i.progress && !stepEnded(i) ? <Bar part={i.progress.percent / 100} label={`${Math.round(i.progress.percent)} percent of item ${i.index}`} /> : <Line text={why(i) || brief(bytes(i.result), 120)} />}</td>
                <td>
                  {!stepEnded(i) && !runEnded(run) && (
                    <Act needs={methods.skipStep} aria-label={`Skip item ${i.index}`} onClick={() => skip(i)}>
                      Skip…
                    </Act>
                  )}
                </td>
              </tr>
            );
          })}
        </Table>
      )}
      <Pager name="items" after={after} next={data?.nextPageToken ?? ""} />
    </>
  );
}

/** The details of a step. */
export function StepPanel({ run, s, t, skip, retry }: { run: Run; s: Step; t?: StepTemplate; skip: (s: Step) => void; retry?: (s: Step) => void }) {
  const doer = doerOf(run.namespace, s, t);
  const each = mayHaveItems(s, t);
  const may = !readOnly && !runEnded(run) && !stepEnded(s);
  return (
    <Card
      className="steppanel"
      title={
        <>
          {s.name || s.stepId} <Status look={lookOfStep(s.status)} />
        </>
      }
      extra={
        <>
          {doer && (
            <a className="button" href={doer.href}>
              {doer.name}
            </a>
          )}
          {may && <Act needs={methods.skipStep} onClick={() => skip(s)}>Skip…</Act>}
          {retry && s.status === StepStatus.FAILED && !each && t && t.action.case !== "wait" && t.action.case !== "delay" && (
            <Act needs={methods.retryRun} onClick={() => retry(s)}>
              Edit the input and retry…
            </Act>
          )}
          <button type="button" className="button quiet" aria-label="close the step" onClick={() => change({ step: undefined, items: undefined })}>
            ✕
          </button>
        </>
      }
    >
      {why(s) && <div className={"notice " + (s.failure ? "bad" : "hold")}>
          <EngineText text={why(s)} />
        </div>}
      {ignored(s, t) && <p className="dim">{ignoredWords}</p>}
      {s.progress && !stepEnded(s) && (
        <div className="progress">
          <span>{Math.round(s.progress.percent)} %</span>
          <Bar part={s.progress.percent / 100} label={`progress of step ${s.stepId}`} />
          <span>{s.progress.summary}</span>
        </div>
      )}
      <Fields
        list={[
          ["step", <code key="i">{s.stepId}</code>],
          ["action", t ? kindWords(t) : "–"],
          ["attempt", s.attempt ? String(s.attempt) : "none"],
          ["started", <When key="b" at={millis(s.runningTime)} none="not yet" />],
          ["took", <Took key="t" s={s} />],
          [t?.action.case === "wait" ? (stepEnded(s) ? "answered by" : "claimed by") : "worker", s.workerId || "–"],
          ...(s.leaseExpiresTime && !stepEnded(s) ? [["lease until", <When key="l" at={millis(s.leaseExpiresTime)} />] as [string, React.ReactNode]] : []),
          ...(t?.condition ? [["only if", <code key="c">{t.condition}</code>] as [string, React.ReactNode]] : []),
          ...(t?.compensation ? [["undone by", `job ${t.compensation.name || s.stepId}${s.compensationStatus === undefined ? "" : `: ${lookOfStep(s.compensationStatus).name.toLowerCase()}`}`] as [string, React.ReactNode]] : []),
          ...(each ? [["items", plural(Object.values(s.itemsByStatus).reduce((a, b) => a + b, 0n), "item")] as [string, React.ReactNode]] : []),
        ]}
      />
      {s.valuesOmitted ? <OmittedValues run={run} s={s} /> : <Values s={s} />}
      {each && <Items run={run} s={s} t={t} skip={skip} />}
    </Card>
  );
}
