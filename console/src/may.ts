// What the user may do. The console offers only that, but the engine makes the decision.
import { getOption, type DescMethod } from "@bufbuild/protobuf";
import { useCallback } from "react";
import { readOnly, useMe } from "./api";
import { AccessService } from "./gen/progressor/v1/access_pb";
import { BulkService, InsightService } from "./gen/progressor/v1/admin_pb";
import { needs, Permission, Scope } from "./gen/progressor/v1/auth_pb";
import { ChangeService } from "./gen/progressor/v1/change_pb";
import { CronService } from "./gen/progressor/v1/cron_pb";
import { FlowService } from "./gen/progressor/v1/flow_pb";
import { JobService } from "./gen/progressor/v1/job_pb";
import { NamespaceService } from "./gen/progressor/v1/namespace_pb";
import { ProcessService } from "./gen/progressor/v1/process_pb";
import { WorkerService } from "./gen/progressor/v1/worker_pb";
import { useParam } from "./router";

/** The methods of all services. No two have the same name. */
export const methods = { ...AccessService.method, ...ProcessService.method, ...NamespaceService.method, ...InsightService.method, ...BulkService.method, ...ChangeService.method, ...CronService.method, ...FlowService.method, ...JobService.method, ...WorkerService.method };

/** The name of a permission in the answers of the engine, such as process.call. */
const nameOf = (p: Permission) => (Permission[p] ?? "").toLowerCase().replace("_", ".");

/** The name of the permission that a method needs. */
export const permissionOf = (method: DescMethod): string => nameOf(getOption(method, needs).permission);

const matches = (pattern: string, ns: string) => (pattern.endsWith("*") ? ns.startsWith(pattern.slice(0, -1)) : pattern === ns);

/** Reports whether the user may send requests of a method in a namespace, by default in the one that is shown. */
export type May = (method: DescMethod, ns?: string) => boolean;

export function useMay(): May {
  const me = useMe();
  const can = useCan();
  return useCallback(
    // An engine that does not authenticate lists keys, but changes none.
    (method, ns) => !readOnly && !(me?.principal === "" && method.parent.typeName === AccessService.typeName) && can(method, ns),
    [me, can],
  );
}

/** Reports whether the user has the permission for a method, even if the console is read-only. */
export function useCan(): May {
  const me = useMe();
  const shown = useParam("ns");
  return useCallback(
    (method, ns = shown) => {
      if (me === undefined) return false; // unknown for a moment
      if (me === null) return true;
      const { permission, or, scope } = getOption(method, needs);
      const names = [permission, or].filter((p) => p !== Permission.UNSPECIFIED).map(nameOf);
      // If no namespace is known, as for a new one, a grant in any namespace is enough.
      const where = (pattern: string) => (scope === Scope.ENGINE ? pattern === "*" : ns === "" || matches(pattern, ns));
      return me.grants.some((g) => where(g.namespaces) && g.permissions.some((p) => names.includes(p)));
    },
    [me, shown],
  );
}
