package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func TestSaveFinishes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)
	saved := b.save(end(b.start("p"), storage.Finished, events("a"), func(c *storage.Completion) {
		c.Events = append(c.Events, storage.NewEvent{Timestamp: at, Metadata: []byte(`{"v": 1}`)})
		c.AuxState, c.Metadata, c.Response = []byte("state"), []byte(`{"a": 1}`), []byte("answer")
	}))
	equal(t, "Now is zero", saved.Now.IsZero(), false)
	saved.Now = time.Time{}
	equal(t, "saved", saved, storage.Saved{Status: process.StatusRunning, TimerDelay: -1})
	b.is("p", "RUNNING e2: INIT FINISHED")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{string(must(t, row, err).AuxState), string(row.Metadata), *row.PreviousStatus},
		`[state {"a": 1} INIT]`)
	equal(t, "the second event", ask[string](b,
		`SELECT (task_id = (SELECT task_id FROM tasks)) || ' ' || attempt || ' ' || metadata || ' ' ||
		("timestamp" AT TIME ZONE 'UTC') || ' ' || length(payload)
		FROM events WHERE event_id = 2`), `true 1 {"v": 1} 2020-01-02 03:04:05.000006 0`)

	// A result does not change fields that it does not set. It writes fields that it sets, even an
	// empty state.
	b.save(end(b.claim("p"), storage.Finished))
	c := b.claim("p")
	equal(t, "unchanged", []any{string(c.AuxState), string(c.Metadata), c.LastEventID}, `[state {"a": 1} 2]`)
	b.save(end(c, storage.Finished, events("c"), func(c *storage.Completion) {
		c.AuxState, c.Metadata = []byte{}, []byte(`{}`)
	}))
	c = b.claim("p")
	equal(t, "replaced", []any{len(c.AuxState), c.AuxState != nil, string(c.Metadata), c.LastEventID}, `[0 true {} 3]`)
}

func TestSaveFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour), named(time.Hour, "n"))
	c := b.claim("p")
	waiting := b.call("p", keyed("k", "x"))
	saved := b.save(end(c, storage.Failed, broken("out of stock"), events("lost"), timer(0)))
	equal(t, "status, no next task, not deferred, no timer, number of cancelled tasks",
		[]any{saved.Status, saved.Next == nil, saved.Deferred, saved.TimerDelay, len(saved.Cancelled)},
		"[ERROR true false -1ns 3]")
	b.is("p", "ERROR e0: INIT FINISHED, TIMEOUT n CANCELLED!, TIMEOUT CANCELLED!, CALL ERROR, CALL CANCELLED!")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{
		*must(t, row, err).Detail, *row.CorruptedBy, *row.Attention, row.AttentionTime.Equal(row.StatusChangedTime),
	},
		[]any{"out of stock", c.TaskID, "ERROR", true})
	equal(t, "cancelled_by of the cancelled tasks",
		ask[int64](b, "SELECT DISTINCT cancelled_by FROM tasks WHERE status = 'CANCELLED'"), c.TaskID)
	answers, _, err := b.ReadAnswers(t.Context(), []storage.TaskRef{
		{Key: key("p"), TaskID: waiting.TaskID}, {Key: key("p"), TaskID: c.TaskID},
	})
	equal(t, "the answers", len(must(t, answers, err)), 2)
	for _, a := range answers {
		equal(t, "an answer", a.Status, map[int32]process.TaskStatus{0: "CANCELLED", 1: "ERROR"}[a.Ord])
	}

	// After a failed repair, the process keeps the original detail and corrupted_by.
	r, err := b.PrepareRepair(call("p"))
	saved = b.save(end(must(t, r, err).Claim, storage.Failed, broken("worse")))
	row, err = b.GetProcess(t.Context(), key("p"))
	equal(t, "after a failed repair", []any{saved.Status, *must(t, row, err).Detail, *row.CorruptedBy}, []any{
		"ERROR", "out of stock", c.TaskID,
	})
}

func TestSaveOfInitThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	b.call("p")
	b.save(end(c, storage.Failed, broken("x")))
	b.is("p", "ERROR e0: INIT ERROR, CALL CANCELLED!")
}

func TestSaveRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*storage.Completion)
		state  string // state of the process and its tasks after the result
		next   bool   // whether this node runs another task of the process at once
	}{
		{"at once, on this node", func(*storage.Completion) {},
			"RUNNING e0: INIT FINISHED, NOTIFY runs#2, CALL waits for process#0", true},
		{"at once, on any node", withoutPromote,
			"RUNNING e0: INIT FINISHED, NOTIFY waits for place#1, CALL waits for process#0",
			false},
		{"released", func(c *storage.Completion) { c.Uncounted, c.Promote = true, false },
			"RUNNING e0: INIT FINISHED, NOTIFY waits for place#0, CALL waits for process#0", false},
		{"after a while", func(c *storage.Completion) { c.RetryAfter = time.Hour },
			"RUNNING e0: INIT FINISHED, NOTIFY waits for time#1, CALL runs#1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p")
			claim := b.claim("p", notify)
			b.call("p")
			saved := b.save(end(claim, storage.Retry, broken("x"), events("lost"), timer(0), named(0, "n"), c.change))
			b.is("p", c.state)
			equal(t, "continues on this node", saved.Next != nil, c.next)
			equal(t, "deferred", saved.Deferred, !c.next)
			if _, err := b.SaveResult(end(claim, storage.Finished)); !errors.Is(err, process.ErrFenced) {
				t.Errorf("a second result of the attempt: %v", err)
			}
			b.is("p", c.state)
		})
	}
}

// A task that is retried after an interval runs again when the interval has passed, with the same
// args, context and history range.
func TestRetryComesWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p", notify, func(c *storage.Call) { c.HistoryRange, c.Context = `{"limit": 2}`, []byte("ctx") })
	b.save(end(c, storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }, broken("x")))
	equal(t, "claims before the interval has passed", len(b.searchTimers(9)), 0)
	b.due("p")
	claims := b.searchTimers(9)
	equal(t, "claims", len(claims), 1)
	r := claims[0]
	equal(t, "the second attempt",
		[]any{
			r.TaskID, r.TaskType, r.Attempt, r.RetryInterval, r.HistoryRange, string(r.Context), string(r.Args),
			r.FencingToken > c.FencingToken,
		},
		[]any{c.TaskID, "NOTIFY", 2, time.Hour, `{"limit": 2}`, "ctx", "args", true})
	b.save(end(&r, storage.Finished, events("a")))
	b.is("p", "RUNNING e1: INIT FINISHED, NOTIFY FINISHED")
	equal(t, "retry_interval of the ended task",
		ask[string](b, "SELECT retry_interval::text FROM tasks WHERE task_type = 'NOTIFY'"), "01:00:00")
}

// A rejection stores nothing but its reason.
func TestSaveRejects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	c := b.claim("p")
	saved := b.save(end(c, storage.Rejected, events("lost"), timer(0), func(c *storage.Completion) {
		c.Rejection, c.AuxState = []byte(`{"reason": "no"}`), []byte("lost")
	}))
	equal(t, "status", saved.Status, process.StatusRunning)
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL FINISHED")
	answers, _, err := b.ReadAnswers(t.Context(), []storage.TaskRef{{Key: key("p"), TaskID: c.TaskID}})
	equal(t, "the answer", string(must(t, answers, err)[0].Rejection), `{"reason": "no"}`)
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the state is not stored", must(t, row, err).AuxState == nil, true)
	// A rejected repair does not change the process.
	b.breakProcess("q")
	r, err := b.PrepareRepair(call("q"))
	saved = b.save(end(must(t, r, err).Claim, storage.Rejected, func(c *storage.Completion) {
		c.Rejection = []byte(`{}`)
	}))
	equal(t, "status after a rejected repair", saved.Status, process.StatusError)
}

