package storage_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// worker is a minimal engine for a store: it runs each claim once, and adopts lost claims. Its
// processor responds to each task with one event that contains the args.
type worker struct {
	t     testing.TB
	store *storage.Store

	mutex   sync.Mutex
	known   map[int64]bool // fencing tokens
	adopted int
	lost    int
	ran     sync.WaitGroup
}

func newWorker(t testing.TB, s *storage.Store) *worker {
	w := &worker{t: t, store: s, known: map[int64]bool{}}
	s.OnAdopt(func(claims []storage.Claim) {
		for _, c := range claims {
			if w.begin(c.FencingToken) {
				w.mutex.Lock()
				w.adopted++
				w.mutex.Unlock()
				w.ran.Go(func() { w.run(&c) })
			}
		}
	})
	return w
}

// begin records an attempt, and reports whether it is new to the worker.
func (w *worker) begin(token int64) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.known[token] {
		return false
	}
	w.known[token] = true
	return true
}

// start runs a claim, unless it already runs.
func (w *worker) start(c *storage.Claim) {
	if w.begin(c.FencingToken) {
		w.run(c)
	}
}

// run stores the end of an attempt and continues with the next task.
func (w *worker) run(c *storage.Claim) {
	for c != nil {
		saved, err := w.store.SaveResult(end(c, storage.Finished, events(string(c.Args))))
		switch {
		case errors.Is(err, process.ErrFenced):
			return // adopted, and completed there first
		case err != nil:
			w.t.Errorf("save of %s: %v", c.ProcessID, err)
			return
		}
		if saved.ResponseLost {
			w.mutex.Lock()
			w.lost++
			w.mutex.Unlock()
			return
		}
		next := saved.Next
		if next == nil || !w.begin(next.FencingToken) {
			return
		}
		next.LastEventID = c.LastEventID + 1
		c = next
	}
}

// sweep acts like the pollers until no task of the database waits or runs.
func (w *worker) sweep(db *pgxpool.Pool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		w.ran.Wait()
		ctx := w.t.Context()
		calls, err := w.store.SearchCalls(ctx, room(100))
		timers, _, err2 := w.store.SearchTimers(ctx, room(100))
		w.mutex.Lock()
		known := make([]int64, 0, len(w.known))
		for token := range w.known {
			known = append(known, token)
		}
		w.mutex.Unlock()
		stray, err3 := w.store.ListRunning(ctx, known, 0)
		if err := errors.Join(err, err2, err3); err != nil && !errors.Is(err, process.ErrUnavailable) {
			w.t.Fatal(err)
		}
		for _, c := range append(append(calls, timers...), stray...) {
			w.ran.Go(func() { w.start(&c) })
		}
		w.ran.Wait()
		var left int
		err = db.QueryRow(ctx, "SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM schedule)").Scan(&left)
		if err == nil && left == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d tasks are left, %v", left, err)
		}
	}
}
