//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobNamespace contains the jobs of a chaos run. Workers pull them.
const jobNamespace = "jobs"

// leaseTime is how long a worker may be silent. It is short, so that many leases expire in a run.
const leaseTime = 2 * time.Second

// jobWatch records the expected state of the jobs of a chaos run, independently of the database:
// the enqueued jobs, and the responses to the workers.
type jobWatch struct {
	t     testing.TB
	fleet *fleet

	stopPushing, stopWorking func()
	pushers, workers         sync.WaitGroup

	mutex    sync.Mutex
	enqueued map[string]bool     // by job; true if an engine confirmed it
	answers  map[string][]string // by job: results that workers sent
	accepted map[string][]string // by job: results that an engine accepted
	refused  int                 // answers under a lost lease
	left     int                 // leases that their worker never answered
	paused   int                 // leases whose worker was silent for longer than they last
	released int
	failed   int
}

// putJobNamespace creates the namespace of the jobs.
func putJobNamespace(t testing.TB, n *node) {
	t.Helper()
	ns := &progressorv1.Namespace{Namespace: jobNamespace,
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
			Pull: &progressorv1.PullProcessor{LeaseDuration: durationpb.New(leaseTime)},
		}}}
	if _, err := one(n).Namespace.PutNamespace(t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: ns}); err != nil {
		t.Fatal(err)
	}
}

// startJobs enqueues jobs and runs workers until end is called.
func startJobs(f *fleet, seed uint64) *jobWatch {
	w := &jobWatch{t: f.t, fleet: f, enqueued: map[string]bool{}, answers: map[string][]string{},
		accepted: map[string][]string{}}
	var pushing, working context.Context
	pushing, w.stopPushing = context.WithCancel(f.t.Context())
	working, w.stopWorking = context.WithCancel(f.t.Context())
	f.t.Cleanup(w.stopPushing)
	f.t.Cleanup(w.stopWorking)
	for i := range 3 {
		w.pushers.Go(func() { w.enqueue(pushing, i) })
	}
	for i := range 12 { // they keep up with the jobs and with the steps of the runs
		random := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		w.workers.Go(func() { w.work(working, fmt.Sprint("worker-", i), random) })
	}
	return w
}

// enqueue enqueues one job after the other. It repeats each request until an engine confirms the
// job.
func (w *jobWatch) enqueue(ctx context.Context, pusher int) {
	pause := time.NewTicker(250 * time.Millisecond) // the workers must keep up
	defer pause.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		id := fmt.Sprintf("job-%d-%d", pusher, number)
		w.mutex.Lock()
		w.enqueued[id] = false
		w.mutex.Unlock()
		err := w.ask(context.WithoutCancel(ctx), number, func(ctx context.Context, c *client.Client) error {
			_, err := c.Job.Enqueue(ctx, &progressorv1.EnqueueRequest{
				Namespace: jobNamespace, JobId: id, Name: "jobs", Args: structpb.NewStringValue(id), IdempotencyKey: id,
				Options: &progressorv1.JobOptions{
					KeepResult: true, ResultTtl: durationpb.New(24 * time.Hour), MaxRetry: 1000,
					MaxTakeovers: new(int32(1000)),
					Backoff: &progressorv1.Backoff{
						Steps: []*durationpb.Duration{durationpb.New(20 * time.Millisecond)}},
				},
			})
			return err
		})
		if err != nil {
			w.t.Errorf("enqueue %s: %v", id, err)
			return
		}
		w.mutex.Lock()
		w.enqueued[id] = true
		w.mutex.Unlock()
	}
}

// ask tries one engine after the other until one has executed the request or returned an error that
// is not worth a retry.
func (w *jobWatch) ask(ctx context.Context, first int, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	for try := first; ; try++ {
		limit, over := context.WithTimeout(ctx, w.fleet.try)
		err := do(limit, w.fleet.at(try))
		over()
		if result, hard := verdict(err); result == acked || hard != nil || ctx.Err() != nil {
			return err
		}
		waitUntil(20*time.Millisecond, func() bool { return false })
	}
}