// If an INIT task is rejected, its process is removed, and its idempotency key can be used again.
// Calls that wait are cancelled.
func TestSaveRejectsInit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p", keyedInit("k", "x"))
	waiting := b.call("p", keyed("kc", "x"))
	saved := b.save(end(c, storage.Rejected, func(c *storage.Completion) { c.Rejection = []byte(`{"reason": "no"}`) }))
	equal(t, "saved", []any{saved.Next == nil, saved.TimerDelay < 0}, "[true true]")
	b.is("p", "none")
	equal(t, "tasks whose keys are kept",
		ask[string](b, "SELECT string_agg(task_id::text, ',') FROM requests"), waiting.TaskID)
	answers, _, err := b.ReadAnswers(t.Context(), []storage.TaskRef{
		{Key: key("p"), TaskID: c.TaskID}, {Key: key("p"), TaskID: waiting.TaskID},
	})
	equal(t, "answers", len(must(t, answers, err)), 2)
	for _, a := range answers {
		if a.Ord == 0 {
			equal(t, "the answer of the start", []any{a.Status, string(a.Rejection)}, `[FINISHED {"reason": "no"}]`)
		} else {
			equal(t, "the answer of the call", a.Status, process.TaskStatusCancelled)
		}
	}
	equal(t, "a start with the same key and other args", b.tryInit("p", keyedInit("k", "y")).Outcome, storage.Captured)
}

func TestSaveCompletes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	c := b.claim("p")
	b.call("p")
	saved := b.save(end(c, storage.Completed, events("last"), func(c *storage.Completion) {
		c.Response = []byte("bye")
	}))
	equal(t, "saved", []any{saved.Status, saved.Next == nil, saved.Deferred, len(saved.Cancelled)},
		"[COMPLETED true false 2]")
	b.is("p", "COMPLETED e1: INIT FINISHED, TIMEOUT CANCELLED!, CALL FINISHED, CALL CANCELLED!")
}

func TestSaveRemoves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", events("a", "b"), timer(time.Hour))
	c := b.claim("p", keyed("k", "x"))
	b.save(end(c, storage.Removed, func(c *storage.Completion) { c.Response = []byte("bye") }))
	b.is("p", "none")
	equal(t, "rows left", ask[int](b,
		"SELECT (SELECT count(*) FROM processes) + (SELECT count(*) FROM events) + (SELECT count(*) FROM tasks)"), 0)
	again := b.call("p", keyed("k", "x"))
	answers, _, err := b.ReadAnswers(t.Context(), []storage.TaskRef{{Key: key("p"), TaskID: again.TaskID}})
	equal(t, "the answer", []any{again.Outcome, must(t, answers, err)[0].Status, string(answers[0].Response)},
		"[replayed FINISHED bye]")
	if _, err := b.SaveResult(end(c, storage.Removed)); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a second removal: %v", err)
	}
}

// SaveResult derives the new status of a process from the status in its locked row, because an
// operator may have suspended the process while the attempt ran.
func TestSaveInSuspendedProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("init")
	d := b.start("failing")
	b.call("init")
	b.suspend("init")
	b.suspend("failing")
	saved := b.save(end(c, storage.Finished, events("a"), timer(0)))
	equal(t, "finished", []any{saved.Status, saved.Next == nil, saved.Deferred}, "[SUSPENDED true false]")
	b.is("init", "SUSPENDED e1: INIT FINISHED, CALL waits for operator#0, TIMEOUT waits for operator#0")
	row, err := b.GetProcess(t.Context(), key("init"))
	equal(t, "the status after a resume", *must(t, row, err).PreviousStatus, process.StatusRunning)
	equal(t, "failed", b.save(end(d, storage.Failed, broken("x"))).Status, process.StatusError)
	b.is("failing", "ERROR e0: INIT ERROR")
}

