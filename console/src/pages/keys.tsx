// The keys of clients: create, rotate and revoke. The token of a new key is shown once.
import { create } from "@bufbuild/protobuf";
import { useRef, useState } from "react";
import { access, readOnly, refresh, useMe, useRead } from "../api";
import { Form } from "../form";
import { count, duration, millis, parseSpan, typedSpan } from "../format";
import { CreateKeyRequestSchema, KeyState, type Key } from "../gen/progressor/v1/access_pb";
import { methods } from "../may";
import { useCommands } from "../palette";
import { Pager } from "../paging";
import { change, href, useParam } from "../router";
import { Status, type Look } from "../status";
import { Act, Button, Card, Confirm, Dialog, Empty, ErrorBox, Field, Loading, Table, When } from "../ui";
import { AddGrant } from "./grants";
import { noRole, RoleFields, rolesOf, RoleWords, type RoleForm } from "./roles";

function lookOf(k: Key): Look {
  if (k.state === KeyState.REVOKED) return { name: "Revoked", tone: "gone", shape: "slash" };
  if (k.state === KeyState.EXPIRED) return { name: "Expired", tone: "gone", shape: "clock" };
  return k.replacedBy ? { name: "Rotated", tone: "hold", shape: "clock" } : { name: "Valid", tone: "good", shape: "check" };
}

const wrongSpan = (text: string) => text.trim() !== "" && !(parseSpan(text)! >= 1000) && "a duration of at least 1s, such as 90d or 12h";

/** The token of a new key, which cannot be read again. */
function NewToken({ token, onClose }: { token: string; onClose: () => void }) {
  const [copied, setCopied] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const copy = async () => {
    input.current?.select();
    try {
      await navigator.clipboard.writeText(token); // only with https, or on this machine
      setCopied("Copied.");
    } catch {
      setCopied("The browser does not allow this. The token is selected: press Ctrl C.");
    }
  };
  return (
    <>
      <div className="notice hold">
        <strong>Copy the token now.</strong> It is shown only once. If you lose it, rotate the key.
      </div>
      <div className="token">
        <Field label="Token">
          <input ref={input} className="mono" readOnly autoFocus value={token} onFocus={(e) => e.target.select()} />
        </Field>
        <Button kind="main" onClick={() => void copy()}>
          Copy the token
        </Button>
      </div>
      <p role="status">{copied}</p>
      <p className="dim">
        A client sends it as <code>Authorization: Bearer TOKEN</code>. Commands read it from <code>PROGRESSOR_TOKEN</code> or <code>--token-file</code>; <code>progressor whoami</code> shows what the key may do.
      </p>
      <footer>
        <Button onClick={onClose}>Done</Button>
      </footer>
    </>
  );
}

