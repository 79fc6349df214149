package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/erasure"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// stepEvents adds events to a result, as a run does.
func stepEvents(events ...*jobs.Event) func(*storage.Completion) {
	return func(c *storage.Completion) {
		for _, e := range events {
			c.EffectsOnEnd = append(c.EffectsOnEnd, e)
		}
	}
}

// Events of a result are stored with it, in order. They are not stored if the attempt is fenced or
// the namespace does not keep them.
func TestJobEventsOfResults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mode := storage.EventsAll
	b.OnEventMode(func(string) storage.EventMode { return mode })
	written := func(what, want string) {
		t.Helper()
		equal(t, what, ask[string](b, `SELECT coalesce(string_agg(concat_ws(' ', job_id, step_id, index, type,
			from_status, to_status, attempt, worker_id, actor, message,
			metadata), '; ' ORDER BY event_id), '') FROM job_events`), want)
	}
	index := int32(0)
	step := &jobs.Event{
		StepID: "pay", Index: &index, Type: "step_status_changed", From: "running", To: "succeeded", Message: "done",
		Metadata: []byte(`{"n": 1}`), Attempt: 2,
		WorkerID: "w", Actor: "kim",
	}
	run := &jobs.Event{Type: "status_changed", From: "running", To: "succeeded", EndsJob: true}
	b.process("p")
	late := end(b.claim("p"), storage.Finished, stepEvents(step, run))
	late.FencingToken++
	if _, err := b.SaveResult(late); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a late result: %v", err)
	}
	written("events of a late result", "")
	late.FencingToken--
	b.save(late)
	const both = `p pay 0 step_status_changed running succeeded 2 w kim done {"n": 1}; ` +
		`p status_changed running succeeded 0`
	written("events of a finished attempt", both)
	b.save(end(b.claim("p"), storage.Retry, stepEvents(&jobs.Event{RunID: "other", Type: "attempt_failed"}),
		func(c *storage.Completion) {
			c.RetryAfter = time.Hour
		}))
	written("events of an attempt that is retried", both+"; other attempt_failed 0")

	b.exec("DELETE FROM job_events")
	mode = storage.EventsEnds
	b.save(end(b.claim("p"), storage.Finished, stepEvents(step, run)))
	written("events in mode ENDS", "p status_changed running succeeded 0")
	mode = storage.EventsNone
	b.save(end(b.claim("p"), storage.Removed, stepEvents(run)))
	written("events in mode NONE", "p status_changed running succeeded 0")
}

// One transaction stores a result that would retry an attempt, and a cancel that ends the job of
// the attempt. The events of the job are consistent.
func TestEventsOfCancelWithRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		overdue bool
		ends    string
	}{
		{"the grace period is over", true, "cancel_grace_expired cancel_requested>cancelled"},
		{"another request", false, "cancelled cancel_requested>cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.OnEventMode(func(string) storage.EventMode { return storage.EventsAll })
			b.enqueue("j")
			claim := b.leased("j")
			b.cancelFor("j", 0)
			retry := end(claim, storage.Retry, of(&jobs.End{}, jobs.EndIfCancelled{}), func(c *storage.Completion) {
				c.RetryAfter, c.Record = time.Hour,
					&jobs.AttemptRecord{JobName: "j", Attempt: c.Attempt, Type: "attempt_failed"}
			})
			if err := b.SaveAndCancel(retry, c.overdue); err != nil {
				t.Fatal(err)
			}
			equal(t, "the events", ask[string](b,
				`SELECT string_agg(type || coalesce(' ' || from_status || '>' || to_status, ''), ', '
				ORDER BY event_id) FROM job_events WHERE from_status IS NOT NULL OR type = 'attempt_failed'`),
				"started available>running, cancel_requested running>cancel_requested, attempt_failed, "+c.ends)
			b.is("j", "CANCELLED e0: INIT CANCELLED")
		})
	}
}

// Events are deleted after their retention. Those of namespaces that keep them forever stay.
func TestForgetJobEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`INSERT INTO job_events (namespace, job_id, type, created_time)
		SELECT ns, 'j', 'x', now() - n * interval '1 hour'
		FROM unnest(ARRAY['short', 'long', 'ever']) ns, generate_series(20, 1, -1) n`)
	more, err := jobs.ForgetEvents(t.Context(), b.Store, map[string]time.Duration{
		"short": 5*time.Hour + time.Minute, "long": 15*time.Hour + time.Minute,
	})
	equal(t, "more", must(t, more, err), false)
	equal(t, "remaining events", ask[string](b,
		`SELECT string_agg(namespace || ' ' || n, ', ' ORDER BY n) FROM (SELECT namespace, count(*) AS n FROM job_events
			GROUP BY 1) x`),
		"short 5, long 15, ever 20")
}

// An erasure that an engine before schema version 153 began continues. The last key of its batch
// has a transaction ID in the place of the lane. Lanes are smaller numbers.
func TestEraseContinuesAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	set := erasure.Set{Namespace: ns, IDs: []string{"r"}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	b.exec(insertEvent, "enqueued")
	b.exec("UPDATE job_events SET namespace = $1, job_id = 'r'", ns)
	var progress erasure.Progress
	for table := ""; table != "job_keys"; { // the table before job_events
		batch, err := erasure.EraseRows(t.Context(), b.Store, set, &progress, erasure.PageRows)
		table = must(t, batch, err).Table
	}
	progress.After = ask[string](b, "SELECT jsonb_build_array(xid, event_id)::text FROM job_events")
	batch, err := erasure.EraseRows(t.Context(), b.Store, set, &progress, erasure.PageRows)
	equal(t, "batch", must(t, batch, err), erasure.Batch{Table: "job_events", Rows: 1, Read: 1})
	equal(t, "events", ask[int](b, "SELECT count(*) FROM job_events"), 0)
}
