package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const scheduled = progressorv1.JobState_JOB_STATE_SCHEDULED

// debounce enqueues a job that replaces the job with the same unique key.
func (n *node) debounce(
	t testing.TB, id, args string, delay time.Duration, scope progressorv1.UniqueScope, keys ...string,
) *progressorv1.EnqueueResponse {
	t.Helper()
	r := &progressorv1.EnqueueRequest{
		Namespace: "pull", JobId: id, Name: "work", Args: structpb.NewStringValue(args),
		Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k", Scope: scope, Replace: true}},
	}
	if delay > 0 {
		r.Delay = durationpb.New(delay)
	}
	if len(keys) > 0 {
		r.IdempotencyKey = keys[0]
	}
	resp, err := n.Enqueue(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A second Enqueue replaces the args and the time of the first job while that job waits. While the
// first job runs, a second job waits with the scope WAITING, and nothing is replaced with the scope
// ACTIVE.
func TestUniqueReplace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	waiting, active := progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING, progressorv1.UniqueScope_UNIQUE_SCOPE_ACTIVE
	r := n.debounce(t, "a", "1", time.Hour, waiting)
	if !r.GetEnqueued() || r.GetReplaced() || r.GetJob().GetState() != scheduled {
		t.Fatalf("%v", r)
	}
	r = n.debounce(t, "b", "2", 3*time.Hour, waiting)
	if r.GetEnqueued() || !r.GetReplaced() || r.GetJob().GetJobId() != "a" ||
		r.GetJob().GetArgs().GetStringValue() != "2" ||
		time.Until(r.GetJob().GetRunTime().AsTime()) < 2*time.Hour {
		t.Fatalf("%v", r)
	}
	if r := n.debounce(t, "c", "3", 0, waiting); !r.GetReplaced() || r.GetJob().GetState() != available {
		t.Fatalf("%v", r)
	}
	l := n.leaseOne(t, "w1")
	if l.GetJob().GetJobId() != "a" || l.GetJob().GetArgs().GetStringValue() != "3" {
		t.Fatalf("%v", l)
	}
	if r := n.debounce(t, "d", "4", 0, active); r.GetEnqueued() || r.GetReplaced() || r.GetJob().GetJobId() != "a" {
		t.Errorf("%v", r)
	}
	if r := n.debounce(t, "e", "5", 0, waiting); !r.GetEnqueued() || r.GetJob().GetJobId() != "e" {
		t.Errorf("%v", r)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	if job := n.job(t, "pull", "a", succeeded); job.GetArgs().GetStringValue() != "3" {
		t.Errorf("%v", job)
	}
	if k := n.Count(t, "SELECT count(*) FROM job_events WHERE job_id = 'a' AND type = 'updated'"); k != 2 {
		t.Errorf("%d events", k)
	}
}

// A repeated request with an idempotency key does not replace later changes.
func TestUniqueReplaceRepeated(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	waiting := progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING
	n.debounce(t, "", "1", time.Hour, waiting, "first")
	n.debounce(t, "", "2", time.Hour, waiting, "second")
	n.debounce(t, "", "3", time.Hour, waiting, "third")
	for _, again := range [][2]string{{"1", "first"}, {"2", "second"}} {
		r := n.debounce(t, "", again[0], time.Hour, waiting, again[1])
		if r.GetEnqueued() || r.GetReplaced() || r.GetJob().GetArgs().GetStringValue() != "3" {
			t.Errorf("%v: %v", again, r)
		}
	}
}

// Each of many concurrent requests either enqueues the only waiting job or replaces its args, while
// workers take and complete jobs.
func TestUniqueReplaceAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			for i := range 20 {
				args := fmt.Sprint(c, "-", i)
				r := n.debounce(t, "", args, 0, progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING)
				if r.GetEnqueued() == r.GetReplaced() {
					t.Errorf("%v", r)
				}
				if l := n.leaseAll(t, "w"); len(l) > 0 && n.succeed(l[0], nil) != nil {
					t.Errorf("%v", l)
				}
			}
		})
	}
	all.Wait()
	last := n.debounce(t, "", "last", 0, progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING)
	for l := n.leaseAll(t, "w"); len(l) > 0; l = n.leaseAll(t, "w") {
		if err := n.succeed(l[0], nil); err != nil {
			t.Fatal(err)
		}
	}
	if job := n.job(t, "pull", last.GetJob().GetJobId(), succeeded); job.GetArgs().GetStringValue() != "last" {
		t.Errorf("%v", job)
	}
}

// The option replace is rejected without a unique key, and in a batch.
func TestUniqueReplaceRefused(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	noKey := &progressorv1.EnqueueRequest{
		Namespace: "pull", Name: "work", Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Replace: true}},
	}
	withKey := &progressorv1.EnqueueRequest{
		Namespace: "pull", Name: "work",
		Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k", Replace: true}},
	}
	_, one := n.Enqueue(t.Context(), noKey)
	_, batch := n.EnqueueBatch(t.Context(), &progressorv1.EnqueueBatchRequest{
		Jobs: []*progressorv1.EnqueueRequest{withKey},
	})
	for field, err := range map[string]error{"options.unique.replace": one, "jobs[0].options.unique.replace": batch} {
		if wrong, ok := errors.AsType[*process.InvalidError](err); !ok || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// UpdateJob changes the args of a job that waits for its first or a later attempt, and evaluates
// its constraints again.
func TestUpdateArgs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{
		Name: "region", Match: `has(job.args.region)`, Key: "job.args.region", MaxRunning: 1,
	})
	update := func(id string, args any, paths ...string) error {
		value, err := structpb.NewValue(args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Update(t.Context(), &progressorv1.UpdateJobRequest{
			Namespace: "pull", JobId: id, Args: value, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
		return err
	}
	n.limited(t, "pull", "holds", "eu", nil)
	eu := n.leaseOne(t, "w1")
	n.limited(t, "pull", "j", "eu", slowly(1))
	if err := update("j", map[string]any{"region": "us"}, "args"); err != nil {
		t.Fatal(err)
	}
	l := n.leaseOne(t, "w1")
	if l.GetJob().GetJobId() != "j" ||
		l.GetJob().GetArgs().GetStructValue().GetFields()["region"].GetStringValue() != "us" {
		t.Fatalf("%v", l)
	}
	const runs = "args and run_time cannot change while the job runs"
	if err := update("j", "x", "args"); err == nil || !strings.Contains(err.Error(), runs) {
		t.Errorf("while it runs: %v", err)
	}
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	if err := update("j", "second", "args"); err != nil {
		t.Fatal(err)
	}
	job := n.job(t, "pull", "j", retryable)
	if job.GetArgs().GetStringValue() != "second" || len(job.GetFailures()) != 1 {
		t.Errorf("%v", job)
	}
	if err := n.succeed(eu, nil); err != nil {
		t.Fatal(err)
	}
	n.unique(t, "u", &progressorv1.Unique{})
	for want, err := range map[string]error{
		"args: must not be set without args in update_mask":           update("j", "x", "priority"),
		"args: cannot change: the job's unique key":                   update("u", "x", "args"),
		"options: is required":                                        update("j", "x", "args", "priority"),
		"args: cannot change: the step r/s sets the args of this job": update("~job/r/s", "x", "args"),
		"args: must have at most 1048576 bytes of JSON (got 1048579)": update("j", strings.Repeat("x", 1<<20+1),
			"args"),
		"update_mask: \"unique\" cannot change: valid fields are args, ": update("j", "x", "unique"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
