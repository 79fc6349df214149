package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/insight"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/targets"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/demo"
	"github.com/progressor-engine/progressor/processor/remote"
	"github.com/progressor-engine/progressor/storage"
)

// Commands are the commands that run an engine or manage its database.
type Commands struct {
	Dev     devCmd          `cmd:"" group:"engine" help:"Run an engine with a private PostgreSQL and demo namespaces."`
	Serve   serveCmd        `cmd:"" group:"engine" help:"Run an engine on your PostgreSQL."`
	Migrate migrateCmd      `cmd:"" group:"engine" help:"Migrate the schema of the database."`
	Doctor  doctorCmd       `cmd:"" group:"engine" help:"Check a database: versions, invariants, indexes, transactions, settings."`
	Auth    authCmd         `cmd:"" group:"access" help:"Set up authentication."`
	Key     keyCmd          `cmd:"" group:"access" help:"Manage the API keys of clients."`
	Grant   grantCmd        `cmd:"" group:"access" help:"Manage what clients may do."`
	Logins  consoleLoginCmd `cmd:"" name:"console-login" group:"access" help:"Manage the logins of users to the web console."`
	Secret  secretCmd       `cmd:"" group:"access" help:"Manage the secrets that headers of requests use."`
	Config  configCmd       `cmd:"" group:"engine" help:"Show or check the configuration of serve."`
	Bench   benchCmd        `cmd:"" group:"engine" help:"Measure the engine and, as a baseline, the SQL of the reference."`

	Conformance conformanceCmd `cmd:"" group:"engine" help:"Check the SDK of a language."`
}

// readyPoll is the interval at which a starting engine is checked for readiness.
const readyPoll = 20 * time.Millisecond

// builtins are the processors that a namespace can use (processor: {builtin: {name: …}}).
func builtins() map[string]processor.Processor {
	return map[string]processor.Processor{"orders": demo.Orders(), "echo": processor.Echo()}
}

// apiSettings are settings of the API.
type apiSettings struct {
	requests rpc.RequestLog
	hosts    *rpc.Hosts // names by which clients address the API and the profiles
	console  rpc.Console
}

// node is an engine with its connections and its listener, shared by serve and dev.
type node struct {
	log      *slog.Logger
	listener net.Listener
	ops      *opsServer // nil if it is off
	db       dbFlags
	engine   engineFlags
	tracing  tracingFlags
	outgoing outgoingFlags
	getenv   func(string) (string, bool)
	debug    debugFlags
	auth     authentication
	secrets  secretsFlags
	api      apiSettings

	certificates *rpc.Certificates // certificates of the API; nil without TLS

	file    *configfile.File                            // the node stores its namespaces, templates, crons and sinks
	prepare func(context.Context, *engine.Engine) error // called before the configuration is stored; may be nil
	begin   func(context.Context, *flows.Flows) error   // called when the node can run processes; may be nil
	ready   func()                                      // called when the node accepts requests

	complete atomic.Bool // everything in the configuration is stored
	stopping atomic.Bool // the node waits for the end of the linger time, or drains
}

// run starts the engine, serves until ctx ends, and drains. It closes the listener.
func (n *node) run(ctx context.Context) error {
	defer n.listener.Close() // in case it fails before Serve
	defer n.ops.close()
	stopped := ctx
	ctx, cancel := n.linger(ctx)
	defer cancel()
	registry, log := n.newRegistry(), slog.New(contextLog{n.log.Handler()})
	var provider trace.TracerProvider // nil without traces
	spans, err := n.tracing.open(ctx, n.getenv, n.address(), log, registry)
	if err != nil {
		return err
	}
	if spans != nil {
		provider = spans
		defer spans.stop(ctx)
	}
	group, running := errgroup.WithContext(ctx)
	front := rpc.NewFront(n.api.hosts)
	connections := rpc.NewConnections(n.engine.maxConnections())
	registry.MustRegister(connections.Collectors()...)
	group.Go(func() error {
		requests := rpc.Identify(front, n.api.requests, log)
		return rpc.Serve(running, connections.Limit(n.listener), requests, n.certificates, log, n.drainTimeout())
	})
	group.Go(func() error { return n.ops.serve(running, n, log) })
	store, err := n.openStore(running, log, registry, front)
	if err == nil {
		defer store.Close()
		err = n.start(running, parts{group, front, store, registry, provider, log})
	}
	if err != nil {
		cancel() // ends Serve
		if stopped.Err() != nil {
			err = nil // a signal ended the startup
		}
	}
	return cmp.Or(group.Wait(), err)
}

