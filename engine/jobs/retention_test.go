package jobs_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// startForgetful runs a node whose namespace "pull" removes jobs as soon as they have ended.
func startForgetful(t *testing.T) *node {
	t.Helper()
	n := start(t, storagetest.DSN(t), scripted())
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.Retention = durationpb.New(time.Millisecond) }))
	return n
}

// removed leases the next job and ends it with f. It waits until retention has removed the job and
// its history.
func (n *node) removed(t *testing.T, f func(*progressorv1.Lease) error) {
	t.Helper()
	l := n.leaseOne(t, "w")
	if err := f(l); err != nil {
		t.Fatal(err)
	}
	id := l.GetJob().GetJobId()
	enginetest.Eventually(t, testTimeout, id+" is removed", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1", id) == 0
	})
}

func TestRepeatedEnqueueAfterRetention(t *testing.T) {
	t.Parallel()
	n := startForgetful(t)
	request := &progressorv1.EnqueueRequest{Namespace: "pull", Name: "work", IdempotencyKey: "k"}
	first, err := n.Enqueue(t.Context(), request)
	must(t, err)
	if !first.GetEnqueued() || first.GetRemoved() {
		t.Fatalf("first response: %v", first)
	}
	n.removed(t, func(l *progressorv1.Lease) error { return n.succeed(l, nil) })
	again, err := n.Enqueue(t.Context(), request)
	must(t, err)
	id := first.GetJob().GetJobId()
	if again.GetEnqueued() || !again.GetRemoved() || again.GetJob().GetJobId() != id ||
		again.GetJob().GetNamespace() != "pull" {
		t.Errorf("response after retention: %v, want removed job %s", again, id)
	}
	if state := again.GetJob().GetState(); state != progressorv1.JobState_JOB_STATE_UNSPECIFIED {
		t.Errorf("state of a removed job: %s", state)
	}
}

// A unique key stays taken for its TTL, even if retention has removed the job that holds it.
func TestUniqueTTLOutlivesRetention(t *testing.T) {
	t.Parallel()
	n := startForgetful(t)
	held := &progressorv1.Unique{Key: "held", Ttl: durationpb.New(time.Hour)}
	plain := &progressorv1.Unique{Key: "plain"}
	failing := &progressorv1.Unique{Key: "of failed", Ttl: durationpb.New(time.Hour)}
	n.unique(t, "failed", failing)
	n.removed(t, func(l *progressorv1.Lease) error { return n.fail(l, "no") })
	n.unique(t, "held-1", held)
	n.removed(t, func(l *progressorv1.Lease) error { return n.succeed(l, nil) })
	n.unique(t, "plain-1", plain)
	n.removed(t, func(l *progressorv1.Lease) error { return n.succeed(l, nil) })

	for id, want := range map[string]string{"held-2": "held-1", "plain-2": "plain-2"} {
		u := held
		if want == "plain-2" {
			u = plain
		}
		r, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: id, Name: "work", Options: &progressorv1.JobOptions{Unique: u},
		})
		must(t, err)
		if got := r.GetJob().GetJobId(); got != want || r.GetRemoved() == r.GetEnqueued() {
			t.Errorf("%s: %v, want %s", id, r, want)
		}
	}
	if got := n.unique(t, "failed-2", failing); got != "failed" {
		t.Errorf("the key of a removed FAILED job is free: %s", got)
	}
	// The key is free when its TTL has passed.
	_, err := n.DB.Exec(t.Context(), "UPDATE job_keys SET held_until = now() WHERE unique_key = 'held'")
	must(t, err)
	if got := n.unique(t, "held-3", held); got != "held-3" {
		t.Errorf("after the TTL: %s", got)
	}
	if n.Count(t, `SELECT count(*) FROM job_keys WHERE unique_key = 'held'
		AND held_until IS NULL`) != 1 {
		t.Error("the new job has the time of the old one")
	}
}
