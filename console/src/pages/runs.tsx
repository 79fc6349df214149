import { Code, ConnectError, type CallOptions } from "@connectrpc/connect";
import { useMemo, useState } from "react";
import { flows, readOnly, trouble, useRead } from "../api";
import { fieldsOfAttributes, keysOf, prefixed, quoted, searchAttributes, useSample, type Attributes } from "../attributes";
import { StatusChips, type ReadStatuses } from "../counts";
import { FilterBar, quote, type FieldHelp } from "../filter";
import { hasTemplate, runEnded, whyRun } from "../flow";
import { millis, span } from "../format";
import { RunSchema, RunStatus, type Run } from "../gen/progressor/v1/flow_pb";
import { List, metadataColumns, timeText, useChosenColumns, type Column } from "../list";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { change, href, useParam } from "../router";
import { ActOnMatches, bulkFilter, useSelection } from "../select";
import { lookOfRun, runLook, Status } from "../status";
import { Act, Bar, Button, Empty, ErrorBox, Line, Loading, useNow, When } from "../ui";
import { plainValue } from "../value";
import { BulkDialog } from "./bulk";
import { StartRun } from "./startrun";

const ordered = ["=", "!=", "<", "<=", ">", ">="];
const size = 50;
const listed = { field: "run_id", one: "run", many: "runs" };
const orders: [string, string][] = [
  ["", "newest first"],
  ["created_time", "oldest first"],
  ["updated_time desc", "last changed first"],
];

function fieldsOf(rows: Run[], types: string[], attributes: Attributes): FieldHelp[] {
  const keys = (of: (r: Run) => unknown) => [...new Set(rows.flatMap((r) => Object.keys((of(r) as object | null) ?? {})))].slice(0, 20);
  const some = (of: (r: Run) => string) => [...new Set(rows.map(of).filter(Boolean))].slice(0, 20);
  return [
    { name: "status", hint: "its status", operators: ["=", "!="], values: Object.keys(runLook) },
    { name: "run_id", hint: "ID; * at the end matches any suffix", operators: ["=", "!="], values: rows.slice(0, 5).map((r) => r.runId) },
    { name: "template_type", hint: "its template; * at the end matches any suffix", operators: ["=", "!="], values: types },
    { name: "phase", hint: "its current step", operators: ["=", "!="], values: some((r) => r.phase) },
    { name: "scope", hint: "kind of its subject", operators: ["=", "!="], values: some((r) => r.scope) },
    { name: "scope_id", hint: "ID of its subject", operators: ["=", "!="], values: some((r) => r.scopeId) },
    { name: "cron_id", hint: "cron that started it", operators: ["=", "!="], values: some((r) => r.cronId) },
    { name: "created_time", hint: "time of the start", operators: ordered, time: true },
    { name: "reason", hint: "reason of its failure", operators: ["=", "!=", ":"] },
    { name: "fingerprint", hint: "its group on the overview", operators: ["=", "!=", ":"] },
    ...keys((r) => (r.payload?.kind.case === "structValue" ? plainValue(r.payload) : {})).map((k) => ({ name: `payload.${quote(k)}`, hint: "of its payload", operators: [...ordered, ":"] })),
    ...fieldsOfAttributes(attributes),
  ];
}

/** Tabs for runs and templates. */
export function FlowTabs({ ns, at }: { ns: string; at: "flows" | "templates" }) {
  const all: [typeof at, string][] = [
    ["flows", "Runs"],
    ["templates", "Templates"],
  ];
  return (
    <div className="tabs" role="navigation" aria-label="flows">
      {all.map(([page, name]) => (
        <a key={page} href={href(page, { ns })} aria-current={page === at ? "page" : undefined}>
          {name}
        </a>
      ))}
    </div>
  );
}

