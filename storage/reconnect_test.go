package storage_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// While the server accepts no connections, a store makes few attempts to connect, no matter how
// many requests need a connection. When the server accepts connections again, requests succeed.
func TestFewAttemptsToConnect(t *testing.T) {
	t.Parallel()
	const requests, each = 200, 2
	var down atomic.Bool
	var refused atomic.Int64
	p := storagetest.NewProxy(t, storagetest.DSN(t), func(client, server net.Conn) {
		if down.Load() {
			refused.Add(1)
			return
		}
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = io.Copy(client, server)
	})
	s := open(t, p.DSN, storage.Config{Lanes: 1})
	down.Store(true)
	p.Cut()
	began := time.Now()
	var group sync.WaitGroup
	for range requests {
		group.Go(func() {
			for range each {
				if _, err := s.ReadNamespaceStates(t.Context()); !errors.Is(err, process.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	// Requests do not wait one after the other.
	if took := time.Since(began); took > waitLimit/2 {
		t.Errorf("%d requests failed only after %s", requests*each, took)
	}
	// Attempts that began before the first error are not limited. An attempt may connect twice,
	// with and without TLS.
	limit := 20 + 2*time.Since(began).Milliseconds()/100
	if n := refused.Load(); n > limit {
		t.Errorf("%d attempts in %s for %d requests, want at most %d", n, time.Since(began), requests*each, limit)
	}
	down.Store(false)
	if _, err := s.ReadNamespaceStates(t.Context()); err != nil {
		t.Error(err)
	}
}

// An attempt to connect that takes too long is an ErrUnavailable, not the end of the request's own
// context.
func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := storagetest.NewProxy(t, storagetest.DSN(t), func(client, _ net.Conn) { _, _ = io.Copy(io.Discard, client) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := pgconn.Connect(ctx, p.DSN)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err = storage.Mapped(err); !errors.Is(err, process.ErrUnavailable) {
		t.Error(err)
	}
}
