package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
)

// enqueue creates a job whose name is its ID, so that a poll by that name finds no other job.
func (b *bench) enqueue(id string, change ...func(*jobs.NewJob)) jobs.Enqueued {
	b.t.Helper()
	j := &jobs.NewJob{Key: key(id), Name: id, Args: []byte(`"args"`), Timeout: time.Hour}
	for _, f := range change {
		f(j)
	}
	enqueued, err := jobs.Enqueue(b.Store, j)
	return must(b.t, enqueued, err)
}

// lease leases the job with this name to a worker. It returns nil if there is none to take.
func lease(s *storage.Store, worker, id string) (*storage.Lease, error) {
	return leaseOf(s, worker, id, false)
}

// leaseOf is like lease. With grouped, it includes slots of groups.
func leaseOf(s *storage.Store, worker, id string, grouped bool) (*storage.Lease, error) {
	subscription := pull.Subscription{
		Namespace: ns, JobName: id, StepTimeout: timeout, Lease: time.Hour, MaxLease: time.Hour,
	}
	leases, err := pull.Poll(context.Background(), s, worker, []pull.Subscription{subscription}, 1, grouped)
	if err != nil || len(leases) == 0 {
		return nil, err
	}
	return &leases[0], nil
}

func (b *bench) leased(id string) *storage.Claim {
	b.t.Helper()
	l, err := lease(b.Store, "w", id)
	if must(b.t, l, err) == nil {
		b.t.Fatalf("job %s was not leased", id)
	}
	return &l.Claim
}

// of adds the effects of the kind job to the completion of an attempt.
func of(e *jobs.End, more ...storage.Effect) func(*storage.Completion) {
	return func(c *storage.Completion) {
		c.Leased, c.Promote = true, false
		end := *e // the transactions of a matrix share e
		end.Attempt, end.WorkerID = c.Attempt, "w"
		c.EffectsOnEnd = append([]storage.Effect{&end}, more...)
	}
}

// loseWorker changes a completion to the end of an attempt whose worker was lost.
var loseWorker = of(&jobs.End{Failure: []byte(`{"reason": "lease_lost"}`), Takeover: true},
	jobs.EndIfCancelled{})

func retryInAnHour(c *storage.Completion) { c.RetryAfter = time.Hour }

var jobTransactions = []transaction{
	deliver,
	ends("succeed", storage.Completed, of(&jobs.End{Result: []byte("7"), Kept: true, TTL: time.Hour})),
	ends("fail", storage.Failed, broken("no"), of(&jobs.End{Failure: []byte(`{"reason": "no"}`)})),
	ends("try again later", storage.Retry, retryInAnHour,
		of(&jobs.End{Failure: []byte(`{"reason": "no"}`)}, jobs.EndIfCancelled{})),
	ends("lose the worker", storage.Retry, loseWorker),
	ends("release", storage.Retry, func(c *storage.Completion) {
		c.Uncounted, c.Leased, c.Promote, c.EffectsOnEnd = true, true, false, []storage.Effect{jobs.EndIfCancelled{}}
	}),
	cancel, endOverdueCancel, suspend, resume, remove,
}

var jobSituations = []situation{
	{"it waits", func(b *bench, id string) *storage.Claim { b.enqueue(id); return nil }},
	{"a worker has it", func(b *bench, id string) *storage.Claim { b.enqueue(id); return b.leased(id) }},
	{"a worker has it, a cancel was requested", func(b *bench, id string) *storage.Claim {
		b.enqueue(id)
		c := b.leased(id)
		b.cancel(id)
		return c
	}},
	{"a worker has it, the grace period of a cancel is over", func(b *bench, id string) *storage.Claim {
		b.enqueue(id)
		c := b.leased(id)
		b.cancelFor(id, 0)
		return c
	}},
	{"it waits for its next attempt", func(b *bench, id string) *storage.Claim {
		b.enqueue(id)
		b.save(end(b.leased(id), storage.Retry, retryInAnHour, of(&jobs.End{}, jobs.EndIfCancelled{})))
		return nil
	}},
	{"it is suspended while a worker has it", func(b *bench, id string) *storage.Claim {
		b.enqueue(id)
		c := b.leased(id)
		b.suspend(id)
		return c
	}},
	{"it has failed", func(b *bench, id string) *storage.Claim {
		b.enqueue(id)
		b.save(end(b.leased(id), storage.Failed, broken("no"), of(&jobs.End{})))
		return nil
	}},
}

