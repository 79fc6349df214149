package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// limit puts a constraint. By default, it is in the namespace "pull" and matches all jobs.
func (n *node) limit(t testing.TB, c *progressorv1.Constraint) {
	t.Helper()
	if c.Namespace == "" {
		c.Namespace = "pull"
	}
	if c.Match == "" {
		c.Match = "true"
	}
	if _, err := n.PutConstraint(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}

// limited enqueues a job whose args contain the region that the constraints of these tests use.
func (n *node) limited(t testing.TB, namespace, id, region string, o *progressorv1.JobOptions) {
	t.Helper()
	args, err := structpb.NewValue(map[string]any{"region": region})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Enqueue(context.Background(), &progressorv1.EnqueueRequest{
		Namespace: namespace, JobId: id, Name: "work", Args: args, Options: o,
	}); err != nil {
		t.Fatal(err)
	}
}

// placed waits until the given number of jobs of a namespace wait for a slot.
func (n *node) placed(t testing.TB, namespace string, want int) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, fmt.Sprintf("%d wait for a slot", want), func() bool {
		return n.waits(t, namespace, "place") == want
	})
}

// waits returns the number of tasks of a namespace that wait for waitsFor.
func (n *node) waits(t testing.TB, namespace, waitsFor string) int {
	t.Helper()
	return enginetest.Count(t, n.DB,
		"SELECT count(*) FROM schedule WHERE namespace = $1 AND waits_for = $2::text::waits_for", namespace, waitsFor)
}

func ids(leases []*progressorv1.Lease) string {
	var all []string
	for _, l := range leases {
		all = append(all, l.GetJob().GetJobId())
	}
	return strings.Join(all, " ")
}

const byRegion = "job.args.region"

// max_running limits the running jobs of each key separately. A key that is in use does not block
// jobs with other keys. blocked_on shows what a blocked job waits for.
func TestMaxRunningOfAKey(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "region", Match: `job.name == "work"`, Key: byRegion, MaxRunning: 2})
	for k := range 5 {
		n.limited(t, "pull", fmt.Sprint("eu", k), "eu", nil)
	}
	n.limited(t, "pull", "us0", "us", nil)
	n.placed(t, "pull", 3)
	states, err := n.ListConstraints(context.Background(), "pull")
	if err != nil || len(states) != 1 || states[0].GetRunning() != 0 || states[0].GetHeld() != 3 ||
		states[0].GetWaiting() != 3 {
		t.Errorf("constraints before a worker polls: %v, %v", states, err)
	}
	leases := n.poll(t, "w", 10)
	if got := ids(leases); got != "eu0 eu1 us0" {
		t.Fatalf("leased %s", got)
	}
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Errorf("leased %s in addition", got)
	}
	job := n.job(t, "pull", "eu3", available)
	if got, want := job.GetBlockedOn(), "constraint region key eu: 2 of 2 slots in use; 1 before it"; got != want {
		t.Errorf("blocked on %q, want %q", got, want)
	}
	states, err = n.ListConstraints(context.Background(), "pull")
	if err != nil || len(states) != 1 || states[0].GetRunning() != 3 || states[0].GetHeld() != 0 ||
		states[0].GetWaiting() != 3 || states[0].GetNextFreeTime() != nil {
		t.Errorf("constraints %v, %v", states, err)
	}
	if err := n.succeed(leases[0], nil); err != nil {
		t.Fatal(err)
	}
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "eu2" {
		t.Errorf("then %s", got)
	}
}

// A job needs the keys of all constraints that it matches. Until all of them are free, it takes
// none of them, so that it does not block other jobs.
func TestJobNeedsAllItsKeys(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "all", MaxRunning: 2})
	n.limit(t, &progressorv1.Constraint{Name: "region", Key: byRegion, MaxRunning: 1})
	for _, job := range []struct{ id, region string }{
		{"eu0", "eu"}, {"eu1", "eu"}, {"eu2", "eu"}, {"us0", "us"}, {"us1", "us"},
	} {
		n.limited(t, "pull", job.id, job.region, nil)
	}
	n.placed(t, "pull", 2)
	leases := n.poll(t, "w", 10)
	if got := ids(leases); got != "eu0 us0" {
		t.Fatalf("leased %s", got)
	}
	// The end of us0 frees one of the two slots of "all". eu1 cannot use it, because eu0 still
	// runs.
	if err := n.succeed(leases[1], nil); err != nil {
		t.Fatal(err)
	}
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "us1" {
		t.Errorf("then %s", got)
	}
}

