import { Code, ConnectError } from "@connectrpc/connect";
import { useMemo, useState } from "react";
import { flows, readOnly, trouble, useRead } from "../api";
import { FilterBar, type FieldHelp } from "../filter";
import { runEnded, whyRun } from "../flow";
import { millis, plural, span } from "../format";
import { type Run } from "../gen/progressor/v1/flow_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { change, go, href, useParam } from "../router";
import { ActOnMatches, bulkFilter, SelectAll, SelectCell, useCursor, useSelection, type Selection } from "../select";
import { lookOfRun, Mark, runLook, Status } from "../status";
import { Act, Bar, Button, Card, Empty, ErrorBox, Line, Loading, Scroll, useNow, When } from "../ui";
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

function fieldsOf(rows: Run[], types: string[]): FieldHelp[] {
  const keys = (of: (r: Run) => unknown) => [...new Set(rows.flatMap((r) => Object.keys((of(r) as object | null) ?? {})))].slice(0, 20);
  const some = (of: (r: Run) => string) => [...new Set(rows.map(of).filter(Boolean))].slice(0, 20);
  return [
    { name: "status", hint: "its status", operators: ["=", "!="], values: Object.keys(runLook) },
    { name: "template_type", hint: "its template; * at the end matches any suffix", operators: ["=", "!="], values: types },
    { name: "phase", hint: "its current step", operators: ["=", "!="], values: some((r) => r.phase) },
    { name: "scope", hint: "kind of its subject", operators: ["=", "!="], values: some((r) => r.scope) },
    { name: "scope_id", hint: "id of its subject", operators: ["=", "!="], values: some((r) => r.scopeId) },
    { name: "cron_id", hint: "cron that started it", operators: ["=", "!="], values: some((r) => r.cronId) },
    { name: "created_time", hint: "time of the start", operators: ordered, time: true },
    { name: "reason", hint: "reason of its failure", operators: ["=", "!=", ":"] },
    { name: "fingerprint", hint: "its group on the overview", operators: ["=", "!=", ":"] },
    ...keys((r) => (r.payload?.kind.case === "structValue" ? plainValue(r.payload) : {})).map((k) => ({ name: `payload.${k}`, hint: "of its payload", operators: [...ordered, ":"] })),
    ...keys((r) => r.metadata).map((k) => ({ name: `metadata.${k}`, hint: "an attribute", operators: [...ordered, ":"] })),
    { name: "metadata.", hint: "", operators: [...ordered, ":"] },
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

function Row({ r, at, s }: { r: Run; at: boolean; s: Selection }) {
  const why = whyRun(r);
  const whom = [r.scope, r.scopeId].filter(Boolean).join(" ");
  return (
    <tr className={at ? "at" : ""}>
      <SelectCell s={s} id={r.runId} />
      <td>
        <Status look={lookOfRun(r.status)} />
      </td>
      <td className="wrap id">
        <a href={href("run", { ns: r.namespace, id: r.runId })}>{r.runId}</a>
      </td>
      <td>
        <a href={href("template", { ns: r.namespace, type: r.templateType, version: String(r.templateVersion) })}>{r.templateType}</a> <span className="dim">v{r.templateVersion}</span>
      </td>
      <td>
        {runEnded(r) ? null : (
          <span className="usage">
            <Bar part={(r.progress?.percent ?? 0) / 100} label={`${Math.round(r.progress?.percent ?? 0)} percent`} /> <span className="dim">{r.phase}</span>
          </span>
        )}
      </td>
      <td className="grow">{why ? <Line told text={why} /> : whom && <span className="dim"><Line text={whom} /></span>}</td>
      <td className="number" data-label="took">
        <Took r={r} />
      </td>
      <td data-label="started">
        <When at={millis(r.createdTime)} />
      </td>
    </tr>
  );
}

export function Runs({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const order = useParam("order");
  const [bulk, setBulk] = useState<string>();
  const [starting, setStarting] = useState(false);
  const templates = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 30000 });
  const { data, error, isPending } = useRead(
    ["runs", ns, filter, order, after],
    (o) => fill(after, size, async (pageToken) => {
      const page = await flows.listRuns({ namespace: ns, filter, orderBy: order, pageSize: size, pageToken }, o);
      return { rows: page.runs, next: page.nextPageToken };
    }),
    { every: after ? 0 : 5000, keep: true },
  );
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const shown = [filter, order, after].join();
  const ids = rows.map((r) => r.runId);
  const s = useSelection(shown, ids);
  const at = useCursor(ids, shown, (id) => go("run", { ns, id }), s);
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
      <div className="chips" role="group" aria-label="by status">
        {Object.entries(runLook).map(([name, look]) => {
          const own = `status = ${name}`;
          return (
            <button key={name} type="button" className="chip" aria-pressed={filter === own} onClick={() => change({ filter: filter === own ? undefined : own, after: undefined })}>
              <Mark look={look} /> {look.name}
            </button>
          );
        })}
      </div>
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows, templates.data?.templates.map((t) => t.type) ?? [])} wrong={wrong} placeholder="status = FAILED AND template_type = order   ( / )" />
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
        <Empty title={data.next ? "No matches so far" : filter ? "No runs match" : "No runs yet"}>
          {data.next ? (
            <Button onClick={() => change({ after: data.next })}>Search further</Button>
          ) : filter ? (
            <Button onClick={() => change({ filter: undefined })}>Show all</Button>
          ) : templates.data?.templates.length === 0 ? (
            <>
              A run executes the steps of a template. Store a template first: <code>progressor template put {ns} -f FILE</code>.
            </>
          ) : (
            <>Start one with "Start a run…", <code>progressor run start</code>, a cron, or the API.</>
          )}
        </Empty>
      )}
      {rows.length > 0 && (
        <Card>
          <Scroll label={plural(rows.length, "run")}>
            <table className="stack">
              <thead>
                <tr>
                  {s.offered && (
                    <th>
                      <SelectAll s={s} />
                    </th>
                  )}
                  <th>Status</th>
                  <th>Run</th>
                  <th>Template</th>
                  <th>Progress</th>
                  <th>Reason or scope</th>
                  <th className="number">Took</th>
                  <th>Started</th>
                </tr>
              </thead>
              <tbody>
                {rows.map((r, n) => (
                  <Row key={r.runId} r={r} at={n === at} s={s} />
                ))}
              </tbody>
            </table>
          </Scroll>
        </Card>
      )}
      <Pager after={after} next={data?.next ?? ""} />
      {bulk !== undefined && <BulkDialog ns={ns} kind="flow" filter={bulk} onClose={() => setBulk(undefined)} />}
      {starting && <StartRun ns={ns} onClose={() => setStarting(false)} />}
    </>
  );
}
