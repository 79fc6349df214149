package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// waitingPoll begins a poll of namespace "pull" that waits for one task. It returns a channel that
// receives the leases of the poll. The poll does not notice when its client disconnects. The worker
// must not have polled the node before in the namespace `mark`.
func (n *node) waitingPoll(ctx context.Context, t *testing.T, worker, mark string) <-chan []*progressorv1.Lease {
	t.Helper()
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.Namespace = mark }))
	got := make(chan []*progressorv1.Lease, 1)
	go func() {
		leases, err := n.Poll(context.WithoutCancel(ctx), pull.PollParams{
			Namespaces: []string{"pull", mark}, WorkerID: worker, Max: 1, Wait: testTimeout,
		})
		if err != nil {
			t.Error(err)
		}
		got <- leases
	}()
	enginetest.Eventually(t, testTimeout, "the worker polls", func() bool {
		return slices.ContainsFunc(n.workers(t, mark), func(w *progressorv1.Worker) bool {
			return w.GetWorkerId() == worker
		})
	})
	return got
}

// A worker that stops does not get the task that it releases, although the engine has not noticed
// that the client has closed the poll.
func TestStoppingWorkerGetsNoReleasedTask(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "a", nil)
	held := n.leaseOne(t, "w")
	got := n.waitingPoll(t.Context(), t, "w", "mark")
	n.EndPolls(t.Context(), "w")
	must(t, n.ReleaseLeases(t.Context(), []string{held.GetLeaseToken()}, 0))
	if leases := <-got; len(leases) > 0 {
		t.Error("the poll of the stopping worker got the task")
	}
	n.job(t, "pull", "a", available)
	n.leaseOne(t, "w") // the next worker with this ID
}

// A task that a poll leases after its worker has stopped is released. On a busy machine, the poll
// may wait too long for the lock and fail. Then the test is repeated with another worker and job.
func TestStopDuringLease(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for k := 1; ; k++ {
		worker, job := fmt.Sprint("w", k), fmt.Sprint("a", k)
		n.leaseAll(t, worker) // the node knows the worker and the namespace
		n.enqueue(t, "pull", job, nil)
		leases, err := n.stopDuringLease(t, worker)
		if err != nil && strings.Contains(err.Error(), "lock timeout") && k < 20 {
			continue
		}
		if err != nil || len(leases) > 0 {
			t.Errorf("the poll of the stopping worker got %d tasks: %v", len(leases), err)
		}
		n.job(t, "pull", job, available)
		return
	}
}

// stopDuringLease ends the polls of a worker while one of them leases a task. It returns the
// response to this poll.
func (n *node) stopDuringLease(t *testing.T, worker string) (leases []*progressorv1.Lease, err error) {
	t.Helper()
	lock := storagetest.Begin(t, n.DB, "LOCK TABLE leases")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		leases, err = n.Poll(t.Context(), pull.PollParams{
			Namespaces: []string{"pull"}, WorkerID: worker, Max: 1, Wait: testTimeout,
		})
	}()
	enginetest.Eventually(t, testTimeout, "the poll leases the task or fails", func() bool {
		select {
		case <-ended:
			return true
		default:
			return n.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock' AND query LIKE '-- name: Poll :%'`) > 0
		}
	})
	n.EndPolls(t.Context(), worker)
	must(t, lock.Rollback(t.Context()))
	<-ended
	return leases, err
}

// A node ignores its own notices, because they may arrive after the next worker with the same ID
// has begun to poll.
func TestOwnNoticeEndsNoPoll(t *testing.T) {
	t.Parallel()
	if storagetest.AllPortable() {
		t.Skip("needs NOTIFY")
	}
	n := start(t, storagetest.DSN(t), scripted())
	got, other := n.waitingPoll(t.Context(), t, "w", "mark"), n.waitingPoll(t.Context(), t, "v", "mark")
	own := n.Store.NodeID()
	enginetest.Eventually(t, testTimeout/2, "the poll that another node's notice names has ended", func() bool {
		n.exec(t, `SELECT pg_notify('progressor_polls', json_build_array(node::text, '', worker)::text)
			FROM (VALUES ($1::bigint, 'w'), ($1 + 1, 'v')) AS notices (node, worker)`, own)
		return len(other) > 0
	})
	n.enqueue(t, "pull", "a", nil)
	if leases := <-got; len(leases) != 1 {
		t.Errorf("%d leases, want 1", len(leases))
	}
}

// A client does not end the polls of another client's worker that has the same ID.
func TestPollsOfOtherClientsGoOn(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	own := pull.WithCaller(t.Context(), &pull.Caller{Owner: "keys:a"})
	got := n.waitingPoll(own, t, "w", "mark")
	n.EndPolls(pull.WithCaller(t.Context(), &pull.Caller{Owner: "keys:b"}), "w")
	n.enqueue(t, "pull", "a", nil)
	if leases := <-got; len(leases) != 1 {
		t.Errorf("%d leases, want 1", len(leases))
	}
}

// The polls of a worker that stops end on all nodes.
func TestPollsEndOnOtherNodes(t *testing.T) {
	t.Parallel()
	if storagetest.AllPortable() {
		t.Skip("needs NOTIFY")
	}
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	got := other.waitingPoll(t.Context(), t, "w", "mark")
	enginetest.Eventually(t, testTimeout/2, "the poll on the other node ends", func() bool {
		n.EndPolls(t.Context(), "w") // repeated, because the other node may not listen yet
		return len(got) > 0
	})
	if leases := <-got; len(leases) > 0 {
		t.Errorf("%d leases", len(leases))
	}
}
