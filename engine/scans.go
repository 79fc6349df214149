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
	// scanLimit is the most that one scan claims of a namespace.
	scanLimit = 256
	// maxScanRows is the most that one scan claims of all namespaces together. storage bounds its bytes.
	maxScanRows = 512
)

// minCutRows is the least that remains of the bound after a scan that its bytes have cut.
const minCutRows = 32

// quickRows is the most rows that a scan claims of a namespace without a backlog, unless its equal part is more.
const quickRows = 32

// scanBound bounds the rows that one scan claims of all namespaces together, and divides them among the namespaces.
// Only one goroutine uses it.
type scanBound struct {
	rows  int
	last  string // the last namespace whose turn has come
	scans uint64
	known map[string]progress
}

// progress is how far scans have got with the tasks of a namespace.
type progress struct {
	emptied uint64 // number of the last scan that found fewer tasks than it had room for; zero if none did
	since   int    // tasks claimed after that scan
}

// backlogged reports whether scans do not keep up with the namespace. If unknown, they do not.
func (p progress) backlogged() bool { return p.emptied == 0 || p.since >= scanLimit }

// scanned notes what a scan has claimed: left rows of each room were not needed. cut: its bytes may have left tasks
// behind. PostgreSQL has locked as many rows as the scan had room for, so that the next ones have less.
func (b *scanBound) scanned(rooms []storage.Room, left []int, cut bool) {
	if b.known == nil {
		b.known = map[string]progress{}
	}
	b.scans++
	claimed := 0
	for n, room := range rooms {
		claimed += room.Places - left[n]
		p := b.known[room.Namespace]
		if p.since += room.Places - left[n]; left[n] > 0 && !cut {
			p = progress{emptied: b.scans}
		}
		b.known[room.Namespace] = p
	}
	if cut {
		b.rows = min(b.rows, max(2*claimed, minCutRows))
	}
}

// forget drops namespaces that this node does not know any more. known never holds more namespaces than the node.
func (b *scanBound) forget(namespaces map[string]*namespace) {
	if len(b.known) > len(namespaces) {
		maps.DeleteFunc(b.known, func(name string, _ progress) bool { return namespaces[name] == nil })
	}
}

// divide takes rows for a scan of the named namespaces, which must be sorted. take takes at most n rows for one of
// them, and returns how many it took. Namespaces without a backlog go first, up to half of the rows, so that their few
// tasks do not wait behind the backlogs of others. All others, and those for which nothing was left, take turns and
// get equal parts of the rest. divide returns the namespaces whose turn comes with the next scan.
func (b *scanBound) divide(names []string, take func(name string, n int) int) (postponed []string) {
	left, share := b.rows, equalPart(b.rows, len(names))
	quick := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return b.known[name].backlogged() })
	slices.SortStableFunc(quick, func(x, y string) int { return cmp.Compare(b.known[y].emptied, b.known[x].emptied) })
	gone := map[string]bool{}
	for _, name := range quick {
		half := left - (b.rows+1)/2
		if half <= 0 {
			break
		}
		left -= take(name, min(half, max(share, min(quickRows, (half+7)/8))))
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

// equalPart returns the rows for each of n namespaces.
func equalPart(rows, n int) int { return min(max(rows/max(n, 1), 1), scanLimit) }

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

// rooms is what a scan may claim, with the slots taken for it.
type rooms struct {
	engine     *Engine
	rooms      []storage.Room
	namespaces []*namespace
	full       []string // namespaces that had no slot
	postponed  []string // namespaces that the bound left to the next scan
}

// rooms takes slots for a scan of the named namespaces, as the bound divides its rows. It leaves out paused namespaces
// and those that this node cannot serve. A node without a heartbeat takes nothing. names must be sorted.
func (e *Engine) rooms(bound *scanBound, names []string, take func(ns *namespace, n int) int) *rooms {
	r := &rooms{engine: e}
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
		r.rooms = append(r.rooms, storage.Room{Namespace: name, Places: n, StepTimeout: ns.stepTimeout, Own: ns.pulled()})
		r.namespaces = append(r.namespaces, ns)
		return n
	})
	return r
}

// takesTasks reports whether this node may take tasks: it has a heartbeat and does not drain.
func (e *Engine) takesTasks() bool { return e.isConnected() && !e.draining.Load() }

// releaseOf returns a function that returns the slots of tasks of a class.
func releaseOf(c class) func(*namespace) func() {
	return func(ns *namespace) func() { return func() { ns.slots.release(c) } }
}

// start runs claims, each in a slot that was taken for it. It returns the slots that are left of each room, and
// whether the bound on bytes may have left tasks behind.
func (r *rooms) start(claims []storage.Claim, release func(*namespace) func()) (left []int, cut bool) {
	got := map[string]int{}
	byName := map[string]*namespace{}
	for _, ns := range r.namespaces {
		byName[ns.name] = ns
	}
	for n := range claims {
		if !r.engine.active.join() {
			continue // pollers end before the crew closes
		}
		got[claims[n].Namespace]++
		ns := byName[claims[n].Namespace]
		r.engine.runners.Go(func() { r.engine.run(ns, &claims[n], origin{scanned: true, release: release(ns)}) })
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
