package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// within returns options with a start deadline.
func within(d time.Duration) *progressorv1.JobOptions {
	return &progressorv1.JobOptions{StartDeadline: durationpb.New(d)}
}

// delayed moves the times of a waiting job, as if it had waited for three hours.
func (n *node) delayed(t testing.TB, id string) {
	t.Helper()
	n.exec(t, `UPDATE schedule
		SET scheduled_time = scheduled_time - interval '3 hours', start_deadline = start_deadline - interval '3 hours'
		WHERE process_id = $1`, id)
}

// isLate waits until a job has failed because no attempt began in time, and returns it.
func (n *node) isLate(t testing.TB, namespace, id string) *progressorv1.Job {
	t.Helper()
	job := n.job(t, namespace, id, failed)
	f := job.GetFailures()
	if len(f) != 1 || f[0].GetReason() != process.ReasonStartDeadline ||
		!strings.HasPrefix(f[0].GetMessage(), "no attempt began by 20") {
		t.Fatalf("%s has failed with %v, want start_deadline", id, f)
	}
	return job
}

// A job whose start deadline passes before its first attempt fails with a specific reason, event
// and metric. No worker gets it, and max_retry does not apply. RetryJob begins a new wait.
func TestStartDeadline(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := within(10 * time.Millisecond)
	o.MaxRetry = 5
	n.enqueue(t, "pull", "j", o)
	n.enqueue(t, "pull", "other", within(time.Hour))
	job := n.isLate(t, "pull", "j")
	if job.GetAttempt() != 0 || job.GetRunningTime() != nil || job.GetWorkerId() != "" || job.GetFinishedTime() == nil {
		t.Errorf("a job that never ran: %v", job)
	}
	want := "enqueued >available\nstart_deadline available>failed " + job.GetFailures()[0].GetMessage()
	if got := n.history(t, "pull", "j"); got != want {
		t.Errorf("events:\n%s\nwant:\n%s", got, want)
	}
	r, err := n.FetchResult(t.Context(), key("pull", "j"), 0)
	must(t, err)
	if r.GetFailure().GetReason() != process.ReasonStartDeadline {
		t.Errorf("result: %v", r)
	}
	enginetest.Eventually(t, testTimeout, "the job is counted", func() bool {
		got := figures(t, n.Registry)
		return got["job_start_deadlines_total work"] == 1 && got["jobs work failed"] == 1 &&
			got["jobs work available"] == 1
	})
	other := n.leaseAll(t, "w")
	if len(other) != 1 || other[0].GetJob().GetJobId() != "other" {
		t.Fatalf("leased %v, want only the job whose deadline has not passed", other)
	}
	must(t, n.update(t, "other", within(time.Millisecond), "start_deadline")) // the job has begun
	must(t, n.succeed(other[0], nil))
	n.job(t, "pull", "other", succeeded)

	n.exec(t, "UPDATE jobs SET options = options || '{\"startDeadline\": \"3600s\"}' WHERE process_id = 'j'")
	_, err = n.Retry(t.Context(), key("pull", "j"), false)
	must(t, err)
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	n.job(t, "pull", "j", succeeded)
}

// After its start deadline, a job cannot be claimed, even if the engine has not ended the job yet.
func TestLateJobIsNotLeased(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for range 20 {
		n.enqueue(t, "pull", "", within(time.Hour))
	}
	n.enqueue(t, "pull", "group", workers(1, 0)) // polls also read groups
	n.members(t, "group", 1)
	n.exec(t, `UPDATE schedule SET scheduled_time = scheduled_time - interval '3 hours',
		start_deadline = start_deadline - interval '3 hours' WHERE start_deadline IS NOT NULL`)
	leases, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", JobNames: []string{"work"}, Max: 100,
	})
	must(t, err)
	for _, l := range append(leases, n.leaseAll(t, "w2")...) {
		if l.GetJob().GetOptions().GetStartDeadline() != nil {
			t.Errorf("leased %v", l.GetJob())
		}
	}
	enginetest.Eventually(t, testTimeout, "all have failed", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE status = 'ERROR'") == 20
	})
}

// The start deadline applies while a job waits for its time, for a key, for the operator, or in a
// paused namespace. The job then releases its key to others.
func TestStartDeadlineOfEveryWait(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", Match: `job.name == "work" && "eu" in job.tags`, MaxRunning: 1})
	tagged := func(o *progressorv1.JobOptions) *progressorv1.JobOptions { o.Tags = []string{"eu"}; return o }
	n.enqueue(t, "pull", "has the key", tagged(within(time.Hour)))
	n.placed(t, "pull", 1)
	n.enqueue(t, "pull", "waits for the key", tagged(within(time.Hour)))
	n.enqueue(t, "pull", "is next", tagged(&progressorv1.JobOptions{}))
	n.enqueue(t, "pull", "suspended", within(time.Hour))
	if _, err := n.SuspendProcess(t.Context(), key("pull", "suspended"), "why", kim); err != nil {
		t.Fatal(err)
	}
	later := within(time.Hour)
	later.RunTime = timestamppb.New(time.Now().Add(time.Hour))
	n.enqueue(t, "pull", "scheduled", later)
	if _, err := n.SetNamespacePaused(t.Context(), "pull", true, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"has the key", "waits for the key", "suspended", "scheduled"} {
		n.delayed(t, id)
		n.isLate(t, "pull", id)
	}
	if _, err := n.SetNamespacePaused(t.Context(), "pull", false, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if id := n.leaseOne(t, "w").GetJob().GetJobId(); id != "is next" {
		t.Errorf("leased %s, want the job that waited for the key", id)
	}
}

// A processor is not called for a job whose start deadline has passed.
func TestStartDeadlineOfPushedJobs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t),
		processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			t.Errorf("called for %s", r.GetProcess().GetProcessId())
			return processor.Result().Done()
		}))
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "ns", "now", within(time.Hour))
	later := within(time.Hour)
	later.RunTime = timestamppb.New(time.Now().Add(time.Hour))
	n.enqueue(t, "ns", "later", later)
	n.delayed(t, "now")
	n.delayed(t, "later")
	if _, err := n.SetNamespacePaused(t.Context(), "ns", false, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.isLate(t, "ns", "now")
	n.isLate(t, "ns", "later")
}

