import type { DescMethod } from "@bufbuild/protobuf";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { allNamespaces, readOnly, refresh, useMe, useRead, version } from "./api";
import { InboxCount } from "./inbox";
import { Login, User } from "./login";
import { methods, permissionOf, useCan } from "./may";
import { Commands, useCommands, type Command } from "./palette";
import { change, go, href, parse, useRoute } from "./router";
import { listKey } from "./rowkeys";
import { choose, chosen, useTheme } from "./theme";
import { allTimes, chooseTimes, useTimes, type Times } from "./times";
import { Button, Dialog, Empty, ErrorBox, Loading, Toasts, typing, useKey } from "./ui";
import { givenViews, useViews } from "./views";
import { Overview } from "./pages/overview";
import { Boundary } from "./boundary";

// A page with a method is shown only to users who may call the method.
type Page = { title: string; key?: string; needs: boolean; nav: boolean; method?: DescMethod; show: React.ComponentType<{ ns: string }> };

// All pages except the overview are loaded when they are first opened.
const pages: Record<string, Page> = {
  overview: { title: "Overview", key: "o", needs: false, nav: true, show: Overview },
  waits: { title: "Inbox", key: "i", needs: false, nav: true, show: lazy(() => import("./pages/waits").then((m) => ({ default: m.Waits }))) },
  processes: { title: "Processes", key: "p", needs: true, nav: true, show: lazy(() => import("./pages/processes").then((m) => ({ default: m.Processes }))) },
  process: { title: "Process", needs: true, nav: false, show: lazy(() => import("./pages/process").then((m) => ({ default: m.ProcessPage }))) },
  bulks: { title: "Bulks", needs: true, nav: false, show: lazy(() => import("./pages/bulk").then((m) => ({ default: m.Bulks }))) },
  flows: { title: "Flows", key: "f", needs: true, nav: true, show: lazy(() => import("./pages/runs").then((m) => ({ default: m.Runs }))) },
  run: { title: "Run", needs: true, nav: false, show: lazy(() => import("./pages/run").then((m) => ({ default: m.RunPage }))) },
  templates: { title: "Templates", key: "m", needs: true, nav: false, show: lazy(() => import("./pages/templates").then((m) => ({ default: m.Templates }))) },
  template: { title: "Template", needs: true, nav: false, show: lazy(() => import("./pages/templates").then((m) => ({ default: m.TemplatePage }))) },
  jobs: { title: "Jobs", key: "j", needs: true, nav: true, show: lazy(() => import("./pages/jobs").then((m) => ({ default: m.Jobs }))) },
  job: { title: "Job", needs: true, nav: false, show: lazy(() => import("./pages/jobs").then((m) => ({ default: m.JobPage }))) },
  constraints: { title: "Constraints", needs: true, nav: false, show: lazy(() => import("./pages/constraints").then((m) => ({ default: m.Constraints }))) },
  crons: { title: "Crons", key: "c", needs: true, nav: true, show: lazy(() => import("./pages/crons").then((m) => ({ default: m.Crons }))) },
  cron: { title: "Cron", needs: true, nav: false, show: lazy(() => import("./pages/cron").then((m) => ({ default: m.CronPage }))) },
  changes: { title: "Changes", key: "h", needs: true, nav: true, show: lazy(() => import("./pages/changes").then((m) => ({ default: m.Changes }))) },
  sink: { title: "Sink", needs: true, nav: false, show: lazy(() => import("./pages/sink").then((m) => ({ default: m.SinkPage }))) },
  workers: { title: "Workers", key: "w", needs: true, nav: true, show: lazy(() => import("./pages/workers").then((m) => ({ default: m.Workers }))) },
  worker: { title: "Worker", needs: true, nav: false, show: lazy(() => import("./pages/workers").then((m) => ({ default: m.WorkerPage }))) },
  namespaces: { title: "Namespaces", key: "n", needs: false, nav: true, show: lazy(() => import("./pages/namespaces").then((m) => ({ default: m.Namespaces }))) },
  nodes: { title: "Nodes", key: "d", needs: false, nav: true, method: methods.listNodes, show: lazy(() => import("./pages/nodes").then((m) => ({ default: m.Nodes }))) },
  audit: { title: "Audit", key: "u", needs: false, nav: true, method: methods.listAudit, show: lazy(() => import("./pages/audit").then((m) => ({ default: m.Audit }))) },
  access: { title: "Access", key: "a", needs: false, nav: true, method: methods.listKeys, show: lazy(() => import("./pages/access").then((m) => ({ default: m.Access }))) },
  bulk: { title: "Bulk", needs: true, nav: false, show: lazy(() => import("./pages/bulk").then((m) => ({ default: m.BulkPage }))) },
};

const loadPalette = () => import("./search").then((m) => ({ default: m.Palette }));
const Palette = lazy(loadPalette);

const lastName = "progressor.namespace";

/**
 * Returns the namespaces and the selected one, which is the one in the address, or else the last
 * one that was shown.
 */