// Jobs that need one key and jobs that need two keys become available at the same time. A job that
// needs two keys gets both or none.
func TestJobsOfOneKeyAndOfTwo(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "region", Key: byRegion, MaxRunning: 2})
	n.limit(t, &progressorv1.Constraint{Name: "urgent", Match: "job.priority == 1", MaxRunning: 1})
	urgent := &progressorv1.JobOptions{Priority: 1}
	if _, err := n.SetNamespacePaused(t.Context(), "pull", true, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.limited(t, "pull", "eu0", "eu", urgent)
	n.limited(t, "pull", "eu1", "eu", nil)
	n.limited(t, "pull", "us0", "us", urgent)
	n.limited(t, "pull", "as0", "as", nil)
	if _, err := n.SetNamespacePaused(t.Context(), "pull", false, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.placed(t, "pull", 3)
	if got := n.Count(t, "SELECT count(*) FROM constraint_holds"); got != 4 {
		t.Errorf("%d keys are held", got)
	}
	leases := n.poll(t, "w", 10)
	if got := ids(leases); got != "eu1 as0 eu0" {
		t.Fatalf("leased %s", got)
	}
	must(t, n.succeed(leases[2], nil))
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "us0" {
		t.Errorf("then %s", got)
	}
}

// Every end of an attempt frees the keys of its job exactly once: success, failure, retry, cancel,
// removal and the loss of its lease.
func TestEveryEndFreesItsKeys(t *testing.T) {
	t.Parallel()
	later := &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}}
	for _, c := range []struct {
		name string
		o    *progressorv1.JobOptions
		end  func(*testing.T, *node, *progressorv1.Lease)
	}{
		{"succeeded", nil, func(t *testing.T, n *node, l *progressorv1.Lease) { must(t, n.succeed(l, nil)) }},
		{"failed", nil, func(t *testing.T, n *node, l *progressorv1.Lease) { must(t, n.fail(l, "no")) }},
		{"retryable", &progressorv1.JobOptions{MaxRetry: 1, Backoff: later},
			func(t *testing.T, n *node, l *progressorv1.Lease) { must(t, n.fail(l, "no")) }},
		{"cancelled", &progressorv1.JobOptions{CancelGrace: durationpb.New(time.Millisecond)},
			func(t *testing.T, n *node, _ *progressorv1.Lease) {
				_, err := n.Cancel(context.Background(), key("pull", "first"), "why", process.Actor{})
				must(t, err)
			}},
		{"removed", nil, func(t *testing.T, n *node, _ *progressorv1.Lease) {
			must(t, n.RemoveProcess(context.Background(), key("pull", "first"), process.Actor{}))
		}},
		{"lost",
			&progressorv1.JobOptions{LeaseDuration: durationpb.New(100 * time.Millisecond), MaxTakeovers: new(int32)},
			func(*testing.T, *node, *progressorv1.Lease) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), scripted())
			n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1})
			n.limited(t, "pull", "first", "", c.o)
			l := n.leaseOne(t, "w")
			n.limited(t, "pull", "second", "", nil)
			if got := ids(n.leaseAll(t, "w")); got != "" {
				t.Fatalf("leased %s in addition to the first", got)
			}
			c.end(t, n, l)
			second := n.leaseOne(t, "w")
			if second.GetJob().GetJobId() != "second" {
				t.Fatalf("then %s", second.GetJob().GetJobId())
			}
			must(t, n.succeed(second, nil))
			if held := n.Count(t, "SELECT count(*) FROM constraint_holds"); held != 0 {
				t.Errorf("%d keys are held", held)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A job whose lease is released waits in its queue again, ahead of all jobs that were enqueued
// later.
func TestReleasedJobKeepsItsPosition(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1})
	n.limited(t, "pull", "first", "", nil)
	n.limited(t, "pull", "second", "", nil)
	l := n.leaseOne(t, "w")
	must(t, n.ReleaseLeases(context.Background(), []string{l.GetLeaseToken()}, 0))
	again := n.leaseOne(t, "w")
	if again.GetJob().GetJobId() != "first" || again.GetJob().GetAttempt() != 1 {
		t.Errorf("then %v", again.GetJob())
	}
}

