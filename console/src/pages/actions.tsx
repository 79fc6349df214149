// Actions on a process. Each explains what it does and asks for confirmation.
import type { JsonObject } from "@bufbuild/protobuf";
import { useState } from "react";
import { jobs, processes, refresh, trouble } from "../api";
import { Form } from "../form";
import { duration, parseSpan } from "../format";
import { ProcessStatus, Wait, type Process } from "../gen/progressor/v1/process_pb";
import { newKey, useRequestKey } from "../keys";
import { methods } from "../may";
import { bytesOf, Payload, PayloadInput } from "../payload";
import { go } from "../router";
import { Button, Confirm, Dialog, ErrorBox, Field, useToast } from "../ui";
import { exactJSON } from "../value";

export type Action = "call" | "repair" | "simple" | "retry" | "suspend" | "resume" | "cancel" | "end" | "remove";

export interface Offered {
  action: Action;
  name: string;
  bad?: boolean;
  main?: boolean;
}

/** The methods of the actions. */
export const actionNeeds = { call: methods.call, repair: methods.repair, simple: methods.repair, retry: methods.retryJob, suspend: methods.suspendProcess, resume: methods.resumeProcess, cancel: methods.cancelProcess, end: methods.cancelJob, remove: methods.removeProcess };

/** The actions that bring a process out of ERROR. */
export const repairs = (o: Offered) => o.action === "simple" || o.action === "repair" || o.action === "retry";

/** The actions on a job. A job cannot be called or repaired, but it can be retried. */
function ofJob(p: Process): Offered[] {
  const retry: Offered = { action: "retry", name: "Retry…", main: true };
  const cancel: Offered = { action: "end", name: "Cancel…", bad: true };
  const remove: Offered = { action: "remove", name: "Remove…", bad: true };
  switch (p.status) {
    case ProcessStatus.ERROR:
    case ProcessStatus.CANCELLED:
      return [retry, remove];
    case ProcessStatus.COMPLETED:
      return [remove];
    case ProcessStatus.SUSPENDED:
      return [{ action: "resume", name: "Resume…", main: true }, cancel, remove];
    default:
      return [{ action: "suspend", name: "Suspend…" }, cancel, remove];
  }
}

/** The actions that the kind and status of a process allow, most likely first. The engine's own processes have none. */
export function offered(p: Process): Offered[] {
  if (p.processId.startsWith("~")) return [];
  if (p.kind === "job") return ofJob(p);
  const repair: Offered[] = [
    { action: "simple", name: "Repair…", main: true },
    { action: "repair", name: "Repair by processor…" },
  ];
  const cancel: Offered = { action: "cancel", name: "Cancel…", bad: true };
  const remove: Offered = { action: "remove", name: "Remove…", bad: true };
  switch (p.status) {
    case ProcessStatus.ERROR:
      return [...repair, cancel, remove];
    case ProcessStatus.SUSPENDED:
      return [{ action: "resume", name: "Resume…", main: true }, cancel, remove];
    case ProcessStatus.COMPLETED:
    case ProcessStatus.CANCELLED:
      return [remove];
    default:
      return [{ action: "call", name: "Call…" }, { action: "suspend", name: "Suspend…" }, cancel, remove];
  }
}

interface Props {
  p: Process;
  onClose: () => void;
}

