import { create } from "@bufbuild/protobuf";
import { useState } from "react";
import { jobs, readOnly, refresh, useRead } from "../api";
import { Form } from "../form";
import { count, duration, durationMillis, millis, parseSpan, plural, span, typedSpan, wrongCount } from "../format";
import { ConstraintSchema, type Constraint } from "../gen/progressor/v1/job_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Act, Bar, Button, Card, Confirm, Dialog, Empty, ErrorBox, Field, Loading, Table, useToast, When } from "../ui";

function Edit({ ns, before, onClose }: { ns: string; before?: Constraint; onClose: () => void }) {
  const [f, setForm] = useState({
    name: before?.name ?? "",
    match: before?.match ?? "",
    key: before?.key ?? "",
    running: before?.maxRunning ? String(before.maxRunning) : "",
    count: before?.rate ? String(before.rate.count) : "",
    per: before?.rate?.per ? typedSpan(durationMillis(before.rate.per) ?? 0) : "",
    burst: before?.rate?.burst ? String(before.rate.burst) : "",
  });
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const tell = useToast();
  const text = (name: keyof typeof f) => ({ value: f[name], onChange: (e: React.ChangeEvent<HTMLInputElement>) => setForm({ ...f, [name]: e.target.value }) });
  const wrongPer = (f.count.trim() || f.per.trim()) && parseSpan(f.per) === undefined ? "a duration, such as 1s or 1m" : undefined;
  // A duration or a burst without a number of starts would be ignored.
  const wrongStarts = wrongCount(f.count) || (!f.count.trim() && (f.per.trim() || f.burst.trim()) ? "required with a duration or a burst" : "");
  const save = async () => {
    setBusy(true);
    try {
      const constraint = create(ConstraintSchema, { namespace: ns, name: f.name.trim(), match: f.match, key: f.key, maxRunning: Number(f.running) || 0 });
      if (f.count.trim()) constraint.rate = { $typeName: "progressor.v1.RateLimit", count: Number(f.count), per: duration(parseSpan(f.per) ?? 0), burst: Number(f.burst) || 0 };
      await jobs.putConstraint({ constraint });
      refresh();
      tell(`${f.name} is saved.`);
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={before ? `Edit ${before.name}` : `New constraint in ${ns}`} onClose={onClose}>
      <Form onSubmit={save} error={error}>
        <p className="says">Limits how many matching jobs run at the same time, and how many start in a period. It also applies to waiting jobs. Running jobs continue.</p>
        {!before && (
          <Field label="Name" name="constraint.name" required>
            <input autoFocus {...text("name")} />
          </Field>
        )}
        <Field label="Match" name="constraint.match" required hint='CEL over job.name, job.args, job.priority, job.tags and job.metadata, such as job.name == "send_mail"'>
          <input className="mono" spellCheck={false} {...text("match")} />
        </Field>
        <Field label="Key" name="constraint.key" hint="CEL, such as job.args.region. Each value has its own limit. If empty, all matching jobs share one.">
          <input className="mono" spellCheck={false} {...text("key")} />
        </Field>
        <div className="grid2">
          <Field label="Maximum running" name="constraint.max_running" hint="If empty, no limit." error={wrongCount(f.running)}>
            <input inputMode="numeric" {...text("running")} />
          </Field>
          <Field label="Maximum starts" name="constraint.rate.count" hint="If empty, no limit." error={wrongStarts}>
            <input inputMode="numeric" {...text("count")} />
          </Field>
          <Field label="Per" name="constraint.rate.per" error={wrongPer}>
            <input {...text("per")} placeholder="1m" />
          </Field>
          <Field label="Burst" name="constraint.rate.burst" hint="If empty, the same as maximum starts." error={wrongCount(f.burst)}>
            <input inputMode="numeric" {...text("burst")} />
          </Field>
        </div>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Save
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

export function Constraints({ ns }: { ns: string }) {
  const [editing, setEditing] = useState<Constraint | "new">();
  const [deleting, setDeleting] = useState<Constraint>();
  const { data, error, isPending } = useRead(["constraints", ns], (o) => jobs.listConstraints({ namespace: ns }, o));
  useCommands(readOnly ? [] : [{ name: "New constraint", group: "constraints", needs: methods.putConstraint, run: () => setEditing("new") }]);
  return (
    <>
      <div className="head">
        <h1>Constraints</h1>
        <div className="actions">
          <Act needs={methods.putConstraint} onClick={() => setEditing("new")}>New constraint…</Act>
        </div>
      </div>
      <ErrorBox error={error} />
      {isPending && <Loading />}
      {data?.constraints.length === 0 && <Empty title="No constraints yet" docs="constraints.md">
          <p>A constraint limits how many matching jobs run at the same time, and how many start in a period.</p>
          <Act needs={methods.putConstraint} kind="main" onClick={() => setEditing("new")}>Create a constraint…</Act> <span>Command: <code>progressor constraint put {ns} mail --match 'job.name == "send_mail"' --max-running 10</code></span>
        </Empty>}
      {(data?.constraints.length ?? 0) > 0 && (
        <Card>
          <Table label="constraints" heads={["Constraint", "Matches", "Key", "#Running", "Limit", "#Waiting", "Rate", "Next free", ""]}>
            {data?.constraints.map((s) => {
              const c = s.constraint;
              if (!c) return null;
              const held = Number(s.held);
              return (
                <tr key={c.name}>
                  <td className="strong">{c.name}</td>
                  <td className="what">
                    <code>{c.match}</code>
                  </td>
                  <td data-label={c.key ? "key" : undefined}>
                    <code>{c.key}</code>
                  </td>
                  <td className="number" data-label="running">{count(s.running)}</td>
                  <td data-label="limit">{c.maxRunning > 0 ? c.key ? `${count(c.maxRunning)} each` : <span className="usage"><Bar part={(Number(s.running) + held) / c.maxRunning} label={`${Number(s.running) + held} of ${c.maxRunning} slots in use`} tone={Number(s.running) + held >= c.maxRunning ? "hold" : "run"} /> <span>{count(c.maxRunning)}{held > 0 && <span className="dim">, {count(held)} held</span>}</span></span> : <span className="dim">no limit</span>}</td>
                  <td className={"number" + (s.waiting ? " strong" : " dim")} data-label="waiting">{count(s.waiting)}</td>
                  <td data-label="rate">{c.rate ? `${plural(c.rate.count, "start")} per ${span(durationMillis(c.rate.per) ?? 0)}` : <span className="dim">no limit</span>}</td>
                  <td data-label={s.nextFreeTime && "next free"}>
                    <When at={millis(s.nextFreeTime)} none="" next />
                  </td>
                  <td className="end">
                    <Act needs={methods.putConstraint} onClick={() => setEditing(c)}>Edit…</Act>{" "}
                    <Act needs={methods.deleteConstraint} kind="bad" onClick={() => setDeleting(c)}>
                      Delete…
                    </Act>
                  </td>
                </tr>
              );
            })}
          </Table>
          {data?.constraints.some((s) => s.held > 0n) && <p className="dim">Held slots belong to jobs that may start, but that no worker has taken yet. Other jobs of the constraint wait for them.</p>}
        </Card>
      )}
      {editing && <Edit ns={ns} before={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} />}
      {deleting && <Confirm title={`Delete ${deleting.name}?`} says="It no longer limits jobs. Jobs that wait only for this constraint can run at once." verb="Delete" bad run={() => jobs.deleteConstraint({ namespace: ns, name: deleting.name })} done={`${deleting.name} is deleted.`} onClose={() => setDeleting(undefined)} />}
    </>
  );
}
