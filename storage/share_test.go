package storage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// connectionsOfANode is the maximum number of connections of a node with the default settings. Ten
// nodes must fit into the 97 connections that PostgreSQL accepts by default.
const connectionsOfANode = 9

func TestConnectionsOfANode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const processes = 32
	for n := range processes {
		b.process(fmt.Sprint(n))
	}
	var stopped atomic.Bool
	defer stopped.Store(true)
	go b.Listen(t.Context(), map[string]func(string){"progressor_messages": func(string) {}}, func(bool) {})
	var load sync.WaitGroup
	for n := range processes {
		id := fmt.Sprint(n)
		work := []func() error{
			func() error { _, err := b.PrepareCall(call(id)); return err },
			func() error { _, err := b.NamespacesWaiting(t.Context()); return err },
			func() error { _, err := b.ListBeats(t.Context()); return err },
			func() error { _, err := b.GetProcess(t.Context(), key(id)); return err },
			func() error { _, err := b.Beat(t.Context(), storage.NodeReport{}); return err },
		}
		for _, w := range work {
			load.Go(func() {
				for !stopped.Load() {
					if err := w(); err != nil && !stopped.Load() {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	want := connectionsOfANode
	if storagetest.AllPortable() {
		want-- // no connection listens
	}
	b.until("the node has opened all its connections", func() bool { return b.connections() >= want })
	stopped.Store(true)
	load.Wait()
	equal(t, "connections", b.connections(), want)
	equal(t, "nodes.max_connections", ask[int](b, `SELECT max_connections FROM progressor.nodes`), connectionsOfANode)
}

// connections returns the number of connections of the store. The idle connections of a pool stay
// open.
func (b *bench) connections() int {
	return ask[int](b, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name ~ '^progressor (lane|hot|general|heartbeat|listen)$'`)
}

// Slow statements of one kind of work do not block the other kinds.
func TestShares(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	scan := func(ctx context.Context) error { _, err := b.NamespacesWaiting(ctx); return err }
	answer := func(ctx context.Context) error { _, err := b.ListBeats(ctx); return err }
	read := func(ctx context.Context) error {
		_, err := b.GetProcess(ctx, key("p"))
		return err
	}
	maintain := func(ctx context.Context) error { _, err := b.Forget(ctx, time.Hour); return err }
	tests := map[string]struct {
		exhausted  storage.Share
		unaffected []func(context.Context) error
	}{
		"scans":    {storage.Scans, []func(context.Context) error{answer}},
		"answers":  {storage.Answers, []func(context.Context) error{scan}},
		"searches": {storage.Searches, []func(context.Context) error{read, maintain}},
	}
	for name, test := range tests {
		release, err := b.Exhaust(t.Context(), test.exhausted)
		if err != nil {
			t.Fatal(err)
		}
		for n, work := range test.unaffected {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := work(ctx); err != nil {
				t.Errorf("%s are exhausted: work %d: %v", name, n, err)
			}
			cancel()
		}
		release()
	}
}
