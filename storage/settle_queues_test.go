package storage_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const (
	largeQueue = 7_000
	// maxMoved is the maximum number of rows that a statement may change.
	maxMoved = 2_100
)

// watchStatements logs how many rows each UPDATE and DELETE on schedule and messages changes.
func (b *bench) watchStatements() {
	b.t.Helper()
	b.exec(`CREATE TABLE public.touched (statement text, n bigint)`)
	b.exec(`CREATE FUNCTION public.log_touched() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO public.touched SELECT TG_OP || ' ' || TG_TABLE_NAME, count(*) FROM old_rows;
			RETURN NULL;
		END $$`)
	for _, table := range []string{"schedule", "messages"} {
		for _, op := range []string{"UPDATE", "DELETE"} {
			b.exec("CREATE TRIGGER log_" + op + " AFTER " + op + " ON " + table + ` REFERENCING OLD TABLE AS old_rows
				FOR EACH STATEMENT EXECUTE FUNCTION public.log_touched()`)
		}
	}
}

// checkTouchedRows fails the test if a statement has changed too many rows.
func (b *bench) checkTouchedRows() {
	b.t.Helper()
	if n := ask[int](b, `SELECT coalesce(max(n), 0) FROM public.touched`); n > maxMoved {
		b.t.Errorf("a statement changed %d rows, want at most %d", n, maxMoved)
	}
}

