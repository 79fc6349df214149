// The keys of clients, what clients may do, and the logins of users to the console. Only users with
// the role root see this page.
import { useMe } from "../api";
import { change, useParam } from "../router";
import { Tabs } from "../ui";
import { Grants } from "./grants";
import { Keys } from "./keys";
import { ConsoleLogins } from "./logins";

export function Access() {
  const me = useMe();
  const tab = useParam("tab") || "keys";
  return (
    <>
      <h1>Access</h1>
      {me?.principal === "" && (
        <div className="notice hold" role="status">
          <strong>This engine does not check who its clients are</strong> (<code>--auth.mode none</code>): everyone who can connect may do everything, so keys and grants cannot be changed here. Start it with <code>--auth.mode local</code>, or use <code>progressor key create --name operator --role root --db.dsn …</code>
        </div>
      )}
      {me?.principal === "root" && (
        <p className="notice" role="status">
          You use the root key of this engine. It is in a file, not in this list, and may do everything.
        </p>
      )}
      <Tabs
        tabs={[
          ["keys", "Keys"],
          ["grants", "Grants"],
          ["logins", "Console logins"],
        ]}
        now={tab}
        onChange={(name) => change({ tab: name === "keys" ? undefined : name, after: undefined, client: undefined })}
      />
      {tab === "grants" ? <Grants /> : tab === "logins" ? <ConsoleLogins /> : <Keys />}
    </>
  );
}
