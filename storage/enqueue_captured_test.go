package storage_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// fullJob returns a job with all columns that a captured job can have.
func fullJob(id string) *jobs.NewJob {
	return &jobs.NewJob{
		Key: key(id), Name: "work", Args: []byte(`"args"`), Context: []byte("trace"), Metadata: []byte(`{"a": 1}`),
		Tags: []byte(`["t"]`), Options: []byte(`{"maxRetry": 3}`), Timeout: time.Hour, Priority: 7,
		IdempotencyKey: "key of " + id, RequestID: process.RequestID(ns, "", "key of "+id),
		Fingerprint: []byte("f"), Actor: "kim",
	}
}

// A captured job has the same rows and events, and the same claim, as a job that was claimed after
// it had waited.
func TestEnqueueCaptured(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	captured, err := jobs.EnqueueCaptured(b.Store, fullJob("j1"))
	c := must(t, captured, err).Claim
	if c == nil {
		t.Fatalf("the job has no claim: %v", captured)
	}
	equal(t, "waiting tasks", ask[int](b, "SELECT count(*) FROM schedule"), 0)
	waited, err := jobs.Enqueue(b.Store, fullJob("j2"))
	equal(t, "the claim of a job that waits", must(t, waited, err).Claim, (*storage.Claim)(nil))
	claims, err := b.SearchCalls(t.Context(), []storage.ClaimLimit{{Namespace: ns, Max: 10, StepTimeout: timeout}})
	if must(t, claims, err); len(claims) != 1 {
		t.Fatalf("claims %v", ids(claims))
	}
	equal(t, "columns that differ between the jobs", ask[string](b, `SELECT coalesce(string_agg(a.key, ' '), '')
		FROM (SELECT to_jsonb(r) || to_jsonb(j) || to_jsonb(p) AS columns, r.process_id
		        FROM running r JOIN jobs j USING (process_id) JOIN processes p USING (process_id)) x,
		     jsonb_each(x.columns) a
		JOIN (SELECT to_jsonb(r) || to_jsonb(j) || to_jsonb(p) AS columns
		        FROM running r JOIN jobs j USING (process_id) JOIN processes p USING (process_id)
		       WHERE r.process_id = 'j2') y ON y.columns->a.key <> a.value
		WHERE x.process_id = 'j1' AND a.key NOT LIKE '%time' AND a.key <> 'deadline'
		  AND a.key NOT IN ('process_id', 'task_id', 'fencing_token', 'idempotency_key')`), "")
	equal(t, "the deadline", ask[time.Duration](b,
		"SELECT deadline - running_time FROM running WHERE process_id = 'j1'"), time.Hour)
	events := `SELECT string_agg(concat_ws(' ', type, from_status, to_status, attempt, actor), ', ' ORDER BY event_id)
		FROM job_events WHERE job_id = $1`
	equal(t, "events", ask[string](b, events, "j1"),
		"enqueued available 0 kim, started available running 1")
	equal(t, "events of both", ask[string](b, events, "j1"), ask[string](b, events, "j2"))

	got, want := *c, claims[0]
	equal(t, "the stored numbers", [2]int64{got.TaskID, got.FencingToken},
		ask[[]int64](b, "SELECT ARRAY[task_id, fencing_token] FROM running WHERE process_id = 'j1'"))
	want.ProcessID, want.TaskID, want.FencingToken, want.IdempotencyKey = "j1", got.TaskID, got.FencingToken,
		got.IdempotencyKey
	want.ScheduledTime, want.RunningTime = got.ScheduledTime, got.RunningTime
	want.CreatedTime, want.StatusChangedTime = got.CreatedTime, got.StatusChangedTime
	equal(t, "the claim", got, want)

	again, err := jobs.EnqueueCaptured(b.Store, fullJob("j1"))
	equal(t, "a repeated request", must(t, again, err), jobs.Enqueued{Outcome: jobs.JobReplayed, ProcessID: "j1"})
	other := fullJob("j1")
	other.IdempotencyKey, other.RequestID = "", uuid.Nil
	again, err = jobs.EnqueueCaptured(b.Store, other)
	equal(t, "another job with the ID", must(t, again, err), jobs.Enqueued{Outcome: jobs.JobExists, ProcessID: "j1"})

	// A node may not know yet that the namespace has constraints.
	b.exec(`INSERT INTO constraint_sets (namespace, version, changed_time, began_time)
		VALUES ($1, 7, now(), now())`, ns)
	limited, err := jobs.EnqueueCaptured(b.Store, fullJob("j3"))
	equal(t, "a job that must be evaluated", must(t, limited, err),
		jobs.Enqueued{Outcome: jobs.JobEnqueued, ProcessID: "j3"})
	equal(t, "what it waits for", ask[string](b, "SELECT waits_for FROM schedule WHERE process_id = 'j3'"),
		"constraint")
	b.exec("DELETE FROM constraint_sets")
	b.exec("UPDATE schedule SET waits_for = 'place', line = NULL")
	b.save(end(c, storage.Completed, of(&jobs.End{})))
	b.save(end(&claims[0], storage.Completed, of(&jobs.End{})))
}
