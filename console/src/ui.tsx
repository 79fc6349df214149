// Components that all pages share.
import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { cloneElement, createContext, useCallback, useContext, useEffect, useId, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { refresh, trouble, version } from "./api";
import { Form, useForm, useRefusal } from "./form";
import { ago, exact, span } from "./format";
import { ErrorDetail_Reason, ErrorDetailSchema } from "./gen/progressor/v1/process_pb";
import { useMay } from "./may";
import { href } from "./router";
import { useTimes, zoneName } from "./times";

// One clock for all times on the page.
let now = Date.now();
const clocks = new Set<() => void>();
setInterval(() => {
  now = Date.now();
  for (const listener of clocks) listener();
}, 1000);
export function useNow(): number {
  return useSyncExternalStore(
    (listener) => {
      clocks.add(listener);
      return () => clocks.delete(listener);
    },
    () => now,
  );
}

/**
 * A time in the form that the user has chosen, with all forms in a tooltip. With next, it is a
 * future time, which is shown as "now" when it has passed. With relative, it is always relative,
 * because the time itself is also shown.
 */
export function When({ at, none = "never", next, relative }: { at?: number; none?: string; next?: boolean; relative?: boolean }) {
  const clock = useNow();
  const times = useTimes();
  if (at === undefined) return <span className="dim">{none}</span>;
  const from = ago(at, clock);
  const exactly = exact(at, false);
  return (
    <time dateTime={new Date(at).toISOString()} title={`${exact(at)} (${zoneName()})\n${new Date(at).toISOString()}${times === "relative" ? "" : `\n${from}`}`}>
      {next && at < clock ? "now" : times === "relative" || relative ? from : exactly}
    </time>
  );
}

/** Shows how long a state has lasted: "for 5 min", or "since" and the time if times are not relative. */
export function Since({ at }: { at?: number }) {
  const clock = useNow();
  const times = useTimes();
  const from = at === undefined ? "" : ago(at, clock);
  if (at === undefined || times !== "relative" || !from.endsWith(" ago"))
    return (
      <>
        since <When at={at} />
      </>
    );
  return (
    <time dateTime={new Date(at).toISOString()} title={`since ${exact(at)} (${zoneName()})\n${new Date(at).toISOString()}`}>
      for {from.slice(0, -" ago".length)}
    </time>
  );
}

// A time in a sentence of the engine. Times in file names and IDs, which sentences quote, do not match.
const utc = String.raw`(?<=\b(?:at|since|until|before|by|after|due|time:|backoff:) )\d{4}-\d\d-\d\dT[\d:.]+Z(?![\w/-]|\.\w)`;

/** A text of the engine. UTC times in it are shown like all other times of the page. */
export function EngineText({ text }: { text: string }) {
  const parts = text.replace(new RegExp(` until (?=${utc})`, "g"), ", due ").split(new RegExp(String.raw`((?:\b(?:at|since) )?${utc})(?: \((?:in [^()]*|[^()]* ago)\))?`));
  return <>{parts.map((part, n) => (n % 2 === 0 ? part : part.startsWith("since ") ? <Since key={n} at={Date.parse(part.slice(6))} /> : <When key={n} at={Date.parse(part.replace(/^at /, ""))} />))}</>;
}

/** Formats the UTC times in a text of the engine, for a tooltip. */
export const engineTextTitle = (text: string): string => text.replace(new RegExp(utc, "g"), (t) => exact(Date.parse(t), false));

// A command ends at the end of its sentence, or before a verb that describes it.
const after = "shows|makes|lets|runs|starts|says|deletes|takes|answers|lists|doubles|gives|continues|delivers|then|is|of|and|or|in|with|for|on";
const word = String.raw`(?:'(?:[^']|'\\'')*'|[^\s';)]*[^\s';).,])`;
const command = new RegExp(String.raw`(\bprogressor(?: (?!(?:${after})\b)${word})+)`);

/** A text of the engine, in which commands are formatted as code. */
export function Commanded({ text }: { text: string }) {
  return <>{text.split(command).map((part, n) => (n % 2 ? <code key={n}>{part}</code> : <EngineText key={n} text={part} />))}</>;
}

export function Took({ ms }: { ms?: number }) {
  return ms === undefined ? <span className="dim">–</span> : <span title={`${ms} ms`}>{span(ms)}</span>;
}

interface ButtonProps extends React.ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "main" | "bad" | "quiet";
}
export function Button({ kind, className, ...rest }: ButtonProps) {
  return <button type="button" className={["button", kind ?? "", className ?? ""].join(" ").trim()} {...rest} />;
}

