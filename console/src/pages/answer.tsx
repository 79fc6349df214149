// The page of a wait: the question, a form for the answer, and buttons to approve or reject.
import type { JsonValue } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { useMemo, useRef, useState } from "react";
import { flows, refresh, useMe } from "../api";
import { Form } from "../form";
import type { OpenWait } from "../gen/progressor/v1/flow_pb";
import { WaitAction_Kind } from "../gen/progressor/v1/wait_pb";
import { FailureSchema } from "../gen/progressor/v1/process_pb";
import { brief, bytesOf, Payload } from "../payload";
import { JsonForm, startOf, type Filled, type Schema } from "../schema";
import { Button, Confirm, Dialog, ErrorBox, Field, Fields, useToast } from "../ui";
import { plainValue, valueOf } from "../value";

export const stepName = (w: { stepId: string; index?: number }) => (w.index === undefined ? w.stepId : `${w.stepId} ${w.index}`);
export const keyOfWait = (w: OpenWait) => `${w.namespace}/${w.runId}/${w.stepId}/${w.index ?? ""}`;
export const titleOf = (w: OpenWait) => w.title || stepName(w);

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** One value as text: nested objects as name: value. */
function text(v: unknown): string {
  if (Array.isArray(v)) return v.map((each) => (isObject(each) ? `(${text(each)})` : text(each))).join(", ");
  if (isObject(v)) return Object.entries(v).map(([k, each]) => `${k}: ${isObject(each) ? `(${text(each)})` : text(each)}`).join(", ");
  return v === null ? "–" : typeof v === "string" ? v : JSON.stringify(v);
}

/** The input of a wait in one line. */
export function inputLine(w: OpenWait): string {
  const input = w.input && plainValue(w.input);
  return input === undefined || input === null ? "" : text(input).slice(0, 300);
}

/** What a wait asks about: the fields of its input, and all of it as JSON. */
function WaitInput({ w }: { w: OpenWait }) {
  if (!w.input) return null;
  const input = plainValue(w.input);
  const bytes = bytesOf(JSON.stringify(input));
  const list = isObject(input) ? Object.entries(input) : [];
  return (
    <div className="wait-input">
      {list.length > 0 ? <Fields list={list.slice(0, 24).map(([name, v]) => [name, text(v).slice(0, 500)])} /> : <p>{brief(bytes, 500)}</p>}
      <details>
        <summary>All as JSON</summary>
        <Payload bytes={bytes} name="input" />
      </details>
    </div>
  );
}

export const nameKey = "progressor.name";
const decides = /^(approve|approved|accept|accepted|agree|agreed|allow|allowed|confirm|confirmed|ok)$/i;

/** The part of an answer that is yes or no: a property, or the answer itself if there is no name. */
interface Decision {
  name?: string;
  canReject: boolean;
}

function decisionOf(schema?: Schema): Decision | undefined {
  if (schema?.type === "boolean" || schema?.const === true) return { canReject: !("const" in schema) };
  const properties = isObject(schema?.properties) ? schema.properties : {};
  const yesNo = Object.entries(properties).filter(([, s]) => isObject(s) && (s.type === "boolean" || s.const === true));
  const found = yesNo.find(([name]) => decides.test(name));
  return found && { name: found[0], canReject: !isObject(found[1]) || !("const" in found[1]) };
}

/** The schema of the rest of an answer. */
function without(schema: Schema | undefined, { name }: Decision): Schema | undefined {
  if (!schema || name === undefined) return undefined;
  const properties = Object.fromEntries(Object.entries(isObject(schema.properties) ? schema.properties : {}).filter(([k]) => k !== name));
  return { ...schema, properties, required: Array.isArray(schema.required) ? schema.required.filter((r) => r !== name) : undefined };
}

/** The name under which answers are recorded if the engine does not authenticate, and how it is changed. */
function useOwnName(required: boolean): { known: string; name: string; field: React.ReactNode; keep: () => void; ask: () => void } {
  const known = useMe()?.principal ?? "";
  const [typed, setTyped] = useState(() => localStorage.getItem(nameKey) ?? "");
  const [asked, setAsked] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const ask = () => {
    setAsked(true);
    input.current?.focus();
  };
  const field = known ? null : (
    <Field label="Your name" name="worker_id" required={required} error={asked && !typed.trim() && "is required"} hint="Recorded with the answer, because this engine does not know who its clients are.">
      <input ref={input} value={typed} maxLength={100} onChange={(e) => setTyped(e.target.value)} autoComplete="name" />
    </Field>
  );
  return { known, name: known || typed.trim(), field, ask, keep: () => known || localStorage.setItem(nameKey, typed.trim()) };
}

/** Says that a user works on a wait, so that others leave it alone. */
export function ClaimDialog({ w, onClose }: { w: OpenWait; onClose: () => void }) {
  const own = useOwnName(true);
  return (
    <Confirm
      title={`Claim ${titleOf(w)}?`}
      says={w.workerId ? `${w.workerId} works on it. It becomes yours.` : "The inbox shows others that you work on it. They can still answer it."}
      verb="Claim"
      run={async () => {
        await flows.reportStep({ namespace: w.namespace, runId: w.runId, stepId: w.stepId, index: w.index, token: w.token, workerId: own.name });
        own.keep();
      }}
      done={`You have claimed ${titleOf(w)}.`}
      onClose={onClose}
    >
      {own.field}
    </Confirm>
  );
}

