// Access to the engine: generated clients, hooks to read and change, and error texts.
import { Code, ConnectError, createClient, type CallOptions, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { keepPreviousData, QueryClient, useMutation, useQuery, type QueryKey } from "@tanstack/react-query";
import { AccessService } from "./gen/progressor/v1/access_pb";
import { BulkService, InsightService } from "./gen/progressor/v1/admin_pb";
import { ChangeService } from "./gen/progressor/v1/change_pb";
import { CronService } from "./gen/progressor/v1/cron_pb";
import { FlowService, JobEventService } from "./gen/progressor/v1/flow_pb";
import { JobService } from "./gen/progressor/v1/job_pb";
import { NamespaceService, type Namespace } from "./gen/progressor/v1/namespace_pb";
import { ErrorDetail_Reason, ErrorDetailSchema, ProcessService, type ErrorDetail } from "./gen/progressor/v1/process_pb";
import { WorkerService } from "./gen/progressor/v1/worker_pb";

export const readOnly = document.documentElement.dataset.mode === "read-only";
export const version = document.documentElement.dataset.version ?? "";

const tokenName = "progressor.token";
let token = sessionStorage.getItem(tokenName) ?? "";

/** Sets the token that is sent with every request until the tab is closed. "" sends none. */
export function setToken(text: string): void {
  token = text;
  sessionStorage.setItem(tokenName, text);
  asked(false);
  void queries.invalidateQueries();
}

// The directory of the page is the root of the engine, even behind a proxy with a path prefix.
const root = new URL(".", location.href.split("#")[0]).href;

/** Sends a request to a path of the engine that is not a method of the API. */
const ask = (page: string, options: RequestInit = {}) => fetch(root + page, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}", cache: "no-store", ...options });

/** Where users can log in. */
export interface Logins {
  url: string; // URL of the console, without a final slash
  issuers: { name: string; host: string }[];
}

/** Returns where users can log in. An older engine or a proxy may not support this request. */
export const readLogins = (): Promise<Logins | undefined> =>
  ask("login/options", { method: "GET", body: undefined }).then((answer) => (answer.ok ? (answer.json() as Promise<Logins>) : undefined)).catch(() => undefined);

/** Returns the address that logs a user in at an issuer, and leads back to the page that is shown. */
export function loginAddress(logins: Logins, issuer: string): string {
  const page = location.hash.slice(1);
  const to = /^\/([a-z]+(\?[!-~]*)?)?$/.test(page) && page.length <= 1000 ? page : "/";
  return `${logins.url}/login?${String(new URLSearchParams({ issuer, to }))}`;
}

/** Reports whether the tab has a token. */
export const hasToken = () => token !== "";

/**
 * Forgets the token of the tab before the user logs in, because an engine rejects requests with
 * both a token and a cookie.
 */
export function forgetToken(): void {
  token = ""; // a browser can show this page again without loading it
  sessionStorage.removeItem(tokenName);
}

/** Ends the login in the cookie of the browser, if there is one. Reports whether the login has ended. */
export const endLogin = (): Promise<boolean> => ask("logout").then((answer) => answer.ok).catch(() => false);

/** Who uses the console, and what they may do. */
export interface Me {
  principal: string; // "" if the engine does not authenticate
  login: boolean; // the user has logged in to the console
  groups: string[];
  grants: { namespaces: string; permissions: string[] }[];
}

async function readMe(): Promise<Me | null> {
  const sent = token;
  const answer = await ask("whoami", token ? { headers: { "Content-Type": "application/json", Authorization: "Bearer " + token } } : {});
  if (answer.status === 401 && sent === token) asked(true);
  if (answer.status < 500 && !answer.ok && answer.status !== 401 && answer.status !== 429) return null; // an older engine, or a proxy
  if (!answer.ok) throw new Error(`whoami: ${answer.status}`);
  return (await answer.json()) as Me;
}

/** Returns who uses the console: undefined while that is unknown, null if the engine does not report it. */
export function useMe(): Me | null | undefined {
  return useQuery({ queryKey: ["me"], queryFn: readMe, refetchInterval: 30_000, retry: 2 }).data;
}

let askForToken = false;
const listeners = new Set<() => void>();
function asked(now: boolean): void {
  if (askForToken === now) return;
  askForToken = now;
  for (const listener of listeners) listener();
}
export const tokenAsked = {
  subscribe(listener: () => void) {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  },
  now: () => askForToken,
};

const authorize: Interceptor = (next) => async (request) => {
  for (;;) {
    const sent = token;
    if (sent) request.header.set("Authorization", "Bearer " + sent);
    else request.header.delete("Authorization");
    try {
      return await next(request);
    } catch (error) {
      const refused = ConnectError.from(error).code === Code.Unauthenticated;
      // If the user has set another token in the meantime, try again with it.
      if (refused && sent !== token && !request.stream) continue;
      if (refused && sent === token) asked(true);
      throw error;
    }
  }
};

const transport = createConnectTransport({ baseUrl: root.replace(/\/$/, ""), interceptors: [authorize] });

export const access = createClient(AccessService, transport);
export const processes = createClient(ProcessService, transport);
export const insight = createClient(InsightService, transport);
export const bulks = createClient(BulkService, transport);
export const changes = createClient(ChangeService, transport);
export const crons = createClient(CronService, transport);
export const flows = createClient(FlowService, transport);
export const jobEvents = createClient(JobEventService, transport);
export const jobs = createClient(JobService, transport);
export const namespaces = createClient(NamespaceService, transport);
export const workers = createClient(WorkerService, transport);

/** Reads all pages of the namespaces. */
export async function allNamespaces(options?: CallOptions): Promise<{ namespaces: Namespace[] }> {
  const all: Namespace[] = [];
  for (let pageToken = ""; ; ) {
    const page = await namespaces.listNamespaces({ pageToken }, options);
    all.push(...page.namespaces);
    pageToken = page.nextPageToken;
    if (!pageToken) return { namespaces: all };
  }
}

export const queries = new QueryClient({
  defaultOptions: { queries: { retry: (count, error) => count < 2 && ConnectError.from(error).code === Code.Unavailable, staleTime: 2000 } },
});

// For a moment after a change, pages do not use shared responses, because these may be older than the change.
let freshUntil = 0;
export function refresh(): void {
  freshUntil = Date.now() + 3000;
  void queries.invalidateQueries();
}

interface ReadOptions {
  every?: number; // milliseconds between two reads; 0 means to read once
  enabled?: boolean;
  age?: number; // maximum age of a shared response in seconds; default: every
  keep?: boolean; // shows the previous response until the next one arrives
}

/** Reads repeatedly while the page is visible. All viewers of a page share the responses. */
export function useRead<T>(key: QueryKey, read: (options: CallOptions) => Promise<T>, { every = 5000, age = Math.max(1, Math.round(every / 1000)), enabled = true, keep = false }: ReadOptions = {}) {
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => {
      if (Date.now() < freshUntil) return read({ signal });
      const again = age >= 2 && queries.getQueryData(key) !== undefined;
      return read({ signal, headers: { "Cache-Control": `max-age=${age}${again ? ", max-stale" : ""}` } });
    },
    refetchInterval: (query) => (query.state.error ? Math.max(every, 5000) : every || false),
    enabled,
    placeholderData: keep ? keepPreviousData : undefined,
  });
  // A read that was rejected because of overload is not an error while there is older data to show.
  const waits = query.data !== undefined && query.error !== null && ConnectError.from(query.error).code === Code.ResourceExhausted;
  return { data: query.data, error: waits ? null : query.error, isPending: query.isPending, isFetching: query.isFetching };
}

