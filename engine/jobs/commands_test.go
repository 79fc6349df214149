package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// exec runs a statement like an application.
func (n *node) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := n.DB.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// deadLetter waits for the dead letter of a message to a job.
func (n *node) deadLetter(t testing.TB, kind, id, outcome string) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "the "+kind+" to "+id+" is dropped", func() bool {
		return n.Count(t, `SELECT count(*) FROM dead_letters WHERE kind = $1::message_kind AND process_id = $2
			AND outcome = $3`, kind, id, outcome) == 1
	})
}

// A cancel message has the effect of CancelJob. A waiting job ends immediately, even if it is
// suspended. The worker of a running job gets the cancel, and the job has its own grace period. The
// message does not affect a job that has ended, even if the job runs again later.
func TestCancelByMessage(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	cancel := func(id string) { n.exec(t, "SELECT progressor.cancel('pull', $1, 'enough')", id) }
	for _, id := range []string{"waits", "suspended"} {
		n.enqueue(t, "pull", id, nil)
		if id == "suspended" {
			if _, err := n.SuspendProcess(t.Context(), key("pull", id), "", process.Actor{}); err != nil {
				t.Fatal(err)
			}
		}
		cancel(id)
		if job := n.job(t, "pull", id, cancelled); job.GetCancelReason() != "enough" {
			t.Errorf("%s: %v", id, job)
		}
	}
	n.enqueue(t, "pull", "runs", &progressorv1.JobOptions{CancelGrace: durationpb.New(time.Hour)})
	l := n.leaseOne(t, "w1")
	cancel("runs")
	n.job(t, "pull", "runs", asked)
	d := n.beat(t, "w1", l)
	if d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CANCEL || d.GetCancelReason() != "enough" {
		t.Errorf("%v", d)
	}
	if k := n.Count(t, `SELECT count(*) FROM processes WHERE process_id = 'runs' AND cancel_deadline > now()
		+ interval '59 minutes'`); k != 1 {
		t.Error("the grace period is not that of the job")
	}
	cancel("runs")
	enginetest.Eventually(t, testTimeout, "the second cancel is taken", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages") == 0
	})
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "runs", cancelled)
	n.enqueue(t, "pull", "failed", nil)
	if err := n.fail(n.leaseOne(t, "w1"), "broken"); err != nil {
		t.Fatal(err)
	}
	cancel("failed")
	n.deadLetter(t, "cancel", "failed", "ended")
	if _, err := n.Retry(t.Context(), key("pull", "failed"), false); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "failed", succeeded)
	if k := n.Count(t, "SELECT count(*) FROM tasks WHERE task_type = 'CANCEL'"); k != 0 {
		t.Errorf("%d CANCEL tasks", k)
	}
}

// Enqueue, EnqueueBatch and UpdateJob reject a timeout of 0. It does not mean the default.
func TestNoTimeout(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	none := &progressorv1.JobOptions{Timeout: durationpb.New(0)}
	_, one := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
		Namespace: "pull", JobId: "j", Name: "work", Options: none,
	})
	_, batch := n.EnqueueBatch(t.Context(), &progressorv1.EnqueueBatchRequest{
		Jobs: []*progressorv1.EnqueueRequest{{Namespace: "pull", Name: "work", Options: none}},
	})
	n.enqueue(t, "pull", "k", nil)
	_, update := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "k", Options: none, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"timeout"}},
	})
	for _, c := range []struct {
		field string
		err   error
	}{{"options.timeout", one}, {"jobs[0].options.timeout", batch}, {"options.timeout", update}} {
		wrong, ok := errors.AsType[*process.InvalidError](c.err)
		if !ok || wrong.Field != c.field || !strings.Contains(wrong.Message, "positive") {
			t.Errorf("%s: %v", c.field, c.err)
		}
	}
}

