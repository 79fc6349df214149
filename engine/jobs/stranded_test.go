package jobs_test

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// withoutWorkers changes the processor of namespace "pull" to one of the engine.
func (n *node) withoutWorkers(t *testing.T) {
	t.Helper()
	n.Put(t, &progressorv1.Namespace{Namespace: "pull", Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "p"}},
	}})
}

// stranded checks that a job has failed because its namespace has no workers.
func (n *node) stranded(t *testing.T, id string) {
	t.Helper()
	job := n.job(t, "pull", id, failed)
	failures := job.GetFailures()
	if len(failures) == 0 {
		t.Fatalf("%s has no failure: %v", id, job)
	}
	f := failures[len(failures)-1]
	if f.GetReason() != "no_workers" || !strings.Contains(f.GetMessage(), `namespace "pull"`) {
		t.Errorf("%s: failure %v", id, f)
	}
}

// A job for several workers fails with a reason when its namespace gets a processor that is not for
// workers, whether a worker runs it or not.
func TestGroupWithoutWorkersFails(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "waits", workers(2, 0))
	n.members(t, "waits", 2)
	n.enqueue(t, "pull", "runs", workers(2, 0, "w1", "w2"))
	n.members(t, "runs", 2)
	l := n.leaseOne(t, "w1")
	if got := l.GetRequest().GetJobArgs().GetStringValue(); got != "args of runs" {
		t.Fatalf("leased %s, want the place of w1", got)
	}
	n.withoutWorkers(t)
	n.stranded(t, "waits")
	n.stranded(t, "runs")
	if _, err := n.Retry(t.Context(), key("pull", "runs"), false); err != nil {
		t.Fatal(err)
	}
	n.stranded(t, "runs")

	// When the namespace has workers again, the jobs can be retried.
	n.Put(t, enginetest.Pull("pull"))
	if _, err := n.Retry(t.Context(), key("pull", "waits"), false); err != nil {
		t.Fatal(err)
	}
	n.members(t, "waits", 2)
}

// blocked_on of a job for several workers shows that no worker runs the job, before the first lease
// and after its release.
func TestGroupThatNoWorkerRuns(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "one", workers(1, 0))
	n.members(t, "one", 1)
	const want = "workers: no worker runs the job; 1 of 1 places wait for a worker"
	wantBlockedOn(t, n.job(t, "pull", "one", available), want)
	l := n.leaseOne(t, "w")
	wantBlockedOn(t, n.job(t, "pull", "one", running), "")
	must(t, n.ReleaseLeases(t.Context(), []string{l.GetLeaseToken()}, 0))
	wantBlockedOn(t, n.job(t, "pull", "one", available), want)
}
