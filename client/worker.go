package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Worker takes tasks of namespaces whose processor is `pull`, runs them and answers. All its connections go out, so it can live behind a
// firewall. It keeps its leases alive by itself.
//
//	w := client.NewWorker(c, []string{"mail"}, client.WithConcurrency(20))
//	client.Handle(w, "send", func(ctx context.Context, m Mail) (Receipt, error) { … })
//	err := w.Run(ctx)
type Worker struct {
	client     *Client
	namespaces []string
	options    workerOptions
	jobs       map[string]processor.Processor
	others     processor.Processor // of jobs that no handler is for; nil: they are not asked for, unless rest is there
	rest       processor.Processor // of processes that are no jobs, and of jobs that no handler is for; nil: they are not asked for
}

// WorkerOption changes what NewWorker makes.
type WorkerOption func(*workerOptions)

type workerOptions struct {
	id          string
	concurrency int
	grace       time.Duration
	lease       time.Duration
	logger      *slog.Logger
	ended       func(Attempt)
}

const (
	maxConcurrency = 10_000           // as many leases as a heartbeat holds
	maxAsked       = 256              // leases of one poll: their args come in one message
	pollWait       = 20 * time.Second // how long a poll waits on the server
	requestTimeout = 30 * time.Second // of requests that do not wait
	stopMargin     = 2 * time.Second  // what handlers get to return once they were told, at the end of a worker
)

// WithWorkerID names the worker, in GetJob and in lists. Two that run at a time must not have one name. Default: host, process and a random part.
func WithWorkerID(id string) WorkerOption { return func(o *workerOptions) { o.id = id } }

// WithConcurrency sets how many tasks run at a time; the default is 10, at most 10,000.
func WithConcurrency(n int) WorkerOption { return func(o *workerOptions) { o.concurrency = n } }

// WithStopGrace sets how long, at the end of Run, what runs may go on; the default is 30 s. What is not done then is given back.
func WithStopGrace(d time.Duration) WorkerOption { return func(o *workerOptions) { o.grace = d } }

// WithLeaseDuration sets how long this worker may be silent before its tasks go to another one. Default: the namespace's. A job's own goes first.
func WithLeaseDuration(d time.Duration) WorkerOption { return func(o *workerOptions) { o.lease = d } }

// WithWorkerLogger sets where a worker logs; the default is slog.Default().
func WithWorkerLogger(l *slog.Logger) WorkerOption { return func(o *workerOptions) { o.logger = l } }

// WithAttemptEnded has f called with every attempt that is over, from many goroutines at once.
func WithAttemptEnded(f func(Attempt)) WorkerOption { return func(o *workerOptions) { o.ended = f } }

// Outcome is what became of an attempt of a worker.
type Outcome string

// The outcomes.
const (
	OutcomeDone      Outcome = "done"      // its result, or its rejection, is stored
	OutcomeFailed    Outcome = "failed"    // its failure is stored: it may be tried again
	OutcomeCancelled Outcome = "cancelled" // it stopped as it was told
	OutcomeReleased  Outcome = "released"  // it was given back, because the worker stops
	OutcomeLost      Outcome = "lost"      // somebody else has it: its answer does not count
)

// Attempt is an attempt that is over.
type Attempt struct {
	Lease    *progressorv1.Lease
	Outcome  Outcome
	Failure  *progressorv1.Failure // of OutcomeFailed
	Duration time.Duration
}

// NewWorker makes a worker of these namespaces. Say what it does by Handle and HandleProcesses before it runs.
func NewWorker(c *Client, namespaces []string, opts ...WorkerOption) *Worker {
	o := workerOptions{concurrency: 10, grace: 30 * time.Second, logger: slog.Default(), ended: func(Attempt) {}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.id == "" {
		host, _ := os.Hostname()
		o.id = fmt.Sprintf("%.200s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
	}
	o.concurrency = min(max(o.concurrency, 1), maxConcurrency)
	return &Worker{client: c, namespaces: namespaces, options: o, jobs: map[string]processor.Processor{}}
}

// ID is the worker's name.
func (w *Worker) ID() string { return w.options.id }

// HandleProcesses has the worker run the processes of its namespaces that are no jobs, and the jobs that it has no handler for: p gets all their
// tasks, as if they were pushed to it.
func (w *Worker) HandleProcesses(p processor.Processor) { w.rest = p }

// HandleJobs has the worker run the jobs of its namespaces that it has no handler for, whatever their name, and no tasks of other processes: p gets
// an INIT task with job_name and job_args, and answers a result with job_result.
func (w *Worker) HandleJobs(p processor.Processor) { w.others = p }

// HandleJob has the worker run jobs of this name by p, which gets an INIT task with job_args and answers a result with job_result. See Handle.
func (w *Worker) HandleJob(name string, p processor.Processor) { w.jobs[name] = p }

// Run works until ctx ends or somebody stops the worker from afar. Then it takes nothing new, lets what runs end within the grace, and gives the rest
// back: no attempt is used up. It returns an error only where the engine takes no poll of this worker, such as one of a namespace that is not there.
// Where the engine is away it tries again.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.jobs) == 0 && w.others == nil && w.rest == nil {
		return errors.New("worker: it has no handler")
	}
	s := newShift(ctx, w)
	return s.work()
}

// names are the jobs that are asked for; none: whatever there is.
func (w *Worker) names() []string {
	if w.rest != nil || w.others != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(w.jobs))
}

// processorOf is who runs a task.
func (w *Worker) processorOf(l *progressorv1.Lease) processor.Processor {
	if l.GetJob() != nil {
		if p, ok := w.jobs[l.GetJob().GetName()]; ok {
			return p
		}
		if w.others != nil {
			return w.others
		}
	}
	if w.rest != nil {
		return w.rest
	}
	return processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return nil, processor.Fail(processor.ReasonNotHandled, "this worker handles only jobs named %v", w.names())
	})
}
