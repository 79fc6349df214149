// Roles in forms and lists.
import type { Role } from "../gen/progressor/v1/access_pb";
import { Button, Field } from "../ui";

/** What each role allows, in the order of docs/security.md. */
const roles: Record<string, string> = {
  viewer: "Sees processes, jobs, runs, crons, workers and settings, with payloads.",
  support: "Sees what a viewer sees, without payloads. Repairs, retries, suspends, cancels and removes. Answers waits.",
  client: "Sees processes, jobs, runs and crons. Starts, calls and cancels processes and runs. Enqueues jobs. Answers waits.",
  worker: "Takes tasks and jobs as a worker.",
  author: "Does what a client does. Also changes crons and templates of flows.",
  admin: "Everything in its namespaces, including settings, constraints, sinks and audit.",
  root: "Everything in all namespaces, including nodes, keys and grants.",
};

export interface RoleForm {
  role: string;
  jobs: string; // job names of a worker; "" for all tasks
  patterns: string; // patterns of namespaces, separated by commas
}

export const noRole: RoleForm = { role: "client", jobs: "", patterns: "" };

const patternsOf = (f: RoleForm) => f.patterns.split(",").map((p) => p.trim()).filter(Boolean);

const wrongPatterns = (f: RoleForm) => ((f.patterns.trim() !== "" && patternsOf(f).length === 0) || patternsOf(f).some((p) => !/^([a-zA-Z0-9._/-]{0,127}\*|[a-zA-Z0-9._/-]{1,128})$/.test(p))) && "names, or prefixes with *, separated by commas";

export function rolesOf(f: RoleForm): { role: string; pattern: string }[] {
  if (f.role === "root") return [{ role: "root", pattern: "*" }];
  const role = f.role === "worker" && f.jobs.trim() ? `worker:${f.jobs.trim()}` : f.role;
  return patternsOf(f).map((pattern) => ({ role, pattern }));
}

/**
 * Fields for a role and its namespaces. number is the number of the role in the form, or 0 for the
 * only one.
 */
export function RoleFields({ role: f, number = 0, onChange, onRemove }: { role: RoleForm; number?: number; onChange: (f: RoleForm) => void; onRemove?: () => void }) {
  const label = (text: string) => (number ? `${text} ${number}` : text);
  return (
    <div className="grid2 rolefields">
      <Field label={label("Role")} hint={roles[f.role]}>
        <select value={f.role} onChange={(e) => onChange({ ...f, role: e.target.value })}>
          {Object.keys(roles).map((r) => (
            <option key={r} value={r}>
              {r}
            </option>
          ))}
        </select>
      </Field>
      {f.role !== "root" && (
        <Field label={label("Namespaces")} required hint="Such as shop/*, billing. * means all." error={wrongPatterns(f)}>
          <input value={f.patterns} onChange={(e) => onChange({ ...f, patterns: e.target.value })} spellCheck={false} />
        </Field>
      )}
      {f.role === "worker" && (
        <Field label={label("Job names")} hint="A name, or a prefix with *. If empty, all jobs and tasks.">
          <input value={f.jobs} onChange={(e) => onChange({ ...f, jobs: e.target.value })} spellCheck={false} />
        </Field>
      )}
      {onRemove && (
        <Button kind="quiet" onClick={onRemove}>
          Remove role {number}
        </Button>
      )}
    </div>
  );
}

/** A role with its jobs and namespaces in words. */
export function RoleWords({ role: r }: { role?: Role }) {
  const [name, jobs] = (r?.role ?? "").split(/:(.*)/s);
  return (
    <>
      <strong>{name}</strong>
      {jobs !== undefined && <> of jobs <code>{jobs}</code></>} in {r?.pattern === "*" ? "all namespaces" : <code>{r?.pattern}</code>}
    </>
  );
}
