// The engine as the pages see it: generated clients, one way to read, one way to change, and errors that say what to do.
import { Code, ConnectError, createClient, type CallOptions, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { keepPreviousData, QueryClient, useMutation, useQuery, type QueryKey } from "@tanstack/react-query";
import { BulkService, InsightService } from "./gen/progressor/v1/admin_pb";
import { CronService } from "./gen/progressor/v1/cron_pb";
import { FlowService, JobEventService } from "./gen/progressor/v1/flow_pb";
import { JobService } from "./gen/progressor/v1/job_pb";
import { NamespaceService } from "./gen/progressor/v1/namespace_pb";
import { ErrorDetail_Reason, ErrorDetailSchema, ProcessService, type ErrorDetail } from "./gen/progressor/v1/process_pb";
import { WorkerService } from "./gen/progressor/v1/worker_pb";

export const readOnly = document.documentElement.dataset.mode === "read-only";
export const version = document.documentElement.dataset.version ?? "";

const tokenName = "progressor.token";
let token = sessionStorage.getItem(tokenName) ?? "";

/** Sets the token that every request carries, for as long as the tab lives. */
export function setToken(text: string): void {
  token = text;
  sessionStorage.setItem(tokenName, text);
  asked(false);
  void queries.invalidateQueries();
}

let askForToken = false;
const listeners = new Set<() => void>();
function asked(now: boolean): void {
  if (askForToken === now) return;
  askForToken = now;
  for (const told of listeners) told();
}
export const tokenAsked = {
  subscribe(told: () => void) {
    listeners.add(told);
    return () => void listeners.delete(told);
  },
  now: () => askForToken,
};

const authorize: Interceptor = (next) => async (request) => {
  if (token) request.header.set("Authorization", "Bearer " + token);
  try {
    return await next(request);
  } catch (error) {
    if (ConnectError.from(error).code === Code.Unauthenticated) asked(true);
    throw error;
  }
};

// The page's own directory is the engine's root, whatever path a proxy has put before it.
const transport = createConnectTransport({ baseUrl: new URL(".", location.href.split("#")[0]).href.replace(/\/$/, ""), interceptors: [authorize] });

export const processes = createClient(ProcessService, transport);
export const insight = createClient(InsightService, transport);
export const bulks = createClient(BulkService, transport);
export const crons = createClient(CronService, transport);
export const flows = createClient(FlowService, transport);
export const jobEvents = createClient(JobEventService, transport);
export const jobs = createClient(JobService, transport);
export const namespaces = createClient(NamespaceService, transport);
export const workers = createClient(WorkerService, transport);

export const queries = new QueryClient({
  defaultOptions: { queries: { retry: (count, error) => count < 2 && ConnectError.from(error).code === Code.Unavailable, staleTime: 2000 } },
});

// After a change the pages want their own answers for a moment: a shared one may be from before it.
let freshUntil = 0;
export function refresh(): void {
  freshUntil = Date.now() + 3000;
  void queries.invalidateQueries();
}

interface ReadOptions {
  every?: number; // milliseconds between two looks; 0: one look
  enabled?: boolean;
  age?: number; // seconds that a shared answer may be old; as long as every
  keep?: boolean; // shows the answer before until the next one is there
}

/** Reads, and again every so often while the page is looked at. The engine answers all viewers of a page from one look. */
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
  // A look that has to wait for its turn is no trouble as long as there is something to show.
  const waits = query.data !== undefined && query.error !== null && ConnectError.from(query.error).code === Code.ResourceExhausted;
  return { data: query.data, error: waits ? null : query.error, isPending: query.isPending, isFetching: query.isFetching };
}

/** Changes something, and has all that is shown read again. */
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
  [Code.Unavailable]: ["The engine does not answer", "It is starting, draining, or its database is away. The page goes on trying."],
  [Code.ResourceExhausted]: ["The engine is busy", "Nothing was changed. It is tried again in a moment."],
  [Code.NotFound]: ["Not there", "It was removed, or has never been. Is it another namespace?"],
  [Code.PermissionDenied]: ["Not allowed"],
  [Code.Unauthenticated]: ["Who are you?", "The engine wants a token."],
  [Code.InvalidArgument]: ["This is not accepted"],
  [Code.FailedPrecondition]: ["This cannot be done now"],
  [Code.DeadlineExceeded]: ["Still under way", "The answer did not come in time. What was asked for goes on."],
  [Code.Aborted]: ["It failed"],
  [Code.AlreadyExists]: ["There is one already"],
  [Code.Unknown]: ["The engine cannot be reached", "Is it running? The page goes on trying."],
  [Code.Unimplemented]: ["This engine cannot do that", "It is older than this page, or was built without it."],
};

/** What to tell people about an error. */
export function trouble(error: unknown): Trouble {
  const failure = ConnectError.from(error);
  const [title, hint] = titles[failure.code] ?? ["Something went wrong"];
  const detail = failure.findDetails(ErrorDetailSchema)[0];
  // What browsers say where nothing answers differs, and tells no more than the title.
  const text = (failure.code === Code.Unknown && /^(Failed to fetch|NetworkError|Load failed)/.test(failure.rawMessage) ? "No answer came back." : failure.rawMessage) || "No reason was given.";
  if (detail?.reason === ErrorDetail_Reason.PROCESS_STATUS) return { title: "Its status does not allow this", text, detail };
  if (detail?.reason === ErrorDetail_Reason.STALE_ETAG) return { title: "It was changed meanwhile", text, hint: "Nothing was changed by this. Open it again.", detail };
  if (detail?.rejection) return { title: "The processor said no", text, hint: "Nothing was changed.", detail };
  if (detail?.failure) return { title: "The processor failed", text, hint, detail };
  return { title, text, hint, detail };
}
