// The events of a job or a run: one line for each status change and command.
import { jobEvents, useRead } from "../api";
import { quoted } from "../flow";
import { exact, millis } from "../format";
import type { JobEvent } from "../gen/progressor/v1/flow_pb";
import { Pager } from "../paging";
import { useParam } from "../router";
import { jobLook, Mark, runLook, stepLook, type Look } from "../status";
import { Empty, ErrorBox, Loading, Scroll, When } from "../ui";

const size = 50;

/** Shows the new status. ofStep: the run reports the status of one of its steps. */
export function Became({ e, ofStep }: { e: JobEvent; ofStep: boolean }) {
  const looks = ofStep ? stepLook : { ...jobLook, ...runLook, ACTIVE: { name: "Active", tone: "run", shape: "ring" } as Look };
  const look: Look = looks[e.to.toUpperCase()] ?? { name: e.to, tone: "plain", shape: "ring" };
  return (
    <span className={`status tone-${look.tone}`}>
      <Mark look={look} />
      {look.name}
    </span>
  );
}

/** Shortens the keys of constraints: a key without a value applies to all matching jobs. */
const keysOf = (text: string): string => text.replace(/=(?=,|$)/g, "");

/** Lists the events of a job, or of a run and the jobs of its steps, newest first. live: it has not ended. */
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
              <th>When</th>
              <th>Event</th>
              {steps && <th>Step</th>}
              <th className="number">Attempt</th>
              <th>By</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {data.events.map((e) => (
              <tr key={String(e.eventId)}>
                <td title={exact(millis(e.createdTime) ?? 0)}>
                  <When at={millis(e.createdTime)} />
                </td>
                <td>{e.to ? <Became e={e} ofStep={!!steps && !!e.stepId && e.jobId === id} /> : <span>{e.type.replaceAll("_", " ")}</span>} {e.to && !e.type.endsWith("status_changed") && <span className="dim">{e.type.replaceAll("_", " ")}</span>}</td>
                {steps && <td>{e.stepId ? <code>{e.stepId}{e.index !== undefined && ` ${e.index}`}</code> : <span className="dim">the run</span>}</td>}
                <td className="number" data-label="attempt">{e.attempt || ""}</td>
                <td data-label="by">{e.actor || e.workerId}</td>
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
