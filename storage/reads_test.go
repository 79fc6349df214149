package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
)

// ReadHistory and ViewProcess return the events of a range. want has the ID and the payload of each
// event.
func TestReadHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", events("a", "b", "c", "d", "e"))
	b.process("other", events("x"))
	for _, c := range []struct {
		rng  storage.HistoryRange
		want string
	}{
		{storage.HistoryRange{Limit: -1}, "1a 2b 3c 4d 5e "},
		{storage.HistoryRange{Limit: 2}, "1a 2b "},
		{storage.HistoryRange{Offset: 2, Limit: 2}, "3c 4d "},
		{storage.HistoryRange{Offset: 5, Limit: 2}, ""},
		{storage.HistoryRange{Limit: 2, Backward: true}, "5e 4d "},
		{storage.HistoryRange{Offset: 3, Limit: -1, Backward: true}, "2b 1a "},
		{storage.HistoryRange{Offset: 1, Limit: 9, Backward: true}, ""},
	} {
		text := func(events []storage.Event) (text string) {
			for _, e := range events {
				text += fmt.Sprintf("%d%s ", e.EventID, e.Payload)
			}
			return text
		}
		short, err := b.ReadHistory(key("p"), c.rng, 1, 5)
		equal(t, fmt.Sprintf("%+v of a short history", c.rng), text(must(t, short, err)), c.want)
		long, err := b.ViewProcess(t.Context(), key("p"), c.rng) // uses the statement for long histories
		equal(t, fmt.Sprintf("%+v of a viewed process", c.rng), text(must(t, long, err).Events), c.want)
	}
	// Each of many concurrent readers gets its own events.
	all(300, func(i int) {
		k, want := "p", 5
		if i%2 == 0 {
			k, want = "other", 1
		}
		got, err := b.ReadHistory(key(k), storage.HistoryRange{Limit: -1}, 1, int64(want))
		if err != nil || len(got) != want {
			t.Errorf("reader %d of %s: %d events, %v", i, k, len(got), err)
		}
	})
	got, err := b.ReadHistory(key("none"), storage.HistoryRange{Limit: -1}, 1, 1)
	equal(t, "events of a missing process", len(must(t, got, err)), 0)
}

// ReadAnswers returns the results of those tasks that have ended. For a failed task, it also
// returns the status of the process.
func TestReadAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	w := b.call("p")
	refs := []storage.TaskRef{
		{Key: key("p"), TaskID: w.TaskID}, {Key: key("q"), TaskID: c.TaskID}, {Key: key("p"), TaskID: c.TaskID},
		{Key: key("p"), TaskID: c.TaskID},
	}
	answers, _, err := b.ReadAnswers(t.Context(), refs)
	equal(t, "answers before the task ends", len(must(t, answers, err)), 0)
	b.save(end(c, storage.Finished, func(c *storage.Completion) { c.Response = []byte("yes") }))
	answers, _, err = b.ReadAnswers(t.Context(), refs)
	equal(t, "answers for two references to one task", len(must(t, answers, err)), 2)
	equal(t, "the answer", []any{
		answers[0].Ord > 1, string(answers[0].Response), answers[0].Status, answers[0].TaskType,
	}, "[true yes FINISHED CALL]")
	answers, _, err = b.ReadAnswers(t.Context(), nil)
	equal(t, "answers without references", len(must(t, answers, err)), 0)
	b.process("broken")
	failed := end(b.claim("broken"), storage.Failed)
	b.save(failed)
	answers, _, err = b.ReadAnswers(t.Context(), []storage.TaskRef{
		{Key: key("broken"), TaskID: failed.TaskID}, {Key: key("p"), TaskID: c.TaskID},
	})
	must(t, answers, err)
	status := map[int32]string{}
	for _, a := range answers {
		status[a.Ord] = a.ProcessStatus
	}
	equal(t, "the status of the process for a failed and a finished task", status, "map[0:ERROR 1:]")
}

