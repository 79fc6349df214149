// The crons that fire next, of a namespace or of all.
import { crons, useRead } from "../api";
import { millis } from "../format";
import { href } from "../router";
import { targetWords } from "../target";
import { Card, ErrorBox, Table, When } from "../ui";

export function NextFires({ ns }: { ns: string }) {
  const { data, error } = useRead(["crons", ns, "next"], (o) => crons.listNextCrons({ namespace: ns, pageSize: 6 }, o), { every: 10_000 });
  if (!error && !data?.crons.length) return null;
  return (
    <Card title="Next fires">
      <ErrorBox error={error} />
      {data && (
        <Table label="next fires" heads={["When", ...(ns ? [] : ["Namespace"]), "Cron", "Target"]}>
          {data.crons.map((c) => (
            <tr key={`${c.namespace} ${c.cronId}`}>
              <td>
                <When at={millis(c.nextFireTimes[0])} next />
              </td>
              {!ns && (
                <td data-label="namespace">
                  <a href={href("overview", { ns: c.namespace })}>{c.namespace}</a>
                </td>
              )}
              <td className="wrap id">
                <a href={href("cron", { ns: c.namespace, id: c.cronId })}>{c.cronId}</a>
              </td>
              <td className="wrap">{targetWords(c)}</td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}
