package storage_test

import (
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// state sets the state of the process.
func state(text string) func(*storage.Completion) {
	return func(c *storage.Completion) { c.AuxState = []byte(text) }
}

// runWithJob starts the run ~flow/ID, whose job ID-a runs on this node. It returns the claim of the
// job, and the NOTIFY task that is reserved for notifying the run when the job ends. change applies
// to the first result of the run.
func (b *bench) runWithJob(id string, change ...func(*storage.Completion)) (*storage.Claim, storage.ReservedTask) {
	b.t.Helper()
	first := end(b.start("~flow/"+id, func(in *storage.Init) { in.Kind = "flow" }), storage.Finished,
		withMessages(plainJob(id+"-a")), startsOn, state("one job"))
	for _, f := range change {
		f(first)
	}
	saved := b.save(first)
	if saved.Next == nil || saved.Reserved.FencingToken == 0 {
		b.t.Fatalf("the job does not run, or no task is reserved for its end: %+v", saved)
	}
	return saved.Next, saved.Reserved
}

// withAdvance adds the next result of the run ~flow/ID to the result that ends its job. from is the
// state of the run from which the result of the run was decided. task is the task reserved for it.
func withAdvance(
	id, from string, task storage.ReservedTask, outcome storage.Outcome, change ...func(*storage.Completion),
) func(*storage.Completion) {
	return func(c *storage.Completion) {
		c.Run, c.MayContinue, c.MayStartStep = key("~flow/"+id), true, true
		notify := &storage.Claim{
			Namespace: ns, ProcessID: c.Run.ProcessID, TaskID: task.TaskID, TaskType: process.TaskNotify,
			Attempt: 1, FencingToken: task.FencingToken,
		}
		c.Advance = &storage.Advance{Completion: end(notify, outcome, change...), State: []byte(from)}
	}
}

// The end of a job and the next result of its run are stored in one transaction. The result of the
// run can start another job or complete the run.
func TestRunAdvancesWithTheEndOfItsJob(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	b.namespace(ns)
	job, task := b.runWithJob("r")
	saved := b.save(end(job, storage.Completed, answer("1"),
		withAdvance("r", "one job", task, storage.Finished, state("two jobs"), withMessages(plainJob("r-b")),
			startsOn)))
	equal(t, "advanced", saved.Advanced, true)
	equal(t, "the next job", saved.Next.ProcessID, "r-b")
	if saved.Reserved.FencingToken <= task.FencingToken || saved.Reserved.TaskID <= task.TaskID {
		t.Errorf("%+v is reserved after %+v", saved.Reserved, task)
	}
	b.is("~flow/r", "RUNNING e0: INIT FINISHED, NOTIFY FINISHED")
	b.is("r-a", "COMPLETED e0: INIT FINISHED")
	equal(t, "the state", ask[string](b, `SELECT convert_from(aux_state, 'UTF8') FROM processes
		WHERE process_id = '~flow/r'`), "two jobs")
	equal(t, "transactions", ask[int](b, `SELECT count(DISTINCT xmin::text) FROM tasks
		WHERE process_id = 'r-a' OR task_id = $1`, task.TaskID), 1)
	equal(t, "waiting parents", ask[string](b, "SELECT string_agg(process_id, ' ') FROM parents"), "r-b")
	equal(t, "attempts", ask[string](b, "SELECT string_agg(process_id, ' ') FROM running"), "r-b")
	_, err := b.SaveResult(end(job, storage.Completed, answer("late"),
		withAdvance("r", "two jobs", task, storage.Finished, state("late"))))
	equal(t, "a second end of the first job", err, process.ErrFenced)
	task = saved.Reserved
	saved = b.save(end(saved.Next, storage.Completed, answer("2"),
		withAdvance("r", "two jobs", task, storage.Completed, answer("all"))))
	equal(t, "the run has advanced to its end", []any{saved.Advanced, saved.Next == nil}, []any{true, true})
	b.is("~flow/r", "COMPLETED e0: INIT FINISHED, NOTIFY FINISHED, NOTIFY FINISHED")
	equal(t, "the response", ask[string](b, "SELECT convert_from(response, 'UTF8') FROM tasks WHERE task_id = $1",
		task.TaskID), "all")
	equal(t, "waiting parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

// The result of a run is not stored with the end of a job if the run has changed since the result
// was decided, if the run cannot run a task now, or if the job is not a job of the run. A run is
// notified of the end of its own job as usual.
func TestChangedRunDoesNotAdvance(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	b.namespace(ns)
	finish := func(id string, task storage.ReservedTask) func(*storage.Completion) {
		return withAdvance(id, "one job", task, storage.Finished, state("ahead"),
			withMessages(plainJob("next"), notifyOf("other", "x")), startsOn)
	}
	complete := func(id string, task storage.ReservedTask) func(*storage.Completion) {
		return withAdvance(id, "one job", task, storage.Completed, state("ahead"))
	}
	none := func(string) {}
	for id, test := range map[string]struct { // by the ID of the run, which says what prevents its advance
		begin   func(*storage.Completion) // changes the first result of the run
		changes func(run string)          // changes the run while its job runs
		end     func(string, storage.ReservedTask) func(*storage.Completion)

		// want says how the run is notified of the end of its job: by a "task" that runs, a task
		// that waits ("wait"), a "message", or not at all ("nothing").
		want string
	}{
		"state": {changes: func(run string) { b.save(end(b.claim(run), storage.Finished, state("changed"))) },
			end: finish, want: "task"},
		"attempt": {changes: func(run string) { b.claim(run) }, end: finish, want: "wait"},
		"waits":   {changes: func(run string) { b.call(run, withoutSlot) }, end: finish, want: "wait"},
		"due": { // a timer of the run is due
			begin:   func(c *storage.Completion) { timer(0)(c); c.Promote = false },
			changes: none, end: finish, want: "task",
		},
		// A run that completes does not advance if it has a timer.
		"timer":   {begin: timer(time.Hour), changes: none, end: complete, want: "task"},
		"message": {changes: func(run string) { b.send(notifyOf(run, "hi")) }, end: finish, want: "message"},
		"cancel": {changes: func(run string) {
			b.exec(`UPDATE processes SET cancel_requested_time = now(), cancel_deadline = now() + interval '1 hour'
				WHERE process_id = $1`, run)
		}, end: finish, want: "message"},
		"suspended": {changes: func(run string) { must(t, 0, b.SuspendProcess(key(run), "later")) },
			end: finish, want: "message"},
		// A run that completes does not advance if another process awaits its end.
		"parent": {changes: func(run string) {
			b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
				VALUES ($1, $2, $1, 'other', 'x')`, ns, run)
		}, end: complete, want: "task"},
		"removed": {changes: func(run string) {
			b.exec("UPDATE processes SET removed_time = now() WHERE process_id = $1", run)
		}, end: finish, want: "message"},
		// The job belongs to another run.
		"stranger": {changes: func(run string) {
			b.exec("UPDATE parents SET parent_process_id = '~flow/other' WHERE process_id = 'stranger-a'")
		}, end: finish, want: "nothing"},
		// The job belongs to no run.
		"orphan": {changes: func(string) { b.exec("DELETE FROM parents WHERE process_id = 'orphan-a'") },
			end: finish, want: "nothing"},
	} {
		begin := test.begin
		if begin == nil {
			begin = func(*storage.Completion) {}
		}
		job, task := b.runWithJob(id, begin)
		run := "~flow/" + id
		test.changes(run)
		saved := b.save(end(job, storage.Completed, answer("1"), test.end(id, task)))
		got := ask[string](b, `SELECT coalesce(string_agg(x.how, ' '), 'nothing') FROM (
			SELECT 'task' AS how FROM running WHERE process_id = $1 AND child ? 'ends'
			UNION ALL SELECT 'wait' FROM schedule WHERE process_id = $1 AND child ? 'ends'
			UNION ALL SELECT 'message' FROM messages WHERE process_id = $1 AND kind = 'child_end') x`, run)
		equal(t, id+": the run is notified by a", got, test.want)
		stored := ask[int](b, `SELECT (SELECT count(*) FROM tasks WHERE task_id = $1)
			+ (SELECT count(*) FROM processes WHERE aux_state = 'ahead' OR process_id = 'next')
			+ (SELECT count(*) FROM messages WHERE process_id = 'other')`, task.TaskID)
		equal(t, id+": advanced", []any{saved.Advanced, stored}, []any{false, 0})
		if saved.Next != nil {
			equal(t, id+": the continuation", []any{saved.Next.ProcessID, saved.Next.TaskType},
				[]any{run, process.TaskNotify})
			b.save(end(saved.Next, storage.Finished))
		}
	}
	b.exec("DELETE FROM running")
	b.exec("DELETE FROM schedule")
	b.exec("DELETE FROM parents")
	b.exec("UPDATE processes SET cancel_requested_time = NULL, cancel_deadline = NULL, removed_time = NULL")
}

// After a job has been retried, a late result of its first attempt is fenced, and does not advance
// the run.
func TestFencedEndDoesNotAdvanceTheRun(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	b.namespace(ns)
	job, task := b.runWithJob("r")
	b.save(end(job, storage.Retry))
	_, err := b.SaveResult(end(job, storage.Completed, answer("late"),
		withAdvance("r", "one job", task, storage.Finished, state("ahead"), withMessages(plainJob("next")), startsOn)))
	equal(t, "a late end", err, process.ErrFenced)
	b.is("~flow/r", "RUNNING e0: INIT FINISHED")
	equal(t, "waiting parents", ask[string](b, "SELECT string_agg(process_id, ' ') FROM parents"), "r-a")
}

// Two jobs of a run end in one flush, each with a result of the run. Only one of these two results
// is stored, because each was decided before the other was stored.
func TestRunAdvancesOnceInAFlush(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	b.namespace(ns)
	b.process("other")
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	first, task := b.runWithJob("r")
	more := b.save(end(b.claim("~flow/r"), storage.Finished, withMessages(plainJob("s-a")), startsOn))
	release := b.foreign("SELECT FROM processes WHERE process_id = 'other' FOR UPDATE")
	// A call that waits for this lock occupies the only lane, so the two ends share the next flush.
	var all sync.WaitGroup
	all.Go(func() { _, _ = s.PrepareCall(call("other", withoutSlot)) })
	b.waits(1)
	advanced := make(chan bool, 2)
	for job, task := range map[*storage.Claim]storage.ReservedTask{first: task, more.Next: more.Reserved} {
		all.Go(func() {
			saved, err := s.SaveResult(end(job, storage.Completed, answer("1"),
				withAdvance("r", "one job", task, storage.Finished)))
			if err != nil {
				t.Error(err)
			}
			advanced <- saved.Advanced
		})
	}
	for s.Pending() < 3 && b.waits(1) {
	}
	release()
	all.Wait()
	one, other := <-advanced, <-advanced
	equal(t, "advanced once", one != other, true)
	equal(t, "stored results of the run", ask[int](b, "SELECT count(*) FROM tasks WHERE task_id IN ($1, $2)",
		task.TaskID, more.Reserved.TaskID), 1)
	equal(t, "tasks that notify the run of the other end",
		ask[int](b, "SELECT count(*) FROM running WHERE process_id = '~flow/r'"), 1)
	b.exec("DELETE FROM running")
}

// If PostgreSQL rejects the result of the run, the end of the job is stored without it.
func TestRejectedResultOfARun(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	b.namespace(ns)
	job, task := b.runWithJob("r")
	saved := b.save(end(job, storage.Completed, answer("1"), withAdvance("r", "one job", task, storage.Finished,
		withMessages(startOf("other", func(m *storage.Message) { m.Metadata = []byte("no JSON") })))))
	equal(t, "advanced", saved.Advanced, false)
	equal(t, "the continuation", endsIn(t, saved.Next), `NOTIFY of ~flow/r: r-a r-a COMPLETED "1"`)
	b.save(end(saved.Next, storage.Finished))
}

// If the connection breaks when a run advances, before or after the commit, the result of the run
// and the end of the job are stored exactly once.
func TestConnectionBreaksWhenARunAdvances(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	c := newCutBench(t)
	c.namespace(ns)
	job, task := c.runWithJob("r")
	cut := c.proxy.next(beforeCommit)
	saved := c.saveThroughProxy(end(job, storage.Completed, answer("1"),
		withAdvance("r", "one job", task, storage.Finished, state("two jobs"), withMessages(plainJob("r-b")),
			startsOn)))
	<-cut
	equal(t, "before the commit", []any{saved.Advanced, saved.ResponseLost, saved.Next.ProcessID},
		[]any{true, false, "r-b"})
	cut = c.proxy.next(afterCommit)
	saved = c.saveThroughProxy(end(saved.Next, storage.Completed, answer("2"),
		withAdvance("r", "two jobs", saved.Reserved, storage.Finished, state("three jobs"),
			withMessages(plainJob("r-c")), startsOn)))
	<-cut
	equal(t, "after the commit", []any{saved.Advanced, saved.ResponseLost, saved.Next == nil}, []any{false, true, true})
	adopted := c.adopted()
	equal(t, "adopted", adopted.ProcessID, "r-c")
	c.is("~flow/r", "RUNNING e0: INIT FINISHED, NOTIFY FINISHED, NOTIFY FINISHED")
	c.saveThroughProxy(end(&adopted, storage.Completed, ofRun))
}
