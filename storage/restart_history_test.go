package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func restarts(c *storage.Completion) { c.RestartHistory = true }

// history returns the numbers of the events in the history of a process.
func (b *bench) history(id string, rng storage.HistoryRange) (ids []int64) {
	b.t.Helper()
	v, err := b.ViewProcess(b.t.Context(), key(id), rng)
	for _, e := range must(b.t, v, err).Events {
		ids = append(ids, e.EventID)
	}
	return ids
}

// trim removes all rows that are older than a restart of their history.
func (b *bench) trim() {
	b.t.Helper()
	for rounds := 0; ; rounds++ {
		n, err := b.TrimHistories(b.t.Context())
		if must(b.t, n, err) == 0 {
			return
		}
		if rounds > 100 {
			b.t.Fatal("old histories are never removed completely")
		}
	}
}

func TestRestartHistoryByResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	var last *storage.Claim
	for range 3 {
		last = b.claim("p")
		b.save(end(last, storage.Finished, events("old")))
	}
	c := b.claim("p", keyed("k", "x"))
	before := c.LastEventID
	b.save(end(c, storage.Finished, events("snapshot"), restarts))
	p, err := b.GetProcess(t.Context(), key("p"))
	must(t, p, err)
	equal(t, "first and last event", []int64{p.FirstEventID, p.LastEventID}, []int64{before + 1, before + 1})
	equal(t, "time of the restart", p.HistoryRestartedTime != nil, true)
	equal(t, "history", b.history("p", storage.HistoryRange{Limit: -1}), []int64{before + 1})
	equal(t, "history backward", b.history("p", storage.HistoryRange{Limit: -1, Backward: true}), []int64{before + 1})
	equal(t, "before a number of the old history",
		b.history("p", storage.HistoryRange{Offset: 2, Limit: -1, Backward: true}), []int64(nil))
	equal(t, "events until they are removed", ask[int64](b, "SELECT count(*) FROM events"), before+1)
	b.trim()
	equal(t, "events", ask[string](b, "SELECT string_agg(event_id::text, ' ') FROM events"),
		ask[string](b, "SELECT last_event_id::text FROM processes"))
	equal(t, "tasks", ask[int64](b, "SELECT min(task_id) FROM tasks"), c.TaskID)
	equal(t, "the timer", ask[int](b, "SELECT count(*) FROM schedule WHERE timer_name = ''"), 1)
	equal(t, "the keyed request", b.call("p", keyed("k", "x")).Outcome, storage.Replayed)
	next := b.claim("p")
	equal(t, "the next claim", []int64{next.FirstEventID, next.LastEventID}, []int64{before + 1, before + 1})
	b.save(end(next, storage.Finished, events("new")))
	equal(t, "history", b.history("p", storage.HistoryRange{Limit: -1}), []int64{before + 1, before + 2})
}

// An operator restarts a history while a task runs. The task and its events belong to the new
// history.
func TestRestartHistoryWhileATaskRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.save(end(b.claim("p", keyed("old", "x")), storage.Finished, events("old")))
	c := b.claim("p")
	must(t, 0, b.RestartHistory(key("p"), process.Actor{Name: "ada"}))
	b.save(end(c, storage.Finished, events("new")))
	b.trim()
	equal(t, "history", b.history("p", storage.HistoryRange{Limit: -1}), []int64{c.LastEventID + 1})
	equal(t, "tasks", ask[int64](b, "SELECT min(task_id) FROM tasks"), c.TaskID)
	equal(t, "a request of the old history", b.call("p", keyed("old", "x")).Outcome, storage.Replayed)
	equal(t, "audit", ask[string](b, "SELECT actor || ' ' || method FROM audit"), "ada RestartHistory")
	if err := b.RestartHistory(key("absent")); !errors.Is(err, process.ErrProcessNotFound) {
		t.Errorf("restart of a missing process: %v", err)
	}
}

// After the history of a process in ERROR is restarted, a repair still restores the timers that the
// error cancelled.
func TestRestartHistoryOfABrokenProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	b.save(end(b.claim("p"), storage.Failed, broken("no")))
	must(t, 0, b.RestartHistory(key("p")))
	b.trim()
	b.simpleRepair("p")
	equal(t, "timers after the repair", ask[int](b, "SELECT count(*) FROM schedule WHERE timer_name = ''"), 1)
}

// If a removed process has left a restart that is not complete, no rows of its successor are
// removed.
func TestRestartHistoryOfAPredecessor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.save(end(b.claim("p"), storage.Finished, events("1", "2")))
	must(t, 0, b.RestartHistory(key("p")))
	b.remove("p")
	b.process("p")
	b.save(end(b.claim("p"), storage.Finished, events("1")))
	want := b.history("p", storage.HistoryRange{Limit: -1})
	tasks := ask[int](b, "SELECT count(*) FROM tasks")
	b.trim()
	equal(t, "history", b.history("p", storage.HistoryRange{Limit: -1}), want)
	equal(t, "tasks", ask[int](b, "SELECT count(*) FROM tasks"), tasks)
}

// A long history is removed in batches, and a watcher that has read part of it continues with the
// new history.
func TestRestartLongHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.exec("DELETE FROM events")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
		SELECT namespace, process_id, n, task_id, attempt, now(), 'x' FROM tasks, generate_series(1, 1000) n`)
	b.exec("UPDATE processes SET last_event_id = 1000")
	p, err := b.GetProcess(t.Context(), key("p"))
	must(t, p, err)
	must(t, 0, b.RestartHistory(key("p")))
	refs := []storage.WatchRef{{Key: key("p"), AfterEventID: 5, StatusChangedTime: p.StatusChangedTime}}
	found, err := b.ReadWatched(t.Context(), refs)
	equal(t, "changes of an empty history", len(must(t, found, err)), 0)
	n, err := b.TrimHistories(t.Context())
	equal(t, "restarts of the first batch", must(t, n, err), 1)
	equal(t, "events after the first batch", ask[int](b, "SELECT count(*) FROM events"), 800)
	b.trim()
	b.save(end(b.claim("p"), storage.Finished, events("new")))
	found, err = b.ReadWatched(t.Context(), refs)
	equal(t, "changes", must(t, found, err)[0].Events[0].EventID, 1001)
	equal(t, "more changes", found[0].More, false)
}