// A result whose token is no longer in running stores nothing: no event, timer, retry or
// cancellation. This is true even if a valid result of the same process is in the same flush.
func TestSaveUnderOldTokenStoresNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour), named(time.Hour, "n"))
	late := b.claim("p")
	b.save(end(late, storage.Retry, withoutPromote)) // like the collector after the lease has expired
	claims := b.searchCalls(1)
	want := "RUNNING e0: INIT FINISHED, TIMEOUT n waits for time#0, TIMEOUT waits for time#0, CALL runs#2"
	for _, c := range []*storage.Completion{
		end(late, storage.Finished, events("a"), timer(0), named(0, "m"), func(c *storage.Completion) {
			c.UnsetNames = []string{"n"}
		}),
		end(late, storage.Finished, func(c *storage.Completion) { c.UnsetTimers = true }),
		end(late, storage.Failed, broken("x")), end(late, storage.Completed), end(late, storage.Retry),
		end(late, storage.Rejected), end(late, storage.Removed),
	} {
		if _, err := b.SaveResult(c); !errors.Is(err, process.ErrFenced) {
			t.Errorf("%s with an old token: %v", c.Outcome, err)
		}
		b.is("p", want)
	}
	outcomes := make([]error, 40)
	all(len(outcomes), func(i int) {
		c := end(late, storage.Failed, events("late"), broken("late"))
		if i == len(outcomes)/2 {
			c = end(&claims[0], storage.Finished, events("a", "b"))
		}
		_, outcomes[i] = b.SaveResult(c)
	})
	for i, err := range outcomes {
		if (i == len(outcomes)/2) != (err == nil) {
			t.Errorf("item %d: %v", i, err)
		}
	}
	b.is("p", "RUNNING e2: INIT FINISHED, TIMEOUT n waits for time#0, TIMEOUT waits for time#0, CALL FINISHED")
}

// The collector may retry an attempt while the node of the attempt stores its result. If both are
// in one flush, exactly one of them is stored.
func TestOneFlushStoresOneEndOfAnAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	b.process("first")
	for n, outcomes := range [][2]storage.Outcome{
		{storage.Finished, storage.Retry}, {storage.Retry, storage.Finished},
		{storage.Retry, storage.Completed}, {storage.Retry, storage.Removed}, {storage.Retry, storage.Retry},
	} {
		id := fmt.Sprint("p", n)
		b.process(id)
		claim := b.claim(id)
		release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
		first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first", withoutSlot)) })
		waits := b.waits(1)
		var ends []func() (storage.Saved, error) // they share the next flush, because the lane is busy
		for _, outcome := range outcomes {
			ends = append(ends, later(func() (storage.Saved, error) {
				return s.SaveResult(end(claim, outcome, withoutPromote))
			}))
			for s.Pending() < int64(len(ends)+1) && waits {
				waits = b.waits(1)
			}
		}
		release()
		_, _ = first() // may be unavailable on a slow machine
		stored, fenced := 0, 0
		for _, wait := range ends {
			switch _, err := wait(); {
			case err == nil:
				stored++
			case errors.Is(err, process.ErrFenced):
				fenced++
			default:
				t.Errorf("%v: %v", outcomes, err)
			}
		}
		equal(t, fmt.Sprintf("stored and fenced of %v", outcomes), []int{stored, fenced}, "[1 1]")
		equal(t, fmt.Sprintf("the task has at most one row after %v", outcomes), ask[int](b, `SELECT count(*) FROM (
			SELECT task_id FROM tasks UNION ALL SELECT task_id FROM schedule UNION ALL SELECT task_id FROM running) AS x
			WHERE task_id = $1`, claim.TaskID) <= 1, true)
	}
}

// A cancel or a removal may end an attempt in the same flush in which its result arrives. The
// messages of the result are sent only if the result is stored. The process has a cancel request,
// so the general statement stores the result.
func TestResultWithTheEndOfItsAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	b.process("first")
	for id, endOf := range map[string]func(id string) (bool, error){
		"cancelled": func(id string) (bool, error) { return s.EndOverdueCancel(key(id)) },
		"removed":   func(id string) (bool, error) { return true, s.RemoveProcess(t.Context(), key(id)) },
	} {
		b.process(id)
		claim := b.claim(id)
		b.cancelFor(id, 0)
		release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
		first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first", withoutSlot)) })
		waits := b.waits(1)
		save := later(func() (storage.Saved, error) {
			return s.SaveResult(end(claim, storage.Finished, withMessages(notifyOf("first", "x"))))
		})
		for s.Pending() < 2 && waits {
			waits = b.waits(1)
		}
		ended := later(func() (bool, error) { return endOf(id) })
		for s.Pending() < 3 && waits {
			waits = b.waits(1)
		}
		release()
		_, _ = first() // may be unavailable on a slow machine
		_, err := save()
		if _, err := ended(); err != nil {
			t.Error(err)
		}
		sent := ask[int](b, "SELECT count(*) FROM messages WHERE sender_process_id = $1", id)
		equal(t, fmt.Sprintf("%s: the message is sent (the result: %v)", id, err), sent == 1, err == nil)
	}
}