function useNamespace(page: string, needed: boolean): { ns: string; all: string[]; paused: boolean; error: unknown; loading: boolean; guessed: boolean } {
  const { params } = useRoute();
  const { data, error, isPending } = useRead(["namespaces"], allNamespaces, { every: 15000 });
  const all = useMemo(() => data?.namespaces.map((n) => n.namespace) ?? [], [data]);
  const ns = params.get("ns") ?? "";
  const [guess, setGuess] = useState({ page: "", ns: "" });
  useEffect(() => {
    if (ns) localStorage.setItem(lastName, ns);
    else if (needed && all.length) {
      const last = localStorage.getItem(lastName) ?? "";
      const one = all.includes(last) ? last : all[0];
      setGuess({ page, ns: one ?? "" });
      change({ ns: one }, "replace");
    }
  }, [page, ns, needed, all]);
  const paused = data?.namespaces.some((n) => n.namespace === ns && n.paused) ?? false;
  return { ns, all, paused, error, loading: isPending, guessed: guess.page === page && guess.ns === ns };
}

/** The pages that the user may see. */
function usePages(): [string, Page][] {
  const can = useCan();
  return useMemo(() => Object.entries(pages).filter(([, p]) => !p.method || can(p.method)), [can]);
}

function Shortcuts({ onClose }: { onClose: () => void }) {
  const offered = usePages();
  const list: [string, string][] = [
    ["Ctrl K", "search pages, actions, and objects by ID"],
    ["/", "focus the filter"],
    ["j, k", "move down and up in a list"],
    ["Enter", "open the row"],
    ["x", "select the row"],
    ["r", "reload the data"],
    ["t", "switch between light and dark"],
    ...offered.filter(([, p]) => p.key).map(([, p]): [string, string] => [`g ${p.key}`, p.title]),
    ["?", "show this list"],
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="keys">
        {list.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

function Shell() {
  const { page: name, params } = useRoute();
  const page = pages[name];
  const offered = usePages();
  const known = useMe() !== undefined;
  const { ns, all, paused, error, loading, guessed } = useNamespace(name, page?.needs ?? false);
  const [palette, setPalette] = useState(false);
  const early = useRef(""); // what was typed before the palette was loaded
  const [keys, setKeys] = useState(false);
  const [prefix, setPrefix] = useState(false);
  const theme = useTheme();
  const times = useTimes();
  const views = useViews();

  useEffect(() => {
    document.title = `${page?.title ?? "?"}${ns ? ` · ${ns}` : ""} · Progressor`;
  }, [page, ns]);

  useKey((e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
      e.preventDefault();
      early.current = "";
      setPalette(true);
      return;
    }
    if (palette && !typing(e) && e.key.length === 1 && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      early.current += e.key;
      return;
    }
    if (typing(e) || e.ctrlKey || e.metaKey || e.altKey) return;
    const to = offered.find(([, p]) => p.key === e.key);
    if (prefix && to) go(to[0], { ns });
    else if (e.key === "g") return setPrefix(true);
    else if (e.key === "?") setKeys(true);
    else if (e.key === "t") choose(theme === "dark" ? "light" : "dark");
    else if (e.key === "r") refresh();
    else listKey(e.key);
    setPrefix(false);
  });

  const commands: Command[] = [
    ...offered
      .filter(([, p]) => p.nav || p.key)
      .map(([to, p]) => ({ name: p.title, group: "page", keys: p.key && `g ${p.key}`, run: () => go(to, { ns }) })),
    ...(all.length ? [...givenViews, ...views].map((v) => ({ name: `Processes: ${v.name}`, group: "view", run: () => go("processes", { ns: ns || all[0], filter: v.filter, order: v.order }) })) : []),
    ...all.filter((n) => n !== ns).map((n) => ({ name: n, group: "namespace", run: () => showNamespace(n) })),
    ...(ns ? [{ name: "All namespaces", group: "namespace", run: () => go("overview") }] : []),
    ...(["light", "dark", "system"] as const).filter((t) => t !== chosen()).map((t) => ({ name: `${t.charAt(0).toUpperCase()}${t.slice(1)} theme`, group: "view", run: () => choose(t) })),
    ...allTimes.filter(([t]) => t !== times).map(([t, title]) => ({ name: title, group: "view", run: () => chooseTimes(t) })),
    { name: "Reload data", group: "view", keys: "r", run: refresh },
    { name: "Keyboard shortcuts", group: "view", keys: "?", run: () => setKeys(true) },
  ];
  useCommands(commands);
  useEffect(() => {
    const timer = setTimeout(() => void loadPalette().catch(() => undefined), 2000);
    return () => clearTimeout(timer);
  }, []);
  const searched = useMemo(() => (ns ? [ns] : all), [ns, all]);

  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to content
      </a>
      <nav aria-label="pages">
        <a className="brand" aria-label="Progressor, overview" href={href("overview", { ns })}>
          <img src="./favicon.svg" width="22" height="22" alt="" />
          <span>Progressor</span>
        </a>
        <ul>
          {offered
            .filter(([, p]) => p.nav)
            .map(([to, p]) => (
              <li key={to}>
                <a href={href(to, { ns: to === "waits" ? undefined : ns })} aria-current={to === name || belongs[name] === to ? "page" : undefined}>
                  {p.title} {to === "waits" && <InboxCount />}
                </a>
              </li>
            ))}
        </ul>
        <div className="foot">
          <User />
          {readOnly && <span className="tag">read-only</span>}
          <span className="dim" title="engine version">{version}</span>
        </div>
      </nav>
      <header className="top">
        <label className="namespace">
          <span>namespace</span>
          <select value={ns} onChange={(e) => showNamespace(e.target.value)} aria-label="namespace">
            {!page?.needs && <option value="">all</option>}
            {ns && !all.includes(ns) && <option value={ns}>{ns}</option>}
            {all.map((n) => (
              <option key={n} value={n}>
                {n}
              </option>
            ))}
          </select>
        </label>
        <button type="button" className="button search" onClick={() => { early.current = ""; setPalette(true); }}>
          <span>Search…</span> <kbd>Ctrl K</kbd>
        </button>
        <select className="times" aria-label="times" title="How times are shown. The exact time is always in the tooltip." value={times} onChange={(e) => chooseTimes(e.target.value as Times)}>
          {allTimes.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
        <Button kind="quiet" aria-label={`theme: ${chosen()}`} title="Switch between light and dark (t)" onClick={() => choose(theme === "dark" ? "light" : "dark")}>
          {theme === "dark" ? "☀" : "☾"}
        </Button>
        <Button kind="quiet" aria-label="keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => setKeys(true)}>
          ?
        </Button>
      </header>
      <main id="main" tabIndex={-1}>
        {error && !all.length ? <ErrorBox error={error} what="Namespaces" /> : null}
        <Boundary key={name}>
          {!page ? (
            <Empty title="This page does not exist">
              <a href={href("overview")}>Show the overview</a>
            </Empty>
          ) : page.method && !offered.some(([to]) => to === name) ? (
            known ? (
              <Empty page title="You may not see this page">
                It needs the permission <code>{permissionOf(page.method)}</code>. <a href={href("overview")}>Show the overview</a>
              </Empty>
            ) : (
              <Loading />
            )
          ) : page.needs && !ns ? (
            loading || all.length || error ? <Loading /> : <Empty title="No namespaces yet">Create one: <code>progressor namespace put orders --connect-url http://127.0.0.1:9000</code></Empty>
          ) : (
            <Suspense fallback={<Loading />}>
              {guessed && page.needs && all.length > 1 && <NamespaceNotice title={page.title} ns={ns} others={all.filter((n) => n !== ns)} />}
              {paused && (page.needs || name === "overview") && (
                <p className="notice hold only" role="status">
                  <strong>{ns} is paused:</strong> it accepts requests, but starts no tasks until it is resumed. <a href={href("namespaces", { ns })}>Show namespaces</a>
                </p>
              )}
              {/* The page of another object starts again, so that no dialog stays open for the wrong object. */}
              <page.show ns={ns} key={JSON.stringify([ns, params.get("id"), params.get("type")])} />
            </Suspense>
          )}
        </Boundary>
      </main>
      <Boundary>
        <Suspense fallback={null}>{palette && <Palette onClose={() => setPalette(false)} namespaces={searched} typed={early} />}</Suspense>
      </Boundary>
      {keys && <Shortcuts onClose={() => setKeys(false)} />}
      <Login />
    </div>
  );
}

/** Names the namespace that the page shows if the user has chosen none, and lists the others. */
function NamespaceNotice({ title, ns, others }: { title: string; ns: string; others: string[] }) {
  return (
    <p className="notice only" role="status">
      {title} of <strong>{ns}</strong>: this page shows one namespace at a time. Others:{" "}
      {others.slice(0, 8).map((n) => (
        <button key={n} type="button" className="fold" onClick={() => change({ ns: n, id: undefined, after: undefined })}>
          {n}
        </button>
      ))}
      {others.length > 8 && <span className="dim">and {others.length - 8} more in the list above</span>}
    </p>
  );
}

// Pages that belong to another page in the navigation.
const belongs: Record<string, string> = { process: "processes", bulk: "processes", bulks: "processes", cron: "crons", sink: "changes", job: "jobs", constraints: "jobs", worker: "workers", run: "flows", templates: "flows", template: "flows" };

/** Shows another namespace. The page of an object is replaced by the list, because the namespace does not have the object. */
function showNamespace(ns: string): void {
  const { page, params } = parse(location.hash);
  if (params.has("id") || params.has("type")) go(belongs[page] ?? page, { ns });
  else change({ ns, after: undefined });
}

export function App() {
  return (
    <Commands>
      <Toasts>
        <Shell />
      </Toasts>
    </Commands>
  );
}