// An attempt that was counted ends the wait. An attempt that was released counts as not begun, so
// the deadline applies again.
func TestStartDeadlineAppliesToTheFirstAttempt(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	wait := func(id string) string {
		var s string
		must(t, n.DB.QueryRow(t.Context(),
			"SELECT coalesce((start_deadline - scheduled_time)::text, 'none') FROM schedule WHERE process_id = $1",
			id).Scan(&s))
		return s
	}
	o := within(time.Hour)
	o.MaxRetry, o.Backoff = 1, soon
	n.enqueue(t, "pull", "fails", o)
	must(t, n.fail(n.leaseOne(t, "w"), "no"))
	if got := wait("fails"); got != "none" {
		t.Errorf("start deadline of a second attempt: %s after the run time", got)
	}
	n.delayed(t, "fails")
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	n.job(t, "pull", "fails", succeeded)

	n.enqueue(t, "pull", "released", within(time.Hour))
	must(t, n.ReleaseLeases(t.Context(), []string{n.leaseOne(t, "w").GetLeaseToken()}, 0))
	if got := wait("released"); got != "01:00:00" {
		t.Errorf("start deadline after a release: %s after the run time", got)
	}
	n.delayed(t, "released")
	n.isLate(t, "pull", "released")

	n.enqueue(t, "pull", "loses its worker", within(time.Hour))
	n.exec(t, "UPDATE jobs SET options = options || '{\"leaseDuration\": \"1s\"}' WHERE process_id = 'loses its "+
		"worker'")
	n.beat(t, "w", n.leaseOne(t, "w"))
	n.job(t, "pull", "loses its worker", available)
	if got := wait("loses its worker"); got != "none" {
		t.Errorf("start deadline after a takeover: %s after the run time", got)
	}
}

// UpdateJob sets, moves and clears the deadline of a job that waits for its first attempt.
func TestUpdateStartDeadline(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	must(t, n.update(t, "j", within(time.Hour), "start_deadline"))
	later := within(2 * time.Hour)
	later.RunTime = timestamppb.New(time.Now().Add(24 * time.Hour))
	must(t, n.update(t, "j", later, "start_deadline", "run_time"))
	if got := n.Count(t, `SELECT count(*) FROM schedule WHERE start_deadline = scheduled_time + interval '2 hours'
		AND start_deadline > now() + interval '25 hours'`); got != 1 {
		t.Error("the deadline is not two hours after the new run time")
	}
	must(t, n.update(t, "j", &progressorv1.JobOptions{}, "start_deadline", "run_time"))
	if got := n.Count(t, "SELECT count(*) FROM schedule WHERE start_deadline IS NOT NULL"); got != 0 {
		t.Error("the deadline was not cleared")
	}
	must(t, n.update(t, "j", within(10*time.Millisecond), "start_deadline"))
	n.isLate(t, "pull", "j")
}

// The API and SQL reject an invalid start deadline with the name of the field.
func TestInvalidStartDeadline(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	group := workers(2, 0)
	group.StartDeadline = durationpb.New(time.Hour)
	for _, c := range []struct {
		options *progressorv1.JobOptions
		want    string
	}{
		{within(0), "options.start_deadline: must be a positive duration, such as 30s"},
		{within(-time.Second), "options.start_deadline: must be a positive duration, such as 30s"},
		{group, "options.start_deadline: must not be set together with options.workers: a job for several workers " +
			"has no start deadline"},
	} {
		_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
			Namespace: "pull", Name: "work", Options: c.options,
		})
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.options, err, c.want)
		}
	}
	for _, interval := range []string{"0", "-1 second", "101 years"} {
		_, err := n.DB.Exec(t.Context(), "SELECT progressor.enqueue('pull', 'work', start_deadline => $1::interval)",
			interval)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok ||
			pg.Message != "progressor: start_deadline is not positive and at most 100 years" {
			t.Errorf("%s: %v", interval, err)
		}
	}
}

// The deadline of a job from SQL counts from its run time.
func TestStartDeadlineFromSQL(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.fromSQL(t, "'pull', 'work', job_id => 'late', start_deadline => '0.01 seconds'")
	n.awaited(t, "pull", "late")
	n.isLate(t, "pull", "late")
	n.fromSQL(t, "'pull', 'work', job_id => 'later', run_time => now() + interval '1 hour', start_deadline => '90 "+
		"seconds'")
	n.awaited(t, "pull", "later")
	if d := n.job(t, "pull", "later", scheduled).GetOptions().GetStartDeadline().AsDuration(); d != 90*time.Second {
		t.Errorf("start_deadline %s", d)
	}
	got := n.Count(t, "SELECT count(*) FROM schedule WHERE start_deadline = scheduled_time + interval '90 seconds'")
	if got != 1 {
		t.Error("the deadline is not 90 seconds after the run time")
	}
}
