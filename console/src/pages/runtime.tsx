// The tab of a run that shows its steps over time.
import { Code, ConnectError, type CallOptions } from "@connectrpc/connect";
import { useCallback } from "react";
import { flows, jobEvents, useRead } from "../api";
import { quoted, runEnded } from "../flow";
import { millis } from "../format";
import { Gantt, type Lane } from "../gantt";
import type { Run, Step, StepTemplate } from "../gen/progressor/v1/flow_pb";
import { change, href, useParam, useRoute } from "../router";
import { Card, ErrorBox, Loading } from "../ui";

const maxEvents = 1000;
const maxItems = 200;
const maxNamespaces = 5; // in addition to that of the run

/** Returns the namespace of the job of each step whose job is in another namespace than the run. */
function elsewhere(run: Run, ofStep: (s: Step) => StepTemplate | undefined): Map<string, string> {
  return new Map(
    run.steps.flatMap((s): [string, string][] => {
      const action = ofStep(s)?.action;
      return action?.case === "job" && action.value.namespace && action.value.namespace !== run.namespace ? [[s.stepId, action.value.namespace]] : [];
    }),
  );
}

/** Reads the newest events of a run, including those of its jobs in other namespaces. The events of a job are in the namespace of the job. */
async function readEvents(run: Run, spaces: string[], of: Map<string, string>, o: CallOptions) {
  const read = (namespace: string) => jobEvents.listJobEvents({ namespace, filter: `run_id = ${quoted(run.runId)}`, pageSize: maxEvents }, o);
  const [own, ...others] = await Promise.all([
    read(run.namespace),
    ...spaces.map((namespace) =>
      read(namespace).catch((error: unknown) => {
        // Users who may not read the events in the other namespace still see the last attempts.
        if (ConnectError.from(error).code === Code.PermissionDenied || ConnectError.from(error).code === Code.NotFound) return undefined;
        throw error;
      }),
    ),
  ]);
  // A run in the other namespace may have the same ID.
  const jobs = others.flatMap((page) => page?.events.filter((e) => e.jobId !== run.runId && of.get(e.stepId) === e.namespace) ?? []);
  return { own: own.events.length, events: [...own.events, ...jobs], more: [own, ...others].some((page) => page?.nextPageToken), unread: spaces.filter((_, n) => !others[n]) };
}

export function RunTime({ run, ofStep }: { run: Run; ofStep: (s: Step) => StepTemplate | undefined }) {
  const { params } = useRoute();
  const opened = useParam("open");
  const [ns, id, live] = [run.namespace, run.runId, !runEnded(run)];
  const jobsIn = elsewhere(run, ofStep);
  const spaces = [...new Set(jobsIn.values())].sort();
  const asked = spaces.slice(0, maxNamespaces);
  const { data, error, isPending } = useRead(["gantt", ns, id, live, asked], (o) => readEvents(run, asked, jobsIn, o), { every: live ? 3000 : 15000, age: live ? 3 : 1 });
  const items = useRead(["gantt items", ns, id, opened, live], (o) => flows.listSteps({ namespace: ns, runId: id, stepId: opened, pageSize: maxItems }, o), { every: live ? 3000 : 15000, age: 3, enabled: opened !== "" });
  const template = useCallback((stepId: string) => run.steps.filter((s) => s.stepId === stepId).map(ofStep)[0], [run, ofStep]);
  if (isPending) return <Loading rows={4} />;
  const keep = Object.fromEntries(params);
  const unread = [...(data?.unread ?? []), ...spaces.slice(maxNamespaces)];
  const lanes = run.steps.flatMap((step): Lane[] => {
    const to = href("run", { ...keep, step: step.stepId });
    const own: Lane = { step, name: step.name || step.stepId, to, items: Number(Object.values(step.itemsByStatus).reduce((a, b) => a + b, 0n)), item: false };
    if (step.stepId !== opened) return [own];
    const rows = items.data?.steps.filter((i) => i.index !== undefined) ?? [];
    return [own, ...rows.map((i) => ({ step: i, name: `item ${i.index}`, to, items: 0, item: true }))];
  });
  return (
    <Card>
      <ErrorBox error={error ?? items.error} />
      <Gantt lanes={lanes} events={data?.events ?? []} ofStep={template} from={millis(run.createdTime) ?? 0} to={millis(run.finishedTime)} label={`steps of ${id} over time`} opened={opened} onOpen={(open) => change({ open }, "replace")} />
      {data?.more && <p className="dim">Attempts before the newest 1,000 events of the run in a namespace are not shown.</p>}
      {unread.length > 0 && <p className="dim">Only the last attempts of the jobs in {unread.join(", ")} are shown.</p>}
      {items.data?.nextPageToken && <p className="dim">Only the first {maxItems} items are shown.</p>}
      {data?.own === 0 && <p className="dim">The namespace does not keep job events, so only the last attempt of each step is shown.</p>}
    </Card>
  );
}