// parts are the components of a node.
type parts struct {
	group    *errgroup.Group
	front    *rpc.Front
	store    *storage.Store
	registry *prometheus.Registry
	traces   trace.TracerProvider // nil without traces
	log      *slog.Logger
}

// start creates the engine, stores the configuration, and lets the group run the engine and serve
// requests until ctx ends.
func (n *node) start(ctx context.Context, p parts) error {
	store, registry, log, group := p.store, p.registry, p.log, p.group
	clients, vault, err := n.openAccess(ctx, p)
	if err != nil {
		return err
	}
	eng, err := engine.New(ctx, engine.Config{
		Store: store, Logger: log, Registerer: registry, Traces: p.traces, Builtins: builtins(), Dial: remote.Dial,
		Address: n.address(), Version: cli.BuildVersion(), MaxInFlight: n.engine.MaxInFlight,
		MaxRunning: n.engine.MaxRunning, RequestsOnly: n.engine.RequestsOnly, FileNamespaces: fileNamespaces(n.file),
		ZombieAfter: n.engine.ZombieAfter, ZombieMargin: n.engine.ZombieMargin, DrainTimeout: n.engine.DrainTimeout,
		MaxNamespaces: n.engine.MaxNamespaces, Secrets: vault,
	})
	if err != nil {
		return err
	}
	schedules := crons.New(eng, store, registry)
	schedules.KeepLedger(n.engine.LedgerRetention)
	egress, err := n.egress()
	if err != nil {
		return err
	}
	schedules.LimitEgress(egress)
	eng.Add(schedules.Kinds()...)
	queue := jobs.New(eng, store, registry)
	eng.Add(queue.Kind())
	schedules.SetNewJob(queue.NewJob)
	runs := flows.New(eng, store, queue, registry)
	eng.Add(runs.Kind())
	schedules.SetFlows(runs)
	insights, workers, bulks := insight.New(eng), pull.New(eng), bulk.New(eng, jobTarget(queue), runTarget(runs))
	deliveries := sinks.New(eng, store, sinks.Config{Open: targets.Open(egress), Logger: log, Registerer: registry})
	eng.Add(bulks.Kind(), deliveries.Kind())
	if err := n.put(ctx, eng, runs, deliveries); err != nil {
		return errors.Join(err, store.DeleteNode(context.WithoutCancel(ctx)))
	}
	cfg := rpc.Config{
		Engine: eng, Insight: insights, Workers: workers, Bulks: bulks, Crons: schedules, Jobs: queue, Flows: runs,
		Logger: log, Registerer: registry, Traces: p.traces, Gatherer: registry, Version: cli.BuildVersion(),
		Streams: streams.New(eng, store), Sinks: deliveries, Console: n.api.console, Hosts: n.api.hosts, Auth: clients,
		Ready: n.readiness, Limits: n.engine.limits(), Access: auth.NewAccess(store),
	}
	p.front.Use(rpc.NewHandler(cfg))
	n.ops.use(cfg)
	group.Go(func() error { return eng.Run(ctx) })
	group.Go(func() error { return insights.Sample(ctx) })
	group.Go(func() error { return n.debug.serve(ctx, n.api.hosts, log) })
	group.Go(func() error {
		if err := awaitReady(ctx, eng); err != nil {
			return nil //nolint:nilerr // the node ends before it is ready
		}
		return n.finish(ctx, schedules, runs, log)
	})
	return nil
}

// openStore waits for the database, migrates it if db.migrate is set, and opens it.
func (n *node) openStore(
	ctx context.Context, log *slog.Logger, registerer prometheus.Registerer, front *rpc.Front,
) (*storage.Store, error) {
	if err := n.awaitDatabase(ctx, log, front); err != nil {
		return nil, err
	}
	if err := n.migrate(ctx, log, front); err != nil {
		return nil, err
	}
	front.SetPhase("starting")
	return storage.Open(ctx, storage.Config{
		DSN: n.db.DSN, Password: n.db.password(), Lanes: n.db.Lanes,
		ScanConns: n.db.ScanConns, MaxConns: n.db.MaxConns, Logger: log, Registerer: registerer,
	})
}

