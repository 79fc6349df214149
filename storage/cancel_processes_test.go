package storage_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// cancelTask claims the CANCEL task of a process. The task must wait for a slot.
func (b *bench) cancelTask(id string) *storage.Claim {
	b.t.Helper()
	claims := b.searchCalls(9)
	n := slices.IndexFunc(claims, func(c storage.Claim) bool { return c.ProcessID == id })
	if n < 0 || claims[n].TaskType != process.TaskCancel {
		b.t.Fatalf("the CANCEL task of %s is not found: %+v", id, claims)
	}
	return &claims[n]
}

// statusOf returns the status of an ended task.
func (b *bench) statusOf(id string, taskID int64) process.TaskStatus {
	b.t.Helper()
	answers, _, err := b.ReadAnswers(b.t.Context(), []storage.TaskRef{{Key: key(id), TaskID: taskID}})
	if len(must(b.t, answers, err)) != 1 {
		b.t.Fatalf("task %d of %s has not ended", taskID, id)
	}
	return answers[0].Status
}

// A CANCEL task runs before waiting calls. Its result is stored, and the calls are cancelled.
func TestCancelOfIdleProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour), named(time.Hour, "n"))
	waiting := b.call("p", withoutSlot)
	equal(t, "the state when the cancel is requested", b.cancel("p"), storage.CancelState{})
	later := b.call("p")
	c := b.cancelTask("p")
	equal(t, "the claim of the CANCEL task", []any{c.TaskType, c.Attempt, c.Status, string(c.Args)},
		"[CANCEL 1 RUNNING no more]")
	saved := b.save(end(c, storage.Cancelled, events("a"), func(c *storage.Completion) {
		c.AuxState, c.Response = []byte("state"), []byte("bye")
	}))
	equal(t, "saved", []any{saved.Status, saved.Next == nil, saved.Deferred, len(saved.Cancelled)},
		"[CANCELLED true false 4]")
	b.is("p", "CANCELLED e1: INIT FINISHED, TIMEOUT n CANCELLED!, TIMEOUT CANCELLED!, CALL CANCELLED!, CANCEL "+
		"FINISHED, CALL CANCELLED!")
	equal(t, "the calls before and after the cancel",
		[]any{b.statusOf("p", waiting.TaskID), b.statusOf("p", later.TaskID)}, "[CANCELLED CANCELLED]")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{
		must(t, row, err).Status, *row.PreviousStatus, *row.CancelReason, row.CancelRequestedTime.IsZero(),
		string(row.AuxState), *row.Attention,
	},
		"[CANCELLED RUNNING no more false state CANCELLED]")
	equal(t, "the deadline is NULL", ask[bool](b, "SELECT cancel_deadline IS NULL FROM processes"), true)
}

// After the running task, the CANCEL task runs next, before earlier calls and due timers.
func TestCancelGoesFirst(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"call", "init"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var c *storage.Claim
			if id == "init" {
				c = b.start("p")
			} else {
				b.process("p", named(time.Hour, "due"))
				c = b.claim("p")
				b.due("p")
			}
			b.call("p")
			equal(t, "the state when the cancel is requested", b.cancel("p"), storage.CancelState{Busy: true})
			saved := b.save(end(c, storage.Finished, timer(0)))
			equal(t, "the next task", []any{saved.Next.TaskType, string(saved.Next.Args), saved.Next.Status},
				"[CANCEL no more RUNNING]")
			equal(t, "claims of the searches", len(b.searchCalls(9))+len(b.searchTimers(9)), 0)
			b.save(end(saved.Next, storage.Cancelled))
			equal(t, "status", b.state("p")[:9], "CANCELLED")
		})
	}
}

// If the node that stores the result cannot run the CANCEL task, the task waits for a slot, and
// another node can claim it.
func TestCancelTaskOnAnotherNode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.call("p")
	b.cancel("p")
	equal(t, "deferred", b.save(end(c, storage.Finished, timer(0), withoutPromote)).Deferred, true)
	b.is("p", "RUNNING e0: INIT FINISHED, CALL FINISHED, CALL waits for process#0, CANCEL waits for place#0, TIMEOUT "+
		"waits for time#0")
	equal(t, "claims of timers", len(b.searchTimers(9)), 0)
	b.save(end(b.cancelTask("p"), storage.Removed))
	b.is("p", "none")
}

