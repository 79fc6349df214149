package jobs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// unhurried returns options with timeouts that are longer than a test, so that only a cancel ends
// an attempt.
func unhurried() *progressorv1.JobOptions {
	hour := durationpb.New(time.Hour)
	return &progressorv1.JobOptions{Timeout: hour, CancelGrace: hour, MaxRetry: 3}
}

// The context of a processor ends as soon as its job is cancelled, not after the grace period. The
// cancel may be a request to the node that runs the job, or a message that the node reads from the
// database.
func TestPushedJobIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"request", "message"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			began := make(chan context.Context, 10)
			waits := processor.Func(func(
				ctx context.Context, _ *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error) {
				began <- ctx
				<-ctx.Done()
				return nil, ctx.Err()
			})
			n := start(t, storagetest.DSN(t), waits)
			n.enqueue(t, "ns", "j", unhurried())
			attempt := <-began
			if way == "message" {
				n.exec(t, "SELECT progressor.cancel('ns', 'j', 'enough')")
			} else if _, err := n.Cancel(t.Context(), key("ns", "j"), "enough", process.Actor{}); err != nil {
				t.Fatal(err)
			} else if attempt.Err() == nil {
				t.Error("the attempt continues after CancelJob has returned")
			}
			if job := n.job(t, "ns", "j", cancelled); job.GetCancelReason() != "enough" || job.GetAttempt() != 1 {
				t.Errorf("%v", job)
			}
			if history := n.history(t, "ns", "j"); !strings.Contains(history, "cancel_acknowledged") {
				t.Errorf("%s", history)
			}
			if len(began) != 0 {
				t.Error("the job ran again")
			}
		})
	}
}

// A job whose processor succeeds after the cancel has succeeded.
func TestPushedJobSucceedsAfterItsCancel(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	n := start(t, storagetest.DSN(t),
		processor.Func(func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			close(began)
			<-ctx.Done()
			return scripted().Process(ctx, r)
		}))
	n.enqueue(t, "ns", "j", unhurried())
	<-began
	if _, err := n.Cancel(t.Context(), key("ns", "j"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.job(t, "ns", "j", succeeded)
}

// A job with a busy processor is sent again until its timeout, regardless of the number of attempts
// in the namespace's policy.
func TestPushedJobOfABusyProcessor(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	n := start(t, storagetest.DSN(t),
		processor.Func(func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if calls.Add(1) <= 10 {
				return nil, &processor.UnreachableError{Err: errors.New("it answered HTTP 503")}
			}
			return scripted().Process(ctx, r)
		}))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(time.Millisecond), MaxAttempts: 2,
	}})
	n.enqueue(t, "ns", "j", &progressorv1.JobOptions{Timeout: durationpb.New(time.Hour)})
	if job := n.job(t, "ns", "j", succeeded); job.GetAttempt() != 1 || len(job.GetFailures()) != 0 {
		t.Errorf("%v", job)
	}
}

// A job whose processor stays busy fails after its timeout with the reason unavailable.
func TestPushedJobOfAProcessorThatStaysBusy(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t),
		processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, &processor.UnreachableError{Err: errors.New("it answered HTTP 503")}
		}))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(time.Millisecond), MaxAttempts: 2,
	}})
	n.enqueue(t, "ns", "j", &progressorv1.JobOptions{Timeout: durationpb.New(300 * time.Millisecond)})
	job := n.job(t, "ns", "j", failed)
	if f := job.GetFailures(); len(f) != 1 || f[0].GetReason() != process.ReasonUnavailable {
		t.Errorf("%v", f)
	}
	if ran := job.GetFinishedTime().AsTime().Sub(job.GetCreatedTime().AsTime()); ran < 300*time.Millisecond {
		t.Errorf("the job failed after %s, before its timeout", ran)
	}
}

// A job whose processor is busy releases its slot while it waits, so that another job runs. Its
// attempt is not used up, and it runs when its processor accepts it.
func TestBusyProcessorTakesNoSlot(t *testing.T) {
	t.Parallel()
	var free atomic.Bool
	asked := make(chan struct{}, 1000)
	n := start(t, storagetest.DSN(t),
		processor.Func(func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if r.GetProcess().GetProcessId() == "busy" && !free.Load() {
				asked <- struct{}{}
				return nil, &processor.UnreachableError{Err: errors.New("it answered HTTP 503")}
			}
			return scripted().Process(ctx, r)
		}))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1, RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(time.Hour), MaxInterval: durationpb.New(time.Hour), MaxAttempts: 2,
	}})
	n.enqueue(t, "ns", "busy", &progressorv1.JobOptions{Timeout: durationpb.New(2 * time.Hour)})
	<-asked
	n.enqueue(t, "ns", "other", nil)
	n.job(t, "ns", "other", succeeded)
	job := n.job(t, "ns", "busy", scheduled)
	if job.GetAttempt() != 0 || len(job.GetFailures()) != 0 {
		t.Errorf("an attempt is used up: %v", job)
	}
	if got := job.GetBlockedOn(); !strings.HasPrefix(got,
		"processor: not reached once (it answered HTTP 503), next try at ") {
		t.Errorf("blocked on %q", got)
	}
	free.Store(true)
	n.exec(t, "UPDATE schedule SET scheduled_time = now() WHERE process_id = 'busy'")
	if job := n.job(t, "ns", "busy", succeeded); job.GetAttempt() != 1 || len(job.GetFailures()) != 0 {
		t.Errorf("%v", job)
	}
	if want, got := "enqueued >available\nstarted available>running 1\nreleased running>scheduled 1 unavailable: it "+
		"answered HTTP 503\nstarted scheduled>running 1\nsucceeded running>succeeded 1",
		n.history(t, "ns", "busy"); got != want {
		t.Errorf("events %s\nwant %s", got, want)
	}
}