// TraceTasks, GetTask and the view task_list show finished, blocked, running and waiting tasks.
func TestGetTaskAndTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", events("a", "b"), timer(time.Hour))
	c := b.claim("p", keyed("k", "x"))
	w := b.call("p")
	trace, err := b.TraceTasks(t.Context(), key("p"), 0, 10)
	tasks, evs := must(t, trace, err).Tasks, trace.Events
	text := ""
	for _, task := range tasks {
		text += fmt.Sprintf("%s %s#%d ", task.TaskType, task.Status, task.Attempt)
	}
	equal(t, "the trace", text, "INIT FINISHED#1 TIMEOUT BLOCKED#0 CALL RUNNING#1 CALL WAITING#0 ")
	equal(t, "the events in the trace", []any{len(evs), evs[1].TaskID == tasks[0].TaskID, string(evs[1].Payload)},
		"[2 true b]")
	page, err := b.TraceTasks(t.Context(), key("p"), tasks[1].TaskID, 1)
	equal(t, "a page of one task",
		[]any{len(must(t, page, err).Tasks), page.Tasks[0].TaskID, len(page.Events), page.More},
		[]any{1, c.TaskID, 0, true})
	page, err = b.TraceTasks(t.Context(), key("p"), w.TaskID, 1)
	equal(t, "tasks after the last one", len(must(t, page, err).Tasks), 0)
	for id, want := range map[int64]process.TaskStatus{
		tasks[0].TaskID: "FINISHED", tasks[1].TaskID: "BLOCKED", c.TaskID: "RUNNING", w.TaskID: "WAITING",
	} {
		task, err := b.GetTask(t.Context(), key("p"), id)
		equal(t, fmt.Sprintf("the status of task %d", id), must(t, task, err).Status, want)
		equal(t, fmt.Sprintf("task %d has no finished_time", id), task.FinishedTime.Unix() == 0, want != "FINISHED")
	}
	task, err := b.GetTask(t.Context(), key("p"), c.TaskID)
	equal(t, "the key and the args of the running task",
		[]any{*must(t, task, err).IdempotencyKey, string(task.Args), task.RunningTime != nil}, "[k args true]")
	if _, err := b.GetTask(t.Context(), key("q"), c.TaskID); !errors.Is(err, process.ErrTaskNotFound) {
		t.Errorf("a task of another process: %v", err)
	}
	list := ask[string](b, `SELECT string_agg(task_type || ' ' || status, ', ' ORDER BY task_id) FROM task_list
		WHERE process_id = 'p'`)
	equal(t, "task_list", list, "INIT FINISHED, TIMEOUT BLOCKED, CALL RUNNING, CALL WAITING")
}

// PutProcess imports a process with its state, events and timers.
func TestPutProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	at := time.Now().Add(time.Hour)
	in := storage.Import{
		Key: key("p"), Status: process.StatusRunning, AuxState: []byte("state"), Context: []byte("ctx"),
		Metadata: []byte(`{"a": 1}`),
		Events: []storage.NewEvent{
			{Payload: []byte("a")}, {Metadata: []byte(`{"v": 2}`), Timestamp: time.Unix(100, 0)},
		},
		Timers: []storage.SetTimer{{At: at}, {Name: "n", At: at.Add(-2 * time.Hour), Remove: true}},
	}
	row, err := b.PutProcess(ctx, in)
	equal(t, "the row", []any{must(t, row, err).Status, row.LastEventID, string(row.Metadata), row.Detail == nil},
		`[RUNNING 2 {"a": 1} true]`)
	b.is("p", "RUNNING e2: TIMEOUT waits for time#0, REMOVE n waits for time#0")
	if _, err := b.PutProcess(ctx, in); !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("a second import: %v", err)
	}
	c := b.searchTimers(9)
	equal(t, "the due timer", []any{len(c), c[0].TaskType, string(c[0].Context), c[0].LastEventID}, "[1 REMOVE ctx 2]")

	// A process in ERROR has no waiting tasks. Its timers are imported as timers that the error has
	// cancelled, so that a repair restores them.
	in.Key, in.Status, in.Detail = key("q"), process.StatusError, "broke elsewhere"
	row, err = b.PutProcess(ctx, in)
	equal(t, "the row of a process in ERROR",
		[]any{must(t, row, err).Status, *row.Detail, *row.CorruptedBy, *row.Attention},
		"[ERROR broke elsewhere 0 ERROR]")
	b.is("q", "ERROR e2: TIMEOUT CANCELLED!, REMOVE n CANCELLED!")
	b.simpleRepair("q")
	b.is("q", "RUNNING e2: TIMEOUT CANCELLED!, REMOVE n CANCELLED!, REPAIR FINISHED, TIMEOUT waits for time#0, "+
		"REMOVE n waits for time#0")
	in.Key = key("r")
	must(t, 0, func() error { _, err := b.PutProcess(ctx, in); return err }())
	saved := b.save(end(b.repair("r").Claim, storage.Finished, func(c *storage.Completion) {
		c.Events = []storage.NewEvent{{Payload: []byte("c")}}
	}))
	equal(t, "the next task after a repair by the processor", saved.Next.TaskType, process.TaskRemove)
	b.is("r", "RUNNING e3: TIMEOUT CANCELLED!, REMOVE n CANCELLED!, REPAIR FINISHED, TIMEOUT waits for time#0, "+
		"REMOVE n runs#1")
}