// A second cancel request changes neither the reason nor the grace period.
func TestCancelAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.cancelFor("p", time.Hour)
	deadline := ask[time.Time](b, "SELECT cancel_deadline FROM processes")
	state, err := b.CancelProcess(storage.Cancel{Key: key("p"), Reason: "another", Grace: 0})
	equal(t, "the state after the second request", must(t, state, err), storage.CancelState{})
	equal(t, "the reason and the deadline are those of the first request",
		ask[string](b, "SELECT cancel_reason || (cancel_deadline = $1) FROM processes", deadline), "no moretrue")
	equal(t, "tasks", ask[int](b, "SELECT count(*) FROM schedule WHERE task_type = 'CANCEL'"), 1)
	done, err := b.EndOverdueCancel(key("p"))
	equal(t, "ended within the grace period", must(t, done, err), false)
	b.save(end(b.cancelTask("p"), storage.Cancelled))
	equal(t, "a request after the end", outcomeOf(second(b.CancelProcess(storage.Cancel{Key: key("p")}))),
		"refused in CANCELLED")
	done, err = b.EndOverdueCancel(key("p"))
	equal(t, "ended again", must(t, done, err), false)
}

// Many concurrent cancel requests create only one CANCEL task.
func TestConcurrentCancels(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	other := open(t, b.dsn, storage.Config{})
	all(20, func(i int) {
		_, err := []*storage.Store{b.Store, other}[i%2].CancelProcess(storage.Cancel{Key: key("p"), Grace: time.Minute})
		if err != nil {
			t.Error(err)
		}
	})
	b.is("p", "RUNNING e0: INIT FINISHED, CANCEL waits for place#0")
}

// A process with a cancel request never goes to ERROR, whatever its earlier attempts and its CANCEL
// task return. Its CANCEL task runs before other tasks.
func TestCancelEnds(t *testing.T) {
	t.Parallel()
	retry := func(c *storage.Completion) { c.Outcome, c.RetryAfter = storage.Retry, time.Hour }
	for _, c := range []struct {
		name   string
		before bool // change applies to a call that runs when the cancel is requested, not to the CANCEL task
		change func(*storage.Completion)
		state  string
		next   process.TaskType
	}{
		{"the CANCEL task fails", false, func(c *storage.Completion) { c.Outcome = storage.Failed; broken("x")(c) },
			"CANCELLED e0: INIT FINISHED, CANCEL ERROR, CALL CANCELLED!", ""},
		{"the CANCEL task is retried", false, retry,
			"RUNNING e0: INIT FINISHED, CANCEL waits for time#1, CALL waits for process#0", ""},
		{"a call fails", true, func(c *storage.Completion) { c.Outcome = storage.Failed; broken("x")(c) },
			"CANCELLED e0: INIT FINISHED, CALL ERROR, CANCEL CANCELLED!, CALL CANCELLED!", ""},
		{"a call completes", true, func(c *storage.Completion) { c.Outcome = storage.Completed },
			"COMPLETED e0: INIT FINISHED, CALL FINISHED, CANCEL CANCELLED!, CALL CANCELLED!", ""},
		{"a call is rejected", true, func(c *storage.Completion) { c.Outcome = storage.Rejected },
			"RUNNING e0: INIT FINISHED, CALL FINISHED, CANCEL runs#1, CALL waits for process#0", process.TaskCancel},
		{"a call is released", true, func(c *storage.Completion) { c.Outcome = storage.Retry },
			"RUNNING e0: INIT FINISHED, CALL waits for process#1, CANCEL runs#1, CALL waits for process#0",
			process.TaskCancel},
		{"a call is retried", true, retry,
			"RUNNING e0: INIT FINISHED, CALL waits for time#1, CANCEL runs#1, CALL waits for process#0",
			process.TaskCancel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p")
			var claim *storage.Claim
			if c.before {
				claim = b.claim("p")
			}
			b.cancel("p")
			if !c.before {
				claim = b.cancelTask("p")
			}
			b.call("p")
			saved := b.save(end(claim, storage.Cancelled, c.change))
			b.is("p", c.state)
			if next := saved.Next; (next == nil) != (c.next == "") || next != nil && next.TaskType != c.next {
				t.Errorf("the next task is %+v", next)
			}
			row, err := b.GetProcess(t.Context(), key("p"))
			equal(t, "detail, corrupted_by",
				[]any{must(t, row, err).Detail == nil, row.CorruptedBy == nil}, "[true true]")
			b.due("p") // a retry of the CANCEL task runs before everything else
			if c.name == "the CANCEL task is retried" {
				claims := b.searchTimers(9)
				equal(t, "the second attempt", []any{claims[0].TaskType, claims[0].Attempt, string(claims[0].Args)},
					"[CANCEL 2 no more]")
			}
		})
	}
}