type Outcome = "result" | "failure" | "cancelled";

const says: Record<Outcome, string> = {
  result: "Completes the step with this result. Steps that depend on it continue.",
  failure: "Fails the step. The template decides whether the run is retried, undone or failed. A function that asked this gets an error.",
  cancelled: "Confirms the cancel of the run: no work was done in this step.",
};

/** Completes a wait with a result for its schema, or with a failure. */
export function AnswerDialog({ w, onClose }: { w: OpenWait; onClose: () => void }) {
  const schema = w.resultSchema as Schema | undefined;
  const decision = useMemo(() => decisionOf(schema), [schema]);
  const rest = useMemo(() => (decision ? without(schema, decision) : schema), [schema, decision]);
  const begin = useMemo(() => startOf(rest), [rest]);
  const asks = !decision || Object.keys((rest?.properties as object | undefined) ?? {}).length > 0;
  const [outcome, setOutcome] = useState<Outcome>(w.cancelRequested ? "cancelled" : "result");
  const [result, setResult] = useState<Filled>(begin);
  const [failure, setFailure] = useState({ reason: "", message: "" });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const outside = w.kind !== WaitAction_Kind.HUMAN;
  const own = useOwnName(!outside);
  const tell = useToast();
  const send = async (approved?: boolean) => {
    if (!own.name && !outside) return own.ask();
    setBusy(true);
    setError(undefined);
    const rest = result.json ?? null;
    const json = approved === undefined ? rest : decision?.name === undefined ? approved : { ...(isObject(rest) ? rest : {}), [decision.name]: approved };
    try {
      await flows.completeStep({
        namespace: w.namespace,
        runId: w.runId,
        stepId: w.stepId,
        index: w.index,
        token: w.token,
        workerId: own.known ? "" : own.name || "console", // the engine records the client that it knows
        outcome:
          outcome === "result"
            ? { case: "result", value: valueOf(json as JsonValue) }
            : outcome === "failure"
              ? { case: "failure", value: create(FailureSchema, { reason: failure.reason.trim(), message: failure.message.trim() }) }
              : { case: "cancelled", value: {} },
      });
      own.keep();
      refresh();
      tell(`${stepName(w)} of ${w.runId} is ${approved === undefined ? "answered" : approved ? "approved" : "rejected"}.`);
      onClose();
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  const reject = () => {
    if (decision?.canReject) return void send(false);
    setOutcome("failure"); // the schema allows only the answer yes
    setFailure({ reason: "rejected", message: "" });
  };
  const chooses = decision !== undefined && outcome === "result";
  return (
    <Dialog title={w.title || `Answer ${stepName(w)}`} onClose={onClose}>
      <Form onSubmit={() => send(chooses ? true : undefined)} error={error}>
        <p className="says">
          {says[outcome]} {outside && outcome === "result" && "An external worker is expected to complete this step. Its later response will be rejected."}
        </p>
        {w.workerId && w.workerId !== own.name && <p className="notice hold">{w.workerId} works on this.</p>}
        <WaitInput w={w} />
        <div className="chips" role="group" aria-label="outcome">
          {(
            [
              ["result", "Done"],
              ["failure", "Failed"],
              ["cancelled", "Cancelled"],
            ] as [Outcome, string][]
          )
            .filter(([o]) => (w.cancelRequested ? o === "cancelled" : o !== "cancelled"))
            .map(([o, name]) => (
              <button key={o} type="button" className="chip" aria-pressed={o === outcome} onClick={() => setOutcome(o)}>
                {name}
              </button>
            ))}
        </div>
        {outcome === "result" && asks && <JsonForm schema={rest} label="Result" value={begin.json} onChange={setResult} />}
        {outcome === "failure" && (
          <>
            <Field label="Reason" name="failure.reason" required hint="An identifier for programs, such as rejected.">
              <input value={failure.reason} onChange={(e) => setFailure({ ...failure, reason: e.target.value })} autoComplete="off" />
            </Field>
            <Field label="Message" name="failure.message">
              <input value={failure.message} onChange={(e) => setFailure({ ...failure, message: e.target.value })} autoComplete="off" />
            </Field>
          </>
        )}
        {own.field}
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          {chooses && (
            <Button kind="bad" disabled={busy || Boolean(decision.canReject && result.wrong)} onClick={reject}>
              {decision.canReject ? "Reject" : "Reject…"}
            </Button>
          )}
          <button type="submit" className={"button " + (outcome === "failure" ? "bad" : "main")} disabled={busy}>
            {busy ? "…" : outcome === "failure" ? "Fail the step" : outcome === "cancelled" ? "Acknowledge" : chooses ? "Approve" : "Answer"}
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}
