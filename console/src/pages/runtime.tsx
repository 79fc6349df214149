// The tab of a run that shows its steps over time.
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

export function RunTime({ run, ofStep }: { run: Run; ofStep: (s: Step) => StepTemplate | undefined }) {
  const { params } = useRoute();
  const opened = useParam("open");
  const [ns, id, live] = [run.namespace, run.runId, !runEnded(run)];
  const { data, error, isPending } = useRead(["gantt", ns, id, live], (o) => jobEvents.listJobEvents({ namespace: ns, filter: `run_id = ${quoted(id)}`, pageSize: maxEvents }, o), { every: live ? 3000 : 15000, age: live ? 3 : 1 });
  const items = useRead(["gantt items", ns, id, opened, live], (o) => flows.listSteps({ namespace: ns, runId: id, stepId: opened, pageSize: maxItems }, o), { every: live ? 3000 : 15000, age: 3, enabled: opened !== "" });
  const template = useCallback((stepId: string) => run.steps.filter((s) => s.stepId === stepId).map(ofStep)[0], [run, ofStep]);
  if (isPending) return <Loading rows={4} />;
  const keep = Object.fromEntries(params);
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
      {data?.nextPageToken && <p className="dim">Attempts before the newest 1,000 events of the run are not shown.</p>}
      {items.data?.nextPageToken && <p className="dim">Only the first {maxItems} items are shown.</p>}
      {data && data.events.length === 0 && <p className="dim">The namespace does not keep job events, so only the last attempt of each step is shown.</p>}
    </Card>
  );
}
