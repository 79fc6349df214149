package storage_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// fired creates a process whose default timer runs.
func (b *bench) fired(id string) *storage.Claim {
	b.t.Helper()
	saved := b.save(end(b.start(id), storage.Finished, timer(0)))
	if saved.Next == nil {
		b.t.Fatal("the timer does not run")
	}
	return saved.Next
}

func (b *bench) checkpoint(c *storage.Completion) storage.Checkpointed {
	b.t.Helper()
	saved, err := b.SaveCheckpoint(c)
	return must(b.t, saved, err)
}

// A checkpoint stores events, state and metadata while the attempt runs, and records the change.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.record("EVENT")
	c := b.fired("p")
	saved := b.checkpoint(end(c, "", events("a", "b"), func(c *storage.Completion) {
		c.AuxState, c.Metadata = []byte("state"), []byte(`{"a": 1}`)
	}))
	equal(t, "yield, time unknown", []bool{saved.Yield, saved.Now.IsZero()}, "[false false]")
	b.is("p", "RUNNING e2: INIT FINISHED, TIMEOUT runs#1")
	c.LastEventID += 2
	b.checkpoint(end(c, "", events("c")))
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{string(must(t, row, err).AuxState), string(row.Metadata), row.LastEventID},
		`[state {"a": 1} 3]`)
	c.LastEventID++
	b.save(end(c, storage.Finished, events("d")))
	b.is("p", "RUNNING e4: INIT FINISHED, TIMEOUT FINISHED")
	equal(t, "changes", b.recorded(), "p stored 1 a, p stored 2 b, p stored 3 c, p stored 4 d")
	equal(t, "events of the timer", ask[int](b, `SELECT count(*) FROM events e JOIN tasks t USING (task_id)
		WHERE t.task_type = 'TIMEOUT' AND e.attempt = 1 AND e."timestamp" > t.running_time`), 4)
}

// A checkpoint of an attempt that was ended stores nothing.
func TestCheckpointIsFenced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old, other := b.fired("p"), b.fired("q")
	if again := b.save(end(old, storage.Retry)).Next; again == nil || again.TaskID != old.TaskID {
		t.Fatalf("the task does not run again: %+v", again)
	}
	if _, err := b.SaveCheckpoint(end(old, "", events("late"))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a late checkpoint: %v", err)
	}
	b.checkpoint(end(other, "", events("a")))
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#2")
	b.is("q", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")

	// A checkpoint with a wrong last event stores nothing.
	other.LastEventID = 5
	if _, err := b.SaveCheckpoint(end(other, "", events("b"))); err == nil || errors.Is(err, process.ErrFenced) {
		t.Errorf("a checkpoint after event 5: %v", err)
	}
	b.is("q", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
}

// A checkpoint whose connection breaks is stored once.
func TestCheckpointWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	c := newCutBench(t)
	for id, moment := range map[string]cut{"before": beforeCommit, "after": afterCommit} {
		in, err := c.front.PrepareInit(newInit(id))
		claim := c.saveThroughProxy(end(must(t, in, err).Claim, storage.Finished, timer(0))).Next
		made := c.proxy.next(moment)
		saved, err := c.front.SaveCheckpoint(end(claim, "", events("a")))
		equal(t, "time unknown", must(t, saved, err).Now.IsZero(), moment == afterCommit)
		<-made
		c.is(id, "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
	}
	equal(t, "adopted", len(c.taken), 2) // the engine finds that it already runs these attempts
}

// A checkpoint is retried until the server stores it, like a result.
func TestCheckpointSurvivesFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.faults()
	c := b.fired("p")
	b.exec("INSERT INTO public.fault VALUES ('53100')")
	saved := later(func() (storage.Checkpointed, error) { return b.SaveCheckpoint(end(c, "", events("a"))) })
	b.until("the checkpoint is retried", func() bool {
		return ask[int](b, "SELECT last_value::int FROM public.tries") > 2
	})
	b.exec("DELETE FROM public.fault")
	_, err := saved()
	must(t, 0, err)
	b.is("p", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
}

// The attempt should end if its process is suspended or cancelled, or if another task waits.
func TestCheckpointYields(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for id, change := range map[string]func(id string){
		"call": func(id string) { b.call(id) }, "suspended": b.suspend,
		"cancelled": func(id string) { b.cancel(id) },
	} {
		c := b.fired(id)
		equal(t, "before", b.checkpoint(end(c, "", events("a"))).Yield, false)
		change(id)
		c.LastEventID++
		equal(t, id, b.checkpoint(end(c, "", events("b"))).Yield, true)
	}
}

// If a request for a checkpoint is repeated before the first request is stored, both requests get
// the same outcome. They are stored by two flushes, because one flush with both would fail.
func TestRepeatedCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	s := open(t, b.dsn, storage.Config{Lanes: 1, Registerer: registry}).WaitForLocks()
	b.process("first")
	c := b.fired("p")
	release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
	first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first", withoutSlot)) })
	waits := b.waits(1)
	var copies []func() (storage.Checkpointed, error)
	for n := range 2 { // both wait, because the lane is busy
		copies = append(copies, later(func() (storage.Checkpointed, error) {
			return s.SaveCheckpoint(end(c, "", events("a")))
		}))
		for s.Pending() < int64(n+2) && waits {
			waits = b.waits(1)
		}
	}
	release()
	_, _ = first() // the call may fail with Unavailable if the machine is slow
	repetitions := 0
	for _, wait := range copies {
		saved, err := wait()
		if must(t, saved, err).Now.IsZero() {
			repetitions++
		}
	}
	equal(t, "repetitions", repetitions, 1)
	equal(t, "splits", counter(t, registry, "progressor_flush_splits_total"), 0)
	b.is("p", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
}
