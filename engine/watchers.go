package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxQueried is the maximum number of watched processes in one query. If there are more, they
	// take turns.
	maxQueried = 1000
	// maxHeldBytes limits the news that clients have not read. At the limit, no news is read from
	// the database until a client reads, or limitStalls of package rpc ends its stream. The streams
	// of a single client cannot reach the limit, because they hold at most 100 events of 1 MiB.
	maxHeldBytes = 128 << 20
	// minQueryGap is the minimum interval between queries for processes that are known to have
	// news.
	minQueryGap = 10 * time.Millisecond
)

// news is one delivery to a watcher.
type news struct {
	gone    bool // the process was removed or never existed
	events  []storage.Event
	process *storage.Process // set if its status changed
}

func (n *news) size() int {
	size := 0
	for i := range n.events {
		size += len(n.events[i].Payload) + len(n.events[i].Metadata)
	}
	if p := n.process; p != nil {
		size += len(p.AuxState) + len(p.Metadata)
	}
	return size
}

// watcher is one client that watches a process. It gets news only after it has sent the previous
// news. News for a slow client is read from the database later, so no queue builds up.
type watcher struct {
	key     process.Key
	news    chan news // buffered for one
	after   int64     // the last event that it received
	changed time.Time // status_changed_time of the status that it received; zero if none
	created time.Time // creation time of the process; zero if unknown
	ready   bool      // the client has sent the news that it received
	held    int       // size of the news that it received but has not sent
	behind  bool      // there may be more news
	left    bool      // the client has disconnected
}

// watchers holds the clients of this node that watch processes. Events that this node stores are
// sent from memory. For events of other nodes and for changes of status, one query for all clients
// runs every AnswerPoll, unless there are no watchers.
type watchers struct {
	engine *Engine
	count  atomic.Int64
	mu     sync.Mutex
	byKey  map[process.Key][]*watcher
	order  []*watcher // the watchers take turns; ended ones are dropped when their turn comes
	woken  chan struct{}
	held   int // size of the news that all watchers hold

	failing bool // the last query failed; used only by Run
}

func newWatchers(e *Engine) *watchers {
	return &watchers{engine: e, byKey: map[process.Key][]*watcher{}, woken: make(chan struct{}, 1)}
}

// register starts to watch a process after one of its events.
func (w *watchers) register(key process.Key, after int64) *watcher {
	wt := &watcher{key: key, after: after, news: make(chan news, 1), ready: true, behind: true}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(1)
	w.byKey[key] = append(w.byKey[key], wt)
	w.order = append(w.order, wt)
	signal(w.woken)
	return wt
}

// forget ends a watch.
func (w *watchers) forget(wt *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(-1)
	w.release(wt)
	wt.left = true
	list := w.byKey[wt.key]
	for n, other := range list {
		if other == wt {
			list = append(list[:n:n], list[n+1:]...)
			break
		}
	}
	if w.byKey[wt.key] = list; len(list) == 0 {
		delete(w.byKey, wt.key)
	}
}

// markReady records that a watcher is ready for more news.
func (w *watchers) markReady(wt *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt.ready = true
	w.release(wt)
	if wt.behind {
		signal(w.woken)
	}
}

// release stops counting the news that a watcher has sent. The caller holds the lock.
func (w *watchers) release(wt *watcher) {
	if w.held >= maxHeldBytes {
		signal(w.woken) // other watchers wait for memory
	}
	w.held -= wt.held
	wt.held = 0
}

// stored sends the events of a result that this node stored at the time now. They follow the event
// done.LastEventID.
func (w *watchers) stored(done *storage.Completion, now time.Time) {
	if w.count.Load() == 0 || len(done.Events) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []storage.Event
	size := 0
	for n := range done.Events {
		size += len(done.Events[n].Payload) + len(done.Events[n].Metadata)
	}
	for _, wt := range w.byKey[done.Key] {
		if !wt.ready || wt.after != done.LastEventID || wt.changed.IsZero() ||
			size > storage.WatchedBytes || w.held >= maxHeldBytes { // read later, in parts, when memory is free
			w.markBehind(wt)
			continue
		}
		if events == nil {
			events = storedEvents(done, now)
		}
		w.send(wt, news{events: events})
	}
}