// Requests that are not valid for a job are rejected and store no task. A job cannot be called or
// repaired, and no process can have its ID.
func TestNotForJobs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w1")
	refused := func(what, want string, err error) {
		t.Helper()
		if wrong, ok := errors.AsType[*process.WrongStatusError](err); !ok || !strings.Contains(wrong.Reason, want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	for range 2 { // while it runs, and after it has failed
		for _, accepted := range []bool{false, true} {
			_, err := n.Call(t.Context(), engine.CallParams{Key: key("pull", "j"), Accepted: accepted})
			refused("call", "it is a job, which accepts no calls", err)
		}
		for _, simple := range []bool{false, true} {
			_, err := n.Repair(t.Context(), engine.RepairParams{Key: key("pull", "j"), Simple: simple})
			refused("repair", "it is a job: use RetryJob", err)
		}
		if _, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "j")}); !errors.Is(err,
			process.ErrProcessExists) {
			t.Errorf("start: %v", err)
		}
		if _, err := n.PutProcess(t.Context(),
			&progressorv1.PutProcessRequest{
				Namespace: "pull", ProcessId: "j", Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			}, process.Actor{}); !errors.Is(err, process.ErrProcessExists) {
			t.Errorf("put: %v", err)
		}
		if n.Count(t, "SELECT count(*) FROM running") == 1 {
			n.exec(t, "SELECT progressor.notify('pull', 'j', 'x')")
			n.deadLetter(t, "notify", "j", "ended")
			if err := n.fail(l, "broken"); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.job(t, "pull", "j", failed)
	if k := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = 'j'"); k != 1 {
		t.Errorf("%d tasks", k)
	}
}

// child enqueues a job that reports its end to process parent of namespace ns.
func (n *node) child(t testing.TB, id, options string) {
	t.Helper()
	n.exec(t, `INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id,
		notify_parent_args, job, created_time)
		VALUES ('pull', $1, 'start', 'ns', 'parent', 1, convert_to($1, 'UTF8'), jsonb_build_object('name', 'work',
		  'timeoutUs', 60000000, 'options', $2::jsonb), now() - interval '1 hour')`, id, options)
	enginetest.Eventually(t, testTimeout, id+" is enqueued", func() bool {
		return n.Count(t, "SELECT count(*) FROM jobs WHERE process_id = $1", id) == 1
	})
}

// parentNotified waits until the parent has received the end of a job, and checks that it was
// received once.
func (n *node) parentNotified(t testing.TB, id, status string) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "the parent is notified of the end of "+id, func() bool {
		return n.Count(t, `SELECT count(*) FROM tasks WHERE namespace = 'ns' AND process_id = 'parent'
			AND task_type = 'NOTIFY' AND args = convert_to($1, 'UTF8')`, id) > 0
	})
	k := n.Count(t, `SELECT count(*) FROM tasks WHERE process_id = 'parent' AND task_type = 'NOTIFY'
		AND args = convert_to($1, 'UTF8') AND convert_from(response, 'UTF8') = $2`, id, status)
	if k != 1 {
		t.Errorf("the parent was not notified exactly once that %s is %s", id, status)
	}
}

// A process that creates a job and requests a notification is notified once of the end of the job,
// for every kind of end. This includes a job with a requested cancel whose attempt then fails or is
// released. Only the first end is reported, not the end after a RetryJob.
func TestParentIsNotified(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), reportStatus())
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("ns", "parent")}); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel := func(id string) {
		t.Helper()
		_, err := n.Cancel(t.Context(), key("pull", id), "", process.Actor{})
		must(err)
	}
	n.child(t, "succeeds", `{}`)
	must(n.succeed(n.leaseOne(t, "w1"), nil))
	n.parentNotified(t, "succeeds", "COMPLETED")
	n.child(t, "fails", `{"maxRetry": 1, "backoff": {"steps": ["0.001s"]}}`)
	must(n.fail(n.leaseOne(t, "w1"), "broken"))
	l := n.leaseOne(t, "w1")
	if k := n.Count(t, "SELECT count(*) FROM parents"); k != 1 {
		t.Errorf("after a failed attempt %d parents wait", k)
	}
	must(n.fail(l, "broken"))
	n.parentNotified(t, "fails", "ERROR")
	n.child(t, "waits", `{}`)
	cancel("waits")
	n.parentNotified(t, "waits", "CANCELLED")
	n.child(t, "by message", `{}`)
	n.exec(t, "SELECT progressor.cancel('pull', 'by message')")
	n.parentNotified(t, "by message", "CANCELLED")
	n.child(t, "fails late", `{"maxRetry": 5}`)
	l = n.leaseOne(t, "w1")
	cancel("fails late")
	must(n.fail(l, "broken"))
	n.parentNotified(t, "fails late", "CANCELLED")
	n.child(t, "released", `{}`)
	l = n.leaseOne(t, "w1")
	cancel("released")
	must(n.ReleaseLeases(t.Context(), []string{l.GetLeaseToken()}, 0))
	n.parentNotified(t, "released", "CANCELLED")
	for _, id := range []string{"fails", "waits"} {
		_, err := n.Retry(t.Context(), key("pull", id), false)
		must(err)
		must(n.succeed(n.leaseOne(t, "w1"), nil))
		n.job(t, "pull", id, succeeded)
	}
	if k := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = 'parent' AND task_type = 'NOTIFY'") +
		n.Count(t, "SELECT count(*) FROM messages"); k != 6 {
		t.Errorf("%d notifications of ends, want 6", k)
	}
}

