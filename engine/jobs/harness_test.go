package jobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event that normally happens soon. It is long because
// the machine may be busy.
const testTimeout = time.Minute

// node is an engine of a test with jobs. Namespace "ns" pushes them to a processor, and workers
// poll namespace "pull".
type node struct {
	*enginetest.Node
	*jobs.Jobs
}

func start(t testing.TB, dsn string, p processor.Processor, with ...enginetest.Option) *node {
	t.Helper()
	n := enginetest.Start(t, dsn, p, append(with, enginetest.Kinds)...)
	n.Put(t, enginetest.Pull("pull"))
	return &node{n, n.Jobs}
}

func pullNamespace(change func(*progressorv1.Namespace)) *progressorv1.Namespace {
	ns := enginetest.Pull("pull")
	change(ns)
	return ns
}

func key(namespace, id string) process.Key { return process.Key{Namespace: namespace, ProcessID: id} }

func (n *node) enqueue(t testing.TB, namespace, id string, o *progressorv1.JobOptions) *progressorv1.EnqueueResponse {
	t.Helper()
	r, err := n.Enqueue(context.Background(), &progressorv1.EnqueueRequest{
		Namespace: namespace, JobId: id, Name: "work", Args: structpb.NewStringValue("args of " + id), Options: o,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// poll leases at most limit tasks of namespace "pull". It waits until there are tasks.
func (n *node) poll(t testing.TB, worker string, limit int, names ...string) []*progressorv1.Lease {
	t.Helper()
	leases, err := n.Poll(context.Background(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: worker, JobNames: names, Max: limit, Wait: testTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// leaseAll leases the tasks that are available now, without waiting.
func (n *node) leaseAll(t testing.TB, worker string) []*progressorv1.Lease {
	t.Helper()
	leases, err := n.Poll(context.Background(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: worker, Max: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// leaseOne leases one task of namespace "pull". It waits until there is one.
func (n *node) leaseOne(t testing.TB, worker string) *progressorv1.Lease {
	t.Helper()
	leases := n.poll(t, worker, 1)
	if len(leases) != 1 {
		t.Fatalf("%d leases, want 1", len(leases))
	}
	return leases[0]
}

// succeed completes a lease with a result.
func (n *node) succeed(l *progressorv1.Lease, result *structpb.Value) error {
	return n.CompleteLease(context.Background(), l.GetLeaseToken(),
		engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{JobResult: result}},
		}})
}

// fail completes a lease with a failure.
func (n *node) fail(l *progressorv1.Lease, reason string) error {
	return n.CompleteLease(context.Background(), l.GetLeaseToken(),
		engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Reason: reason, Message: "as asked"},
			},
		}})
}

// beat sends a heartbeat for a lease and returns the directive for it.
func (n *node) beat(t testing.TB, worker string, l *progressorv1.Lease) *progressorv1.LeaseDirective {
	t.Helper()
	d, err := n.BeatLeases(context.Background(), &progressorv1.HeartbeatRequest{
		WorkerId: worker, Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.GetLeaseToken()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// job waits until a job has a state, and returns the job.
func (n *node) job(t testing.TB, namespace, id string, want progressorv1.JobState) *progressorv1.Job {
	t.Helper()
	var job *progressorv1.Job
	enginetest.Eventually(t, testTimeout, id+" is "+want.String(), func() bool {
		var err error
		if job, err = n.Get(context.Background(), key(namespace, id), 0); err != nil {
			t.Fatal(err)
		}
		return job.GetState() == want
	})
	return job
}

// holding is a processor that sends the ID of each job to held and runs until free is closed.
func holding(held chan<- string, free <-chan struct{}) processor.Processor {
	return processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		held <- r.GetProcess().GetProcessId()
		select {
		case <-free:
		case <-ctx.Done():
		}
		return &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
		}, nil
	})
}

// reportStatus is a processor that responds to the end of a child with the status of the child.
func reportStatus() processor.Processor {
	return processor.Func(func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Response([]byte(strings.TrimPrefix(r.GetChild().GetStatus().String(),
			"PROCESS_STATUS_"))).Done()
	})
}