// After the collector has released an attempt, its task waits. A cancel ends this task in the same
// flush in which the late result of the attempt arrives. The result is not stored, and its message
// is not sent.
func TestFencedResultWithTheEndOfItsTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	late := b.claim("p")
	b.save(end(late, storage.Retry, withoutPromote))
	b.cancelFor("p", 0)
	err := b.SaveAndCancel(end(late, storage.Finished, withMessages(notifyOf("q", "no"))), true)
	equal(t, "the late result", errors.Is(err, process.ErrFenced), true)
	equal(t, "tasks that the cancel has ended", ask[int](b, "SELECT count(*) FROM tasks WHERE fencing_token = $1",
		late.FencingToken), 1)
	equal(t, "messages", b.undelivered(), 0)
}

// The messages of a result are sent if that result is stored, and not if another result in the same
// flush is stored instead.
func TestFencedResultWithAnother(t *testing.T) {
	t.Parallel()
	for name, general := range map[string]bool{"fast path": false, "general statement": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if general {
				b.WithGeneralStatements()
			}
			finishes := func(*storage.Completion) {}
			completes := func(c *storage.Completion) { c.Outcome = storage.Completed }
			var ends []*storage.Completion
			frees := func(c *storage.Completion) {
				c.Outcome, c.EffectsOnEnd = storage.Completed, []storage.Effect{storage.FreeKeys{}}
			}
			for n, change := range []func(*storage.Completion){finishes, timer(0), completes, frees} {
				stored, fenced := fmt.Sprint("stored", n), fmt.Sprint("fenced", n)
				b.process(stored)
				b.process(fenced)
				late := b.claim(fenced)
				b.save(end(late, storage.Finished))
				ends = append(ends, end(b.claim(stored), storage.Finished, change, withMessages(notifyOf(stored, "x"))),
					end(late, storage.Finished, change, withMessages(notifyOf(fenced, "x"))))
			}
			for n, err := range b.SaveTogether(ends...) {
				equal(t, fmt.Sprintf("result %d is fenced", n), errors.Is(err, process.ErrFenced), n%2 == 1)
			}
			equal(t, "targets of messages", ask[string](b, "SELECT string_agg(process_id, ' ' ORDER BY process_id) "+
				"FROM messages"), "stored0 stored1 stored2 stored3")
		})
	}
}

// Both the collector and the node of an attempt may store that it failed. If the second failure
// arrives after a repair, it has no effect.
func TestLateDuplicateFailureCancelsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	c := b.claim("p")
	b.save(end(c, storage.Failed, broken("x")))
	r, err := b.SimpleRepair(call("p"))
	equal(t, "the repair", must(t, r, err).Outcome, storage.Repaired)
	if _, err := b.SaveResult(end(c, storage.Failed, broken("x"))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the late failure: %v", err)
	}
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT CANCELLED!, CALL ERROR, REPAIR FINISHED, TIMEOUT waits for time#0")
}

// A scan that claims a due timer may not see a call that arrives at the same time, so the call
// waits for a slot. When the attempt of the timer is released, the timer waits for the slot,
// because it is the older task, and the call waits for the process.
func TestReleasedTimerWaitsForTheSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	b.due("p")
	claims := b.searchTimers(1)
	b.call("p")
	b.exec("UPDATE schedule SET waits_for = 'place'")
	b.save(end(&claims[0], storage.Retry, withoutPromote))
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT waits for place#1, CALL waits for process#0")
}
