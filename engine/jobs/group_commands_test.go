package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A cancel immediately ends waiting members and asks running ones to end. The job ends when all
// members have ended. After the grace period, the engine ends the job. If enough members have
// succeeded, the job has succeeded.
func TestCancelGroup(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(2, 0)
	o.CancelGrace = durationpb.New(time.Hour)
	n.enqueue(t, "pull", "asked", o)
	n.members(t, "asked", 2)
	l := n.leaseOne(t, "w1")
	if job, err := n.Cancel(t.Context(), key("pull", "asked"), "enough", process.Actor{}); err != nil ||
		job.GetState() != asked || job.GetCancelReason() != "enough" {
		t.Fatalf("%v, %v", job, err)
	}
	enginetest.Eventually(t, testTimeout, "w1 gets the cancel", func() bool {
		d := n.beat(t, "w1", l)
		return d.GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL && d.GetCancelReason() == "enough"
	})
	if leases := n.leaseAll(t, "w2"); len(leases) != 0 {
		t.Errorf("a member of a job that is being cancelled was leased: %v", leases)
	}
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, n.job(t, "pull", "asked", cancelled), " cancelled 0, w1 cancelled 1 broken")

	for _, suspended := range []bool{false, true} { // no worker has taken a place
		id := fmt.Sprint("waits ", suspended)
		n.enqueue(t, "pull", id, workers(2, 0))
		n.members(t, id, 2)
		if suspended {
			if _, err := n.SuspendProcess(t.Context(), key("pull", id), "", process.Actor{}); err != nil {
				t.Fatal(err)
			}
			if leases := n.leaseAll(t, "w3"); len(leases) != 0 {
				t.Errorf("a suspended job is handed out: %v", leases)
			}
		}
		if _, err := n.Cancel(t.Context(), key("pull", id), "", process.Actor{}); err != nil {
			t.Fatal(err)
		}
		n.job(t, "pull", id, cancelled)
		n.members(t, id, 0)
	}

	o.CancelGrace = durationpb.New(0)
	n.enqueue(t, "pull", "ignored", o)
	n.members(t, "ignored", 2)
	l = n.leaseOne(t, "w1")
	if _, err := n.Cancel(t.Context(), key("pull", "ignored"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "ignored", cancelled)
	enginetest.Eventually(t, testTimeout, "the worker has lost its lease", func() bool {
		return n.beat(t, "w1", l).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_LOST
	})

	o = workers(1, 0)
	n.enqueue(t, "pull", "quicker", o)
	l = n.leaseOne(t, "w1")
	if _, err := n.Cancel(t.Context(), key("pull", "quicker"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(l, result("w1")); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "quicker", succeeded)
}

// A suspended job continues when it is resumed, with the results that its members have sent in the
// meantime. If it is removed, its members are asked to end.
func TestGroupSuspendedAndRemoved(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "held", workers(2, 0))
	n.members(t, "held", 2)
	l := n.leaseOne(t, "w1")
	if _, err := n.SuspendProcess(t.Context(), key("pull", "held"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	if leases := n.leaseAll(t, "w2"); len(leases) != 0 {
		t.Errorf("a suspended job is handed out: %v", leases)
	}
	if _, err := n.ResumeProcess(t.Context(), key("pull", "held"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	l = n.leaseOne(t, "w2")
	if err := n.RemoveProcess(t.Context(), key("pull", "held"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, testTimeout, "w2 is asked to end", func() bool {
		return n.beat(t, "w2", l).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	// A new job with the same ID is independent of the remaining members of the first.
	enginetest.Eventually(t, testTimeout, "the ID of the job is free", func() bool {
		_, err := n.Enqueue(context.Background(), &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: "held", Name: "work", Options: workers(1, 0),
		})
		return err == nil
	})
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "held", succeeded)
}

// The allowed workers change. A worker that is no longer allowed loses its lease without a failed
// attempt, and another worker gets its place.
func TestUpdateGroup(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "g", workers(1, 0, "w1"))
	l := n.leaseOne(t, "w1")
	update := func(o *progressorv1.JobOptions, mask ...string) error {
		_, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
			Namespace: "pull", JobId: "g", Options: o, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask},
		})
		return err
	}
	if err := update(workers(1, 0, "w2"), "workers"); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, testTimeout, "w1 has lost its lease", func() bool {
		return n.beat(t, "w1", l).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_LOST
	})
	l = n.leaseOne(t, "w2")
	wantRuns(t, n.job(t, "pull", "g", running), "w2 running 1")
	if err := update(workers(2, 1), "workers"); err != nil {
		t.Fatal(err)
	}
	n.members(t, "g", 2)
	if err := update(&progressorv1.JobOptions{
		Priority: 7, Timeout: durationpb.New(time.Minute),
	}, "priority", "timeout"); err != nil {
		t.Fatal(err)
	}
	second := n.leaseOne(t, "w1")
	if o := second.GetJob().GetOptions(); o.GetPriority() != 7 || o.GetTimeout().AsDuration() != time.Minute {
		t.Errorf("%v", o)
	}
	if err := update(workers(1, 1), "workers"); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, testTimeout, "w1 is one too many", func() bool {
		return n.beat(t, "w1", second).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "g", succeeded)
	n.enqueue(t, "pull", "one", nil)
	for id, o := range map[string]*progressorv1.JobOptions{"one": workers(1, 0), "g": {}} {
		_, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
			Namespace: "pull", JobId: id, Options: o, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"workers"}},
		})
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "options.workers" {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// Each member needs the keys of constraints, but the job itself does not.
func TestGroupUnderConstraint(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	if _, err := n.PutConstraint(t.Context(), &progressorv1.Constraint{
		Namespace: "pull", Name: "two", Match: "true", MaxRunning: 2,
	}); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "three", workers(3, 0))
	n.members(t, "three", 2)
	a, b := n.leaseOne(t, "w1"), n.leaseOne(t, "w2")
	if leases := n.leaseAll(t, "w3"); len(leases) != 0 {
		t.Errorf("a third member runs: %v", leases)
	}
	if _, err := n.PutConstraint(t.Context(), &progressorv1.Constraint{
		Namespace: "pull", Name: "other", Match: "true", MaxRunning: 5,
	}); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*progressorv1.Lease{a, b, nil} {
		if l == nil {
			l = n.leaseOne(t, "w3")
		}
		if err := n.succeed(l, nil); err != nil {
			t.Fatal(err)
		}
	}
	n.job(t, "pull", "three", succeeded)
}

