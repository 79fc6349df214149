package storage_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// While the server accepts no connections, a store makes few attempts to connect, no matter how
// many requests need a connection. The first request after that succeeds.
func TestFewAttemptsToConnect(t *testing.T) {
	t.Parallel()
	const requests, each = 30, 10
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
				if _, err := s.ReadNamespaceStates(t.Context()); err == nil {
					t.Error("a request succeeded without a server")
				}
			}
		})
	}
	group.Wait()
	// Attempts that began before the first error are not limited.
	limit := 2*requests + time.Since(began).Milliseconds()/100
	if n := refused.Load(); n > limit {
		t.Errorf("%d attempts in %s for %d requests, want at most %d", n, time.Since(began), requests*each, limit)
	}
	down.Store(false)
	up := time.Now()
	for {
		_, err := s.ReadNamespaceStates(t.Context())
		if err == nil {
			break
		}
		if time.Since(up) > waitLimit {
			t.Fatal(err)
		}
	}
}
