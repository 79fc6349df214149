package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// checkedGroup creates a job for several workers with one member. A worker can take the member, and
// the group waits for the member.
func (b *bench) checkedGroup(id string) {
	b.t.Helper()
	b.group(id, 1)
	b.enqueue("m-" + id)
	b.addPlace(id, "m-"+id)
	b.checkGroup(id, jobs.GroupStep{})
}

// checkGroup checks the groups that need a decision, and stores step for the group with the ID. It
// reports whether that group needed a decision.
func (b *bench) checkGroup(id string, step jobs.GroupStep) bool {
	b.t.Helper()
	taken := false
	_, err := jobs.CheckGroups(context.Background(), b.Store, 100,
		func(*jobs.Group) jobs.GroupRules { return jobs.GroupRules{Count: 1} },
		func(g *jobs.Group, _ jobs.GroupRules) jobs.GroupStep {
			var takers []string
			for _, p := range g.Places {
				if p.WorkerID != "" {
					takers = append(takers, p.WorkerID)
				}
			}
			if g.Key.ProcessID != id {
				return jobs.GroupStep{Takers: takers}
			}
			taken = true
			step.Takers = takers
			return step
		})
	return must(b.t, taken, err)
}

// counted returns the counters of the jobs with the given name.
func (b *bench) counted(name string) string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(state || ' ' || n, ', ' ORDER BY state), 'none') FROM (
		SELECT state, sum(n) AS n FROM job_counts WHERE name = $1 GROUP BY state HAVING sum(n) <> 0) x`, name)
}

var groupTransactions = []transaction{deliver, cancel, endOverdueCancel, suspend, resume, remove}

// Two concurrent transactions of two nodes on one job for several workers have the same result as
// if they ran one after the other, and the counters are correct.
func TestEveryTwoTransactionsOfAGroup(t *testing.T) {
	t.Parallel()
	matrix{
		situations: []situation{
			{"it waits for its first check", func(b *bench, id string) *storage.Claim { b.group(id, 1); return nil }},
			{"its members wait", func(b *bench, id string) *storage.Claim { b.checkedGroup(id); return nil }},
			{"it runs", func(b *bench, id string) *storage.Claim { b.checkedGroup(id); b.takeMember(id); return nil }},
			{"a cancel was requested",
				func(b *bench, id string) *storage.Claim { b.checkedGroup(id); b.cancel(id); return nil }},
			{"the grace period of a cancel is over",
				func(b *bench, id string) *storage.Claim { b.checkedGroup(id); b.cancelFor(id, 0); return nil }},
			{"it is suspended while it runs",
				func(b *bench, id string) *storage.Claim {
					b.checkedGroup(id)
					b.takeMember(id)
					b.suspend(id)
					return nil
				}},
		},
		first: groupTransactions, second: groupTransactions, extraState: (*bench).counted,
		after: func(b *bench) { b.exec("DELETE FROM messages") }, // this test does not deliver them
	}.run(t)
}

// A job for several workers counts as running while a worker has a member. From its cancel to its
// end, it counts as being cancelled.
func TestGroupIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for outcome, counted := range map[string]string{
		jobs.PlaceSucceeded: "succeeded 1", jobs.PlaceFailed: "failed 1", jobs.PlaceCancelled: "cancelled 1",
	} {
		for _, cancelled := range []bool{false, true} {
			id := fmt.Sprint(outcome, "-", cancelled)
			b.checkedGroup(id)
			equal(t, id+" waits", b.jobCounts(id), "available 1")
			b.takeMember(id)
			equal(t, id+" runs", b.jobCounts(id), "running 1")
			b.checkGroup(id, jobs.GroupStep{})
			equal(t, id+" still runs", b.jobCounts(id), "running 1")
			if cancelled {
				b.cancel(id)
				equal(t, id+" is being cancelled", b.jobCounts(id), "cancel_requested 1")
			} else {
				b.exec("UPDATE schedule SET waits_for = 'place' WHERE process_id = $1", id)
			}
			step := jobs.GroupStep{Outcome: outcome}
			if outcome == jobs.PlaceFailed {
				step.Failure, step.Detail = []byte(`{"reason": "no"}`), "no"
			}
			if !b.checkGroup(id, step) {
				t.Fatalf("%s was not checked", id)
			}
			equal(t, id+" has ended", b.jobCounts(id), counted)
		}
	}
	b.exec("UPDATE job_places SET state = 'cancelled', finished_time = now() WHERE state IS NULL")
}

// takeMember leases the one member of a group.
func (b *bench) takeMember(group string) {
	b.t.Helper()
	if l, err := leaseOf(b.Store, "w-"+group, "m-"+group, true); err != nil || l == nil {
		b.t.Fatalf("no member of %s: %v", group, err)
	}
}

// jobCounts returns the number of jobs with the given name by state.
func (b *bench) jobCounts(name string) string {
	b.t.Helper()
	all, err := jobs.Count(b.t.Context(), b.Store, []string{ns})
	var list []string
	for _, c := range must(b.t, all, err) {
		for state, n := range c.ByState {
			if c.Name == name && n != 0 {
				list = append(list, fmt.Sprint(state, " ", n))
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Count distinguishes running jobs for several workers from waiting ones.
func TestCountsOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.checkedGroup("g")
	b.takeMember("g")
	counts, err := jobs.Count(t.Context(), b.Store, []string{ns})
	for _, c := range must(t, counts, err) {
		if c.Name != "g" {
			continue
		}
		equal(t, "running", c.ByState["running"], int64(1))
		equal(t, "available", c.ByState["available"], int64(0))
		return
	}
	t.Error("the job was not counted")
}

// The start time of a job for several workers can change only before its members are created. Later
// changes are rejected, even while the engine is about to check the group.
func TestUpdatedGroupIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.checkedGroup("runs")
	b.checkedGroup("looks")
	b.exec("UPDATE schedule SET waits_for = 'place' WHERE process_id = 'looks'")
	b.group("waits", 1)
	later := time.Now().Add(time.Hour)
	for id, want := range map[string]string{"waits": "scheduled 1", "runs": "available 1", "looks": "available 1"} {
		err := jobs.Change(t.Context(), b.Store, key(id), func(*jobs.Row) (*jobs.Update, error) {
			return &jobs.Update{Timeout: time.Hour, Options: []byte(`{"workers": {}}`), RunTime: &later}, nil
		})
		if _, wrong := errors.AsType[*process.WrongStatusError](err); wrong != (id != "waits") || !wrong && err != nil {
			t.Errorf("%s: %v", id, err)
		}
		equal(t, id, b.counted(id), want)
	}
	equal(t, "jobs that wait for a time",
		ask[string](b, `SELECT string_agg(process_id, ' ') FROM schedule WHERE waits_for = 'time'
			OR scheduled_time > now()`), "waits")
}