// A suspended job is not leased until it is resumed. A running attempt continues to its end. If it
// fails, the next attempt waits until the job is resumed. A cancel ends a suspended job.
func TestSuspend(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	order := func(id string, give func(context.Context, process.Key) error) {
		t.Helper()
		if err := give(t.Context(), key("pull", id)); err != nil {
			t.Fatal(err)
		}
	}
	suspend := func(ctx context.Context, k process.Key) error {
		_, err := n.SuspendProcess(ctx, k, "audit", process.Actor{})
		return err
	}
	resume := func(ctx context.Context, k process.Key) error {
		_, err := n.ResumeProcess(ctx, k, process.Actor{})
		return err
	}
	n.enqueue(t, "pull", "waits", nil)
	order("waits", suspend)
	if l := n.leaseAll(t, "w1"); len(l) != 0 {
		t.Fatalf("handed out: %v", l)
	}
	if job := n.job(t, "pull", "waits", available); job.GetBlockedOn() != "operator: suspended" {
		t.Errorf("%v", job)
	}
	order("waits", resume)
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "ends", nil)
	l := n.leaseOne(t, "w1")
	order("ends", suspend)
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "ends", succeeded)
	n.enqueue(t, "pull", "fails", &progressorv1.JobOptions{
		MaxRetry: 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}},
	})
	l = n.leaseOne(t, "w1")
	order("fails", suspend)
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	if l := n.leaseAll(t, "w1"); len(l) != 0 {
		t.Fatalf("handed out: %v", l)
	}
	order("fails", resume)
	if again := n.leaseOne(t, "w1"); again.GetJob().GetAttempt() != 2 || n.succeed(again, nil) != nil {
		t.Errorf("%v", again)
	}
	n.enqueue(t, "pull", "cancelled", nil)
	l = n.leaseOne(t, "w1")
	order("cancelled", suspend)
	if job, err := n.Cancel(t.Context(), key("pull", "cancelled"), "", process.Actor{}); err != nil ||
		job.GetState() != asked {
		t.Fatalf("%v, %v", job, err)
	}
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "cancelled", cancelled)
}

// A job that is removed while it runs no longer exists. Its worker gets LOST, and the answer of the
// worker is rejected.
func TestRemoveRunning(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w1")
	if err := n.RemoveProcess(t.Context(), key("pull", "j"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_LOST {
		t.Errorf("%v", d)
	}
	if err := n.succeed(l, nil); !errors.Is(err, process.ErrFenced) {
		t.Errorf("answer: %v", err)
	}
	if _, err := n.Get(t.Context(), key("pull", "j"), 0); !errors.Is(err, process.ErrJobNotFound) {
		t.Errorf("get: %v", err)
	}
	enginetest.Eventually(t, testTimeout, "its rows are deleted", func() bool {
		return n.Count(t, "SELECT count(*) FROM jobs") == 0
	})
	n.enqueue(t, "pull", "j", nil) // its ID is free again
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "j", succeeded)
}

// In a paused namespace, no job starts, neither pushed nor pulled. Running jobs continue, and
// new jobs wait.
func TestPausedNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "runs", nil)
	l := n.leaseOne(t, "w1")
	for _, ns := range []string{"ns", "pull"} {
		if _, err := n.SetNamespacePaused(t.Context(), ns, true, process.Actor{}); err != nil {
			t.Fatal(err)
		}
		n.enqueue(t, ns, "waits", nil)
	}
	if d := n.beat(t, "w1", l); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("%v", d)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "runs", succeeded)
	if got := n.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("handed out: %v", got)
	}
	for _, ns := range []string{"ns", "pull"} {
		if job := n.job(t, ns, "waits", available); job.GetBlockedOn() != "namespace: paused" {
			t.Errorf("%s: %v", ns, job)
		}
		if _, err := n.SetNamespacePaused(t.Context(), ns, false, process.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"ns", "pull"} {
		n.job(t, ns, "waits", succeeded)
	}
}

