// The check boxes of a list, on whose items a bulk can act.
import { useEffect, useState } from "react";
import { quote } from "./filter";
import { plural } from "./format";
import { methods, useMay } from "./may";
import { Act } from "./ui";

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
 * Returns the selected items of a list. When shown changes, because the list shows something else,
 * the selection is cleared. Bulks act neither on the engine's own processes nor on the jobs of
 * steps.
 */
export function useSelection(shown: string, all: string[]): Selection {
  const offered = useMay()(methods.startBulk);
  const [chosen, set] = useState<string[]>([]);
  useEffect(() => set([]), [shown]);
  const ids = all.filter((id) => !id.startsWith("~")).slice(0, 90); // a filter has at most 100 comparisons
  return { offered, ids, chosen, set, toggle: (id, on) => set((all) => (on ? [...all, id] : all.filter((c) => c !== id))) };
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
