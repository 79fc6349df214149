// Actions on a run or a step. Each explains what it does and asks for confirmation.
import type { JsonValue } from "@bufbuild/protobuf";
import { useRef, useState } from "react";
import { flows } from "../api";
import { durationMillis, span } from "../format";
import { CancelPolicy_Mode, RunStatus, type Run, type Step, type Template } from "../gen/progressor/v1/flow_pb";
import { newKey } from "../keys";
import { go } from "../router";
import { JsonForm, startOf, type Filled, type Schema } from "../schema";
import { Confirm, Field } from "../ui";
import { valueOf } from "../value";

export type RunAction = "cancel" | "retry" | "repeat" | "skip";

interface Props {
  r: Run;
  t?: Template;
  onClose: () => void;
}

function Cancel({ r, t, onClose }: Props) {
  const [reason, setReason] = useState("");
  const grace = span(durationMillis(t?.cancelPolicy?.grace) ?? 30_000);
  const atOnce = r.status === RunStatus.PENDING || r.status === RunStatus.QUEUED;
  const immediate = t?.cancelPolicy?.mode === CancelPolicy_Mode.IMMEDIATE;
  const undone = t?.steps.some((s) => s.compensation);
  return (
    <Confirm
      title={`Cancel ${r.runId}?`}
      says={
        <>
          {atOnce
            ? "No step is running, so the run ends at once."
            : immediate
              ? "Running steps are stopped at once."
              : `No more steps start. The workers of running steps receive the cancel with their next heartbeat, and have ${grace} to stop. A step that is not cancelable finishes first.`}{" "}
          {undone && "Then the completed steps are undone, last one first."} You can retry the run later.
        </>
      }
      verb="Cancel the run"
      bad
      run={() => flows.cancelRun({ namespace: r.namespace, runId: r.runId, reason })}
      done={`${r.runId} will be cancelled.`}
      onClose={onClose}
    >
      <Field label="Reason" hint="Shown with the run.">
        <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
      </Field>
    </Confirm>
  );
}

function Retry({ r, onClose }: Props) {
  const [newest, setNewest] = useState(false);
  return (
    <Confirm
      title={`Retry ${r.runId}?`}
      says="The run continues at the steps that did not succeed or were undone. Attempts and the timeout start again. Steps that succeeded keep their results. Fix the cause first."
      verb="Retry"
      run={() => flows.retryRun({ namespace: r.namespace, runId: r.runId, newestVersion: newest })}
      done={`${r.runId} continues.`}
      onClose={onClose}
    >
      <label className="check">
        <input type="checkbox" checked={newest} onChange={(e) => setNewest(e.target.checked)} />
        Use the newest version of the template (currently {r.templateVersion})
      </label>
    </Confirm>
  );
}

function Repeat({ r, onClose }: Props) {
  const key = useRef(newKey());
  return (
    <Confirm
      title={`Repeat ${r.runId}?`}
      says="Starts a new run with the same payload, scope and metadata, and the newest version of the template. This run does not change."
      verb="Start new run"
      run={async () => {
        const { run } = await flows.repeatRun({ namespace: r.namespace, runId: r.runId, idempotencyKey: key.current });
        go("run", { ns: r.namespace, id: run?.runId });
      }}
      done="A new run was started."
      onClose={onClose}
    />
  );
}

function Skip({ r, t, step, onClose }: Props & { step: Step }) {
  const own = t?.steps.find((s) => s.stepId === step.stepId);
  const schema = own?.action.case === "wait" ? (own.action.value.resultSchema as Schema | undefined) : undefined;
  const [begin] = useState(() => startOf(schema));
  const [result, setResult] = useState<Filled>(begin);
  const [reason, setReason] = useState("");
  const name = step.index === undefined ? step.stepId : `item ${step.index} of ${step.stepId}`;
  return (
    <Confirm
      title={`Skip ${name}?`}
      says="The step ends with this result. Steps that depend on it continue as if it had succeeded. A running job of the step is cancelled."
      verb="Skip"
      bad
      disabled={Boolean(result.wrong)}
      run={() => flows.skipStep({ namespace: r.namespace, runId: r.runId, stepId: step.stepId, index: step.index, reason, result: result.json === undefined ? undefined : valueOf(result.json as JsonValue) })}
      done={`${name} is skipped.`}
      onClose={onClose}
    >
      <Field label="Reason" hint="Shown with the run.">
        <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
      </Field>
      <JsonForm schema={schema} label="Result" value={begin.json} onChange={setResult} />
    </Confirm>
  );
}

export function RunDialog({ action, step, ...rest }: Props & { action: RunAction; step?: Step }) {
  switch (action) {
    case "cancel":
      return <Cancel {...rest} />;
    case "retry":
      return <Retry {...rest} />;
    case "repeat":
      return <Repeat {...rest} />;
    case "skip":
      return step ? <Skip {...rest} step={step} /> : null;
  }
}
