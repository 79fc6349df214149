package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func TestTimers(t *testing.T) {
	t.Parallel()
	unset := func(c *storage.Completion) { c.UnsetTimers = true }
	remove := func(c *storage.Completion) { c.Timer = &storage.SetTimer{After: time.Hour, Remove: true} }
	without := func(names ...string) func(*storage.Completion) {
		return func(c *storage.Completion) { c.UnsetNames = names }
	}
	const before = "RUNNING e0: INIT FINISHED, TIMEOUT a waits for time#0, TIMEOUT b waits for time#0, TIMEOUT waits " +
		"for time#0, CALL FINISHED"
	for _, c := range []struct {
		name   string
		change []func(*storage.Completion)
		state  string
	}{
		{"none", nil, before},
		{"set", []func(*storage.Completion){timer(time.Hour)},
			"RUNNING e0: INIT FINISHED, TIMEOUT a waits for time#0, TIMEOUT b waits for time#0, TIMEOUT CANCELLED, " +
				"CALL FINISHED, TIMEOUT waits for time#0"},
		{"set a removal", []func(*storage.Completion){remove},
			"RUNNING e0: INIT FINISHED, TIMEOUT a waits for time#0, TIMEOUT b waits for time#0, TIMEOUT CANCELLED, " +
				"CALL FINISHED, REMOVE waits for time#0"},
		{"unset all", []func(*storage.Completion){unset},
			"RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED, TIMEOUT b CANCELLED, TIMEOUT CANCELLED, CALL FINISHED"},
		{"unset by name", []func(*storage.Completion){without("a", "unknown")},
			"RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED, TIMEOUT b waits for time#0, TIMEOUT waits for time#0, " +
				"CALL FINISHED"},
		{"set by name", []func(*storage.Completion){named(time.Hour, "a", "c", "c")},
			"RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED, TIMEOUT b waits for time#0, TIMEOUT waits for time#0, " +
				"CALL FINISHED, TIMEOUT a waits for time#0, TIMEOUT c waits for time#0"},
		{"set, set and unset by name",
			[]func(*storage.Completion){timer(time.Hour), named(time.Hour, "a"), without("b")},
			"RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED, TIMEOUT b CANCELLED, TIMEOUT CANCELLED, CALL FINISHED, " +
				"TIMEOUT a waits for time#0, TIMEOUT waits for time#0"},
		{"unset all and set by name", []func(*storage.Completion){unset, named(time.Hour, "a")},
			"RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED, TIMEOUT b CANCELLED, TIMEOUT CANCELLED, CALL FINISHED, " +
				"TIMEOUT a waits for time#0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p", timer(time.Hour), named(time.Hour, "a", "b"))
			saved := b.save(end(b.claim("p"), storage.Finished, c.change...))
			b.is("p", c.state)
			equal(t, "continues", []any{saved.Next == nil, saved.Deferred}, "[true false]")
		})
	}
}

func TestTimerDelayAndContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p", func(in *storage.Init) { in.Context, in.Priority = []byte("ctx"), 5 })
	saved := b.save(end(c, storage.Finished, timer(time.Hour), named(0, "n"), withoutPromote))
	if saved.TimerDelay != time.Hour || !saved.Deferred {
		t.Errorf("saved %+v", saved)
	}
	equal(t, "the timers", ask[string](b,
		`SELECT string_agg(timer_name || convert_from(context, 'UTF8') || priority, ' ' ORDER BY timer_name)
			FROM schedule`), "ctx5 nctx5")
	timers, err := b.GetTimers(t.Context(), key("p"))
	equal(t, "the soonest", *must(t, timers, err)[0].TimerName, "n")
	at := time.Now().Add(2 * time.Hour)
	saved = b.save(end(b.claim("p"), storage.Finished, func(c *storage.Completion) {
		c.Timer = &storage.SetTimer{At: at}
	}))
	if saved.TimerDelay < time.Hour || saved.TimerDelay > 2*time.Hour+time.Minute {
		t.Errorf("a timer at %v is due after %v", at, saved.TimerDelay)
	}
}

func TestZeroTimerRunsNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	saved := b.save(end(b.start("p", func(in *storage.Init) { in.Context = []byte("ctx") }), storage.Finished,
		events("a"), timer(0)))
	b.is("p", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
	n := saved.Next
	equal(t, "the next task", []any{
		n.TaskType, n.Attempt, n.TimerName, string(n.Context), n.Status, n.RunningTime.IsZero(),
		n.ScheduledTime.IsZero(),
	}, "[TIMEOUT 1  ctx RUNNING false false]")
	n.LastEventID = 1
	for i := range 3 {
		saved = b.save(end(saved.Next, storage.Finished, events("x"), timer(0), func(c *storage.Completion) {
			c.LastEventID = int64(i) + 1
		}))
	}
	// A task that may not continue here waits in schedule, and a poller finds it.
	saved = b.save(end(saved.Next, storage.Finished, timer(0), withoutPromote))
	equal(t, "deferred", []any{saved.Deferred, saved.Next == nil}, "[true true]")
	b.is("p", "RUNNING e4: INIT FINISHED, TIMEOUT FINISHED, TIMEOUT FINISHED, TIMEOUT FINISHED, TIMEOUT FINISHED, "+
		"TIMEOUT waits for time#0")
	equal(t, "found", ids(b.searchTimers(9)), "[p]")
}

