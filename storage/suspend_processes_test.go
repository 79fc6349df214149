package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func (b *bench) suspend(id string) {
	b.t.Helper()
	must(b.t, 0, b.SuspendProcess(key(id), "a reason"))
}

func (b *bench) resume(id string) {
	b.t.Helper()
	must(b.t, 0, b.ResumeProcess(key(id)))
}

func (b *bench) cancel(id string) storage.CancelState {
	b.t.Helper()
	return b.cancelFor(id, time.Minute)
}

func (b *bench) cancelFor(id string, grace time.Duration) storage.CancelState {
	b.t.Helper()
	state, err := b.CancelProcess(storage.Cancel{Key: key(id), Reason: "no more", Grace: grace})
	return must(b.t, state, err)
}

// outcomeOf returns the result of a command, or "" if it succeeded.
func outcomeOf(err error) string {
	var status *process.WrongStatusError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &status):
		return "refused in " + string(status.Status)
	case errors.Is(err, process.ErrProcessNotFound):
		return "not found"
	}
	return err.Error()
}

// statuses creates one process in each status and situation, as listed in TestCommands.
func (b *bench) statuses() {
	b.t.Helper()
	b.start("init runs")
	b.call("init runs")
	b.tryInit("init waits", func(in *storage.Init) { in.Capture = false })
	b.call("init waits")
	b.tryInit("init is delayed", func(in *storage.Init) { in.StartTime = time.Now().Add(time.Hour) })
	b.process("idle", timer(time.Hour))
	b.process("busy", timer(time.Hour))
	b.claim("busy")
	b.call("busy")
	b.process("placed", timer(time.Hour))
	b.call("placed", withoutSlot)
	b.call("placed")
	b.process("backing off")
	b.save(end(b.claim("backing off", notify), storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }))
	b.breakByTimer("error")
	b.breakByTimer("repair runs")
	b.repair("repair runs")
	b.breakByTimer("repair waits")
	b.repair("repair waits", withoutSlot)
	for _, id := range []string{"suspended", "suspended busy", "suspended cancel"} {
		b.process(id, timer(time.Hour))
	}
	b.claim("suspended busy")
	b.call("suspended busy")
	b.cancel("suspended cancel")
	b.start("suspended init")
	b.call("suspended init")
	for _, id := range []string{"suspended", "suspended busy", "suspended init", "suspended cancel"} {
		b.suspend(id)
	}
	b.process("completed")
	b.save(end(b.claim("completed"), storage.Completed))
	b.breakProcess("cancelled")
	b.cancel("cancelled")
	b.start("cancel requested init")
	b.cancel("cancel requested init")
	b.process("cancel requested")
	b.cancel("cancel requested")
	b.process("cancel requested busy")
	b.claim("cancel requested busy")
	b.cancel("cancel requested busy")
}

