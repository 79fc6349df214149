// The audit log: the commands of operators, newest first.
import { Code, ConnectError, type CallOptions } from "@connectrpc/connect";
import { useState } from "react";
import { insight, trouble, useRead } from "../api";
import { FilterBar, type FieldHelp } from "../filter";
import { exact, millis, plural } from "../format";
import type { AuditEntry } from "../gen/progressor/v1/admin_pb";
import { fill, Pager } from "../paging";
import { bytesOf, Payload } from "../payload";
import { change, href, useParam } from "../router";
import { Button, Card, Empty, ErrorBox, Line, Loading, Scroll, When } from "../ui";

const size = 50;
const commands = ["Repair", "SuspendProcess", "ResumeProcess", "RestartHistory", "CancelProcess", "RemoveProcess", "EraseProcess", "PutNamespace", "PauseNamespace", "ResumeNamespace", "DeleteNamespace", "StartBulk", "PauseJobs", "ResumeJobs", "RemoveJob", "RemoveRun", "PutConstraint", "DeleteConstraint", "PutTemplate", "EnableTemplate", "DisableTemplate", "DeleteTemplate", "CreateCron", "UpdateCron", "PauseCron", "ResumeCron", "DeleteCron", "PutSink", "PauseSink", "ResumeSink", "RewindSink", "DeleteSink", "StopWorker", "DrainNode", "CreateKey", "RotateKey", "RevokeKey", "AddGrant", "RemoveGrant", "Login", "Logout"];

function fieldsOf(rows: AuditEntry[]): FieldHelp[] {
  const some = (of: (e: AuditEntry) => string) => [...new Set(rows.map(of).filter(Boolean))].slice(0, 20);
  return [
    { name: "actor", hint: "who sent the command; * at the end matches any suffix", operators: ["=", "!="], values: some((e) => e.actor) },
    { name: "method", hint: "the command; * at the end matches any suffix", operators: ["=", "!="], values: [...new Set([...some((e) => e.method), ...commands])] },
    { name: "subject", hint: "ID of the object of the command; * at the end matches any suffix", operators: ["=", "!="], values: some((e) => e.subject) },
    { name: "time", hint: "time of the command", operators: ["=", "!=", "<", "<=", ">", ">="], time: true },
  ];
}

