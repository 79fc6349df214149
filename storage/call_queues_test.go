package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func mayWait(c *storage.Call) { c.MayWait = func() bool { return true } }

// withQueues returns a bench whose calls may wait in call queues, and its registry. Call queues are
// part of the fast path.
func withQueues(t *testing.T, wait time.Duration) (*bench, *prometheus.Registry) {
	t.Helper()
	storagetest.NeedsFastPath(t)
	dsn, registry := storagetest.DSN(t), prometheus.NewRegistry()
	s := open(t, dsn, storage.Config{Registerer: registry}).CallQueueWait(wait)
	return &bench{Store: s, t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}, registry
}

// busyProcess creates a process with a running call.
func (b *bench) busyProcess(id string) *storage.Claim {
	b.t.Helper()
	b.process(id)
	return b.claim(id, mayWait)
}

// enqueueCall makes a call that may wait. It returns when n calls wait in the queue of its process.
func (b *bench) enqueueCall(id string, n int, change ...func(*storage.Call)) func() (storage.Prepared, error) {
	b.t.Helper()
	answer := later(func() (storage.Prepared, error) { return b.PrepareCall(call(id, append(change, mayWait)...)) })
	for deadline := time.Now().Add(waitLimit); ; {
		waiting, _ := b.CallQueue(key(id))
		if waiting == n {
			return answer
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d calls of %s wait in memory, want %d", waiting, id, n)
		}
		pause()
	}
}

// awaitIdleQueues waits until no process is known to run here.
func (b *bench) awaitIdleQueues() {
	b.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		_, processes := b.CallQueue(process.Key{})
		if processes == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d processes are known to run here", processes)
		}
		pause()
	}
}

// Calls to a process that runs here are stored with its results, in order, one per result. Nothing
// is stored before that, and the general statements are not needed.
func TestCallsAreStoredWithResults(t *testing.T) {
	t.Parallel()
	b, registry := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	var answers []func() (storage.Prepared, error)
	for n := range 3 {
		answers = append(answers, b.enqueueCall("p", n+1, func(c *storage.Call) { c.Args = fmt.Append(nil, n) }))
	}
	for n, answer := range answers {
		equal(t, "calls that are stored", ask[int](b, "SELECT count(*) FROM schedule"), 0)
		equal(t, "the next task of the process", b.save(end(running, storage.Finished)).Next, (*storage.Claim)(nil))
		prepared, err := answer()
		equal(t, "the outcome of a queued call", must(t, prepared, err).Outcome, storage.Captured)
		if prepared.Waited <= 0 {
			t.Errorf("a queued call has waited for %s", prepared.Waited)
		}
		running = prepared.Claim
		equal(t, "the running call", string(running.Args), fmt.Sprint(n))
	}
	b.save(end(running, storage.Finished))
	equal(t, "misses", fallbacks(t, registry), 0)
	b.is("p", "RUNNING e0: INIT FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED")
	b.awaitIdleQueues()
}

// A call that has waited too long is stored. It runs before the calls that still wait in memory,
// and these continue when no stored call is left.
func TestCallLeavesTheQueue(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, 50*time.Millisecond)
	running := b.busyProcess("p")
	prepared, err := b.PrepareCall(call("p", mayWait, runsHere))
	equal(t, "a call that has waited too long", must(t, prepared, err).Outcome, storage.Postponed)
	b.CallQueueWait(waitLimit)
	second := b.enqueueCall("p", 1)
	next := b.save(end(running, storage.Finished)).Next
	if next == nil || next.TaskID != prepared.TaskID {
		t.Fatalf("next runs %+v, want task %d, which was stored first", next, prepared.TaskID)
	}
	b.save(end(next, storage.Finished))
	prepared, err = second()
	equal(t, "the call behind it", must(t, prepared, err).Outcome, storage.Captured)
	b.save(end(prepared.Claim, storage.Finished))
	b.awaitIdleQueues()
}

// At most max_waiting calls wait in the queue. The database decides whether to accept another call.
func TestCallQueueIsFull(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	one := func(c *storage.Call) { c.MaxWaiting = 1 }
	first := b.enqueueCall("p", 1, one, runsHere)
	began := time.Now()
	equal(t, "a call that finds the queue full", b.call("p", mayWait, one, runsHere).Outcome, storage.Postponed)
	if took := time.Since(began); took >= waitLimit {
		t.Errorf("it was stored after %s", took)
	}
	next := b.save(end(running, storage.Finished)).Next
	equal(t, "the next task of the process", b.save(end(next, storage.Finished)).Next, (*storage.Claim)(nil))
	prepared, err := first()
	equal(t, "the queued call", must(t, prepared, err).Outcome, storage.Captured)
	equal(t, "the order of the calls", next.TaskID < prepared.TaskID, true)
	b.save(end(prepared.Claim, storage.Finished))
	b.awaitIdleQueues()
}

// runsHere makes a call from a node that runs its process.
func runsHere(c *storage.Call) { c.Here = func() bool { return true } }

