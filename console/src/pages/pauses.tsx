import { useState } from "react";
import { jobs, useRead } from "../api";
import { millis } from "../format";
import { methods } from "../may";
import { Act, Card, Confirm, ErrorBox, Field, Line, Table, When } from "../ui";

/** The paused job names of a namespace, if there are any. */
export function PausedNames({ ns }: { ns: string }) {
  const [resuming, setResuming] = useState("");
  const { data, error } = useRead(["pausedjobs", ns], (o) => jobs.listPausedJobs({ namespace: ns }, o));
  if (error) return <ErrorBox error={error} />;
  if (!data?.paused.length && !resuming) return null;
  return (
    <Card title="Paused names">
      <Table label="paused names" heads={["Name", "Reason", "By", "Paused", ""]}>
        {data?.paused.map((p) => (
          <tr key={p.name}>
            <td className="wrap id">
              <code>{p.name}</code>
            </td>
            <td className="grow">
              <Line text={p.reason} />
            </td>
            <td className="wrap" data-label="by">
              {p.actor || <span className="dim">unknown</span>}
            </td>
            <td data-label="paused">
              <When at={millis(p.pausedTime)} />
            </td>
            <td className="end">
              <Act needs={methods.resumeJobs} onClick={() => setResuming(p.name)}>Resume…</Act>
            </td>
          </tr>
        ))}
      </Table>
      {resuming && (
        <Confirm
          title={`Resume ${resuming}?`}
          says="Jobs of this name start again, and workers that wait get them at once."
          verb="Resume"
          run={() => jobs.resumeJobs({ namespace: ns, name: resuming })}
          done={`${resuming} is resumed.`}
          onClose={() => setResuming("")}
        />
      )}
    </Card>
  );
}

export function PauseName({ ns, names, onClose }: { ns: string; names: string[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [reason, setReason] = useState("");
  return (
    <Confirm
      title={`Pause the jobs of one name in ${ns}`}
      says="No further job of this name starts. Running jobs continue. New jobs are accepted, and wait."
      verb="Pause"
      run={() => jobs.pauseJobs({ namespace: ns, name: name.trim(), reason })}
      done={`${name.trim()} is paused.`}
      onClose={onClose}
    >
      <>
        <Field label="Name" name="name" required>
          <input autoFocus list="pausablenames" value={name} onChange={(e) => setName(e.target.value)} />
        </Field>
        <datalist id="pausablenames">
          {names.map((n) => (
            <option key={n} value={n} />
          ))}
        </datalist>
        <Field label="Reason" name="reason" hint="For everyone who sees the pause. If the name is already paused, this replaces its reason.">
          <input value={reason} onChange={(e) => setReason(e.target.value)} />
        </Field>
      </>
    </Confirm>
  );
}
