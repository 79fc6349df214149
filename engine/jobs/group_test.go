package jobs_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// workers returns the options of a job that needs count workers. If there are IDs, only these
// workers may run the job.
func workers(count, maxFailures int32, ids ...string) *progressorv1.JobOptions {
	return &progressorv1.JobOptions{
		Workers: &progressorv1.WorkerGroup{Count: count, MaxFailures: maxFailures, WorkerIds: ids}, KeepResult: true,
	}
}

// members waits until a job has want members that have not ended, and each of them is running or
// can be leased.
func (n *node) members(t testing.TB, id string, want int) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, fmt.Sprintf("%s has %d members", id, want), func() bool {
		return n.Count(t, `SELECT count(*) FROM job_places l WHERE job_id = $1 AND state IS NULL AND (
			EXISTS (SELECT FROM schedule s WHERE s.process_id = l.process_id AND waits_for = 'place')
			  OR EXISTS (SELECT FROM running r WHERE r.process_id = l.process_id))`, id) == want
	})
}

// runs returns the state of each worker of a job. Places without a worker come first.
func runs(job *progressorv1.Job) string {
	var all []string
	for _, r := range job.GetWorkerRuns() {
		text := fmt.Sprintf("%s %s %d", r.GetWorkerId(),
			strings.ToLower(strings.TrimPrefix(r.GetState().String(), "JOB_STATE_")), r.GetAttempts())
		if r.GetResult() != nil {
			text += " " + r.GetResult().GetStringValue()
		}
		if r.GetFailure() != nil {
			text += " " + r.GetFailure().GetReason()
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func wantRuns(t testing.TB, job *progressorv1.Job, want string) {
	t.Helper()
	if got := runs(job); got != want {
		t.Errorf("places %q, want %q", got, want)
	}
}

func wantBlockedOn(t testing.TB, job *progressorv1.Job, want string) {
	t.Helper()
	if got := job.GetBlockedOn(); got != want {
		t.Errorf("blocked on %q, want %q", got, want)
	}
}

func result(of string) *structpb.Value { return structpb.NewStringValue("by " + of) }

// A broadcast is run once by each named worker, and by no other. The job ends with the results of
// all workers, which can be fetched once.
func TestBroadcast(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "all", workers(3, 0, "w1", "w2", "w3"))
	n.members(t, "all", 3)
	if leases := n.leaseAll(t, "w4"); len(leases) != 0 {
		t.Fatalf("a worker that is not named got %v", leases)
	}
	wantBlockedOn(t, n.job(t, "pull", "all", available),
		"workers: no worker runs the job; 3 of 3 places wait for a worker")
	wantRuns(t, n.job(t, "pull", "all", available), "w1 available 0, w2 available 0, w3 available 0")
	for _, w := range []string{"w3", "w1", "w2"} {
		l := n.leaseOne(t, w)
		if l.GetJob().GetName() != "work" || l.GetRequest().GetJobArgs().GetStringValue() != "args of all" ||
			l.GetJob().GetOptions().GetWorkers() != nil {
			t.Errorf("%v", l)
		}
		wantBlockedOn(t, n.job(t, "pull", "all", running), "")
		if again := n.leaseAll(t, w); len(again) != 0 {
			t.Errorf("%s got a second place: %v", w, again)
		}
		if err := n.succeed(l, result(w)); err != nil {
			t.Fatal(err)
		}
		if again := n.leaseAll(t, w); len(again) != 0 {
			t.Errorf("%s got another place: %v", w, again)
		}
	}
	job := n.job(t, "pull", "all", succeeded)
	wantRuns(t, job, "w1 succeeded 1 by w1, w2 succeeded 1 by w2, w3 succeeded 1 by w3")
	if job.GetRunningTime() == nil || job.GetFinishedTime() == nil {
		t.Errorf("%v", job)
	}
	r, err := n.FetchResult(t.Context(), key("pull", "all"), 0)
	if err != nil || r.GetResult().GetStructValue().GetFields()["w2"].GetStringValue() != "by w2" ||
		len(r.GetResult().GetStructValue().GetFields()) != 3 {
		t.Errorf("%v, %v", r, err)
	}
	wantRuns(t, n.job(t, "pull", "all", succeeded), "w1 succeeded 1, w2 succeeded 1, w3 succeeded 1")
	k := n.Count(t, `SELECT (SELECT count(*) FROM jobs WHERE result IS NOT NULL) + (SELECT count(*) FROM job_places
		WHERE result IS NOT NULL)`)
	if k != 0 {
		t.Errorf("%d results are left", k)
	}
}

// If the priorities are equal, a worker first gets the places of jobs that name it, regardless of
// whether all named workers must succeed. Places for any worker and ordinary jobs follow, even if
// they are older. If the priorities differ, the smallest priority goes first.
func TestNamedWorkerBeforeAnyOther(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	urgent := workers(1, 0)
	urgent.Priority = -1
	n.enqueue(t, "pull", "ordinary", nil)
	for _, j := range []struct {
		id string
		o  *progressorv1.JobOptions
		// The job "any" is older than the other jobs for workers.
	}{
		{"any", workers(1, 0)}, {"named", workers(1, 0, "w1")}, {"quorum", workers(1, 0, "w1", "w2")},
		{"urgent", urgent},
	} {
		n.enqueue(t, "pull", j.id, j.o)
		n.members(t, j.id, 1)
	}
	for _, want := range []string{"urgent", "named", "quorum", "ordinary", "any"} {
		if got := n.leaseOne(t, "w1").GetRequest().GetJobArgs().GetStringValue(); got != "args of "+want {
			t.Errorf("got the %s, want those of %s", got, want)
		}
	}
}

// Statistics count a job for several workers once, and not its members, even while a member waits
// for its retry and after the members have ended.
func TestMembersAreNotCounted(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	counted := func(want string) {
		t.Helper()
		stats, err := n.Stats(t.Context(), "pull")
		must(t, err)
		maps.DeleteFunc(stats.GetCountByState(), func(_ string, n int64) bool { return n == 0 })
		if got := fmt.Sprint(stats.GetCountByState()); got != want {
			t.Errorf("counted %s, want %s", got, want)
		}
	}
	o := workers(2, 0)
	o.MaxRetry, o.Backoff = 1, &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Hour)}}
	n.enqueue(t, "pull", "two", o)
	n.members(t, "two", 2)
	n.job(t, "pull", "two", available)
	counted("map[available:1]")
	a, b := n.leaseOne(t, "w1"), n.leaseOne(t, "w2")
	counted("map[running:1]")
	must(t, n.fail(a, "broken"))
	counted("map[running:1]")
	must(t, n.succeed(b, nil))
	n.exec(t, "UPDATE schedule SET scheduled_time = now() WHERE waits_for = 'time'")
	must(t, n.succeed(n.leaseOne(t, "w1"), nil))
	n.job(t, "pull", "two", succeeded)
	counted("map[succeeded:1]")
}

