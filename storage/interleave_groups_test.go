package storage_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
)

// member creates a job that is a member of a group that needs two workers.
func (b *bench) member(id string) {
	b.t.Helper()
	b.group("g-"+id, 2)
	b.enqueue(id)
	b.addPlace("g-"+id, id)
}

// group creates a job for several workers, without its members.
func (b *bench) group(id string, count int) {
	b.t.Helper()
	b.enqueue(id, func(j *jobs.NewJob) { j.Grouped, j.Options = true, []byte(`{"workers": {}}`) })
	b.exec("INSERT INTO job_groups (namespace, process_id, count, max_failures) VALUES ($1, $2, $3, 0)", ns, id, count)
}

// addPlace gives a job a free place of a group.
func (b *bench) addPlace(group, id string) {
	b.t.Helper()
	b.exec("INSERT INTO job_places (namespace, process_id, job_id) VALUES ($1, $2, $3)", ns, id, group)
	b.exec("UPDATE schedule SET taker = '' WHERE process_id = $1", id)
}

func (b *bench) leasedMember(id string) *storage.Claim {
	b.t.Helper()
	l, err := leaseOf(b.Store, "w", id, true)
	if must(b.t, l, err) == nil {
		b.t.Fatalf("member %s was not leased", id)
	}
	return &l.Claim
}

var memberTransactions = []transaction{
	ends("succeed", storage.Completed, of(&jobs.End{Result: []byte("7"), Kept: true, TTL: time.Hour})),
	ends("fail", storage.Failed, broken("no"), of(&jobs.End{Failure: []byte(`{"reason": "no"}`)})),
	ends("try again later", storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour },
		of(&jobs.End{Failure: []byte(`{"reason": "no"}`)}, jobs.EndIfCancelled{}, jobs.ReassignMember{})),
	ends("lose the worker", storage.Retry,
		of(&jobs.End{Failure: []byte(`{"reason": "lease_lost"}`), Takeover: true}, jobs.EndIfCancelled{},
			jobs.ReassignMember{AnyWorker: true})),
	ends("release", storage.Retry, func(c *storage.Completion) {
		c.Uncounted, c.Leased, c.Promote, c.EffectsOnEnd = true, true, false,
			[]storage.Effect{jobs.EndIfCancelled{}, jobs.ReassignMember{AnyWorker: true}}
	}),
	cancel, endOverdueCancel,
}

var memberSituations = []situation{
	{"it waits", func(b *bench, id string) *storage.Claim { b.member(id); return nil }},
	{"a worker has it", func(b *bench, id string) *storage.Claim { b.member(id); return b.leasedMember(id) }},
	{"a worker has it, a cancel was requested", func(b *bench, id string) *storage.Claim {
		b.member(id)
		c := b.leasedMember(id)
		b.cancel(id)
		return c
	}},
	{"a worker has it, the grace period of a cancel is over", func(b *bench, id string) *storage.Claim {
		b.member(id)
		c := b.leasedMember(id)
		b.cancelFor(id, 0)
		return c
	}},
}

// memberState returns the stored state of a member in addition to its process: the worker that has
// its slot, and the worker that may take it.
func (b *bench) memberState(id string) string {
	b.t.Helper()
	return b.jobState(id) + ask[string](b,
		`SELECT ' place of ' || coalesce(l.worker_id, 'none') || ', takers ' || g.takers::text || CASE
		WHEN g.running_time IS NULL THEN ''
		  ELSE ', begun' END || coalesce((SELECT ', may be taken by ' || coalesce(s.taker, 'any')
		FROM schedule s WHERE s.process_id = l.process_id), '') FROM job_places l
		  JOIN job_groups g ON g.process_id = l.job_id WHERE l.process_id = $1`, id)
}

// Two concurrent transactions of two nodes on one member have the same result as if they ran one
// after the other. Examples are a result and a collection, or a result and a cancel. The slot of
// the member belongs to the worker that may continue, or to none.
func TestEveryTwoTransactionsOfAMember(t *testing.T) {
	t.Parallel()
	matrix{
		situations: memberSituations, first: memberTransactions, second: memberTransactions,
		extraState: (*bench).memberState,
	}.run(t)
}

