import { Code, ConnectError } from "@connectrpc/connect";
import { useState } from "react";
import { flows, readOnly, refresh, trouble, useMe, useRead } from "../api";
import { prefixed } from "../attributes";
import { FilterBar, type FieldHelp } from "../filter";
import { millis, plural } from "../format";
import type { OpenWait } from "../gen/progressor/v1/flow_pb";
import { WaitAction_Kind } from "../gen/progressor/v1/wait_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { fill, Pager } from "../paging";
import { change, href, useParam } from "../router";
import { Mark, Status } from "../status";
import { Act, Button, Card, Empty, ErrorBox, Line, Loading, Scroll, useToast, When } from "../ui";
import { AnswerDialog, inputLine, ClaimDialog, keyOfWait, nameKey, stepName, titleOf } from "./answer";

const size = 50;
function fieldsOf(rows: OpenWait[], types: string[]): FieldHelp[] {
  return [
    { name: "kind", hint: "HUMAN or EXTERNAL", operators: ["="], values: ["HUMAN", "EXTERNAL"] },
    { name: "assignees", hint: "an assignee", operators: [":"], values: [...new Set(rows.flatMap((w) => w.assignees))] },
    { name: "template_type", hint: "template of its run; * at the end matches any suffix", operators: ["="], values: types },
    { name: "run_id", hint: "ID of its run; * at the end matches any suffix", operators: ["=", "!="], values: rows.slice(0, 8).map((w) => w.runId) },
    { name: "due_time", hint: "due time", operators: ["<", "<=", ">", ">="], time: true },
  ];
}

/** Who works on a wait, with a button to claim it or to release the claim. */
function Claimed({ w, claim }: { w: OpenWait; claim: () => void }) {
  const me = useMe()?.principal || localStorage.getItem(nameKey);
  const tell = useToast();
  const release = async () => {
    try {
      await flows.reportStep({ namespace: w.namespace, runId: w.runId, stepId: w.stepId, index: w.index, token: w.token, workerId: "" });
      refresh();
      tell(`${titleOf(w)} is released.`);
    } catch (error) {
      tell(trouble(error).text);
    }
  };
  return (
    <>
      {w.workerId && <span className="tag">{w.workerId}</span>}{" "}
      {w.answerable && w.kind === WaitAction_Kind.HUMAN && !w.cancelRequested && (
        <Act needs={methods.reportStep} ns={w.namespace} kind="quiet" aria-label={`${w.workerId && w.workerId === me ? "Release" : "Claim"} ${titleOf(w)}`} onClick={() => (w.workerId && w.workerId === me ? void release() : claim())}>
          {w.workerId && w.workerId === me ? "Release" : "Claim…"}
        </Act>
      )}
    </>
  );
}

export function Waits({ ns }: { ns: string }) {
  const [claimed, setClaimed] = useState<OpenWait>();
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
  const templates = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 30000, enabled: ns !== "" });
  const rows = data?.rows ?? [];
  const wrong = error && ConnectError.from(error).code === Code.InvalidArgument ? trouble(error).text : undefined;
  const answered = rows.find((w) => w.answerable && keyOfWait(w) === open);
  useCommands(readOnly ? [] : rows.filter((w) => w.answerable).slice(0, 20).map((w) => ({ name: `Answer ${titleOf(w)} (${w.runId})`, group: "inbox", needs: methods.completeStep, run: () => change({ answer: keyOfWait(w) }) })));
  return (
    <>
      <div className="head">
        <h1>Inbox {ns && <span className="dim">of {ns}</span>}</h1>
        {ns && (
          <a className="button quiet" href={href("waits")}>
            All namespaces
          </a>
        )}
      </div>
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
        <FilterBar value={filter} onChange={(f) => change({ filter: f, after: undefined })} fields={fieldsOf(rows, templates.data?.templates.map((t) => t.type) ?? [])} wrong={wrong} search={(word) => Promise.resolve(`run_id = ${prefixed(word)}`)} placeholder="assignees:sales AND kind = HUMAN, or the beginning of an ID   ( / )" />
      </div>
      {!wrong && <ErrorBox error={error} />}
      {isPending && <Loading />}
      {data && rows.length === 0 && !wrong && (
        <Empty title={filter ? "No waits match" : everyone ? "The inbox is empty" : "No step waits for you"} docs={filter ? undefined : "flows.md"}>
          {filter || !everyone ? (
            <Button onClick={() => change({ filter: undefined, for: "everyone" })}>Show the steps that wait for anyone</Button>
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
                  {!ns && <th>Namespace</th>}
                  <th>Assignees</th>
                  <th>Claimed by</th>
                  <th>Due</th>
                  <th>Waiting since</th>
                  <td />
                </tr>
              </thead>
              <tbody>
                {rows.map((w) => (
                  <tr key={keyOfWait(w)}>
                    <td>
                      <Status look={w.kind === WaitAction_Kind.HUMAN ? { name: "Person", tone: "wait", shape: "clock" } : { name: "External", tone: "wait", shape: "ring" }} />
                    </td>
                    <td className="wrap">
                      {titleOf(w)}{" "}
                      {w.cancelRequested && (
                        <span className="tone-hold">
                          <Mark look={{ name: "", tone: "hold", shape: "slash" }} /> cancel requested
                        </span>
                      )}
                      {inputLine(w) && (
                        <span className="dim asks">
                          <Line text={inputLine(w)} />
                        </span>
                      )}
                    </td>
                    <td className="wrap">
                      <a href={href("run", { ns: w.namespace, id: w.runId, step: w.stepId })}>{w.runId}</a> <span className="dim nowrap">{stepName(w)}</span>
                    </td>
                    {!ns && <td data-label="in">{w.namespace}</td>}
                    <td className="wrap" data-label="assignees">{w.assignees.join(", ") || <span className="dim">anyone</span>}</td>
                    <td className="wrap" data-label={w.workerId && "claimed by"}>
                      <Claimed w={w} claim={() => setClaimed(w)} />
                    </td>
                    <td data-label="due">
                      <When at={millis(w.dueTime)} none="no limit" />
                    </td>
                    <td data-label="waiting since">
                      <When at={millis(w.createdTime)} />
                    </td>
                    <td>
                      {w.answerable && (
                        <Act needs={methods.completeStep} ns={w.namespace} aria-label={`Answer ${titleOf(w)}`} onClick={() => change({ answer: keyOfWait(w) })}>
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
      {claimed && <ClaimDialog w={claimed} onClose={() => setClaimed(undefined)} />}
      {answered && !readOnly && <AnswerDialog key={keyOfWait(answered)} w={answered} onClose={() => change({ answer: undefined }, "replace")} />}
    </>
  );
}