interface ActProps extends ButtonProps {
  needs: DescMethod; // the method that it calls
  ns?: string; // the namespace, if it is not the one that is shown
}

/**
 * A button that changes something. It is shown only to users who may do that, and never in a
 * read-only console.
 */
export function Act({ needs, ns, ...props }: ActProps) {
  return useMay()(needs, ns) ? <Button {...props} /> : null;
}

/** True within a dialog: a failed request there is not retried automatically. */
const InDialog = createContext(false);

export function ErrorBox({ error, what }: { error: unknown; what?: string }) {
  const box = useRef<HTMLDivElement>(null);
  const inDialog = useContext(InDialog);
  const { refused, inputs } = useForm();
  const isShown = (field: string) => [...inputs].some((shows) => shows(field)); // the error is shown at a field
  const marked = refused?.problems.filter((p) => isShown(p.field)) ?? [];
  const rest = refused?.problems.filter((p) => !isShown(p.field)) ?? [];
  // The error may be below the visible part of a long form.
  useEffect(() => {
    if (error && box.current?.closest("dialog")) box.current.scrollIntoView({ block: "nearest" });
  }, [error]);
  if (!error) return null;
  const { title, text, hint: of } = trouble(error);
  const hint = inDialog ? of?.replace("The page keeps trying.", "Your input is kept: try again in a moment.").replace("The page tries again in a moment.", "Try again in a moment.") : of;
  return (
    <div ref={box} className="notice bad" role="alert" tabIndex={-1}>
      <strong>{what ? `${what}: ${title.toLowerCase()}` : title}</strong>
      {marked.length > 0 && <p>Correct the marked field{marked.length > 1 && "s"}.</p>}
      {marked.length === 0 ? <p>{text}</p> : rest.map((p, n) => <p key={n}>{p.field ? `${p.field}: ${p.text}` : p.text}</p>)}
      {hint && <p className="dim">{hint}</p>}
    </div>
  );
}

/** Shown instead of an object that does not exist, with a link to the list. Other errors are shown as usual. */
export function Missing({ error, what, id, ns, to, list }: { error: unknown; what: string; id: string; ns: string; to: string; list: string }) {
  const failure = ConnectError.from(error);
  if (failure.code !== Code.NotFound) return <ErrorBox error={error} what={id} />;
  const reason = failure.findDetails(ErrorDetailSchema)[0]?.reason;
  if (reason === ErrorDetail_Reason.NAMESPACE_NOT_FOUND)
    return (
      <Empty page title={`Namespace ${ns} does not exist`}>
        Choose another one, or create it. <a href={href("namespaces")}>Show namespaces</a>
      </Empty>
    );
  return (
    <Empty page title={`The ${what} ${id} does not exist in ${ns}`}>
      It was removed, never existed, or is in another namespace. <a href={to}>{list}</a>
    </Empty>
  );
}

/** The published documentation of this release, or the newest one if the engine is not a release. */
const published = `https://github.com/progressor-engine/progressor/blob/${/^v\d+\.\d+\.\d+$/.test(version) ? version : "main"}/docs/`;

/** docs is the page of the documentation about the missing objects. */
export function Empty({ title, children, page, docs }: { title: string; children?: ReactNode; page?: boolean; docs?: string }) {
  return (
    <div className="empty">
      {page ? <h1>{title}</h1> : <strong>{title}</strong>}
      {children && <div>{children}</div>}
      {docs && (
        <div>
          <a href={published + docs} target="_blank" rel="noreferrer">
            Documentation: {docs.replace(".md", "").replace(/^./, (c) => c.toUpperCase())}
          </a>
        </div>
      )}
    </div>
  );
}

export function Loading({ rows = 6 }: { rows?: number }) {
  return (
    <div className="loading" role="status" aria-label="loading">
      {Array.from({ length: rows }, (_, n) => (
        <div key={n} />
      ))}
    </div>
  );
}