// A call to a process that runs here is stored if no queue knows the process. Later calls wait in
// memory behind that call, and are stored with results after it has run. (Otherwise, the later
// calls would also be stored, and a hot process would never return to the fast path.)
func TestCallQueueBehindStoredCalls(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	b.process("p")
	running := b.claim("p") // unknown to the queues
	equal(t, "a call that finds the process busy", b.call("p", mayWait, runsHere).Outcome, storage.Postponed)
	first, second := b.enqueueCall("p", 1), b.enqueueCall("p", 2)
	running = b.save(end(running, storage.Finished)).Next
	b.save(end(running, storage.Finished))
	for n, answer := range []func() (storage.Prepared, error){first, second} {
		prepared, err := answer()
		equal(t, fmt.Sprintf("queued call %d", n), must(t, prepared, err).Outcome, storage.Captured)
		equal(t, "the next task of the process", b.save(end(prepared.Claim, storage.Finished)).Next,
			(*storage.Claim)(nil))
	}
	b.awaitIdleQueues()
}

// If other nodes keep a process busy, calls are stored behind the calls of these nodes and do not
// wait in memory.
func TestCallQueueYieldsToOtherNodes(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	const others = 70
	for range others {
		equal(t, "a call of another node", b.call("p").Outcome, storage.Postponed)
	}
	running = b.save(end(running, storage.Finished)).Next
	first := b.enqueueCall("p", 1)
	for range others - 2 {
		running = b.save(end(running, storage.Finished)).Next
	}
	began := time.Now()
	equal(t, "a call behind many calls of other nodes", b.call("p", mayWait, runsHere).Outcome, storage.Postponed)
	if took := time.Since(began); took >= waitLimit {
		t.Errorf("it waited in memory for %s", took)
	}
	for running != nil {
		running = b.save(end(running, storage.Finished)).Next
	}
	prepared, err := first()
	equal(t, "the queued call", must(t, prepared, err).Outcome, storage.Captured)
	b.save(end(prepared.Claim, storage.Finished))
	b.awaitIdleQueues()
}

// Queued calls are answered at once when their process breaks or is removed.
func TestCallQueueOfAProcessThatBreaks(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	answers := []func() (storage.Prepared, error){b.enqueueCall("p", 1), b.enqueueCall("p", 2), b.enqueueCall("p", 3)}
	began := time.Now()
	b.save(end(running, storage.Failed, broken("no")))
	for _, answer := range answers {
		prepared, err := answer()
		equal(t, "a call to a broken process", must(t, prepared, err).Outcome, storage.Refused)
	}
	b.awaitIdleQueues()

	running = b.busyProcess("q")
	answer := b.enqueueCall("q", 1)
	_, err := b.SaveResult(end(running, storage.Removed))
	must(t, 0, err)
	prepared, err := answer()
	equal(t, "a call to a removed process", must(t, prepared, err).Outcome, storage.NotFound)
	b.awaitIdleQueues()
	if took := time.Since(began); took >= waitLimit {
		t.Errorf("queued calls ended after %s", took)
	}
}

// If an attempt is fenced, the calls in the queue of its process are stored.
func TestCallQueueOfAFencedAttempt(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	first, second := b.enqueueCall("p", 1), b.enqueueCall("p", 2)
	b.exec("UPDATE running SET fencing_token = nextval('fencing_tokens')")
	if _, err := b.SaveResult(end(running, storage.Finished)); !errors.Is(err, process.ErrFenced) {
		t.Fatalf("a late result: %v", err)
	}
	for n, answer := range []func() (storage.Prepared, error){first, second} {
		prepared, err := answer()
		equal(t, fmt.Sprintf("call %d of a process that runs elsewhere", n), must(t, prepared, err).Outcome,
			storage.Postponed)
	}
	b.awaitIdleQueues()
}

// A store that is closed answers the queued calls with ErrUnavailable.
func TestStoreClosesWithQueuedCalls(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, 50*time.Millisecond)
	b.busyProcess("p")
	first, second := b.enqueueCall("p", 1), b.enqueueCall("p", 2)
	b.Close()
	for _, answer := range []func() (storage.Prepared, error){first, second} {
		if _, err := answer(); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("a queued call as the store closes: %v", err)
		}
	}
}

// A call whose slot others need is stored early.
func TestCallLeavesTheQueueForOthers(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, time.Hour)
	b.busyProcess("p")
	prepared, err := b.PrepareCall(call("p", func(c *storage.Call) { c.MayWait = func() bool { return false } }))
	equal(t, "a call whose slot is needed", must(t, prepared, err).Outcome, storage.Postponed)
}

// A call that should be stored with a result is answered when its flush has failed, although the
// result is retried. The queue continues when the result is stored.
func TestCallQueueOfALockedProcess(t *testing.T) {
	t.Parallel()
	b, _ := withQueues(t, waitLimit)
	running := b.busyProcess("p")
	first, second := b.enqueueCall("p", 1), b.enqueueCall("p", 2)
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM processes WHERE process_id = 'p' FOR UPDATE")
	must(t, tx, err)
	saved := later(func() (storage.Saved, error) { return b.SaveResult(end(running, storage.Finished)) })
	if _, err := first(); !errors.Is(err, process.ErrLocked) {
		t.Errorf("a call to a locked process: %v", err)
	}
	must(t, tx, tx.Rollback(t.Context()))
	result, err := saved()
	must(t, result, err)
	prepared, err := second()
	equal(t, "the call behind it", must(t, prepared, err).Outcome, storage.Captured)
	b.save(end(prepared.Claim, storage.Finished))
	b.awaitIdleQueues()
}