// A delayed group has no members before its run time. UpdateJob can move the run time.
func TestGroupLater(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(1, 0)
	o.RunTime = nil
	n.enqueue(t, "pull", "later", &progressorv1.JobOptions{
		Workers: o.GetWorkers(), RunTime: timestamppb.New(time.Now().Add(time.Hour)),
	})
	n.job(t, "pull", "later", progressorv1.JobState_JOB_STATE_SCHEDULED)
	if k := n.Count(t, "SELECT count(*) FROM job_places"); k != 0 {
		t.Errorf("%d places", k)
	}
	if _, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "later",
		Options:    &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(100 * time.Millisecond))},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"run_time"}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "later", succeeded)
}

// Invalid options are rejected with the name of the field.
func TestGroupRefused(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for want, r := range map[string]*progressorv1.EnqueueRequest{
		"options.workers.count":         {Namespace: "pull", Name: "work", Options: workers(3, 0, "w1", "w2")},
		"options.workers.worker_ids[2]": {Namespace: "pull", Name: "work", Options: workers(1, 0, "w1", "w2", "w1")},
		"options.workers":               {Namespace: "ns", Name: "work", Options: workers(1, 0)},
	} {
		_, err := n.Enqueue(t.Context(), r)
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM processes"); k != 0 {
		t.Errorf("%d processes", k)
	}
}

// A paused namespace accepts jobs for several workers. They run once it is resumed.
func TestGroupInAPausedNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	if _, err := n.SetNamespacePaused(t.Context(), "pull", true, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "j", workers(1, 0))
	if got := n.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("handed out: %v", got)
	}
	if _, err := n.SetNamespacePaused(t.Context(), "pull", false, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", succeeded)
}
