// The events of a job or a run: one line for each status change and command.
import { jobEvents, useRead } from "../api";
import { quoted } from "../flow";
import { exact, millis, span } from "../format";
import type { JobEvent } from "../gen/progressor/v1/flow_pb";
import { Pager } from "../paging";
import { href, useParam } from "../router";
import { jobLook, Mark, runLook, stepLook, type Look } from "../status";
import { Empty, ErrorBox, Loading, Scroll } from "../ui";

const size = 50;

const timeOf = (e?: JobEvent): number => millis(e?.createdTime) ?? 0;

/** Shows the new status of a job or a run or, if ofStep is set, of a step. */
export function NewStatus({ e, ofStep }: { e: JobEvent; ofStep: boolean }) {
  const looks = ofStep ? stepLook : { ...jobLook, ...runLook, ACTIVE: { name: "Active", tone: "run", shape: "ring" } as Look };
  const look: Look = looks[e.to.toUpperCase()] ?? { name: e.to, tone: "plain", shape: "ring" };
  return (
    <span className={`status tone-${look.tone}`}>
      <Mark look={look} />
      {look.name}
    </span>
  );
}

/** The time of day, with the date if the row above has another date. */
function Clock({ at, above }: { at: number; above?: number }) {
  const [day = "", time = ""] = exact(at).split(" ");
  return (
    <time dateTime={new Date(at).toISOString()} title={`${exact(at)}\n${new Date(at).toISOString()}`}>
      {(above === undefined || exact(above).slice(0, 10) !== day) && <span className="dim">{day} </span>}
      {time}
    </time>
  );
}

/** Who caused an event: the client that sent the command, the worker, or the engine itself. */
function Who({ e }: { e: JobEvent }) {
  if (!e.actor && !e.workerId) return <span className="dim">engine</span>;
  return (
    <>
      {e.actor}
      {e.actor && e.workerId && e.actor !== e.workerId && <span className="dim"> as </span>}
      {e.workerId && e.actor !== e.workerId && (isOfJob(e) ? <a href={href("worker", { ns: e.namespace, id: e.workerId })}>{e.workerId}</a> : e.workerId)}
    </>
  );
}

/** Reports whether an event belongs to a job. The worker_id of other events may be the name of a person. */
const isOfJob = (e: JobEvent) => !e.type.startsWith("step_");

/** Removes "=" from constraint keys that have no value. */
const keysOf = (text: string): string => text.replace(/=(?=,|$)/g, "");

/** Lists the events of a job, or of a run and the jobs of its steps, newest first. If live is set, the job or run has not ended. */
export function Events({ ns, id, steps, live }: { ns: string; id: string; steps?: boolean; live: boolean }) {
  const after = useParam("events");
  const { data, error, isPending } = useRead(["events", ns, id, after, live], (o) => jobEvents.listJobEvents({ namespace: ns, filter: `${steps ? "run_id" : "job_id"} = ${quoted(id)}`, pageSize: size, pageToken: after }, o), { every: after ? 0 : live ? 3000 : 15000, age: live ? 3 : 1, keep: true });
  if (isPending) return <Loading rows={3} />;
  if (error) return <ErrorBox error={error} />;
  if (!data?.events.length) return <Empty title="No events">The namespace does not keep job events (see its setting job_events), or they have expired.</Empty>;
  return (
    <>
      <Scroll label="events">
        <table className="stack">
          <thead>
            <tr>
              <th>Time</th>
              <th className="number">After</th>
              <th>Event</th>
              {steps && <th>Step</th>}
              <th className="number">Attempt</th>
              <th>Who</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {data.events.map((e, n) => (
              <tr key={String(e.eventId)}>
                <td>
                  <Clock at={timeOf(e)} above={n ? timeOf(data.events[n - 1]) : undefined} />
                </td>
                <td className="number dim" data-label={data.events[n + 1] && "after"} title="time since the previous event">
                  {data.events[n + 1] && `+${span(timeOf(e) - timeOf(data.events[n + 1]))}`}
                </td>
                <td>{e.to ? <NewStatus e={e} ofStep={!!steps && !!e.stepId && e.jobId === id} /> : <span>{e.type.replaceAll("_", " ")}</span>} {e.to && !e.type.endsWith("status_changed") && e.type !== e.to.toLowerCase() && <span className="dim">{e.type === "compensation_changed" ? "undo" : e.type.replaceAll("_", " ")}</span>}</td>
                {steps && <td>{e.stepId ? <code>{e.stepId}{e.index !== undefined && ` ${e.index}`}</code> : <span className="dim">the run</span>}</td>}
                <td className="number" data-label="attempt">{e.attempt || ""}</td>
                <td data-label="who">
                  <Who e={e} />
                </td>
                <td className="what">
                  {e.message.replace(/^needs .*/, keysOf)}
                  {e.metadata && Object.keys(e.metadata).length > 0 && <code className="dim"> {JSON.stringify(e.metadata)}</code>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <Pager name="events" after={after} next={data.nextPageToken} />
    </>
  );
}