// jobState returns the stored state of a job in addition to its process.
func (b *bench) jobState(id string) string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce((
		SELECT 'takeovers ' || takeovers || ' failures ' || coalesce(jsonb_array_length(failures), 0) ||
		       ' result ' || coalesce(convert_from(result, 'UTF8'), 'none')
		  FROM jobs WHERE namespace = 'shop' AND process_id = $1), 'no row') || coalesce((
		SELECT ' leased to ' || l.worker_id
		  FROM leases l JOIN running r USING (namespace, process_id, fencing_token)
		 WHERE l.namespace = 'shop' AND l.process_id = $1), '')`, id)
}

// Two concurrent transactions of two nodes on one job have the same result as if they ran one after
// the other.
func TestEveryTwoTransactionsOfAJob(t *testing.T) {
	t.Parallel()
	matrix{
		situations: jobSituations, first: jobTransactions, second: jobTransactions, extraState: (*bench).jobState,
	}.run(t)
}

func TestEveryTwoFastPathTransactionsOfAJob(t *testing.T) {
	t.Parallel()
	matrix{
		situations: jobSituations, first: only(t, jobTransactions, "succeed"), second: jobTransactions, fastPath: true,
		extraState: (*bench).jobState,
	}.run(t)
}

// A poll skips a job that is locked. After another transaction, a poll leases the job if the job
// can still run. A leased job has exactly one running attempt.
func TestPollMeetsTransactions(t *testing.T) {
	t.Parallel()
	for _, tr := range jobTransactions {
		if tr.result {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.WaitForLocks()
			other := open(t, b.dsn, storage.Config{}).WaitForLocks()
			b.enqueue("j")
			release := b.foreign("SELECT FROM processes WHERE process_id = $1 FOR UPDATE", "j")
			l, err := lease(b.Store, "w", "j")
			if must(t, l, err) != nil {
				t.Error("a locked job was leased")
			}
			release()
			answer, err := tr.run(other, "j", nil)
			must(t, answer, err)
			l, err = lease(b.Store, "w", "j")
			runs := ask[int](b, "SELECT count(*) FROM running WHERE process_id = 'j'") == 1
			if held := must(t, l, err) != nil; held != runs {
				t.Errorf("after %s (%s): leased %t, the process is %s", tr.name, answer, held, b.state("j"))
			}
		})
	}
}

// tokenOf returns the token of a lease in the namespace.
func tokenOf(l *storage.Lease) pull.LeaseToken {
	return pull.LeaseToken{Key: key(l.Claim.ProcessID), FencingToken: l.Claim.FencingToken, Salt: l.Salt}
}

// If many workers poll concurrently, only one gets a job.
func TestManyWorkersOneJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	other := open(t, b.dsn, storage.Config{}).WaitForLocks()
	for round := range 20 {
		id := fmt.Sprint("j", round)
		b.enqueue(id)
		var mu sync.Mutex
		var got []*storage.Lease
		var all sync.WaitGroup
		begin := make(chan struct{})
		for n, s := range []*storage.Store{b.Store, other, b.Store, other, b.Store, other} {
			all.Go(func() {
				<-begin
				l, err := lease(s, fmt.Sprint("w", n), id)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				} else if l != nil {
					got = append(got, l)
				}
			})
		}
		close(begin)
		all.Wait()
		if len(got) != 1 {
			t.Fatalf("%d workers have job %s", len(got), id)
		}
		held, err := pull.ReadLease(t.Context(), b.Store, tokenOf(got[0]))
		equal(t, "the lease", must(t, held, err).WorkerID, got[0].WorkerID)
	}
}

// If a lease precedes a cancel, the next heartbeat of its worker reports the cancel. Otherwise no
// worker gets the job.
func TestCancelMeetsClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	other := open(t, b.dsn, storage.Config{}).WaitForLocks()
	for round := range 50 {
		id := fmt.Sprint("j", round)
		b.enqueue(id)
		var l *storage.Lease
		var state storage.CancelState
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() { l, errs[0] = lease(b.Store, "w", id) })
		both.Go(func() { state, errs[1] = other.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour}) })
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		if (l != nil) == state.Ended {
			t.Fatalf("round %d: leased %t, cancelled %+v, the process is %s", round, l != nil, state, b.state(id))
		}
		if l == nil {
			continue
		}
		beaten, err := pull.BeatAll(t.Context(), b.Store, "w", []pull.Beat{{Token: tokenOf(l)}})
		equal(t, "directive of the worker",
			[]bool{must(t, beaten, err)[0].LeaseLost, beaten[0].Cancelling}, []bool{false, true})
	}
}

// If two nodes concurrently enqueue with one unique key, one job is created, and both get its ID.
func TestEnqueueMeetsEnqueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	other := open(t, b.dsn, storage.Config{}).WaitForLocks()
	for round := range 50 {
		var ids [4]string
		var made [4]bool
		var all sync.WaitGroup
		for n, s := range []*storage.Store{b.Store, other, b.Store, other} {
			all.Go(func() {
				e, err := jobs.Enqueue(s, &jobs.NewJob{
					Key: key(fmt.Sprintf("j%d-%d", round, n)), Name: "work", Timeout: time.Hour,
					Unique: jobs.Unique{Key: fmt.Sprint("k", round)},
				})
				if err != nil {
					t.Error(err)
				}
				ids[n], made[n] = e.ProcessID, e.Outcome == jobs.JobEnqueued
			})
		}
		all.Wait()
		n := len(slices.DeleteFunc(made[:], func(m bool) bool { return !m }))
		if n != 1 || len(slices.Compact(ids[:])) != 1 {
			t.Fatalf("round %d: %d jobs were created, but the requests returned %v", round, n, ids)
		}
	}
}

// If another session has created the process of a job, and the snapshot of the statement does not
// show that process, the job is reported as existing.
func TestEnqueueMeetsProcess(t *testing.T) {
	t.Parallel()
	for name, enqueue := range map[string]func(*storage.Store, *jobs.NewJob) (jobs.EnqueueOutcome, error){
		"one": func(s *storage.Store, j *jobs.NewJob) (jobs.EnqueueOutcome, error) {
			e, err := jobs.Enqueue(s, j)
			return e.Outcome, err
		},
		"batch": func(s *storage.Store, j *jobs.NewJob) (jobs.EnqueueOutcome, error) {
			_, err := jobs.EnqueueBatch(t.Context(), s, []*jobs.NewJob{j})
			if refused, ok := errors.AsType[*jobs.EnqueueRefusedError](err); ok {
				return refused.Outcome, nil
			}
			return jobs.JobEnqueued, err
		},
		"replacing": func(s *storage.Store, j *jobs.NewJob) (jobs.EnqueueOutcome, error) {
			j.Unique = jobs.Unique{Key: "k", Replace: true}
			e, _, err := jobs.EnqueueReplacing(t.Context(), s, j)
			return e.Outcome, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			equal(t, "outcome", createdMeanwhile(b, func(string, pgx.Tx) error { return nil },
				func(id string) (jobs.EnqueueOutcome, error) {
					return enqueue(b.Store, &jobs.NewJob{Key: key(id), Name: "work", Timeout: time.Hour})
				}), jobs.JobExists)
		})
	}
}

// If a job is retried while another one is enqueued with its unique key, one of them holds the key.
func TestRetryMeetsEnqueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	other := open(t, b.dsn, storage.Config{}).WaitForLocks()
	for round := range 50 {
		id, unique := fmt.Sprint("j", round), fmt.Sprint("k", round)
		b.enqueue(id, func(j *jobs.NewJob) { j.Unique.Key = unique })
		b.save(end(b.leased(id), storage.Failed, broken("no"), of(&jobs.End{})))
		var retried, enqueued error
		var e jobs.Enqueued
		var both sync.WaitGroup
		both.Go(func() {
			retried = jobs.Retry(context.Background(), b.Store, key(id), jobs.Unique{Key: unique}, false)
		})
		both.Go(func() {
			e, enqueued = jobs.Enqueue(other, &jobs.NewJob{
				Key: key(id + "-twin"), Name: "work", Timeout: time.Hour, Unique: jobs.Unique{Key: unique},
			})
		})
		both.Wait()
		var held *process.WrongStatusError
		if enqueued != nil || retried != nil && !errors.As(retried, &held) {
			t.Fatal(retried, enqueued)
		}
		open := ask[int](b, `SELECT count(*)::int FROM processes
			WHERE status = 'INIT' AND process_id IN ($1, $1 || '-twin')`, id)
		if open != 1 || (retried == nil) != (e.Outcome == jobs.JobDuplicate) {
			t.Fatalf("round %d: %d jobs have the key; retried: %v, enqueued: %+v", round, open, retried, e)
		}
	}
}

// A job that has failed runs again as a new task. A job that has succeeded runs again only with
// clearSuccesses. A second retry is rejected while the job waits.
func TestRetryJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var wrong *process.WrongStatusError
	b.enqueue("j")
	b.save(end(b.leased("j"), storage.Failed, broken("no"), of(&jobs.End{Failure: []byte(`{"reason": "no"}`)})))
	equal(t, "the job", b.jobState("j"), "takeovers 0 failures 1 result none")
	if err := jobs.Retry(t.Context(), b.Store, key("j"), jobs.Unique{}, false); err != nil {
		t.Fatal(err)
	}
	b.is("j", "INIT e0: INIT ERROR, INIT waits for place#0")
	equal(t, "the job", b.jobState("j"), "takeovers 0 failures 0 result none")
	if err := jobs.Retry(t.Context(), b.Store, key("j"), jobs.Unique{}, false); !errors.As(err, &wrong) {
		t.Errorf("a second retry: %v", err)
	}
	b.save(end(b.leased("j"), storage.Completed, of(&jobs.End{Result: []byte("7"), Kept: true, TTL: time.Hour})))
	if err := jobs.Retry(t.Context(), b.Store, key("j"), jobs.Unique{}, false); !errors.As(err, &wrong) {
		t.Errorf("a retry of a job that has succeeded: %v", err)
	}
	if err := jobs.Retry(t.Context(), b.Store, key("j"), jobs.Unique{}, true); err != nil {
		t.Fatal(err)
	}
	b.is("j", "INIT e0: INIT ERROR, INIT FINISHED, INIT waits for place#0")
	equal(t, "the job", b.jobState("j"), "takeovers 0 failures 0 result none")
}
