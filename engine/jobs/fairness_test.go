package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const byTenant = "job.metadata.tenant"

// startFair runs a node whose namespace "pull" has a fairness key.
func startFair(t testing.TB, dsn string) *node {
	t.Helper()
	n := start(t, dsn, scripted())
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.FairnessKey = byTenant }))
	return n
}

// of returns options for a job of a tenant.
func of(tenant string) *progressorv1.JobOptions {
	return &progressorv1.JobOptions{
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"tenant": structpb.NewStringValue(tenant)}},
	}
}

// enqueueOf enqueues jobs of a tenant in one batch. Their IDs consist of the tenant and a number,
// starting at first.
func (n *node) enqueueOf(t testing.TB, namespace, tenant string, first, count int) {
	t.Helper()
	r := &progressorv1.EnqueueBatchRequest{}
	for k := first; k < first+count; k++ {
		r.Jobs = append(r.Jobs, &progressorv1.EnqueueRequest{
			Namespace: namespace, JobId: fmt.Sprint(tenant, k), Name: "work", Options: of(tenant),
		})
	}
	if _, err := n.EnqueueBatch(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

// order returns the jobs that one worker gets, one after the other.
func (n *node) order(t testing.TB, count int) string {
	t.Helper()
	var all []string
	for range count {
		l := n.leaseOne(t, "w")
		all = append(all, l.GetJob().GetJobId())
		if err := n.succeed(l, nil); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(all, " ")
}

// The jobs of a tenant that comes later do not wait for all jobs of another tenant.
func TestJobsOfKeysAlternate(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	n.enqueueOf(t, "pull", "a", 0, 300)
	n.enqueueOf(t, "pull", "b", 0, 5)
	got := n.order(t, 20)
	if want := "a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	n.enqueueOf(t, "pull", "c", 0, 2) // begin in the current round, without credit for earlier rounds
	n.enqueueOf(t, "pull", "b", 5, 2)
	if got, want := n.order(t, 7), "a15 c0 b5 a16 c1 b6 a17"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if job := n.job(t, "pull", "b0", succeeded); job.FairnessKey == nil || job.GetFairnessKey() != "b" {
		t.Errorf("fairness key %v", job.FairnessKey)
	}
}

// One poll for several leases also takes them in rounds, and so does a poll by name.
func TestLeasesOfAPollAlternate(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	n.enqueueOf(t, "pull", "a", 0, 20)
	n.enqueueOf(t, "pull", "b", 0, 2)
	if got, want := ids(n.poll(t, "w", 4)), "a0 b0 a1 b1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	n.enqueueOf(t, "pull", "b", 2, 2)
	if got, want := ids(n.poll(t, "w", 4, "work")), "a2 b2 a3 b3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Priority decides first. Within a priority, jobs without a key, which were enqueued before the
// namespace had a fairness key, come first. Jobs for which the expression fails share the key "".
func TestPriorityPrecedesFairness(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueueOf(t, "pull", "old", 0, 2)
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.FairnessKey = byTenant }))
	n.enqueueOf(t, "pull", "a", 0, 2)
	n.enqueue(t, "pull", "none0", nil)
	n.enqueue(t, "pull", "none1", nil)
	for id, priority := range map[string]int32{"urgent": -1, "late": 1} {
		o := of("a")
		o.Priority = priority
		n.enqueue(t, "pull", id, o)
	}
	if got, want := n.order(t, 8), "urgent old0 old1 a0 none0 a1 none1 late"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// In a namespace whose processor is called, jobs also start in rounds.
func TestPushedJobsAlternate(t *testing.T) {
	t.Parallel()
	var got []string
	n := start(t, storagetest.DSN(t),
		processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			got = append(got, r.GetProcess().GetProcessId()) // one at a time
			return &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
			}, nil
		}))
	ns, err := n.GetNamespace(t.Context(), "ns")
	if err != nil {
		t.Fatal(err)
	}
	ns.FairnessKey, ns.MaxRunning = byTenant, 1
	n.Put(t, ns)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	n.enqueueOf(t, "ns", "a", 0, 10)
	n.enqueueOf(t, "ns", "b", 0, 2)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", false); err != nil {
		t.Fatal(err)
	}
	for k := range 10 {
		n.job(t, "ns", fmt.Sprint("a", k), succeeded)
	}
	if got, want := strings.Join(got[:5], " "), "a0 b0 a1 b1 a2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Rounds are stored, so another node continues them. Two nodes that enqueue in turn continue the
// rounds of each other.
func TestRoundsOnSeveralNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	first, second := startFair(t, dsn), startFair(t, dsn)
	for k := range 5 {
		first.enqueueOf(t, "pull", "a", 2*k, 1)
		second.enqueueOf(t, "pull", "a", 2*k+1, 1)
	}
	second.enqueueOf(t, "pull", "b", 0, 2)
	first.enqueueOf(t, "pull", "b", 2, 2)
	if got, want := first.order(t, 5), "a0 b0 a1 b1 a2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	third := start(t, dsn, scripted()) // has read none of the jobs, and replaces the namespace
	if got, want := third.order(t, 9), "b2 a3 b3 a4 a5 a6 a7 a8 a9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A job that has failed, that becomes due by an update, or that an operator resumes waits behind