// With a quorum, two of three workers have to succeed, and one may fail. The same worker retries a
// failed attempt up to max_retry times. Then another worker gets a place.
func TestQuorum(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(2, 1, "w1", "w2", "w3")
	o.MaxRetry, o.Backoff = 1, &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}}
	n.enqueue(t, "pull", "two", o)
	n.members(t, "two", 2)
	if leases := n.leaseAll(t, "w4"); len(leases) != 0 {
		t.Fatalf("a worker that is not named got %v", leases)
	}
	l := n.leaseOne(t, "w1")
	if err := n.fail(l, "broken"); err != nil {
		t.Fatal(err)
	}
	second := n.leaseOne(t, "w2")
	if leases := n.leaseAll(t, "w3"); len(leases) != 0 {
		t.Fatalf("w3 got the place of a worker that may try again: %v", leases)
	}
	if err := n.fail(n.leaseOne(t, "w1"), "broken again"); err != nil {
		t.Fatal(err)
	}
	n.members(t, "two", 2)
	if leases := n.leaseAll(t, "w1"); len(leases) != 0 {
		t.Fatalf("a worker that has failed got another place: %v", leases)
	}
	wantRuns(t, n.job(t, "pull", "two", running), " available 0, w1 failed 2 broken again, w2 running 1")
	for _, l := range []*progressorv1.Lease{n.leaseOne(t, "w3"), second} {
		if err := n.succeed(l, result(l.GetJob().GetWorkerId())); err != nil {
			t.Fatal(err)
		}
	}
	job := n.job(t, "pull", "two", succeeded)
	wantRuns(t, job, "w1 failed 2 broken again, w2 succeeded 1 by w2, w3 succeeded 1 by w3")
	if len(job.GetFailures()) != 1 || job.GetFailures()[0].GetReason() != "broken again" {
		t.Errorf("%v", job.GetFailures())
	}
}

