package storage_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func (b *bench) remove(id string) {
	b.t.Helper()
	if err := b.RemoveProcess(b.t.Context(), key(id)); err != nil {
		b.t.Fatal(err)
	}
}

// After a process is removed, clients of its running and waiting tasks get CANCELLED. The responses
// of tasks with an idempotency key are kept. The responses of other tasks that ended more than a
// minute before the removal are deleted.
func TestRemoveAnswersAllClients(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", timer(time.Hour), named(time.Hour, "n"))
	ended := b.claim("p", keyed("ended", "x"))
	b.save(end(ended, storage.Finished, func(c *storage.Completion) { c.Response = []byte("kept") }))
	forgotten := b.claim("p")
	b.save(end(forgotten, storage.Finished))
	b.exec("UPDATE tasks SET finished_time = now() - interval '2 minutes' WHERE task_id = $1", forgotten.TaskID)
	running, waiting := b.claim("p"), b.call("p")
	b.remove("p")
	b.is("p", "none")
	refs := []storage.TaskRef{
		{Key: key("p"), TaskID: ended.TaskID}, {Key: key("p"), TaskID: running.TaskID},
		{Key: key("p"), TaskID: waiting.TaskID}, {Key: key("p"), TaskID: forgotten.TaskID},
	}
	answers, _, err := b.ReadAnswers(t.Context(), refs)
	got := map[int32]string{}
	for _, a := range must(t, answers, err) {
		got[a.Ord] = string(a.Status) + " " + string(a.Response)
	}
	equal(t, "answers", got, map[int32]string{0: "FINISHED kept", 1: "CANCELLED ", 2: "CANCELLED "})
	if _, err := b.SaveResult(end(running, storage.Finished, events("late"))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the result of the running attempt: %v", err)
	}
	task, err := b.GetTask(t.Context(), key("p"), running.TaskID)
	equal(t, "the running task after the removal", []any{must(t, task, err).Status, task.TaskType}, "[CANCELLED CALL]")
	if err := b.RemoveProcess(t.Context(), key("p")); !errors.Is(err, process.ErrProcessNotFound) {
		t.Errorf("a second removal: %v", err)
	}
	// A new process can have the same ID. Its fencing tokens are higher than those of the old
	// process.
	equal(t, "the token of the new process is higher", b.start("p").FencingToken > running.FencingToken, true)
}

// RemoveProcess removes processes in INIT, ERROR and COMPLETED, with their waiting and running
// tasks.
func TestRemoveInEveryStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("init")
	b.tryInit("waiting", func(in *storage.Init) { in.Capture = false })
	b.breakByTimer("error")
	b.repair("error", withoutSlot)
	b.process("completed")
	b.save(end(b.claim("completed"), storage.Completed))
	for _, id := range []string{"init", "waiting", "error", "completed"} {
		b.remove(id)
		b.is(id, "none")
	}
	equal(t, "remaining rows", ask[int](b,
		"SELECT (SELECT count(*) FROM schedule) + (SELECT count(*) FROM running) + (SELECT count(*) FROM processes)"),
		0)
	equal(t, "claims of the searches", len(b.searchCalls(9))+len(b.searchTimers(9)), 0)
}