// A delayed job enters the queue of its key when its run time is reached. It does not run before it
// has its key, neither in a pull namespace nor in a push namespace.
func TestDelayedJobEntersItsQueue(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"pull", "ns"} {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel()
			held, free := make(chan string, 10), make(chan struct{})
			n := start(t, storagetest.DSN(t), holding(held, free))
			n.limit(t, &progressorv1.Constraint{Namespace: namespace, Name: "one", MaxRunning: 1})
			n.limited(t, namespace, "first", "", nil)
			if namespace == "pull" {
				n.leaseOne(t, "w")
			} else {
				<-held
			}
			n.limited(t, namespace, "later", "", &progressorv1.JobOptions{
				RunTime: timestamppb.New(time.Now().Add(300 * time.Millisecond)),
			})
			n.job(t, namespace, "later", progressorv1.JobState_JOB_STATE_SCHEDULED)
			enginetest.Eventually(t, testTimeout, "the job waits in its queue", func() bool {
				return n.waits(t, namespace, "constraint") == 1
			})
			if job := n.job(t, namespace, "later", available); !strings.HasPrefix(job.GetBlockedOn(),
				"constraint one: 1 of 1 slots in use") {
				t.Errorf("blocked on %q", job.GetBlockedOn())
			}
			close(free)
			if namespace == "ns" {
				n.job(t, namespace, "later", succeeded)
			}
		})
	}
}

// A new or changed limit applies at once to jobs that wait, and counts jobs that already run. When
// the constraint is deleted, all jobs may run.
func TestLimitsChangeLive(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for k := range 6 {
		n.limited(t, "pull", fmt.Sprint("j", k), "eu", nil)
	}
	first := n.poll(t, "w", 1)
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1}) // j0 runs
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Fatalf("leased %s in addition to %s", got, ids(first))
	}
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 3})
	n.placed(t, "pull", 2)
	second := n.poll(t, "w", 10)
	if len(second) != 2 {
		t.Fatalf("leased %s, want two jobs", ids(second))
	}
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1})
	must(t, n.succeed(first[0], nil))
	must(t, n.succeed(second[0], nil))
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Fatalf("leased %s while another job runs", got)
	}
	must(t, n.DeleteConstraint(context.Background(), "pull", "one"))
	if got := n.poll(t, "w", 10); len(got) == 0 {
		t.Fatal("no job was leased after the constraint was deleted")
	}
	n.placed(t, "pull", 0)
	if err := n.DeleteConstraint(context.Background(), "pull", "one"); !errors.Is(err, process.ErrConstraintNotFound) {
		t.Errorf("deleting the constraint again: %v", err)
	}
}

// When a constraint changes, it is evaluated again for waiting jobs. A job that no longer matches
// may run. A job that still matches waits for its new key.
func TestChangedMatchAndKey(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "c", MaxRunning: 1})
	n.limited(t, "pull", "eu0", "eu", nil)
	n.limited(t, "pull", "eu1", "eu", nil)
	n.limited(t, "pull", "us0", "us", nil)
	n.leaseOne(t, "w")
	n.limit(t, &progressorv1.Constraint{Name: "c", Match: `job.args.region == "eu"`, Key: byRegion, MaxRunning: 1})
	if got := ids(n.poll(t, "w", 10)); got != "us0" {
		t.Errorf("leased %s", got)
	}
	job := n.job(t, "pull", "eu1", available)
	if job.GetBlockedOn() != "constraint c key eu: 1 of 1 slots in use; 0 before it" {
		t.Errorf("blocked on %q", job.GetBlockedOn())
	}
	n.limit(t, &progressorv1.Constraint{Name: "c", Match: `"vip" in job.tags`, MaxRunning: 1})
	if got := ids(n.poll(t, "w", 10)); got != "eu1" {
		t.Errorf("leased %s", got)
	}
}

// When UpdateJob changes the tags of a job, the constraints that use them are evaluated again.
func TestUpdatedJobIsEvaluatedAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "slow", Match: `"slow" in job.tags`, MaxRunning: 1})
	n.limited(t, "pull", "first", "", &progressorv1.JobOptions{Tags: []string{"slow"}})
	n.limited(t, "pull", "second", "", &progressorv1.JobOptions{Tags: []string{"slow"}})
	n.leaseOne(t, "w")
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Fatalf("leased %s", got)
	}
	_, err := n.Update(context.Background(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "second", Options: &progressorv1.JobOptions{},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"tags"}},
	})
	must(t, err)
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "second" {
		t.Errorf("leased %s", got)
	}
}

