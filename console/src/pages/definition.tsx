// The definition of a template as YAML: shown, compared with another version, edited and uploaded.
import { useMemo, useState } from "react";
import { flows, refresh, useRead } from "../api";
import { Form } from "../form";
import { plural } from "../format";
import type { Template } from "../gen/progressor/v1/flow_pb";
import { change, go, useParam } from "../router";
import { Button, Card, Copy, Dialog, ErrorBox, Field, useToast } from "../ui";
import { diffLines, parseTemplate, templateYaml } from "../yaml";

const maxCompared = 5000; // lines

/** Shows the definition, or how it differs from another version. */
export default function Definition({ t, versions }: { t: Template; versions: number[] }) {
  const asked = Number(useParam("compare"));
  const other = versions.includes(asked) && asked !== t.version ? asked : undefined;
  const { data, error } = useRead(["template", t.namespace, t.type, other], (o) => flows.getTemplate({ namespace: t.namespace, type: t.type, version: other }, o), { every: 0, enabled: other !== undefined });
  const text = useMemo(() => templateYaml(t), [t]);
  const before = other !== undefined ? data?.template : undefined;
  const lines = useMemo(() => {
    const old = before && templateYaml(before);
    return old !== undefined && old.split("\n").length <= maxCompared && text.split("\n").length <= maxCompared ? diffLines(old, text) : undefined;
  }, [before, text]);
  const changed = lines?.filter((l) => l.kind !== "same").length ?? 0;
  return (
    <Card
      title="Definition"
      extra={
        <>
          {versions.length > 1 && (
            <select aria-label="compare with" value={other ?? ""} onChange={(e) => change({ compare: e.target.value }, "replace")}>
              <option value="">compare with…</option>
              {versions
                .filter((v) => v !== t.version)
                .toSorted((a, b) => b - a)
                .map((v) => (
                  <option key={v} value={v}>
                    compare with version {v}
                  </option>
                ))}
            </select>
          )}
          <Copy text={text} label="copy the definition" />
        </>
      }
    >
      <ErrorBox error={error} />
      {lines && <p className="dim">{changed ? `${plural(changed, "line")} changed from version ${other} to version ${t.version}.` : `Version ${other} is the same.`}</p>}
      <div className="payload">
        <pre role="region" tabIndex={0} aria-label="definition as YAML">
          {lines
            ? lines.map((l, n) => (
                <span key={n} className={`diff ${l.kind}`}>
                  {l.kind === "added" ? "+ " : l.kind === "removed" ? "- " : "  "}
                  {l.text || " "}
                </span>
              ))
            : text}
        </pre>
      </div>
    </Card>
  );
}

const example = `type: order
name: An order
steps:
  - step_id: reserve
    job: {}
  - step_id: approve
    wait: {kind: HUMAN, title: "Approve \${payload.order}"}
`;

/** Edits a template, or creates a new one. The engine checks it. */
export function EditTemplate({ ns, t, newest, onClose }: { ns: string; t?: Template; newest?: number; onClose: () => void }) {
  const [text, setText] = useState(() => (t ? templateYaml(t) : ""));
  const [checked, setChecked] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const tell = useToast();
  let wrong = "";
  let template: Template | undefined;
  if (text.trim())
    try {
      template = parseTemplate(text, ns);
    } catch (e) {
      wrong = e instanceof Error ? e.message.split("\n\n")[0]! : String(e);
    }
  const put = async (validateOnly: boolean) => {
    if (!template) return;
    setBusy(true);
    setError(undefined);
    setChecked("");
    try {
      const { template: stored, created } = await flows.putTemplate({ template, validateOnly, expectedVersion: newest });
      setBusy(false);
      if (validateOnly) return setChecked("The template is valid.");
      refresh();
      tell(created ? `Version ${stored?.version} of ${template.type} is stored.` : "It equals the newest version: nothing was stored.");
      onClose();
      go("template", { ns, type: template.type });
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  const open = async (file?: File) => {
    if (!file) return;
    setText(await file.text());
    setChecked("");
  };
  return (
    <Dialog title={t ? `Edit ${t.type}` : "New template"} onClose={onClose} wide sticky={text !== ""}>
      <Form onSubmit={() => put(false)} error={error}>
        <p className="says">{t ? `Stores version ${(newest ?? 0) + 1}. Existing runs keep the version with which they were started.` : "Stores a template. If its type exists, this becomes its next version."}</p>
        <Field label="Template" required hint="YAML or JSON, as for progressor template put." error={wrong}>
          <textarea
            rows={t ? 22 : 14}
            value={text}
            spellCheck={false}
            placeholder={example}
            onChange={(e) => {
              setText(e.target.value);
              setChecked("");
            }}
          />
        </Field>
        <Field label="Or open a file">
          <input type="file" accept=".yaml,.yml,.json" onChange={(e) => void open(e.target.files?.[0])} />
        </Field>
        {checked && (
          <p className="notice good" role="status">
            {checked}
          </p>
        )}
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button disabled={busy || !template} onClick={() => void put(true)}>
            Check
          </Button>
          <button type="submit" className="button main" disabled={busy}>
            {t ? "Save as new version" : "Store"}
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}
