package storage_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
)

// Claims skip the jobs of paused names if the node knows that the namespace has paused names.
// Otherwise they do not read the table of pauses.
func TestClaimsSkipPausedNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.enqueue("paused")
	b.enqueue("runs")
	b.enqueue("due", inAnHour)
	b.delay()
	for _, name := range []string{"paused", "due"} {
		p, err := jobs.PauseName(t.Context(), b.Store, ns, name, "why", nil)
		equal(t, "the paused name", must(t, p, err).Name, name)
	}
	claim := func(pauses bool) (ids []string) {
		t.Helper()
		line := pull.Subscription{
			Namespace: ns, StepTimeout: timeout, Lease: time.Hour, MaxLease: time.Hour, Pauses: pauses,
		}
		limits := []storage.ClaimLimit{{Namespace: ns, Max: 10, StepTimeout: timeout, Pauses: pauses}}
		n, err := pull.CountPollable(t.Context(), b.Store, []pull.Subscription{line}, 10)
		ids = append(ids, fmt.Sprint(must(t, n, err)[0], " pollable"))
		left, err := b.ListSkippedCalls(t.Context(), limits)
		ids = append(ids, fmt.Sprint(len(must(t, left, err)) > 0, " left"))
		for _, grouped := range []bool{false, true} {
			leases, err := pull.Poll(t.Context(), b.Store, "w", []pull.Subscription{line}, 10, grouped)
			for _, l := range must(t, leases, err) {
				ids = append(ids, "poll "+l.Claim.ProcessID)
				b.release(&l.Claim)
			}
		}
		calls, err := b.SearchCalls(t.Context(), limits)
		must(t, calls, err)
		timers, _, err := b.SearchTimers(t.Context(), limits)
		must(t, timers, err)
		for _, claims := range [][]storage.Claim{calls, timers} {
			for k := range claims {
				ids = append(ids, "claim "+claims[k].ProcessID)
				b.release(&claims[k])
			}
		}
		slices.Sort(ids)
		return ids
	}
	equal(t, "claimed", fmt.Sprint(claim(true)), "[1 pollable claim runs poll runs poll runs true left]")
	runs := b.leased("runs")
	equal(t, "only paused jobs wait", fmt.Sprint(claim(true)), "[0 pollable false left]")
	b.release(runs)
	equal(t, "claimed without pauses", fmt.Sprint(claim(false)),
		"[2 pollable claim due claim paused claim runs poll paused poll paused poll runs poll runs true left]")
	was, err := jobs.ResumeName(t.Context(), b.Store, ns, "paused", nil)
	equal(t, "it was paused", must(t, was, err), true)
	equal(t, "claimed after the resume", fmt.Sprint(claim(true)),
		"[2 pollable claim paused claim runs poll paused poll paused poll runs poll runs true left]")
}

// Concurrent pauses do not exceed the limit of a namespace.
func TestPausedNamesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.exec("INSERT INTO job_pauses (namespace, name) SELECT $1, 'name-' || n FROM generate_series(1, 97) n", ns)
	var refused atomic.Int32
	all(8, func(n int) {
		_, err := jobs.PauseName(t.Context(), b.Store, ns, fmt.Sprint("more-", n), "", nil)
		if invalid, ok := errors.AsType[*process.InvalidError](err); ok && invalid.Field == "name" {
			refused.Add(1)
		} else if err != nil {
			t.Error(err)
		}
	})
	list, err := jobs.ListPausedNames(t.Context(), b.Store, ns)
	equal(t, "paused names", len(must(t, list, err)), jobs.MaxPausedNames)
	equal(t, "rejected", refused.Load(), 5)
	_, err = jobs.PauseName(t.Context(), b.Store, "none", "a", "", nil)
	equal(t, "without a namespace", errors.Is(err, process.ErrNamespaceNotFound), true)
}

// A namespace that is being deleted accepts no pause, because its deletion would leave the pause
// behind.
func TestNoPauseWhileANamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.exec("UPDATE namespaces SET deletion_requested_time = now() WHERE namespace = $1", ns)
	if _, err := jobs.PauseName(t.Context(), b.Store, ns, "a", "", nil); !errors.Is(err, process.ErrNamespaceDeleting) {
		t.Errorf("pause in a namespace that is being deleted: %v", err)
	}
	equal(t, "pauses", ask[int](b, "SELECT count(*) FROM job_pauses"), 0)
	b.exec("UPDATE namespaces SET deletion_requested_time = NULL")
}