/** Changes something, and reloads all data. */
export function useChange<A, T>(change: (argument: A) => Promise<T>) {
  return useMutation({ mutationFn: change, onSettled: refresh });
}

export interface Trouble {
  title: string;
  text: string;
  hint?: string;
  detail?: ErrorDetail;
}

const titles: Partial<Record<Code, [string, string?]>> = {
  [Code.Unavailable]: ["The engine does not respond", "It is starting or draining, or its database is down. The page keeps trying."],
  [Code.ResourceExhausted]: ["The engine is busy", "Nothing was changed. The page tries again in a moment."],
  [Code.NotFound]: ["Not found", "It was removed, never existed, or is in another namespace."],
  [Code.PermissionDenied]: ["Not allowed"],
  [Code.Unauthenticated]: ["Not logged in", "The engine requires a login or a token."],
  [Code.InvalidArgument]: ["Invalid input"],
  [Code.FailedPrecondition]: ["Not possible now"],
  [Code.DeadlineExceeded]: ["Still running", "The response did not arrive in time. The task continues."],
  [Code.Aborted]: ["Failed"],
  [Code.AlreadyExists]: ["Already exists"],
  [Code.Unimplemented]: ["Not supported by this engine", "It is older than this page, or was built without this feature."],
};

// The texts of browsers for a request without a response. None of them adds to the title.
const noResponse = /^(Failed to fetch|network ?error|Load failed|The network connection was lost|The Internet connection appears to be offline|Error in (input|body) stream)/i;
const unreachable: Trouble = { title: "The engine cannot be reached", text: "There was no response.", hint: "Check that it is running. The page keeps trying." };

/** Returns the text to show for an error. */
export function trouble(error: unknown): Trouble {
  const failure = ConnectError.from(error);
  if (failure.code === Code.Unknown && noResponse.test(failure.rawMessage)) return unreachable;
  const [title, hint] = titles[failure.code] ?? ["Something went wrong"];
  const detail = failure.findDetails(ErrorDetailSchema)[0];
  const text = failure.rawMessage || "The engine gave no reason.";
  if (detail?.reason === ErrorDetail_Reason.PROCESS_STATUS) return { title: "Not allowed in this status", text, detail };
  if (detail?.reason === ErrorDetail_Reason.STALE_ETAG) return { title: "Changed by somebody else", text, hint: "Your change was not saved. Open it again.", detail };
  if (detail?.rejection) return { title: "Rejected by the processor", text, hint: "Nothing was changed.", detail };
  if (detail?.failure) return { title: "The processor failed", text, hint, detail };
  return { title, text, hint, detail };
}
