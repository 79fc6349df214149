import { Code, ConnectError } from "@connectrpc/connect";
import { useMemo, useState } from "react";
import { insight, processes, readOnly, trouble, useRead } from "../api";
import { methods } from "../may";
import { FilterBar, quote, type FieldHelp } from "../filter";
import { count, millis } from "../format";
import { ProcessStatus, type Process } from "../gen/progressor/v1/process_pb";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { change, go, href, useRoute } from "../router";
import { ActOnMatches, bulkFilter, SelectAll, SelectCell, useCursor, useSelection, type Selection } from "../select";
import { lookOfProcess, processLook, Mark, Status } from "../status";
import { Act, Button, Dialog, Empty, ErrorBox, Field, Line, Loading, Scroll, useToast, When } from "../ui";
import { dropView, givenViews, saveView, useViews } from "../views";
import { BulkDialog } from "./bulk";
import { StartDialog } from "./actions";

const size = 50;
const listed = { field: "process_id", one: "process", many: "processes" };
const ordered = ["=", "!=", "<", "<=", ">", ">="];
const orders: [string, string][] = [
  ["", "newest first"],
  ["created_time", "oldest first"],
  ["process_id", "by id"],
  ["process_id desc", "by id, descending"],
  ["status_changed_time desc", "last changed first"],
];

/** The fields for completion: those of the engine, and the attributes of the processes on the page. */
function fieldsOf(rows: Process[]): FieldHelp[] {
  const attributes = new Map<string, Set<string>>();
  for (const p of rows)
    for (const [key, value] of Object.entries(p.metadata ?? {})) {
      const values = attributes.get(key) ?? new Set();
      if (["string", "number", "boolean"].includes(typeof value) && values.size < 20) values.add(String(value));
      attributes.set(key, values);
    }
  return [
    { name: "status", hint: "its status", operators: ["=", "!="], values: Object.keys(processLook) },
    { name: "process_id", hint: "id; * at the end matches any suffix", operators: ordered, values: rows.slice(0, 5).map((p) => p.processId) },
    { name: "kind", hint: "empty for a plain process", operators: ["=", "!="], values: ["", "job", "flow", "cron", "run", "bulk"] },
    { name: "created_time", hint: "time of the start", operators: ordered, time: true },
    { name: "status_changed_time", hint: "time of the last status change", operators: ordered, time: true },
    { name: "detail", hint: "why it is in error; : matches a part", operators: [":", "=", "!="] },
    { name: "corrupted_by", hint: "the task that failed", operators: ordered },
    { name: "reason", hint: "reason of its error", operators: ["=", "!=", ":"] },
    { name: "fingerprint", hint: "its group on the overview", operators: ["=", "!=", ":"] },
    ...[...attributes].map(([key, values]) => ({ name: `metadata.${quote(key)}`, hint: "an attribute", operators: [...ordered, ":"], values: [...values] })),
    { name: "metadata.", hint: "an attribute", operators: [...ordered, ":"] },
  ];
}

/** "last changed first" needs a filter for a single status other than INIT and RUNNING. */
const orderFits = (order: string, filter: string) => order !== "status_changed_time desc" || /^status\s*=\s*(ERROR|SUSPENDED|COMPLETED|CANCELLED)\b(?!.*\bOR\b)/.test(filter.trim());

/** What a filter must contain so that internal processes are shown although the switch is off: it asks for them. */
const asksInternal = (filter: string) => /\bkind\b|~/.test(filter);

