package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const (
	goesOn = progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE
	quiet  = progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	stops  = progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP
)

func (n *node) workers(t testing.TB, namespace string) []*progressorv1.Worker {
	t.Helper()
	list, _, err := n.ListWorkers(context.Background(), &progressorv1.ListWorkersRequest{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (n *node) tell(t testing.TB, worker string, d progressorv1.WorkerDirective, grace *durationpb.Duration) {
	t.Helper()
	w, err := n.StopWorker(context.Background(),
		&progressorv1.StopWorkerRequest{
			Namespace: "pull", WorkerId: worker, Directive: d, Grace: grace, Reason: "deploy",
		},
		process.Actor{Name: "ann", Source: "10.0.0.1"})
	if d == progressorv1.WorkerDirective_WORKER_DIRECTIVE_UNSPECIFIED {
		d = stops
	}
	if err != nil || w.GetDirective() != d || w.GetWorkerId() != worker {
		t.Fatalf("%v, %v", w, err)
	}
}

// ListWorkers returns the workers that have polled, with their leases, in pages.
func TestListWorkers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	other := pullNamespace(func(ns *progressorv1.Namespace) { ns.Namespace = "pull2" })
	n.Put(t, other)
	n.enqueue(t, "pull", "a", nil)
	n.enqueue(t, "pull", "b", nil)
	if got := n.poll(t, "w1", 2); len(got) != 2 {
		t.Fatalf("%d leases", len(got))
	}
	if _, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"pull2", "pull"}, WorkerID: "w2", Max: 1,
	}); err != nil {
		t.Fatal(err)
	}
	list := n.workers(t, "pull")
	if len(list) != 2 || list[0].GetWorkerId() != "w1" || list[0].GetLeases() != 2 ||
		list[0].GetDirective() != goesOn || list[0].GetLastSeenTime() == nil {
		t.Errorf("%v", list)
	}
	if w := list[1]; w.GetLeases() != 0 || !slices.Equal(w.GetNamespaces(), []string{"pull", "pull2"}) {
		t.Errorf("%v", w)
	}
	if list := n.workers(t, "pull2"); len(list) != 1 || list[0].GetWorkerId() != "w2" {
		t.Errorf("of pull2: %v", list)
	}
	page, next, err := n.ListWorkers(t.Context(), &progressorv1.ListWorkersRequest{Namespace: "pull", PageSize: 1})
	if err != nil || len(page) != 1 || next == "" {
		t.Fatalf("%v, %q, %v", page, next, err)
	}
	page, next, err = n.ListWorkers(t.Context(), &progressorv1.ListWorkersRequest{
		Namespace: "pull", PageSize: 1, PageToken: next,
	})
	if err != nil || len(page) != 1 || page[0].GetWorkerId() != "w2" || next != "" {
		t.Errorf("%v, %q, %v", page, next, err)
	}
	for token, field := range map[string]string{"?": "page_token"} {
		_, _, err := n.ListWorkers(t.Context(), &progressorv1.ListWorkersRequest{Namespace: "pull", PageToken: token})
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != field {
			t.Errorf("%v", err)
		}
	}
	var written time.Time
	seen := func() (at time.Time) {
		if err := n.DB.QueryRow(t.Context(),
			"SELECT last_seen_time FROM workers WHERE worker_id = 'w2' AND namespace = 'pull'").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	written = seen()
	for range 20 {
		n.leaseAll(t, "w2")
	}
	if at := seen(); !at.Equal(written) {
		t.Errorf("a poll updated the row of its worker, which was updated %s before", at.Sub(written))
	}
}

// A QUIET worker gets no new tasks and keeps its leases. CONTINUE reverts this.
func TestQuietWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "held", nil)
	l := n.leaseOne(t, "w1")
	n.tell(t, "w1", quiet, nil)
	n.enqueue(t, "pull", "next", nil)
	if got := n.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("leased to a quiet worker: %v", got)
	}
	if d := n.WorkerDirective(t.Context(), "w1"); d != quiet {
		t.Errorf("directives %v", d)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("its lease: %v", d)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Errorf("its answer: %v", err)
	}
	n.tell(t, "w1", goesOn, nil)
	if got := n.leaseAll(t, "w1"); len(got) != 1 {
		t.Errorf("%d leases after CONTINUE", len(got))
	}
	var details string
	if err := n.DB.QueryRow(t.Context(),
		`SELECT string_agg(actor || ' ' || method || ' ' || subject || ' ' || details::text, '; ' ORDER BY audit_id)
			FROM audit WHERE method = 'StopWorker'`).Scan(&details); err != nil ||
		details != `ann StopWorker w1 {"reason": "deploy", "directive": "quiet"}; `+
			`ann StopWorker w1 {"reason": "deploy", "directive": "continue"}` {
		t.Errorf("noted %s, %v", details, err)
	}
}