func TestZeroTimerWaitsBehindCall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	b.call("p")
	saved := b.save(end(c, storage.Finished, timer(0)))
	equal(t, "the call runs first", saved.Next.TaskType, process.TaskCall)
	b.is("p", "RUNNING e0: INIT FINISHED, CALL runs#1, TIMEOUT waits for time#0")
	trace, err := b.TraceTasks(t.Context(), key("p"), 0, 10)
	equal(t, "seen as", must(t, trace, err).Tasks[2].Status, process.TaskStatusBlocked)
	equal(t, "the timer is skipped", len(b.searchTimers(9)), 0)
	saved = b.save(end(saved.Next, storage.Finished))
	equal(t, "then the timer", saved.Next.TaskType, process.TaskTimeout)
}

// A timer that came due during a call runs next, unless the result of the call has an action for
// it.
func TestBlockedTimerRunsNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"kept", "set", "unset", "named"} {
		b.process(id, timer(time.Hour))
	}
	kept, set, unset, other := b.claim("kept"), b.claim("set"), b.claim("unset"), b.claim("named")
	b.due("kept")
	b.due("set")
	b.due("unset")
	b.due("named")
	equal(t, "timers that a scan claims", len(b.searchTimers(9)), 0)
	equal(t, "kept", b.save(end(kept, storage.Finished)).Next.TaskType, process.TaskTimeout)
	b.is("kept", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1, CALL FINISHED")
	equal(t, "replaced", b.save(end(set, storage.Finished, timer(time.Hour))).Next == nil, true)
	equal(t, "dropped", b.save(end(unset, storage.Finished, func(c *storage.Completion) {
		c.UnsetTimers = true
	})).Next == nil, true)
	// If two timers are due, the timer that has been due longest runs first.
	next := b.save(end(other, storage.Finished, named(0, "n"))).Next
	equal(t, "the longest due", next.TimerName, "")
	equal(t, "then the other", b.save(end(next, storage.Finished)).Next.TimerName, "n")
}

// A TIMEOUT in backoff is still the pending timer of its name.
func TestTimerInBackOffIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	saved := b.save(end(b.start("p"), storage.Finished, timer(0)))
	b.save(end(saved.Next, storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }, broken("x")))
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT waits for time#1")
	b.save(end(b.claim("p"), storage.Finished, timer(time.Hour)))
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT CANCELLED, CALL FINISHED, TIMEOUT waits for time#0")
	b.save(end(b.claim("p"), storage.Finished, named(0, "n"), withoutPromote))
	c := b.searchTimers(1)
	b.save(end(&c[0], storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }, broken("x")))
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT CANCELLED, CALL FINISHED, TIMEOUT waits for time#0, CALL FINISHED, "+
		"TIMEOUT n waits for time#1")
}

// A timer that waits for the process or for a slot, like a call, does not run if a result replaces
// or unsets it.
func TestTimerThatWaitsForASlotIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, waits := range []string{"process", "place"} {
		for action, change := range map[string]func(*storage.Completion){
			"set": timer(time.Hour), "unset": func(c *storage.Completion) { c.UnsetTimers = true },
		} {
			id := waits + action
			left := map[string]string{"set": ", TIMEOUT waits for time#0"}[action]
			b.process(id, timer(time.Hour))
			c := b.claim(id)
			b.exec("UPDATE schedule SET waits_for = $2::text::waits_for, scheduled_time = now() WHERE process_id = $1",
				id, waits)
			equal(t, id, b.save(end(c, storage.Finished, change)).Next == nil, true)
			b.is(id, "RUNNING e0: INIT FINISHED, TIMEOUT CANCELLED, CALL FINISHED"+left)

			b.process(id+"+", timer(time.Hour))
			c = b.claim(id + "+")
			b.exec("UPDATE schedule SET waits_for = $2::text::waits_for, scheduled_time = now() WHERE process_id = $1",
				id+"+", waits)
			b.call(id + "+")
			b.save(end(c, storage.Finished, change, withoutPromote))
			b.is(id+"+", "RUNNING e0: INIT FINISHED, TIMEOUT CANCELLED, CALL FINISHED, CALL waits for place#0"+left)
		}
	}
}

// A result that exceeds the maximum number of timers is rejected and not stored. Other results of
// its flush are stored.
func TestTooManyTimers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	names := func(from, to int) (list []string) {
		for n := from; n < to; n++ {
			list = append(list, fmt.Sprint(n))
		}
		return list
	}
	b.process("p", named(time.Hour, names(0, process.MaxTimers-1)...))
	b.process("q")
	c, other := b.claim("p"), b.claim("q")
	timers := func() int { return ask[int](b, "SELECT count(*) FROM schedule WHERE process_id = 'p'") }
	all(2, func(i int) {
		if i == 0 {
			b.save(end(other, storage.Finished, named(time.Hour, "n")))
			return
		}
		_, err := b.SaveResult(end(c, storage.Finished, events("a"), timer(time.Hour), named(time.Hour, "new")))
		var invalid *process.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "result.named_timers" ||
			invalid.Message != "at most 100 timers may be pending (got 101)" {
			t.Errorf("one timer too many: %v", err)
		}
	})
	equal(t, "nothing is stored", []any{timers(), ask[int](b, "SELECT count(*) FROM events")}, []any{
		process.MaxTimers - 1, 0,
	})
	b.is("q", "RUNNING e0: INIT FINISHED, CALL FINISHED, TIMEOUT n waits for time#0")
	b.save(end(c, storage.Finished, timer(time.Hour), named(2*time.Hour, "0", "1")))
	equal(t, "the maximum number of timers", timers(), process.MaxTimers)
	b.save(end(b.claim("p"), storage.Finished, named(time.Hour, "new"), func(c *storage.Completion) {
		c.UnsetNames = []string{"5"}
	}))
	equal(t, "one timer replaces another", timers(), process.MaxTimers)
}