// addWaitingTasks inserts many waiting tasks.
func (b *bench) addWaitingTasks(id string) {
	b.t.Helper()
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		SELECT 'shop', $1, nextval('task_ids'), 'NOTIFY', 'process', statement_timestamp()
		  FROM generate_series(1, $2)`, id, largeQueue)
}

// addHeldMessages inserts many held messages.
func (b *bench) addHeldMessages(id string) {
	b.t.Helper()
	b.exec(`INSERT INTO messages (namespace, process_id, kind, held, args)
		SELECT 'shop', $1, 'notify', true, convert_to(n::text, 'UTF8') FROM generate_series(1, $2) n`, id, largeQueue)
}

// settle calls SettleQueues until there is nothing left to change. It returns the number of changed
// rows.
func (b *bench) settle() (moved int64) {
	b.t.Helper()
	for {
		n, err := b.SettleQueues(b.t.Context())
		if must(b.t, n, err) == 0 {
			return moved
		}
		moved += n
		storagetest.Invariants(b.t, b.dsn)
	}
}

// count returns the number of rows of a table that match a condition.
func (b *bench) count(table, condition string) int {
	b.t.Helper()
	return ask[int](b, "SELECT count(*) FROM "+table+" WHERE "+condition)
}

// queued returns the number of tasks of a process that wait for waitsFor.
func (b *bench) queued(id, waitsFor string) int {
	return ask[int](b, `SELECT count(*) FROM schedule WHERE process_id = $1 AND waits_for::text = $2`, id, waitsFor)
}

// Changing the status of a process with a large queue updates few rows. SettleQueues then updates
// the queue in batches.
func TestLargeQueueFollowsInBatches(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench, c *storage.Claim){
		"fails":                func(b *bench, c *storage.Claim) { b.save(end(c, storage.Failed)) },
		"ends":                 func(b *bench, c *storage.Claim) { b.save(end(c, storage.Completed)) },
		"overdue":              func(b *bench, _ *storage.Claim) { b.cancelOverdue("p") },
		"suspended, cancelled": func(b *bench, _ *storage.Claim) { b.suspend("p"); b.cancel("p") },
		"suspended, fails":     func(b *bench, c *storage.Claim) { b.suspend("p"); b.save(end(c, storage.Failed)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p")
			c := b.claim("p")
			b.addWaitingTasks("p")
			b.watchStatements()
			change(b, c)
			storagetest.Invariants(t, b.dsn)
			if left := b.queued("p", "process"); left < largeQueue-2*maxMoved {
				t.Errorf("the change of the status left only %d rows for SettleQueues", left)
			}
			b.settle()
			b.checkTouchedRows()
			equal(t, "waiting tasks and backlogs", b.count("schedule", "true")+b.count("queue_backlogs", "true"), 0)
			equal(t, "cancelled tasks", b.count("tasks", "task_type = 'NOTIFY' AND status = 'CANCELLED'"), largeQueue)
		})
	}
}

// cancelOverdue cancels a process without a grace period, and ends it.
func (b *bench) cancelOverdue(id string) {
	b.t.Helper()
	b.cancelFor(id, 0)
	ended, err := b.EndOverdueCancel(key(id))
	equal(b.t, "ended", must(b.t, ended, err), true)
}

// A suspension moves a part of a large queue at once, and SettleQueues moves the rest. No task of
// the queue can be claimed in the meantime. A resume moves all tasks back.
func TestLargeQueueIsSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.addWaitingTasks("p")
	b.exec(`UPDATE schedule SET waits_for = 'place' WHERE task_id = (SELECT min(task_id) FROM schedule)`)
	b.watchStatements()
	b.suspend("p")
	storagetest.Invariants(t, b.dsn)
	equal(t, "the suspension moves only a part", b.queued("p", "operator") < maxMoved, true)
	equal(t, "tasks that can be claimed", len(b.searchCalls(9)), 0)
	b.settle()
	equal(t, "tasks that wait for an operator", b.queued("p", "operator"), largeQueue)
	b.resume("p")
	b.checkTouchedRows()
	equal(t, "tasks that wait for a slot and for the process",
		[]any{b.queued("p", "place"), b.queued("p", "process")}, []any{1, largeQueue - 1})
	equal(t, "backlogs", b.count("queue_backlogs", "true"), 0)
	first := ask[int64](b, `SELECT min(task_id) FROM schedule`)
	equal(t, "the task that is claimed first", b.searchCalls(9)[0].TaskID, first)
}

// A resume reads at most three rows or index entries for each waiting task, even while an old
// snapshot keeps the dead rows.
func TestResumeOfALargeQueueReadsFewRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.addWaitingTasks("p")
	old, err := pgx.Connect(t.Context(), b.dsn)
	must(t, old, err)
	defer old.Close(t.Context())
	kept := ask[[]int32](b, "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()")
	// A connection may report the rows that it has read only when it ends.
	read := func() int {
		b.until("the other connections have ended", func() bool {
			return ask[int](b, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> ALL ($1)`, kept) == 0
		})
		return ask[int](b, `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'schedule')
			+ (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'schedule')`)
	}
	earlier := &bench{Store: open(t, b.dsn, storage.Config{}), t: t, dsn: b.dsn, db: b.db}
	earlier.suspend("p")
	earlier.settle()
	earlier.Close()
	_, err = old.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM progressor.schedule")
	must(t, old, err)
	before := read()
	other := open(t, b.dsn, storage.Config{})
	must(t, 0, other.ResumeProcess(key("p")))
	other.Close()
	if n := read() - before; n > 3*largeQueue {
		t.Errorf("a resume read %d rows and index entries for %d waiting tasks", n, largeQueue)
	}
	b.save(end(c, storage.Finished))
}

// A task that is retried during PrepareResume is resumed with the queue, although it is older than
// all waiting tasks.
func TestRetryDuringTheResumeOfALargeQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.addWaitingTasks("p")
	b.suspend("p")
	b.settle()
	must(t, 0, b.PrepareResume(key("p")))
	must(t, 0, b.PrepareResume(key("p"))) // a second client does the same
	b.save(end(c, storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }))
	equal(t, "tasks that wait for an operator", b.queued("p", "operator"), 1)
	b.resume("p")
	equal(t, "tasks that wait for an operator after the resume", b.queued("p", "operator"), 0)
	equal(t, "what the retried task waits for",
		ask[string](b, "SELECT waits_for::text FROM schedule WHERE task_id = $1", c.TaskID), "time")
}

// A resume right after a suspension moves back the tasks that the suspension has moved.
// SettleQueues has not run in between.
func TestLargeQueueIsResumedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.addWaitingTasks("p")
	b.exec(`UPDATE schedule SET waits_for = 'place' WHERE task_id = (SELECT min(task_id) FROM schedule)`)
	b.suspend("p")
	b.resume("p")
	equal(t, "tasks that wait for a slot and for the process",
		[]any{b.queued("p", "place"), b.queued("p", "process")}, []any{1, largeQueue - 1})
}