/** Returns a link to the object of a command. The object may have been removed in the meantime. */
function subjectLink(e: AuditEntry): string | undefined {
  const [ns, own] = [e.namespace, e.subject.replace(/^~[a-z]+\//, "")];
  const of = (word: RegExp) => word.test(e.method);
  if (of(/Namespace$/)) return href("namespaces", { ns });
  if (of(/Node$/)) return href("nodes");
  if (of(/Key$|Grant$|^Log(in|out)$/)) return href("access");
  if (!ns || !own) return undefined;
  if (of(/Template$/)) return href("template", { ns, type: own });
  if (of(/Constraint$/)) return href("constraints", { ns });
  if (of(/Sink/)) return href("sink", { ns, id: own });
  if (of(/Worker$/)) return href("worker", { ns, id: own });
  if (of(/Jobs$/)) return href("jobs", { ns });
  if (e.subject.startsWith("~cron/") || of(/Cron$|Fire$|Backfills?$/)) return href("cron", { ns, id: own });
  if (e.subject.startsWith("~flow/") || of(/Run$/)) return href("run", { ns, id: own });
  if (e.subject.startsWith("~job/") || of(/Job$/)) return href("job", { ns, id: e.subject });
  if (e.subject.startsWith("~bulk/") || of(/Bulk$/)) return href("bulk", { ns, id: own });
  return href("process", { ns, id: e.subject });
}

type Flat = Map<string, string>;

function flatten(value: unknown, path = "", into: Flat = new Map()): Flat {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) for (const [k, v] of Object.entries(value)) flatten(v, path ? `${path}.${k}` : k, into);
  else into.set(path, JSON.stringify(value));
  return into;
}

/** The fields of a configuration that a command changed: name, value before, value after. */
function changed(details: Record<string, unknown>): [string, string | undefined, string | undefined][] {
  if (!("before" in details && "after" in details)) return [];
  const [before, after] = [flatten(details.before), flatten(details.after)];
  return [...new Set([...before.keys(), ...after.keys()])].filter((k) => before.get(k) !== after.get(k)).map((k) => [k, before.get(k), after.get(k)]);
}

function brief(e: AuditEntry): string {
  const details: Record<string, unknown> = e.details ?? {};
  const fields = changed(details);
  if (fields.length) return fields.map(([name, before, after]) => `${name}: ${before ?? "–"} → ${after ?? "–"}`).join("; ");
  return Object.entries(details).map(([k, v]) => `${k}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join("; ");
}

function Row({ e, all }: { e: AuditEntry; all: boolean }) {
  const [open, setOpen] = useState(false);
  const to = subjectLink(e);
  const at = millis(e.time) ?? 0;
  const fields = changed(e.details ?? {});
  return (
    <>
      <tr>
        <td>
          {exact(at, false)} <span className="dim"><When at={at} /></span>
        </td>
        <td className="wrap" title={e.source}>
          {e.actor || <span className="dim">{e.source.replace(/:\d+$/, "") || "unknown"}</span>}
        </td>
        <td>
          <code>{e.method}</code>
        </td>
        {all && <td data-label={e.namespace && "in"}>{e.namespace}</td>}
        <td className="wrap id">{to ? <a href={to}>{e.subject || e.namespace}</a> : e.subject}</td>
        <td className="grow">
          <Line text={brief(e)} />
        </td>
        <td className="end">
          {e.details && Object.keys(e.details).length > 0 && (
            <Button aria-expanded={open} aria-label={`details of ${e.method} ${e.subject}`} onClick={() => setOpen(!open)}>
              Details
            </Button>
          )}
        </td>
      </tr>
      {open && (
        <tr className="opened">
          <td colSpan={all ? 7 : 6}>
            {fields.length > 0 && (
              <ul className="plain">
                {fields.map(([name, before, after]) => (
                  <li key={name}>
                    <code>{name}</code>: <del>{before ?? "not set"}</del> → <ins>{after ?? "not set"}</ins>
                  </li>
                ))}
              </ul>
            )}
            <Payload bytes={bytesOf(JSON.stringify(e.details))} name="details" />
          </td>
        </tr>
      )}
    </>
  );
}

export function Audit({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const { data, error, isPending } = useRead(
    ["audit", ns, filter, after],
    (o: CallOptions) => fill(after, size, async (pageToken) => {
      const page = await insight.listAudit({ namespace: ns, filter, pageSize: size, pageToken }, o);
      return { rows: page.entries, next: page.nextPageToken };
    }),
    { every: after ? 0 : 5000, keep: true },
  );
  const rows = data?.rows ?? [];
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  return (
    <>
      <h1>Audit {ns && <span className="dim">of {ns}</span>}</h1>
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows)} wrong={wrong} placeholder='method = RemoveProcess AND subject = "order-*"   ( / )' />
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data && rows.length === 0 && !wrong && (
        <Empty title={data.next ? "No matches so far" : filter ? "No entries match" : "No entries yet"}>
          {data.next ? (
            <Button onClick={() => change({ after: data.next })}>Search further</Button>
          ) : filter ? (
            <Button onClick={() => change({ filter: undefined })}>Show all</Button>
          ) : (
            "Commands of operators appear here, with the client that sent them. Commands that change nothing are not recorded."
          )}
        </Empty>
      )}
      {rows.length > 0 && (
        <Card>
          <Scroll label={plural(rows.length, "entry", "entries")}>
            <table className="stack">
              <thead>
                <tr>
                  <th>Time</th>
                  <th>Who</th>
                  <th>Command</th>
                  {!ns && <th>Namespace</th>}
                  <th>Object</th>
                  <th>Details</th>
                  <td />
                </tr>
              </thead>
              <tbody>
                {rows.map((e) => (
                  <Row key={String(e.auditId)} e={e} all={!ns} />
                ))}
              </tbody>
            </table>
          </Scroll>
        </Card>
      )}
      <Pager after={after} next={data?.next ?? ""} />
    </>
  );
}