// TestCommands checks the effect of each command in each status.
func TestCommands(t *testing.T) {
	t.Parallel()
	const error3 = "TIMEOUT a CANCELLED!, TIMEOUT b CANCELLED!, TIMEOUT ERROR"
	for _, c := range []struct{ id, before, suspend, resume, cancel string }{
		{"init runs", "INIT e0: INIT runs#1, CALL waits for process#0",
			"SUSPENDED e0: INIT runs#1, CALL waits for operator#0", "refused in INIT",
			"INIT e0: INIT runs#1, CALL waits for process#0, CANCEL waits for process#0"},
		{"init waits", "INIT e0: INIT waits for place#0, CALL waits for process#0",
			"SUSPENDED e0: INIT waits for operator#0, CALL waits for operator#0", "refused in INIT",
			"INIT e0: INIT waits for place#0, CALL waits for process#0, CANCEL waits for process#0"},
		{"init is delayed", "INIT e0: INIT waits for time#0",
			"SUSPENDED e0: INIT waits for operator#0", "refused in INIT",
			"INIT e0: INIT waits for time#0, CANCEL waits for process#0"},
		{"idle", "RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0",
			"SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0", "same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CANCEL waits for place#0"},
		{"busy", "RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL runs#1, CALL waits for process#0",
			"SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0, CALL runs#1, CALL waits for operator#0", "same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL runs#1, CALL waits for process#0, CANCEL " +
				"waits for process#0"},
		{"placed",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL waits for place#0, CALL waits for process#0",
			"SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0, CALL waits for operator#0, CALL waits for " +
				"operator#0", "same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL waits for process#0, CALL waits for " +
				"process#0, CANCEL waits for place#0"},
		{"backing off", "RUNNING e0: INIT FINISHED, NOTIFY waits for time#1",
			"SUSPENDED e0: INIT FINISHED, NOTIFY waits for operator#1", "same",
			"RUNNING e0: INIT FINISHED, NOTIFY waits for time#1, CANCEL waits for place#0"},
		{"error", "ERROR e0: INIT FINISHED, " + error3, "refused in ERROR", "refused in ERROR",
			"CANCELLED e0: INIT FINISHED, " + error3},
		{"repair runs", "ERROR e0: INIT FINISHED, " + error3 + ", REPAIR runs#1", "refused in ERROR",
			"refused in ERROR",
			"CANCELLED e0: INIT FINISHED, " + error3 + ", REPAIR CANCELLED"},
		{"repair waits", "ERROR e0: INIT FINISHED, " + error3 + ", REPAIR waits for place#0", "refused in ERROR",
			"refused in ERROR",
			"CANCELLED e0: INIT FINISHED, " + error3 + ", REPAIR CANCELLED"},
		{"suspended", "SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0", "same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0", "CANCELLED e0: INIT FINISHED, TIMEOUT CANCELLED"},
		{"suspended busy",
			"SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0, CALL runs#1, CALL waits for operator#0", "same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CALL runs#1, CALL waits for process#0",
			"CANCELLED e0: INIT FINISHED, TIMEOUT CANCELLED, CALL CANCELLED, CALL CANCELLED"},
		{"suspended init", "SUSPENDED e0: INIT runs#1, CALL waits for operator#0", "same",
			"INIT e0: INIT runs#1, CALL waits for process#0", "CANCELLED e0: INIT CANCELLED, CALL CANCELLED"},
		{"suspended cancel", "SUSPENDED e0: INIT FINISHED, TIMEOUT waits for operator#0, CANCEL waits for operator#0",
			"same",
			"RUNNING e0: INIT FINISHED, TIMEOUT waits for time#0, CANCEL waits for place#0",
			"CANCELLED e0: INIT FINISHED, TIMEOUT CANCELLED, CANCEL CANCELLED"},
		{"completed", "COMPLETED e0: INIT FINISHED, CALL FINISHED", "refused in COMPLETED", "refused in COMPLETED",
			"refused in COMPLETED"},
		{"cancelled", "CANCELLED e0: INIT FINISHED, CALL ERROR", "refused in CANCELLED", "refused in CANCELLED",
			"refused in CANCELLED"},
		{"cancel requested init", "INIT e0: INIT runs#1, CANCEL waits for process#0",
			"SUSPENDED e0: INIT runs#1, CANCEL waits for operator#0", "refused in INIT", "same"},
		{"cancel requested", "RUNNING e0: INIT FINISHED, CANCEL waits for place#0",
			"SUSPENDED e0: INIT FINISHED, CANCEL waits for operator#0", "same", "same"},
		{"cancel requested busy", "RUNNING e0: INIT FINISHED, CALL runs#1, CANCEL waits for process#0",
			"SUSPENDED e0: INIT FINISHED, CALL runs#1, CANCEL waits for operator#0", "same", "same"},
		{"absent", "none", "not found", "not found", "not found"},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			for _, command := range []struct {
				name, want string
				run        func(b *bench) error
			}{
				{"suspend", c.suspend, func(b *bench) error { return b.SuspendProcess(key(c.id), "") }},
				{"resume", c.resume, func(b *bench) error { return b.ResumeProcess(key(c.id)) }},
				{"cancel", c.cancel, func(b *bench) error {
					_, err := b.CancelProcess(storage.Cancel{Key: key(c.id), Grace: time.Minute})
					return err
				}},
			} {
				b := newBench(t)
				b.statuses()
				b.is(c.id, c.before)
				got, state := outcomeOf(command.run(b)), b.state(c.id)
				switch {
				case got != "" || state == c.before && command.want == "same":
					if got == "" {
						got = "same"
					}
					if got != command.want || state != c.before {
						t.Errorf("%s: %s, and the process is %s; want %s", command.name, got, state, command.want)
					}
				case state != command.want:
					t.Errorf("after %s the process\n is   %s\n want %s", command.name, state, command.want)
				}
			}
		})
	}
}