// If the INIT of a process with a cancel request fails, the process does not go to ERROR.
func TestCancelOfFailingInit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	b.cancel("p")
	equal(t, "status", b.save(end(c, storage.Failed, broken("x"))).Status, process.StatusCancelled)
	b.is("p", "CANCELLED e0: INIT ERROR, CANCEL CANCELLED!")
	d := b.start("q")
	b.cancel("q")
	b.save(end(d, storage.Rejected))
	b.is("q", "none")
}

// When the grace period is over, EndOverdueCancel ends the process: the running attempt is fenced,
// the CANCEL task fails, and all other tasks are cancelled.
func TestCancelAfterItsGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		make  func(b *bench) *storage.Claim
		state string
	}{
		{"the CANCEL task waits for a call", func(b *bench) *storage.Claim {
			b.process("p", timer(time.Hour))
			c := b.claim("p")
			b.cancelFor("p", 0)
			return c
		}, "CANCELLED e0: INIT FINISHED, TIMEOUT CANCELLED, CALL CANCELLED, CANCEL ERROR, CALL CANCELLED"},
		{"the CANCEL task waits for INIT", func(b *bench) *storage.Claim {
			c := b.start("p")
			b.cancelFor("p", 0)
			return c
		}, "CANCELLED e0: INIT CANCELLED, CANCEL ERROR, CALL CANCELLED"},
		{"the CANCEL task runs", func(b *bench) *storage.Claim {
			b.process("p")
			b.cancelFor("p", 0)
			return b.cancelTask("p")
		}, "CANCELLED e0: INIT FINISHED, CANCEL ERROR, CALL CANCELLED"},
		{"the CANCEL task waits for a slot", func(b *bench) *storage.Claim {
			b.process("p")
			b.cancelFor("p", 0)
			return nil
		}, "CANCELLED e0: INIT FINISHED, CANCEL ERROR, CALL CANCELLED"},
		{"the process is suspended", func(b *bench) *storage.Claim {
			b.process("p")
			b.cancelFor("p", 0)
			b.call("p")
			b.suspend("p")
			return nil
		}, "CANCELLED e0: INIT FINISHED, CANCEL ERROR, CALL CANCELLED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			claim := c.make(b)
			b.call("p")
			list, err := b.ListOverdueCancels(t.Context(), 10)
			equal(t, "overdue cancels", must(t, list, err), []process.Key{key("p")})
			ends := make([]bool, 10)
			all(len(ends), func(i int) {
				var err error
				if ends[i], err = b.EndOverdueCancel(key("p")); err != nil {
					t.Error(err)
				}
			})
			equal(t, "EndOverdueCancel has ended the process", slices.Contains(ends, true), true)
			b.is("p", c.state)
			equal(t, "the failure of the CANCEL task",
				ask[string](b, "SELECT failure ->> 'reason' FROM tasks WHERE task_type = 'CANCEL'"),
				process.ReasonGraceExpired)
			if claim != nil {
				if _, err := b.SaveResult(end(claim, storage.Finished, events("late"))); !errors.Is(err,
					process.ErrFenced) {
					t.Errorf("the late result: %v", err)
				}
			}
			list, err = b.ListOverdueCancels(t.Context(), 10)
			equal(t, "overdue cancels after the end", len(must(t, list, err)), 0)
		})
	}
}

// If a process is suspended and the grace period of its cancel is over, another cancel request ends
// it at once.
func TestCancelOfSuspendedAfterItsGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.cancelFor("p", 0)
	b.suspend("p")
	equal(t, "the state after the second request", b.cancel("p"), storage.CancelState{Ended: true})
	b.is("p", "CANCELLED e0: INIT FINISHED, CANCEL ERROR")
	equal(t, "the reason", ask[string](b, "SELECT cancel_reason FROM processes"), "no more")
}

// CancelGrace returns the rest of the grace period, or 0 if there is none.
func TestCancelGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	left := func() time.Duration {
		d, err := b.CancelGrace(t.Context(), key("p"))
		return must(t, d, err)
	}
	equal(t, "before the cancel", left(), time.Duration(0))
	b.cancelFor("p", time.Hour)
	if d := left(); d < 59*time.Minute || d > time.Hour {
		t.Errorf("%v are left", d)
	}
	b.exec("UPDATE processes SET cancel_deadline = now() - interval '1 minute'")
	equal(t, "after the grace period", left(), time.Duration(0))
	b.remove("p")
	list, err := b.ListOverdueCancels(t.Context(), 10)
	equal(t, "overdue cancels of a removed process", len(must(t, list, err)), 0)
}

// If a process is removed while a cancel is in progress, clients of the CANCEL task get CANCELLED.
func TestRemoveOfCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.cancel("p")
	c := b.cancelTask("p")
	b.remove("p")
	equal(t, "the CANCEL task", b.statusOf("p", c.TaskID), process.TaskStatusCancelled)
}