function Counts({ ns, filter, usersOnly }: { ns: string; filter: string; usersOnly: boolean }) {
  const { data } = useRead(["counts", ns, usersOnly], (o) => insight.countProcesses({ namespace: ns, usersOnly }, o));
  return (
    <div className="chips" role="group" aria-label="by status">
      {Object.entries(processLook)
        .filter(([name]) => name !== "INIT")
        .map(([name, look]) => {
          const own = `status = ${name}`;
          const on = filter === own;
          return (
            <button key={name} type="button" className="chip" aria-pressed={on} onClick={() => change({ filter: on ? undefined : own, order: undefined, after: undefined })}>
              <Mark look={look} /> {look.name} <strong title={data?.atMost ? "at most: the namespace has too many internal processes to count each of them" : undefined}>{data ? count(data.countByStatus[name.toLowerCase()] ?? 0n) : "…"}</strong>
            </button>
          );
        })}
    </div>
  );
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

/** Describes a process by its attributes, or a run of a cron by its fire time. */
function attributesOf(p: Process): string {
  const { "progressor.cron_id": cron, "progressor.fire_time": due, "progressor.attempt": attempt, ...rest } = p.metadata ?? {};
  const fired = cron === undefined ? [] : [`cron ${String(cron)}${due ? `, due ${String(due)}` : ""}${Number(attempt) > 1 ? `, attempt ${String(attempt)}` : ""}`];
  const some = Object.entries(rest).slice(0, 6);
  return fired.concat(some.map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : String(v)}`)).join("  ");
}

function Row({ p, at, s }: { p: Process; at: boolean; s: Selection }) {
  const held = p.status === ProcessStatus.ERROR || p.status === ProcessStatus.SUSPENDED;
  return (
    <tr className={at ? "at" : ""} data-id={p.processId}>
      <SelectCell s={s} id={p.processId} />
      <td>
        <Status look={lookOfProcess(p.status, p.kind)} />
      </td>
      <td className="wrap id">
        <a href={href("process", { ns: p.namespace, id: p.processId })} title={p.processId}>{p.processId}</a> {p.kind && <span className="tag">{p.kind}</span>}
      </td>
      <td className="grow">{held && p.detail ? <Line text={p.detail} /> : <span className="dim"><Line told={p.kind !== ""} text={attributesOf(p)} /></span>}</td>
      <td data-label="status since">
        <When at={millis(p.statusChangedTime)} />
      </td>
      <td data-label="started">
        <When at={millis(p.createdTime)} />
      </td>
    </tr>
  );
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
  const { data, error, isPending } = useRead(
    ["processes", ns, filter, order, after, usersOnly],
    (o) => fill(after, size, async (pageToken) => {
      const page = await processes.listProcesses({ namespace: ns, filter, orderBy: order, pageSize: size, pageToken, usersOnly }, o);
      return { rows: page.processes, next: page.nextPageToken };
    }),
    { every: after ? 0 : 5000, keep: true },
  );
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const fields = useMemo(() => fieldsOf(rows), [rows]);
  const shown = [filter, order, after, usersOnly].join();
  const s = useSelection(shown, rows.filter((p) => p.kind === "").map((p) => p.processId));
  const at = useCursor(rows.map((p) => p.processId), shown, (id) => go("process", { ns, id }), s);
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
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fields} wrong={wrong} placeholder='status = ERROR AND metadata.customer = "ada"   ( / )' />
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
        <Empty title={data?.next ? "No matches so far" : filter ? "No processes match" : "No processes yet"}>
          {data?.next ? (
            <>
              About 160,000 of the newest processes were searched. <Button onClick={() => change({ after: data.next })}>Search further</Button>
            </>
          ) : filter ? (
            <Button onClick={() => change({ filter: undefined, order: undefined })}>Show all</Button>
          ) : (
            <>Start one with "Start…", <code>progressor start</code>, or the API.</>
          )}
          {usersOnly && !data?.next && (
            <>
              {" "}
              <Button onClick={() => change({ internal: "1" })}>Show internal processes</Button>
            </>
          )}
        </Empty>
      ) : (
        rows.length > 0 && (
          <section className="card">
            <Scroll>
              <table className="stack">
                <thead>
                  <tr>
                    {s.offered && (
                      <th>
                        <SelectAll s={s} />
                      </th>
                    )}
                    <th>Status</th>
                    <th>Process</th>
                    <th>Reason or attributes</th>
                    <th>Status since</th>
                    <th>Started</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map((p, n) => (
                    <Row key={p.processId} p={p} at={n === at} s={s} />
                  ))}
                </tbody>
              </table>
            </Scroll>
          </section>
        )
      )}
      <Pager after={after} next={data?.next ?? ""} />
      {bulk !== undefined && <BulkDialog ns={ns} filter={bulk} onClose={() => setBulk(undefined)} />}
      {starting && <StartDialog ns={ns} onClose={() => setStarting(false)} />}
    </>
  );
}
