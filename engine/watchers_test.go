package engine

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func eventsAfter(key process.Key, last int64, n int) *storage.Completion {
	return &storage.Completion{
		TaskAttempt: storage.TaskAttempt{Key: key, LastEventID: last},
		Result:      storage.Result{Outcome: storage.Finished, Events: make([]storage.NewEvent, n)},
	}
}

// A watcher that has not sent its news gets no further news from memory. The next query that finds
// the watcher ready reads later news from the database.
func TestWatchersQueueNothing(t *testing.T) {
	t.Parallel()
	w := bare().watchers
	key := process.Key{Namespace: "ns", ProcessID: "p"}
	quick, slow, other := w.register(key, 3), w.register(key, 3),
		w.register(process.Key{Namespace: "ns", ProcessID: "q"}, 3)
	changed := time.Now()
	asked, refs, watching := w.due(false)
	if len(asked) != 3 || !watching {
		t.Fatalf("the first query reads %d watchers", len(asked))
	}
	for n, wt := range asked {
		w.report(wt, refs[n], &storage.Watched{
			CreatedTime: changed, Process: &storage.Process{StatusChangedTime: changed},
		})
	}
	for _, wt := range []*watcher{quick, slow, other} {
		<-wt.news
	}
	w.markReady(quick)
	w.markReady(other)
	w.stored(eventsAfter(key, 3, 2), changed)
	if n := <-quick.news; len(n.events) != 2 || n.events[0].EventID != 4 || quick.after != 5 {
		t.Errorf("got %+v", n)
	}
	w.markReady(quick)
	w.stored(eventsAfter(key, 6, 1), changed) // event 6 was stored by another node
	if len(quick.news)+len(slow.news)+len(other.news) != 0 || !quick.behind || !slow.behind || other.behind {
		t.Error("a watcher got events with a gap, or of another process")
	}
	if asked, _, _ = w.due(false); len(asked) != 1 || asked[0] != quick {
		t.Errorf("the query reads %d watchers, want the one that is behind and ready", len(asked))
	}
	w.markReady(slow)
	if asked, refs, _ = w.due(false); len(asked) != 1 || asked[0] != slow || refs[0].AfterEventID != 3 {
		t.Errorf("the query reads %d watchers, want the slow one, from its position", len(asked))
	}
	// Events that a watcher got from memory after the query was sent are not sent again.
	slow.after = 5
	w.report(slow, refs[0], &storage.Watched{CreatedTime: changed, Events: []storage.Event{{EventID: 4}, {EventID: 5}}})
	if len(slow.news) != 0 || !slow.behind {
		t.Error("got an outdated update")
	}
	for _, wt := range []*watcher{quick, slow, other} {
		w.forget(wt)
	}
	if asked, _, watching = w.due(true); len(asked) != 0 || watching || len(w.byKey) != 0 || w.count.Load() != 0 {
		t.Errorf("the query reads %d watchers, %d processes are watched", len(asked), len(w.byKey))
	}
}

// If there are more watchers than one query can serve, consecutive queries serve different ones.
func TestWatchersTakeTurns(t *testing.T) {
	t.Parallel()
	w := bare().watchers
	seen := map[*watcher]int{}
	for range 2*maxQueried + 500 {
		seen[w.register(process.Key{Namespace: "ns", ProcessID: "p"}, 0)] = 0
	}
	for range 5 {
		asked, _, _ := w.due(true)
		if len(asked) != maxQueried {
			t.Errorf("one query reads %d watchers", len(asked))
		}
		for _, wt := range asked {
			seen[wt]++
		}
	}
	for _, n := range seen {
		if n != 2 {
			t.Fatalf("a watcher was read %d times in two turns", n)
		}
	}
}

// Clients that do not read can hold only a limited part of the node's memory. The news for other
// clients waits until memory is free.
func TestWatchersHoldLittle(t *testing.T) {
	t.Parallel()
	w := bare().watchers
	key := process.Key{Namespace: "ns", ProcessID: "p"}
	changed := time.Now()
	first := w.register(key, 3)
	asked, refs, _ := w.due(false)
	w.report(asked[0], refs[0], &storage.Watched{Process: &storage.Process{StatusChangedTime: changed}})
	<-first.news
	w.markReady(first)
	large := eventsAfter(key, 3, 1)
	large.Events[0].Payload = make([]byte, storage.WatchedBytes+1)
	w.stored(large, changed)
	if len(first.news) != 0 || !first.behind {
		t.Error("a watcher got more from memory than a read of the database returns")
	}
	event := make([]byte, 1<<20)
	var held []*watcher
	for len(held) < maxHeldBytes>>20 {
		held = append(held, w.register(key, 3))
	}
	asked, refs, _ = w.due(false)
	for n, wt := range asked {
		w.report(wt, refs[n], &storage.Watched{Events: []storage.Event{{EventID: 4, Payload: event}}})
	}
	if w.held < maxHeldBytes {
		t.Fatalf("%d bytes are reserved", w.held)
	}
	late := w.register(key, 3)
	if asked, _, watching := w.due(true); len(asked) != 0 || !watching {
		t.Errorf("the query reads %d watchers while the memory is full", len(asked))
	}
	w.stored(eventsAfter(key, 3, 1), changed)
	if len(late.news) != 0 {
		t.Error("a watcher got news although the memory is full")
	}
	w.forget(first) // the client has left
	w.markReady(held[0])
	if asked, _, _ := w.due(true); len(asked) != 2 || asked[0] != late && asked[1] != late {
		t.Errorf("%d watchers are read when there is room", len(asked))
	}
	for _, wt := range append(held, late) {
		w.forget(wt)
	}
	if w.held != 0 {
		t.Errorf("%d bytes are reserved without watchers", w.held)
	}
}
