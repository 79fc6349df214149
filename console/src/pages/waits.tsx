import { Code, ConnectError } from "@connectrpc/connect";
import type { JsonValue } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { useMemo, useState } from "react";
import { flows, readOnly, refresh, trouble, useRead } from "../api";
import { FilterBar, type FieldHelp } from "../filter";
import { millis, plural } from "../format";
import { WaitAction_Kind, type OpenWait } from "../gen/progressor/v1/flow_pb";
import { FailureSchema } from "../gen/progressor/v1/process_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { bytesOf, Payload } from "../payload";
import { change, href, useParam } from "../router";
import { JsonForm, startOf, type Filled, type Schema } from "../schema";
import { Mark, Status } from "../status";
import { Act, Button, Card, Dialog, Empty, ErrorBox, Field, Loading, Scroll, useToast, When } from "../ui";
import { plainValue, valueOf } from "../value";
import { FlowTabs } from "./runs";

const size = 50;
export const stepName = (w: { stepId: string; index?: number }) => (w.index === undefined ? w.stepId : `${w.stepId} ${w.index}`);
export const keyOfWait = (w: OpenWait) => `${w.runId}/${w.stepId}/${w.index ?? ""}`;

type Outcome = "result" | "failure" | "cancelled";

/** Completes a wait with a result for its schema, or with a failure. */
export function AnswerDialog({ w, onClose }: { w: OpenWait; onClose: () => void }) {
  const schema = w.resultSchema as Schema | undefined;
  const begin = useMemo(() => startOf(schema), [schema]);
  const [outcome, setOutcome] = useState<Outcome>(w.cancelRequested ? "cancelled" : "result");
  const [result, setResult] = useState<Filled>(begin);
  const [failure, setFailure] = useState({ reason: "", message: "" });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const tell = useToast();
  const outside = w.kind !== WaitAction_Kind.HUMAN;
  const send = async (e: React.FormEvent) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await flows.completeStep({
        namespace: w.namespace,
        runId: w.runId,
        stepId: w.stepId,
        index: w.index,
        token: w.token,
        workerId: "console",
        outcome:
          outcome === "result"
            ? { case: "result", value: valueOf((result.json ?? null) as JsonValue) }
            : outcome === "failure"
              ? { case: "failure", value: create(FailureSchema, { reason: failure.reason.trim(), message: failure.message.trim() }) }
              : { case: "cancelled", value: {} },
      });
      refresh();
      tell(`${stepName(w)} of ${w.runId} is answered.`);
      onClose();
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  const says: Record<Outcome, string> = {
    result: "Completes the step with this result. Steps that depend on it continue.",
    failure: "Fails the step. The template decides whether the run is retried, undone or failed.",
    cancelled: "Confirms the cancel of the run: no work was done in this step.",
  };
  return (
    <Dialog title={w.title || `Answer ${stepName(w)}`} onClose={onClose}>
      <form onSubmit={(e) => void send(e)}>
        <p className="says">
          {says[outcome]} {outside && outcome === "result" && "An external worker is expected to complete this step. Its later response will be rejected."}
        </p>
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
        {w.input && (
          <details>
            <summary>Input</summary>
            <Payload bytes={bytesOf(JSON.stringify(plainValue(w.input)))} name="input" />
          </details>
        )}
        {outcome === "result" && <JsonForm schema={schema} label="Result" value={begin.json} onChange={setResult} />}
        {outcome === "failure" && (
          <>
            <Field label="Reason" hint="An identifier for programs, such as rejected.">
              <input value={failure.reason} onChange={(e) => setFailure({ ...failure, reason: e.target.value })} autoComplete="off" />
            </Field>
            <Field label="Message">
              <input value={failure.message} onChange={(e) => setFailure({ ...failure, message: e.target.value })} autoComplete="off" />
            </Field>
          </>
        )}
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className={"button " + (outcome === "failure" ? "bad" : "main")} disabled={busy || (outcome === "result" && Boolean(result.wrong)) || (outcome === "failure" && !failure.reason.trim())}>
            {busy ? "…" : outcome === "failure" ? "Fail the step" : outcome === "cancelled" ? "Acknowledge" : "Answer"}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function fieldsOf(rows: OpenWait[], types: string[]): FieldHelp[] {
  return [
    { name: "kind", hint: "HUMAN or EXTERNAL", operators: ["="], values: ["HUMAN", "EXTERNAL"] },
    { name: "assignees", hint: "an assignee", operators: [":"], values: [...new Set(rows.flatMap((w) => w.assignees))] },
    { name: "template_type", hint: "template of its run; * at the end matches any suffix", operators: ["="], values: types },
    { name: "run_id", hint: "id of its run; * at the end matches any suffix", operators: ["=", "!="], values: rows.slice(0, 8).map((w) => w.runId) },
    { name: "due_time", hint: "due time", operators: ["<", "<=", ">", ">="], time: true },
  ];
}

export function Waits({ ns }: { ns: string }) {
  const filter = useParam("filter");
  const after = useParam("after");
  const everyone = useParam("for") === "everyone";
  const open = useParam("answer");
  const { data, error, isPending } = useRead(
    ["inbox", ns, filter, after, String(everyone)],
    (o) => fill(after, size, async (pageToken) => {
      const page = await flows.listOpenWaits({ namespace: ns, filter, pageSize: size, pageToken, answerable: !everyone }, o);
      return { rows: page.waits, next: page.nextPageToken };
    }),
    { keep: true },
  );
  const templates = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 30000 });
  const rows = data?.rows ?? [];
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  const answered = rows.find((w) => w.answerable && keyOfWait(w) === open);
  useCommands(readOnly ? [] : rows.filter((w) => w.answerable).slice(0, 20).map((w) => ({ name: `Answer ${w.title || stepName(w)} (${w.runId})`, group: "inbox", needs: methods.completeStep, run: () => change({ answer: keyOfWait(w) }) })));
  return (
    <>
      <div className="head">
        <h1>Flows</h1>
      </div>
      <FlowTabs ns={ns} at="waits" />
      <div className="chips" role="group" aria-label="for whom">
        {(
          [
            [false, "For me"],
            [true, "For everyone"],
          ] as const
        ).map(([all, name]) => (
          <button key={name} type="button" className="chip" aria-pressed={everyone === all} onClick={() => change({ for: all ? "everyone" : undefined, after: undefined })}>
            {name}
          </button>
        ))}
      </div>
      <div className="chips" role="group" aria-label="by kind">
        {(
          [
            ["HUMAN", "Person"],
            ["EXTERNAL", "External worker"],
          ] as const
        ).map(([kind, name]) => {
          const own = `kind = ${kind}`;
          return (
            <button key={kind} type="button" className="chip" aria-pressed={filter === own} onClick={() => change({ filter: filter === own ? undefined : own, after: undefined })}>
              {name}
            </button>
          );
        })}
      </div>
      <div className="bararea">
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows, templates.data?.templates.map((t) => t.type) ?? [])} wrong={wrong} placeholder="assignees:sales AND kind = HUMAN   ( / )" />
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data && rows.length === 0 && !wrong && (
        <Empty title={filter ? "No waits match" : "The inbox is empty"}>
          {filter || !everyone ? (
            <>
              {!everyone && "No step waits for you. "}
              <Button onClick={() => change({ filter: undefined, for: "everyone" })}>Show all</Button>
            </>
          ) : (
            "Steps that wait for a person or an external worker appear here."
          )}
        </Empty>
      )}
      {rows.length > 0 && (
        <Card>
          <Scroll label={plural(rows.length, "wait")}>
            <table className="stack">
              <thead>
                <tr>
                  <th>Kind</th>
                  <th>Title</th>
                  <th>Run</th>
                  <th>Assignees</th>
                  <th>Due</th>
                  <th>Waiting since</th>
                  <th />
                </tr>
              </thead>
              <tbody>
                {rows.map((w) => (
                  <tr key={keyOfWait(w)}>
                    <td>
                      <Status look={w.kind === WaitAction_Kind.HUMAN ? { name: "Person", tone: "wait", shape: "clock" } : { name: "External", tone: "wait", shape: "ring" }} />
                    </td>
                    <td className="wrap">
                      {w.title || stepName(w)}{" "}
                      {w.cancelRequested && (
                        <span className="tone-hold">
                          <Mark look={{ name: "", tone: "hold", shape: "slash" }} /> cancel requested
                        </span>
                      )}
                    </td>
                    <td className="wrap">
                      <a href={href("run", { ns, id: w.runId, step: w.stepId })}>{w.runId}</a> <span className="dim">{stepName(w)}</span>
                    </td>
                    <td className="wrap" data-label="assignees">{w.assignees.join(", ") || <span className="dim">anyone</span>}</td>
                    <td data-label="due">
                      <When at={millis(w.dueTime)} none="no limit" />
                    </td>
                    <td data-label="waiting since">
                      <When at={millis(w.createdTime)} />
                    </td>
                    <td>
                      {w.answerable && (
                        <Act needs={methods.completeStep} aria-label={`Answer ${w.title || stepName(w)}`} onClick={() => change({ answer: keyOfWait(w) })}>
                          Answer…
                        </Act>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </Card>
      )}
      <Pager after={after} next={data?.next ?? ""} />
      {answered && !readOnly && <AnswerDialog key={keyOfWait(answered)} w={answered} onClose={() => change({ answer: undefined }, "replace")} />}
    </>
  );
}
