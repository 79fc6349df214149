package storage_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// A call to an idle process runs at once. Its claim has the fields of the call and of the process.
// A second call waits.
func TestCallIsCaptured(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", events("a", "b"), func(c *storage.Completion) {
		c.AuxState, c.Metadata = []byte("state"), []byte(`{"a": 1}`)
	})
	c := b.claim("p", func(c *storage.Call) {
		c.Context, c.Priority, c.HistoryRange = []byte("ctx"), 3, `{"limit": 1}`
	})
	b.is("p", "RUNNING e2: INIT FINISHED, CALL runs#1")
	equal(t, "the claim", []any{
		c.TaskType, c.Attempt, c.Priority, string(c.Args), string(c.Context), c.HistoryRange, string(c.AuxState),
		string(c.Metadata), c.Status, c.PreviousStatus, c.LastEventID,
	},
		[]any{"CALL", 1, 3, "args", "ctx", `{"limit": 1}`, "state", `{"a": 1}`, "RUNNING", "INIT", 2})
	equal(t, "a call in the meantime", b.call("p").Outcome, storage.Postponed)
	b.is("p", "RUNNING e2: INIT FINISHED, CALL runs#1, CALL waits for process#0")
}

// A process accepts no calls if it does not exist, is in ERROR, has ended or is suspended. Nothing
// is stored.
func TestCallIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	equal(t, "a call to a missing process", b.call("none").Outcome, storage.NotFound)
	b.breakProcess("broken")
	equal(t, "calls to a broken process", []any{b.call("broken").Outcome, b.call("broken", notify).Status}, []any{
		storage.Refused, process.StatusError,
	})
	b.process("ended")
	b.save(end(b.claim("ended"), storage.Completed))
	equal(t, "calls to an ended process", []any{b.call("ended").Outcome, b.call("ended").Status}, []any{
		storage.Refused, process.StatusCompleted,
	})
	b.process("held")
	b.exec(`UPDATE processes SET status = 'SUSPENDED', previous_status = 'RUNNING', attention = 'SUSPENDED',
		attention_time = status_changed_time WHERE process_id = 'held'`)
	b.recount()
	equal(t, "a call to a suspended process", b.call("held", keyed("k", "x")).Outcome, storage.Refused)
	equal(t, "tasks that wait or run",
		ask[int](b, "SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM schedule)"), 0)
	equal(t, "requests", ask[int](b, "SELECT count(*) FROM requests"), 0)
}

// A call to a process whose INIT task runs waits, and runs after that task.
func TestCallBehindInit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	equal(t, "a call", b.call("p").Outcome, storage.Postponed)
	b.is("p", "INIT e0: INIT runs#1, CALL waits for process#0")
	saved := b.save(end(c, storage.Finished))
	equal(t, "the next task", saved.Next.TaskType, process.TaskCall)
	b.is("p", "RUNNING e0: INIT FINISHED, CALL runs#1")
}

// A call to an idle process waits if the node has no slot for it. Later calls wait behind it.
func TestCallWithoutSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	equal(t, "the first call", b.call("p", withoutSlot).Outcome, storage.AwaitsSlot)
	// The first call keeps its position, so a call with a slot does not overtake it.
	equal(t, "the second call", b.call("p").Outcome, storage.Postponed)
	b.is("p", "RUNNING e0: INIT FINISHED, CALL waits for place#0, CALL waits for process#0")
	claims := b.searchCalls(9)
	equal(t, "claims", ids(claims), "[p]")
	b.is("p", "RUNNING e0: INIT FINISHED, CALL runs#1, CALL waits for process#0")
	saved := b.save(end(&claims[0], storage.Finished, withoutPromote))
	equal(t, "the next call waits for a slot", []any{saved.Deferred, saved.Next == nil}, "[true true]")
	b.is("p", "RUNNING e0: INIT FINISHED, CALL FINISHED, CALL waits for place#0")
}

