package crons_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// enqueues returns a cron whose runs are jobs for the workers of namespace "pull".
func enqueues(id string, o *progressorv1.JobOptions) *progressorv1.Cron {
	c := starts(id, never, "")
	job := &progressorv1.EnqueueJobTarget{
		Namespace: "pull", Name: "work", Args: structpb.NewStringValue("args of " + id), Options: o,
	}
	c.Target = &progressorv1.CronTarget{Target: &progressorv1.CronTarget_EnqueueJob{EnqueueJob: job}}
	return c
}

// startPull starts an engine that has the namespace of enqueues.
func startPull(t *testing.T) *node {
	t.Helper()
	n := start(t, storagetest.DSN(t))
	n.Put(t, &progressorv1.Namespace{
		Namespace: "pull",
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
		},
	})
	return n
}

func pulled(id string) process.Key { return process.Key{Namespace: "pull", ProcessID: id} }

// take leases the job of a run.
func (n *node) take(t testing.TB, run string) *progressorv1.Lease {
	t.Helper()
	leases, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", Max: 1, Wait: testTimeout,
	})
	if err != nil || len(leases) != 1 || leases[0].GetJob().GetJobId() != run {
		t.Fatalf("%v, %v; want %s", leases, err, run)
	}
	return leases[0]
}

func (n *node) answer(t testing.TB, l *progressorv1.Lease, failure *progressorv1.Failure) {
	t.Helper()
	r := &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}}}
	if failure != nil {
		r.Outcome = &progressorv1.ProcessResponse_Failure{Failure: failure}
	}
	if err := n.CompleteLease(t.Context(), l.GetLeaseToken(), engine.LeaseAnswer{Response: r}); err != nil {
		t.Fatal(err)
	}
}

// A job of a run has the time of its fire. When the job ends for the first time, the run ends,
// regardless of what happens to the job later.
func TestEndsOfJobs(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	metadata, _ := structpb.NewStruct(map[string]any{"team": "mail"})
	n.create(t, enqueues("good", &progressorv1.JobOptions{
		Priority: 3, MaxRetry: 2, Tags: []string{"x"}, KeepResult: true, Metadata: metadata,
	}))
	f := n.trigger(t, "good")
	run := f.GetProcessId()
	if run != "good/"+f.GetFireTime().AsTime().Format(time.RFC3339Nano) {
		t.Errorf("the run is %s", run)
	}
	l := n.take(t, run)
	job := l.GetJob()
	got := job.GetOptions()
	if job.GetArgs().GetStringValue() != "args of good" || job.GetName() != "work" || got.GetPriority() != 3 ||
		got.GetMaxRetry() != 2 || len(got.GetTags()) != 1 ||
		got.GetMetadata().AsMap()["team"] != "mail" || got.GetMetadata().AsMap()["progressor.cron_id"] != "good" ||
		got.GetMetadata().AsMap()["progressor.attempt"] != 1.0 {
		t.Errorf("the job: %v", job)
	}
	n.awaits(t, "good", "FIRED RUNNING 1")
	n.answer(t, l, nil)
	n.awaits(t, "good", "FIRED SUCCESS 1")
	if job, err := n.Jobs.Get(t.Context(), pulled(run), 0); err != nil ||
		job.GetState() != progressorv1.JobState_JOB_STATE_SUCCEEDED {
		t.Errorf("%v, %v", job, err)
	}
	for id, want := range map[string]struct {
		reason, ledger, detail string
	}{
		"fail":    {"broken", "FIRED FAILED 1", "as asked"},
		"timeout": {process.ReasonTimeout, "FIRED TIMEOUT 1", "as asked"},
	} {
		n.create(t, enqueues(id, nil))
		run := n.trigger(t, id).GetProcessId()
		n.answer(t, n.take(t, run), &progressorv1.Failure{Reason: want.reason, Message: "as asked"})
		if f := n.awaits(t, id, want.ledger)[0]; f.GetDetail() != want.detail {
			t.Errorf("%s: %v", id, f)
		}
		if _, err := n.Jobs.Retry(t.Context(), pulled(run), false); err != nil {
			t.Fatal(err)
		}
		n.answer(t, n.take(t, run), nil)
		if job, err := n.Jobs.Get(t.Context(), pulled(run), testTimeout); err != nil ||
			job.GetState() != progressorv1.JobState_JOB_STATE_SUCCEEDED {
			t.Errorf("%v, %v", job, err)
		}
	}
	n.create(t, enqueues("cancelled", nil))
	run = n.trigger(t, "cancelled").GetProcessId()
	n.awaitsJob(t, run)
	if _, err := n.Jobs.Cancel(t.Context(), pulled(run), "enough", kim); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "cancelled", "FIRED CANCELLED 1")
	n.create(t, enqueues("gone", nil))
	run = n.trigger(t, "gone").GetProcessId()
	n.awaitsJob(t, run)
	if err := n.RemoveProcess(t.Context(), pulled(run), kim); err != nil {
		t.Fatal(err)
	}
	if f := n.awaits(t, "gone", "FIRED FAILED 1")[0]; f.GetDetail() != "the process was removed" {
		t.Errorf("removed: %v", f)
	}
	// The results of the retried jobs have changed nothing.
	n.awaits(t, "fail", "FIRED FAILED 1")
	n.awaits(t, "timeout", "FIRED TIMEOUT 1")
}

