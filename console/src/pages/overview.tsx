import { lazy, Suspense, useMemo } from "react";
import { insight, useRead } from "../api";
import type { Series } from "../chart";
import { shownCounts } from "../counts";
import { count, duration, durationMillis, millis, plural, rate, span } from "../format";
import type { GetOverviewResponse, Node } from "../gen/progressor/v1/admin_pb";
import { methods, useCan } from "../may";
import { change, href, useParam } from "../router";
import { countLooks, Mark, Status, type Look } from "../status";
import { Card, Empty, ErrorBox, Loading, Scroll, Table, useNow, When } from "../ui";

const Chart = lazy(() => import("../chart").then((m) => ({ default: m.Chart })));
const NextFires = lazy(() => import("./nextfires").then((m) => ({ default: m.NextFires })));

const statuses = ["running", "error", "suspended", "completed", "cancelled"];

// A node without a heartbeat for this long is shown as silent.
const silentAfter = 10_000;
const alive: Look = { name: "alive", tone: "good", shape: "check" };
const draining: Look = { name: "draining", tone: "hold", shape: "bars" };
const requestsOnly: Look = { name: "requests only", tone: "good", shape: "check" };
export const silent: Look = { name: "silent", tone: "bad", shape: "cross" };
export const lookOfNode = (n: Node, now: number): Look => (now - (millis(n.beatTime) ?? 0) > silentAfter + 5000 ? silent : n.draining ? draining : n.requestsOnly ? requestsOnly : alive);

function Tile({ name, value, hint, bad, to }: { name: string; value: string; hint?: string; bad?: boolean; to?: string }) {
  const body = (
    <>
      <span className="name">{name}</span>
      <span className="value">{value}</span>
      {hint && <span className="hint">{hint}</span>}
    </>
  );
  return to ? (
    <a className={"tile" + (bad ? " bad" : "")} href={to}>
      {body}
    </a>
  ) : (
    <div className={"tile" + (bad ? " bad" : "")}>{body}</div>
  );
}

function Tiles({ o, ns, internal }: { o: GetOverviewResponse; ns: string; internal: boolean }) {
  const now = useNow();
  const live = o.nodes.filter((n) => lookOfNode(n, now) !== silent);
  const errors = shownCounts(o, internal)["error"] ?? 0n;
  const hidden = internal ? 0n : (o.internalByStatus["error"] ?? 0n);
  const backlog = o.namespaces.reduce((sum, n) => sum + (ns || !n.paused ? n.runnable : 0n), 0n);
  const oldest = durationMillis(o.oldestRunnableAge) ?? 0;
  const [p50, p99] = [durationMillis(o.processingP50), durationMillis(o.processingP99)];
  const late = durationMillis(o.timerLatenessP99);
  const all = useCan()(methods.listNodes);
  return (
    <div className="tiles">
      {all && <Tile name="Tasks per second" value={rate(o.tasksPerSecond)} hint={ns ? "all namespaces" : "in the last minute"} />}
      {all && <Tile name="Processing time, p50" value={p50 === undefined ? "–" : span(p50)} hint={p99 === undefined ? "no recent tasks" : `p99: ${span(p99)}`} />}
      <Tile name="Backlog" value={count(backlog)} hint={oldest > 0 ? `oldest: ${span(oldest)}` : "no waiting tasks"} bad={oldest > 60_000} />
      {all && <Tile name="Timer lateness, p99" value={late === undefined ? "–" : span(late)} hint={late === undefined ? "no recent timers" : "in the last minute"} bad={late !== undefined && late > 5000} />}
      <Tile name="In error" value={count(errors)} hint={hidden ? `and ${count(hidden)} internal` : errors ? (internal ? "with internal processes" : "need a repair") : "no processes"} bad={errors + hidden > 0n} to={ns ? href("processes", { ns, filter: "status = ERROR", order: "status_changed_time desc", internal: internal || (hidden && !errors) ? "1" : undefined }) : href("namespaces")} />
      <Tile name="Failing crons" value={count(o.failingCrons)} hint={o.failingCrons ? "the last run failed" : "none"} bad={o.failingCrons > 0n} to={ns ? href("crons", { ns, filter: "failing = true" }) : href("namespaces")} />
      {all && <Tile name="Nodes" value={`${live.length}`} hint={live.length < o.nodes.length ? `of ${o.nodes.length} known` : "all alive"} bad={live.length === 0} to={href("nodes", { ns })} />}
    </div>
  );
}

