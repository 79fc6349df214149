// Shows in the navigation how many waits the user may answer, in all namespaces.
import { flows, useRead } from "./api";
import { methods, useCan } from "./may";

const most = 100;

export function InboxCount() {
  const can = useCan()(methods.listOpenWaits, "");
  const { data } = useRead(["waits", "", "count"], (o) => flows.listOpenWaits({ namespace: "", filter: "kind = HUMAN", answerable: true, pageSize: most }, o), { every: 15_000, enabled: can });
  const n = data?.waits.length ?? 0;
  return n ? (
    <span className="badge" title="steps that wait for your answer, in all namespaces">
      {n}
      {data?.nextPageToken && "+"}
    </span>
  ) : null;
}
