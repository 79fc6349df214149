package jobs_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestKeysOfTwoVersions sends two requests with the same idempotency key to two nodes, one of which
// derives the IDs of jobs as earlier versions did. The two requests create one job, even if both
// nodes receive a request at the same time.
func TestKeysOfTwoVersions(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	current, earlier := start(t, dsn, scripted()), start(t, dsn, scripted())
	enqueue := func(n *node, key string) jobs.Enqueued {
		j, err := n.NewJob("", &progressorv1.EnqueueRequest{Namespace: "pull", Name: "work", IdempotencyKey: key})
		if err != nil {
			t.Error(err)
			return jobs.Enqueued{}
		}
		if n == earlier {
			j.Key.ProcessID = process.ShortID(j.RequestID)
		}
		done, err := jobs.Enqueue(n.Store, j)
		if err != nil {
			t.Error(err)
		}
		return done
	}
	once := func(when string, first, second jobs.Enqueued) {
		t.Helper()
		outcomes := []jobs.EnqueueOutcome{first.Outcome, second.Outcome}
		slices.Sort(outcomes)
		if first.ProcessID != second.ProcessID || !slices.Equal(outcomes,
			[]jobs.EnqueueOutcome{jobs.JobEnqueued, jobs.JobReplayed}) {
			t.Errorf("%s: %+v, %+v", when, first, second)
		}
	}
	newKey := func() string { return uuid.Must(uuid.NewV7()).String() }
	key := newKey()
	once("first on the node", enqueue(current, key), enqueue(earlier, key))
	key = newKey()
	once("first on the earlier node", enqueue(earlier, key), enqueue(current, key))
	for range 20 {
		key := newKey()
		var first, second jobs.Enqueued
		var both sync.WaitGroup
		both.Go(func() { first = enqueue(current, key) })
		both.Go(func() { second = enqueue(earlier, key) })
		both.Wait()
		once("on both at once", first, second)
	}
}
