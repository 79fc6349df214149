// A form that shows each error at its field, and focuses the first one.
import { createContext, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema } from "./gen/progressor/v1/process_pb";

/** An error of the engine about one field. */
export interface Problem {
  field: string; // its path, such as payload.parcels[0].count; "" if the error belongs to no field
  text: string;
}

/** Reports whether an error about a field is shown by an input. */
export type Shows = (field: string) => boolean;

/** What a form shares with its fields. */
export interface Entered {
  tried: boolean; // the user has tried to send it
  refused?: { problems: Problem[]; key: unknown }; // the values that the engine rejected; key identifies the error
  inputs: Set<Shows>; // the inputs that can show an error of the engine
}
const FormContext = createContext<Entered>({ tried: false, inputs: new Set() });
export const useForm = () => useContext(FormContext);

/** Reports whether an error of the engine is about a field or a part of it, such as options.tags[1] of options.tags. */
export const isAbout = (field: string, name: string): boolean => field === name || isWithin(field, name);

/** Reports whether a field is a part of another one. */
export const isWithin = (field: string, name: string): boolean => field.startsWith(`${name}.`) || field.startsWith(`${name}[`);

/** Returns the path of a property, in the form of the engine. */
export const pathOf = (path: string, name: string): string => (/^[a-zA-Z_][a-zA-Z0-9_-]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`);

const quoted = String.raw`"(?:[^"\\]|\\.)*"`;

/** Returns the errors in a message, such as "payload.order: is required; payload.total: must be at least 1 (got 0)". */
function problemsIn(message: string, first: string): Problem[] {
  const root = /^\w*/.exec(first)![0];
  const path = String.raw`${root}(?:\.[\w-]+|\[\d+\]|\[${quoted}\])*`;
  const one = new RegExp(`^(${path}): `);
  return message.split(new RegExp(`; (?=${path}: |and \\d+ more problems$)`)).map((text) => {
    const field = text.startsWith(`${first}: `) ? first : (one.exec(text)?.[1] ?? "");
    return { field, text: field ? text.slice(field.length + 2) : text };
  });
}

/** Returns the errors of the engine about fields. */
function refusal(error: unknown): Entered["refused"] {
  if (!error) return undefined;
  const failure = ConnectError.from(error);
  const detail = failure.findDetails(ErrorDetailSchema)[0];
  // The SDKs reject args that they cannot decode with this reason.
  if (detail?.rejection?.reason === "bad_args") return { problems: [{ field: "args", text: detail.rejection.message }], key: error };
  return failure.code === Code.InvalidArgument && detail?.field ? { problems: problemsIn(failure.rawMessage, detail.field), key: error } : undefined;
}

/** Describes where a part of a field is: "parcels, item 1, count" for .parcels[0].count. */
const placeOf = (part: string): string =>
  (part.match(new RegExp(String.raw`[\w-]+|${quoted}`, "g")) ?? []).map((each) => (/^\d+$/.test(each) ? `item ${Number(each) + 1}` : each)).join(", ");

/**
 * Returns the error of the engine about an input with this name until its value changes. If only is
 * set, the input shows no errors about its parts.
 */
export function useRefusal(name: string | undefined, value: string, only = false): string {
  const { refused, inputs } = useForm();
  const shows: Shows = (field) => name !== undefined && (only ? field === name : isAbout(field, name));
  const about = refused?.problems.filter((p) => shows(p.field)) ?? [];
  const [sent, setSent] = useState<{ error: unknown; value: string }>();
  if (refused && about.length > 0 && sent?.error !== refused.key) setSent({ error: refused.key, value });
  useEffect(() => {
    if (name === undefined) return;
    inputs.add(shows);
    return () => void inputs.delete(shows);
  }, [inputs, name, only]);
  if (name === undefined || sent?.value !== value) return "";
  return about.map((p) => (p.field === name ? p.text : `${placeOf(p.field.slice(name.length))}: ${p.text}`)).join("; ");
}

const isEmpty = (f: HTMLInputElement): boolean => (f.type === "checkbox" ? !f.checked : !f.value.trim());

/**
 * Focuses the first field that is wrong, or required and empty. Reports whether there is one. Before
 * the form is sent, fields that the engine refused are not wrong: a change of another field may have
 * corrected them.
 */
function focusWrong(form: HTMLElement, sending: boolean): boolean {
  const fields = form.querySelectorAll<HTMLInputElement>('[aria-invalid="true"], [aria-required="true"], fieldset[data-refused]');
  const wrong = [...fields].find((f) => (f.dataset.refused !== undefined ? !sending : f.getAttribute("aria-invalid") === "true") || (f.ariaRequired === "true" && isEmpty(f)));
  for (let hidden = wrong?.closest("details"); hidden; hidden = hidden.parentElement?.closest("details")) hidden.open = true;
  (wrong?.tagName === "FIELDSET" ? wrong.querySelector<HTMLElement>("input, select, textarea, button") : wrong)?.focus();
  return wrong !== undefined;
}

/**
 * After an error of the engine, the form focuses the first field that is wrong, or the error. If
 * wrong is set, something outside of the fields of the form must be corrected first.
 */
export function Form({ onSubmit, error, wrong, className, children }: { onSubmit: () => unknown; error?: unknown; wrong?: boolean; className?: string; children: ReactNode }) {
  const form = useRef<HTMLFormElement>(null);
  const [tried, setTried] = useState(false);
  const [inputs] = useState(() => new Set<Shows>());
  const [, setFocused] = useState<unknown>();
  const refused = refusal(error);
  useEffect(() => {
    if (!error || !form.current) return;
    if (!focusWrong(form.current, false)) form.current.querySelector<HTMLElement>('.notice.bad[role="alert"]')?.focus();
    setFocused(error); // draws the error again: the fields of an unfolded list have just been added
  }, [error]);
  return (
    <form
      ref={form}
      className={className}
      noValidate
      onSubmit={(e) => {
        e.preventDefault();
        setTried(true);
        if (!focusWrong(e.currentTarget, true) && !wrong) void onSubmit();
      }}
    >
      <FormContext value={{ tried, refused, inputs }}>{children}</FormContext>
    </form>
  );
}