// work runs a worker. It polls, and handles its leases like well-behaved and misbehaving workers
// do.
func (w *jobWatch) work(ctx context.Context, id string, random *rand.Rand) {
	for try := 0; ctx.Err() == nil; try++ {
		limit, over := context.WithTimeout(ctx, w.fleet.try)
		resp, err := w.fleet.at(random.IntN(100)).Worker.Poll(limit, &progressorv1.PollRequest{
			Namespaces: []string{jobNamespace, flowNamespace}, WorkerId: id, MaxLeases: 3,
			Wait: durationpb.New(500 * time.Millisecond),
		})
		over()
		if err != nil {
			waitUntil(20*time.Millisecond, func() bool { return false })
			continue
		}
		for n, l := range resp.GetLeases() {
			w.handle(context.WithoutCancel(ctx), id, l, fmt.Sprintf("%s/%d/%d", id, try, n), random)
		}
	}
}

// handle answers, releases or abandons a lease.
func (w *jobWatch) handle(ctx context.Context, worker string, l *progressorv1.Lease, nonce string, random *rand.Rand) {
	switch what := random.IntN(100); {
	case what < 4: // the worker dies
		w.count(&w.left)
	case what < 8: // the worker answers after the lease has expired
		w.count(&w.paused)
		waitUntil(leaseTime+leaseTime/2, func() bool { return false })
		w.answer(ctx, l, nonce, random)
	case what < 12:
		w.count(&w.released)
		// The response for a lost lease proves nothing.
		_ = w.ask(ctx, random.IntN(100), func(ctx context.Context, c *client.Client) error {
			_, err := c.Worker.Release(ctx,
				&progressorv1.ReleaseRequest{WorkerId: worker, LeaseTokens: []string{l.GetLeaseToken()}})
			return err
		})
	case what < 22:
		w.count(&w.failed)
		// The response for a lost lease proves nothing.
		_ = w.ask(ctx, random.IntN(100), func(ctx context.Context, c *client.Client) error {
			_, err := c.Worker.Complete(ctx,
				&progressorv1.CompleteRequest{LeaseToken: l.GetLeaseToken(),
					Answer: &progressorv1.CompleteRequest_Response{
						Response: &progressorv1.ProcessResponse{
							Outcome: &progressorv1.ProcessResponse_Failure{
								Failure: &progressorv1.Failure{Reason: "flaky"}}},
					}})
			return err
		})
	case what < 40: // it takes a while and sends heartbeats
		waitUntil(100*time.Millisecond, func() bool { return false })
		// The answer shows whether the lease was lost.
		_ = w.ask(ctx, random.IntN(100), func(ctx context.Context, c *client.Client) error {
			_, err := c.Worker.Heartbeat(ctx,
				&progressorv1.HeartbeatRequest{WorkerId: worker, Beats: []*progressorv1.LeaseBeat{
					{LeaseToken: l.GetLeaseToken(),
						Progress: &progressorv1.Progress{Percent: 50, Summary: "half of it"}},
				}})
			return err
		})
		fallthrough
	default:
		w.answer(ctx, l, nonce, random)
	}
}

func (w *jobWatch) count(n *int) {
	w.mutex.Lock()
	*n++
	w.mutex.Unlock()
}

// answer completes a job with a unique result, and records the response.
func (w *jobWatch) answer(ctx context.Context, l *progressorv1.Lease, nonce string, random *rand.Rand) {
	job := l.GetJob().GetJobId()
	w.mutex.Lock()
	w.answers[job] = append(w.answers[job], nonce)
	w.mutex.Unlock()
	err := w.ask(ctx, random.IntN(100), func(ctx context.Context, c *client.Client) error {
		_, err := c.Worker.Complete(ctx,
			&progressorv1.CompleteRequest{LeaseToken: l.GetLeaseToken(),
				Answer: &progressorv1.CompleteRequest_JobResult{
					JobResult: &progressorv1.JobResult{Result: structpb.NewStringValue(nonce)},
				}})
		return err
	})
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch {
	case err == nil:
		w.accepted[job] = append(w.accepted[job], nonce)
	case client.Reason(err) == progressorv1.ErrorDetail_REASON_LEASE_LOST:
		w.refused++
	case connect.CodeOf(err) != connect.CodeUnavailable && connect.CodeOf(err) != connect.CodeDeadlineExceeded:
		w.t.Errorf("complete %s: %v", job, err)
	}
}

// jobRow is the final state of a job.
type jobRow struct {
	status, result string
	ends           int // tasks that have succeeded
}

