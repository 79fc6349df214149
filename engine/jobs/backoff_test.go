package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// slowly returns options that retry a failed attempt after an hour.
func slowly(maxRetry int32) *progressorv1.JobOptions {
	return &progressorv1.JobOptions{
		MaxRetry: maxRetry, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}},
	}
}

// RetryJob ends the backoff of a job, so that the next attempt can begin immediately. The job keeps
// its failures and its number of attempts.
func TestRetryEndsBackoff(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", slowly(1))
	if err := n.fail(n.leaseOne(t, "w1"), "broken"); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", retryable)
	polled := make(chan []*progressorv1.Lease)
	go func() { polled <- n.poll(t, "w2", 1) }() // the retry wakes this poll
	job, err := n.Retry(t.Context(), key("pull", "j"), false, process.Actor{Name: "ann"})
	if err != nil || len(job.GetFailures()) != 1 || job.GetState() != available && job.GetState() != running {
		t.Fatalf("%v, %v", job, err)
	}
	l := <-polled
	if len(l) != 1 || l[0].GetJob().GetAttempt() != 2 {
		t.Fatalf("%v", l)
	}
	k := n.Count(t, "SELECT count(*) FROM job_events WHERE job_id = 'j' AND type = 'retried' AND actor = 'ann'")
	if k != 1 {
		t.Errorf("%d events", k)
	}
	if err := n.fail(l[0], "broken"); err != nil {
		t.Fatal(err)
	}
	if job := n.job(t, "pull", "j", failed); len(job.GetFailures()) != 2 {
		t.Errorf("%v", job)
	}
}

// A job in backoff that needs keys of constraints waits for them after RetryJob.
func TestRetryEndsBackoffInLine(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Namespace: "pull", Name: "one", Match: `job.name == "work"`, MaxRunning: 1})
	n.enqueue(t, "pull", "j", slowly(1))
	if err := n.fail(n.leaseOne(t, "w1"), "broken"); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "k", nil)
	k := n.leaseOne(t, "w1")
	job, err := n.Retry(t.Context(), key("pull", "j"), false)
	if err != nil || job.GetState() != available || !strings.HasPrefix(job.GetBlockedOn(), "constraint") {
		t.Fatalf("%v, %v", job, err)
	}
	if err := n.succeed(k, nil); err != nil {
		t.Fatal(err)
	}
	if l := n.leaseOne(t, "w1"); l.GetJob().GetJobId() != "j" {
		t.Errorf("%v", l)
	}
}

// Jobs that run, that wait for their first attempt or that are suspended are not retried.
func TestRetryRefusesUnended(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "suspended", slowly(1))
	if err := n.fail(n.leaseOne(t, "w1"), "broken"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SuspendProcess(t.Context(), key("pull", "suspended"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "runs", nil)
	n.leaseOne(t, "w1")
	n.enqueue(t, "pull", "available", nil)
	n.enqueue(t, "pull", "scheduled", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))})
	for _, id := range []string{"suspended", "runs", "available", "scheduled"} {
		_, err := n.Retry(t.Context(), key("pull", id), false)
		wrong, ok := errors.AsType[*process.WrongStatusError](err)
		if !ok || !strings.Contains(wrong.Reason, "RETRYABLE") {
			t.Errorf("%s: %v", id, err)
		}
		if job, err := n.EndBackoff(t.Context(), key("pull", id)); err != nil || job != nil {
			t.Errorf("%s: %v, %v", id, job, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM job_events WHERE type = 'retried'"); k > 0 {
		t.Errorf("%d events", k)
	}
}

// failAfter answers a lease with a failure that sets the time of the next attempt.
func (n *node) failAfter(l *progressorv1.Lease, d time.Duration) error {
	return n.CompleteLease(context.Background(), l.GetLeaseToken(),
		engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Reason: "busy", RetryAfter: durationpb.New(d)},
			},
		}})
}

// The retry_after of a failure replaces the backoff, whether it is shorter or longer. It does not
// allow more attempts.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", slowly(2))
	if err := n.failAfter(n.leaseOne(t, "w1"), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	l := n.leaseOne(t, "w1")
	if got := l.GetJob().GetFailures()[0].GetRetryAfter().AsDuration(); got != time.Millisecond {
		t.Errorf("retry_after %s", got)
	}
	before := time.Now()
	if err := n.failAfter(l, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	at := n.job(t, "pull", "j", retryable).GetRunTime().AsTime()
	if at.Before(before.Add(47*time.Hour)) || at.After(time.Now().Add(49*time.Hour)) {
		t.Errorf("the next attempt is at %s", at)
	}
	if _, err := n.Retry(t.Context(), key("pull", "j"), false); err != nil {
		t.Fatal(err)
	}
	if err := n.failAfter(n.leaseOne(t, "w1"), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", failed)
}

// A job that is released with a delay can be taken after the delay. The release uses up no attempt.
func TestReleaseWithDelay(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "later", nil)
	if err := n.ReleaseLeases(t.Context(), []string{n.leaseOne(t, "w1").GetLeaseToken()}, time.Hour); err != nil {
		t.Fatal(err)
	}
	job := n.job(t, "pull", "later", progressorv1.JobState_JOB_STATE_SCHEDULED)
	if at := job.GetRunTime().AsTime(); job.GetAttempt() != 0 || at.Before(time.Now().Add(50*time.Minute)) {
		t.Errorf("%v", job)
	}
	n.enqueue(t, "pull", "soon", nil)
	first := n.leaseOne(t, "w1")
	if err := n.ReleaseLeases(t.Context(), []string{first.GetLeaseToken()}, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	second := n.leaseOne(t, "w2")
	if second.GetJob().GetJobId() != "soon" || second.GetJob().GetAttempt() != 1 ||
		second.GetLeasedTime().AsTime().Sub(first.GetLeasedTime().AsTime()) < 10*time.Millisecond {
		t.Errorf("%v after %v", second, first)
	}
}