// recheck schedules a database query for the watchers of a process.
func (w *watchers) recheck(key process.Key) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wt := range w.byKey[key] {
		w.markBehind(wt)
	}
}

// markBehind records that a watcher has missed news. The caller holds the lock.
func (w *watchers) markBehind(wt *watcher) {
	wt.behind = true
	if wt.ready {
		signal(w.woken)
	}
}

// send sends news to a watcher that is ready. The caller holds the lock.
func (w *watchers) send(wt *watcher, n news) {
	wt.ready, wt.held = false, n.size()
	w.held += wt.held
	if len(n.events) > 0 {
		wt.after = n.events[len(n.events)-1].EventID
	}
	if n.process != nil {
		wt.changed = n.process.StatusChangedTime
	}
	wt.news <- n
}

// Run queries news until ctx is cancelled.
func (w *watchers) Run(ctx context.Context) error {
	poll := w.engine.cfg.AnswerPoll
	tick := time.NewTimer(poll)
	defer tick.Stop()
	var queried, queriedAll time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-w.woken:
			gap := minQueryGap
			if w.failing { // wait for the next tick while the database is unavailable
				gap = poll
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gap - time.Since(queried)):
			}
		}
		now := time.Now()
		all := now.Sub(queriedAll) >= poll
		if all {
			queriedAll = now
		}
		queried = now
		if w.runOnce(ctx, all) {
			tick.Reset(time.Until(queriedAll.Add(poll)))
		}
	}
}

// runOnce makes one query for all watchers, or for those that are behind. It reports whether there
// are any watchers.
func (w *watchers) runOnce(ctx context.Context, all bool) bool {
	asked, refs, watching := w.due(all)
	if len(asked) == 0 {
		return watching
	}
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := w.engine.store.ReadWatched(limit, refs)
	if err != nil && ctx.Err() == nil && !w.failing {
		w.engine.log.Warn("cannot read watched processes", "processes", len(asked), "error", err)
	}
	if err == nil && w.failing {
		w.engine.log.Info("reading watched processes works again", "processes", len(asked))
	}
	w.failing = err != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		for _, wt := range asked {
			w.markBehind(wt)
		}
		return true
	}
	for n := range found {
		w.report(asked[found[n].Ord], refs[found[n].Ord], &found[n])
	}
	return true
}

// due returns the watchers whose turn it is, at most maxQueried.
func (w *watchers) due(all bool) (asked []*watcher, refs []storage.WatchRef, watching bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := make([]*watcher, 0, len(w.order))
	for _, wt := range w.order {
		if wt.left {
			continue
		}
		if len(asked) < maxQueried && wt.ready && (all || wt.behind) && w.held < maxHeldBytes {
			wt.behind = false
			asked = append(asked, wt)
			refs = append(refs, storage.WatchRef{Key: wt.key, AfterEventID: wt.after, StatusChangedTime: wt.changed})
			continue
		}
		kept = append(kept, wt)
	}
	w.order = append(kept, asked...)
	return asked, refs, len(w.order) > 0
}

// report sends a watcher what the database returned. It skips events that the watcher has received
// from memory in the meantime.
func (w *watchers) report(wt *watcher, ref storage.WatchRef, found *storage.Watched) {
	if !wt.ready || wt.after != ref.AfterEventID || !wt.changed.Equal(ref.StatusChangedTime) {
		w.markBehind(wt)
		return
	}
	n := news{gone: found.Gone, events: found.Events, process: found.Process}
	if !found.Gone {
		if !wt.created.IsZero() && !wt.created.Equal(found.CreatedTime) {
			n = news{gone: true} // the process was removed, and its ID was reused
		}
		wt.created = found.CreatedTime
	}
	if !n.gone && n.process == nil && (found.More || len(n.events) == 0) {
		w.markBehind(wt) // there may be more news than one query returns
	}
	if n.gone || n.process != nil || len(n.events) > 0 {
		w.send(wt, n)
	}
}