export function Card({ title, extra, children, className }: { title?: ReactNode; extra?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={"card " + (className ?? "")}>
      {(title || extra) && (
        <header>
          {title && <h2>{title}</h2>}
          <div className="extra">{extra}</div>
        </header>
      )}
      {children}
    </section>
  );
}

type Input = React.ReactElement<{ id?: string; value?: unknown; "aria-describedby"?: string; "aria-invalid"?: boolean; "aria-required"?: boolean; "data-refused"?: boolean }>;

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: ReactNode;
  required?: boolean; // the form is not sent while the field is empty
  name?: string; // its name in errors of the engine
  children: Input;
}

/**
 * A label with its input and a hint or an error. The hint describes the input; it is not part of its name. In a Form, an
 * error of the engine about the field is shown here until the value changes.
 */
export function Field({ label, hint, error, required, name, children }: FieldProps) {
  const id = useId();
  const { tried } = useForm();
  const given = children.props.value;
  const value = typeof given === "object" ? JSON.stringify(given) : String(given ?? "");
  const refused = useRefusal(name, value);
  const wrong = error || (required && tried && !value.trim() && "is required");
  const said = wrong || refused;
  return (
    <div className="field">
      <label className={required ? "label required" : "label"} htmlFor={id}>
        {label}
      </label>
      {cloneElement(children, { id, "aria-describedby": said || hint ? `${id}-hint` : undefined, "aria-invalid": said ? true : undefined, "aria-required": required || undefined, "data-refused": !wrong && refused ? true : undefined })}
      {(said || hint) && (
        <span id={`${id}-hint`} className={said ? "wrong" : "hint"}>
          {said || hint}
        </span>
      )}
    </div>
  );
}

/**
 * A modal dialog of the browser. If sticky is set, it is closed only by its buttons, because its
 * content is not shown again.
 */
export function Dialog({ title, onClose, children, wide, sticky }: { title: ReactNode; onClose: () => void; children: ReactNode; wide?: boolean; sticky?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog || dialog.open) return;
    dialog.showModal();
    // Otherwise, the browser would focus the close button.
    const first = dialog.querySelector<HTMLElement>("input:not([type=checkbox]), textarea, select") ?? dialog.querySelector<HTMLElement>("footer .button.main") ?? dialog.querySelector<HTMLElement>("footer .button");
    first?.focus();
  }, []);
  return (
    <dialog
      ref={ref}
      className={wide ? "wide" : ""}
      aria-labelledby={heading}
      onClose={onClose}
      onCancel={(e) => sticky && e.preventDefault()}
      onClick={(e) => !sticky && e.target === ref.current && onClose()}
    >
      <div className="dialog">
        <header>
          <h2 id={heading}>{title}</h2>
          <Button kind="quiet" aria-label="close" onClick={onClose}>
            ✕
          </Button>
        </header>
        <InDialog value={true}>{children}</InDialog>
      </div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  says: ReactNode; // what the action does
  verb: string; // label of the button
  bad?: boolean;
  typed?: string; // the user must type this to confirm
  disabled?: boolean;
  run: () => Promise<unknown>;
  done?: string;
  onClose: () => void;
  children?: ReactNode;
}

/** Explains an action, asks for confirmation, runs it, and shows the result. */
export function Confirm({ title, says, verb, bad, typed, disabled, run, done, onClose, children }: ConfirmProps) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const tell = useToast();
  const submit = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await run();
      refresh();
      if (done) tell(done);
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <Form onSubmit={submit} error={error}>
        <div className="says">{says}</div>
        {children}
        {typed !== undefined && (
          <Field label={<>Type <code>{typed}</code> to confirm</>}>
            <input value={text} onChange={(e) => setText(e.target.value)} autoComplete="off" spellCheck={false} />
          </Field>
        )}
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>{verb.startsWith("Cancel") ? "Don't cancel" : "Cancel"}</Button>
          <button type="submit" autoFocus={typed === undefined && !children} className={"button " + (bad ? "bad" : "main")} disabled={busy || disabled || (typed !== undefined && text !== typed)}>
            {busy ? "…" : verb}
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