// A long history is deleted in batches. Until the last batch is deleted, reads do not find the
// process, and no process can be started with its ID.
func TestRemoveLongHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
		SELECT namespace, process_id, n, task_id, 1, now(), 'x' FROM tasks, generate_series(1, 5000) n`)
	b.exec("UPDATE processes SET last_event_id = 5000")
	c := b.claim("p", keyed("k", "x"))
	// A result that removes the process also deletes the first batch. PurgeRemoved deletes the
	// rest, on any node.
	b.save(end(c, storage.Removed, func(c *storage.Completion) { c.Response = []byte("bye") }))
	equal(t, "events after the first batch", ask[int](b, "SELECT count(*) FROM events"), 4000)
	if _, err := b.GetProcess(t.Context(), key("p")); !errors.Is(err, process.ErrProcessNotFound) {
		t.Errorf("the removed process: %v", err)
	}
	equal(t, "a call, a start and a repeated call before the last batch",
		[]any{b.call("p").Outcome, b.tryInit("p").Outcome, b.call("p", keyed("k", "x")).Outcome},
		"[not_found exists replayed]")
	other := open(t, b.dsn, storage.Config{})
	for rounds := 1; ; rounds++ {
		n, err := other.PurgeRemoved(t.Context())
		if must(t, n, err) == 0 {
			break
		}
		if rounds > 10 {
			t.Fatal("the removal does not end")
		}
	}
	equal(t, "rows left", ask[int](b,
		"SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM tasks) + (SELECT count(*) FROM processes)"), 0)
	equal(t, "a start with the same ID", b.tryInit("p").Outcome, storage.Captured)
}

// RemoveProcess deletes all batches before it returns. The results of requests with a key are kept.
func TestRemoveProcessWaitsForTheLastBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
		SELECT namespace, process_id, n, task_id, 1, now(), 'x' FROM tasks, generate_series(1, 5000) n`)
	b.exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token,
		scheduled_time, running_time, finished_time, idempotency_key)
		SELECT namespace, process_id, task_id + n, 'CALL', 'FINISHED', 1, fencing_token + n, now(), now(), now(),
		  'k' || n FROM tasks, generate_series(1, 3000) n`)
	b.exec("UPDATE processes SET last_event_id = 5000")
	b.remove("p")
	equal(t, "rows left", ask[int](b,
		"SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM tasks) + (SELECT count(*) FROM processes)"), 0)
	equal(t, "answers", ask[int](b, "SELECT count(*) FROM answers WHERE task_type = 'CALL'"), 3000)
}

// After a process is removed, the results of two kinds of tasks are kept in the table answers:
// tasks with an idempotency key, and tasks that ended less than a minute ago. Results of timers are
// not kept, because no client waits for them.
func TestPurgeKeepsAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token,
		scheduled_time, running_time, finished_time, idempotency_key, timer_name)
		SELECT namespace, process_id, nextval('task_ids'), x.task_type::task_type, 'FINISHED', 1,
		  nextval('fencing_tokens'), now(), now(), now() - x.ago * interval '1 second', x.k, x.timer FROM tasks,
		(VALUES ('CALL', 0, NULL, NULL), ('CALL', 90, NULL, NULL), ('CALL', 90, 'k', NULL), ('NOTIFY', 30, NULL, NULL),
		  ('TIMEOUT', 0, NULL, ''), ('REPAIR', 30, NULL, NULL)) x(task_type, ago, k, timer)`)
	b.remove("p")
	equal(t, "type of each kept task, and its age in units of 30 s", ask[string](b,
		`SELECT string_agg(task_type::text || extract(epoch FROM now() - ended_time)::int / 30, ' ' ORDER BY task_id)
			FROM answers`),
		"INIT0 CALL0 CALL3 NOTIFY1 REPAIR1")
}

// Several operators remove one process concurrently, while a result of the process also removes it.
// Only one of these removals succeeds, and the others return an error.
func TestConcurrentRemovals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p")
	errs := make([]error, 20)
	all(len(errs), func(i int) {
		if i == 0 {
			_, errs[i] = b.SaveResult(end(c, storage.Removed))
			return
		}
		// RemoveProcess returns ErrLocked if another transaction holds the lock for too long, which
		// can happen on a busy machine.
		for errs[i] = process.ErrLocked; errors.Is(errs[i], process.ErrLocked); {
			errs[i] = b.RemoveProcess(t.Context(), key("p"))
		}
	})
	succeeded := 0
	for i, err := range errs {
		switch {
		case err == nil:
			succeeded++
		case !errors.Is(err, process.ErrFenced) && !errors.Is(err, process.ErrProcessNotFound):
			t.Errorf("removal %d: %v", i, err)
		}
	}
	equal(t, "removals that succeeded", succeeded, 1)
}

