package jobs_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// GetWorker returns the leases of a worker in a namespace, oldest first, with the progress that the
// worker has reported. It omits lost leases and the leases of others.
func TestGetWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.Namespace = "pull2" }))
	n.enqueue(t, "pull", "first", nil)
	first := n.leaseOne(t, "w1")
	n.enqueue(t, "pull", "of-another", nil)
	n.leaseOne(t, "w2")
	n.enqueue(t, "pull", "ended", nil)
	must(t, n.succeed(n.leaseOne(t, "w1"), nil))
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "order"), Accepted: true})
	must(t, err)
	n.leaseOne(t, "w1")
	n.enqueue(t, "pull2", "elsewhere", nil)
	got, err := n.Poll(t.Context(), pull.PollParams{Namespaces: []string{"pull2"}, WorkerID: "w1", Max: 1})
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	_, err = n.BeatLeases(t.Context(), &progressorv1.HeartbeatRequest{
		WorkerId: "w1", Beats: []*progressorv1.LeaseBeat{{
			LeaseToken: first.GetLeaseToken(),
			Progress:   &progressorv1.Progress{Percent: 42, Summary: strings.Repeat("ä", 1001)},
		}},
	})
	must(t, err)
	n.enqueue(t, "pull", "lost", nil)
	n.leaseOne(t, "w1")
	n.exec(t, "UPDATE leases SET fencing_token = -fencing_token WHERE process_id = 'lost'")
	defer n.exec(t, "UPDATE leases SET fencing_token = -fencing_token WHERE process_id = 'lost'")

	resp, err := n.GetWorker(t.Context(), &progressorv1.GetWorkerRequest{Namespace: "pull", WorkerId: "w1"})
	must(t, err)
	leases := resp.GetLeases()
	if resp.GetWorker().GetLeases() != 3 || resp.GetMoreLeases() || len(leases) != 2 {
		t.Fatalf("%v", resp)
	}
	if l := leases[0]; l.GetProcessId() != "first" || l.GetJobName() != "work" || l.GetAttempt() != 1 ||
		l.GetProgress().GetPercent() != 42 || l.GetProgress().GetSummary() != strings.Repeat("ä", 1000) ||
		l.GetHeartbeatTime() == nil || !l.GetLeasedTime().AsTime().Equal(first.GetLeasedTime().AsTime()) ||
		time.Until(l.GetExpiresTime().AsTime()) <= 0 || l.GetDeadline() == nil {
		t.Errorf("%v", l)
	}
	if l := leases[1]; l.GetProcessId() != "order" || l.GetJobName() != "" || l.GetProgress() != nil ||
		l.GetTaskType() != progressorv1.TaskType_TASK_TYPE_INIT || l.GetHeartbeatTime() != nil || l.GetTaskId() == 0 {
		t.Errorf("%v", l)
	}
	resp, err = n.GetWorker(t.Context(),
		&progressorv1.GetWorkerRequest{Namespace: "pull", WorkerId: "w1", MaxLeases: 1})
	if err != nil || !resp.GetMoreLeases() || len(resp.GetLeases()) != 1 ||
		resp.GetLeases()[0].GetProcessId() != "first" {
		t.Errorf("%v, %v", resp, err)
	}
	_, err = n.GetWorker(t.Context(), &progressorv1.GetWorkerRequest{Namespace: "pull", WorkerId: "w3"})
	if !errors.Is(err, process.ErrWorkerNotFound) {
		t.Errorf("%v", err)
	}
}

// If several workers run a job, the lease of each member shows the ID of the job.
func TestLeaseOfAMember(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "group", workers(2, 0))
	n.members(t, "group", 2)
	n.leaseOne(t, "w1")
	resp, err := n.GetWorker(t.Context(), &progressorv1.GetWorkerRequest{Namespace: "pull", WorkerId: "w1"})
	if err != nil || len(resp.GetLeases()) != 1 || resp.GetLeases()[0].GetProcessId() != "group" ||
		resp.GetLeases()[0].GetJobName() != "work" {
		t.Errorf("%v, %v", resp, err)
	}
}

// The filter worker_id of ListJobs finds the jobs with this worker_id: those that the worker runs
// or has ended, and those whose last attempt the worker made.
func TestJobsOfAWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	// No failed job is due again during the test.
	anHour := &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}}
	wants := map[string]string{}
	add := func(id, worker string, do func(*progressorv1.Lease) error) {
		t.Helper()
		n.enqueue(t, "pull", id, &progressorv1.JobOptions{MaxRetry: 1, Backoff: anHour})
		must(t, do(n.leaseOne(t, worker)))
		wants[id] = worker
	}
	runs := func(*progressorv1.Lease) error { return nil }
	succeeds := func(l *progressorv1.Lease) error { return n.succeed(l, nil) }
	fails := func(l *progressorv1.Lease) error { return n.fail(l, "no") }
	add("runs", "host-1", runs)
	add("succeeded", "host-1", succeeds)
	add("in-backoff", "host-1", fails)
	add("runs-elsewhere", "host-2", runs)
	add("retried", "host-2", func(l *progressorv1.Lease) error {
		must(t, n.fail(l, "no"))
		_, err := n.Retry(t.Context(), key("pull", "retried"), false, process.Actor{})
		must(t, err)
		n.leaseOne(t, "host-3")
		return nil
	})
	wants["retried"] = "host-3"
	add("retried-in-backoff", "host-2", func(l *progressorv1.Lease) error {
		must(t, n.fail(l, "no"))
		_, err := n.Retry(t.Context(), key("pull", "retried-in-backoff"), false, process.Actor{})
		must(t, err)
		must(t, n.fail(n.leaseOne(t, "host-2"), "no"))
		_, err = n.Retry(t.Context(), key("pull", "retried-in-backoff"), false, process.Actor{})
		must(t, err)
		return n.fail(n.leaseOne(t, "host-3"), "no")
	})
	wants["retried-in-backoff"] = "host-3"
	n.enqueue(t, "pull", "waits", nil)
	for filter, holds := range map[string]func(string) bool{
		"worker_id = host-1":  func(w string) bool { return w == "host-1" },
		"worker_id = host-3":  func(w string) bool { return w == "host-3" },
		"worker_id = host-*":  func(w string) bool { return w != "" },
		"worker_id != host-1": func(w string) bool { return w != "host-1" },
	} {
		list, _, err := n.List(t.Context(), &progressorv1.ListJobsRequest{Namespace: "pull", Filter: filter})
		must(t, err)
		found := map[string]bool{}
		for _, j := range list {
			found[j.GetJobId()] = true
			if j.GetWorkerId() != wants[j.GetJobId()] {
				t.Errorf("%s has the worker %q, want %q", j.GetJobId(), j.GetWorkerId(), wants[j.GetJobId()])
			}
		}
		for _, id := range slices.Concat(slices.Collect(maps.Keys(wants)), []string{"waits"}) {
			if found[id] != holds(wants[id]) {
				t.Errorf("%q: found %s: %v", filter, id, found[id])
			}
		}
	}
}
