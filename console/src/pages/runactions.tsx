// Actions on a run or a step. Each explains what it does and asks for confirmation.
import type { JsonValue } from "@bufbuild/protobuf";
import { useState } from "react";
import { flows, useRead } from "../api";
import { evaluationFailed, inputOf, stepEnded } from "../flow";
import { durationMillis, span } from "../format";
import { CancelPolicy_Mode, RunStatus, StepStatus, type Run, type Step, type Template } from "../gen/progressor/v1/flow_pb";
import { useRequestKey } from "../keys";
import { go } from "../router";
import { JsonForm, startOf, type Filled, type Schema } from "../schema";
import { Confirm, Dialog, ErrorBox, Field, Loading } from "../ui";
import { plainValue, valueOf } from "../value";

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

/** The steps that run again in a retry, and whose input can be changed. */
function changeable(r: Run, t?: Template): Step[] {
  return r.steps.filter((s) => {
    const own = t?.steps.find((k) => k.stepId === s.stepId);
    const again = s.status === StepStatus.FAILED || s.status === StepStatus.CANCELLED || s.status === StepStatus.PENDING || s.compensationStatus === StepStatus.SUCCEEDED;
    return own && again && !own.forEach && own.action.case !== "wait" && own.action.case !== "delay";
  });
}

function Retry({ r, t, step, onClose }: Props & { step?: Step }) {
  const steps = changeable(r, t);
  const [newest, setNewest] = useState(false);
  const [chosen, setChosen] = useState(step && steps.some((s) => s.stepId === step.stepId) ? step.stepId : "");
  const [input, setInput] = useState<Filled>({ json: undefined });
  const own = steps.find((s) => s.stepId === chosen);
  const values = useRead(["values", r.namespace, r.runId, chosen, own ? stepEnded(own) : false], (o) => flows.listSteps({ namespace: r.namespace, runId: r.runId, stepId: chosen, pageSize: 1 }, o), { every: 0, enabled: Boolean(own?.valuesOmitted) });
  const known = own?.valuesOmitted ? values.data?.steps[0] : own;
  const template = t?.steps.find((s) => s.stepId === chosen);
  const begin = known && inputOf(known, r, template);
  const unevaluated = known && !known.input && template?.input !== undefined;
  return (
    <Confirm
      title={`Retry ${r.runId}?`}
      says="The run continues at the steps that did not succeed or were undone. Attempts and the timeout start again. Steps that succeeded keep their results."
      verb="Retry"
      disabled={Boolean(chosen && (input.wrong || input.json === undefined || JSON.stringify(input.json) === JSON.stringify(begin)))}
      run={() => flows.retryRun({ namespace: r.namespace, runId: r.runId, newestVersion: newest, inputs: chosen && input.json !== undefined ? [{ stepId: chosen, input: valueOf(input.json as JsonValue) }] : [] })}
      done={`${r.runId} continues.`}
      onClose={onClose}
    >
      {evaluationFailed(r) && (
        <div className="notice hold" role="note">
          An expression of the template failed. A retry evaluates it again with the same values. Correct the template and use its newest version, change the input of the step, or repeat the run with another payload.
        </div>
      )}
      <label className="check">
        <input type="checkbox" checked={newest} onChange={(e) => setNewest(e.target.checked)} />
        Use the newest version of the template (currently {r.templateVersion})
      </label>
      {steps.length > 0 && (
        <Field label="Change the input of a step">
          <select
            value={chosen}
            onChange={(e) => {
              setChosen(e.target.value);
              setInput({ json: undefined });
            }}
          >
            <option value="">no step</option>
            {steps.map((s) => (
              <option key={s.stepId} value={s.stepId}>
                {s.name || s.stepId}
              </option>
            ))}
          </select>
        </Field>
      )}
      {chosen && !known && <Loading rows={2} />}
      {chosen && known && (
        <>
          <p className="dim">
            {unevaluated ? "The step has no input yet. This is the input in the template: replace each expression with a value." : "Change the input, or choose no step."}
          </p>
          <JsonForm key={chosen} label={`Input of ${own?.name || chosen}`} value={begin} onChange={setInput} />
        </>
      )}
    </Confirm>
  );
}

function Repeat({ r, t, onClose }: Props) {
  const key = useRequestKey();
  const schema = t?.payloadSchema as Schema | undefined;
  const [begin] = useState(() => r.payload && plainValue(r.payload));
  // Unset until the form is changed: the payload of the run may be hidden from this user.
  const [payload, setPayload] = useState<Filled>();
  return (
    <Confirm
      title={`Repeat ${r.runId} with changes?`}
      says="Starts a new run with the payload of this run or your changes to it, the same scope and metadata, and the newest version of the template. This run does not change."
      verb="Start new run"
      disabled={Boolean(payload?.wrong)}
      run={async () => {
        const changed = payload && ((payload.json ?? null) as JsonValue);
        try {
          const { run } = await flows.repeatRun({ namespace: r.namespace, runId: r.runId, idempotencyKey: key.of(changed), payload: changed === undefined ? undefined : valueOf(changed) });
          key.answered();
          go("run", { ns: r.namespace, id: run?.runId });
        } catch (failure) {
          key.answered(failure);
          throw failure;
        }
      }}
      done="A new run was started."
      onClose={onClose}
    >
      <JsonForm schema={schema} label="Payload" value={begin} onChange={setPayload} />
    </Confirm>
  );
}

/** Repeats a run. The form follows the newest version of the template, which may not be the version of the run. */
function RepeatNewest({ r, onClose }: Props) {
  const newest = useRead(["template", r.namespace, r.templateType, 0], (o) => flows.getTemplate({ namespace: r.namespace, type: r.templateType }, o), { every: 0 });
  if (newest.data?.template) return <Repeat r={r} t={newest.data.template} onClose={onClose} />;
  return (
    <Dialog title={`Repeat ${r.runId} with changes?`} onClose={onClose}>
      {newest.error ? <ErrorBox error={newest.error} /> : <Loading rows={3} />}
    </Dialog>
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
      return <Retry {...rest} step={step} />;
    case "repeat":
      return <RepeatNewest {...rest} />;
    case "skip":
      return step ? <Skip {...rest} step={step} /> : null;
  }
}