// A poll in a paused namespace gets a job as soon as the namespace is resumed on any node.
func TestResumedNamespaceWakesPolls(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	for _, at := range []*node{n, other} {
		if _, err := n.SetNamespacePaused(t.Context(), "pull", true, process.Actor{}); err != nil {
			t.Fatal(err)
		}
		enginetest.Eventually(t, testTimeout, "the node knows of the pause", func() bool { return at.IsPaused("pull") })
		worker := fmt.Sprintf("w%p", at)
		n.enqueue(t, "pull", "of "+worker, nil)
		got := make(chan int, 1)
		go func() {
			leases, _ := at.Poll(context.Background(), pull.PollParams{
				Namespaces: []string{"pull"}, WorkerID: worker, Max: 1, Wait: testTimeout,
			})
			got <- len(leases)
		}()
		enginetest.Eventually(t, testTimeout, "the worker polls", func() bool {
			return slices.ContainsFunc(at.workers(t, "pull"), func(w *progressorv1.Worker) bool {
				return w.GetWorkerId() == worker
			})
		})
		if _, err := n.SetNamespacePaused(t.Context(), "pull", false, process.Actor{}); err != nil {
			t.Fatal(err)
		}
		if k := <-got; k != 1 {
			t.Errorf("%d leases, want 1", k)
		}
	}
}

// Explanations and views show the worker of a job, the end of its lease, and its last failure.
func TestJobIsExplained(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	explain := func(texts ...string) {
		t.Helper()
		e, err := n.ExplainProcess(t.Context(), key("pull", "j"))
		if err != nil {
			t.Fatal(err)
		}
		said := e.GetWaitsForDetail() + "\n" + e.GetNext() + "\n" + e.GetUnblock()
		for _, want := range texts {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in\n%s", want, said)
			}
		}
	}
	shows := func(want string) {
		t.Helper()
		var got string
		if err := n.DB.QueryRow(t.Context(),
			`SELECT concat_ws(' ', state, waits_for, attempt, max_retry, worker_id, lease_expires_time > now(),
				last_failure->>'message', detail) FROM job_list WHERE job_id = 'j'`).Scan(&got); err != nil ||
			got != want {
			t.Errorf("job_list: %q, %v; want %q", got, err, want)
		}
	}
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		MaxRetry: 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}},
	})
	explain(`Job "work" has waited for a worker`, `no worker polls namespace pull.`,
		`progressor worker run --namespace pull --job work --exec COMMAND`)
	shows("AVAILABLE place 0 1")
	if k := n.Count(t, `SELECT count(*) FROM waiting_list WHERE process_id = 'j'
		AND reason = 'a worker for jobs named work'`); k != 1 {
		t.Error("waiting_list does not show that the job waits for a worker")
	}
	l := n.leaseOne(t, "w1")
	n.beat(t, "w1", l)
	explain("Worker w1 holds attempt 1", "last heartbeat", "max_retry is 1")
	shows("RUNNING 1 1 w1 t")
	n.exec(t, `UPDATE leases SET expires_time = now() - interval '1 millisecond',
		heartbeat_interval = interval '1 millisecond'`)
	// Either the lease is in zombie_list, or the collector has already ended it.
	if k := n.Count(t, "SELECT count(*) FROM zombie_list WHERE worker_id = 'w1'") +
		n.Count(t, "SELECT takeovers FROM jobs"); k != 1 {
		t.Error("an expired lease is not in zombie_list")
	}
	enginetest.Eventually(t, testTimeout, "the lease is lost", func() bool {
		return n.Count(t, "SELECT takeovers FROM jobs") == 1
	})
	l = n.leaseOne(t, "w2")
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	explain(`Job "work" failed in attempt 2 (broken: as asked). `+
		`It has failed once, max_retry is 1; its worker was lost once`, "Attempt 3 at")
	shows("RETRYABLE time 2 1 w2 as asked")
	n.exec(t, "UPDATE schedule SET scheduled_time = now()")
	if err := n.fail(n.leaseOne(t, "w3"), "broken"); err != nil {
		t.Fatal(err)
	}
	explain(`Job "work" failed permanently in attempt 3 (broken: as asked)`,
		"To run it again, run progressor job retry pull j.")
	shows("FAILED 3 1 w3 as asked as asked")
}