// A slot stays with a worker that fails. If the worker is lost, any worker may take the slot,
// unless the slot is for a particular worker. The group still counts as begun.
func TestPlacesOfMembers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for id, want := range map[string]string{
		"fails":  "place of w, takers {w}, begun, may be taken by =w",
		"lost":   "place of none, takers {}, begun, may be taken by ",
		"pinned": "place of w, takers {w}, begun, may be taken by =w",
	} {
		b.member(id)
		c := b.leasedMember(id)
		if id == "pinned" {
			b.exec("UPDATE job_places SET pinned = true WHERE process_id = $1", id)
		}
		b.save(end(c, storage.Retry, of(&jobs.End{Failure: []byte(`{"reason": "no"}`)}, jobs.EndIfCancelled{},
			jobs.ReassignMember{AnyWorker: id != "fails"})))
		equal(t, id, b.memberState(id), "takeovers 0 failures 1 result none "+want)
	}
	// Two members leave a group in one flush. Neither of their workers remains among the takers of
	// the group.
	b.group("two", 3)
	var claims []*storage.Claim
	for n := range 3 {
		id := fmt.Sprint("m", n)
		b.enqueue(id, func(j *jobs.NewJob) { j.Name = "many" })
		b.addPlace("two", id)
		l, err := leaseOf(b.Store, fmt.Sprint("w", n), "many", true)
		if must(t, l, err) == nil {
			t.Fatal("no task was available")
		}
		claims = append(claims, &l.Claim)
	}
	release := b.foreign("SELECT FROM job_groups WHERE process_id = $1 FOR UPDATE", "two")
	var all sync.WaitGroup
	for _, c := range claims[:2] {
		all.Go(func() {
			_, err := b.SaveResult(end(c, storage.Retry,
				of(&jobs.End{}, jobs.EndIfCancelled{}, jobs.ReassignMember{AnyWorker: true})))
			if err != nil {
				t.Error(err)
			}
		})
	}
	release()
	all.Wait()
	equal(t, "takers", ask[string](b, "SELECT takers::text FROM job_groups WHERE process_id = 'two'"), "{w2}")
}

// If one worker sends many concurrent polls to two nodes, exactly one of the polls gets a slot of a
// group, even if the group runs. If many workers poll, each slot is taken by another worker.
func TestManyPollsOneGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	other := open(t, b.dsn, storage.Config{}).WaitForLocks()
	for round := range 20 {
		id := fmt.Sprint("g", round)
		b.group(id, 4)
		for n := range 4 {
			member := fmt.Sprintf("%s-%d", id, n)
			b.enqueue(member, func(j *jobs.NewJob) { j.Name = id })
			b.addPlace(id, member)
		}
		got := func(workers ...string) (had []string) {
			var mu sync.Mutex
			var all sync.WaitGroup
			begin := make(chan struct{})
			for n, w := range workers {
				s := []*storage.Store{b.Store, other}[n%2]
				all.Go(func() {
					<-begin
					leases, err := pull.Poll(context.Background(), s, w,
						[]pull.Subscription{
							{Namespace: ns, JobName: id, StepTimeout: timeout, Lease: time.Hour, MaxLease: time.Hour},
						}, 10, true)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					for range leases {
						had = append(had, w)
					}
				})
			}
			close(begin)
			all.Wait()
			return had
		}
		for _, w := range []string{"v", "w"} { // the group runs when w polls
			if had := got(w, w, w, w, w, w); len(had) != 1 {
				t.Fatalf("round %d: worker %s has %d places", round, w, len(had))
			}
		}
		for len(got("w", "x", "w", "y", "x", "z")) > 0 {
		}
		equal(t, "workers with a place",
			ask[int](b, "SELECT count(DISTINCT worker_id) FROM job_places WHERE job_id = $1", id), 4)
		equal(t, "places without a worker",
			ask[int](b, "SELECT count(*) FROM job_places WHERE job_id = $1 AND worker_id IS NULL", id), 0)
	}
}

// A poll may begin before another poll of its worker takes a slot, and read the group afterwards.
// It then sees the change, because it reads the current version of the group's row.
func TestPollReadsTheCurrentGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.group("g", 2)
	for _, member := range []string{"g-1", "g-2"} {
		b.enqueue(member, func(j *jobs.NewJob) { j.Name = "work" })
		b.addPlace("g", member)
	}
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	// The poll reads the row of the group last. The poll skips the row if it is locked, and
	// otherwise sees the committed changes.
	if _, err := tx.Exec(t.Context(), "UPDATE job_groups SET takers = '{w}'"); err != nil {
		t.Fatal(err)
	}
	l, err := leaseOf(b.Store, "w", "work", true)
	if must(t, l, err) != nil {
		t.Error("a slot is leased while its group changes")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err = leaseOf(b.Store, "w", "work", true)
	if must(t, l, err) != nil {
		t.Error("a worker got a second slot")
	}
	l, err = leaseOf(b.Store, "x", "work", true)
	if must(t, l, err) == nil {
		t.Error("another worker got no task")
	}
	b.exec("UPDATE job_places SET worker_id = 'w' WHERE worker_id IS NULL")
}

// If a group does not run yet and its process is locked, a poll skips the members of the group,
// because a cancel may be about to commit.
func TestGroupStartsOrIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.checkedGroup("g")
	release := b.foreign(`UPDATE processes SET cancel_requested_time = now(), cancel_deadline = now()
		+ interval '1 hour' WHERE process_id = 'g'`)
	l, err := leaseOf(b.Store, "w", "m-g", true)
	if must(t, l, err) != nil {
		t.Error("a member is leased while its group is cancelled")
	}
	release()
	b.takeMember("g")
}
