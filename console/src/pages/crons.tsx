import { Code, ConnectError } from "@connectrpc/connect";
import { useState } from "react";
import { crons, readOnly, trouble, useRead } from "../api";
import { attributesOf, fieldsOfAttributes, prefixed, searchAttributes } from "../attributes";
import { FilterBar, type FieldHelp } from "../filter";
import { count, exact, millis } from "../format";
import { FireStatus, type Cron, type Fire } from "../gen/progressor/v1/cron_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { change, href, useParam } from "../router";
import { decisionName, lookOfFire, Status, type Look } from "../status";
import { targetWords } from "../target";
import { Act, Button, Card, Empty, ErrorBox, Loading, Table, When } from "../ui";
import { CronDialog, cronNeeds, type CronAction } from "./cronactions";
import { EditCron } from "./cronedit";

const fieldsOf = (rows: Cron[]): FieldHelp[] => [
  { name: "cron_id", hint: "ID; * at the end matches any suffix", operators: ["=", "!=", "<", "<=", ">", ">="], values: rows.map((c) => c.cronId) },
  { name: "paused", hint: "true or false", operators: ["=", "!="], values: ["true", "false"] },
  { name: "failing", hint: "whether its last run failed", operators: ["=", "!="], values: ["true", "false"] },
  { name: "status", hint: "status of its process", operators: ["=", "!="], values: ["RUNNING", "ERROR", "COMPLETED", "CANCELLED"] },
  { name: "created_time", hint: "creation time", operators: ["=", "!=", "<", "<=", ">", ">="], time: true },
  ...fieldsOfAttributes(attributesOf(rows)),
];

/** The last fires as blocks, newest last, followed by the next ones as empty blocks. */
export function Strip({ fires, next, wide = 24 }: { fires: Fire[]; next: number[]; wide?: number }) {
  const past = fires.slice(0, wide).reverse();
  return (
    <span className="strip" role="img" aria-label={`the last ${past.length} fires, ${past.filter((f) => f.status === FireStatus.FAILED || f.status === FireStatus.TIMEOUT).length} of them failed`}>
      {past.map((f) => {
        const look = lookOfFire(f.status);
        return <i key={f.fireId} className={`fire fire-${look.tone}`} title={`${exact(millis(f.fireTime) ?? 0, false)}: ${look.name.toLowerCase()} (${decisionName(f.decision)})${f.detail || f.reason ? "\n" + (f.detail || f.reason) : ""}`} />;
      })}
      <i className="nowmark" title="now" />
      {next.slice(0, 5).map((t) => (
        <i key={t} className="fire ahead" title={exact(t, false)} />
      ))}
    </span>
  );
}

export const nextOf = (c: Cron): number[] => c.nextFireTimes.map((t) => millis(t) ?? 0);

/** Summarizes a cron: paused, running, waiting or ended, and whether its last runs failed. */
export function lookOfCron(c: Cron): Look {
  const failing = c.failures > 0 ? `failing, ${c.failures} in a row` : "";
  if (c.paused) return { name: failing ? `Paused, ${failing}` : "Paused", tone: failing ? "bad" : "hold", shape: "bars" };
  if (c.runningProcessIds.length) return { name: `Running: ${c.runningProcessIds.length}${failing && `, ${failing}`}`, tone: failing ? "bad" : "run", shape: "dot" };
  if (failing) return { name: nextOf(c)[0] ? `F${failing.slice(1)}` : `Ended, ${failing}`, tone: "bad", shape: "cross" };
  return nextOf(c)[0] ? { name: "Waiting", tone: "wait", shape: "clock" } : { name: "Ended", tone: "gone", shape: "dot" };
}

/** Returns how many fires max_fires still allows. The engine returns at most ten next fire times. */
export function leftOf(c: Cron): number {
  const most = Number(c.spec?.maxFires ?? 0n);
  if (!most) return Infinity;
  const next = c.nextFireTimes.length;
  return next < 10 ? next : Math.max(next, most - Number((c.firesByDecision["fired"] ?? 0n) + (c.firesByDecision["queued"] ?? 0n)));
}