function Took({ r }: { r: Run }) {
  const now = useNow();
  const began = millis(r.runningTime);
  if (began === undefined) return <span className="dim">–</span>;
  const ended = millis(r.finishedTime);
  const text = span(Math.max(0, (ended ?? now) - began));
  return <>{ended === undefined ? text.replace(/\.\d+/, "") : text}</>;
}

const tookText = (r: Run): string => (r.runningTime && r.finishedTime ? span((millis(r.finishedTime) ?? 0) - (millis(r.runningTime) ?? 0)) : "");
const subject = (r: Run): string => [r.scope, r.scopeId].filter(Boolean).join(" ");

/** The columns of the list. Each key of the metadata can also be a column. */
function columnsOf(keys: string[]): Column<Run>[] {
  const dash = <span className="dim">–</span>;
  return [
    { id: "status", head: "Status", fixed: true, cell: (r) => <Status look={lookOfRun(r.status)} />, text: (r) => RunStatus[r.status] ?? "" },
    { id: "run", head: "Run", fixed: true, className: "wrap id", cell: (r) => <a href={href("run", { ns: r.namespace, id: r.runId })}>{r.runId}</a>, text: (r) => r.runId },
    {
      id: "template",
      head: "Template",
      cell: (r) => hasTemplate(r) ? (
        <>
          <a href={href("template", { ns: r.namespace, type: r.templateType, version: String(r.templateVersion) })}>{r.templateType}</a> <span className="dim">v{r.templateVersion}</span>
        </>
      ) : (
        <span className="dim">{r.templateType}</span>
      ),
      text: (r) => (hasTemplate(r) ? `${r.templateType} v${r.templateVersion}` : r.templateType),
    },
    {
      id: "progress",
      head: "Progress",
      cell: (r) =>
        runEnded(r) ? null : (
          <span className="usage">
            <Bar part={(r.progress?.percent ?? 0) / 100} label={`${Math.round(r.progress?.percent ?? 0)} percent`} /> <span className="dim phase" title={r.phase}>{r.phase}</span>
          </span>
        ),
      text: (r) => (runEnded(r) ? "" : `${Math.round(r.progress?.percent ?? 0)} % ${r.phase}`),
    },
    {
      id: "reason",
      head: "Reason or scope",
      className: "grow",
      cell: (r) => (whyRun(r) ? <Line fromEngine text={whyRun(r)} /> : subject(r) && <span className="dim"><Line text={subject(r)} /></span>),
      text: (r) => whyRun(r) || subject(r),
    },
    { id: "scope", head: "Scope", off: true, className: "wrap", label: "scope", cell: (r) => subject(r) || dash, text: subject },
    { id: "cron", head: "Cron", off: true, label: "cron", cell: (r) => (r.cronId ? <a href={href("cron", { ns: r.namespace, id: r.cronId })}>{r.cronId}</a> : dash), text: (r) => r.cronId },
    ...metadataColumns<Run>(keys, (r) => r.metadata),
    { id: "took", head: "Took", number: true, label: "took", cell: (r) => <Took r={r} />, text: tookText },
    { id: "started", head: "Started", label: "started", down: "", up: "created_time", cell: (r) => <When at={millis(r.createdTime)} />, text: (r) => timeText(millis(r.createdTime)) },
    { id: "changed", head: "Changed", off: true, label: "changed", down: "updated_time desc", up: "updated_time", cell: (r) => <When at={millis(r.updatedTime)} />, text: (r) => timeText(millis(r.updatedTime)) },
  ];
}

