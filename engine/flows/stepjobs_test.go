package flows_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestStepJobIsCancelled cancels the jobs of steps directly. If the run did not ask a job to end,
// the step or item of the job fails. A cancelled compensation does not change the status of its
// step.
func TestStepJobIsCancelled(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "jobs", "steps": [{"step_id": "a", "job": {}, "compensation": {"name": "undo"}},
		{"step_id": "list", "ignore_failure": true, "for_each": {"items": "[1, 2]"}, "job": {}},
		{"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "jobs", "r1", "")
	cancel := func(name string) {
		t.Helper()
		key := process.Key{Namespace: "pull", ProcessID: process.StepPrefix + "r1/" + name}
		if _, err := n.Jobs.Cancel(context.Background(), key, "not wanted", kim); err != nil {
			t.Fatal(err)
		}
	}
	n.answer(t, n.lease(t, "a"), "1", "")
	n.until(t, "pull", "r1", "RUNNING: a SUCCEEDED list RUNNING")
	l := n.lease(t, "list")
	n.answer(t, l, "1", "")
	cancel("list.1")
	same(t, runSummary(n.until(t, "pull", "r1", "QUEUED: a SUCCEEDED list FAILED b PENDING")),
		"QUEUED: a SUCCEEDED list FAILED b PENDING")
	cancel("b")
	n.until(t, "pull", "r1", "COMPENSATING")
	cancel("a.undo")
	r := n.ended(t, "pull", "r1")
	same(t, runSummary(r)+": "+r.GetFailure().GetMessage(),
		"FAILED: a SUCCEEDED undo CANCELLED list FAILED b FAILED: step b was cancelled")
}

// TestStepJobIsLate checks that a step fails if no worker takes its job by the start deadline.
func TestStepJobIsLate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "jobs",
		"steps": [{"step_id": "a", "job": {"options": {"start_deadline": "0.01s", "max_retry": 3}}}]}`)
	n.run(t, "pull", "jobs", "r1", "")
	r := n.ended(t, "pull", "r1")
	same(t, runSummary(r)+": "+r.GetFailure().GetReason(), "FAILED: a FAILED: start_deadline")
}

// TestStepOfAPausedName checks that a step waits while the name of its job is paused, even if the
// node has a free slot.
func TestStepOfAPausedName(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	if _, err := n.Jobs.PauseName(t.Context(), "ns", "second", "not now"); err != nil {
		t.Fatal(err)
	}
	n.put(t, "ns", `{"type": "jobs", "steps": [{"step_id": "a", "job": {"name": "first"}},
		{"step_id": "b", "job": {"name": "second"}}]}`)
	n.run(t, "ns", "jobs", "r1", "")
	n.until(t, "ns", "r1", "QUEUED: a SUCCEEDED b PENDING")
	n.run(t, "ns", "jobs", "r2", "")
	n.until(t, "ns", "r2", "QUEUED: a SUCCEEDED b PENDING")
	if _, err := n.Jobs.ResumeName(t.Context(), "ns", "second"); err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(n.ended(t, "ns", "r1")), "SUCCEEDED: a SUCCEEDED b SUCCEEDED")
}

// TestStepJobIsUpdated checks that an option of a step's job can be changed.
func TestStepJobIsUpdated(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "jobs", "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "jobs", "r1", "")
	if _, err := n.Jobs.Update(context.Background(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "~job/r1/a", Options: &progressorv1.JobOptions{Tags: []string{"eu"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"tags"}},
	}, kim); err != nil {
		t.Fatal(err)
	}
	l := n.lease(t, "a")
	if tags := l.GetJob().GetOptions().GetTags(); len(tags) != 1 || tags[0] != "eu" {
		t.Fatalf("tags %v, want eu", tags)
	}
	n.answer(t, l, "1", "")
	same(t, runSummary(n.ended(t, "pull", "r1")), "SUCCEEDED: a SUCCEEDED")
}

// TestStepJobHasAFairnessKey checks that the fairness key of the namespace is evaluated for the job
// of a step. The key may contain the ID of the run, which is in the metadata of the job.
func TestStepJobHasAFairnessKey(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	if _, err := n.PutNamespace(t.Context(), &progressorv1.Namespace{
		Namespace: "pull", FairnessKey: `job.metadata["progressor.run_id"] + " " + job.name`,
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	n.put(t, "pull", `{"type": "jobs", "steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "jobs", "r1", "")
	for _, step := range []string{"a", "b"} {
		var key string
		var round int64
		enginetest.Eventually(t, testTimeout, "the job of "+step+" waits", func() bool {
			err := n.DB.QueryRow(t.Context(),
				"SELECT coalesce(fairness_key, ''), round FROM schedule WHERE process_id = $1",
				"~job/r1/"+step).Scan(&key, &round)
			return err == nil
		})
		if key != "r1 "+step || round != 1 {
			t.Errorf("step %s has the key %q and round %d", step, key, round)
		}
		n.answer(t, n.lease(t, step), "1", "")
	}
	same(t, runSummary(n.ended(t, "pull", "r1")), "SUCCEEDED: a SUCCEEDED b SUCCEEDED")
}

// TestStepOfNamedWorkers checks a step whose job names several workers and needs one of them. The
// step is RUNNING while a worker has a lease on the job, and PENDING otherwise. Lists and SQL
// agree.
func TestStepOfNamedWorkers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "jobs",
		"steps": [{"step_id": "a", "job": {"options": {"workers": {"worker_ids": ["w", "x"]}}}},
		{"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "jobs", "r1", "")
	shown := func(run, step string) *progressorv1.Run {
		t.Helper()
		r := n.until(t, "pull", "r1", run+": a "+step)
		list, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{
			Namespace: "pull", Filter: "status = " + run,
		})
		if err != nil || len(list) != 1 || list[0].GetStatus() != r.GetStatus() || list[0].GetPhase() != "a" {
			t.Errorf("the list of %s runs has %v, %v", run, list, err)
		}
		const views = `SELECT count(*) FROM run_list r JOIN step_list s USING (namespace, run_id)
			WHERE r.status = $1 AND s.step_id = 'a' AND s.status = $2 AND (s.running_time IS NULL) =
			  (s.status = 'PENDING')`
		if k := n.Count(t, views, run, step); k != 1 {
			t.Errorf("the views do not show %s, %s", run, step)
		}
		return r
	}
	shown("QUEUED", "PENDING")
	l := n.lease(t)
	if r := shown("RUNNING", "RUNNING"); r.GetSteps()[0].GetRunningTime() == nil {
		t.Errorf("step has no running_time: %v", r.GetSteps()[0])
	}
	if err := n.ReleaseLeases(t.Context(), []string{l.GetLeaseToken()}, 0); err != nil {
		t.Fatal(err)
	}
	shown("QUEUED", "PENDING")
	l = n.lease(t)
	shown("RUNNING", "RUNNING")
	n.answer(t, l, "1", "")
	n.until(t, "pull", "r1", "QUEUED: a SUCCEEDED b PENDING")
}
