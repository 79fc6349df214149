// The crons of a namespace that fire next.
import { crons, useRead } from "../api";
import { millis } from "../format";
import { href } from "../router";
import { Card, ErrorBox, Table, When } from "../ui";
import { targetWords } from "./crons";

const read = 100;
const shown = 6;

export function NextFires({ ns }: { ns: string }) {
  const { data, error } = useRead(["crons", ns, "next"], (o) => crons.listCrons({ namespace: ns, filter: "paused = false", pageSize: read }, o), { every: 10_000 });
  const next = (data?.crons ?? []).flatMap((c) => {
    const at = millis(c.nextFireTimes[0]);
    return at === undefined ? [] : [{ c, at }];
  });
  if (!error && next.length === 0) return null;
  return (
    <Card title="Next fires" extra={data?.nextPageToken && <span className="dim">of the first {read} crons</span>}>
      <ErrorBox error={error} />
      <Table label="next fires" heads={["When", "Cron", "Target"]}>
        {next
          .sort((a, b) => a.at - b.at)
          .slice(0, shown)
          .map(({ c, at }) => (
            <tr key={c.cronId}>
              <td>
                <When at={at} next />
              </td>
              <td className="wrap id">
                <a href={href("cron", { ns, id: c.cronId })}>{c.cronId}</a>
              </td>
              <td className="wrap">{targetWords(c)}</td>
            </tr>
          ))}
      </Table>
    </Card>
  );
}
