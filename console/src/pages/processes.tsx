import { Code, ConnectError, type CallOptions } from "@connectrpc/connect";
import { useMemo, useState } from "react";
import { insight, processes, readOnly, trouble, useRead } from "../api";
import { fieldsOfAttributes, keysOf, prefixed, searchAttributes, useSample, type Attributes } from "../attributes";
import { StatusChips, type ReadStatuses } from "../counts";
import { FilterBar, splitFilter, type FieldHelp } from "../filter";
import { millis } from "../format";
import { ProcessSchema, ProcessStatus, type Process } from "../gen/progressor/v1/process_pb";
import { List, metadataColumns, timeText, useChosenColumns, type Column } from "../list";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { change, href, useRoute } from "../router";
import { ActOnMatches, bulkFilter, useSelection } from "../select";
import { countLooks, lookOfProcess, processLook, Status } from "../status";
import { Act, Button, Dialog, Empty, ErrorBox, Field, Line, Loading, useToast, When } from "../ui";
import { dropView, givenViews, saveView, useViews } from "../views";
import { BulkDialog } from "./bulk";
import { StartDialog } from "./actions";

const size = 50;
const listed = { field: "process_id", one: "process", many: "processes" };
const ordered = ["=", "!=", "<", "<=", ">", ">="];
const orders: [string, string][] = [
  ["", "newest first"],
  ["created_time", "oldest first"],
  ["process_id", "by ID"],
  ["process_id desc", "by ID, descending"],
  ["status_changed_time desc", "last changed first"],
];

/** The fields for completion: those of the engine, and the metadata of some processes. */
const fieldsOf = (rows: Process[], attributes: Attributes): FieldHelp[] => [
  { name: "status", hint: "its status", operators: ["=", "!="], values: Object.keys(processLook) },
  { name: "process_id", hint: "ID; * at the end matches any suffix", operators: ordered, values: rows.slice(0, 5).map((p) => p.processId) },
  { name: "kind", hint: "empty for a plain process", operators: ["=", "!="], values: ["", "job", "flow", "cron", "run", "bulk"] },
  { name: "created_time", hint: "time of the start", operators: ordered, time: true },
  { name: "status_changed_time", hint: "time of the last status change", operators: ordered, time: true },
  { name: "detail", hint: "why it is in error; : matches a part", operators: [":", "=", "!="] },
  { name: "corrupted_by", hint: "the task that failed", operators: ordered },
  { name: "reason", hint: "reason of its error", operators: ["=", "!=", ":"] },
  { name: "fingerprint", hint: "its group on the overview", operators: ["=", "!=", ":"] },
  ...fieldsOfAttributes(attributes),
];

/** "last changed first" needs a filter for a single status other than INIT and RUNNING. */
const orderFits = (order: string, filter: string) => order !== "status_changed_time desc" || /^(ERROR|SUSPENDED|COMPLETED|CANCELLED)$/.test(splitFilter(filter, "status").value);

/** Reports whether a filter asks for internal processes. They are then shown even if the switch is off. */
const asksInternal = (filter: string) => /\b(kind|fingerprint)\b|~/.test(filter);

function Counts({ ns, filter, usersOnly }: { ns: string; filter: string; usersOnly: boolean }) {
  const { INIT: _, ...looks } = countLooks(!usersOnly); // RUNNING includes INIT
  const { data } = useRead(["counts", ns, usersOnly], (o) => insight.countProcesses({ namespace: ns, usersOnly }, o));
  const total = data && Object.fromEntries(Object.keys(looks).map((name) => [name, { n: data.countByStatus[name.toLowerCase()] ?? 0n }]));
  const read: ReadStatuses = async (of, pageSize, o) => {
    const page = await processes.listProcesses({ namespace: ns, filter: of, pageSize, usersOnly }, o);
    return { statuses: page.processes.map((p) => (p.status === ProcessStatus.INIT ? "RUNNING" : (ProcessStatus[p.status] ?? ""))), more: page.nextPageToken !== "" };
  };
  const title = data?.atMost ? "at most: the namespace has too many internal processes to count each of them" : undefined;
  return <StatusChips list={`processes ${String(usersOnly)}`} ns={ns} filter={filter} field="status" looks={looks} total={total} counted read={read} label="by status" title={title} />;
}