// If no worker takes the job of a fire by its start deadline, the run is TIMEOUT.
func TestStartDeadlineOfAJob(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	n.create(t, enqueues("late", &progressorv1.JobOptions{StartDeadline: durationpb.New(10 * time.Millisecond)}))
	run := n.trigger(t, "late").GetProcessId()
	if f := n.awaits(t, "late", "FIRED TIMEOUT 1")[0]; !strings.HasPrefix(f.GetDetail(), "no attempt began by ") {
		t.Errorf("detail %q", f.GetDetail())
	}
	job, err := n.Jobs.Get(t.Context(), pulled(run), 0)
	if err != nil || job.GetState() != progressorv1.JobState_JOB_STATE_FAILED || len(job.GetFailures()) != 1 ||
		job.GetFailures()[0].GetReason() != process.ReasonStartDeadline {
		t.Errorf("%v, %v", job, err)
	}
}

// If a worker does not complete an attempt in time, the engine ends the attempt, and the run is
// TIMEOUT. A later answer of the worker is rejected.
func TestTimeoutOfAJob(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	n.create(t, enqueues("silent", &progressorv1.JobOptions{Timeout: durationpb.New(time.Hour)}))
	run := n.trigger(t, "silent").GetProcessId()
	l := n.take(t, run)
	n.awaits(t, "silent", "FIRED RUNNING 1")
	storagetest.Exec(t, n.DB,
		"UPDATE running SET deadline = now() - interval '1 millisecond' WHERE process_id = $1", run)
	n.awaits(t, "silent", "FIRED TIMEOUT 1")
	job, err := n.Jobs.Get(t.Context(), pulled(run), 0)
	if err != nil || job.GetState() != progressorv1.JobState_JOB_STATE_FAILED || len(job.GetFailures()) != 1 ||
		job.GetFailures()[0].GetReason() != process.ReasonTimeout {
		t.Errorf("%v, %v", job, err)
	}
	answer := engine.LeaseAnswer{
		Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
		},
	}
	if err := n.CompleteLease(t.Context(), l.GetLeaseToken(), answer); !errors.Is(err, process.ErrFenced) {
		t.Errorf("an answer after the timeout: %v", err)
	}
	n.awaits(t, "silent", "FIRED TIMEOUT 1")
}

// awaitsJob waits until a job exists.
func (n *node) awaitsJob(t testing.TB, run string) {
	t.Helper()
	eventually(t, run+" is enqueued", func() bool {
		return n.Count(t, "SELECT count(*) FROM jobs WHERE process_id = $1", run) == 1
	})
}

// The first of two runs is still running. With SKIP the second one is not created. With CANCEL_PREV
// the worker of the first one is asked to stop, and a waiting job becomes CANCELLED immediately.
func TestOverlapOfJobs(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	n.create(t, enqueues("skip", nil))
	l := n.take(t, n.trigger(t, "skip").GetProcessId())
	n.trigger(t, "skip")
	n.awaits(t, "skip", "FIRED RUNNING 1, SKIPPED_CONCURRENCY SKIPPED")
	n.answer(t, l, nil)
	n.awaits(t, "skip", "FIRED SUCCESS 1, SKIPPED_CONCURRENCY SKIPPED")

	again := func(id string) *progressorv1.Fire {
		t.Helper()
		f, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{
			Namespace: "ns", CronId: id, OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV,
		}, kim)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	n.create(t, enqueues("prev", nil))
	first := n.trigger(t, "prev").GetProcessId()
	l = n.take(t, first)
	second := again("prev").GetProcessId()
	eventually(t, "the worker gets the cancel", func() bool {
		d, err := n.BeatLeases(t.Context(), &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.GetLeaseToken()}},
		})
		return err == nil && d[0].GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL &&
			strings.Contains(d[0].GetCancelReason(), "run")
	})
	why := "at the checkpoint"
	if err := n.CompleteLease(t.Context(), l.GetLeaseToken(), engine.LeaseAnswer{Acknowledged: &why}); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED RUNNING 1")
	n.awaitsJob(t, second)
	third := again("prev").GetProcessId()
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED CANCELLED 1, FIRED RUNNING 1")
	n.answer(t, n.take(t, third), nil)
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED CANCELLED 1, FIRED SUCCESS 1")
	if k := n.Count(t, "SELECT count(*) FROM tasks WHERE task_type = 'CANCEL' AND namespace = 'pull'"); k != 0 {
		t.Errorf("%d CANCEL tasks", k)
	}
}

// A run that exceeds the timeout of its cron is TIMEOUT, and its job is cancelled. A run is FAILED
// if another job has its unique key.
func TestJobsThatDoNotRun(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	c := enqueues("slow", nil)
	c.Policy.Timeout = durationpb.New(100 * time.Millisecond)
	n.create(t, c)
	run := n.trigger(t, "slow").GetProcessId()
	n.awaits(t, "slow", "FIRED TIMEOUT 1")
	eventually(t, "its job is cancelled", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status = 'CANCELLED'", run) == 1
	})
	holder := enqueues("holder", &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}})
	n.create(t, holder)
	run = n.trigger(t, "holder").GetProcessId()
	n.awaitsJob(t, run)
	n.create(t, enqueues("twin", &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}}))
	n.trigger(t, "twin")
	f := n.awaits(t, "twin", "FIRED FAILED 1")[0]
	if !strings.Contains(f.GetDetail(), "job "+run+" holds its unique key") {
		t.Errorf("twin: %v", f)
	}
	n.answer(t, n.take(t, run), nil)
	n.trigger(t, "twin")
	n.awaits(t, "twin", "FIRED FAILED 1, FIRED RUNNING 1")
}