function CreateKey({ keys, onClose }: { keys: Key[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [roles, setRoles] = useState<RoleForm[]>([noRole]);
  const [expires, setExpires] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [token, setToken] = useState("");
  const same = keys.find((k) => k.state === KeyState.VALID && k.name === name.trim());
  const wrong = wrongSpan(expires);
  const save = async () => {
    setBusy(true);
    try {
      const ttl = expires.trim() ? duration(parseSpan(expires) ?? 0) : undefined;
      const made = await access.createKey(create(CreateKeyRequestSchema, { name: name.trim(), roles: roles.flatMap(rolesOf), ttl }));
      refresh();
      setToken(made.token);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  if (token)
    return (
      <Dialog title={`The key ${name.trim()} is created`} sticky onClose={onClose}>
        <NewToken token={token} onClose={onClose} />
      </Dialog>
    );
  return (
    <Dialog title="Create a key" wide onClose={onClose}>
      <Form onSubmit={save} error={error}>
        <div className="grid2">
          <Field label="Name" name="name" required hint={same ? <>The key <code>{same.keyId}</code> also has this name. Keys with the same name count as one client, which shares its worker IDs.</> : "What the key is for, such as billing-worker."}>
            <input autoFocus value={name} onChange={(e) => setName(e.target.value)} maxLength={256} />
          </Field>
          <Field label="Valid for" name="ttl" hint="Such as 90d. If empty, the key does not expire." error={wrong}>
            <input value={expires} onChange={(e) => setExpires(e.target.value)} />
          </Field>
        </div>
        {roles.map((role, n) => (
          <RoleFields key={n} number={roles.length > 1 ? n + 1 : 0} role={role} onChange={(changed) => setRoles(roles.with(n, changed))} onRemove={roles.length > 1 ? () => setRoles(roles.toSpliced(n, 1)) : undefined} />
        ))}
        <Button kind="quiet" onClick={() => setRoles([...roles, noRole])} disabled={roles.length >= 20}>
          + Another role
        </Button>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Create
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

function RotateKey({ old, onClose }: { old: Key; onClose: () => void }) {
  const created = millis(old.createdTime) ?? 0;
  const end = millis(old.expireTime);
  const [overlap, setOverlap] = useState("1d");
  const [expires, setExpires] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [token, setToken] = useState("");
  const wrongOverlap = parseSpan(overlap) === undefined && "a duration, such as 1d, or 0s";
  const wrong = wrongSpan(expires);
  const save = async () => {
    setBusy(true);
    try {
      const made = await access.rotateKey({ keyId: old.keyId, overlap: duration(parseSpan(overlap) ?? 0), ttl: expires.trim() ? duration(parseSpan(expires) ?? 0) : undefined });
      refresh();
      setToken(made.token);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  if (token)
    return (
      <Dialog title={`The key ${old.name} is rotated`} sticky onClose={onClose}>
        <NewToken token={token} onClose={onClose} />
      </Dialog>
    );
  return (
    <Dialog title={`Rotate ${old.name}?`} onClose={onClose}>
      <Form onSubmit={save} error={error}>
        <div className="says">Creates a key with the same name and the same roles. Give its token to the client before the old key ends. Both keys count as one client.</div>
        <div className="grid2">
          <Field label="The old key stays valid for" name="overlap" hint="0s revokes it at once." error={wrongOverlap}>
            <input value={overlap} onChange={(e) => setOverlap(e.target.value)} />
          </Field>
          <Field label="The new key is valid for" name="ttl" hint={end === undefined ? "If empty, the key does not expire, like the old key." : `Empty: ${typedSpan(Math.round((end - created) / 1000) * 1000)}, like the old key.`} error={wrong}>
            <input value={expires} onChange={(e) => setExpires(e.target.value)} />
          </Field>
        </div>
        <ErrorBox error={error} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" className="button main" disabled={busy}>
            Rotate
          </button>
        </footer>
      </Form>
    </Dialog>
  );
}

type KeyDialog = ["create"] | ["rotate" | "revoke" | "role", Key];

export function Keys() {
  const after = useParam("after");
  const all = useParam("show") === "all";
  const me = useMe();
  const [dialog, setDialog] = useState<KeyDialog>();
  const { data, error, isPending } = useRead(["keys", all, after], (o) => access.listKeys({ validOnly: !all, pageSize: 100, pageToken: after }, o), { keep: true });
  useCommands(readOnly ? [] : [{ name: "Create a key", group: "access", needs: methods.createKey, run: () => setDialog(["create"]) }]);
  const close = () => setDialog(undefined);
  const keys = data?.keys ?? [];
  const own = (k: Key) => me?.principal === `key:${k.keyId}`;
  return (
    <>
      <div className="head">
        <Field label="Show">
          <select value={all ? "all" : ""} onChange={(e) => change({ show: e.target.value, after: undefined })}>
            <option value="">valid keys</option>
            <option value="all">all keys</option>
          </select>
        </Field>
        <div className="actions">
          <Act needs={methods.createKey} kind="main" onClick={() => setDialog(["create"])}>
            Create a key…
          </Act>
        </div>
      </div>
      <ErrorBox error={error} what="Keys" />
      {isPending && <Loading />}
      {data && keys.length === 0 && !after && (
        <Empty title={all ? "No keys yet" : "No valid keys"}>
          A key lets a service or a worker use the API. Create one: <code>progressor key create --name billing --role client --namespaces 'billing/*' --db.dsn DSN</code>
        </Empty>
      )}
      {keys.length > 0 && (
        <Card>
          <Table label="keys" heads={["State", "Key", "May", "Created", "Last used", "Expires", ""]}>
            {keys.map((k) => (
              <tr key={k.keyId}>
                <td>
                  <Status look={lookOf(k)} />
                </td>
                <td className="wrap id">
                  <span className="strong">{k.name}</span>
                  <div className="dim">
                    <code>{k.keyId}</code>
                    {own(k) && " you use it"}
                    {k.replacedBy && <> replaced by <code>{k.replacedBy}</code></>}
                  </div>
                </td>
                <td className="what" data-label="may">
                  {k.roles.map((r) => (
                    <div key={`${r.role} ${r.pattern}`}>
                      <RoleWords role={r} />
                    </div>
                  ))}
                  {k.roleCount === 0 && <span className="dim">nothing</span>}
                  {k.roleCount > k.roles.length && <a href={href("access", { tab: "grants", client: `key:${k.keyId}` })}>{count(k.roleCount - k.roles.length)} more</a>}
                </td>
                <td className="wrap" data-label="created">
                  <When at={millis(k.createdTime)} /> <span className="dim">by {k.createdBy}</span>
                </td>
                <td data-label="last used">
                  <When at={millis(k.usedTime)} />
                </td>
                <td data-label="expires">
                  {k.revokedTime ? <>revoked <When at={millis(k.revokedTime)} /></> : <When at={millis(k.expireTime)} />}
                </td>
                <td className="end">
                  {k.state === KeyState.VALID && (
                    <>
                      <Act needs={methods.addGrant} onClick={() => setDialog(["role", k])}>Add a role…</Act>{" "}
                      {!k.replacedBy && <Act needs={methods.rotateKey} onClick={() => setDialog(["rotate", k])}>Rotate…</Act>}{" "}
                      <Act needs={methods.revokeKey} kind="bad" onClick={() => setDialog(["revoke", k])}>
                        Revoke…
                      </Act>
                    </>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {dialog?.[0] === "create" && <CreateKey keys={keys} onClose={close} />}
      {dialog?.[0] === "rotate" && <RotateKey old={dialog[1]} onClose={close} />}
      {dialog?.[0] === "role" && <AddGrant client={`key:${dialog[1].keyId}`} name={dialog[1].name} onClose={close} />}
      {dialog?.[0] === "revoke" && (
        <Confirm
          title={`Revoke ${dialog[1].name}?`}
          says={
            <>
              Every engine rejects the key <code>{dialog[1].keyId}</code> within 10 s. It cannot become valid again.
              {own(dialog[1]) && <strong> You use this key: you will be logged out.</strong>}
            </>
          }
          verb="Revoke"
          bad
          run={() => access.revokeKey({ keyId: dialog[1].keyId })}
          done={`${dialog[1].name} is revoked.`}
          onClose={close}
        />
      )}
    </>
  );
}