// A job for several workers has begun when its members are created. Another job with the same
// unique key waits behind the first job.
func TestUniqueBehindAGroup(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(1, 0)
	o.Unique = &progressorv1.Unique{Key: "k", Scope: progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING}
	n.enqueue(t, "pull", "first", o)
	n.members(t, "first", 1)
	waiting := &progressorv1.JobOptions{Unique: o.GetUnique(), RunTime: timestamppb.New(time.Now().Add(time.Hour))}
	if r := n.enqueue(t, "pull", "second", waiting); !r.GetEnqueued() {
		t.Errorf("one more behind the running one: %v", r)
	}
	if r := n.enqueue(t, "pull", "third", waiting); r.GetEnqueued() || r.GetJob().GetJobId() != "second" {
		t.Errorf("two behind the running one: %v", r)
	}
}

// If enough members have succeeded in the meantime, a failed job that is retried succeeds
// immediately. Its events show that it did not run.
func TestGroupRetriedWhenDone(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "late", workers(2, 1))
	n.members(t, "late", 2)
	a, b := n.leaseOne(t, "w1"), n.leaseOne(t, "w2")
	must(t, n.fail(a, "broken"))
	c := n.leaseOne(t, "w3")
	_, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "late", Options: workers(2, 0),
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"workers"}},
	})
	must(t, err)
	n.job(t, "pull", "late", failed)
	for _, l := range []*progressorv1.Lease{b, c} {
		must(t, n.succeed(l, nil))
	}
	enginetest.Eventually(t, testTimeout, "both places have succeeded", func() bool {
		return n.Count(t, `SELECT count(*) FROM job_places WHERE job_id = 'late' AND state = 'succeeded'`) == 2
	})
	_, err = n.Retry(t.Context(), key("pull", "late"), false)
	must(t, err)
	n.job(t, "pull", "late", succeeded)
	got := n.history(t, "pull", "late")
	if !strings.HasSuffix(got, "\nretried failed>available\nsucceeded available>succeeded 1") {
		t.Error(got)
	}
}