function Views({ filter, order }: { filter: string; order: string }) {
  const saved = useViews();
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const tell = useToast();
  const all = [...givenViews, ...saved];
  const taken = givenViews.some((v) => v.name === name.trim());
  const here = all.find((v) => v.filter === filter && (v.order ?? "") === order);
  return (
    <>
      <select
        aria-label="view"
        value={here?.name ?? ""}
        onChange={(e) => {
          const v = all.find((v) => v.name === e.target.value);
          if (v) change({ filter: v.filter, order: v.order, after: undefined });
        }}
      >
        {!here && <option value="">view…</option>}
        {all.map((v) => (
          <option key={v.name}>{v.name}</option>
        ))}
      </select>
      {!here && filter && (
        <Button kind="quiet" title="Save this filter and order under a name" onClick={() => setNaming(true)}>
          Save view
        </Button>
      )}
      {here && saved.includes(here) && (
        <Button
          kind="quiet"
          onClick={() => {
            dropView(here.name);
            tell(`The view ${here.name} is deleted.`);
          }}
        >
          Delete view
        </Button>
      )}
      {naming && (
        <Dialog title="Save this view" onClose={() => setNaming(false)}>
          <form
            onSubmit={(e) => {
              e.preventDefault();
              saveView({ name: name.trim(), filter, order: order || undefined });
              tell(`The view ${name.trim()} is saved.`);
              setNaming(false);
              setName("");
            }}
          >
            <Field label="Name" hint={saved.some((v) => v.name === name.trim()) ? "A view with this name exists and will be replaced." : "Stored in this browser, for all namespaces."} error={taken && "this is the name of a built-in view"}>
              <input autoFocus value={name} maxLength={60} onChange={(e) => setName(e.target.value)} />
            </Field>
            <footer>
              <Button onClick={() => setNaming(false)}>Cancel</Button>
              <button type="submit" className="button main" disabled={!name.trim() || taken}>
                Save
              </button>
            </footer>
          </form>
        </Dialog>
      )}
    </>
  );
}

