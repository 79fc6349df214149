package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// If an attempt fails right after it has reported progress, the next attempt gets this progress.
// The next attempt begins after the delay that the failure requests, and not after the backoff.
func TestContinuesAfterAFailure(t *testing.T) {
	h := newTestEngine(t)
	h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "copy", func(ctx context.Context, _ struct{}) (float64, error) {
			page := client.LastProgress(ctx).GetDetails().GetFields()["page"].GetNumberValue()
			if page == 2 {
				return page, nil
			}
			err := client.ReportDetails(ctx, 50*page, "copied", map[string]float64{"page": page + 1})
			if err != nil {
				return 0, err
			}
			return 0, processor.Fail("busy", "page %v", page).RetryAfter(time.Millisecond)
		})
	})
	h.enqueue("j", "copy", nil, &progressorv1.JobOptions{
		MaxRetry: 2, KeepResult: true,
		Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}},
	})
	job := h.job("j", progressorv1.JobState_JOB_STATE_SUCCEEDED)
	if job.GetAttempt() != 3 || job.GetResult().GetNumberValue() != 2 {
		t.Errorf("%v", job)
	}
}

// An attempt does not get the progress of another job. If RetryJob runs an ended job again, the
// attempt also begins without progress.
func TestProgressBelongsToOneJob(t *testing.T) {
	h := newTestEngine(t)
	w := h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "copy", func(ctx context.Context, _ struct{}) (bool, error) {
			known := client.LastProgress(ctx) != nil
			client.Report(ctx, 10, "begun")
			return false, processor.Fail("broken", "known: %v", known)
		})
	}, client.WithConcurrency(1))
	h.enqueue("j", "copy", nil, nil)
	h.job("j", progressorv1.JobState_JOB_STATE_FAILED)
	if _, err := h.client.Job.RetryJob(t.Context(),
		&progressorv1.RetryJobRequest{Namespace: "pull", JobId: "j"}); err != nil {
		t.Fatal(err)
	}
	h.enqueue("k", "copy", nil, nil)
	for range 3 {
		if a := w.outcome(t); a.Failure.GetMessage() != "known: false" {
			t.Errorf("%v", a.Failure)
		}
	}
}

// ReportDetails returns an error if the engine would reject the progress. Otherwise, the heartbeat
// of all leases of the worker would fail.
func TestReportDetailsInvalid(t *testing.T) {
	h := newTestEngine(t)
	refused := make(chan []error, 1)
	h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "copy", func(ctx context.Context, _ struct{}) (bool, error) {
			refused <- []error{
				client.ReportDetails(ctx, 1, "", map[string]string{"text": strings.Repeat("x", 70_000)}),
				client.ReportDetails(ctx, 1, "", "text"),
				client.ReportDetails(ctx, 1, "", func() {}),
			}
			return true, client.ReportDetails(ctx, 1, "", map[string]string{"text": strings.Repeat("x", 60_000)})
		})
	})
	h.enqueue("j", "copy", nil, nil)
	errs := <-refused
	for n, want := range []string{"at most 65536", "must be a JSON object", "unsupported type"} {
		if errs[n] == nil || !strings.Contains(errs[n].Error(), want) {
			t.Errorf("%v, want %q", errs[n], want)
		}
	}
	h.job("j", progressorv1.JobState_JOB_STATE_SUCCEEDED)
	if err := client.ReportDetails(t.Context(), 1, "", nil); err != nil {
		t.Errorf("without a worker: %v", err)
	}
}

// If a handler returns Release with a delay, the job runs again after the delay, and the attempt
// does not count.
func TestHandlerReleases(t *testing.T) {
	h := newTestEngine(t)
	var calls atomic.Int32
	w := h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "copy", func(context.Context, struct{}) (int32, error) {
			if calls.Add(1) < 3 {
				return 0, client.Release(time.Millisecond)
			}
			return calls.Load(), nil
		})
	})
	h.enqueue("j", "copy", nil, &progressorv1.JobOptions{KeepResult: true})
	job := h.job("j", progressorv1.JobState_JOB_STATE_SUCCEEDED)
	if job.GetAttempt() != 1 || len(job.GetFailures()) != 0 || job.GetResult().GetNumberValue() != 3 {
		t.Errorf("%v", job)
	}
	for _, want := range []client.Outcome{client.OutcomeReleased, client.OutcomeReleased, client.OutcomeDone} {
		if a := w.outcome(t); a.Outcome != want {
			t.Errorf("%v, want %s", a, want)
		}
	}
}
