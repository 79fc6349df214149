// A calendar of the days on which a cron fires, with the times as tooltips.
import { useMemo } from "react";

interface Parts {
  day: string; // 2026-11-22
  time: string; // 09:30:00
}

function partsIn(zone: string): (t: number) => Parts {
  const format = new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return (t) => {
    const p = Object.fromEntries(format.formatToParts(t).map((x) => [x.type, x.value]));
    return { day: `${p.year}-${p.month}-${p.day}`, time: `${p.hour}:${p.minute}:${p.second}`.replace(/:00$/, "") };
  };
}

const monthNames = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

export function Calendar({ times, zone, more, months = 2 }: { times: number[]; zone: string; more: boolean; months?: number }) {
  const { days, shown, today } = useMemo(() => {
    let parts: (t: number) => Parts;
    try {
      parts = partsIn(zone);
    } catch {
      parts = partsIn("UTC"); // the browser does not know this zone
    }
    const days = new Map<string, string[]>();
    for (const t of times) {
      const p = parts(t);
      days.set(p.day, [...(days.get(p.day) ?? []), p.time]);
    }
    const today = parts(Date.now()).day;
    const [year = 2000, month = 1] = today.split("-").map(Number);
    const shown = Array.from({ length: months }, (_, n) => ({ year: year + Math.floor((month - 1 + n) / 12), month: (month - 1 + n) % 12 }));
    return { days, shown, today };
  }, [times, zone, months]);
  const last = times.length && more ? [...days.keys()].at(-1) : undefined;
  return (
    <div className="calendar">
      {shown.map(({ year, month }) => {
        const first = (new Date(Date.UTC(year, month, 1)).getUTCDay() + 6) % 7;
        const length = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
        return (
          <table key={`${year}-${month}`} aria-label={`${monthNames[month]} ${year}`}>
            <caption>
              {monthNames[month]} {year}
            </caption>
            <thead>
              <tr>
                {["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].map((d) => (
                  <th key={d}>{d}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {Array.from({ length: Math.ceil((first + length) / 7) }, (_, week) => (
                <tr key={week}>
                  {Array.from({ length: 7 }, (_, d) => {
                    const n = week * 7 + d - first + 1;
                    if (n < 1 || n > length) return <td key={d} />;
                    const day = `${year}-${String(month + 1).padStart(2, "0")}-${String(n).padStart(2, "0")}`;
                    const fires = days.get(day);
                    const unknown = last !== undefined && day > last;
                    return (
                      <td key={d} className={[fires ? "fires" : "", day === today ? "today" : "", unknown ? "unknown" : ""].join(" ")} title={fires ? `${fires.length} fires: ${fires.slice(0, 8).join(", ")}${fires.length > 8 ? " …" : ""}` : unknown ? "not shown: only the first 1,000 fires are shown" : undefined}>
                        {n}
                        {fires && fires.length > 1 && <small>{fires.length > 99 ? "99+" : fires.length}</small>}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        );
      })}
    </div>
  );
}
