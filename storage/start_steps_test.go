package storage_test

import (
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// plainJob returns the start of a step's job.
func plainJob(id string) storage.Message {
	return startOf(id, notifySender(id), func(m *storage.Message) {
		m.Plain, m.StartedKind, m.KindRow = true, process.JobKind,
			[]byte(`{"name": "work", "timeoutUs": 60000000, "options": {"keepResult": true}}`)
	})
}

func startsOn(c *storage.Completion) { c.MayStartStep = true }

// The first job of a result runs at once if there is a slot, unless the process of the result
// continues. The other jobs wait for a slot. A fenced attempt starts no jobs.
func TestJobsStartWithTheResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	init := b.start("run")
	saved := b.save(end(init, storage.Finished, withMessages(plainJob("a"), plainJob("b")), startsOn))
	next := saved.Next
	if next == nil {
		t.Fatal("the first job did not run")
	}
	job, _ := jobs.JobOf(next)
	equal(t, "the claim", []any{next.ProcessID, next.TaskType, next.Status, next.Kind, string(next.Args)}, []any{
		"a", process.TaskInit, process.StatusInit, "job", "child",
	})
	equal(t, "the job of the claim", []any{job.Name, job.Timeout.String(), string(job.Options)}, []any{
		"work", "1m0s", `{"keepResult": true}`,
	})
	_, err := b.SaveResult(end(init, storage.Finished, withMessages(plainJob("late")), startsOn))
	equal(t, "a late result", err, process.ErrFenced)
	claims := b.searchCalls(10)
	equal(t, "tasks that wait for a slot", ids(claims), "[b]")
	b.save(end(next, storage.Completed))
	b.save(end(&claims[0], storage.Completed))
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)

	call := b.claim("run")
	b.call("run") // this call waits behind the running one
	saved = b.save(end(call, storage.Finished, withMessages(plainJob("c")), startsOn))
	equal(t, "the next claim", saved.Next.ProcessID, "run")
	b.save(end(saved.Next, storage.Finished))
	for _, c := range b.searchCalls(10) {
		b.save(end(&c, storage.Completed))
	}
	equal(t, "jobs", ask[string](b, "SELECT string_agg(process_id, ' ' ORDER BY process_id) FROM jobs"), "a b c")
}

// If the ID of a job is in use, or the namespace of the job has constraints, the result does not
// start the job, but sends a message. The delivery of the message reports the outcome.
func TestJobsStartedByMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("taken")
	b.process("run")
	targets := b.targets(func() {
		saved := b.save(end(b.claim("run"), storage.Finished, withMessages(plainJob("taken"), plainJob("free")),
			startsOn))
		equal(t, "continuation", saved.Next == nil && saved.Deferred, true)
	})
	equal(t, "targets", targets, "[taken]")
	equal(t, "the delivery", b.deliver("taken"), "start exists")
	for _, c := range b.searchCalls(10) {
		b.save(end(&c, storage.Completed))
	}
	b.exec("INSERT INTO constraint_sets (namespace, version, changed_time, began_time) VALUES ($1, 1, now(), now())",
		ns)
	targets = b.targets(func() {
		b.save(end(b.claim("run"), storage.Finished, withMessages(plainJob("limited")), startsOn))
	})
	equal(t, "targets with constraints", targets, "[limited]")
	equal(t, "the delivery with constraints", b.deliver("limited"), "start delivered")
}