// A constraint is validated when it is put. The error names the field and the position in the
// expression.
func TestConstraintIsChecked(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for _, c := range []struct {
		constraint *progressorv1.Constraint
		field      string
		message    string
	}{
		{&progressorv1.Constraint{Name: "c", Match: "job.name == ", MaxRunning: 1}, "constraint.match",
			"line 1, column 13: Syntax error"},
		{&progressorv1.Constraint{Name: "c", Match: "true &&\n job.foo == 1", MaxRunning: 1}, "constraint.match",
			"line 2, column 2: unknown name job.foo: use job.name, job.args, job.priority, job.tags or job.metadata"},
		{&progressorv1.Constraint{Name: "c", Match: `job.name = "send"`, MaxRunning: 1}, "constraint.match",
			"line 1, column 10: = is not an operator: use == to compare"},
		{&progressorv1.Constraint{Name: "c", Match: "true &&\n job.nmae == 'x'", MaxRunning: 1}, "constraint.match",
			"line 2, column 5: undeclared reference to 'job.nmae' (did you mean 'job.name'?)"},
		{&progressorv1.Constraint{Name: "c", Match: "name == 'x'", MaxRunning: 1}, "constraint.match",
			"line 1, column 1: unknown name name: use job.name, job.args, job.priority, job.tags or job.metadata"},
		{&progressorv1.Constraint{Name: "c", Match: "job.name", MaxRunning: 1}, "constraint.match",
			"its value is of type string, but must be a condition"},
		{&progressorv1.Constraint{Name: "c", Match: "true", Key: "job.tags", MaxRunning: 1}, "constraint.key",
			"its value is of type list(string)"},
		{&progressorv1.Constraint{Name: "a=b", Match: "true", MaxRunning: 1}, "constraint.name", "characters = and"},
		{&progressorv1.Constraint{Name: "c", Match: "true"}, "constraint.max_running", "limits nothing"},
	} {
		c.constraint.Namespace = "pull"
		_, err := n.PutConstraint(context.Background(), c.constraint)
		var invalid *process.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || !strings.Contains(invalid.Message, c.message) {
			t.Errorf("%v: %v, want %s: %s", c.constraint, err, c.field, c.message)
		}
	}
	if _, err := n.PutConstraint(context.Background(), &progressorv1.Constraint{
		Namespace: "none", Name: "c", Match: "true", MaxRunning: 1,
	}); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}

// A suspended job blocks no other job, whether it was waiting for its key or had got it. When it is
// resumed, it waits in the queue again, at its old position.
func TestSuspendedJobHoldsNoKey(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1})
	n.limited(t, "pull", "first", "", nil)
	n.placed(t, "pull", 1)
	n.limited(t, "pull", "second", "", nil)
	n.limited(t, "pull", "third", "", nil)
	for _, id := range []string{"second", "first"} { // second waits for the key, and first has it
		_, err := n.SuspendProcess(context.Background(), key("pull", id), "why", process.Actor{})
		must(t, err)
	}
	third := n.leaseOne(t, "w")
	if third.GetJob().GetJobId() != "third" {
		t.Fatalf("leased %s", third.GetJob().GetJobId())
	}
	for _, id := range []string{"second", "first"} {
		_, err := n.ResumeProcess(context.Background(), key("pull", id), process.Actor{})
		must(t, err)
	}
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Fatalf("leased %s in addition to the third", got)
	}
	must(t, n.succeed(third, nil))
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "first" {
		t.Errorf("then %s", got)
	}
}

// Keys that are held by jobs that no longer exist become free, even if there are thousands of them.
// The key of a job that still runs stays held.
func TestKeysOfRemovedJobs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "region", Key: byRegion, MaxRunning: 1})
	n.limited(t, "pull", "runs", "us", &progressorv1.JobOptions{LeaseDuration: durationpb.New(time.Hour)})
	l := n.leaseOne(t, "w")
	_, err := n.DB.Exec(t.Context(),
		`INSERT INTO constraint_holds (namespace, process_id, line) SELECT 'pull', 'gone' || n / 2, 'region=' || n
			FROM generate_series(1, 2100) n`)
	if err != nil {
		t.Fatal(err)
	}
	n.limited(t, "pull", "waits", "7", nil)
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "waits" {
		t.Errorf("leased %s", got)
	}
	enginetest.Eventually(t, testTimeout, "two keys are held", func() bool {
		return n.Count(t, "SELECT count(*) FROM constraint_holds") == 2
	})
	n.limited(t, "pull", "later", "us", nil)
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Errorf("leased %s in addition", got)
	}
	must(t, n.succeed(l, nil))
	if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "later" {
		t.Errorf("then %s", got)
	}
}
