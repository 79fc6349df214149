package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	// scanLimit is the maximum number of tasks of one namespace that a scan claims.
	scanLimit = 256
	// maxScanRows is the maximum number of tasks that a scan claims in total. storage limits their
	// bytes.
	maxScanRows = 512
)

// minCutRows is the minimum of the bound after a scan that reached its byte limit.
const minCutRows = 32

// caughtUpRows is the maximum number of rows that a scan claims of a namespace without a backlog,
// unless its equal part is larger.
const caughtUpRows = 32

// scanBound limits the rows that one scan claims in total, and divides them among the namespaces.
// It is not safe for concurrent use.
type scanBound struct {
	rows  int
	last  string // the last namespace that had its turn
	scans uint64
	known map[string]progress
}

// progress records how far scans have come with the tasks of a namespace.
type progress struct {
	emptied uint64 // number of the last scan that found fewer tasks than it had room for; zero if none did
	since   int    // tasks claimed after that scan
}

// backlogged reports whether scans have claimed at least scanLimit tasks of the namespace since the
// last scan that found fewer tasks than it had room for. It returns true if there was no such scan.
func (p progress) backlogged() bool { return p.emptied == 0 || p.since >= scanLimit }

// scanned records what a scan has claimed. left contains how many rows of each limit were not
// needed. cut is true if the byte limit may have left tasks behind. PostgreSQL has then locked as
// many rows as the scan had room for, so the next scans get fewer rows.
func (b *scanBound) scanned(limits []storage.ClaimLimit, left []int, cut bool) {
	if b.known == nil {
		b.known = map[string]progress{}
	}
	b.scans++
	claimed := 0
	for n, limit := range limits {
		claimed += limit.Max - left[n]
		p := b.known[limit.Namespace]
		if p.since += limit.Max - left[n]; left[n] > 0 && !cut {
			p = progress{emptied: b.scans}
		}
		b.known[limit.Namespace] = p
	}
	if cut {
		b.rows = min(b.rows, max(2*claimed, minCutRows))
	}
}

// forget drops namespaces that this node no longer knows.
func (b *scanBound) forget(namespaces map[string]*namespace) {
	if len(b.known) > len(namespaces) {
		maps.DeleteFunc(b.known, func(name string, _ progress) bool { return namespaces[name] == nil })
	}
}

// divide takes rows for a scan of the named namespaces, which must be sorted. take takes at most n
// rows for one of them, and returns how many it took. Namespaces without a backlog go first, up to
// half of the rows, so that their few tasks do not wait behind the backlogs of others. All others,
// including those that got no rows in the first step, take turns and get equal parts of the rest.
// divide returns the namespaces that must wait for the next scan.
func (b *scanBound) divide(names []string, take func(name string, n int) int) (postponed []string) {
	left, share := b.rows, equalPart(b.rows, len(names))
	caughtUp := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return b.known[name].backlogged() })
	slices.SortStableFunc(caughtUp, func(x, y string) int {
		return cmp.Compare(b.known[y].emptied, b.known[x].emptied)
	})
	gone := map[string]bool{}
	for _, name := range caughtUp {
		half := left - (b.rows+1)/2
		if half <= 0 {
			break
		}
		left -= take(name, min(half, max(share, min(caughtUpRows, (half+7)/8))))
		gone[name] = true
	}
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return gone[name] })
	share = equalPart(left, len(others))
	for _, name := range b.rotate(others) {
		if left == 0 {
			postponed = append(postponed, name)
			continue
		}
		b.last = name
		left -= take(name, min(share, left))
	}
	return postponed
}

// equalPart returns the number of rows for each of n namespaces.
func equalPart(rows, n int) int { return min(max(rows/max(n, 1), 1), scanLimit) }

// done adjusts the bound after a scan. A scan that took too long halves the bound. All other scans
// let it grow again.
func (b *scanBound) done(err error) {
	switch {
	case err == nil:
		b.rows = min(maxScanRows, b.rows+max(b.rows/8, 1))
	case storage.TimedOut(err):
		b.rows = max(b.rows/2, 1)
	}
}

// rotate returns sorted names, beginning with the first one after the last namespace.
func (b *scanBound) rotate(names []string) []string {
	first, found := slices.BinarySearch(names, b.last)
	if found {
		first++
	}
	return slices.Concat(names[first:], names[:first])
}

// scanLimits contains the claims that a scan may make, with the slots taken for them.
type scanLimits struct {
	engine     *Engine
	limits     []storage.ClaimLimit
	namespaces []*namespace
	full       []string // namespaces that had no slot
	postponed  []string // namespaces that the bound left to the next scan
}

// newScanLimits takes slots for a scan of the named namespaces. bound divides its rows among them.
// newScanLimits skips paused namespaces and those that this node cannot serve. It takes no slots if
// the node has no heartbeat or is draining. names must be sorted.
func (e *Engine) newScanLimits(bound *scanBound, names []string, take func(ns *namespace, n int) int) *scanLimits {
	r := &scanLimits{engine: e}
	if !e.takesTasks() {
		return r
	}
	bound.forget(e.registry.all())
	ready := map[string]*namespace{}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		ns, ok := e.registry.all()[name]
		if !ok {
			return true
		}
		if !ns.servable() && !ns.pulled() {
			ns.slots.pass()
			return true
		}
		ready[name] = ns
		return false
	})
	r.postponed = bound.divide(names, func(name string, n int) int {
		ns := ready[name]
		if n = take(ns, n); n == 0 {
			r.full = append(r.full, name)
			return 0
		}
		r.limits = append(r.limits, storage.ClaimLimit{
			Namespace: name, Max: n, StepTimeout: ns.stepTimeout, Own: ns.pulled(), Pauses: e.hasPausedNames(name),
		})
		r.namespaces = append(r.namespaces, ns)
		return n
	})
	return r
}

// takesTasks reports whether this node may take tasks: it has a heartbeat and is not draining.
func (e *Engine) takesTasks() bool { return e.isConnected() && !e.draining.Load() }

// releaseOf returns a function that releases the slots of tasks in a class.
func releaseOf(c class) func(*namespace) func() {
	return func(ns *namespace) func() { return func() { ns.slots.release(c) } }
}

// start runs claims, each in a slot that was taken for it. It returns the number of unused slots of
// each limit. cut reports whether the byte limit may have left tasks behind.
func (r *scanLimits) start(claims []storage.Claim, release func(*namespace) func()) (left []int, cut bool) {
	got := map[string]int{}
	byName := map[string]*namespace{}
	for _, ns := range r.namespaces {
		byName[ns.name] = ns
	}
	for n := range claims {
		if !r.engine.active.join() {
			continue // pollers end before the active counter closes
		}
		got[claims[n].Namespace]++
		ns := byName[claims[n].Namespace]
		r.engine.runners.Go(func() { r.engine.run(ns, &claims[n], origin{scanned: true, release: release(ns)}) })
	}
	for _, limit := range r.limits {
		left = append(left, limit.Max-got[limit.Namespace])
	}
	return left, storage.ScanIsTruncated(claims)
}

// scanTimeout limits a scan on a connection that does not answer. statement_timeout ends a slow
// scan earlier. A scan is not cancelled with its poller, because the node must know its claims.
const scanTimeout = 12 * time.Second

// pauseAfter returns the pause after a number of consecutive failed scans. The first pauses are
// short, because the scans may only have used dead connections.
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
