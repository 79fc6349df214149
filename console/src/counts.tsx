// The statuses of a list, each with the number of matches. A click narrows the filter to one status.
import type { CallOptions } from "@connectrpc/connect";
import { useRead } from "./api";
import { splitFilter, withValue } from "./filter";
import { count } from "./format";
import { change } from "./router";
import { Mark, type Look } from "./status";

/** A number of matches. If more is set, there may be more. */
export interface Counted {
  n: bigint | number;
  more?: boolean;
}

/** The processes to show by status: without the internal ones (jobs, runs, crons, bulks), unless they are asked for. */
export const shownCounts = (o: { countByStatus: Record<string, bigint>; internalByStatus: Record<string, bigint> }, internal: boolean): Record<string, bigint> =>
  Object.fromEntries(Object.entries(o.countByStatus).map(([status, n]) => [status, internal ? n : n - (o.internalByStatus[status] ?? 0n)]));

/** Reads the statuses of the first rows that match a filter. */
export type ReadStatuses = (filter: string, size: number, options: CallOptions) => Promise<{ statuses: string[]; more: boolean }>;

const mostOfAll = 200;
const mostOfOne = 100;

/** Counts the matches of a filter by status. If there are many, it counts those of each status up to a limit. */
async function countMatches(filter: string, field: string, names: string[], read: ReadStatuses, o: CallOptions): Promise<Record<string, Counted>> {
  const all = await read(filter, mostOfAll, o);
  const of = (name: string) => all.statuses.filter((s) => s === name).length;
  if (!all.more) return Object.fromEntries(names.map((name) => [name, { n: of(name) }]));
  const each = await Promise.all(
    names.map(async (name): Promise<[string, Counted]> => {
      const some = await read(withValue(filter, field, name), mostOfOne, o);
      return [name, { n: some.statuses.length, more: some.more }];
    }),
  );
  return Object.fromEntries(each);
}

interface Props {
  list: string; // its name, for the cache
  ns: string;
  filter: string;
  field: string; // field of the filter
  looks: Record<string, Look>;
  total?: Record<string, Counted>; // the counts without a filter, if the engine has them
  counted: boolean; // the engine has these counts, even if total has not arrived yet
  read: ReadStatuses;
  label: string;
  title?: string;
}

export function StatusChips({ list, ns, filter, field, looks, total, counted, read, label, title }: Props) {
  const names = Object.keys(looks);
  const { value, rest } = splitFilter(filter, field);
  const whole = counted && rest.trim() === "";
  const matches = useRead(["matches", list, ns, rest], (o) => countMatches(rest, field, names, read, o), { every: 30_000, enabled: !whole });
  const counts = whole ? total : matches.data;
  return (
    <div className="chips" role="group" aria-label={label}>
      {Object.entries(looks).map(([name, look]) => {
        const on = value === name;
        const found = counts?.[name];
        return (
          <button key={name} type="button" className="chip" aria-pressed={on} onClick={() => change({ filter: on ? rest : withValue(filter, field, name), after: undefined })}>
            <Mark look={look} /> {look.name} <strong title={found?.more ? "at least" : title}>{found ? `${count(found.n)}${found.more ? "+" : ""}` : counts || !matches.error ? "…" : "?"}</strong>
          </button>
        );
      })}
    </div>
  );
}
