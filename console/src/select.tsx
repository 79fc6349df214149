// The cursor and the check boxes of a list, on whose items a bulk can act.
import { useEffect, useState } from "react";
import { quote } from "./filter";
import { plural } from "./format";
import { methods, useMay } from "./may";
import { Act, typing, useKey } from "./ui";

/** What a list contains: the field of its filter with the id, and its name in buttons. */
export interface Listed {
  field: string;
  one: string;
  many: string;
}

export interface Selection {
  offered: boolean; // the user may start bulks
  ids: string[]; // the items of the page that can be selected
  chosen: string[];
  toggle: (id: string, on: boolean) => void;
  set: (ids: string[]) => void;
}

/**
 * Returns the selected items of a list. When the list shows something else (shown), none is selected. Bulks act neither on
 * the engine's own processes nor on the jobs of steps.
 */
export function useSelection(shown: string, all: string[]): Selection {
  const offered = useMay()(methods.startBulk);
  const [chosen, set] = useState<string[]>([]);
  useEffect(() => set([]), [shown]);
  const ids = all.filter((id) => !id.startsWith("~")).slice(0, 90); // a filter has at most 100 comparisons
  return { offered, ids, chosen, set, toggle: (id, on) => set((all) => (on ? [...all, id] : all.filter((c) => c !== id))) };
}

/** Moves a cursor through the rows of a list with j and k. Enter opens the row, x selects it. Returns the number of the row, or -1. */
export function useCursor(ids: string[], shown: string, open: (id: string) => void, s?: Selection): number {
  const [at, setAt] = useState(-1);
  useEffect(() => setAt(-1), [shown]);
  useKey((e) => {
    if (typing(e) || e.ctrlKey || e.metaKey) return;
    const id = ids[at];
    if (e.key === "j" || e.key === "k") {
      const to = Math.max(0, Math.min(ids.length - 1, at + (e.key === "j" ? 1 : -1)));
      setAt(to);
      document.querySelectorAll("tbody tr")[to]?.scrollIntoView({ block: "nearest" });
    } else if (e.key === "Enter" && id !== undefined && (e.target as HTMLElement).tagName !== "A") open(id);
    else if (e.key === "x" && id !== undefined && s?.offered && s.ids.includes(id)) s.toggle(id, !s.chosen.includes(id));
  });
  return at;
}

export const SelectAll = ({ s }: { s: Selection }) => <input type="checkbox" aria-label="select all on this page" disabled={s.ids.length === 0} checked={s.ids.length > 0 && s.chosen.length === s.ids.length} onChange={(e) => s.set(e.target.checked ? s.ids : [])} />;

/** The cell of a row with its check box, if the user may start bulks. */
export function SelectCell({ s, id }: { s: Selection; id: string }) {
  const may = s.ids.includes(id);
  return s.offered ? (
    <td>
      <input type="checkbox" aria-label={`select ${id}`} title={may ? undefined : "A bulk of this list does not include it."} disabled={!may} checked={s.chosen.includes(id)} onChange={(e) => s.toggle(id, e.target.checked)} />
    </td>
  ) : null;
}

/** The filter of a bulk on the selected items, or on all that the list shows. */
export const bulkFilter = (s: Selection, of: Listed, filter: string): string => (s.chosen.length ? s.chosen.map((id) => `${of.field} = ${quote(id)}`).join(" OR ") : filter || `${of.field} = "*"`);

export function ActOnMatches({ s, of, disabled, onClick }: { s: Selection; of: Listed; disabled: boolean; onClick: () => void }) {
  return (
    <Act needs={methods.startBulk} kind={s.chosen.length ? "main" : undefined} onClick={onClick} disabled={disabled}>
      {s.chosen.length ? `Act on ${plural(s.chosen.length, `selected ${of.one}`, `selected ${of.many}`)}…` : "Act on all matches…"}
    </Act>
  );
}