// openAccess returns the Authenticator for the clients of the node, which runs until ctx ends, and
// the vault that decrypts secrets.
func (n *node) openAccess(ctx context.Context, p parts) (*auth.Authenticator, *secrets.Vault, error) {
	clients, err := n.auth.open(p.store, n.listener.Addr().String(), p.registry, p.log)
	if err != nil {
		return nil, nil, err
	}
	go clients.Run(ctx)
	vault, err := n.secrets.openFor(ctx, p.store.Secrets(), p.log)
	return clients, vault, err
}

// linger returns a context that ends engine.linger after ctx. When ctx ends, the node is no longer
// ready, so that load balancers send requests to other nodes before this one drains. A node that
// was never ready does not linger.
func (n *node) linger(ctx context.Context) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		n.stopping.Store(true)
		n.notify(n.log, "STOPPING=1\nSTATUS=stopping")
		if n.engine.Linger == 0 || !n.complete.Load() {
			return
		}
		n.log.Info("not ready any more: still accepting requests", "linger", n.engine.Linger)
		select {
		case <-time.After(n.engine.Linger):
		case <-lingering.Done():
		}
	})
	return lingering, func() { stop(); cancel() }
}

// readiness returns why the program is not ready although the engine is, or nil.
func (n *node) readiness() error {
	switch {
	case n.stopping.Load():
		return errors.New("stopping")
	case !n.complete.Load():
		return errors.New("storing the crons of the configuration")
	}
	return nil
}

// finish stores the parts of the configuration that need a ready engine, and then reports that the
// program is ready.
func (n *node) finish(ctx context.Context, schedules *crons.Crons, runs *flows.Flows, log *slog.Logger) error {
	if err := putCrons(ctx, schedules, n.file, log); err != nil {
		return err
	}
	if n.begin != nil {
		if err := n.begin(ctx, runs); err != nil {
			return err
		}
	}
	debug.FreeOSMemory() // release the memory that only the start needed: 65 MiB of 93 remain
	n.complete.Store(true)
	n.ready()
	n.notify(log, "READY=1\nSTATUS=ready")
	return nil
}

// put stores the namespaces, templates and sinks. Crons are processes, so they are stored when the
// node is ready.
func (n *node) put(ctx context.Context, eng *engine.Engine, runs *flows.Flows, deliveries *sinks.Sinks) error {
	if n.prepare != nil {
		if err := n.prepare(ctx, eng); err != nil {
			return err
		}
	}
	if err := putNamespaces(ctx, eng, n.file, n.log); err != nil {
		return err
	}
	if err := putTemplates(ctx, runs, n.file); err != nil {
		return err
	}
	return putSinks(ctx, deliveries, n.file, n.log)
}

// drainMargin is how long connections are kept after the drain of the engine. In this time the
// engine releases the remaining tasks (1 s of grace, and at most twice 5 s for the database), and
// clients get the results of their requests.
const drainMargin = 12 * time.Second

// drainTimeout returns how long the listener waits for running requests.
func (n *node) drainTimeout() time.Duration { return n.engine.DrainTimeout + drainMargin }

// address returns the address of this node in the table nodes.
func (n *node) address() string {
	if n.engine.Address != "" {
		return n.engine.Address
	}
	_, port, _ := net.SplitHostPort(n.listener.Addr().String())
	host, err := os.Hostname()
	if err != nil {
		return n.listener.Addr().String()
	}
	return net.JoinHostPort(host, port)
}

// awaitReady waits until the engine is ready, or ctx ends.
func awaitReady(ctx context.Context, eng *engine.Engine) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for eng.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// newRegistry returns the registry of all metrics of the program, including Go and process metrics.
func (n *node) newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if n.certificates != nil {
		registry.MustRegister(n.certificates.Collector())
	}
	return registry
}

// listen opens an address. Its error names the flag that sets another address.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		host, _, _ := net.SplitHostPort(address)
		return nil, &cli.CodedError{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s is used by another program", address),
			Next: fmt.Sprintf("use another address, such as %s %s (port 0: any free port)", flag,
				net.JoinHostPort(host, "0")),
		}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return listener, nil
}