const ToastContext = createContext<(text: string) => void>(() => undefined);
export const useToast = () => useContext(ToastContext);
export function Toasts({ children }: { children: ReactNode }) {
  const [list, setList] = useState<{ id: number; text: string }[]>([]);
  const next = useRef(0);
  const tell = useCallback((text: string) => {
    const id = next.current++;
    setList((all) => [...all.slice(-3), { id, text }]);
    setTimeout(() => setList((all) => all.filter((t) => t.id !== id)), 6000);
  }, []);
  return (
    <ToastContext.Provider value={tell}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {list.map((t) => (
          <div key={t.id}>{t.text}</div>
        ))}
      </div>
    </ToastContext.Provider>
  );
}

export function Copy({ text, label = "copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return (
    <Button kind="quiet" className="copy" title={label} aria-label={label} onClick={copy}>
      <svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" strokeWidth="1.5" aria-hidden="true">
        {done ? <path d="m3 8.5 3.2 3.2L13 4.8" strokeWidth="2" /> : <path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3" />}
      </svg>
    </Button>
  );
}

export function Tabs({ tabs, now: shown, onChange }: { tabs: [string, ReactNode][]; now: string; onChange: (name: string) => void }) {
  const move = (e: React.KeyboardEvent, n: number) => {
    const to = e.key === "ArrowRight" ? n + 1 : e.key === "ArrowLeft" ? n - 1 : undefined;
    const name = to === undefined ? undefined : tabs[(to + tabs.length) % tabs.length]?.[0];
    if (name === undefined) return;
    onChange(name);
    (e.currentTarget.parentElement?.querySelector(`[data-tab="${name}"]`) as HTMLElement | null)?.focus();
  };
  return (
    <div className="tabs" role="tablist">
      {tabs.map(([name, label], n) => (
        <button key={name} type="button" role="tab" data-tab={name} aria-selected={name === shown} tabIndex={name === shown ? 0 : -1} onClick={() => onChange(name)} onKeyDown={(e) => move(e, n)}>
          {label}
        </button>
      ))}
    </div>
  );
}

/** A text in one line, with the whole text as a tooltip. If fromEngine is set, UTC times in the text are formatted. */
export function Line({ text, fromEngine }: { text: string; fromEngine?: boolean }) {
  return (
    <span className="line" title={fromEngine ? engineTextTitle(text) : text}>
      {fromEngine ? <EngineText text={text} /> : text}
    </span>
  );
}

export function Bar({ part, label, tone = "run" }: { part: number; label: string; tone?: string }) {
  const percent = Math.max(0, Math.min(100, part * 100));
  return (
    <div className={`bar tone-${tone}`} role="progressbar" aria-label={label} aria-valuenow={Math.round(percent)} aria-valuemin={0} aria-valuemax={100}>
      <div style={{ width: `${percent}%` }} />
    </div>
  );
}

export function Fields({ list }: { list: [ReactNode, ReactNode][] }) {
  return (
    <dl className="fields">
      {list.map(([name, value], n) => (
        <div key={n}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function useKey(handle: (e: KeyboardEvent) => void): void {
  const ref = useRef(handle);
  ref.current = handle;
  useEffect(() => {
    const listen = (e: KeyboardEvent) => ref.current(e);
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

/** Reports whether a key belongs to an input field or a dialog rather than to the page. */
export function typing(e: KeyboardEvent): boolean {
  const t = e.target as HTMLElement;
  const box = t instanceof HTMLInputElement && ["checkbox", "radio"].includes(t.type);
  return t.isContentEditable || (["INPUT", "TEXTAREA", "SELECT"].includes(t.tagName) && !box) || document.querySelector("dialog[open]") !== null;
}

/** A table with column headings. A heading that begins with # marks a column of numbers, and an empty heading a column of buttons. */
export function Table({ heads, label, children }: { heads: string[]; label: string; children: ReactNode }) {
  return (
    <Scroll label={label}>
      <table className="stack">
        <thead>
          <tr>
            {heads.map((head, n) =>
              head ? (
                <th key={n} className={head.startsWith("#") ? "number" : undefined}>
                  {head.replace("#", "")}
                </th>
              ) : (
                <td key={n} />
              ),
            )}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Scroll>
  );
}

/** Content that may be wider than the page. It can be scrolled, even with the keyboard. Its label is unique on the page. */
export function Scroll({ children, label }: { children: ReactNode; label: string }) {
  return (
    <div className="scroll" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}
