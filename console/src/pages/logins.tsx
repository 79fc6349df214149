// The logins of users to the console.
import { useState } from "react";
import { access, useMe, useRead } from "../api";
import { millis, plural } from "../format";
import type { ConsoleLogin } from "../gen/progressor/v1/access_pb";
import { methods } from "../may";
import { Pager } from "../paging";
import { useParam } from "../router";
import { Act, Card, Confirm, Empty, ErrorBox, Loading, Table, useToast, When } from "../ui";

export function ConsoleLogins() {
  const after = useParam("after");
  const me = useMe();
  const tell = useToast();
  const [ending, setEnding] = useState<[ConsoleLogin, "one" | "all"]>();
  const { data, error, isPending } = useRead(["consolelogins", after], (o) => access.listConsoleLogins({ pageSize: 100, pageToken: after }, o), { keep: true });
  return (
    <>
      <ErrorBox error={error} what="Console logins" />
      {isPending && <Loading />}
      {data?.logins.length === 0 && !after && (
        <Empty title="No logins">
          If the engine is started with <code>--auth.oidc.client-id</code>, users log in to the console at an issuer (OpenID Connect). The command <code>progressor console-login list --db.dsn DSN</code> also shows the logins.
        </Empty>
      )}
      {(data?.logins.length ?? 0) > 0 && (
        <Card>
          <Table label="logins" heads={["User", "Logged in", "Last used", "Ends", ""]}>
            {data?.logins.map((l) => (
              <tr key={l.loginId}>
                <td className="wrap id">
                  {l.user}
                  <div className="dim">
                    <code>{l.loginId}</code>
                  </div>
                </td>
                <td data-label="logged in">
                  <When at={millis(l.createdTime)} />
                </td>
                <td data-label="last used">
                  <When at={millis(l.usedTime)} />
                </td>
                <td data-label="ends">
                  <When at={millis(l.expireTime)} />
                </td>
                <td className="end">
                  <Act needs={methods.endConsoleLogins} onClick={() => setEnding([l, "one"])}>End…</Act>{" "}
                  <Act needs={methods.endConsoleLogins} kind="bad" onClick={() => setEnding([l, "all"])}>
                    End all of the user…
                  </Act>
                </td>
              </tr>
            ))}
          </Table>
          <p className="dim">A login also ends if it is not used for some time (--auth.console.idle). The last use may be up to a minute more recent than shown.</p>
        </Card>
      )}
      <Pager after={after} next={data?.nextPageToken ?? ""} />
      {ending && (
        <Confirm
          title={ending[1] === "one" ? `End this login of ${ending[0].user}?` : `End all logins of ${ending[0].user}?`}
          says={
            <>
              Every engine rejects {ending[1] === "one" ? "it" : "them"} within 10 s. The user can log in again, unless the issuer prevents it.
              {me?.login && me.principal === ending[0].user && <strong> This is your own account: you may be logged out.</strong>}
            </>
          }
          verb="End"
          bad
          run={async () => {
            const { ended } = await access.endConsoleLogins({ which: ending[1] === "one" ? { case: "loginId", value: ending[0].loginId } : { case: "user", value: ending[0].user } });
            tell(`${plural(ended, "login")} of ${ending[0].user} ended.`);
          }}
          onClose={() => setEnding(undefined)}
        />
      )}
    </>
  );
}
