package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const (
	available = progressorv1.JobState_JOB_STATE_AVAILABLE
	running   = progressorv1.JobState_JOB_STATE_RUNNING
	retryable = progressorv1.JobState_JOB_STATE_RETRYABLE
	succeeded = progressorv1.JobState_JOB_STATE_SUCCEEDED
	failed    = progressorv1.JobState_JOB_STATE_FAILED
	cancelled = progressorv1.JobState_JOB_STATE_CANCELLED
	asked     = progressorv1.JobState_JOB_STATE_CANCEL_REQUESTED
)

// scripted returns a processor that does what the args of a job say.
func scripted() processor.Processor {
	return processor.Func(func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		switch args := r.GetJobArgs().GetStringValue(); args {
		case "args of fails":
			return nil, processor.Fail("broken", "attempt %d", r.GetAttempt())
		case "args of rejected":
			return &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Rejection{
					Rejection: &progressorv1.Rejection{Reason: "no", Message: "not this one"},
				},
			}, nil
		default:
			result := &progressorv1.Result{
				JobResult: structpb.NewStringValue(r.GetJobName() + " with " + args), Response: []byte("not kept"),
			}
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: result}}, nil
		}
	})
}

// A pushed job runs once. Its result is kept until it is fetched, and is not stored in the task in
// addition.
func TestPushedJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "ns", "good", &progressorv1.JobOptions{KeepResult: true})
	n.enqueue(t, "ns", "silent", nil)
	n.job(t, "ns", "good", succeeded)
	job := n.job(t, "ns", "silent", succeeded)
	if job.GetResult() != nil || job.GetAttempt() != 1 || job.GetFinishedTime() == nil {
		t.Errorf("silent: %v", job)
	}
	for fetch, want := range []string{"work with args of good", ""} {
		r, err := n.FetchResult(context.Background(), key("ns", "good"), 0)
		if err != nil || r.GetResult().GetStringValue() != want || r.GetDropped() != (fetch == 1) ||
			r.GetState() != succeeded {
			t.Errorf("fetch %d: %v, %v", fetch, r, err)
		}
	}
	var responses int
	if err := n.DB.QueryRow(context.Background(),
		"SELECT count(*) FROM tasks WHERE response IS NOT NULL").Scan(&responses); err != nil || responses != 0 {
		t.Errorf("%d responses in tasks, %v", responses, err)
	}
}

// A failed attempt is retried until no retry is left, and each failure is kept. A rejected job is
// not retried. RetryJob runs both again and resets their attempts and failures.
func TestRetries(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	now := &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}}
	n.enqueue(t, "ns", "fails", &progressorv1.JobOptions{MaxRetry: 2, Backoff: now})
	n.enqueue(t, "ns", "rejected", &progressorv1.JobOptions{MaxRetry: 2, Backoff: now})
	for _, again := range []bool{false, true} {
		if again {
			for _, id := range []string{"fails", "rejected"} {
				if _, err := n.Retry(context.Background(), key("ns", id), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		if job := n.job(t, "ns", "fails", failed); job.GetAttempt() != 3 || len(job.GetFailures()) != 3 ||
			job.GetFailures()[2].GetMessage() != "attempt 3" {
			t.Errorf("fails: %v", job)
		}
		if job := n.job(t, "ns", "rejected", failed); job.GetAttempt() != 1 || len(job.GetFailures()) != 1 ||
			job.GetFailures()[0].GetReason() != "no" {
			t.Errorf("rejected: %v", job)
		}
	}
	var wrong *process.WrongStatusError
	n.enqueue(t, "ns", "good", nil)
	n.job(t, "ns", "good", succeeded)
	if _, err := n.Retry(context.Background(), key("ns", "good"), false); !errors.As(err, &wrong) ||
		!strings.Contains(err.Error(), "ns/good is SUCCEEDED: only a job") {
		t.Errorf("retry of a job that has succeeded: %v", err)
	}
	n.enqueue(t, "ns", "later", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))})
	if _, err := n.Retry(context.Background(), key("ns", "later"), false); err == nil ||
		!strings.Contains(err.Error(), "ns/later is SCHEDULED: only a job") {
		t.Errorf("retry of a job with a later run time: %v", err)
	}
	if _, err := n.Retry(context.Background(), key("ns", "missing"), false); !errors.Is(err, process.ErrJobNotFound) {
		t.Errorf("retry of a job that does not exist: %v", err)
	}
}

