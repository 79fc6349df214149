package jobs_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// inState waits until a job for several workers has a state, and checks that GetJob, ListJobs, the
// statistics and the view job_list agree.
func (n *node) inState(t *testing.T, id string, want progressorv1.JobState) *progressorv1.Job {
	t.Helper()
	job := n.job(t, "pull", id, want)
	state := strings.TrimPrefix(want.String(), "JOB_STATE_")
	for _, name := range []string{"AVAILABLE", "RUNNING", "CANCEL_REQUESTED"} {
		list, _, err := n.List(t.Context(), &progressorv1.ListJobsRequest{
			Namespace: "pull", Filter: fmt.Sprintf("state = %s AND name = work", name),
		})
		must(t, err)
		found := false
		for _, j := range list {
			found = found || j.GetJobId() == id
		}
		if found != (name == state) {
			t.Errorf("the list of %s jobs has %s: %v", name, id, found)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM job_list WHERE job_id = $1 AND state = $2", id, state); k != 1 {
		t.Errorf("job_list does not show %s as %s", id, state)
	}
	stats, err := n.Stats(t.Context(), "pull")
	must(t, err)
	counts := stats.GetCountByState()
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	if want := fmt.Sprintf("map[%s:1]", strings.ToLower(state)); fmt.Sprint(counts) != want {
		t.Errorf("counted %v, want %s", counts, want)
	}
	return job
}

// A job for several workers waits until a worker takes its first place, runs while a worker has
// one, and waits again when the last worker has released it.
func TestGroupRunsWithItsWorkers(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*progressorv1.JobOptions{"any": workers(2, 0), "named": workers(2, 0, "w1", "w2")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), scripted())
			n.enqueue(t, "pull", "two", o)
			n.members(t, "two", 2)
			job := n.inState(t, "two", available)
			wantBlockedOn(t, job, "workers: no worker runs the job; 2 of 2 places wait for a worker")
			if job.GetAttempt() != 0 || job.GetRunningTime() != nil {
				t.Errorf("the job has begun: %v", job)
			}
			a := n.leaseOne(t, "w1")
			if job := n.inState(t, "two", running); job.GetAttempt() != 1 || job.GetRunningTime() == nil {
				t.Errorf("the job has not started: %v", job)
			}
			b := n.leaseOne(t, "w2")
			must(t, n.ReleaseLeases(t.Context(), []string{a.GetLeaseToken()}, 0))
			n.inState(t, "two", running)
			must(t, n.ReleaseLeases(t.Context(), []string{b.GetLeaseToken()}, 0))
			if job := n.inState(t, "two", available); job.GetRunningTime() != nil {
				t.Errorf("running since %v", job.GetRunningTime())
			}
			must(t, n.succeed(n.leaseOne(t, "w2"), nil))
			n.inState(t, "two", running) // a worker has succeeded
			must(t, n.succeed(n.leaseOne(t, "w1"), nil))
			n.inState(t, "two", succeeded)
			want := "enqueued >available\nstarted available>running 1 w1\nwaiting running>available 1 no worker runs " +
				"it\n" +
				"started available>running 1 w2\nsucceeded running>succeeded 1"
			if got := n.history(t, "pull", "two"); got != want {
				t.Errorf("events:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The job also waits again when its last worker is lost or fails.
func TestGroupWaitsAfterItsLastWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(1, 1)
	o.LeaseDuration = durationpb.New(500 * time.Millisecond)
	n.enqueue(t, "pull", "one", o)
	n.members(t, "one", 1)
	n.beat(t, "w1", n.leaseOne(t, "w1"))
	n.inState(t, "one", running)
	n.inState(t, "one", available) // the lease has expired
	l := n.leaseOne(t, "w2")
	n.inState(t, "one", running)
	must(t, n.fail(l, "broken"))
	n.members(t, "one", 1) // another worker may run the member
	n.inState(t, "one", available)
	must(t, n.succeed(n.leaseOne(t, "w3"), nil))
	n.inState(t, "one", succeeded)
}

// Cancelling a job for several workers that no worker runs ends its members, and then the job.
func TestWaitingGroupIsCancelled(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "idle", workers(2, 0))
	n.members(t, "idle", 2)
	n.inState(t, "idle", available)
	_, err := n.Cancel(t.Context(), key("pull", "idle"), "not needed", kim)
	must(t, err)
	n.inState(t, "idle", cancelled)
	got := n.history(t, "pull", "idle")
	if !strings.HasPrefix(got, "enqueued >available\ncancel_requested available>cancel_requested") {
		t.Error(got)
	}

	n.enqueue(t, "pull", "busy", workers(2, 0))
	n.members(t, "busy", 2)
	l := n.leaseOne(t, "w1")
	_, err = n.Cancel(t.Context(), key("pull", "busy"), "not needed", kim)
	must(t, err)
	n.job(t, "pull", "busy", asked)
	if k := n.Count(t, "SELECT count(*) FROM job_list WHERE job_id = 'busy' AND state = 'CANCEL_REQUESTED'"); k != 1 {
		t.Error("job_list does not show the cancel request of busy")
	}
	enginetest.Eventually(t, testTimeout, "the worker is asked to end", func() bool {
		return n.beat(t, "w1", l).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
	must(t, n.ReleaseLeases(t.Context(), []string{l.GetLeaseToken()}, 0))
	n.job(t, "pull", "busy", cancelled)
}
