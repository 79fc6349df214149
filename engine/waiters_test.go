package engine

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// bare returns an engine without a database.
func bare() *Engine {
	e := &Engine{
		log: slog.New(slog.DiscardHandler), attempts: newAttempts(nil), liveness: liveness{started: time.Now()},
	}
	e.cfg.setDefaults()
	e.waiters, e.watchers, e.minuteStats = newWaiters(e), newWatchers(e), newMinuteStats(e.started)
	return e
}

func refOf(id string, taskID int64) storage.TaskRef {
	return storage.TaskRef{Key: process.Key{Namespace: "ns", ProcessID: id}, TaskID: taskID}
}

// asked returns the tasks that the next query would read.
func asked(w *waiters) map[int64]bool {
	refs, _ := w.due()
	tasks := map[int64]bool{}
	for _, r := range refs {
		tasks[r.TaskID] = true
	}
	return tasks
}

func TestWaitersDeliver(t *testing.T) {
	t.Parallel()
	w := bare().waiters
	a, b, other := w.register(refOf("p", 1), false), w.register(refOf("p", 1), true), w.register(refOf("p", 2), false)
	// Process q also has a task 1.
	left, namesake := w.register(refOf("p", 1), false), w.register(refOf("q", 1), false)
	leftAnswers := left.ended
	w.forget(left)
	if w.count() != 3 {
		t.Errorf("clients wait for %d tasks", w.count())
	}
	w.deliver(refOf("p", 1), taskEnd{response: []byte("x")})
	w.deliver(refOf("p", 1), taskEnd{response: []byte("twice")})
	for _, wt := range []*waiter{a, b} {
		if got := <-wt.ended; string(got.response) != "x" {
			t.Errorf("answer %q", got.response)
		}
	}
	if len(leftAnswers) != 0 || len(other.ended) != 0 || len(namesake.ended) != 0 {
		t.Error("a response went to another waiter")
	}
	w.forget(a) // after its answer
	w.forget(b)
	w.forget(other)
	w.forget(namesake)
	if w.count() != 0 {
		t.Errorf("clients wait for %d tasks", w.count())
	}
	if refs, waiting := w.due(); len(refs) != 0 || waiting != 0 {
		t.Errorf("the query reads %v, %d tasks wait", refs, waiting)
	}
}

// Tasks that run on this node are not queried, except once if they may have ended before their
// client began to wait.
func TestWaitersAsk(t *testing.T) {
	t.Parallel()
	e := bare()
	w := e.waiters
	claim := &storage.Claim{Namespace: "ns", ProcessID: "here", TaskID: 1, FencingToken: 10}
	e.attempts.begin(claim, nil)
	w.register(refOf("here", 1), false)
	w.register(refOf("here", 2), true) // waits behind the first one
	w.register(refOf("elsewhere", 3), false)
	if got := asked(w); len(got) != 2 || !got[2] || !got[3] {
		t.Errorf("the first query reads %v", got)
	}
	if got := asked(w); len(got) != 1 || !got[3] {
		t.Errorf("the second query reads %v", got)
	}
	w.recheck(process.Key{Namespace: "ns", ProcessID: "here"})
	if got := asked(w); len(got) != 3 {
		t.Errorf("after a fenced result, the query reads %v", got)
	}
	if got := asked(w); len(got) != 1 {
		t.Errorf("the next query reads %v", got)
	}
	// Another node may have run the process in between, so all tasks are queried from time to time.
	for _, wt := range w.order {
		wt.asked = wt.asked.Add(-ownQueryInterval)
	}
	if got := asked(w); len(got) != 3 {
		t.Errorf("after a while, the query reads %v", got)
	}
	e.attempts.end(claim)
	if got := asked(w); len(got) != 3 {
		t.Errorf("the query reads %v, although no task runs here", got)
	}
}

// If there are more tasks than one query can read, consecutive queries read different tasks.
func TestWaitersTakeTurns(t *testing.T) {
	t.Parallel()
	w := bare().waiters
	for n := range int64(2*maxPolled + 500) {
		w.register(refOf("p", n), false)
	}
	w.recheck(process.Key{Namespace: "ns", ProcessID: "p"})
	seen := map[int64]int{}
	for range 5 {
		got := asked(w)
		if len(got) != maxPolled {
			t.Errorf("one query reads %d tasks", len(got))
		}
		for id := range got {
			seen[id]++
		}
	}
	for id, n := range seen {
		if n != 2 {
			t.Fatalf("task %d was queried %d times in two turns", id, n)
		}
	}
	if len(seen) != 2*maxPolled+500 {
		t.Errorf("%d tasks were queried", len(seen))
	}
}

// While more clients wait than one query reads, the set of processes to check does not grow, and
// each waiter of such a process is still queried once.
func TestWaitersForgetStale(t *testing.T) {
	t.Parallel()
	e := bare()
	w := e.waiters
	claim := &storage.Claim{Namespace: "ns", ProcessID: "here", TaskID: 1, FencingToken: 10}
	e.attempts.begin(claim, nil)
	for n := range int64(maxPolled + 200) {
		w.register(refOf("elsewhere", 100+n), false)
	}
	w.register(refOf("here", 1), false)
	w.recheck(process.Key{Namespace: "ns", ProcessID: "here"})
	found := false
	for n := range 3 {
		w.recheck(process.Key{Namespace: "ns", ProcessID: "gone" + strconv.Itoa(n)})
		found = asked(w)[1] || found
		if len(w.stale) != 0 {
			t.Fatalf("%d stale processes are remembered after turn %d", len(w.stale), n)
		}
	}
	if !found {
		t.Error("the task of a stale process was not queried")
	}
}
