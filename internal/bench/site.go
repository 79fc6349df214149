package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/targets"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// namespaceName is the namespace of all workloads. builtinName is the name of its processor if the
// processor runs inside the engine.
const (
	namespaceName = "bench"
	builtinName   = "bench"
)

// drainTimeout is short: tasks are still running at the end only after a failure.
const drainTimeout = 5 * time.Second

// site is an engine in this process, on its own database.
type site struct {
	engine   *engine.Engine
	crons    *crons.Crons
	jobs     *jobs.Jobs
	workers  *pull.Server
	flows    *flows.Flows
	sinks    *sinks.Sinks
	store    *storage.Store
	registry *prometheus.Registry
	stop     context.CancelFunc
	ended    chan error
}

// openSite starts an engine. It first migrates the schema if needed, because the database of
// --flat-database may be empty or old.
func openSite(ctx context.Context, dsn string, lanes int, log *slog.Logger, p processor.Processor) (*site, error) {
	if err := storage.Migrate(ctx, dsn); err != nil {
		return nil, err
	}
	s := &site{registry: prometheus.NewRegistry(), ended: make(chan error, 1)}
	var err error
	if s.store, err = storage.Open(ctx,
		storage.Config{DSN: dsn, Lanes: lanes, Logger: log, Registerer: s.registry}); err != nil {
		return nil, err
	}
	s.engine, err = engine.New(ctx, engine.Config{
		Store: s.store, Logger: log, Registerer: s.registry, Dial: remote.Dial, Address: "bench", Version: "bench",
		Builtins: map[string]processor.Processor{builtinName: p}, DrainTimeout: drainTimeout,
	})
	if err != nil {
		s.store.Close()
		return nil, fmt.Errorf("start an engine: %w", err)
	}
	s.crons = crons.New(s.engine, s.store, s.registry)
	s.engine.Add(s.crons.Kinds()...)
	s.jobs = jobs.New(s.engine, s.store, s.registry)
	s.engine.Add(s.jobs.Kind())
	s.flows = flows.New(s.engine, s.store, s.jobs)
	s.workers = pull.New(s.engine)
	s.engine.Add(s.flows.Kind())
	s.sinks = sinks.New(s.engine, s.store, sinks.Config{
		Open: targets.Open(&remote.Egress{}), Logger: log, Registerer: s.registry,
	})
	s.engine.Add(s.sinks.Kind())
	var running context.Context
	running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { s.ended <- s.engine.Run(running) }()
	return s, nil
}

// close drains and stops the engine, and closes its store.
func (s *site) close() error {
	s.stop()
	err := <-s.ended
	s.store.Close()
	return err
}

// builtinNamespace returns a namespace that the processor of openSite serves.
func builtinNamespace(name, history string) *progressorv1.Namespace {
	mode := progressorv1.HistoryMode_HISTORY_MODE_NONE
	if history == historyFull {
		mode = progressorv1.HistoryMode_HISTORY_MODE_FULL
	}
	return &progressorv1.Namespace{Namespace: name, HistoryMode: mode, Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: builtinName}},
	}}
}

// onEngine runs use with an engine that has the namespace of the bench on a new database, stops
// the engine and checks the database. use returns the acknowledged operations.
func (r *runner) onEngine(ctx context.Context, history string, p processor.Processor, row *Row,
	use func(d *scratch, s *site) (acknowledged, error),
) error {
	return r.inScratch(ctx, func(d *scratch) error {
		s, err := openSite(ctx, d.dsn, r.command.Lanes, r.logger(), p)
		if err != nil {
			return err
		}
		var done acknowledged
		if _, err = s.engine.PutNamespace(ctx, builtinNamespace(namespaceName, history)); err == nil {
			done, err = use(d, s)
		}
		if err := errors.Join(err, s.close()); err != nil {
			return err
		}
		return r.verify(ctx, d, row, done)
	})
}

func (r *runner) meterOf(s *site) *meter {
	return &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: ownCPU,
		flushes: flushesOf(s.registry)}
}
