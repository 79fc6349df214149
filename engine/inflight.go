package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/progressor-engine/progressor/process"
)

const (
	// shareFactor limits a share to this multiple of the requests that the node can still admit.
	// With n full shares, each holds 4/(4n+1) of the node's limit, and 1/(4n+1) stays free.
	// (Network switches whose ports share one buffer use the same dynamic threshold.)
	shareFactor = 4
	// namespacePortion limits one share to this part of the node's limit (1/2).
	namespacePortion = 2
	// guaranteedPortion is the part of the node's limit (1/100) that a share may hold even if the
	// node is nearly full.
	guaranteedPortion = 100
	// reservedPortion is the part of MaxInFlight that only requests without a share may use: the
	// answers of workers, commands of operators, and reads of all namespaces. Without it, workers
	// would lose their leases when the requests of clients fill the node.
	reservedPortion = 10
)

// share counts the requests for one namespace on this node. It stays the same when the namespace is
// updated.
type share struct {
	// waiting is true if the share is for requests that wait for an event: AwaitTask, Poll and
	// streams. They have a separate limit, so that waiting clients do not block other requests.
	waiting bool
	holder  string       // whose requests these are, for errors
	used    atomic.Int64 // number of requests in flight
}

// requestShares are the shares of one namespace. Polls have a separate share, so that clients that
// wait for workers do not block these workers.
type requestShares struct {
	requests share
	waits    share // AwaitTask and streams
	polls    share // polls of workers
}

func newRequestShares(holder string) *requestShares {
	return &requestShares{
		requests: share{holder: holder},
		waits:    share{waiting: true, holder: "clients that wait in " + holder},
		polls:    share{waiting: true, holder: "workers that poll " + holder},
	}
}

// inFlight counts the requests in flight on this node. waiting are those that wait for an event,
// and working are all others.
type inFlight struct{ working, waiting atomic.Int64 }

// sharesOf returns the shares of a namespace. All namespaces that do not exist, or that this node
// has not read yet, have the same shares. Otherwise, clients that send random names would fill the
// memory.
func (e *Engine) sharesOf(name string) *requestShares {
	if ns, ok := e.registry.all()[name]; ok {
		return ns.shares
	}
	return e.unknown
}

// shareOf returns the share against which a request for a namespace counts. It returns nil if name
// is "".
func (e *Engine) shareOf(name string) *share {
	if name == "" {
		return nil
	}
	return &e.sharesOf(name).requests
}

// pollShareOf returns the share against which a poll counts. If the poll names several namespaces,
// this is the share of the first one. It returns nil if there are no names.
func (e *Engine) pollShareOf(names []string) *share {
	if len(names) == 0 {
		return nil
	}
	return &e.sharesOf(names[0]).polls
}

// admit counts a request, or returns an error if the node is draining, or if the node or the share
// has reached its limit. A request with a nil share counts only against the limit of the node, and
// may use the reserved part of it. If admit returns nil, the caller must call leave when the
// request ends.
func (e *Engine) admit(s *share) error {
	if e.draining.Load() {
		return errDraining
	}
	if s != nil && s.waiting {
		return e.admitWaiting(s)
	}
	limit := int64(e.cfg.MaxInFlight)
	if s != nil {
		limit -= limit / reservedPortion
	}
	free := limit - e.inFlight.working.Add(1)
	if free < 0 {
		e.inFlight.working.Add(-1)
		return e.refused("in_flight", "the node has reached its max_in_flight: %d requests are in flight", limit)
	}
	if s == nil {
		return nil
	}
	if held, most := s.used.Add(1), maxShareOf(limit, free); held > most {
		e.leave(s)
		return e.refused("namespace_in_flight",
			"the node has %d requests of %s in flight, and their share of max_in_flight is %d", held-1, s.holder, most)
	}
	return nil
}

// admitWaiting admits a request that waits for an event.
func (e *Engine) admitWaiting(s *share) error {
	limit := int64(e.cfg.MaxInFlight)
	free := limit - e.inFlight.waiting.Add(1)
	if free < 0 {
		e.inFlight.waiting.Add(-1)
		return e.refused("awaits", "the node has reached its max_in_flight: %d requests are waiting", limit)
	}
	if held, most := s.used.Add(1), maxShareOf(limit, free); held > most {
		e.leave(s)
		return e.refused("namespace_awaits",
			"the node has %d requests of %s, and their share of max_in_flight is %d", held-1, s.holder, most)
	}
	return nil
}

// maxShareOf returns the maximum number of requests that a share may hold now.
func maxShareOf(limit, free int64) int64 {
	return max(min(shareFactor*free, limit/namespacePortion), limit/guaranteedPortion, 1)
}

// refused counts a request that was rejected because of the limit named bound, and returns its
// error.
func (e *Engine) refused(bound, format string, args ...any) error {
	e.CountRefusal(bound)
	return &process.OverloadError{Bound: fmt.Sprintf(format, args...)}
}

// CountRefusal counts a request that was rejected because of the limit named bound.
func (e *Engine) CountRefusal(bound string) { e.metrics.refused.WithLabelValues(bound).Inc() }

// enter admits a request for a namespace. It returns an error if the namespace does not exist. When
// the request ends, the caller must pass the returned share to leave.
func (e *Engine) enter(ctx context.Context, name string) (*share, error) {
	return e.enterShare(ctx, name, e.shareOf(name))
}

// enterWaiting is like enter, for a request that waits for an event.
func (e *Engine) enterWaiting(ctx context.Context, name string) (*share, error) {
	return e.enterShare(ctx, name, &e.sharesOf(name).waits)
}

// enterReserved is like enter, for a command of an operator, which may use the reserved part of the
// limit. It returns a nil share.
func (e *Engine) enterReserved(ctx context.Context, name string) (*share, error) {
	return e.enterShare(ctx, name, nil)
}

func (e *Engine) enterShare(ctx context.Context, name string, s *share) (*share, error) {
	if err := e.admit(s); err != nil {
		return nil, err
	}
	if _, err := e.namespace(ctx, name); err != nil {
		e.leave(s)
		return nil, err
	}
	return s, nil
}

// leave ends a request that admit has counted against s.
func (e *Engine) leave(s *share) {
	if s != nil {
		s.used.Add(-1)
	}
	if s != nil && s.waiting {
		e.inFlight.waiting.Add(-1)
		return
	}
	e.inFlight.working.Add(-1)
}
