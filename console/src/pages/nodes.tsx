import { useState } from "react";
import { insight, useRead } from "../api";
import { count, millis } from "../format";
import type { Node } from "../gen/progressor/v1/admin_pb";
import { methods } from "../may";
import { Status } from "../status";
import { Act, Card, Confirm, ErrorBox, Loading, Table, useNow, When } from "../ui";
import { lookOfNode, silent } from "./overview";

export function Nodes() {
  const now = useNow();
  const [draining, setDraining] = useState<Node>();
  const { data, error, isPending } = useRead(["nodes"], (o) => insight.listNodes({}, o), { every: 3000 });
  return (
    <>
      <h1>Nodes</h1>
      <ErrorBox error={error} />
      {isPending && <Loading rows={3} />}
      {data && (
        <Card extra={<span className="dim">silent nodes are listed for an hour</span>}>
          <Table label="nodes" heads={["State", "Node", "Address", "Version", "#Running", "Last heartbeat", "Started", ""]}>
            {data.nodes.map((n) => (
              <tr key={n.nodeId}>
                <td>
                  <Status look={lookOfNode(n, now)} />
                </td>
                <td className="strong">{n.nodeId}</td>
                <td data-label="at">{n.address}</td>
                <td data-label="version">{n.version}</td>
                <td className="number" data-label="running">{count(n.running)}</td>
                <td data-label="last heartbeat">
                  <When at={millis(n.beatTime)} />
                </td>
                <td data-label="started">
                  <When at={millis(n.startedTime)} />
                </td>
                <td className="end">
                  {!n.draining && lookOfNode(n, now) !== silent && (
                    <Act needs={methods.drainNode} kind="bad" onClick={() => setDraining(n)}>
                      Drain…
                    </Act>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      {draining && (
        <Confirm
          title={`Drain node ${draining.nodeId} (${draining.address})?`}
          says={`It finishes running tasks, rejects requests and ends its streams, until it is stopped. ${data?.nodes.length === 1 ? "It is the only node: nothing runs until another one starts." : "The other nodes continue."}`}
          verb="Drain"
          bad
          typed={data?.nodes.length === 1 ? draining.nodeId : undefined}
          run={() => insight.drainNode({ nodeId: draining.nodeId })}
          done={`Node ${draining.nodeId} is draining.`}
          onClose={() => setDraining(undefined)}
        />
      )}
    </>
  );
}
