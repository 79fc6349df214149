package pull

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/warm"
	"github.com/progressor-engine/progressor/storage"
)

// Server serves the workers of one node. It implements engine.Workers.
type Server struct {
	engine  *engine.Engine
	store   *storage.Store
	log     *slog.Logger
	scan    time.Duration // the scan interval of the node
	pulls   *pulls
	workers *workers
	pending *pendingResults
	leased  leased
	polling chan struct{} // has one entry per poll that is using the database
	runners *warm.Goroutines
}

// New returns the server of an engine, and registers it there. It must be called before the engine
// runs.
func New(e *engine.Engine) *Server {
	cfg := e.Config()
	s := &Server{
		engine: e, store: cfg.Store, log: cfg.Logger, scan: cfg.ScanInterval, leased: newLeased(),
		polling: make(chan struct{}, pollsAtOnce), runners: warm.New(),
	}
	s.pulls, s.workers, s.pending = newPulls(s), newWorkers(s), newPendingResults(s)
	e.Serve(s)
	return s
}

// Run implements engine.Workers.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.pulls.Run(ctx) })
	group.Go(func() error { return s.workers.Run(ctx) })
	if !s.engine.RequestsOnly() {
		group.Go(func() error { return s.pending.Run(ctx) })
	}
	return group.Wait()
}

// Wake implements engine.Workers.
func (s *Server) Wake() { s.pulls.wake() }

// Offer implements engine.Workers.
func (s *Server) Offer(namespace, jobName string, n int) { s.pulls.offer(namespace, jobName, n) }

// Prefer implements engine.Workers.
func (s *Server) Prefer(namespace, workerID string) { s.pulls.prefer(namespace, workerID) }

// ExpectGroups implements engine.Workers.
func (s *Server) ExpectGroups(namespaces ...string) { s.pulls.expectMembers(namespaces...) }

// NamespacesChanged implements engine.Workers.
func (s *Server) NamespacesChanged(names map[string]struct{}) { s.pulls.wakeNamespaces(names) }

// LeasedSince implements engine.Workers.
func (s *Server) LeasedSince(attempt storage.AttemptRef) (at time.Time, known bool) {
	return s.leased.since(attempt)
}

// Forget implements engine.Workers.
func (s *Server) Forget() { s.leased.clear() }

// Record implements engine.Workers.
func (s *Server) Record(ctx context.Context) error { return s.workers.storeSeen(ctx, 0) }

// scanTimeout limits a scan on a connection that does not answer. A scan is not cancelled with its
// poll, because its claims must be known.
const scanTimeout = 12 * time.Second

func scanContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), scanTimeout)
}
