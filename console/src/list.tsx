// A list: its columns can be chosen and sorted, and its rows can be exported.
import { toJson, type DescMessage, type JsonObject, type JsonValue, type Message } from "@bufbuild/protobuf";
import { useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { attributeText } from "./attributes";
import { Form } from "./form";
import { count, iso } from "./format";
import { SelectAll, SelectCell, type Selection } from "./select";
import { Button, Card, Dialog, ErrorBox, Scroll, useToast } from "./ui";

export interface Column<T> {
  id: string;
  head: string;
  cell: (row: T) => ReactNode;
  text: (row: T) => string; // text in an exported table
  number?: boolean;
  className?: string;
  label?: string | ((row: T) => string | undefined); // label on a phone, where the list has no column headings
  up?: string; // order_by for ascending order
  down?: string; // order_by for descending order
  fixed?: boolean; // always shown
  off?: boolean; // shown only if chosen
}

/** The time of a column in an exported table. */
export const timeText = (ms?: number): string => (ms === undefined ? "" : iso(ms));

/** Returns a column for each key of the metadata. The columns are shown only if chosen. */
export const metadataColumns = <T,>(keys: string[], of: (row: T) => JsonObject | undefined): Column<T>[] =>
  keys.map((key) => {
    const text = (row: T) => attributeText(of(row)?.[key]);
    return { id: `metadata.${key}`, head: key, off: true, className: "wrap", label: key, cell: (row) => text(row) || <span className="dim">–</span>, text };
  });

// The chosen columns of each list, by its name.
const stored = (list: string) => `progressor.columns.${list}`;
const listeners = new Set<() => void>();

function choose(list: string, ids: string[] | undefined): void {
  if (ids) localStorage.setItem(stored(list), JSON.stringify(ids));
  else localStorage.removeItem(stored(list));
  for (const listener of listeners) listener();
}

function parse(text: string): string[] | undefined {
  try {
    const ids: unknown = JSON.parse(text || "null");
    return Array.isArray(ids) ? ids.filter((id) => typeof id === "string") : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the IDs of the columns that were chosen, or undefined. */
export function useChosenColumns(list: string): string[] | undefined {
  const text = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    () => localStorage.getItem(stored(list)) ?? "",
  );
  return parse(text);
}

const shownOf = <T,>(columns: Column<T>[], chosen: string[] | undefined): Column<T>[] => columns.filter((c) => c.fixed || (chosen ? chosen.includes(c.id) : !c.off));

function ColumnsDialog<T>({ list, columns, onClose }: { list: string; columns: Column<T>[]; onClose: () => void }) {
  const chosen = useChosenColumns(list);
  const shown = shownOf(columns, chosen).map((c) => c.id);
  return (
    <Dialog title="Columns" onClose={onClose}>
      <p className="says">The choice is kept in this browser, for all namespaces.</p>
      <fieldset className="checks" aria-label="columns">
        {columns.map((c) => (
          <label key={c.id} className="check">
            <input type="checkbox" checked={shown.includes(c.id)} disabled={c.fixed} onChange={(e) => choose(list, e.target.checked ? [...shown, c.id] : shown.filter((id) => id !== c.id))} /> {c.head}
          </label>
        ))}
      </fieldset>
      <footer>
        <Button disabled={!chosen} onClick={() => choose(list, undefined)}>
          Show the default columns
        </Button>
        <Button kind="main" onClick={onClose}>
          Done
        </Button>
      </footer>
    </Dialog>
  );
}

/** Quotes a value of a CSV file, so that a spreadsheet does not interpret it as a formula. */
function csvValue(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function save(text: string, name: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Reads a page of the rows that the list shows. */
export type ReadPage<T> = (token: string, size: number) => Promise<{ rows: T[]; next: string }>;

const mostRows = 10_000;

interface ExportProps<T> {
  name: string; // name of the file
  schema: DescMessage;
  columns: Column<T>[];
  read: ReadPage<T>;
  onClose: () => void;
}

function ExportDialog<T>({ name, schema, columns, read, onClose }: ExportProps<T>) {
  const [format, setFormat] = useState<"csv" | "json">("csv");
  const [rows, setRows] = useState<number>();
  const [error, setError] = useState<unknown>();
  const closed = useRef(false);
  const tell = useToast();
  const close = () => {
    closed.current = true;
    onClose();
  };
  const write = (all: T[]): string => {
    if (format === "json") return JSON.stringify(all.map((row): JsonValue => toJson(schema, row as Message)), null, 2) + "\n";
    const lines = [columns.map((c) => c.head), ...all.map((row) => columns.map((c) => c.text(row)))];
    return lines.map((line) => line.map(csvValue).join(",") + "\r\n").join("");
  };
  const run = async () => {
    setError(undefined);
    setRows(0);
    try {
      const all: T[] = [];
      let token = "";
      do {
        const page = await read(token, Math.min(500, mostRows - all.length));
        if (closed.current) return;
        all.push(...page.rows);
        token = page.next;
        setRows(all.length);
      } while (token && all.length < mostRows);
      save(write(all), `${name}.${format}`, format === "csv" ? "text/csv" : "application/json");
      tell(token ? `Exported the first ${count(all.length)} rows. There are more.` : `Exported ${count(all.length)} rows.`);
      close();
    } catch (failure) {
      setError(failure);
      setRows(undefined);
    }
  };
  return (
    <Dialog title="Export" onClose={close}>
      <Form onSubmit={run} error={error}>
        <p className="says">Saves everything that matches the filter, in the order of the list: at most {count(mostRows)} rows.</p>
        <div className="chips" role="group" aria-label="format">
          <button type="button" className="chip" aria-pressed={format === "csv"} onClick={() => setFormat("csv")}>
            CSV
          </button>
          <button type="button" className="chip" aria-pressed={format === "json"} onClick={() => setFormat("json")}>
            JSON
          </button>
        </div>
        <p className="hint">{format === "csv" ? "A table of the columns that are shown. Times are in UTC." : "All fields, as in the responses of the API."}</p>
        <p role="status">{rows !== undefined && `${count(rows)} rows read…`}</p>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={close}>Cancel</Button>
          <button type="submit" className="button main" disabled={rows !== undefined}>
            Export
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

interface ListProps<T> {
  name: string; // name of the objects, such as processes
  ns: string;
  schema: DescMessage; // schema of a row
  columns: Column<T>[];
  rows: T[];
  idOf: (row: T) => string;
  s?: Selection;
  order?: string; // order_by; "" for the default of the engine
  onOrder?: (order: string) => void;
  read: ReadPage<T>; // reads the pages of an export
}

function Head<T>({ c, order, onOrder }: { c: Column<T>; order: string; onOrder?: (order: string) => void }) {
  const up = c.up !== undefined && c.up === order;
  const down = c.down !== undefined && c.down === order;
  const can = onOrder && (c.up !== undefined || c.down !== undefined);
  const next = down ? (c.up ?? "") : up ? (c.down ?? "") : (c.down ?? c.up ?? "");
  return (
    <th className={c.number ? "number" : undefined} aria-sort={down ? "descending" : up ? "ascending" : undefined}>
      {can ? (
        <button type="button" className="sort" onClick={() => onOrder(next)}>
          {c.head} <span aria-hidden="true">{down ? "▾" : up ? "▴" : "↕"}</span>
        </button>
      ) : (
        c.head
      )}
    </th>
  );
}

export function List<T>({ name, ns, schema, columns, rows, idOf, s, order = "", onOrder, read }: ListProps<T>) {
  const [open, setOpen] = useState<"columns" | "export">();
  const shown = shownOf(columns, useChosenColumns(name));
  return (
    <Card>
      <Scroll label={name}>
        <table className="stack">
          <thead>
            <tr>
              {s?.offered && (
                <th>
                  <SelectAll s={s} />
                </th>
              )}
              {shown.map((c) => (
                <Head key={c.id} c={c} order={order} onOrder={onOrder} />
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={idOf(row)}>
                {s && <SelectCell s={s} id={idOf(row)} />}
                {shown.map((c) => (
                  <td key={c.id} className={[c.number ? "number" : "", c.className ?? ""].join(" ").trim() || undefined} data-label={typeof c.label === "function" ? c.label(row) : c.label}>
                    {c.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <div className="listfoot">
        <Button kind="quiet" onClick={() => setOpen("columns")}>
          Columns…
        </Button>
        <Button kind="quiet" onClick={() => setOpen("export")}>
          Export…
        </Button>
      </div>
      {open === "columns" && <ColumnsDialog list={name} columns={columns} onClose={() => setOpen(undefined)} />}
      {open === "export" && <ExportDialog name={`${name}-${ns.replaceAll("/", "-")}`} schema={schema} columns={shown} read={read} onClose={() => setOpen(undefined)} />}
    </Card>
  );
}
