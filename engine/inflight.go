package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/progressor-engine/progressor/process"
)

const (
	// shareFactor is how many times the node's free requests a share may hold. A share that is
	// alone reaches 80% of MaxInFlight. With n full shares, each holds 4/(4n+1) of it and 1/(4n+1)
	// stays free (a dynamic threshold, as in switches that share one buffer).
	shareFactor = 4
	// guaranteedPortion is the part of MaxInFlight that a share may hold however few requests are
	// free.
	guaranteedPortion = 100
)

// share counts the requests of one namespace that are in this node. It survives changes of the
// namespace.
type share struct {
	holder string // in errors
	used   atomic.Int64
}

// shareOf returns the share that a request of a namespace counts against, nil if it names none.
// Namespaces that this node has not read yet, or that do not exist, have one share together, so
// that names from clients use no memory.
func (e *Engine) shareOf(name string) *share {
	if name == "" {
		return nil
	}
	if ns, ok := e.registry.all()[name]; ok {
		return ns.requests
	}
	return &e.unknown
}

// pollShareOf returns the share that a poll counts against: of the first namespace, if it names
// several. Polls have shares of their own, so that clients that wait for workers do not shut out
// these workers.
func (e *Engine) pollShareOf(names []string) *share {
	if len(names) == 0 {
		return nil
	}
	if ns, ok := e.registry.all()[names[0]]; ok {
		return ns.polls
	}
	return &e.unknown
}

// admit counts a request, or rejects it if the node or the share has reached its bound. A request
// with a nil share counts only against the node. leave must follow if admit returns nil.
func (e *Engine) admit(s *share) error {
	if e.draining.Load() {
		return errDraining
	}
	limit := int64(e.cfg.MaxInFlight)
	free := limit - e.inFlight.Add(1)
	if free < 0 {
		e.inFlight.Add(-1)
		e.metrics.refused.WithLabelValues("in_flight").Inc()
		return &process.OverloadError{
			Bound: fmt.Sprintf("the node has %d requests in flight, its max_in_flight", limit),
		}
	}
	if s == nil {
		return nil
	}
	if held := s.used.Add(1); held > max(shareFactor*free, limit/guaranteedPortion, 1) {
		e.leave(s)
		e.metrics.refused.WithLabelValues("namespace_in_flight").Inc()
		return &process.OverloadError{
			Bound: fmt.Sprintf("the node has %d requests of %s in flight, the limit of its share of max_in_flight is "+
				"%d", held-1, s.holder, limit),
		}
	}
	return nil
}

// enter admits a request for a namespace, which must exist. The caller must call leave with the
// share.
func (e *Engine) enter(ctx context.Context, name string) (*share, error) {
	s := e.shareOf(name)
	if err := e.admit(s); err != nil {
		return nil, err
	}
	if _, err := e.namespace(ctx, name); err != nil {
		e.leave(s)
		return nil, err
	}
	return s, nil
}

// leave ends the counting of a request that was admitted.
func (e *Engine) leave(s *share) {
	if s != nil {
		s.used.Add(-1)
	}
	e.inFlight.Add(-1)
}
