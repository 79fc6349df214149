import { useState } from "react";
import { crons, readOnly, useRead } from "../api";
import { count, durationMillis, exact, millis, plural, span, timestamp } from "../format";
import { FireStatus, OverlapAction, type Cron, type Fire } from "../gen/progressor/v1/cron_pb";
import { methods, useMay } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { href, useParam } from "../router";
import { decisionName, lookOfFire, Status } from "../status";
import { targetWords } from "../target";
import { Act, Button, Card, Confirm, Empty, ErrorBox, Fields, Loading, Missing, Table, Took, When } from "../ui";
import { DayBar } from "../daybar";
import { Calendar } from "./calendar";
import { CronDialog, cronNeeds, overlapNames, wordsOf, type CronAction } from "./cronactions";
import { concurrencies, failures, misfires } from "./cronedit";
import { leftOf, lookOfCron, nextOf, Strip } from "./crons";

const rerunnable = [FireStatus.SKIPPED, FireStatus.FAILED, FireStatus.TIMEOUT, FireStatus.CANCELLED];
const canRerun = (f: Fire) => rerunnable.includes(f.status) && f.count <= 1n;

function Ledger({ c }: { c: Cron }) {
  const may = useMay();
  const [cancelled, setCancelled] = useState<Fire>();
  const [again, setAgain] = useState<Fire>();
  const after = useParam("after");
  const { data, error, isPending } = useRead(["fires", c.namespace, c.cronId, after], (o) => crons.listFires({ namespace: c.namespace, cronId: c.cronId, pageSize: 50, pageToken: after }, o), { every: after ? 0 : 3000, keep: true });
  const took = (f: Fire) => {
    const [a, b] = [millis(f.startedTime), millis(f.endedTime)];
    return a !== undefined && b !== undefined ? b - a : undefined;
  };
  return (
    <Card title="Ledger" extra={<span className="dim">each fire time with its decision and result</span>}>
      <ErrorBox error={error} />
      {isPending ? (
        <Loading rows={4} />
      ) : !data?.fires.length ? (
        <Empty title="No fires yet">Each fire time is recorded here. To start a run now, choose "Trigger…".</Empty>
      ) : (
        <Table label="ledger" heads={["Due", "Decision", "Result", "#Attempt", "#Took", "Run", "Reason"]}>
          {data.fires.map((f) => (
            <tr key={f.fireId}>
              <td title={exact(millis(f.fireTime) ?? 0)}>
                {exact(millis(f.fireTime) ?? 0, false)} <span className="dim"><When relative at={millis(f.fireTime)} /></span>
              </td>
              <td>
                {decisionName(f.decision)} {f.manual && <span className="tag">manual</span>} {f.count > 1n && <span className="tag">{count(f.count)} times</span>}
              </td>
              <td>
                <Status look={lookOfFire(f.status)} />{" "}
                {may(methods.cancelFire) && (f.status === FireStatus.RUNNING || f.status === FireStatus.SCHEDULED) && (
                  <Button onClick={() => setCancelled(f)}>Cancel…</Button>
                )}
                {may(methods.rerunFire) && canRerun(f) && <Button onClick={() => setAgain(f)}>Rerun…</Button>}
              </td>
              <td className="number" data-label={f.attempt ? "attempt" : undefined}>{f.attempt || ""}</td>
              <td className="number" data-label="took">
                <Took ms={took(f)} />
              </td>
              <td>
                {f.processId && (
                  <a className="line short" title={f.processId} href={f.processId.startsWith("~flow/") ? href("run", { ns: c.namespace, id: f.processId.slice(6) }) : href("process", { ns: runNamespace(c), id: f.processId })}>
                    {runName(c, f.processId)}
                  </a>
                )}
              </td>
              <td className="wrap">{[f.reason, f.detail].filter(Boolean).join("; ")}</td>
            </tr>
          ))}
        </Table>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {again && (
        <Confirm
          title={`Run the fire of ${exact(millis(again.fireTime) ?? 0, false)} again?`}
          says="A run with the same fire time starts now. The policies of the cron ignore it."
          verb="Run again"
          run={() => crons.rerunFire({ namespace: c.namespace, cronId: c.cronId, fireTime: again.fireTime })}
          done="The run is started."
          onClose={() => setAgain(undefined)}
        />
      )}
      {cancelled && (
        <Confirm
          title={`Cancel the fire of ${exact(millis(cancelled.fireTime) ?? 0, false)}?`}
          says={cancelled.status === FireStatus.SCHEDULED ? "It is taken out of the queue and never starts." : "Its run is asked to end."}
          verb="Cancel the fire"
          bad
          run={() => crons.cancelFire({ namespace: c.namespace, cronId: c.cronId, fireTime: cancelled.fireTime })}
          done="The cancellation is requested."
          onClose={() => setCancelled(undefined)}
        />
      )}
    </Card>
  );
}

/** The id of a run without the prefix that all runs of the cron share. */
function runName(c: Cron, id: string): string {
  const own = id.replace(/^~(run|flow|job)\//, "");
  const end = own.startsWith(c.cronId + "/") ? own.slice(c.cronId.length + 1) : own;
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(end) ? "run" : end; // the ID would only repeat the fire time in UTC
}

function runNamespace(c: Cron): string {
  const t = c.target?.target;
  return (t?.case === "startProcess" || t?.case === "notifyProcess" || t?.case === "enqueueJob" ? t.value.namespace : "") || c.namespace;
}

export function CronPage({ ns }: { ns: string }) {
  const id = useParam("id");
  const [action, setAction] = useState<CronAction>();
  const { data, error } = useRead(["cron", ns, id], (o) => crons.getCron({ namespace: ns, cronId: id }, o), { every: 3000 });
  const strip = useRead(["fires", ns, id, "long strip"], (o) => crons.listFires({ namespace: ns, cronId: id, pageSize: 60 }, o), { every: 5000 });
  const preview = useRead(["preview", ns, id, data?.cron?.etag], (o) => crons.previewCron({ of: { case: "cron", value: { namespace: ns, cronId: id } }, limit: 1000, toTime: timestamp(Date.now() + 62 * 86_400_000) }, o), { every: 0, enabled: Boolean(data?.cron) });
  // A calendar is not useful for a cron that fires each hour or more often: show its last day.
  const often = (preview.data?.fireTimes.filter((t) => (millis(t) ?? 0) < Date.now() + 86_400_000).length ?? 0) > 24;
  const lastDay = useRead(["fires", ns, id, "day"], (o) => crons.listFires({ namespace: ns, cronId: id, pageSize: 1000 }, o), { every: 15000, enabled: often });
  const c = data?.cron;
  const list: [CronAction, string, ("main" | "bad")?][] = c ? [["trigger", "Trigger…", "main"], c.paused ? ["resume", "Resume…"] : ["pause", "Pause…"], ["edit", "Edit…"], ["backfill", "Backfill…"], ["delete", "Delete…", "bad"]] : [];
  useCommands(readOnly ? [] : list.map(([a, name]) => ({ name, group: "cron", needs: cronNeeds[a], run: () => setAction(a) })));
  if (!c) return error ? <Missing error={error} what="cron" id={id} ns={ns} to={href("crons", { ns })} list="Show crons" /> : <Loading />;
  const p = c.policy;
  const next = nextOf(c)[0];
  const calendar = <Calendar times={preview.data?.fireTimes.slice(0, leftOf(c)).map((t) => millis(t) ?? 0) ?? []} zone={c.spec?.timezone || "UTC"} more={(preview.data?.fireTimes.length ?? 0) === 1000 && leftOf(c) > 1000} />;
  return (
    <>
      <div className="head">
        <h1>
          {c.cronId}
          <span className="under">
            <Status look={lookOfCron(c)} />
            {!c.paused && next && (
              <>
                <span className="dim">· next</span> <When at={next} next />
              </>
            )}
            <span className="dim">· {targetWords(c)}</span>
          </span>
        </h1>
        <div className="actions">
          {list.map(([a, name, kind]) => (
            <Act key={a} needs={cronNeeds[a]} kind={kind} onClick={() => setAction(a)}>
              {name}
            </Act>
          ))}
        </div>
      </div>
      {c.paused && (
        <div className="notice hold">
          <strong>Paused{c.pauseNote ? ":" : "."}</strong> {c.pauseNote}
          {c.waitingFires > 0n && <p>{plural(c.waitingFires, "fire time waits", "fire times wait")} for the resume.</p>}
        </div>
      )}
      {c.failures > 0 && (
        <div className="notice bad">
          <strong>{c.failures === 1 ? "The last run failed." : `The last ${count(c.failures)} runs failed.`}</strong> {p?.pauseAfterFailures ? `The cron pauses after ${p.pauseAfterFailures} failures in a row.` : ""}
        </div>
      )}
      <Card title={preview.data?.words ?? c.spec?.expressions.join("; ")}>
        <p>
          <code>{c.spec?.expressions.join("; ")}</code> <span className="dim">in {c.spec?.timezone || "UTC"}</span>
          {(c.spec?.excludeExpressions.length ?? 0) > 0 && <> · never at <code>{c.spec?.excludeExpressions.join("; ")}</code></>}
        </p>
        <Strip fires={strip.data?.fires ?? []} next={nextOf(c)} wide={60} />
        {often ? lastDay.data && <DayBar fires={lastDay.data.fires} whole={!lastDay.data.nextPageToken} /> : calendar}
      </Card>
      <Ledger c={c} />
      {often && (
        <Card>
          <details>
            <summary>Calendar</summary>
            {calendar}
          </details>
        </Card>
      )}
      <Card title="Policies">
        <Fields
          list={[
            ["previous run still running", overlapNames.find(([v]) => v === (p?.overlapAction === OverlapAction.ALLOW ? 0 : (p?.overlapAction ?? 0)))?.[1]],
            ["previous run failed", wordsOf(failures, p?.failureAction)],
            ["concurrent runs", `${p?.maxConcurrency || 1}, beyond: ${wordsOf(concurrencies, p?.concurrencyPolicy)}`],
            ["missed fire times", wordsOf(misfires, p?.misfirePolicy)],
            ["timeout of a run", p?.timeout ? span(durationMillis(p.timeout) ?? 0) : c.target?.target.case === "http" ? "10 s" : "none"],
            ["pauses after consecutive failures", p?.pauseAfterFailures ? String(p.pauseAfterFailures) : "never"],
            ["fires so far", Object.entries(c.firesByDecision).map(([d, n]) => `${count(n)} ${d.replaceAll("_", " ")}`).join(", ") || "none"],
            ["created", <When key="m" at={millis(c.createdTime)} />],
            ["changed", <When key="c" at={millis(c.updatedTime)} />],
          ]}
        />
      </Card>
      {action && <CronDialog c={c} action={action} onClose={() => setAction(undefined)} />}
    </>
  );
}

