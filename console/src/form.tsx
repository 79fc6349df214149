// A form that shows each error at its field, and focuses the first one.
import { createContext, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema } from "./gen/progressor/v1/process_pb";

/** What a form shares with its fields. */
export interface Entered {
  tried: boolean; // the user has tried to send it
  refused?: { field: string; text: string; key: unknown }; // a value that the engine rejected; key identifies the error
  names: Set<string>; // the fields that can show an error of the engine
}
const FormContext = createContext<Entered>({ tried: false, names: new Set() });
export const useForm = () => useContext(FormContext);

/** Reports whether an error of the engine is about a field or a part of it, such as options.tags[1] of options.tags. */
export const isAbout = (field: string, name: string): boolean => field === name || field.startsWith(`${name}.`) || field.startsWith(`${name}[`);

/** Returns the field that the engine refused, and the reason. */
function refusal(error: unknown): Entered["refused"] {
  if (!error) return undefined;
  const failure = ConnectError.from(error);
  const field = failure.findDetails(ErrorDetailSchema)[0]?.field;
  return failure.code === Code.InvalidArgument && field ? { field, text: failure.rawMessage.replace(`${field}: `, ""), key: error } : undefined;
}

/** Focuses the first field that is wrong, or required and empty. Reports whether there is one. */
function focusWrong(form: HTMLElement): boolean {
  const fields = form.querySelectorAll<HTMLInputElement>('[aria-invalid="true"], [aria-required="true"]');
  const wrong = [...fields].find((f) => f.getAttribute("aria-invalid") === "true" || !f.value.trim());
  const hidden = wrong?.closest("details");
  if (hidden) hidden.open = true;
  wrong?.focus();
  return wrong !== undefined;
}

/** If wrong is set, something outside of the fields of the form must be corrected first. */
export function Form({ onSubmit, error, wrong, className, children }: { onSubmit: () => unknown; error?: unknown; wrong?: boolean; className?: string; children: ReactNode }) {
  const form = useRef<HTMLFormElement>(null);
  const [tried, setTried] = useState(false);
  const [names] = useState(() => new Set<string>());
  const refused = refusal(error);
  useEffect(() => {
    if (error && form.current) focusWrong(form.current);
  }, [error]);
  return (
    <form
      ref={form}
      className={className}
      noValidate
      onSubmit={(e) => {
        e.preventDefault();
        setTried(true);
        if (!focusWrong(e.currentTarget) && !wrong) void onSubmit();
      }}
    >
      <FormContext value={{ tried, refused, names }}>{children}</FormContext>
    </form>
  );
}
