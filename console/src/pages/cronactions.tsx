// Actions on a cron, on its page and in the list. Each explains what it does and asks for confirmation.
import { useState } from "react";
import { crons, useRead } from "../api";
import { exact, millis, plural, timestamp } from "../format";
import { OverlapAction, type Cron } from "../gen/progressor/v1/cron_pb";
import { methods } from "../may";
import { go } from "../router";
import { targetWords } from "../target";
import { Confirm, ErrorBox, Field } from "../ui";
import { EditCron, misfires } from "./cronedit";

export const cronNeeds = { edit: methods.updateCron, trigger: methods.triggerCron, pause: methods.pauseCron, resume: methods.resumeCron, backfill: methods.backfillCron, delete: methods.deleteCron };

export type CronAction = "edit" | "trigger" | "pause" | "resume" | "backfill" | "delete";

/** Returns the text of a policy in the form. The first entry of a list is the default. */
export const wordsOf = <V,>(list: [V, string][], value?: V): string => (list.find(([v]) => v === value) ?? list[0])?.[1] ?? "";
export const overlapNames: [OverlapAction, string][] = [
  [OverlapAction.UNSPECIFIED, "follow the concurrency policy (allow)"],
  [OverlapAction.SKIP, "skip this fire"],
  [OverlapAction.CANCEL_PREV, "cancel the previous run, start at once"],
  [OverlapAction.PARALLEL, "start in parallel"],
  [OverlapAction.BUFFER_ONE, "queue one fire until it ends"],
];

/** Explains an action on a cron, and asks for confirmation. */
export function CronDialog({ c, action, onClose }: { c: Cron; action: CronAction; onClose: () => void }) {
  const key = { namespace: c.namespace, cronId: c.cronId };
  const [note, setNote] = useState("");
  const [catchUp, setCatchUp] = useState(false);
  const [overlap, setOverlap] = useState(OverlapAction.UNSPECIFIED);
  const [atATime, setAtATime] = useState("1");
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const zone = c.spec?.timezone || "UTC";
  const times = [Date.parse(from), Date.parse(to)] as const;
  const ready = times[0] < times[1];
  const would = useRead(["backfill", c.namespace, c.cronId, from, to], (o) => crons.previewCron({ of: c.spec ? { case: "spec", value: c.spec } : { case: "cron", value: key }, fromTime: timestamp(times[0]), toTime: timestamp(times[1]), limit: 1000 }, o), { enabled: action === "backfill" && ready, every: 0 });
  const noteField = (
    <Field label="Note" name="note" hint="Shown with the cron.">
      <input autoFocus value={note} onChange={(e) => setNote(e.target.value)} />
    </Field>
  );
  const overlapField = (
    <Field label="If the previous run is still running">
      <select value={overlap} onChange={(e) => setOverlap(Number(e.target.value))}>
        {overlapNames.map(([v, name]) => (
          <option key={v} value={v}>
            {v === OverlapAction.UNSPECIFIED ? "use the policy of the cron" : name}
          </option>
        ))}
      </select>
    </Field>
  );
  const atATimeField = (
    <Field label="Runs at the same time" hint="The fire times run in order." error={!(Number(atATime) >= 1 && Number(atATime) <= 1000) && "must be 1 to 1000"}>
      <input type="number" min="1" max="1000" value={atATime} onChange={(e) => setAtATime(e.target.value)} />
    </Field>
  );
  switch (action) {
    case "edit":
      return <EditCron ns={c.namespace} cron={c} onClose={onClose} />;
    case "trigger":
      return (
        <Confirm title={`Trigger ${c.cronId}?`} says={`A run starts now, in addition to the calendar (${targetWords(c)}). It is recorded as manual.`} verb="Trigger" run={() => crons.triggerCron({ ...key, overlapAction: overlap })} done="The cron is triggered." onClose={onClose}>
          {overlapField}
        </Confirm>
      );
    case "pause":
      return (
        <Confirm title={`Pause ${c.cronId}?`} says="Nothing fires until the cron is resumed. Current runs continue. Fire times during the pause wait for the resume." verb="Pause" run={() => crons.pauseCron({ ...key, note })} done="The cron is paused." onClose={onClose}>
          {noteField}
        </Confirm>
      );
    case "resume":
      return (
        <Confirm title={`Resume ${c.cronId}?`} says={c.waitingFires > 0n ? `${plural(c.waitingFires, "fire time")}${c.waitingFires >= 1000n ? " or more" : ""} came due during the pause. They are skipped, unless you catch up. Then the policy for missed fire times decides (${wordsOf(misfires, c.policy?.misfirePolicy)}).` : "It fires again at its next fire time."} verb="Resume" run={() => crons.resumeCron({ ...key, note, catchUp })} done="The cron is resumed." onClose={onClose}>
          {noteField}
          {c.waitingFires > 0n && (
            <label className="check">
              <input type="checkbox" checked={catchUp} onChange={(e) => setCatchUp(e.target.checked)} /> Catch up on the fire times of the pause
            </label>
          )}
        </Confirm>
      );
    case "backfill":
      return (
        <Confirm
          title={`Backfill ${c.cronId}?`}
          says="The fire times in this period run in order, in addition to the calendar. Those that are already recorded do not change."
          verb={would.data && ready ? `Backfill ${would.data.fireTimes.length === 1000 ? "1,000 or more" : plural(would.data.fireTimes.length, "fire time")}` : "Backfill"}
          disabled={!ready || !would.data?.fireTimes.length || !(Number(atATime) >= 1 && Number(atATime) <= 1000)}
          run={() => crons.backfillCron({ ...key, fromTime: timestamp(times[0]), toTime: timestamp(times[1]), maxConcurrency: Number(atATime) })}
          done="The backfill was requested. The ledger shows the runs."
          onClose={onClose}
        >
          <div className="grid2">
            <Field label="From" hint="Your browser's time, inclusive.">
              <input type="datetime-local" step="1" value={from} onChange={(e) => setFrom(e.target.value)} />
            </Field>
            <Field label="To" hint="Exclusive." error={times[0] >= times[1] && "must be after From"}>
              <input type="datetime-local" step="1" value={to} onChange={(e) => setTo(e.target.value)} />
            </Field>
          </div>
          {atATimeField}
          <ErrorBox error={would.error} />
          {would.data && ready && (
            <p className="dim">
              {would.data.fireTimes.length === 0 ? "There are no fire times in this period." : `First ${exact(millis(would.data.fireTimes[0]) ?? 0, false)}, time zone of the cron: ${zone}.`}
            </p>
          )}
        </Confirm>
      );
    case "delete":
      return (
        <Confirm
          title={`Delete ${c.cronId}?`}
          says="The cron and its ledger are deleted. Current runs continue. This cannot be undone."
          verb="Delete permanently"
          bad
          typed={c.cronId}
          run={async () => {
            await crons.deleteCron(key);
            go("crons", { ns: c.namespace });
          }}
          done={`${c.cronId} is deleted.`}
          onClose={onClose}
        />
      );
  }
}