// A job fails if more workers have failed than allowed, or if too few are left. Running members are
// asked to end. RetryJob keeps the successes, unless the request clears them.
func TestGroupFailsAndIsRetried(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "any", workers(3, 0))
	n.members(t, "any", 3)
	a, b, c := n.leaseOne(t, "w1"), n.leaseOne(t, "w2"), n.leaseOne(t, "w3")
	if err := n.succeed(a, result("w1")); err != nil {
		t.Fatal(err)
	}
	if err := n.fail(b, "broken"); err != nil {
		t.Fatal(err)
	}
	job := n.job(t, "pull", "any", failed)
	if f := job.GetFailures(); len(f) != 1 || f[0].GetReason() != "broken" {
		t.Errorf("%v", f)
	}
	k := n.Count(t, `SELECT count(*) FROM processes WHERE process_id = 'any'
		AND detail = '1 workers failed, at most 0 may fail: w2: as asked'`)
	if k != 1 {
		t.Error("the detail does not contain the reason")
	}
	enginetest.Eventually(t, testTimeout, "w3 is asked to end", func() bool {
		return n.beat(t, "w3", c).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
	if _, err := n.Retry(t.Context(), key("pull", "any"), false); err != nil {
		t.Fatal(err)
	}
	n.members(t, "any", 2) // w3 has not ended, w1 has succeeded
	if leases := n.leaseAll(t, "w3"); len(leases) != 0 {
		t.Fatalf("w3 runs two members: %v", leases)
	}
	if leases := n.leaseAll(t, "w1"); len(leases) != 0 {
		t.Fatalf("w1 has succeeded, but got %v", leases)
	}
	acknowledged := "stopped"
	if err := n.CompleteLease(t.Context(), c.GetLeaseToken(),
		engine.LeaseAnswer{Acknowledged: &acknowledged}); err != nil {
		t.Fatal(err)
	}
	n.members(t, "any", 2)
	for _, w := range []string{"w2", "w3"} {
		if err := n.succeed(n.leaseOne(t, w), result(w)); err != nil {
			t.Fatal(err)
		}
	}
	wantRuns(t, n.job(t, "pull", "any", succeeded), "w1 succeeded 1 by w1, w2 succeeded 1 by w2, w3 succeeded 1 by w3")
	if _, err := n.Retry(t.Context(), key("pull", "any"), false); err == nil {
		t.Error("a job that has succeeded is retried")
	}
	if _, err := n.Retry(t.Context(), key("pull", "any"), true); err != nil {
		t.Fatal(err)
	}
	n.members(t, "any", 3)
	wantRuns(t, n.job(t, "pull", "any", available), " available 0,  available 0,  available 0")

	if _, err := n.Cancel(t.Context(), key("pull", "any"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.job(t, "pull", "any", cancelled)
	n.enqueue(t, "pull", "few", workers(2, 5, "w1", "w2", "w3"))
	n.members(t, "few", 2)
	for _, w := range []string{"w1", "w2"} {
		if err := n.fail(n.leaseOne(t, w), "broken"); err != nil {
			t.Fatal(err)
		}
	}
	n.job(t, "pull", "few", failed) // one worker is left for two successes
}

// If the worker of a member is lost, another worker can take the place. After max_takeovers, the
// worker has failed, and so has the job.
func TestMemberLost(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	o := workers(2, 0)
	once := int32(1)
	o.LeaseDuration, o.MaxTakeovers, o.MaxRetry = durationpb.New(500*time.Millisecond), &once, 3
	n.enqueue(t, "pull", "lost", o)
	n.members(t, "lost", 2)
	a, b := n.leaseOne(t, "w1"), n.leaseOne(t, "w2")
	n.beat(t, "w1", a) // the lease has reached its worker, so this attempt counts
	n.exec(t, "UPDATE leases SET expires_time = now() + interval '1 hour' WHERE worker_id = 'w2'")
	taken := n.leaseOne(t, "w3")
	if err := n.succeed(a, nil); err == nil {
		t.Error("an answer of a lost lease is stored")
	}
	wantRuns(t, n.job(t, "pull", "lost", running), "w2 running 1, w3 running 2")
	n.beat(t, "w3", taken)
	if job := n.job(t, "pull", "lost", failed); runs(job) != "w2 running 1, w3 failed 2 lease_lost" ||
		job.GetFailures()[0].GetReason() != process.ReasonLeaseLost {
		t.Errorf("%s: %v", runs(job), job)
	}
	enginetest.Eventually(t, testTimeout, "w2 is asked to end", func() bool {
		return n.beat(t, "w2", b).GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
}

// Another worker can take a place that a worker has released. The released attempt is not counted.
func TestMemberReleased(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	id := strings.Repeat("i", 256) // the ID of its member is shorter
	n.enqueue(t, "pull", id, workers(1, 0, "w1", "w2"))
	n.members(t, id, 1)
	if err := n.ReleaseLeases(t.Context(), []string{n.leaseOne(t, "w1").GetLeaseToken()}, 0); err != nil {
		t.Fatal(err)
	}
	l := n.leaseOne(t, "w2")
	if l.GetJob().GetAttempt() != 1 {
		t.Errorf("attempt %d", l.GetJob().GetAttempt())
	}
	if err := n.succeed(l, result("w2")); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, n.job(t, "pull", id, succeeded), "w2 succeeded 1 by w2")
}

// With two engines and several workers that complete, fail and release leases, no worker has two
// places of a job at the end. Every job ends, and at least half of the jobs succeed.
func TestGroupsByTwoEngines(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, scripted()), start(t, dsn, scripted())
	const jobs, hosts = 12, 6
	for k := range jobs {
		o := workers(3, 3)
		if k%2 == 0 {
			o.Workers.WorkerIds = []string{"w0", "w1", "w2", "w3", "w4", "w5"}
		}
		o.MaxRetry, o.Backoff = 1, &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}}
		a.enqueue(t, "pull", fmt.Sprint("j", k), o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work := func(n *node, worker string, seed int) {
		for k := seed; ctx.Err() == nil; k++ {
			leases, err := n.Poll(ctx, pull.PollParams{
				Namespaces: []string{"pull"}, WorkerID: worker, Max: 4, Wait: time.Second,
			})
			if err != nil {
				return
			}
			for m, l := range leases {
				switch (k + m) % 5 {
				case 0:
					_ = n.ReleaseLeases(context.Background(), []string{l.GetLeaseToken()}, 0)
				case 1:
					_ = n.fail(l, "broken")
				default:
					_ = n.succeed(l, result(worker))
				}
			}
		}
	}
	done := make(chan struct{})
	for h := range hosts {
		for m, n := range []*node{a, b} { // each worker polls both engines at the same time
			go func() {
				defer func() { done <- struct{}{} }()
				work(n, fmt.Sprint("w", h), 2*h+m)
			}()
		}
	}
	enginetest.Eventually(t, testTimeout, "all jobs end", func() bool {
		return a.Count(t, `SELECT count(*) FROM processes WHERE process_id NOT LIKE '~%' AND status IN
			('COMPLETED', 'ERROR')`) == jobs
	})
	cancel()
	for range 2 * hosts {
		<-done
	}
	if k := a.Count(t, `SELECT count(*) FROM processes WHERE process_id NOT LIKE '~%'
		AND status = 'COMPLETED'`); k < jobs/2 {
		t.Errorf("%d of %d succeeded", k, jobs)
	}
	for k := range jobs {
		job, err := a.Get(t.Context(), key("pull", fmt.Sprint("j", k)), 0)
		if err != nil {
			t.Fatal(err)
		}
		var had []string
		for _, r := range job.GetWorkerRuns() {
			if r.GetWorkerId() != "" && slices.Contains(had, r.GetWorkerId()) {
				t.Errorf("%s: %s", job.GetJobId(), runs(job))
			}
			had = append(had, r.GetWorkerId())
		}
	}
}

// If a node dies before it decides about a group that is due, the next pass of a collector finds
// the group.
func TestGroupThatWasLeft(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "left", workers(2, 2))
	rests := func() bool {
		return n.Count(t, "SELECT count(*) FROM schedule WHERE process_id = 'left' AND waits_for = 'members'") == 1
	}
	enginetest.Eventually(t, testTimeout, "the group waits for its members", rests)
	_, err := n.DB.Exec(t.Context(), "UPDATE schedule SET waits_for = 'place' WHERE process_id = 'left'")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, testTimeout, "the group was checked, and waits for its members again", rests)
}