// Other requests to a suspended or ended process are rejected because of its status. Calls to a
// process with a cancel request wait.
func TestRequestsAfterCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.statuses()
	for id, status := range map[string]process.Status{
		"suspended": "SUSPENDED", "suspended init": "SUSPENDED", "completed": "COMPLETED", "cancelled": "CANCELLED",
	} {
		for what, p := range map[string]storage.Prepared{
			"call": b.call(id), "notify": b.call(id, notify), "repair": b.repair(id),
			"simple repair": b.simpleRepair(id),
		} {
			equal(t, what+" of "+id, []any{p.Outcome, p.Status}, []any{storage.Refused, status})
		}
		equal(t, "start of "+id, b.tryInit(id).Outcome, storage.Exists)
	}
	var outcomes []any
	for _, id := range []string{"cancel requested", "cancel requested busy", "cancel requested init"} {
		outcomes = append(outcomes, b.call(id).Outcome)
	}
	equal(t, "calls behind a cancel", outcomes, "[postponed postponed postponed]")
	b.is("cancel requested", "RUNNING e0: INIT FINISHED, CANCEL waits for place#0, CALL waits for process#0")
}

func TestSuspendStoresItsReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.suspend("p")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{
		must(t, row, err).Status, *row.PreviousStatus, *row.Detail, *row.Attention,
		row.AttentionTime.Equal(row.StatusChangedTime),
	},
		"[SUSPENDED RUNNING a reason SUSPENDED true]")
	// The process stays suspended when its running task ends, even if the result does not change
	// the status.
	b.save(end(c, storage.Finished, events("a")))
	row, err = b.GetProcess(t.Context(), key("p"))
	equal(t, "after the result", []any{must(t, row, err).Status, *row.Detail, row.LastEventID},
		"[SUSPENDED a reason 1]")
	b.resume("p")
	row, err = b.GetProcess(t.Context(), key("p"))
	equal(t, "resumed", []any{must(t, row, err).Status, *row.PreviousStatus, row.Detail == nil, row.Attention == nil},
		"[RUNNING SUSPENDED true true]")
}

// A task that runs while its process is suspended ends normally, and no task follows it. Tasks that
// it creates also wait for the operator.
func TestSuspendWhileATaskRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		end    func(*storage.Claim) *storage.Completion
		held   string
		resume string
	}{
		{"finished",
			func(c *storage.Claim) *storage.Completion { return end(c, storage.Finished, events("a"), timer(0)) },
			"SUSPENDED e1: INIT FINISHED, CALL FINISHED, CALL waits for operator#0, TIMEOUT waits for operator#0",
			"RUNNING e1: INIT FINISHED, CALL FINISHED, CALL waits for place#0, TIMEOUT waits for time#0"},
		{"named timers", func(c *storage.Claim) *storage.Completion {
			return end(c, storage.Finished, timer(time.Hour), named(time.Hour, "n"))
		},
			"SUSPENDED e0: INIT FINISHED, CALL FINISHED, CALL waits for operator#0, TIMEOUT n waits for operator#0, " +
				"TIMEOUT waits for operator#0",
			"RUNNING e0: INIT FINISHED, CALL FINISHED, CALL waits for place#0, TIMEOUT n waits for time#0, TIMEOUT " +
				"waits for time#0"},
		{"rejected", func(c *storage.Claim) *storage.Completion { return end(c, storage.Rejected) },
			"SUSPENDED e0: INIT FINISHED, CALL FINISHED, CALL waits for operator#0",
			"RUNNING e0: INIT FINISHED, CALL FINISHED, CALL waits for place#0"},
		{"released", func(c *storage.Claim) *storage.Completion { return end(c, storage.Retry) },
			"SUSPENDED e0: INIT FINISHED, CALL waits for operator#1, CALL waits for operator#0",
			"RUNNING e0: INIT FINISHED, CALL waits for place#1, CALL waits for process#0"},
		{"to be retried", func(c *storage.Claim) *storage.Completion {
			return end(c, storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour })
		},
			"SUSPENDED e0: INIT FINISHED, CALL waits for operator#1, CALL waits for operator#0",
			"RUNNING e0: INIT FINISHED, CALL waits for time#1, CALL waits for place#0"},
		{"failed", func(c *storage.Claim) *storage.Completion { return end(c, storage.Failed, broken("x")) },
			"ERROR e0: INIT FINISHED, CALL ERROR, CALL CANCELLED!", "refused in ERROR"},
		{"completed", func(c *storage.Claim) *storage.Completion { return end(c, storage.Completed) },
			"COMPLETED e0: INIT FINISHED, CALL FINISHED, CALL CANCELLED!", "refused in COMPLETED"},
		{"removed", func(c *storage.Claim) *storage.Completion { return end(c, storage.Removed) }, "none", "not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p")
			claim := b.claim("p")
			b.call("p")
			b.suspend("p")
			saved := b.save(c.end(claim))
			equal(t, "the next task", []any{saved.Next == nil, saved.Deferred}, "[true false]")
			b.is("p", c.held)
			equal(t, "searches", len(b.searchCalls(9))+len(b.searchTimers(9)), 0)
			if err := b.ResumeProcess(key("p")); err != nil {
				equal(t, "resume", outcomeOf(err), c.resume)
				return
			}
			b.is("p", c.resume)
		})
	}
}

