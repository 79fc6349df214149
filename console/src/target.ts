// What a cron starts, in words.
import type { Cron } from "./gen/progressor/v1/cron_pb";

export function targetWords(c: Cron): string {
  const t = c.target?.target;
  switch (t?.case) {
    case "startProcess":
      return `starts a process${t.value.namespace && t.value.namespace !== c.namespace ? ` in ${t.value.namespace}` : ""}`;
    case "notifyProcess":
      return `notifies ${t.value.processId}`;
    case "enqueueJob":
      return `enqueues ${t.value.name}`;
    case "http":
      return `${t.value.method || "POST"} ${t.value.url}`;
    case "startRun":
      return `starts a ${t.value.type} run`;
    default:
      return "?";
  }
}
