import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { flows, readOnly, useRead } from "../api";
import { afterOf, kindWords, quoted } from "../flow";
import { durationMillis, millis, plural, span } from "../format";
import { CancelPolicy_Mode, JoinRule, ScopePolicy, StepOrder, type StepTemplate, type Template } from "../gen/progressor/v1/flow_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { bytesOf, Payload } from "../payload";
import { change, go, href, useParam } from "../router";
import { Status } from "../status";
import { Act, Card, Confirm, Empty, ErrorBox, Fields, Loading, Missing, Table, When } from "../ui";
import { plainValue } from "../value";
import { FlowTabs } from "./runs";
import { StartRun } from "./startrun";

const loadGraph = () => import("../graph");
const loadDefinition = () => import("./definition");
const Graph = lazy(loadGraph);
const Definition = lazy(loadDefinition);
const EditTemplate = lazy(() => loadDefinition().then((m) => ({ default: m.EditTemplate })));
const on = { name: "Enabled", tone: "good", shape: "check" } as const;
const off = { name: "Disabled", tone: "hold", shape: "bars" } as const;

export function Templates({ ns }: { ns: string }) {
  const after = useParam("after");
  const [starting, setStarting] = useState<string>();
  const [making, setMaking] = useState(false);
  const { data, error, isPending } = useRead(["templates", ns, after], (o) => flows.listTemplates({ namespace: ns, pageSize: 100, pageToken: after }, o), { every: 15000, keep: true });
  return (
    <>
      <div className="head">
        <h1>Flows</h1>
        <div className="actions">
          <Act needs={methods.putTemplate} onClick={() => setMaking(true)}>New template…</Act>
        </div>
      </div>
      <FlowTabs ns={ns} at="templates" />
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data?.templates.length === 0 && (
        <Empty title="No templates yet" docs="flows.md">
          A template defines the steps of a flow, their order, and how to undo them. Store one with "New template…", or with <code>progressor template put {ns} -f FILE</code>.
        </Empty>
      )}
      {(data?.templates.length ?? 0) > 0 && (
        <Card>
          <Table label="templates" heads={["State", "Template", "#Version", "Name", "#Steps", "Changed", ""]}>
            {data?.templates.map((t) => (
              <tr key={t.type}>
                <td>
                  <Status look={t.enabled === false ? off : on} />
                </td>
                <td className="wrap id">
                  <a href={href("template", { ns, type: t.type })}>{t.type}</a>
                </td>
                <td className="number" data-label="version">{t.version}</td>
                <td className="wrap grow">{t.name || <span className="dim">{t.description}</span>}</td>
                <td className="number" data-label="steps">{t.steps.length}</td>
                <td data-label="changed">
                  <When at={millis(t.updatedTime)} />
                </td>
                <td>
                  <Act needs={methods.startRun} disabled={t.enabled === false} aria-label={`Start a run of ${t.type}`} onClick={() => setStarting(t.type)}>
                    Start…
                  </Act>
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {making && (
        <Suspense>
          <EditTemplate ns={ns} onClose={() => setMaking(false)} />
        </Suspense>
      )}
      {starting !== undefined && <StartRun ns={ns} type={starting} onClose={() => setStarting(undefined)} />}
    </>
  );
}

const joins: Record<number, string> = {
  [JoinRule.NONE_FAILED]: "when all have ended and none failed",
  [JoinRule.ALL_SUCCEEDED]: "when all have succeeded",
  [JoinRule.ANY_SUCCEEDED]: "when the first has succeeded",
  [JoinRule.ALL_ENDED]: "when all have ended",
};
const scopes: Record<number, string> = {
  [ScopePolicy.REJECT_SAME_SCOPE]: "rejected",
  [ScopePolicy.QUEUE_SAME_SCOPE]: "queued",
  [ScopePolicy.CANCEL_SAME_SCOPE]: "started after cancelling the first",
  [ScopePolicy.RETURN_SAME_SCOPE]: "not started; the first is returned",
};
const json = (v: unknown) => bytesOf(JSON.stringify(v));

function StepCard({ t, s }: { t: Template; s: StepTemplate }) {
  const before = afterOf(t).get(s.stepId) ?? [];
  const a = s.action;
  const list: [string, React.ReactNode][] = [
    ["action", kindWords(s)],
    ["starts", before.length ? `after ${before.join(", ")}` : "at once"],
    ...(before.length > 1 ? [["joins", joins[s.joinRule] ?? joins[JoinRule.NONE_FAILED]] as [string, React.ReactNode]] : []),
    ...(s.condition ? [["only if", <code key="c">{s.condition}</code>] as [string, React.ReactNode]] : []),
    ...(s.forEach ? [["for each of", <code key="e">{s.forEach.items}</code>] as [string, React.ReactNode], ["concurrent items", s.forEach.maxRunning ? String(s.forEach.maxRunning) : "all"] as [string, React.ReactNode]] : []),
    ...(a.case === "wait"
      ? ([
          ["title", a.value.title || "–"],
          ["assignees", a.value.assignees.join(", ") || "anyone"],
          ["due", a.value.due ? `in ${span(durationMillis(a.value.due) ?? 0)}` : "no limit"],
        ] as [string, React.ReactNode][])
      : []),
    ...(a.case === "job" ? [["retries", String(a.value.options?.maxRetry ?? 0)] as [string, React.ReactNode]] : []),
    ...(s.timeout ? [["timeout of an attempt", span(durationMillis(s.timeout) ?? 0)] as [string, React.ReactNode]] : []),
    ["undone by", s.compensation ? `job ${s.compensation.name || s.stepId}` : "nothing"],
    ["if it fails", s.ignoreFailure ? "the run continues" : "the run fails"],
    ["on cancel", s.cancelable === false ? "finishes first" : "stops"],
  ];
  return (
    <Card title={<>Step <code>{s.stepId}</code> {s.name}</>} extra={<a href={href("template", { ns: t.namespace, type: t.type, version: String(t.version) })}>close</a>}>
      <Fields list={list} />
      {s.input && (
        <>
          <h3>Input</h3>
          <Payload bytes={json(plainValue(s.input))} name="input" />
        </>
      )}
      {a.case === "wait" && a.value.resultSchema && (
        <>
          <h3>Result schema</h3>
          <Payload bytes={json(a.value.resultSchema)} name="result schema" />
        </>
      )}
    </Card>
  );
}

export function TemplatePage({ ns }: { ns: string }) {
  // Load the code of the graph and of the definition at the same time as the template.
  useEffect(() => void Promise.allSettled([loadGraph(), loadDefinition()]), []);
  const type = useParam("type");
  const version = Number(useParam("version")) || 0;
  const step = useParam("step");
  const [action, setAction] = useState<"start" | "edit" | "enable" | "disable" | "delete">();
  const { data, error } = useRead(["template", ns, type, version], (o) => flows.getTemplate({ namespace: ns, type, version }, o), { every: 15000 });
  const t = data?.template;
  const drawn = useMemo(
    () => t?.steps.map((s) => ({ id: s.stepId, name: s.name || s.stepId, kind: kindWords(s), each: Boolean(s.forEach), note: s.condition ? `if ${s.condition}` : "", chosen: s.stepId === step, to: href("template", { ns, type, version: version ? String(version) : undefined, step: s.stepId === step ? undefined : s.stepId }) })) ?? [],
    [t, step, ns, type, version],
  );
  const after = useMemo(() => (t ? afterOf(t) : new Map<string, string[]>()), [t]);
  const enabled = t?.enabled !== false;
  useCommands(
    readOnly || !t
      ? []
      : [
          ...(enabled ? [{ name: "Start a run", group: "template", needs: methods.startRun, run: () => setAction("start") }] : []),
          { name: enabled ? "Disable" : "Enable", group: "template", needs: enabled ? methods.disableTemplate : methods.enableTemplate, run: () => setAction(enabled ? "disable" : "enable") },
          { name: "Edit", group: "template", needs: methods.putTemplate, run: () => setAction("edit") },
          { name: "Delete", group: "template", needs: methods.deleteTemplate, run: () => setAction("delete") },
        ],
  );
  if (!t) return error ? <Missing error={error} what="template" id={type} ns={ns} to={href("templates", { ns })} list="Show templates" /> : <Loading />;
  const chosen = t.steps.find((s) => s.stepId === step);
  const newest = Math.max(...data.versions);
  const key = { namespace: ns, type };
  const close = () => setAction(undefined);
  return (
    <>
      <div className="head">
        <h1>
          {t.type}
          <span className="under">
            <Status look={enabled ? on : off} /> {t.name} <span className="dim">changed</span> <When at={millis(t.updatedTime)} />
          </span>
        </h1>
        <div className="actions">
          <select aria-label="version" value={t.version} onChange={(e) => change({ version: Number(e.target.value) === newest ? undefined : e.target.value, step: undefined })}>
            {data.versions.toSorted((a, b) => b - a).map((v) => (
              <option key={v} value={v}>
                version {v}
                {v === newest ? " (newest)" : ""}
              </option>
            ))}
          </select>
          <a className="button quiet" href={href("flows", { ns, filter: `template_type = ${quoted(t.type)}` })}>
            Runs
          </a>
          <Act needs={methods.startRun} kind="main" disabled={!enabled} onClick={() => setAction("start")}>
            Start…
          </Act>
          <Act needs={methods.putTemplate} onClick={() => setAction("edit")}>Edit…</Act>
          <Act needs={enabled ? methods.disableTemplate : methods.enableTemplate} onClick={() => setAction(enabled ? "disable" : "enable")}>{enabled ? "Disable…" : "Enable…"}</Act>
          <Act needs={methods.deleteTemplate} kind="bad" onClick={() => setAction("delete")}>
            Delete…
          </Act>
        </div>
      </div>
      <ErrorBox error={error} />
      {!enabled && <div className="notice hold">New runs are rejected, including those of crons. Existing runs continue. Enable the template to start runs.</div>}
      {t.version !== newest && <div className="notice">This is version {t.version}. New runs use version {newest} by default.</div>}
      {t.description && <p>{t.description}</p>}
      <Card title={plural(t.steps.length, "step")} extra={<span className="dim">{t.stepOrder === StepOrder.GRAPH ? "ordered by dependencies" : "in sequence"}</span>}>
        <Suspense fallback={<Loading rows={4} />}>
          <Graph steps={drawn} after={after} label={`steps of ${t.type}`} />
        </Suspense>
      </Card>
      {chosen && <StepCard t={t} s={chosen} />}
      <Card title="Policies">
        <Fields
          list={[
            ["deduplicated by", t.dedupeKeys.length ? t.dedupeKeys.join(", ") : "scope, scope_id"],
            ["a second run with the same key is", scopes[t.concurrencyPolicy] ?? "started in parallel"],
            ["repeatable after success", t.repeatable === false ? "no, the first run is returned" : "yes"],
            ["attempts of a run", String(Math.max(1, t.retryPolicy?.maxAttempts ?? 1))],
            ["timeout of a run", t.timeout && durationMillis(t.timeout) ? span(durationMillis(t.timeout) ?? 0) : "none"],
            ["on cancel", t.cancelPolicy?.supported === false ? "rejected" : t.cancelPolicy?.mode === CancelPolicy_Mode.IMMEDIATE ? "stops running steps at once" : `running steps have ${span(durationMillis(t.cancelPolicy?.grace) ?? 30_000)}`],
            ["can be started by crons", t.schedulable === false ? "no" : "yes"],
            ["first version", <When key="c" at={millis(t.createdTime)} />],
          ]}
        />
      </Card>
      <div className="two">
        <Card title="Payload schema">{t.payloadSchema ? <Payload bytes={json(t.payloadSchema)} name="schema" /> : <p className="dim">none: any payload is accepted</p>}</Card>
        <Card title="Result of a run">{t.result ? <Payload bytes={json(plainValue(t.result))} name="result" /> : <p className="dim">the result of the last succeeded step</p>}</Card>
      </div>
      <Suspense fallback={<Loading rows={4} />}>
        <Definition t={t} versions={data.versions} />
      </Suspense>
      {action === "edit" && (
        <Suspense>
          <EditTemplate ns={ns} t={t} newest={newest} onClose={close} />
        </Suspense>
      )}
      {action === "start" && <StartRun ns={ns} type={t.type} onClose={close} />}
      {action === "enable" && <Confirm title={`Enable ${t.type}?`} says="New runs can start again, including those of crons." verb="Enable" run={() => flows.enableTemplate(key)} done={`${t.type} is enabled.`} onClose={close} />}
      {action === "disable" && <Confirm title={`Disable ${t.type}?`} says="New runs are refused, and fires of crons that would start one fail. Existing runs continue." verb="Disable" bad run={() => flows.disableTemplate(key)} done={`${t.type} is disabled.`} onClose={close} />}
      {action === "delete" && (
        <Confirm
          title={`Delete ${t.type}?`}
          says="All its versions are deleted. This fails while a run has not ended. Runs that have ended are kept, without their graph."
          verb="Delete"
          bad
          typed={t.type}
          run={async () => {
            await flows.deleteTemplate(key);
            go("templates", { ns });
          }}
          done={`${t.type} is deleted.`}
          onClose={close}
        />
      )}
    </>
  );
}
