// The fires of the last day, or of the known part of it, in equal periods, for crons that fire
// often.
import { useMemo } from "react";
import { count, exact, millis, span } from "./format";
import { FireStatus, type Fire } from "./gen/progressor/v1/cron_pb";
import { useNow } from "./ui";

const day = 86_400_000;
const parts = 96;
const lengths = [1000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000]; // possible lengths of a part, in milliseconds

const failed = (f: Fire): boolean => f.status === FireStatus.FAILED || f.status === FireStatus.TIMEOUT;

interface Part {
  from: number;
  good: number;
  bad: number;
  other: number;
}

/** The fires are sorted, newest first. If whole is set, there are no older ones. */
export function DayBar({ fires, whole }: { fires: Fire[]; whole: boolean }) {
  const now = Math.floor(useNow() / 10_000) * 10_000;
  const { list, length, begin } = useMemo(() => {
    const oldest = millis(fires.at(-1)?.fireTime) ?? now;
    const known = whole ? day : Math.min(day, Math.max(now - oldest, 1));
    const length = lengths.find((l) => l * parts >= known) ?? day / parts;
    const end = Math.ceil(now / length) * length;
    const begin = end - parts * length;
    const list: Part[] = Array.from({ length: parts }, (_, n) => ({ from: begin + n * length, good: 0, bad: 0, other: 0 }));
    for (const f of fires) {
      const part = list[Math.floor(((millis(f.fireTime) ?? 0) - begin) / length)];
      if (!part) continue;
      const n = Number(f.count || 1n);
      if (failed(f)) part.bad += n;
      else if (f.status === FireStatus.SUCCESS) part.good += n;
      else part.other += n;
    }
    return { list, length, begin };
  }, [fires, whole, now]);
  const most = Math.max(1, ...list.map((p) => p.good + p.bad + p.other));
  const sum = (of: (p: Part) => number) => list.reduce((all, p) => all + of(p), 0);
  const says = (p: Part) => [p.good && `${count(p.good)} succeeded`, p.bad && `${count(p.bad)} failed`, p.other && `${count(p.other)} skipped, cancelled or running`].filter(Boolean).join(", ") || "no fires";
  const all: Part = { from: begin, good: sum((p) => p.good), bad: sum((p) => p.bad), other: sum((p) => p.other) };
  const ticks = [0, 0.25, 0.5, 0.75].map((part) => begin + part * parts * length);
  return (
    <figure className="daybar">
      <div className="bars" role="img" aria-label={`fires of the last ${span(parts * length)}: ${says(all)}`}>
        {list.map((p) => (
          <span key={p.from} title={`${exact(p.from, false)} to ${exact(p.from + length, false).slice(11)}: ${says(p)}`}>
            {p.other > 0 && <i className="tone-gone" style={{ height: `${(p.other / most) * 100}%` }} />}
            {p.good > 0 && <i className="tone-good" style={{ height: `${(p.good / most) * 100}%` }} />}
            {p.bad > 0 && <i className="tone-bad" style={{ height: `${Math.max(12, (p.bad / most) * 100)}%` }} />}
          </span>
        ))}
      </div>
      <div className="axis dim" aria-hidden="true">
        {ticks.map((t) => (
          <span key={t}>{exact(t, false).slice(11, length < 60_000 ? 19 : 16)}</span>
        ))}
        <span>now</span>
      </div>
      <figcaption className="dim">
        In the last {span(parts * length)}: {says(all)}.
      </figcaption>
    </figure>
  );
}
