package enginetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/insight"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Node is a running engine of a test.
type Node struct {
	*engine.Engine
	*insight.Insight
	*pull.Server
	Store    *storage.Store
	DB       *pgxpool.Pool // for reading rows
	Registry *prometheus.Registry
	Stop     func() // drains the engine and closes the store; also called at the end of the test

	// nil without the option Kinds
	Crons *crons.Crons
	Jobs  *jobs.Jobs
	Flows *flows.Flows
}

// Option configures the engine that Start creates.
type Option func(*options)

type options struct {
	config engine.Config
	add    []func(*Node)
}

// Config changes the configuration of the engine.
func Config(change func(*engine.Config)) Option { return func(o *options) { change(&o.config) } }

// Add adds kinds to the engine.
func Add(kinds func(*Node) []engine.Kind) Option {
	return func(o *options) { o.add = append(o.add, func(n *Node) { n.Add(kinds(n)...) }) }
}

// Kinds adds crons, jobs and flows.
func Kinds(o *options) {
	o.add = append(o.add, func(n *Node) {
		n.Crons, n.Jobs = crons.New(n.Engine, n.Store, n.Registry), jobs.New(n.Engine, n.Store, n.Registry)
		n.Flows = flows.New(n.Engine, n.Store, n.Jobs, n.Registry)
		n.Crons.SetNewJob(n.Jobs.NewJob)
		n.Crons.SetFlows(n.Flows)
		n.Add(append(n.Crons.Kinds(), n.Jobs.Kind(), n.Flows.Kind())...)
	})
}

// Start runs an engine on a database, with one namespace "ns" whose processor is p.
func Start(t testing.TB, dsn string, p processor.Processor, with ...Option) *Node {
	t.Helper()
	ctx := context.Background()
	store, err := storage.Open(ctx, storage.Config{
		DSN: dsn, Logger: slog.New(slog.DiscardHandler), WithoutFastPath: storagetest.WithoutFastPath(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Store: store, DB: storagetest.Connect(t, dsn), Registry: prometheus.NewRegistry()}
	o := options{config: engine.Config{
		Store: store, Builtins: map[string]processor.Processor{"p": p}, Logger: slog.New(slog.DiscardHandler),
		Registerer: n.Registry, DrainTimeout: 5 * time.Second,
	}}
	for _, option := range with {
		option(&o)
	}
	if n.Engine, err = engine.New(ctx, o.config); err != nil {
		t.Fatal(err)
	}
	for _, add := range o.add {
		add(n)
	}
	n.Insight, n.Server = insight.New(n.Engine), pull.New(n.Engine)
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Engine.Run(running) }()
	n.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		store.Close()
	})
	t.Cleanup(n.Stop)
	n.Put(t, &progressorv1.Namespace{Namespace: "ns"})
	return n
}

// Pull returns a namespace whose tasks workers poll.
func Pull(namespace string) *progressorv1.Namespace {
	return &progressorv1.Namespace{Namespace: namespace, Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}}}}
}

// Count returns the number that a query returns.
func (n *Node) Count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	return Count(t, n.DB, sql, args...)
}

// Put stores a namespace. By default it has the processor of the test.
func (n *Node) Put(t testing.TB, ns *progressorv1.Namespace) {
	t.Helper()
	if ns.Processor == nil {
		ns.Processor = &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "p"}}}
	}
	if _, err := n.PutNamespace(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
}

// Count returns the number that a query returns.
func Count(t testing.TB, db *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Texts returns the values that a query with one column returns.
func Texts(t testing.TB, db *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, _ := db.Query(context.Background(), sql, args...) // CollectRows returns the error
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// Eventually waits until cond returns true. See WaitUntil.
func Eventually(t testing.TB, timeout time.Duration, what string, cond func() bool) {
	t.Helper()
	if !WaitUntil(timeout, cond) {
		t.Fatalf("timed out after %s: %s", timeout, what)
	}
}

// WaitUntil waits until cond returns true, and reports whether it did within timeout. It calls cond
// every few milliseconds, and less often after a while, because most conditions query the database.
func WaitUntil(timeout time.Duration, cond func() bool) bool {
	begin := time.Now()
	end := time.NewTimer(timeout)
	defer end.Stop()
	for !cond() {
		pause := min(max(time.Since(begin)/8, 5*time.Millisecond), 25*time.Millisecond)
		select {
		case <-time.After(pause):
		case <-end.C:
			return cond()
		}
	}
	return true
}