// A call with the idempotency key and the content of an earlier call gets the task of that call,
// even after the process has failed or was removed.
func TestCallWithKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	first := b.call("p", keyed("k", "x"))
	again := b.call("p", keyed("k", "x"))
	equal(t, "a repeated call", []any{again.Outcome, again.TaskID, again.ProcessID},
		[]any{storage.Replayed, first.TaskID, "p"})
	equal(t, "a repeated call with other args", b.call("p", keyed("k", "y")).Outcome, storage.Mismatched)
	b.save(end(first.Claim, storage.Failed, broken("x")))
	equal(t, "a repeated call to a process in ERROR", b.call("p", keyed("k", "x")).Outcome, storage.Replayed)
	if err := b.RemoveProcess(t.Context(), key("p")); err != nil {
		t.Fatal(err)
	}
	again = b.call("p", keyed("k", "x"))
	equal(t, "a repeated call to a removed process", []any{again.Outcome, again.TaskID},
		[]any{storage.Replayed, first.TaskID})
	equal(t, "a new call to a removed process", b.call("p", keyed("k2", "x")).Outcome, storage.NotFound)
}

// A call is rejected if MaxWaiting calls already wait for the process.
func TestCallIsOverloaded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	three := func(c *storage.Call) { c.MaxWaiting = 3 }
	b.process("p")
	var outcomes []storage.PrepareOutcome
	for range 6 {
		outcomes = append(outcomes, b.call("p", three).Outcome)
	}
	equal(t, "calls one after the other", outcomes, "[captured postponed postponed postponed overloaded overloaded]")
	equal(t, "a call with a key", b.call("p", three, keyed("k", "x")).Outcome, storage.Overloaded)
	equal(t, "requests", ask[int](b, "SELECT count(*) FROM requests"), 0)
	// Within one flush, the limit is the same.
	b.process("q")
	got := b.concurrentCalls("q", 50, three)
	slices.Sort(got)
	equal(t, "concurrent calls", slices.Compact(slices.Clone(got)), "[captured overloaded postponed]")
	equal(t, "waiting calls", ask[int](b, "SELECT count(*) FROM schedule WHERE process_id = 'q'"), 3)
	equal(t, "running calls", ask[int](b, "SELECT count(*) FROM running WHERE process_id = 'q'"), 1)
}

// A bound below 1 is rejected. With such a bound, the statement would see no waiting tasks, and a
// call would overtake them.
func TestCallWithoutLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	equal(t, "a call that waits for a slot", b.call("p", func(c *storage.Call) { c.Capture = false }).Outcome,
		storage.AwaitsSlot)
	for _, bound := range []int32{0, -1} {
		p, err := b.PrepareCall(call("p", func(c *storage.Call) { c.MaxWaiting = bound }))
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "max_waiting" {
			t.Errorf("bound %d: %q, %v", bound, p.Outcome, err)
		}
	}
	equal(t, "running calls", ask[int](b, "SELECT count(*) FROM running"), 0)
}

// concurrentCalls makes n concurrent calls.
func (b *bench) concurrentCalls(id string, n int, change ...func(*storage.Call)) []storage.PrepareOutcome {
	outcomes := make([]storage.PrepareOutcome, n)
	all(n, func(i int) {
		p, err := b.PrepareCall(call(id, change...))
		if err != nil {
			b.t.Error(err)
		}
		outcomes[i] = p.Outcome
	})
	return outcomes
}

// If many calls arrive in one or several flushes, one runs at once. All others wait, and run in the
// order of their IDs.
func TestCallsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	const n = 80
	captured := 0
	for _, o := range b.concurrentCalls("p", n) {
		if o == storage.Captured {
			captured++
		}
	}
	equal(t, "captured calls", captured, 1)
	rows, err := b.ListRunning(t.Context(), nil, 0)
	next := &must(t, rows, err)[0]
	last := int64(0)
	for range n {
		if next == nil || next.TaskID <= last {
			t.Fatalf("after task %d comes %+v", last, next)
		}
		last = next.TaskID
		next = b.save(end(next, storage.Finished)).Next
	}
	equal(t, "no other task is left", next == nil, true)
	equal(t, "finished tasks", ask[int](b, "SELECT count(*) FROM tasks WHERE status = 'FINISHED'"), n+1)
}
