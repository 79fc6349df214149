package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Worker takes tasks of namespaces whose processor is `pull`, runs them and sends their answers.
// All its connections are outgoing, so it can run behind a firewall. It also sends the heartbeats
// of its leases.
//
//	w := client.NewWorker(c, []string{"mail"}, client.WithConcurrency(20))
//	client.Handle(w, "send", func(ctx context.Context, m Mail) (Receipt, error) { … })
//	err := w.Run(ctx)
type Worker struct {
	client     *Client
	namespaces []string
	options    workerOptions
	jobs       map[string]processor.Processor
	others     processor.Processor // jobs without a handler in jobs; may be nil
	rest       processor.Processor // other processes, and jobs without a handler; may be nil
}

// WorkerOption configures a Worker.
type WorkerOption func(*workerOptions)

type workerOptions struct {
	id          string
	concurrency int
	grace       time.Duration
	lease       time.Duration
	logger      *slog.Logger
	ended       func(Attempt)
	forgets     bool // see WithoutParking
}

const (
	maxConcurrency = 10_000           // limit of leases in one heartbeat
	maxAsked       = 256              // leases per poll; one response contains all their args
	pollWait       = 20 * time.Second // how long a poll waits on the server
	pollMargin     = 2 * time.Second  // how long the last poll may take to end when the worker stops
	requestTimeout = 30 * time.Second // for requests that do not wait on the server
	stopMargin     = 2 * time.Second  // how long cancelled handlers have to return when the worker stops
)

// WithWorkerID sets the worker's ID, which GetJob and lists show. Workers that run at the same time
// must have different IDs. The default consists of the host, the process ID and a random part.
func WithWorkerID(id string) WorkerOption { return func(o *workerOptions) { o.id = id } }

// WithConcurrency sets how many tasks run at a time. The default is 10. The maximum is 10,000.
func WithConcurrency(n int) WorkerOption { return func(o *workerOptions) { o.concurrency = n } }

// WithStopGrace sets how long running handlers may continue after the worker was stopped. Then
// their tasks are released. The default is 30 s.
func WithStopGrace(d time.Duration) WorkerOption { return func(o *workerOptions) { o.grace = d } }

// WithLeaseDuration sets how long this worker may be silent before its tasks go to another one. The
// default is set by the namespace. A job's own lease duration takes precedence.
func WithLeaseDuration(d time.Duration) WorkerOption { return func(o *workerOptions) { o.lease = d } }

// WithWorkerLogger sets the logger; the default is slog.Default().
func WithWorkerLogger(l *slog.Logger) WorkerOption { return func(o *workerOptions) { o.logger = l } }

// WithAttemptEnded sets a function that is called after every attempt. Several goroutines may call
// it at the same time.
func WithAttemptEnded(f func(Attempt)) WorkerOption { return func(o *workerOptions) { o.ended = f } }

// WithoutParking prevents the worker from keeping waiting durable functions in memory. By
// default, it keeps up to 10,000 of them for at most 15 minutes, so that their next task needs no
// replay.
func WithoutParking() WorkerOption { return func(o *workerOptions) { o.forgets = true } }

// Outcome is how an attempt of a worker ended.
type Outcome string

// The outcomes.
const (
	OutcomeDone      Outcome = "done"      // the result or rejection is stored
	OutcomeFailed    Outcome = "failed"    // the failure is stored; the task may be retried
	OutcomeCancelled Outcome = "cancelled" // the handler stopped because its job was cancelled
	OutcomeReleased  Outcome = "released"  // the worker stopped, or the handler returned a ReleaseError
	OutcomeLost      Outcome = "lost"      // the lease was lost; the answer does not count
)

// Attempt is an attempt that has ended.
type Attempt struct {
	Lease    *progressorv1.Lease
	Outcome  Outcome
	Failure  *progressorv1.Failure // if Outcome is OutcomeFailed
	Duration time.Duration
}

// NewWorker returns a worker of these namespaces. Register handlers before Run.
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

// ID returns the worker's ID.
func (w *Worker) ID() string { return w.options.id }

// HandleProcesses registers p for all processes that are not jobs, and for jobs without another
// handler. p receives all their tasks, as if they were pushed to it. It may also store checkpoints:
// see processor.Checkpoint.
func (w *Worker) HandleProcesses(p processor.Processor) { w.rest = p }

// HandleJobs registers p for all jobs without another handler, with any name. p receives an
// INIT task with job_name and job_args, and returns a result with job_result.
func (w *Worker) HandleJobs(p processor.Processor) { w.others = p }

// HandleJob registers p for the jobs with this name. p receives an INIT task with job_args and
// returns a result with job_result. See Handle.
func (w *Worker) HandleJob(name string, p processor.Processor) { w.jobs[name] = p }

// Run runs tasks until ctx ends or an operator stops the worker. Then it takes no new tasks, waits
// for running handlers until the stop grace ends, and releases the rest. A release does not count
// as an attempt. If `progressor deploy check` has started the program, Run polls nothing and only
// answers checks: see processor.CheckAddressVariable.
//
// Run returns an error if the worker has no handler, or if the engine refuses its first poll, for
// example because a namespace does not exist. If the engine cannot be reached, Run retries.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.jobs) == 0 && w.others == nil && w.rest == nil {
		return errors.New("worker: no handler registered")
	}
	if addr, ok := processor.CheckAddress(); ok {
		return w.serveChecks(ctx, addr)
	}
	return newWorkerRun(ctx, w).work()
}

// serveChecks answers the checks of `progressor deploy check`.
func (w *Worker) serveChecks(ctx context.Context, addr string) error {
	if w.rest == nil {
		return errors.New("worker: progressor deploy check has started the program, but the worker handles only jobs")
	}
	var opts []processor.Option
	if w.client.payloads != nil {
		opts = append(opts, processor.WithPayloads(w.client.payloads))
	}
	return processor.Serve(ctx, addr, w.rest, append(opts, processor.WithLogger(w.options.logger))...)
}

// names returns the names of the jobs that the worker polls; nil means all.
func (w *Worker) names() []string {
	if w.rest != nil || w.others != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(w.jobs))
}

// processorOf returns the handler of a task.
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
		return nil, processor.Fail(processor.ReasonNotHandled, "this worker handles only jobs named %s",
			strings.Join(w.names(), ", "))
	})
}
