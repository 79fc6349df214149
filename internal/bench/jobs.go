package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobProcessor is the processor of jobs. It does nothing, and records when each attempt begins.
type jobProcessor struct {
	mu      sync.Mutex
	want    int
	done    int
	all     chan struct{}               // closed when all jobs have been done
	started map[string]chan<- time.Time // by job; receives the time when it began
}

func newJobProcessor(want int) *jobProcessor {
	return &jobProcessor{want: want, all: make(chan struct{}), started: map[string]chan<- time.Time{}}
}

// Process executes a job.
func (f *jobProcessor) Process(
	_ context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken, ok := f.started[r.GetProcess().GetProcessId()]; ok {
		taken <- now
	}
	if f.done++; f.done == f.want {
		close(f.all)
	}
	return processor.Result().Done()
}

// wait returns when all jobs have been done.
func (f *jobProcessor) wait(ctx context.Context, atMost time.Duration) error {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("%d of %d jobs have been done: %w", f.done, f.want, context.Cause(ctx))
	}
}

// jobBatch is the number of jobs in one EnqueueBatch, and jobClients the number of concurrent
// batches.
const (
	jobBatch   = 1000
	jobClients = 4
)

// jobsKeys is the name of the workload whose jobs need a key of a constraint. keysOfJobs is the
// number of keys. jobsOfAKey is the number of jobs that may hold the same key at a time.
const (
	jobsKeys   = "jobs-keys"
	keysOfJobs = 1000
	jobsOfAKey = 10
)

// jobs measures how fast jobs are enqueued in batches, how fast a processor in the same program
// drains them, how soon a job begins on an idle engine, and how fast workers drain jobs over RPC.
func (r *runner) jobs(ctx context.Context, v variant) error {
	enqueue, drain, latency := v.row(subjectEngine), v.row(subjectEngine), v.row(subjectEngine)
	n := r.command.Jobs / jobBatch * jobBatch
	enqueue.Workload, enqueue.Note = v.name()+": enqueue",
		fmt.Sprintf("%d in batches of %d, %d clients; latency is per batch", n, jobBatch, jobClients)
	drain.Workload = v.name() + ": drain"
	drain.Note = fmt.Sprintf("%d waiting jobs, run by a processor in the same program", n)
	latency.Workload, latency.Note = v.name()+": latency", "one at a time; latency is enqueued → started"
	f := newJobProcessor(n)
	err := r.onEngine(ctx, v.history, f, enqueue, func(d *scratch, s *site) (acknowledged, error) {
		if v.events != "" {
			ns := v.withEvents(builtinNamespace(namespaceName, v.history))
			if _, err := s.engine.PutNamespace(ctx, ns); err != nil {
				return nil, err
			}
		}
		if v.workload == jobsKeys {
			drain.Note += fmt.Sprintf(", with %d keys", keysOfJobs)
			if _, err := s.jobs.PutConstraint(ctx,
				&progressorv1.Constraint{Namespace: namespaceName, Name: "to", Match: `job.name == "send_mail"`,
					Key: "job.args.to", MaxRunning: jobsOfAKey}); err != nil {
				return nil, err
			}
		}
		if err := r.enqueueJobs(ctx, s, n, enqueue); err != nil {
			return nil, err
		}
		if err := r.drainJobs(ctx, d, s, f, drain); err != nil {
			return nil, err
		}
		r.step("jobs, latency")
		return acknowledged{process.TaskInit: int64(n + singleJobs)}, r.jobsOneByOne(ctx, s, f, latency)
	})
	drain.Checked, latency.Checked = enqueue.Checked, enqueue.Checked
	r.report.Rows = append(r.report.Rows, enqueue, drain, latency)
	if err != nil || v.workload == jobsKeys {
		return err
	}
	r.step("jobs, pull")
	return r.pulled(ctx, v)
}

// withEvents sets the job events that ns keeps, and returns ns.
func (v variant) withEvents(ns *progressorv1.Namespace) *progressorv1.Namespace {
	ns.JobEvents = progressorv1.JobEvents(progressorv1.JobEvents_value["JOB_EVENTS_"+strings.ToUpper(v.events)])
	return ns
}

// enqueueJobs enqueues n jobs of a paused namespace.
func (r *runner) enqueueJobs(ctx context.Context, s *site, n int, row *Row) error {
	if _, err := s.engine.SetNamespacePaused(ctx, namespaceName, true); err != nil {
		return err
	}
	var mu sync.Mutex
	var latencies histogram
	spent, err := r.meterOf(s).measure(ctx, func() error {
		return each(ctx, n/jobBatch, jobClients, func(ctx context.Context, _ int) error {
			began := time.Now()
			_, err := s.jobs.EnqueueBatch(ctx, jobsOf(jobBatch))
			mu.Lock()
			defer mu.Unlock()
			latencies.add(time.Since(began))
			return err
		})
	})
	row.fill(int64(n), spent.elapsed, &latencies, spent)
	return err
}

// jobArgs returns args that are about as long as those of other workloads.
func jobArgs(n int) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"to":       structpb.NewStringValue(fmt.Sprintf("somebody%03d@example.org", n%keysOfJobs)),
		"template": structpb.NewStringValue("welcome"), "attempt": structpb.NewNumberValue(1),
	}})
}

func jobsOf(n int) *progressorv1.EnqueueBatchRequest {
	batch := &progressorv1.EnqueueBatchRequest{}
	for k := range n {
		batch.Jobs = append(batch.Jobs,
			&progressorv1.EnqueueRequest{Namespace: namespaceName, Name: "send_mail", Args: jobArgs(k)})
	}
	return batch
}

// drainJobs resumes the namespace and waits until all jobs have ended.
func (r *runner) drainJobs(ctx context.Context, d *scratch, s *site, f *jobProcessor, row *Row) error {
	return r.spentOn(ctx, d, s, int64(f.want), row, func() error {
		if _, err := s.engine.SetNamespacePaused(ctx, namespaceName, false); err != nil {
			return err
		}
		if err := f.wait(ctx, 10*time.Minute); err != nil {
			return err
		}
		return d.waitIdle(ctx)
	})
}

// singleJobs is the number of jobs that are enqueued one after the other.
const singleJobs = 500

// jobsOneByOne enqueues jobs on an idle engine and measures how soon each begins.
func (r *runner) jobsOneByOne(ctx context.Context, s *site, f *jobProcessor, row *Row) error {
	var latencies histogram
	spent, err := r.meterOf(s).measure(ctx, func() error {
		for i := range singleJobs {
			took, err := s.oneJob(ctx, f, i)
			if err != nil {
				return err
			}
			latencies.add(took)
			if err := wait(ctx, 5*time.Millisecond); err != nil { // so that the engine is idle
				return err
			}
		}
		return nil
	})
	row.fill(singleJobs, spent.elapsed, &latencies, spent)
	return err
}

// oneJob enqueues a job and returns how soon it began.
func (s *site) oneJob(ctx context.Context, f *jobProcessor, i int) (time.Duration, error) {
	id := fmt.Sprint("single-", i)
	taken := make(chan time.Time, 1)
	f.mu.Lock()
	f.started[id] = taken
	f.mu.Unlock()
	began := time.Now()
	if _, err := s.jobs.Enqueue(ctx, &progressorv1.EnqueueRequest{
		Namespace: namespaceName, JobId: id, Name: "send_mail", Args: jobArgs(i),
	}); err != nil {
		return 0, err
	}
	select {
	case at := <-taken:
		return at.Sub(began), nil
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("job %s has not begun within a minute", id)
	}
}