const sumOf = (counts: { [key: string]: bigint }[], ...keys: string[]): bigint => counts.reduce((sum, c) => keys.reduce((s, key) => s + (c[key] ?? 0n), sum), 0n);
const orMore = (n: bigint) => (n > 0n && n % 10000n === 0n ? `${count(n)}+` : count(n));

/**
 * Jobs, runs and waits, by what they do. Each tile links to the list of its objects or, if all
 * namespaces are shown, to the list of namespaces.
 */
function Work({ o, ns }: { o: GetOverviewResponse; ns: string }) {
  const jobs = o.namespaces.map((n) => n.jobsByState);
  const runs = o.namespaces.map((n) => n.runsByStatus);
  const waits = o.namespaces.reduce((sum, n) => sum + n.openWaits, 0n);
  const workers = o.namespaces.reduce((sum, n) => sum + n.workers, 0n);
  const queued = sumOf(jobs, "available");
  const later = sumOf(jobs, "scheduled", "retryable");
  const failed = sumOf(runs, "failed", "expired");
  const list = (page: string, filter: string) => (ns ? href(page, { ns, filter }) : href("namespaces"));
  return (
    <div className="tiles" role="group" aria-label="jobs, flow runs and workers">
      <Tile name="Jobs queued" value={count(queued)} hint={later ? `and ${count(later)} for later` : "ready to run"} to={list("jobs", "state = AVAILABLE")} />
      <Tile name="Jobs running" value={count(sumOf(jobs, "running", "cancel_requested"))} hint="or being cancelled" to={list("jobs", "state = RUNNING")} />
      <Tile name="Jobs failed" value={count(sumOf(jobs, "failed"))} hint="kept until their retention" bad={sumOf(jobs, "failed") > 0n} to={list("jobs", "state = FAILED")} />
      <Tile name="Runs active" value={orMore(sumOf(runs, "active", "cancel_requested", "compensating"))} hint={`${count(sumOf(runs, "pending"))} pending`} to={list("flows", "status != SUCCEEDED AND status != FAILED AND status != CANCELLED AND status != EXPIRED")} />
      <Tile name="Runs failed" value={orMore(failed)} hint={`${count(sumOf(runs, "cancelled"))} cancelled`} bad={failed > 0n} to={list("flows", "status = FAILED OR status = EXPIRED")} />
      <Tile name="Open waits" value={orMore(waits)} hint="for a person or a system" to={href("waits", { ns, for: "everyone" })} />
      <Tile name="Workers" value={count(workers)} hint="seen recently" to={ns ? href("workers", { ns }) : href("namespaces")} />
    </div>
  );
}

const ranges: [string, string, number][] = [
  ["10m", "10 min", 10],
  ["", "1 h", 60],
  ["6h", "6 h", 360],
  ["24h", "24 h", 1440],
];

/** Chooses how much time the charts show. */
function Ranges({ range }: { range: string }) {
  return (
    <div className="chips ranges" role="group" aria-label="time range of the charts">
      {ranges.map(([name, text]) => (
        <button key={name} type="button" className="chip" aria-pressed={name === range} onClick={() => change({ range: name }, "replace")}>
          {text}
        </button>
      ))}
    </div>
  );
}

const countSteps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
const spanSteps = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 216e5, 864e5, 6048e5];

function Charts({ o, range }: { o: GetOverviewResponse; range: string }) {
  const over = range === "" ? "hour" : (ranges.find(([name]) => name === range)?.[1] ?? "hour");
  const { times, charts } = useMemo(() => {
    const s = o.samples;
    const times = s.map((x) => (millis(x.time) ?? 0) / 1000);
    const line = (name: string, color: string, of: (n: number) => number | undefined): Series => ({ name, color, values: s.map((_, n) => of(n) ?? null) });
    const charts: [string, (v: number) => string, Series[]][] = [
      ["Tasks per second", rate, [line("", "--run", (n) => s[n]?.tasksPerSecond)]],
      ["Processing time", span, [line("p50", "--run", (n) => durationMillis(s[n]?.processingP50)), line("p99", "--hold", (n) => durationMillis(s[n]?.processingP99))]],
      ["Backlog", (v) => count(Math.round(v)), [line("", "--wait", (n) => Number(s[n]?.runnable))]],
      ["Wait and lateness", span, [line("oldest runnable", "--wait", (n) => durationMillis(s[n]?.oldestRunnableAge)), line("timers, p99", "--bad", (n) => durationMillis(s[n]?.timerLatenessP99))]],
    ];
    return { times, charts };
  }, [o.samples]);
  return (
    <div className="charts">
      {charts.map(([title, show, series]) => (
        <Suspense key={title} fallback={<figure className="chart" aria-hidden />}>
          <Chart over={over} title={title} times={times} series={series} show={show} steps={show === span ? spanSteps : title === "Backlog" ? countSteps : undefined} />
        </Suspense>
      ))}
    </div>
  );
}