// While an old snapshot is open, vacuum cannot remove the dead rows that deletions leave behind.
// Even then, the batches of RemoveProcess and TrimHistories do not read the dead rows of earlier
// batches. In total, they read at most five index entries for each task.
func TestRemoveDuringOldSnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for id, index := range map[string]string{
		"p": "tasks_pkey", "f": "failed_attempts_pkey", "~flow/r": "flow_steps_pkey",
	} {
		equal(t, "entries of "+index+" read by a removal",
			b.readDuringOldSnapshot(id, index, func(s *storage.Store) error {
				return s.RemoveProcess(t.Context(), key(id))
			}), "at most 5 times the number of tasks")
		b.is(id, "none")
	}
	trimmed := b.readDuringOldSnapshot("q", "tasks_pkey", func(s *storage.Store) error {
		if err := s.RestartHistory(key("q")); err != nil {
			return err
		}
		for {
			if n, err := s.TrimHistories(t.Context()); err != nil || n == 0 {
				return err
			}
		}
	})
	equal(t, "entries of tasks_pkey read by TrimHistories", trimmed, "at most 5 times the number of tasks")
	equal(t, "tasks", ask[int](b, "SELECT count(*) FROM tasks"), 0)
	equal(t, "failed attempts", ask[int](b, "SELECT count(*) FROM failed_attempts"), 0)
	equal(t, "steps", ask[int](b, "SELECT count(*) FROM flow_steps"), 0)
}

// readDuringOldSnapshot creates a process with many tasks, each of which has a failed attempt. If
// id is the process ID of a run, the process also has that many steps. It calls remove while an
// older snapshot is open, and counts the entries of index that remove reads. It returns "at most 5
// times the number of tasks" if that is true, and otherwise the number of entries.
func (b *bench) readDuringOldSnapshot(id, index string, remove func(*storage.Store) error) string {
	t := b.t
	t.Helper()
	const tasks = 20_000
	b.process(id)
	setup, err := pgx.Connect(t.Context(), b.dsn)
	must(t, setup, err)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := setup.Exec(t.Context(), sql, args...)
		must(t, 0, err)
	}
	exec("SET search_path TO progressor")
	exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token,
			scheduled_time,
			running_time, finished_time)
		SELECT namespace, process_id, nextval('task_ids'), 'CALL', 'FINISHED', 1, nextval('fencing_tokens'), now(),
		  now(), now()
		  FROM tasks, generate_series(1, $1::int) n WHERE process_id = $2`, tasks, id)
	exec(`INSERT INTO failed_attempts (namespace, process_id, task_id, attempt, reason, message, node_id,
			running_time, failed_time,
			first_scheduled_time)
		SELECT namespace, process_id, task_id, 1, '', '', 1, now(), now(), now() FROM tasks WHERE process_id = $1`, id)
	exec(`INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status)
		SELECT namespace, substr(process_id, 7), 's' || task_id / 7 % 3, task_id, 0, 'succeeded'
		  FROM tasks WHERE process_id = $1 AND starts_with(process_id, '~flow/')`, id)
	must(t, 0, setup.Close(t.Context()))
	const sessions = "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity WHERE datname = current_database()"
	b.until("the setup session has ended and has reported its statistics", func() bool {
		return !slices.Contains(ask[[]int32](b, sessions), int32(setup.PgConn().PID()))
	})
	old, err := pgx.Connect(t.Context(), b.dsn)
	must(t, old, err)
	defer old.Close(t.Context())
	_, err = old.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM progressor.tasks")
	must(t, old, err)
	read := func() int {
		return ask[int](b, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = $1", index)
	}
	before := read()
	earlier := ask[[]int32](b, sessions)
	other := open(t, b.dsn, storage.Config{})
	if err := remove(other); err != nil {
		t.Fatal(err)
	}
	other.Close()
	b.until("the sessions of the other store have ended and have reported their statistics", func() bool {
		return ask[int](b, "SELECT count(*) FROM unnest(("+sessions+")) pid WHERE pid <> ALL ($1)", earlier) == 0
	})
	if n := read() - before; n > 5*tasks {
		return fmt.Sprintf("%d, for %d tasks", n, tasks)
	}
	return "at most 5 times the number of tasks"
}