// A worker leases a job, sends heartbeats and completes it. No other worker gets the job in the
// meantime.
func TestPulledJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{KeepResult: true})
	l := n.leaseOne(t, "w1")
	if l.GetJob().GetJobId() != "j" || l.GetRequest().GetJobArgs().GetStringValue() != "args of j" ||
		l.GetRequest().GetJobName() != "work" {
		t.Fatalf("lease %v", l)
	}
	if got := n.leaseAll(t, "w2"); len(got) != 0 {
		t.Fatalf("leased twice: %v", got)
	}
	if job := n.job(t, "pull", "j", running); job.GetWorkerId() != "w1" || job.GetLeaseExpiresTime() == nil {
		t.Errorf("running: %v", job)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("directive %v", d)
	}
	for range 2 { // a repeated answer is confirmed
		if err := n.succeed(l, structpb.NewNumberValue(7)); err != nil {
			t.Fatal(err)
		}
	}
	if job := n.job(t, "pull", "j", succeeded); job.GetResult().GetNumberValue() != 7 || job.GetWorkerId() != "w1" {
		t.Errorf("ended: %v", job)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_LOST {
		t.Errorf("directive after the end: %v", d)
	}
}

// The worker that ended a job is read from its task. If a job succeeds without a kept result, its
// row is not updated. Such an update took a seventh of PostgreSQL's time for a pulled job. Both the
// fast path and the general statement store the worker.
func TestWorkerThatEndedAJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for worker, id := range map[string]string{"w1": "fast", "w2": "general"} {
		n.enqueue(t, "pull", id, nil)
		l := n.leaseOne(t, worker)
		if id == "general" { // because another task waits, the fast path skips the process
			n.exec(t, `INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
				VALUES ('pull', 'general', nextval('task_ids'), 'CALL', 'process', now())`)
		}
		if err := n.succeed(l, nil); err != nil {
			t.Fatal(err)
		}
		if job := n.job(t, "pull", id, succeeded); job.GetWorkerId() != worker {
			t.Errorf("%s: %v", id, job)
		}
		if k := n.Count(t, "SELECT count(*) FROM job_list WHERE job_id = '"+id+"' AND worker_id = '"+worker+
			"'"); k != 1 {
			t.Errorf("%s: job_list does not show %s", id, worker)
		}
	}
	if k := n.Count(t, `SELECT count(*) FROM jobs WHERE worker_id IS NOT NULL OR xmin IN
		(SELECT xmin FROM tasks)`); k != 0 {
		t.Errorf("%d rows of jobs were written by the end", k)
	}
}

// A silent worker loses its job to another one. Its answer is rejected, and no retry is used up.
func TestTakeover(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{LeaseDuration: durationpb.New(200 * time.Millisecond)})
	lost := n.leaseOne(t, "w1")
	n.beat(t, "w1", lost)
	l := n.leaseOne(t, "w2")
	if l.GetJob().GetAttempt() != 2 || len(l.GetJob().GetFailures()) != 1 ||
		l.GetJob().GetFailures()[0].GetReason() != process.ReasonLeaseLost {
		t.Errorf("second lease: %v", l.GetJob())
	}
	if err := n.succeed(lost, nil); !errors.Is(err, process.ErrFenced) {
		t.Errorf("answer of the first worker: %v", err)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", succeeded)
}

// In a namespace with the zombie policy ERROR, no other worker takes a job over unless the job
// allows it.
func TestTakeoverByPolicy(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) {
		ns.ZombiePolicy = progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR
	}))
	lease := durationpb.New(200 * time.Millisecond)
	n.enqueue(t, "pull", "plain", &progressorv1.JobOptions{LeaseDuration: lease})
	n.beat(t, "w1", n.leaseOne(t, "w1"))
	job := n.job(t, "pull", "plain", failed)
	if len(job.GetFailures()) != 1 || job.GetFailures()[0].GetReason() != process.ReasonLeaseLost {
		t.Errorf("%v", job)
	}
	one := int32(1)
	n.enqueue(t, "pull", "says so", &progressorv1.JobOptions{LeaseDuration: lease, MaxTakeovers: &one})
	n.beat(t, "w1", n.leaseOne(t, "w1"))
	if l := n.leaseOne(t, "w2"); l.GetJob().GetAttempt() != 2 || n.succeed(l, nil) != nil {
		t.Errorf("%v", l)
	}
}

// A released lease goes to another worker immediately, and the attempt is not counted.
func TestRelease(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w1")
	if err := n.ReleaseLeases(context.Background(), []string{l.GetLeaseToken()}, 0); err != nil {
		t.Fatal(err)
	}
	again := n.leaseOne(t, "w2")
	if again.GetJob().GetAttempt() != 1 {
		t.Errorf("attempt %d", again.GetJob().GetAttempt())
	}
	if err := n.succeed(l, nil); !errors.Is(err, process.ErrFenced) {
		t.Errorf("answer under the released lease: %v", err)
	}
	if err := n.fail(again, "broken"); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", failed)
}