// end lets the workers continue until all jobs have ended, and returns the jobs.
func (w *jobWatch) end(conn *pgx.Conn) map[string]jobRow {
	w.t.Helper()
	w.stopPushing()
	w.pushers.Wait()
	await(w.t, testTimeout, "all jobs have ended", func() bool {
		return count(w.t, conn, `SELECT count(*) FROM processes WHERE namespace = $1 AND status <> 'COMPLETED'`,
			jobNamespace) == 0
	})
	w.stopWorking()
	w.workers.Wait()
	found, err := conn.Query(w.t.Context(),
		`SELECT p.process_id, p.status::text, coalesce(convert_from(j.result, 'UTF8'), ''),
		(SELECT count(*) FROM tasks k WHERE k.namespace = p.namespace AND k.process_id = p.process_id
		  AND k.status = 'FINISHED')
		FROM processes p JOIN jobs j USING (namespace, process_id) WHERE p.namespace = $1`, jobNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]jobRow{}
	var id string
	var r jobRow
	if _, err = pgx.ForEachRow(found, []any{&id, &r.status, &r.result, &r.ends},
		func() error { rows[id] = r; return nil }); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// defects returns the defects of jobs: a job that is lost, that was never enqueued, that ended
// twice, or that ended with an answer that no worker has sent or that differs from the accepted
// answer.
func (w *jobWatch) defects(rows map[string]jobRow) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for id, sure := range w.enqueued {
		if _, there := rows[id]; sure && !there {
			say("job %s is lost", id)
		}
	}
	for id, r := range rows {
		if _, asked := w.enqueued[id]; !asked {
			say("job %s was not enqueued by any client", id)
		}
		if r.status != "COMPLETED" {
			if len(w.accepted[id]) > 0 {
				say("job %s is %s, although the answer %v was accepted", id, r.status, w.accepted[id])
			}
			continue
		}
		switch {
		case r.ends != 1:
			say("job %s has ended %d times", id, r.ends)
		case !slices.Contains(w.answers[id], trim(r.result)):
			say("job %s has the result %s, which no worker returned", id, r.result)
		case len(w.accepted[id]) > 1 || len(w.accepted[id]) == 1 && w.accepted[id][0] != trim(r.result):
			say("job %s has the result %s; accepted were %v", id, r.result, w.accepted[id])
		}
	}
	slices.Sort(wrong)
	return wrong
}

// trim removes the quotes of a JSON string.
func trim(text string) string { return text[1 : len(text)-1] }

func (w *jobWatch) figures(rows map[string]jobRow) []figure {
	done := 0
	for _, r := range rows {
		if r.status == "COMPLETED" {
			done++
		}
	}
	return []figure{
		{"jobs done by workers, each once", done},
		{"leases whose worker died", w.left},
		{"leases whose worker was silent for too long", w.paused},
		{"answers rejected because of a lost lease", w.refused},
		{"leases released", w.released},
		{"attempts of jobs that failed", w.failed},
	}
}

// Each defect of jobs is detected.
func TestJobDefects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*jobWatch, map[string]jobRow)
		wrong  int
	}{
		"nothing":       {func(*jobWatch, map[string]jobRow) {}, 0},
		"a job is lost": {func(_ *jobWatch, rows map[string]jobRow) { delete(rows, "a") }, 1},
		"unknown outcome": {func(w *jobWatch, rows map[string]jobRow) {
			w.enqueued["a"] = false
			delete(rows, "a")
		}, 0},
		"an unknown job": {func(_ *jobWatch, rows map[string]jobRow) { rows["c"] = jobRow{status: "INIT"} }, 1},
		"two ends": {func(_ *jobWatch, rows map[string]jobRow) {
			rows["a"] = jobRow{"COMPLETED", `"1"`, 2}
		}, 1},
		"a result that no worker returned": {func(_ *jobWatch, rows map[string]jobRow) {
			rows["a"] = jobRow{"COMPLETED", `"3"`, 1}
		}, 1},
		"another answer was accepted": {func(_ *jobWatch, rows map[string]jobRow) {
			rows["a"] = jobRow{"COMPLETED", `"2"`, 1}
		}, 1},
		"two accepted answers": {func(w *jobWatch, _ map[string]jobRow) {
			w.accepted["a"] = []string{"1", "2"}
		}, 1},
		"an accepted answer without an end": {func(_ *jobWatch, rows map[string]jobRow) {
			rows["a"] = jobRow{status: "INIT"}
		}, 1},
	} {
		w := &jobWatch{
			enqueued: map[string]bool{"a": true, "b": true}, answers: map[string][]string{"a": {"1", "2"}, "b": {"9"}},
			accepted: map[string][]string{"a": {"1"}},
		}
		rows := map[string]jobRow{"a": {"COMPLETED", `"1"`, 1}, "b": {"COMPLETED", `"9"`, 1}}
		tt.change(w, rows)
		if wrong := w.defects(rows); len(wrong) != tt.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}