function WithReason({ p, onClose, action }: Props & { action: "suspend" | "cancel" }) {
  const [reason, setReason] = useState("");
  const [grace, setGrace] = useState("30s");
  const key = { namespace: p.namespace, processId: p.processId };
  const ms = parseSpan(grace || "0s");
  const atOnce = p.status === ProcessStatus.ERROR || p.status === ProcessStatus.SUSPENDED;
  if (action === "suspend")
    return (
      <Confirm
        title={`Suspend ${p.processId}?`}
        says="A running task finishes. No other task starts until the process is resumed: calls are refused, and timers that become due wait."
        verb="Suspend"
        run={() => processes.suspendProcess({ ...key, reason })}
        done={`${p.processId} is suspended.`}
        onClose={onClose}
      >
        <Field label="Reason" name="reason" hint="Shown with the process.">
          <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
        </Field>
      </Confirm>
    );
  return (
    <Confirm
      title={`Cancel ${p.processId}?`}
      says={
        atOnce
          ? "The process becomes CANCELLED at once and permanently. Waiting calls fail, and its timers are dropped. Its history is kept."
          : "The processor can clean up, before all waiting tasks. After the grace period, the engine cancels the process without it. This is permanent: its history is kept, but nothing runs any more."
      }
      verb="Cancel the process"
      bad
      disabled={ms === undefined}
      run={() => processes.cancelProcess({ ...key, reason, grace: duration(ms ?? 0) })}
      done={atOnce ? `${p.processId} is cancelled.` : `${p.processId} will be cancelled.`}
      onClose={onClose}
    >
      <Field label="Reason" name="reason">
        <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
      </Field>
      {!atOnce && (
        <Field label="Grace period" hint="How long the processor may take. With 0s, it is not called." error={ms === undefined && "a duration, such as 30s or 5m"}>
          <input value={grace} onChange={(e) => setGrace(e.target.value)} />
        </Field>
      )}
    </Confirm>
  );
}

/** Sends bytes to the processor and shows its response. */
function Send({ p, onClose, repair }: Props & { repair: boolean }) {
  const [args, setArgs] = useState("");
  const [accepted, setAccepted] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [answer, setAnswer] = useState<Uint8Array>();
  const key = useRequestKey();
  const send = async () => {
    setBusy(true);
    setError(undefined);
    setAnswer(undefined);
    const request = { namespace: p.namespace, processId: p.processId, idempotencyKey: key.of(args, accepted), wait: accepted ? Wait.ACCEPTED : Wait.COMPLETED, timeout: duration(60_000) };
    try {
      const { response } = repair ? await processes.repair({ ...request, how: { case: "processor", value: { args: bytesOf(args) } } }) : await processes.call({ ...request, args: bytesOf(args) });
      setAnswer(response);
      key.answered(); // the next send is a new request
    } catch (failure) {
      setError(failure);
      key.answered(failure);
    }
    setBusy(false);
    refresh();
  };
  const rejection = error ? trouble(error).detail?.rejection : undefined;
  return (
    <Dialog title={repair ? `Repair ${p.processId} by its processor` : `Call ${p.processId}`} onClose={onClose}>
      <Form onSubmit={send} error={error}>
        <p className="says">
          {repair
            ? "Runs a REPAIR task: the processor gets these args and decides how the process continues. If it fails, the process stays in ERROR."
            : "Runs a CALL task with these args after the waiting calls, and shows the response of the processor."}
        </p>
        <Field label="Args" name="args">
          <PayloadInput value={args} onChange={setArgs} />
        </Field>
        {!repair && (
          <label className="check">
            <input type="checkbox" checked={accepted} onChange={(e) => setAccepted(e.target.checked)} />
            Do not wait for the response (sends a notification, which is retried if it fails)
          </label>
        )}
        <ErrorBox error={error} />
        {rejection && rejection.details.length > 0 && <Payload bytes={rejection.details} name="rejection" />}
        {answer !== undefined && (
          <div className="notice good" role="status">
            <strong>{accepted && !repair ? "Accepted" : "Response"}</strong>
            {!(accepted && !repair) && <Payload bytes={answer} name="response" />}
          </div>
        )}
        <footer>
          <Button onClick={onClose}>{answer === undefined ? "Cancel" : "Close"}</Button>
          {!(repair && answer !== undefined) && (
            <button type="submit" className="button main" disabled={busy}>
              {busy ? "…" : repair ? "Repair" : "Call"}
            </button>
          )}
        </footer>
      </Form>
    </Dialog>
  );
}

export function RetryJob({ ns, id, onClose }: { ns: string; id: string; onClose: () => void }) {
  return <Confirm title={`Retry ${id}?`} says="It runs again from its first attempt, with the same args and options. Fix the cause first, or it fails again." verb="Retry" run={() => jobs.retryJob({ namespace: ns, jobId: id })} done={`${id} will run again.`} onClose={onClose} />;
}

