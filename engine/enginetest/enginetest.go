package enginetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/insight"
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
	Store *storage.Store
	Stop  func() // drains the engine and closes the store; the end of the test also calls it
}

// Kinds returns the kinds for an engine.
type Kinds func(*engine.Engine, *storage.Store) []engine.Kind

// Start runs an engine on a database, with one namespace "ns" whose processor is p. kinds may be
// nil.
func Start(t testing.TB, dsn string, p processor.Processor, kinds Kinds, change ...func(*engine.Config)) *Node {
	t.Helper()
	ctx := context.Background()
	store, err := storage.Open(ctx, storage.Config{
		DSN: dsn, Logger: slog.New(slog.DiscardHandler), WithoutFastPath: storagetest.WithoutFastPath(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{
		Store: store, Builtins: map[string]processor.Processor{"p": p}, Logger: slog.New(slog.DiscardHandler),
		DrainTimeout: 5 * time.Second,
	}
	for _, f := range change {
		f(&cfg)
	}
	e, err := engine.New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if kinds != nil {
		e.Add(kinds(e, store)...)
	}
	server := pull.New(e)
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(running) }()
	n := &Node{Engine: e, Insight: insight.New(e), Server: server, Store: store, Stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		store.Close()
	})}
	t.Cleanup(n.Stop)
	n.Put(t, &progressorv1.Namespace{Namespace: "ns"})
	return n
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

// Eventually waits until cond returns true. It calls cond every few milliseconds.
func Eventually(t testing.TB, timeout time.Duration, what string, cond func() bool) {
	t.Helper()
	end := time.NewTimer(timeout)
	defer end.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !cond() {
		select {
		case <-look.C:
		case <-end.C:
			if cond() {
				return
			}
			t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}