// After the grace period of a STOP, the remaining leases of a worker go to others. No attempt is
// counted, no job has failed, and a later answer of the worker is rejected.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w1")
	n.tell(t, "w1", progressorv1.WorkerDirective_WORKER_DIRECTIVE_UNSPECIFIED, durationpb.New(time.Hour))
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("within the grace period: %v", d)
	}
	n.tell(t, "w1", stops, durationpb.New(0))
	again := n.leaseOne(t, "w2")
	if again.GetJob().GetAttempt() != 1 || len(again.GetJob().GetFailures()) != 0 {
		t.Errorf("taken over: %v", again.GetJob())
	}
	if err := n.succeed(l, nil); !errors.Is(err, process.ErrFenced) {
		t.Errorf("late answer: %v", err)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_LOST {
		t.Errorf("late heartbeat: %v", d)
	}
	if err := n.succeed(again, nil); err != nil {
		t.Fatal(err)
	}
	job := n.job(t, "pull", "j", succeeded)
	if job.GetAttempt() != 1 || len(job.GetFailures()) != 0 || job.GetWorkerId() != "w2" {
		t.Errorf("%v", job)
	}
}

// A command reaches waiting polls, even on other nodes. It is rejected if no worker would get it.
func TestStopReachesPolls(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	polled := make(chan error, 1)
	began := time.Now()
	go func() {
		leases, err := other.Poll(context.Background(), pull.PollParams{
			Namespaces: []string{"pull"}, WorkerID: "w1", Max: 1, Wait: testTimeout,
		})
		if len(leases) > 0 {
			err = errors.New("the worker was handed a task")
		}
		polled <- err
	}()
	enginetest.Eventually(t, testTimeout, "the worker is known", func() bool { return len(n.workers(t, "pull")) == 1 })
	n.tell(t, "w1", quiet, nil)
	if err := <-polled; err != nil || time.Since(began) > testTimeout {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	n.enqueue(t, "pull", "j", nil)
	if got := other.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("leased to a quiet worker by another node: %v", got)
	}
	for _, r := range []*progressorv1.StopWorkerRequest{
		{Namespace: "pull", WorkerId: "nobody"}, {Namespace: "ns", WorkerId: "w1"},
	} {
		if _, err := n.StopWorker(t.Context(), r, process.Actor{}); !errors.Is(err, process.ErrWorkerNotFound) {
			t.Errorf("%v: %v", r, err)
		}
	}
	_, err := n.StopWorker(t.Context(),
		&progressorv1.StopWorkerRequest{Namespace: "pull", WorkerId: "w1", Directive: quiet, Grace: durationpb.New(1)},
		process.Actor{})
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "grace" {
		t.Errorf("a grace of QUIET: %v", err)
	}
}

// A worker that was not seen for a day is deleted.
func TestForgetWorkers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.leaseAll(t, "old")
	n.leaseAll(t, "new")
	if list := n.workers(t, "pull"); len(list) != 2 {
		t.Fatalf("%v", list)
	}
	n.exec(t, "UPDATE workers SET last_seen_time = now() - interval '25 hours' WHERE worker_id = 'old'")
	if _, err := n.Kind().Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := n.workers(t, "pull"); len(list) != 1 || list[0].GetWorkerId() != "new" {
		t.Errorf("%v", list)
	}
}

// A list of jobs shows the state of each job.
func TestListJobs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "ns", "good", &progressorv1.JobOptions{Tags: []string{"x"}})
	n.enqueue(t, "ns", "fails", nil)
	n.job(t, "ns", "good", succeeded)
	n.job(t, "ns", "fails", failed)
	list := func(filter string) (ids []string) {
		jobs, _, err := n.List(t.Context(), &progressorv1.ListJobsRequest{
			Namespace: "ns", Filter: filter, OrderBy: "job_id",
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			ids = append(ids, j.GetJobId()+" "+j.GetState().String())
		}
		return ids
	}
	for filter, want := range map[string][]string{
		"":                             {"fails JOB_STATE_FAILED", "good JOB_STATE_SUCCEEDED"},
		"state = FAILED":               {"fails JOB_STATE_FAILED"},
		"tags:x args.k != 1":           {"good JOB_STATE_SUCCEEDED"},
		"name = work state = RUNNING ": nil,
	} {
		if got := list(filter); !slices.Equal(got, want) {
			t.Errorf("%q: %v", filter, got)
		}
	}
	if _, _, err := n.List(t.Context(), &progressorv1.ListJobsRequest{Namespace: "none"}); !errors.Is(err,
		process.ErrNamespaceNotFound) {
		t.Errorf("%v", err)
	}
}

// A poll that was offered a task and skipped it, because another session had locked the process,
// waits for the lock. Otherwise, it would never get the task of a process that is nearly always
// locked.
func TestPollWaitsForLock(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), reportStatus())
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "locked"), Accepted: true})
	must(t, err)
	tx, err := n.DB.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // if the poll does not wait
	_, err = tx.Exec(t.Context(), "SELECT FROM processes WHERE process_id = 'locked' FOR UPDATE")
	must(t, err)
	leased := make(chan []*progressorv1.Lease, 1)
	go func() { leased <- n.poll(t, "w", 1) }()
	enginetest.Eventually(t, testTimeout, "the poll waits for the lock", func() bool {
		return n.Count(t, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	must(t, tx.Rollback(t.Context()))
	if leases := <-leased; len(leases) != 1 {
		t.Errorf("%d leases, want 1", len(leases))
	}
}