export function CancelJob({ ns, id, onClose }: { ns: string; id: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <Confirm title={`Cancel ${id}?`} says="A waiting job is CANCELLED at once. The worker of a running job receives the cancel with its next heartbeat, and loses the job after the grace period." verb="Cancel the job" bad run={() => jobs.cancelJob({ namespace: ns, jobId: id, reason })} done={`${id} will be cancelled.`} onClose={onClose}>
      <Field label="Reason" name="reason">
        <input autoFocus value={reason} onChange={(e) => setReason(e.target.value)} />
      </Field>
    </Confirm>
  );
}

export function ActionDialog({ p, action, onClose }: Props & { action: Action }) {
  const key = { namespace: p.namespace, processId: p.processId };
  switch (action) {
    case "call":
    case "repair":
      return <Send p={p} repair={action === "repair"} onClose={onClose} />;
    case "suspend":
    case "cancel":
      return <WithReason p={p} action={action} onClose={onClose} />;
    case "simple":
      return (
        <Confirm
          title={`Repair ${p.processId}?`}
          says={
            <>
              It returns to RUNNING, with the timers that the error cancelled. If the task that failed (task {String(p.corruptedBy)}) is a timer, it runs again. The processor is not called otherwise. Fix the cause first, or it fails again.
            </>
          }
          verb="Repair"
          run={() => processes.repair({ ...key, idempotencyKey: newKey(), how: { case: "simple", value: {} } })}
          done={`${p.processId} is repaired.`}
          onClose={onClose}
        />
      );
    case "retry":
      return <RetryJob ns={p.namespace} id={p.processId} onClose={onClose} />;
    case "end":
      return <CancelJob ns={p.namespace} id={p.processId} onClose={onClose} />;
    case "resume":
      return (
        <Confirm title={`Resume ${p.processId}?`} says="It returns to its previous status. Its waiting tasks, and timers that became due, run at once." verb="Resume" run={() => processes.resumeProcess(key)} done={`${p.processId} is resumed.`} onClose={onClose} />
      );
    case "remove":
      return (
        <Confirm
          title={`Remove ${p.processId}?`}
          says="It is deleted with all its tasks and events. A running attempt is fenced off, and waiting calls fail. This cannot be undone."
          verb="Remove permanently"
          bad
          typed={p.processId}
          run={async () => {
            await processes.removeProcess(key);
            go("processes", { ns: p.namespace });
          }}
          done={`${p.processId} is removed.`}
          onClose={onClose}
        />
      );
  }
}

export function StartDialog({ ns, onClose }: { ns: string; onClose: () => void }) {
  const [id, setId] = useState("");
  const [args, setArgs] = useState("");
  const [metadata, setMetadata] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const key = useRequestKey();
  const tell = useToast();
  let attributes: JsonObject | undefined;
  let wrong = "";
  if (metadata.trim())
    try {
      const json = exactJSON(metadata);
      if (typeof json !== "object" || json === null || Array.isArray(json)) wrong = "must be a JSON object, such as {\"tenant\": \"acme\"}";
      else attributes = json;
    } catch (e) {
      wrong = e instanceof RangeError ? e.message : "must be a JSON object, such as {\"tenant\": \"acme\"}";
    }
  const start = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const { processId } = await processes.start({ namespace: ns, processId: id.trim(), args: bytesOf(args), metadata: attributes, idempotencyKey: key.of(id.trim(), args, metadata) });
      refresh();
      tell(`${processId} is started.`);
      onClose();
      go("process", { ns, id: processId });
    } catch (failure) {
      setError(failure);
      setBusy(false);
      key.answered(failure);
    }
  };
  return (
    <Dialog title={`Start a process in ${ns}`} onClose={onClose}>
      <Form onSubmit={start} error={error}>
        <p className="says">Creates the process and runs its INIT task. If the processor rejects the task, the process is not created.</p>
        <Field label="ID" name="process_id" hint="If empty, the engine chooses one.">
          <input autoFocus value={id} onChange={(e) => setId(e.target.value)} autoComplete="off" spellCheck={false} />
        </Field>
        <Field label="Args" name="args">
          <PayloadInput value={args} onChange={setArgs} />
        </Field>
        <Field label="Metadata" name="metadata" hint="A JSON object, by which the process can be found." error={wrong}>
          <textarea rows={2} value={metadata} spellCheck={false} onChange={(e) => setMetadata(e.target.value)} />
        </Field>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            {busy ? "…" : "Start"}
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}
