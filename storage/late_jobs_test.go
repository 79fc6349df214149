package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
)

// startsWithin gives a job a start deadline of an hour after its run time.
func startsWithin(j *jobs.NewJob) { j.Options = []byte(`{"startDeadline": "3600s"}`) }

// inAnHour sets the run time of a job to an hour from now.
func inAnHour(j *jobs.NewJob) { j.Delay = time.Hour }

// delay moves the times of all waiting tasks, as if they had waited for three hours.
func (b *bench) delay() {
	b.t.Helper()
	b.exec(`UPDATE schedule SET scheduled_time = scheduled_time - interval '3 hours',
		start_deadline = start_deadline - interval '3 hours'`)
}

// claimable returns the jobs that claims of each kind take, and releases them.
func (b *bench) claimable() string {
	b.t.Helper()
	subscription := pull.Subscription{Namespace: ns, StepTimeout: timeout, Lease: time.Hour, MaxLease: time.Hour}
	var ids []string
	for _, name := range []string{"", "late", "in time"} {
		for _, grouped := range []bool{false, true} {
			subscription.JobName = name
			n, err := pull.CountPollable(b.t.Context(), b.Store, []pull.Subscription{subscription}, 10)
			must(b.t, n, err)
			leases, err := pull.Poll(b.t.Context(), b.Store, "w", []pull.Subscription{subscription}, 10, grouped)
			must(b.t, leases, err)
			equal(b.t, fmt.Sprintf("pollable jobs %q", name), n[0], len(leases))
			for _, l := range leases {
				ids = append(ids, l.Claim.ProcessID)
				b.release(&l.Claim)
			}
		}
	}
	room := []storage.ClaimLimit{{Namespace: ns, Max: 10, StepTimeout: timeout}}
	claims, err := b.SearchCalls(b.t.Context(), room)
	must(b.t, claims, err)
	for n := range claims {
		ids = append(ids, claims[n].ProcessID)
		b.release(&claims[n])
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
}

// release returns a claimed job, as a worker does. The attempt is not counted.
func (b *bench) release(c *storage.Claim) {
	b.t.Helper()
	b.save(end(c, storage.Retry, func(c *storage.Completion) {
		c.Uncounted, c.Leased, c.Promote, c.EffectsOnEnd = true, true, false, []storage.Effect{jobs.EndIfCancelled{}}
	}))
}

// late ends late jobs, and returns them.
func (b *bench) late() (list []string) {
	b.t.Helper()
	done, err := jobs.EndLateJobs(b.t.Context(), b.Store, 10, func(j *jobs.LateJob) jobs.LateEnd {
		equal(b.t, "the wait", j.StartDeadline.Sub(j.ScheduledTime), time.Hour)
		return jobs.LateEnd{Failure: []byte(`{"reason": "start_deadline"}`), Message: "late"}
	})
	must(b.t, done, err)
	for _, j := range done.Ended {
		list = append(list, j.ProcessID)
	}
	slices.Sort(list)
	return list
}

// No kind of claim takes a job after its start deadline. A job keeps the deadline when its attempt
// is released.
func TestClaimsSkipLateJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue("late", startsWithin)
	b.enqueue("in time", func(j *jobs.NewJob) { j.Options = []byte(`{"startDeadline": "86400s"}`) })
	equal(t, "claimed before", b.claimable(), "[in time in time in time in time in time late late late late late]")
	b.delay()
	equal(t, "claimed after", b.claimable(), "[in time in time in time in time in time]")
	b.enqueue("due", startsWithin, inAnHour)
	b.delay()
	claims, _, err := b.SearchTimers(t.Context(), []storage.ClaimLimit{
		{Namespace: ns, Max: 10, StepTimeout: timeout},
	})
	equal(t, "due jobs that were claimed", len(must(t, claims, err)), 0)
	released, err := b.ReleaseTimers(t.Context(), []string{ns})
	must(t, released, err)
	equal(t, "claimed when due", b.claimable(), "[in time in time in time in time in time]")
	equal(t, "late jobs", fmt.Sprint(b.late()), "[due late]")
}

// A late job ends like a failed job: its task ends, its failure is stored, the counts change, and a
// process that waits for the job gets a message. Only late jobs end, and each only once.
func TestEndLateJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.enqueue("scheduled", startsWithin, inAnHour)
	b.enqueue("suspended", startsWithin)
	b.suspend("suspended")
	b.enqueue("placed", startsWithin)
	b.enqueue("leased", startsWithin)
	leased := b.leased("leased")
	b.enqueue("without")
	states, err := b.ReadNamespaceStates(t.Context())
	equal(t, "a job is late", must(t, states, err)[0].Late, false)
	equal(t, "late jobs", fmt.Sprint(b.late()), "[]")
	b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args) VALUES
		($1, 'placed', $1, 'parent', '')`, ns)
	b.delay()
	states, err = b.ReadNamespaceStates(t.Context())
	equal(t, "a job is late", must(t, states, err)[0].Late, true)
	equal(t, "late jobs", fmt.Sprint(b.late()), "[placed scheduled suspended]")
	equal(t, "late jobs", fmt.Sprint(b.late()), "[]")
	for _, id := range []string{"scheduled", "suspended", "placed"} {
		equal(t, id, ask[string](b, `SELECT concat_ws(' ', p.status, p.detail, t.status, t.attempt,
			t.failure->>'reason', j.failures->0->>'attempt', p.corrupted_by = t.task_id)
			FROM processes p JOIN tasks t USING (namespace, process_id) JOIN jobs j USING (namespace, process_id)
			WHERE process_id = $1`, id), "ERROR late ERROR 0 start_deadline 0 t")
		equal(t, id, b.counted(id), "failed 1")
	}
	equal(t, "the message", ask[string](b,
		"SELECT kind || ' ' || (child->>'status') FROM messages WHERE process_id = 'parent'"),
		"child_end PROCESS_STATUS_ERROR")
	b.release(leased)
	equal(t, "the deadline after a release",
		ask[bool](b, `SELECT start_deadline = scheduled_time + interval '1 hour' FROM schedule
			WHERE process_id = 'leased'`), true)
	claim := b.leased("leased")
	b.save(end(claim, storage.Retry, of(&jobs.End{Failure: []byte(`{"reason": "no"}`)}, jobs.EndIfCancelled{})))
	equal(t, "the deadline of a second attempt",
		ask[bool](b, "SELECT start_deadline IS NULL FROM schedule WHERE process_id = 'leased'"), true)
}
