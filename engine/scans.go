package engine

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	// scanLimit is the most that one scan claims of a namespace.
	scanLimit = 256
	// maxScanRows is the most that one scan claims of all namespaces together. storage bounds its bytes.
	maxScanRows = 512
)

// scanBound bounds the rows that one scan claims of all namespaces together, and rotates the namespaces
// between scans. Only one goroutine uses it.
type scanBound struct {
	rows int
	last string // the last namespace that a scan had room for
}

// done adjusts the bound after a scan: a scan that took too long halves it, and others let it grow back.
func (b *scanBound) done(err error) {
	switch {
	case err == nil:
		b.rows = min(maxScanRows, b.rows+max(b.rows/8, 1))
	case storage.TimedOut(err):
		b.rows = max(b.rows/2, 1)
	}
}

// rotate returns sorted names, beginning with the first one behind the last namespace.
func (b *scanBound) rotate(names []string) []string {
	first, found := slices.BinarySearch(names, b.last)
	if found {
		first++
	}
	return slices.Concat(names[first:], names[:first])
}

// rooms is what a scan may claim, with the places taken for it.
type rooms struct {
	engine     *Engine
	rooms      []storage.Room
	namespaces []*namespace
	full       []string // namespaces that had no place
	postponed  []string // namespaces that the bound left to the next scan
}

// rooms takes places for a scan of the named namespaces, within the bound: every namespace gets an equal part of
// it. Paused namespaces and those that this node cannot serve are left out; a node without a heartbeat takes
// nothing. names must be sorted.
func (e *Engine) rooms(bound *scanBound, names []string, take func(ns *namespace, n int) int) *rooms {
	r := &rooms{engine: e}
	if !e.takesTasks() {
		return r
	}
	var ready []*namespace
	for _, name := range bound.rotate(names) {
		if ns, ok := e.registry.all()[name]; ok && (ns.servable() || ns.pulled()) {
			ready = append(ready, ns)
		}
	}
	left := bound.rows
	share := min(max(left/max(len(ready), 1), 1), scanLimit)
	for _, ns := range ready {
		if left == 0 {
			r.postponed = append(r.postponed, ns.name)
			continue
		}
		bound.last = ns.name
		n := take(ns, min(share, left))
		if n == 0 {
			r.full = append(r.full, ns.name)
			continue
		}
		left -= n
		r.rooms = append(r.rooms, storage.Room{Namespace: ns.name, Places: n, StepTimeout: ns.stepTimeout, Own: ns.pulled()})
		r.namespaces = append(r.namespaces, ns)
	}
	return r
}

// takesTasks reports whether this node may take tasks: it has a heartbeat and does not drain.
func (e *Engine) takesTasks() bool { return e.inTouch() && !e.draining.Load() }

// releaseOf returns a function that returns the slots of tasks of a class.
func releaseOf(c class) func(*namespace) func() {
	return func(ns *namespace) func() { return func() { ns.slots.release(c) } }
}

// start runs claims, each in a place that was taken for it. It returns the places that are left of each room, and
// whether the bound on bytes may have left tasks behind.
func (r *rooms) start(claims []storage.Claim, release func(*namespace) func()) (left []int, cut bool) {
	got := map[string]int{}
	byName := map[string]*namespace{}
	for _, ns := range r.namespaces {
		byName[ns.name] = ns
	}
	for n := range claims {
		if !r.engine.crew.join() {
			continue // pollers end before the crew closes
		}
		got[claims[n].Namespace]++
		ns := byName[claims[n].Namespace]
		r.engine.runners.Go(func() { r.engine.run(ns, &claims[n], nil, release(ns)) })
	}
	for _, room := range r.rooms {
		left = append(left, room.Places-got[room.Namespace])
	}
	return left, storage.ScanIsCut(claims)
}

// scanTimeout bounds a scan on a connection that does not answer; statement_timeout ends a slow one before. A scan does not end
// with its poller: what it has claimed has to be known.
const scanTimeout = 12 * time.Second

// pauseAfter is how long a scan waits after so many that failed: the first ones may only have met connections that were dead.
func pauseAfter(failures int) time.Duration {
	return 10 * time.Millisecond << min(3*(failures-1), 20)
}

func scanContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), scanTimeout)
}

func (e *Engine) scanFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		e.metrics.scanErrors.WithLabelValues(what).Inc()
		e.log.Warn("scan failed", "what", what, "error", err)
	}
}