// A process in ERROR with a large queue can be repaired only after SettleQueues has cancelled the
// tasks of the queue.
func TestLargeQueueIsRepairedOnceItIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.addWaitingTasks("p")
	b.save(end(c, storage.Failed))
	equal(t, "repairs before SettleQueues",
		[]any{b.repair("p").Outcome, b.simpleRepair("p").Outcome}, "[unsettled unsettled]")
	b.settle()
	equal(t, "the task that cancelled the queue",
		ask[int64](b, `SELECT min(cancelled_by) FROM tasks WHERE status = 'CANCELLED'`), c.TaskID)
	equal(t, "a repair after SettleQueues", b.simpleRepair("p").Outcome, storage.Repaired)
}

// The waiting tasks of removed processes are deleted in batches, and none of them can be claimed in
// the meantime.
func TestLargeQueueIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.addWaitingTasks("p")
	b.exec(`UPDATE schedule SET waits_for = 'place' WHERE task_id = (SELECT max(task_id) FROM schedule)`)
	b.watchStatements()
	c := b.start("q")
	b.addWaitingTasks("q")
	b.save(end(c, storage.Removed))
	storagetest.Invariants(t, b.dsn)
	b.remove("p")
	for n := 1; n > 0; {
		var err error
		n, err = b.PurgeRemoved(t.Context())
		must(t, n, err)
		equal(t, "tasks that can be claimed", len(b.searchCalls(9)), 0)
	}
	b.checkTouchedRows()
	equal(t, "tasks and processes", b.count("schedule", "true")+b.count("processes", "true"), 0)
}

// Held messages are released in batches and delivered in order, even while some are still held.
func TestManyHeldMessages(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(b *bench){
		"resumed": func(b *bench) { b.suspend("p"); b.addHeldMessages("p"); b.resume("p") },
		"repaired": func(b *bench) {
			b.save(end(b.claim("p"), storage.Failed))
			b.addHeldMessages("p")
			b.simpleRepair("p")
		},
		"ended": func(b *bench) { b.suspend("p"); b.addHeldMessages("p"); b.cancel("p") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("p")
			b.watchStatements()
			release(b)
			storagetest.Invariants(t, b.dsn)
			b.send(notifyOf("p", "last"))
			_, more, err := b.DeliverMessages(key("p"))
			equal(t, "there may be more messages", must(t, more, err), true)
			equal(t, "some messages are left", b.count("messages", "process_id = 'p'") > 0, true)
			equal(t, "the oldest messages", b.count("messages", "convert_from(args, 'UTF8') IN ('1', '16')"), 0)
			b.settle()
			b.checkTouchedRows()
			equal(t, "held messages and backlogs", b.count("messages", "held")+b.count("queue_backlogs", "true"), 0)
		})
	}
}

// Messages to a suspended process are held instead of delivered. If there are many, no statement
// holds more than a batch of them.
func TestManyMessagesAreHeldInBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.addHeldMessages("p")
	b.suspend("p")
	b.exec(`UPDATE messages SET held = false`)
	b.watchStatements()
	b.deliver("p")
	b.checkTouchedRows()
	equal(t, "messages that are not held", b.count("messages", "NOT held"), 0)
}

// Messages to a process with 1000 waiting tasks are not delivered until it has fewer, and stay in
// order.
func TestFullProcessTakesNoMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		SELECT 'shop', 'p', nextval('task_ids'), 'NOTIFY', 'process', statement_timestamp()
		  FROM generate_series(1, 1000)`)
	b.send(notifyOf("p", "a"), notifyOf("p", "b"))
	equal(t, "a delivery to a full process", b.deliver("p"), "notify full")
	equal(t, "undelivered", b.undelivered(), 2)
	b.save(end(c, storage.Finished, func(c *storage.Completion) { c.Promote = true }))
	equal(t, "a delivery to a process with fewer waiting tasks", b.deliver("p"), "notify delivered, notify delivered")
	status := ask[process.Status](b, `SELECT status FROM processes WHERE process_id = 'p'`)
	equal(t, "status", status, process.StatusRunning)
}