// PutProcess imports a process that has only a status.
func TestPutEmptyProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	row, err := b.PutProcess(t.Context(), storage.Import{Key: key("p"), Status: process.StatusRunning})
	equal(t, "the row", []any{must(t, row, err).LastEventID, row.AuxState == nil, row.Metadata == nil}, "[0 true true]")
	b.is("p", "RUNNING e0")
}

// If the events of a range are larger than process.MaxHistoryBytes, ReadHistory returns only as
// many of them as the caller needs to detect this. Concurrent readers of other processes get all
// events.
func TestReadHistoryIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("small", events("a", "b"))
	b.process("heavy")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, "timestamp", payload, metadata)
		SELECT namespace, process_id, n, 0, now(), convert_to(repeat('x', 1 << 20), 'UTF8'), '{"a":1}'
		FROM processes, generate_series(1, 40) n WHERE process_id = 'heavy'`)
	b.exec("UPDATE processes SET last_event_id = 40 WHERE process_id = 'heavy'")
	read := func(id string, rng storage.HistoryRange, last int64) string {
		got, err := b.ReadHistory(key(id), rng, 1, last)
		if err != nil {
			return err.Error()
		}
		if len(got) == 0 {
			return "none"
		}
		return fmt.Sprintf("%d from %d", len(got), got[0].EventID)
	}
	for rng, want := range map[storage.HistoryRange]string{
		{Limit: -1}:                           "8 from 1", // the eighth exceeds the limit by its metadata
		{Limit: -1, Backward: true}:           "8 from 40",
		{Limit: 3, Offset: 5}:                 "3 from 6",
		{Limit: 2, Offset: 9, Backward: true}: "2 from 8",
	} {
		equal(t, fmt.Sprintf("%+v", rng), read("heavy", rng, 40), want)
	}
	equal(t, "read as a long history",
		read("heavy", storage.HistoryRange{Limit: -1}, process.MaxHistoryEvents), "8 from 1")
	b.process("attributes")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, "timestamp", payload, metadata)
		SELECT namespace, process_id, n, 0, now(), '', jsonb_build_object('a', repeat('x', 65000))
		FROM processes, generate_series(1, 200) n WHERE process_id = 'attributes'`)
	b.exec("UPDATE processes SET last_event_id = 200 WHERE process_id = 'attributes'")
	equal(t, "events with metadata only", read("attributes", storage.HistoryRange{Limit: -1}, 200), "130 from 1")
	equal(t, "events with empty payloads", read("attributes", storage.HistoryRange{Limit: 10}, 200), "10 from 1")
	all(40, func(i int) {
		id, want, last := "small", "2 from 1", int64(2)
		if i%8 == 0 {
			id, want, last = "heavy", "8 from 1", 40
		}
		if got := read(id, storage.HistoryRange{Limit: -1}, last); got != want {
			t.Errorf("reader %d of %s: %s, want %s", i, id, got, want)
		}
	})
}

// If PostgreSQL rejects a read, only the reader of that read gets an error. Other readers whose
// reads are in the same statement get their events.
func TestReadHistoryFailsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", events("a", "b"))
	all(40, func(i int) {
		id := "p"
		if i%10 == 0 {
			id = "\x00"
		}
		got, err := b.ReadHistory(key(id), storage.HistoryRange{Limit: -1}, 1, 2)
		if bad := i%10 == 0; bad != (err != nil) || !bad && len(got) != 2 || errors.Is(err, process.ErrUnavailable) {
			t.Errorf("reader %d: %d events, %v", i, len(got), err)
		}
	})
}

// The connections that are kept for heartbeats and answers do not run statements such as
// QueueDepths and ReadRequests, which could occupy them for long.
func TestKeptConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	_, err := insight.QueueDepths(t.Context(), b.Store, []string{ns}, 10)
	_, err2 := b.ReadRequests(t.Context(), process.RequestID(ns, "p", "k"))
	must(t, 0, errors.Join(err, err2))
	equal(t, "queries on the kept connections", ask[int](b,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'progressor kept'
		AND (query LIKE '%QueueDepths%' OR query LIKE '%ReadRequests%')`), 0)
	equal(t, "queries on the general connections", ask[int](b,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'progressor general'
		AND query LIKE '%ReadRequests%'`), 1)
}