export function Runs({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const order = useParam("order");
  const [bulk, setBulk] = useState<string>();
  const [starting, setStarting] = useState(false);
  const templates = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 30000 });
  const page = async (pageToken: string, pageSize: number, o?: CallOptions) => {
    const answer = await flows.listRuns({ namespace: ns, filter, orderBy: order, pageSize, pageToken }, o);
    return { rows: answer.runs, next: answer.nextPageToken };
  };
  const { data, error, isPending } = useRead(["runs", ns, filter, order, after], (o) => fill(after, size, (token) => page(token, size, o)), { every: after ? 0 : 5000, keep: true });
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const sample = useSample("runs", ns, rows, (o) => flows.listRuns({ namespace: ns, pageSize: 100 }, o).then((a) => a.runs));
  const columns = columnsOf(keysOf(sample.attributes, useChosenColumns("runs")));
  const countRuns: ReadStatuses = async (of, pageSize, o) => {
    const answer = await flows.listRuns({ namespace: ns, filter: of, pageSize }, o);
    return { statuses: answer.runs.map((r) => RunStatus[r.status] ?? ""), more: answer.nextPageToken !== "" };
  };
  const shown = [filter, order, after].join();
  const ids = rows.map((r) => r.runId);
  const s = useSelection(shown, ids);
  const onMatches = bulkFilter(s, listed, filter);
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  useCommands(readOnly ? [] : [{ name: "Act on all matches", group: "flows", needs: methods.startBulk, run: () => setBulk(onMatches) }, { name: "Start a run", group: "flows", needs: methods.startRun, run: () => setStarting(true) }]);
  return (
    <>
      <div className="head">
        <h1>Flows</h1>
        <div className="actions">
          <a className="button quiet" href={href("bulks", { ns })}>
            Bulks
          </a>
          <ActOnMatches s={s} of={listed} onClick={() => setBulk(onMatches)} disabled={Boolean(wrong) || (rows.length === 0 && !data?.next)} />
          <Act needs={methods.startRun} onClick={() => setStarting(true)}>Start a run…</Act>
        </div>
      </div>
      <FlowTabs ns={ns} at="flows" />
      <StatusChips list="runs" ns={ns} filter={filter} field="status" looks={runLook} counted={false} read={countRuns} label="by status" />
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows, templates.data?.templates.map((t) => t.type) ?? [], sample.attributes)} wrong={wrong} search={async (word) => [`run_id = ${prefixed(word)}`, `scope_id = ${quoted(word)}`, ...searchAttributes(await sample.read(), word)].join(" OR ")} onFocus={sample.want} placeholder="status = FAILED AND template_type = order, or a word   ( / )" />
        <select aria-label="order" value={order} onChange={(e) => change({ order: e.target.value, after: undefined })}>
          {orders.map(([o, name]) => (
            <option key={o} value={o}>
              {name}
            </option>
          ))}
        </select>
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data && rows.length === 0 && !wrong && (
        <Empty title={data.next ? "No matches so far" : filter ? "No runs match" : "No runs yet"} docs={filter || data.next ? undefined : "flows.md"}>
          {data.next ? (
            <Button onClick={() => change({ after: data.next })}>Search further</Button>
          ) : filter ? (
            <Button onClick={() => change({ filter: undefined })}>Show all</Button>
          ) : templates.data?.templates.length === 0 ? (
            <>
              A run executes the steps of a template. Store a template first. <a className="button main" href={href("templates", { ns })}>Show templates</a>{" "}
              <span>Command: <code>progressor template put {ns} -f FILE</code></span>
            </>
          ) : (
            <>
              <Act needs={methods.startRun} kind="main" onClick={() => setStarting(true)}>Start the first run…</Act> <span>Command: <code>progressor run start {ns} {templates.data?.templates[0]?.type}</code></span>
            </>
          )}
        </Empty>
      )}
      {rows.length > 0 && <List name="runs" ns={ns} schema={RunSchema} columns={columns} rows={rows} idOf={(r) => r.runId} s={s} order={order} onOrder={(o) => change({ order: o, after: undefined })} read={page} />}
      <Pager after={after} next={data?.next ?? ""} />
      {bulk !== undefined && <BulkDialog ns={ns} kind="flow" filter={bulk} chosen={s.chosen.length} onClose={() => setBulk(undefined)} />}
      {starting && <StartRun ns={ns} onClose={() => setStarting(false)} />}
    </>
  );
}
