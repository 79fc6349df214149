// The grants of clients: their roles in namespaces.
import { useState } from "react";
import { access, readOnly, refresh, useMe, useRead } from "../api";
import { Form } from "../form";
import { millis } from "../format";
import type { Grant } from "../gen/progressor/v1/access_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { change, useParam } from "../router";
import { Act, Button, Card, Confirm, Dialog, Empty, ErrorBox, Field, Loading, Table, useToast, When } from "../ui";
import { noRole, RoleFields, rolesOf, RoleWords } from "./roles";

const kinds: Record<string, [string, string, string]> = {
  key: ["a key", "Key", "The ID of a valid key."],
  user: ["a user", "User", "The issuer, # and the name, such as https://login.example.com#alice."],
  group: ["all users of a group", "Group", "The name of the group at the issuer, with the group prefix of the issuer if it has one."],
  cert: ["a client certificate", "URI", "The URI in the certificate, such as spiffe://example.org/billing."],
};

/** Returns the names of the 200 newest valid keys, by key ID. */
function useKeyNames(): Map<string, string> {
  const { data } = useRead(["keynames"], (o) => access.listKeys({ validOnly: true, pageSize: 200 }, o), { every: 15_000 });
  return new Map(data?.keys.map((k) => [k.keyId, k.name]));
}

/**
 * A dialog that adds grants. client is the principal that gets them, and name is the name to show.
 * If client is undefined, the user enters the principal.
 */
export function AddGrant({ client, name, onClose }: { client?: string; name?: string; onClose: () => void }) {
  const [kind, setKind] = useState("group");
  const [who, setWho] = useState("");
  const [role, setRole] = useState(noRole);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const names = useKeyNames();
  const tell = useToast();
  const principal = client ?? `${kind}:${who.trim()}`;
  const save = async () => {
    setBusy(true);
    try {
      for (const one of rolesOf(role)) await access.addGrant({ grant: { principal, role: one } });
      tell(`${name ?? principal} has the role ${role.role}.`);
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    } finally {
      refresh();
    }
  };
  const [, label, hint] = kinds[kind] ?? ["", "", ""];
  return (
    <Dialog title={client ? `Add a role to ${name ?? client}` : "Add a grant"} wide onClose={onClose}>
      <Form onSubmit={save} error={error}>
        <div className="says">A client may do what at least one of its roles allows. Every engine knows the change within 10 s.</div>
        {!client && (
          <div className="grid2">
            <Field label="For">
              <select value={kind} onChange={(e) => setKind(e.target.value)}>
                {Object.entries(kinds).map(([k, [text]]) => (
                  <option key={k} value={k}>
                    {text}
                  </option>
                ))}
              </select>
            </Field>
            <Field label={label} name="grant.principal" required hint={hint}>
              <input value={who} onChange={(e) => setWho(e.target.value)} list={kind === "key" ? "keyids" : undefined} spellCheck={false} autoComplete="off" />
            </Field>
          </div>
        )}
        <datalist id="keyids">
          {[...names].map(([id, text]) => (
            <option key={id} value={id}>
              {text}
            </option>
          ))}
        </datalist>
        <RoleFields role={role} onChange={setRole} />
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Add
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

export function Grants() {
  const after = useParam("after");
  const client = useParam("client");
  const me = useMe();
  const names = useKeyNames();
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Grant>();
  const { data, error, isPending } = useRead(["grants", client, after], (o) => access.listGrants({ principal: client, pageSize: 100, pageToken: after }, o), { keep: true });
  useCommands(readOnly ? [] : [{ name: "Add a grant", group: "access", needs: methods.addGrant, run: () => setAdding(true) }]);
  const own = removing && (me?.principal === removing.principal || me?.groups.includes(removing.principal));
  return (
    <>
      <div className="head">
        {client ? (
          <p>
            This list shows only the grants of <code>{client}</code>. <Button kind="quiet" onClick={() => change({ client: undefined, after: undefined })}>Show all</Button>
          </p>
        ) : (
          <p className="dim">A client without a grant may do nothing. Clients are keys, users, groups of users, and certificates.</p>
        )}
        <div className="actions">
          <Act needs={methods.addGrant} kind="main" onClick={() => setAdding(true)}>
            Add a grant…
          </Act>
        </div>
      </div>
      <ErrorBox error={error} what="Grants" />
      {isPending && <Loading />}
      {data?.grants.length === 0 && !after && (
        <Empty title={client ? `No grants of ${client}` : "No grants yet"}>
          Add one: <code>progressor grant add group:support support 'shop/*' --db.dsn DSN</code>
        </Empty>
      )}
      {(data?.grants.length ?? 0) > 0 && (
        <Card>
          <Table label="grants" heads={["Client", "May", "Added by", "Added", ""]}>
            {data?.grants.map((g) => (
              <tr key={`${g.principal}\n${g.role?.role}\n${g.role?.pattern}`}>
                <td className="wrap id">
                  <button type="button" className="fold" title="Show only grants of this client" onClick={() => change({ client: g.principal, after: undefined })}>
                    {g.principal}
                  </button>
                  {g.principal.startsWith("key:") && <div className="dim">{names.get(g.principal.slice("key:".length))}</div>}
                </td>
                <td className="what" data-label="may">
                  <RoleWords role={g.role} />
                </td>
                <td className="wrap" data-label="added by">{g.createdBy}</td>
                <td data-label="added">
                  <When at={millis(g.createdTime)} />
                </td>
                <td className="end">
                  <Act needs={methods.removeGrant} kind="bad" onClick={() => setRemoving(g)}>
                    Remove…
                  </Act>
                </td>
              </tr>
            ))}
          </Table>
          <p className="dim">Grants are stored in the database, not in the configuration file. Add them here, or with <code>progressor grant add --db.dsn=DSN</code>.</p>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {adding && <AddGrant client={client || undefined} onClose={() => setAdding(false)} />}
      {removing && (
        <Confirm
          title={`Remove ${removing.role?.role} from ${removing.principal}?`}
          says={
            <>
              The client loses the role <RoleWords role={removing.role} />. The change applies on every engine within 10 s.
              {own && <strong> You use this grant: you may lose access to this page.</strong>}
            </>
          }
          verb="Remove"
          bad
          run={() => access.removeGrant({ grant: { principal: removing.principal, role: removing.role } })}
          done={`${removing.principal} no longer has the role ${removing.role?.role}.`}
          onClose={() => setRemoving(undefined)}
        />
      )}
    </>
  );
}
