package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// unique enqueues a job without args and returns the ID in the response.
func (n *node) unique(t *testing.T, id string, u *progressorv1.Unique) string {
	t.Helper()
	r, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
		Namespace: "pull", JobId: id, Name: "work", Options: &progressorv1.JobOptions{Unique: u},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetJob().GetJobId()
}

// failing enqueues a unique job that fails.
func (n *node) failing(t *testing.T, id string, u *progressorv1.Unique) {
	t.Helper()
	n.unique(t, id, u)
	if err := n.fail(n.leaseOne(t, "w"), "no"); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", id, failed)
}

// done completes the job of a lease and waits until it has succeeded.
func (n *node) done(t *testing.T, l *progressorv1.Lease) {
	t.Helper()
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", l.GetJob().GetJobId(), succeeded)
}

// retried retries a job. holder is the job that must prevent the retry, or "".
func (n *node) retried(t *testing.T, id, holder string) {
	t.Helper()
	_, err := n.Retry(t.Context(), key("pull", id), false)
	var wrong *process.WrongStatusError
	switch {
	case holder == "" && err != nil:
		t.Errorf("%s is not retried: %v", id, err)
	case holder != "" && (!errors.As(err, &wrong) || wrong.Status != process.StatusError ||
		!strings.Contains(err.Error(), fmt.Sprintf("job %q holds its unique key", holder))):
		t.Errorf("%s is retried although %s holds its key: %v", id, holder, err)
	}
}

// A retried job takes its unique key again. The retry is rejected if another job has the key.
func TestRetryOfUnique(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for name, u := range map[string]*progressorv1.Unique{"named": {Key: "k"}, "digest": {}} {
		first, second, third := name+"-1", name+"-2", name+"-3"
		n.failing(t, first, u)
		n.unique(t, second, u)
		n.retried(t, first, second)
		l := n.leaseOne(t, "w")
		n.retried(t, first, second)
		n.done(t, l)
		n.retried(t, first, "")
		if other := n.unique(t, third, u); other != first {
			t.Errorf("%s runs at the same time as the retried %s", other, first)
		}
		n.done(t, n.leaseOne(t, "w"))
	}
}

// A retry is rejected in the same cases in which an enqueue would return another job.
func TestRetryOfUniqueByScope(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	kept := &progressorv1.Unique{Key: "ttl", Ttl: durationpb.New(time.Hour)}
	n.failing(t, "ttl-1", &progressorv1.Unique{Key: "ttl"})
	n.unique(t, "ttl-2", kept)
	n.done(t, n.leaseOne(t, "w"))
	n.retried(t, "ttl-1", "ttl-2")

	kept.Key = "its own"
	n.failing(t, "own", kept)
	n.retried(t, "own", "")
	n.done(t, n.leaseOne(t, "w"))

	waiting := &progressorv1.Unique{Key: "waiting", Scope: progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING}
	n.failing(t, "waiting-1", waiting)
	n.unique(t, "waiting-2", waiting)
	n.retried(t, "waiting-1", "waiting-2")
	n.leaseOne(t, "w")
	n.retried(t, "waiting-1", "")
	if other := n.unique(t, "waiting-3", waiting); other != "waiting-1" {
		t.Errorf("%s waits behind the retried waiting-1", other)
	}
}

// A repeated request with an idempotency key gets the same job again, even if the unique key is
// free.
func TestRepeatedRequestOfUnique(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	u := &progressorv1.Unique{Key: "k"}
	request := func(idempotencyKey, args string) *progressorv1.EnqueueRequest {
		return &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: "of " + idempotencyKey, Name: "work", Args: structpb.NewStringValue(args),
			Options: &progressorv1.JobOptions{Unique: u}, IdempotencyKey: idempotencyKey,
		}
	}
	check := func(when, job string) {
		t.Helper()
		r, err := n.Enqueue(t.Context(), request("one", "x"))
		if err != nil || r.GetEnqueued() || r.GetJob().GetJobId() != job {
			t.Errorf("%s: %v, %v", when, r, err)
		}
		b, err := n.EnqueueBatch(t.Context(), &progressorv1.EnqueueBatchRequest{
			Jobs: []*progressorv1.EnqueueRequest{request("batch", "x")},
		})
		if err != nil || b.GetJobs()[0].GetEnqueued() || b.GetJobs()[0].GetJob().GetJobId() != job {
			t.Errorf("%s, as a batch: %v, %v", when, b, err)
		}
	}
	n.unique(t, "first", u)
	check("while the first waits", "first")
	n.done(t, n.leaseOne(t, "w"))
	check("after its end", "first")
	n.unique(t, "second", u)
	check("while another one has the key", "first")
	if _, err := n.Enqueue(t.Context(), request("one", "y")); !errors.Is(err, process.ErrIdempotencyMismatch) {
		t.Errorf("the same key for another request: %v", err)
	}
}