// the other jobs of its key. It does not overtake the jobs of other keys.
func TestJobThatWaitsAgainTakesTheNextRound(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	soon := func(tenant string) *progressorv1.JobOptions {
		o := of(tenant)
		o.MaxRetry, o.Backoff = 1, &progressorv1.Backoff{
			Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)},
		}
		return o
	}
	for k := range 4 {
		n.enqueue(t, "pull", fmt.Sprint("a", k), soon("a"))
	}
	failed := n.poll(t, "w", 4)
	n.enqueueOf(t, "pull", "b", 0, 3)
	for _, l := range failed {
		if err := n.fail(l, "no"); err != nil {
			t.Fatal(err)
		}
	}
	n.placed(t, "pull", 7)
	if got := strings.Fields(n.order(t, 7)); got[1] != "b0" || got[3] != "b1" || got[5] != "b2" {
		t.Errorf("after failures: %s", got)
	}

	n.enqueueOf(t, "pull", "a", 10, 2)
	late := of("a")
	late.RunTime = timestamppb.New(time.Now().Add(time.Hour))
	n.enqueue(t, "pull", "a-late", late)
	n.enqueueOf(t, "pull", "b", 10, 3)
	now := &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "a-late", Options: &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now())},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"run_time"}},
	}
	if _, err := n.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SuspendProcess(t.Context(), key("pull", "a10"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ResumeProcess(t.Context(), key("pull", "a10"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if got, want := n.order(t, 6), "b10 a11 b11 a-late b12 a10"; got != want {
		t.Errorf("after an update and a resume: %s, want %s", got, want)
	}
}

// RetryJob makes a job wait behind the other jobs of its key. UpdateJob with another priority puts
// a job behind the jobs of its key with that priority.
func TestRetriedAndUpdatedJobsTakeTheNextRound(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	n.enqueueOf(t, "pull", "a", 0, 3)
	for _, l := range n.poll(t, "w", 3) {
		if err := n.fail(l, "no"); err != nil {
			t.Fatal(err)
		}
	}
	urgent := of("a")
	urgent.Priority = 5
	n.enqueue(t, "pull", "a5", urgent)
	n.enqueueOf(t, "pull", "a", 10, 2)
	n.enqueueOf(t, "pull", "b", 0, 4)
	for k := range 2 {
		if _, err := n.Retry(t.Context(), key("pull", fmt.Sprint("a", k)), false); err != nil {
			t.Fatal(err)
		}
	}
	update := &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: "a5", Options: &progressorv1.JobOptions{},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"priority"}},
	}
	if _, err := n.Update(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	if got, want := n.order(t, 9), "a10 b0 a11 b1 b2 a0 b3 a1 a5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Jobs that wait for the same key of a constraint get it in rounds.
func TestJobsInAKeyQueueAlternate(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	n.limit(t, &progressorv1.Constraint{Name: "all", MaxRunning: 1})
	n.enqueueOf(t, "pull", "a", 0, 10)
	n.placed(t, "pull", 1)
	n.enqueueOf(t, "pull", "b", 0, 2)
	if job := n.job(t, "pull", "b1", available); !strings.HasSuffix(job.GetBlockedOn(), "; 3 before it") {
		t.Errorf("b1 waits for %s", job.GetBlockedOn())
	}
	if got, want := n.order(t, 6), "a0 a1 b0 a2 b1 a3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Jobs from SQL also start in rounds, because their fairness keys are computed before their
// delivery.
func TestJobsFromSQLAlternate(t *testing.T) {
	t.Parallel()
	n := startFair(t, storagetest.DSN(t))
	for k := range 3 {
		id := fmt.Sprint("a", k)
		n.fromSQL(t, fmt.Sprintf(`'pull', 'work', job_id => '%s', metadata => '{"tenant": "a"}'`, id))
		n.awaited(t, "pull", id)
	}
	n.fromSQL(t, `'pull', 'work', '{"n": 1}', job_id => 'b0', metadata => '{"tenant": "b"}'`)
	n.awaited(t, "pull", "b0")
	if got, want := n.order(t, 4), "a0 b0 a1 a2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A fairness key that is not valid is rejected. The error contains the position of the fault or the
// type of the expression.
func TestFairnessKeyIsChecked(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for text, want := range map[string]string{
		"job.tenant": "namespace.fairness_key: line 1, column 1: unknown name job.tenant: use job.name, ",
		"job.tags": "namespace.fairness_key: its value is of type list(string), but must be a string, a number or a " +
			"bool",
	} {
		_, err := n.PutNamespace(t.Context(), pullNamespace(func(ns *progressorv1.Namespace) { ns.FairnessKey = text }))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A namespace without a fairness key stores neither keys nor rounds.
func TestNoRoundsWithoutAFairnessKey(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueueOf(t, "pull", "a", 0, 3)
	n.fromSQL(t, `'pull', 'work', job_id => 's'`)
	n.awaited(t, "pull", "s")
	if k := n.Count(t, "SELECT count(*) FROM schedule WHERE round <> 0 OR fairness_key IS NOT NULL"); k > 0 {
		t.Errorf("%d tasks have a round or a key", k)
	}
	if k := n.Count(t, "SELECT count(*) FROM jobs WHERE fairness_key IS NOT NULL"); k > 0 {
		t.Errorf("%d jobs have a key", k)
	}
}
