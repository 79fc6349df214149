package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func (b *bench) repair(id string, change ...func(*storage.Call)) storage.Prepared {
	b.t.Helper()
	p, err := b.PrepareRepair(call(id, change...))
	return must(b.t, p, err)
}

func (b *bench) simpleRepair(id string, change ...func(*storage.Call)) storage.Prepared {
	b.t.Helper()
	p, err := b.SimpleRepair(call(id, change...))
	return must(b.t, p, err)
}

func TestRepairIsCaptured(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failedTask := b.breakProcess("p", events("a"))
	c := b.repair("p", func(c *storage.Call) { c.Context = []byte("ctx") }).Claim
	b.is("p", "ERROR e1: INIT FINISHED, CALL ERROR, REPAIR runs#1")
	equal(t, "the claim", []any{c.TaskType, c.Status, c.Detail, c.CorruptedBy, c.LastEventID, string(c.Context)},
		[]any{"REPAIR", "ERROR", "out of stock", failedTask.TaskID, 1, "ctx"})
	equal(t, "another", []any{b.repair("p").Outcome, b.simpleRepair("p").Outcome}, "[repairing repairing]")
	b.save(end(c, storage.Finished, events("b")))
	b.is("p", "RUNNING e2: INIT FINISHED, CALL ERROR, REPAIR FINISHED")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{
		must(t, row, err).Detail == nil, row.CorruptedBy == nil, row.Attention == nil, row.AttentionTime == nil,
		*row.PreviousStatus,
	}, "[true true true true ERROR]")
}

func TestRepairIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.start("q")
	equal(t, "outcomes", []any{
		b.repair("p").Outcome, b.simpleRepair("p").Status, b.repair("q").Status, b.repair("r").Outcome,
		b.simpleRepair("r").Outcome,
	},
		"[status RUNNING INIT not_found not_found]")
}

func TestRepairWithKeyWithoutSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.breakProcess("p")
	first := b.repair("p", keyed("k", "x"), withoutSlot)
	equal(t, "outcomes", []any{
		first.Outcome, b.repair("p", keyed("k", "x")).Outcome, b.repair("p", keyed("k", "y")).Outcome,
		b.repair("p", keyed("k2", "y")).Outcome,
	},
		"[place replayed mismatch repairing]")
	claims := b.searchCalls(9)
	equal(t, "found", []any{claims[0].TaskType, claims[0].CorruptedBy != 0, claims[0].Status}, "[REPAIR true ERROR]")
	// A repair that never reached its processor is retried.
	b.save(end(&claims[0], storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }))
	b.due("p")
	claims = b.searchTimers(9)
	b.save(end(&claims[0], storage.Finished))
	b.is("p", "RUNNING e0: INIT FINISHED, CALL ERROR, REPAIR FINISHED")
	equal(t, "afterwards", b.repair("p", keyed("k", "x")).TaskID, first.TaskID)
}

// breakByTimer creates a process with the timers a and b. The failure of its default timer sets the
// process to ERROR.
func (b *bench) breakByTimer(id string) *storage.Claim {
	b.t.Helper()
	b.process(id, timer(time.Hour), named(2*time.Hour, "a", "b"))
	b.exec(`UPDATE schedule SET scheduled_time = statement_timestamp() - interval '1 hour', context = 'old'
		WHERE process_id = $1 AND timer_name = ''`, id)
	claims := b.searchTimers(1)
	b.save(end(&claims[0], storage.Failed, broken("x")))
	b.is(id, "ERROR e0: INIT FINISHED, TIMEOUT a CANCELLED!, TIMEOUT b CANCELLED!, TIMEOUT ERROR")
	return &claims[0]
}

func TestSimpleRepairSetsTimersAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failedTask := b.breakByTimer("p")
	r := b.simpleRepair("p", keyed("k", "x"))
	again := "RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED!, TIMEOUT b CANCELLED!, TIMEOUT ERROR, REPAIR FINISHED, " +
		"TIMEOUT waits for time#0, TIMEOUT a waits for time#0, TIMEOUT b waits for time#0"
	b.is("p", again)
	equal(t, "the same request", []any{
		b.simpleRepair("p", keyed("k", "x")).TaskID, b.simpleRepair("p", keyed("k", "y")).Outcome,
	}, []any{r.TaskID, storage.Mismatched})
	b.is("p", again)
	equal(t, "the same times and context",
		ask[int](b, `SELECT count(*) FROM schedule s JOIN tasks t ON t.timer_name = s.timer_name
		AND t.scheduled_time = s.scheduled_time
		AND t.context IS NOT DISTINCT FROM s.context`), 3)
	claims := b.searchTimers(9)
	equal(t, "the failed timer runs again",
		[]any{
			len(claims), claims[0].TaskID, claims[0].Attempt, claims[0].TaskID != failedTask.TaskID,
			string(claims[0].Context),
		},
		[]any{1, r.TaskID, 1, true, "old"})
	equal(t, "without a timer", []any{b.breakProcess("q").TaskID != 0, b.simpleRepair("q").TaskID}, "[true 0]")
	b.is("q", "RUNNING e0: INIT FINISHED, CALL ERROR, REPAIR FINISHED")
	equal(t, "repairs without an attempt", ask[int](b, `SELECT count(*) FROM tasks t JOIN processes p
		ON p.process_id = t.process_id AND p.status_changed_time = t.finished_time WHERE t.task_type = 'REPAIR'
		AND t.attempt = 0 AND t.running_time IS NULL AND t.scheduled_time = t.finished_time`), 2)
	b.breakProcess("r")
	equal(t, "a key of a repair without a task",
		[]any{b.simpleRepair("r", keyed("k", "x")).Outcome, b.simpleRepair("r", keyed("k", "x")).Outcome},
		"[repaired replayed]")
}

func TestSimpleRepairPassesItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.breakByTimer("p")
	b.simpleRepair("p", func(c *storage.Call) { c.Context = []byte("new") })
	equal(t, "contexts", ask[string](b, "SELECT DISTINCT convert_from(context, 'UTF8') FROM schedule"), "new")
}

// If the result of a repair has an action for a timer, the action applies. The other timers are
// restored, the failed one first.
func TestRepairSetsTimersAgain(t *testing.T) {
	t.Parallel()
	const past = "RUNNING e0: INIT FINISHED, TIMEOUT a CANCELLED!, TIMEOUT b CANCELLED!, TIMEOUT ERROR, REPAIR FINISHED"
	for _, c := range []struct {
		name   string
		change []func(*storage.Completion)
		state  string
		next   string
	}{
		{"no action", nil, past + ", TIMEOUT runs#1, TIMEOUT a waits for time#0, TIMEOUT b waits for time#0", ""},
		{"set", []func(*storage.Completion){timer(3 * time.Hour)},
			past + ", TIMEOUT a waits for time#0, TIMEOUT b waits for time#0, TIMEOUT waits for time#0", "none"},
		{"unset", []func(*storage.Completion){func(c *storage.Completion) { c.UnsetTimers = true }}, past, "none"},
		{"unset one", []func(*storage.Completion){func(c *storage.Completion) { c.UnsetNames = []string{"a"} }},
			past + ", TIMEOUT runs#1, TIMEOUT a CANCELLED, TIMEOUT b waits for time#0", ""},
		{"failed", []func(*storage.Completion){func(c *storage.Completion) { c.Outcome = storage.Failed }},
			"ERROR" + past[7:len(past)-8] + "ERROR", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.breakByTimer("p")
			saved := b.save(end(b.repair("p").Claim, storage.Finished, c.change...))
			b.is("p", c.state)
			if (saved.Next == nil) != (c.next == "none") {
				t.Errorf("the next task is %+v", saved.Next)
			}
		})
	}
}

func TestSecondErrorReplacesTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.breakByTimer("p")
	b.simpleRepair("p")
	claims := b.searchTimers(1)
	b.save(end(&claims[0], storage.Failed, broken("y")))
	b.simpleRepair("p")
	equal(t, "timers", ask[string](b, "SELECT string_agg(timer_name, ',' ORDER BY task_id) FROM schedule"), ",a,b")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "status", must(t, row, err).Status, process.StatusRunning)
}