function Row({ c, act }: { c: Cron; act: (action: CronAction) => void }) {
  const { data } = useRead(["fires", c.namespace, c.cronId, "strip"], (o) => crons.listFires({ namespace: c.namespace, cronId: c.cronId, pageSize: 24 }, o), { every: 15000 });
  const next = nextOf(c)[0];
  return (
    <tr>
      <td>
        <span title={c.pauseNote || undefined}>
          <Status look={lookOfCron(c)} />
        </span>
      </td>
      <td className="wrap id">
        <a href={href("cron", { ns: c.namespace, id: c.cronId })}>{c.cronId}</a>
      </td>
      <td className="schedule">
        <code>{c.spec?.expressions.join("; ")}</code> <span className="dim">{c.spec?.timezone || "UTC"}</span>
      </td>
      <td className="wrap target">{targetWords(c)}</td>
      <td className="strips">
        <Strip fires={data?.fires ?? []} next={nextOf(c)} />
      </td>
      <td data-label="next">{c.paused ? <span className="dim">{c.waitingFires > 0n ? `${count(c.waitingFires)} waiting` : "paused"}</span> : <When at={next} next />}</td>
      <td className="end">
        {c.paused ? (
          <Act needs={cronNeeds.resume} onClick={() => act("resume")}>Resume…</Act>
        ) : (
          next && <Act needs={cronNeeds.pause} onClick={() => act("pause")}>Pause…</Act>
        )}{" "}
        <Act needs={cronNeeds.trigger} onClick={() => act("trigger")}>Trigger…</Act>
      </td>
    </tr>
  );
}

export function Crons({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const [making, setMaking] = useState(false);
  const [acting, setActing] = useState<[Cron, CronAction]>();
  const { data, error, isPending } = useRead(["crons", ns, filter, after], (o) => crons.listCrons({ namespace: ns, filter, pageSize: 25, pageToken: after }, o), { keep: true });
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  useCommands(readOnly ? [] : [{ name: "New cron", group: "crons", needs: methods.createCron, run: () => setMaking(true) }]);
  return (
    <>
      <div className="head">
        <h1>Crons</h1>
        <div className="actions">
          <Act needs={methods.createCron} onClick={() => setMaking(true)}>New cron…</Act>
        </div>
      </div>
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(data?.crons ?? [])} wrong={wrong} search={(word) => Promise.resolve([`cron_id = ${prefixed(word)}`, ...searchAttributes(attributesOf(data?.crons ?? []), word)].join(" OR "))} placeholder="paused = true, or a word   ( / )" />
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data?.crons.length === 0 && (
        <Empty title={filter ? "No crons match" : "No crons yet"} docs={filter ? undefined : "crons.md"}>
          {filter ? (
            <Button onClick={() => change({ filter: undefined })}>Show all</Button>
          ) : (
            <>
              <p>A cron starts a process, a job, a flow run or an HTTP request on a schedule, and records each decision.</p>
              <Act needs={methods.createCron} kind="main" onClick={() => setMaking(true)}>Create a cron…</Act> <span>Command: <code>progressor cron create {ns} nightly '0 3 * * *' --start-process</code></span>
            </>
          )}
        </Empty>
      )}
      {(data?.crons.length ?? 0) > 0 && (
        <Card>
          <Table label="crons" heads={["State", "Cron", "Schedule", "Target", "Last and next fires", "Next", ""]}>
            {data?.crons.map((c) => (
              <Row key={c.cronId} c={c} act={(action) => setActing([c, action])} />
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {acting && <CronDialog c={acting[0]} action={acting[1]} onClose={() => setActing(undefined)} />}
      {making && <EditCron ns={ns} onClose={() => setMaking(false)} />}
    </>
  );
}