function Errors({ ns }: { ns: string }) {
  const { data, error } = useRead(["errors", ns], (options) => insight.listErrors({ namespace: ns, pageSize: 20 }, options), { every: 10000 });
  const groups = data?.groups ?? [];
  return (
    <Card title="Errors" extra={data?.nextPageToken && <span className="dim">the 20 largest groups</span>}>
      <ErrorBox error={error} what="Errors" />
      {groups.length === 0 && !error ? (
        !data ? (
          <Loading rows={2} />
        ) : (
          <Empty title="No errors">Failed processes, runs and crons appear here, grouped by cause, with a link to repair or retry them.</Empty>
        )
      ) : (
        <Scroll label="errors">
          <table className="stack">
            <thead>
              <tr>
                <th className="number">Count</th>
                <th>Error</th>
                {!ns && <th>Namespace</th>}
                <th>First</th>
                <th>Last</th>
                <td />
              </tr>
            </thead>
            <tbody>
              {groups.map((g) => (
                <tr key={g.namespace + g.fingerprint + g.cronId + String(g.runs) + String(g.jobs)}>
                  <td className="number strong" data-label="count">{count(g.count)}</td>
                  <td className="what rest" title={g.message}>
                    <a className="clamp" href={href(g.cronId ? "cron" : g.jobs ? "job" : g.runs ? "run" : "process", { ns: g.namespace, id: g.newestId })}>
                      {g.cronId && <>cron {g.cronId}: </>}
                      {g.reason && <code className="tag">{g.reason}</code>} {g.message}
                    </a>
                  </td>
                  {!ns && <td data-label="namespace">{g.namespace}</td>}
                  <td data-label="first">
                    <When at={millis(g.firstTime)} />
                  </td>
                  <td data-label="last">
                    <When at={millis(g.lastTime)} />
                  </td>
                  <td className="end">
                    {g.cronId ? (
                      <a className="button" href={href("cron", { ns: g.namespace, id: g.cronId })}>
                        Show the cron
                      </a>
                    ) : g.jobs ? (
                      <a className="button" href={href("jobs", { ns: g.namespace, filter: g.filter })}>
                        Show {plural(g.count, "job", "jobs")}
                      </a>
                    ) : g.runs ? (
                      <a className="button" href={href("flows", { ns: g.namespace, filter: g.filter })}>
                        Show {plural(g.count, "run", "runs")}
                      </a>
                    ) : (
                      <a className="button" href={href("processes", { ns: g.namespace, filter: g.filter, order: "status_changed_time desc", internal: "1" })}>
                        Show {plural(g.count, "process", "processes")}
                      </a>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Card>
  );
}

function ByNamespace({ o, internal }: { o: GetOverviewResponse; internal: boolean }) {
  const param = internal ? "1" : undefined;
  const looks = countLooks(internal);
  const number = sumOf([o.internalByStatus], ...statuses);
  return (
    <Card
      title="By namespace"
      extra={
        <label className="check" title="processes of the engine: jobs, flow runs, crons and bulks">
          <input type="checkbox" checked={internal} onChange={(e) => change({ internal: e.target.checked ? "1" : undefined }, "replace")} /> {`${count(number)}${o.internalMore ? "+" : ""} internal`}
        </label>
      }
    >
      <Scroll label="by namespace">
        <table className="stack">
          <thead>
            <tr>
              <th>Namespace</th>
              {statuses.map((s) => (
                <th key={s} className="number">
                  <Mark look={looks[s.toUpperCase()]!} /> {looks[s.toUpperCase()]?.name}
                </th>
              ))}
              <th className="number">Backlog</th>
              <th className="number">Oldest</th>
              <th className="number">Workers</th>
              <th className="number">Failing crons</th>
            </tr>
          </thead>
          <tbody>
            {o.namespaces.map((n) => {
              const counts = shownCounts(n, internal);
              return (
              <tr key={n.namespace}>
                <td className="whole">
                  <a href={href("overview", { ns: n.namespace })}>{n.namespace}</a> {n.paused && <Status look={{ name: "paused", tone: "hold", shape: "bars" }} />}
                </td>
                {statuses.map((s) => {
                  const c = counts[s] ?? 0n;
                  const order = s === "running" ? undefined : "status_changed_time desc";
                  return (
                    <td key={s} data-label={s} className={"number" + (s === "error" && c ? " tone-bad strong" : c ? "" : " dim")}>
                      <a href={href("processes", { ns: n.namespace, filter: `status = ${s.toUpperCase()}`, order, internal: param })}>{count(c)}</a>
                    </td>
                  );
                })}
                <td data-label="backlog" className={"number" + (n.runnable ? "" : " dim")}>{n.runnable >= 10000n ? "10,000+" : count(n.runnable)}</td>
                <td data-label="oldest" className="number">{n.runnable ? span(durationMillis(n.oldestRunnableAge) ?? 0) : <span className="dim">–</span>}</td>
                <td data-label="workers" className={"number" + (n.workers ? "" : " dim")}>{count(n.workers)}</td>
                <td data-label="failing crons" className={"number" + (n.failingCrons ? " tone-bad strong" : " dim")}>
                  <a href={href("crons", { ns: n.namespace, filter: "failing = true" })}>{count(n.failingCrons)}</a>
                </td>
              </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

const waitNames: [string, string, string][] = [
  ["time", "a time", "timers, delayed starts and retries"],
  ["place", "a slot or a worker", "a slot on a node or, in a pull namespace, a worker"],
  ["process", "another task", "a running or older task of the same process"],
  ["operator", "a resume", "in suspended processes"],
  ["constraint", "a constraint", "jobs that have reached a limit"],
];

function Waits({ o }: { o: GetOverviewResponse }) {
  const most = Math.max(1, ...waitNames.map(([key]) => Number(o.waitingByWhat[key] ?? 0n)));
  return (
    <Card title="Waiting tasks, by what they wait for">
      <table className="bars">
        <tbody>
          {waitNames.map(([key, name, hint]) => {
            const n = o.waitingByWhat[key] ?? 0n;
            return (
              <tr key={key} title={hint}>
                <th scope="row">{name}</th>
                <td className="number">{count(n)}</td>
                <td className="wide">
                  <div className="track" aria-hidden="true">
                    <div style={{ width: `${(Number(n) / most) * 100}%` }} />
                  </div>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Card>
  );
}

function Nodes({ o }: { o: GetOverviewResponse }) {
  const now = useNow();
  return (
    <Card title="Nodes">
      <Table label="nodes" heads={["Node", "State", "#Running", "Last heartbeat", "Started"]}>
        {o.nodes.map((n) => (
          <tr key={n.nodeId}>
            <td>
              {n.nodeId} <span className="dim">{n.address}</span>
            </td>
            <td>
              <Status look={lookOfNode(n, now)} />
            </td>
            <td className="number" data-label="running">{count(n.running)}</td>
            <td data-label="last heartbeat">
              <When at={millis(n.beatTime)} />
            </td>
            <td data-label="started">
              <When at={millis(n.startedTime)} />
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

// Rates, samples and nodes cover all namespaces, so only users who may see all of them get these.
export function Overview({ ns }: { ns: string }) {
  const all = useCan()(methods.listNodes);
  const asked = useParam("range");
  const internal = Boolean(useParam("internal"));
  const range = ranges.find(([name]) => name === asked) ?? ranges[1]!;
  const samplesAge = range[0] ? duration(range[2] * 60_000) : undefined;
  const { data: o, error } = useRead(["overview", ns, range[0]], (options) => insight.getOverview({ namespace: ns, samplesAge }, options), { every: 5000, keep: true });
  return (
    <>
      <h1>Overview {ns ? <span className="dim">of {ns}</span> : null}</h1>
      <ErrorBox error={error} />
      {!o ? (
        !error && <Loading />
      ) : (
        <>
          <Tiles o={o} ns={ns} internal={internal} />
          <Work o={o} ns={ns} />
          <Errors ns={ns} />
          {all && ns && <p className="dim">Tasks per second, processing time and the charts cover all namespaces.</p>}
          {all && <Ranges range={range[0]} />}
          {all && <Charts o={o} range={range[0]} />}
          <ByNamespace o={o} internal={internal} />
          <Suspense>
            <NextFires ns={ns} />
          </Suspense>
          <div className="two">
            <Waits o={o} />
            {all && <Nodes o={o} />}
          </div>
        </>
      )}
    </>
  );
}
