// The form to start a run, generated from the schema of its template.
import { useMemo, useState } from "react";
import type { JsonValue } from "@bufbuild/protobuf";
import { flows, refresh, useRead } from "../api";
import { Form } from "../form";
import { parseSpan, timestamp } from "../format";
import { type Template } from "../gen/progressor/v1/flow_pb";
import { useRequestKey } from "../keys";
import { go } from "../router";
import { JsonForm, startOf, type Filled, type Schema } from "../schema";
import { Button, Dialog, ErrorBox, Field, Loading, useToast } from "../ui";
import { valueOf } from "../value";

function Start({ t, onClose }: { t: Template; onClose: () => void }) {
  const schema = t.payloadSchema as Schema | undefined;
  const begin = useMemo(() => startOf(schema), [schema]);
  const [payload, setPayload] = useState<Filled>(begin);
  const [f, setForm] = useState({ id: "", scope: "", scopeId: "", runIn: "" });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [good, setGood] = useState(false);
  const key = useRequestKey();
  const tell = useToast();
  const text = (name: keyof typeof f) => ({ value: f[name], onChange: (e: React.ChangeEvent<HTMLInputElement>) => setForm({ ...f, [name]: e.target.value }), autoComplete: "off", spellCheck: false });
  const wrongSpan = f.runIn.trim() && parseSpan(f.runIn) === undefined ? "a duration, such as 30s or 5m" : "";
  const send = async (validateOnly: boolean) => {
    setBusy(true);
    setError(undefined);
    setGood(false);
    try {
      const { run, started } = await flows.startRun({
        namespace: t.namespace,
        runId: f.id.trim(),
        type: t.type,
        version: t.version,
        scope: f.scope.trim(),
        scopeId: f.scopeId.trim(),
        payload: payload.json === undefined ? undefined : valueOf(payload.json as JsonValue),
        runTime: f.runIn.trim() ? timestamp(Date.now() + (parseSpan(f.runIn) ?? 0)) : undefined,
        idempotencyKey: validateOnly ? "" : key.of(f, payload.json),
        validateOnly,
      });
      if (!validateOnly) {
        refresh();
        tell(started ? `${run?.runId} is started.` : `${run?.runId} already exists. No run was started.`);
        onClose();
        go("run", { ns: t.namespace, id: run?.runId });
        return;
      }
      setGood(true);
    } catch (failure) {
      setError(failure);
      if (!validateOnly) key.answered(failure);
    }
    setBusy(false);
  };
  const held = busy || Boolean(wrongSpan || payload.wrong);
  return (
    <Form onSubmit={() => send(false)} error={error} wrong={Boolean(payload.wrong)}>
      <p className="says">
        {t.description || t.name || "Starts a run of this template."} <span className="dim">Version {t.version}.</span>
      </p>
      <JsonForm
        schema={schema}
        label="Payload"
        value={begin.json}
        onChange={(v) => {
          setPayload(v);
          setGood(false);
        }}
      />
      <details>
        <summary>ID, scope and start time</summary>
        <div className="grid2">
          <Field label="ID" name="run_id" hint="If empty, the engine chooses one.">
            <input {...text("id")} />
          </Field>
          <Field label="Start in" name="run_time" hint="A duration from now, such as 5m." error={wrongSpan}>
            <input {...text("runIn")} placeholder="now" />
          </Field>
          <Field label="Scope" name="scope" hint="Kind of subject: user, account, …">
            <input {...text("scope")} />
          </Field>
          <Field label="Scope ID" name="scope_id" hint="ID of the subject.">
            <input {...text("scopeId")} />
          </Field>
        </div>
      </details>
      <ErrorBox error={error} />
      {good && (
        <div className="notice good" role="status">
          The payload is valid, and the run can start.
        </div>
      )}
      <footer>
        <Button onClick={onClose}>Cancel</Button>
        <Button disabled={held} onClick={() => void send(true)}>
          Check
        </Button>
        <button type="submit" className="button main" disabled={busy}>
          {busy ? "…" : "Start"}
        </button>
      </footer>
    </Form>
  );
}

/** Starts a run of a template. Without type, the user chooses the template first. */
export function StartRun({ ns, type, onClose }: { ns: string; type?: string; onClose: () => void }) {
  const [chosen, setChosen] = useState(type ?? "");
  const list = useRead(["templates", ns, ""], (o) => flows.listTemplates({ namespace: ns, pageSize: 100 }, o), { every: 0, enabled: type === undefined });
  const one = useRead(["template", ns, chosen, 0], (o) => flows.getTemplate({ namespace: ns, type: chosen }, o), { every: 0, enabled: chosen !== "" });
  const t = one.data?.template;
  return (
    <Dialog title={chosen ? `Start a run of ${chosen}` : `Start a run in ${ns}`} onClose={onClose}>
      {type === undefined && (
        <Field label="Template" hint={list.data?.templates.length === 0 && "No templates in this namespace. Store one with progressor template put."}>
          <select autoFocus value={chosen} onChange={(e) => setChosen(e.target.value)}>
            <option value="">choose…</option>
            {list.data?.templates.map((t) => (
              <option key={t.type} value={t.type} disabled={t.enabled === false}>
                {t.type}
                {t.name && `: ${t.name}`}
                {t.enabled === false && " (disabled)"}
              </option>
            ))}
          </select>
        </Field>
      )}
      <ErrorBox error={one.error ?? list.error} />
      {chosen && !t && !one.error && <Loading rows={3} />}
      {t && t.type === chosen ? (
        <Start key={`${t.type} ${t.version}`} t={t} onClose={onClose} />
      ) : (
        !chosen && (
          <footer>
            <Button onClick={onClose}>Cancel</Button>
          </footer>
        )
      )}
    </Dialog>
  );
}