// If a process was suspended in INIT and is resumed, its calls wait for the INIT task. If that task
// ended while the process was suspended, they can run at once.
func TestSuspendedInInit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	b.call("p")
	b.suspend("p")
	b.save(end(c, storage.Finished))
	b.is("p", "SUSPENDED e0: INIT FINISHED, CALL waits for operator#0")
	b.resume("p")
	b.is("p", "RUNNING e0: INIT FINISHED, CALL waits for place#0")
	b.tryInit("q", func(in *storage.Init) { in.Capture = false })
	b.call("q")
	b.suspend("q")
	equal(t, "searches", ids(b.searchCalls(9)), "[p]")
	b.resume("q")
	b.is("q", "INIT e0: INIT waits for place#0, CALL waits for process#0")
	equal(t, "searches", ids(b.searchCalls(9)), "[q]")
	b.tryInit("r", func(in *storage.Init) { in.StartTime = time.Now().Add(time.Hour) })
	b.suspend("r")
	b.due("r")
	b.resume("r")
	b.is("r", "INIT e0: INIT waits for time#0")
}

// Timers that came due while their process was suspended run when it is resumed, not earlier.
func TestSuspendedTimersRunOnResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour), named(2*time.Hour, "n"))
	b.process("other", timer(time.Hour))
	b.suspend("p")
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time - interval '90 minutes'")
	equal(t, "while it is held", ids(b.searchTimers(9)), "[other]")
	timers, err := b.GetTimers(t.Context(), key("p"))
	equal(t, "its timers", []any{len(must(t, timers, err)), timers[0].Blocked}, "[2 false]")
	b.resume("p")
	claims := b.searchTimers(9)
	equal(t, "afterwards", []any{ids(claims), claims[0].TimerName, claims[0].Status, claims[0].PreviousStatus},
		"[[p]  RUNNING SUSPENDED]")
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT n waits for time#0, TIMEOUT runs#1")
}

// Concurrent commands and calls, some of them in one flush, succeed. After a last resume, the
// waiting calls are claimed one at a time.
func TestConcurrentCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour))
	other := open(t, b.dsn, storage.Config{})
	all(40, func(i int) {
		s := []*storage.Store{b.Store, other}[i%2]
		var err error
		switch i % 4 {
		case 0:
			err = s.SuspendProcess(key("p"), "")
		case 1:
			err = s.ResumeProcess(key("p"))
		default:
			_, err = s.PrepareCall(call("p", withoutSlot))
		}
		if err != nil {
			t.Error(err)
		}
	})
	b.resume("p")
	for n := ask[int](b, "SELECT count(*) FROM schedule WHERE task_type = 'CALL'"); n > 0; n-- {
		claims := b.searchCalls(9)
		equal(t, "claims", len(claims), 1)
		b.save(end(&claims[0], storage.Finished, withoutPromote))
	}
}