// A waiting job is cancelled immediately. The worker of a running job gets the cancel. If the
// worker succeeds first, the job has succeeded. If the worker fails after the request, the job is
// not retried.
func TestCancel(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	cancel := func(id string) *progressorv1.Job {
		t.Helper()
		job, err := n.Cancel(context.Background(), key("pull", id), "enough", process.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	n.enqueue(t, "pull", "waits", nil)
	if job := cancel("waits"); job.GetState() != cancelled || job.GetCancelReason() != "enough" {
		t.Errorf("waits: %v", job)
	}
	for _, id := range []string{"wins", "fails late", "acknowledges"} {
		n.enqueue(t, "pull", id, &progressorv1.JobOptions{MaxRetry: 5})
		l := n.leaseOne(t, "w1")
		if job := cancel(id); job.GetState() != asked {
			t.Errorf("%s: %v", id, job)
		}
		if job := cancel(id); job.GetState() != asked || job.GetCancelReason() != "enough" {
			t.Errorf("%s, asked twice: %v", id, job)
		}
		d := n.beat(t, "w1", l)
		if d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CANCEL || d.GetCancelReason() != "enough" {
			t.Errorf("%s: %v", id, d)
		}
		var err error
		want := cancelled
		switch id {
		case "wins":
			err, want = n.succeed(l, nil), succeeded
		case "fails late":
			err = n.fail(l, "broken")
		default:
			why := "at the checkpoint"
			err = n.CompleteLease(context.Background(), l.GetLeaseToken(), engine.LeaseAnswer{Acknowledged: &why})
		}
		if err != nil {
			t.Fatal(err)
		}
		n.job(t, "pull", id, want)
	}
	var wrong *process.WrongStatusError
	if _, err := n.Cancel(context.Background(), key("pull", "wins"), "", process.Actor{}); !errors.As(err, &wrong) ||
		!strings.Contains(err.Error(), "pull/wins is SUCCEEDED: the job has ended") {
		t.Errorf("cancel of a job at its end: %v", err)
	}
}

// An attempt that exceeds its timeout has failed, even if its worker sends heartbeats.
func TestTimeout(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{Timeout: durationpb.New(time.Second)})
	n.beat(t, "w1", n.leaseOne(t, "w1"))
	job := n.job(t, "pull", "j", failed)
	if len(job.GetFailures()) != 1 || job.GetFailures()[0].GetReason() != process.ReasonTimeout {
		t.Errorf("%v", job)
	}
}

// At most one job has a unique key. With the scope WAITING, one more can wait behind the running
// one.
func TestUnique(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	active := &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}}
	if r := n.enqueue(t, "pull", "a", active); !r.GetEnqueued() {
		t.Fatal("the first job was not enqueued")
	}
	if r := n.enqueue(t, "pull", "b", active); r.GetEnqueued() || r.GetJob().GetJobId() != "a" {
		t.Errorf("second: %v", r)
	}
	l := n.leaseOne(t, "w1")
	waiting := &progressorv1.JobOptions{
		Unique: &progressorv1.Unique{Key: "k", Scope: progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING},
	}
	if r := n.enqueue(t, "pull", "c", waiting); !r.GetEnqueued() {
		t.Errorf("one more behind the running one: %v", r)
	}
	if r := n.enqueue(t, "pull", "d", waiting); r.GetEnqueued() || r.GetJob().GetJobId() != "c" {
		t.Errorf("two behind the running one: %v", r)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "c", succeeded)
	if r := n.enqueue(t, "pull", "e", active); !r.GetEnqueued() {
		t.Errorf("after the end: %v", r)
	}
}

// A batch is stored completely or not at all.
func TestEnqueueBatch(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "there", nil)
	batch := func(ids ...string) (*progressorv1.EnqueueBatchResponse, error) {
		r := &progressorv1.EnqueueBatchRequest{}
		for _, id := range ids {
			r.Jobs = append(r.Jobs, &progressorv1.EnqueueRequest{
				Namespace: "pull", JobId: id, Name: "work",
				Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "key of " + id}},
			})
		}
		return n.EnqueueBatch(context.Background(), r)
	}
	if _, err := batch("x", "there"); !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("with one that exists: %v", err)
	}
	if _, err := n.Get(context.Background(), key("pull", "x"), 0); !errors.Is(err, process.ErrJobNotFound) {
		t.Errorf("the other one of the batch: %v", err)
	}
	r, err := batch("x", "y", "z")
	if err != nil || len(r.GetJobs()) != 3 || !r.GetJobs()[2].GetEnqueued() {
		t.Fatalf("%v, %v", r, err)
	}
	if got := n.poll(t, "w1", 10); len(got) != 4 {
		t.Errorf("%d leases, want 4", len(got))
	}
}