/** Describes a process by its metadata, or a run of a cron by its fire time. */
function metadataText(p: Process): string {
  const { "progressor.cron_id": cron, "progressor.fire_time": due, "progressor.attempt": attempt, ...rest } = p.metadata ?? {};
  const fired = cron === undefined ? [] : [`cron ${String(cron)}${due ? `, due ${String(due)}` : ""}${Number(attempt) > 1 ? `, attempt ${String(attempt)}` : ""}`];
  const some = Object.entries(rest).slice(0, 6);
  return fired.concat(some.map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : String(v)}`)).join("  ");
}

const held = (p: Process) => (p.status === ProcessStatus.ERROR || p.status === ProcessStatus.SUSPENDED) && p.detail !== "";

/** The columns of the list. Each key of the metadata can also be a column. */
function columnsOf(filter: string, keys: string[]): Column<Process>[] {
  return [
    { id: "status", head: "Status", fixed: true, cell: (p) => <Status look={lookOfProcess(p.status, p.kind)} />, text: (p) => ProcessStatus[p.status] ?? "" },
    {
      id: "process",
      head: "Process",
      fixed: true,
      className: "wrap id",
      up: "process_id",
      down: "process_id desc",
      cell: (p) => (
        <>
          <a href={href("process", { ns: p.namespace, id: p.processId })} title={p.processId}>{p.processId}</a> {p.kind && <span className="tag">{p.kind}</span>}
        </>
      ),
      text: (p) => p.processId,
    },
    {
      id: "reason",
      head: "Reason or metadata",
      className: "grow",
      cell: (p) => (held(p) ? <Line text={p.detail} /> : <span className="dim"><Line fromEngine={p.kind !== ""} text={metadataText(p)} /></span>),
      text: (p) => (held(p) ? p.detail : metadataText(p)),
    },
    { id: "kind", head: "Kind", off: true, label: "kind", cell: (p) => p.kind || <span className="dim">–</span>, text: (p) => p.kind },
    ...metadataColumns<Process>(keys, (p) => p.metadata),
    {
      id: "since",
      head: "Status since",
      label: "status since",
      down: orderFits("status_changed_time desc", filter) ? "status_changed_time desc" : undefined,
      cell: (p) => <When at={millis(p.statusChangedTime)} />,
      text: (p) => timeText(millis(p.statusChangedTime)),
    },
    { id: "started", head: "Started", label: "started", down: "", up: "created_time", cell: (p) => <When at={millis(p.createdTime)} />, text: (p) => timeText(millis(p.createdTime)) },
  ];
}

export function Processes({ ns }: { ns: string }) {
  const { params } = useRoute();
  const filter = params.get("filter") ?? "";
  const after = params.get("after") ?? "";
  const asked = params.get("order") ?? "";
  const internal = Boolean(params.get("internal"));
  const usersOnly = !internal && !asksInternal(filter);
  const order = orderFits(asked, filter) ? asked : "";
  const [bulk, setBulk] = useState<string>();
  const [starting, setStarting] = useState(false);
  const page = async (pageToken: string, pageSize: number, o?: CallOptions) => {
    const answer = await processes.listProcesses({ namespace: ns, filter, orderBy: order, pageSize, pageToken, usersOnly }, o);
    return { rows: answer.processes, next: answer.nextPageToken };
  };
  const { data, error, isPending } = useRead(["processes", ns, filter, order, after, usersOnly], (o) => fill(after, size, (token) => page(token, size, o)), { every: after ? 0 : 5000, keep: true });
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const sample = useSample("processes", ns, rows, (o) => processes.listProcesses({ namespace: ns, pageSize: 200, usersOnly: true }, o).then((a) => a.processes));
  const fields = useMemo(() => fieldsOf(rows, sample.attributes), [rows, sample.attributes]);
  const chosen = useChosenColumns("processes");
  const columns = columnsOf(filter, keysOf(sample.attributes, chosen));
  const shown = [filter, order, after, usersOnly].join();
  const s = useSelection(shown, rows.filter((p) => p.kind === "").map((p) => p.processId));
  const onMatches = bulkFilter(s, listed, filter);
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  useCommands(
    readOnly
      ? []
      : [
          { name: "Act on all matches", group: "processes", needs: methods.startBulk, run: () => setBulk(onMatches) },
          { name: "Start a process", group: "processes", needs: methods.start, run: () => setStarting(true) },
        ],
  );

  return (
    <>
      <div className="head">
        <h1>Processes</h1>
        <div className="actions">
          <a className="button quiet" href={href("bulks", { ns })}>
            Bulks
          </a>
          <Act needs={methods.start} onClick={() => setStarting(true)}>Start…</Act>
          <ActOnMatches s={s} of={listed} onClick={() => setBulk(onMatches)} disabled={Boolean(wrong) || (rows.length === 0 && !data?.next)} />
        </div>
      </div>
      <Counts ns={ns} filter={filter} usersOnly={usersOnly} />
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fields} wrong={wrong} search={async (word) => [`process_id = ${prefixed(word)}`, ...searchAttributes(await sample.read(), word)].join(" OR ")} onFocus={sample.want} placeholder='status = ERROR AND metadata.customer = "ada", or a word   ( / )' />
        <div className="actions">
          <Views filter={filter} order={order} />
          <label className="check" title="Also jobs, flow runs, crons and bulks">
            <input type="checkbox" checked={!usersOnly} disabled={!internal && !usersOnly} onChange={(e) => change({ internal: e.target.checked ? "1" : undefined, after: undefined })} /> Internal
          </label>
          <select aria-label="order" value={order} onChange={(e) => change({ order: e.target.value, after: undefined })}>
            {orders
              .filter(([o]) => orderFits(o, filter))
              .map(([o, name]) => (
                <option key={o} value={o}>
                  {name}
                </option>
              ))}
          </select>
        </div>
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending ? (
        <Loading />
      ) : rows.length === 0 && !wrong && !error ? (
        <Empty title={data?.next ? "No matches so far" : filter ? "No processes match" : "No processes yet"} docs={filter || data?.next ? undefined : "concepts.md"}>
          {data?.next ? (
            <>
              About 160,000 of the newest processes were searched. <Button onClick={() => change({ after: data.next })}>Search further</Button>
            </>
          ) : filter ? (
            <Button onClick={() => change({ filter: undefined, order: undefined })}>Show all</Button>
          ) : (
            <>
              <Act needs={methods.start} kind="main" onClick={() => setStarting(true)}>Start a process…</Act> <span>Command: <code>progressor start {ns} my-process</code></span>
            </>
          )}
          {usersOnly && !data?.next && (
            <>
              {" "}
              <Button onClick={() => change({ internal: "1" })}>Show internal processes</Button>
            </>
          )}
        </Empty>
      ) : (
        rows.length > 0 && <List name="processes" ns={ns} schema={ProcessSchema} columns={columns} rows={rows} idOf={(p) => p.processId} s={s} order={order} onOrder={(o) => change({ order: o, after: undefined })} read={page} />
      )}
      <Pager after={after} next={data?.next ?? ""} />
      {bulk !== undefined && <BulkDialog ns={ns} filter={bulk} chosen={s.chosen.length} onClose={() => setBulk(undefined)} />}
      {starting && <StartDialog ns={ns} onClose={() => setStarting(false)} />}
    </>
  );
}
