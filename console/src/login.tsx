// The login, and the user who has logged in.
import { useQuery } from "@tanstack/react-query";
import { useState, useSyncExternalStore } from "react";
import { endLogin, forgetToken, hasToken, loginAddress, readLogins, setToken, tokenAsked, useMe } from "./api";
import { Button, Dialog, Field, useToast } from "./ui";

/** Asks for a login or a token when the engine requires one. */
export function Login() {
  const asked = useSyncExternalStore(tokenAsked.subscribe, tokenAsked.now);
  const { data: logins, isPending } = useQuery({ queryKey: ["logins"], queryFn: async () => (await readLogins()) ?? null, enabled: asked, staleTime: Infinity });
  const [text, setText] = useState("");
  const [byToken, setByToken] = useState(false);
  if (!asked || isPending) return null;
  const issuers = logins?.issuers ?? [];
  const close = () => setToken("");
  const token = (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        // A browser would also send a cookie, and the engine rejects requests with both.
        void endLogin().finally(() => setToken(text.trim()));
      }}
    >
      <Field label="Token" hint="Kept in this tab only, and sent with each request.">
        <input type="password" autoFocus autoComplete="off" value={text} onChange={(e) => setText(e.target.value)} />
      </Field>
      <footer>
        <button type="submit" className="button main" disabled={!text.trim()}>
          Log in
        </button>
      </footer>
    </form>
  );
  if (!logins || !issuers.length)
    return (
      <Dialog title="The engine requires a token" onClose={close}>
        {token}
      </Dialog>
    );
  return (
    <Dialog title="Log in to Progressor" onClose={close}>
      <div className="logins">
        {issuers.map(({ name, host }) => (
          <a key={name} className="button main" href={loginAddress(logins, name)} onClick={forgetToken}>
            Log in with {host}
            {issuers.length > 1 && ` (${name})`}
          </a>
        ))}
      </div>
      {byToken ? (
        token
      ) : (
        <footer>
          <Button kind="quiet" onClick={() => setByToken(true)}>
            Use a token instead
          </Button>
        </footer>
      )}
    </Dialog>
  );
}

/**
 * Shows the user of the console and the logout, or nothing if the engine does not authenticate its
 * clients.
 */
export function User() {
  const me = useMe();
  const tell = useToast();
  if (!me?.principal) return null;
  // A user is shown without the issuer.
  const name = me.principal.startsWith("user:") ? me.principal.slice(me.principal.indexOf("#") + 1) : me.principal;
  const logOut = async () => {
    if (me.login && !(await endLogin())) {
      tell("You are still logged in: the engine does not respond. Try again.");
      return;
    }
    forgetToken();
    // The next user must not see what this page has loaded.
    location.hash = "";
    location.reload();
  };
  return (
    <div className="user">
      <span title={[me.principal, ...me.groups].join("\n")}>{name}</span>
      {(me.login || hasToken()) && (
        <Button kind="quiet" onClick={() => void logOut()}>
          Log out
        </Button>
      )}
    </div>
  );
}
