package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// defaultLease is used if neither the worker nor the namespace nor the process sets a lease
	// duration.
	defaultLease = 30 * time.Second
	maxLease     = process.MaxLease
)

// Workers hands tasks to the workers of a node. Package pull implements it. Its methods are safe
// for concurrent use, and those without a context do not block.
type Workers interface {
	// Run does background work until ctx is cancelled.
	Run(ctx context.Context) error
	// Wake looks for tasks that wait for workers.
	Wake()
	// Offer wakes polls for n tasks of a namespace. name is the name of their processes (see
	// Kind.Describe), or "" if they have none.
	Offer(namespace, name string, n int)
	// Prefer lets a worker get the next task of a process that it has in memory, if the worker
	// polls soon. It does not apply to jobs.
	Prefer(namespace, workerID string)
	// ExpectGroups records that namespaces may have slots of job groups.
	ExpectGroups(namespaces ...string)
	// NamespacesChanged wakes the polls of namespaces whose configuration has changed.
	NamespacesChanged(names map[string]struct{})
	// LeasedSince returns when this node leased an attempt, if it did.
	LeasedSince(attempt storage.AttemptRef) (at time.Time, known bool)
	// Forget drops the cached leases, after a failover of the database.
	Forget()
	// Record stores which workers this node has seen.
	Record(ctx context.Context) error
	// Hears contains functions that receive the payloads of NOTIFYs, like Kind.Hears.
	Hears() map[string]func(payload string)
}

// noWorkers is the Workers implementation of an engine that hands out no tasks.
type noWorkers struct{}

func (noWorkers) Run(context.Context) error             { return nil }
func (noWorkers) Wake()                                 {}
func (noWorkers) Offer(string, string, int)             {}
func (noWorkers) Prefer(string, string)                 {}
func (noWorkers) ExpectGroups(...string)                {}
func (noWorkers) NamespacesChanged(map[string]struct{}) {}
func (noWorkers) Forget()                               {}
func (noWorkers) Record(context.Context) error          { return nil }
func (noWorkers) Hears() map[string]func(string)        { return nil }

func (noWorkers) LeasedSince(storage.AttemptRef) (at time.Time, known bool) { return at, false }

// Serve registers the implementation that hands tasks to workers. It must be called before Run.
func (e *Engine) Serve(w Workers) { e.workers = w }

// EnterPoll admits a request of a worker. The request counts against the polls of the first
// namespace, or only against the node if there is none. The caller must call leave at the end of
// the request.
func (e *Engine) EnterPoll(namespaces []string) (leave func(), err error) {
	share := e.pollShareOf(namespaces)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	return func() { e.leave(share) }, nil
}

// Handout is a task in the form that a worker receives.
type Handout struct {
	Request                 *progressorv1.ProcessRequest
	HistoryBytes            int // size of its events
	Traceparent, Tracestate string
	Trace                   []byte // the part of the context that the end of the attempt needs
}

// HandOut returns the task of a lease in the form that a worker receives. The request omits the
// history if the worker has the process in memory and can continue it.
func (e *Engine) HandOut(l *storage.Lease, continuesParked bool) (Handout, error) {
	c := &l.Claim
	ns, ok := e.registry.all()[c.Namespace]
	if !ok {
		return Handout{}, errReleased
	}
	t := &turn{claim: c, kept: e.parking.atWorker(ns, l, continuesParked)}
	read, err := e.historyOf(ns, t)
	if err != nil {
		return Handout{}, err
	}
	request, err := e.request(c, read.events, read.asked, c.RunningTime.Add(l.Timeout))
	if err != nil {
		return Handout{}, err
	}
	if at, ok := t.kept.Value().(*parkedAtWorker); ok && t.kept.OmitsHistory() {
		request.ParkedId = at.id
	}
	h := Handout{Request: request, HistoryBytes: read.bytes, Trace: e.traces.leaseContext(c.Context)}
	h.Traceparent, h.Tracestate = e.traces.handOut(c)
	return h, nil
}

// RefuseLease ends an attempt that cannot be handed out, for example because its history is too
// large. If a later attempt may succeed, for example after the database was unavailable,
// RefuseLease releases the task.
func (e *Engine) RefuseLease(l *storage.Lease, cause error) {
	if errors.Is(cause, errReleased) {
		e.ReleaseLease(l, 0)
		return
	}
	ns, ok := e.registry.all()[l.Claim.Namespace]
	if !ok {
		return // the namespace was deleted
	}
	d := decide(attemptEnd{
		claim: &l.Claim, err: cause, retry: ns.retry, kind: e.kinds[l.Claim.Kind], workerID: l.WorkerID,
	})
	_ = e.endLease(ns, l, d) // the error was logged and the lease expires
}

// ReleaseLease releases the task of a lease. The attempt is not counted, and another worker may
// take the task after delay.
func (e *Engine) ReleaseLease(l *storage.Lease, delay time.Duration) {
	ns, ok := e.registry.all()[l.Claim.Namespace]
	if !ok {
		return
	}
	d := &decision{completion: releaseCompletion(End{Claim: &l.Claim, WorkerID: l.WorkerID}, e.kinds[l.Claim.Kind])}
	d.completion.RetryAfter = delay
	err := e.endLease(ns, l, d) // save has logged an error, and the lease expires
	if err == nil && delay > 0 {
		e.timers.alarm(l.Claim.Namespace, delay)
	}
}

// endLease stores the end of a leased attempt and deletes the lease.
func (e *Engine) endLease(ns *namespace, l *storage.Lease, d *decision) error {
	d.workerID, d.completion.StepTimeout, d.completion.Leased = l.WorkerID, ns.stepTimeout, true
	span := e.traces.leased(l)
	sendAlong(span, d.completion.Messages)
	saved, err := e.save(ns, &l.Claim, d)
	if err == nil { // otherwise the lease already has a span, or the worker will repeat the answer
		endSpan(span, d, saved.Now, nil)
	}
	return err
}

// EndPending ends the attempt of a lease with a result that its worker has stored from SQL, as
// JSON. l.WorkerToken must be set. The error is process.ErrFenced if the attempt has ended, and
// process.ErrDraining if the node is draining. A drain that begins later waits until EndPending
// returns, but at most for the drain timeout.
func (e *Engine) EndPending(ctx context.Context, l *storage.Lease, result []byte) error {
	if !e.active.enter() {
		return errDraining
	}
	defer e.active.leave()
	err := e.EndLease(ctx, l, LeaseAnswer{Response: wire.StoredResult(result)})
	// The worker has stored events that no watcher on this node has seen.
	e.watchers.recheck(process.Key{Namespace: l.Claim.Namespace, ProcessID: l.Claim.ProcessID})
	return err
}

// EndLease stores the answer of a worker, or returns process.ErrFenced if the lease was lost.
func (e *Engine) EndLease(ctx context.Context, l *storage.Lease, a LeaseAnswer) error {
	ns, err := e.namespace(ctx, l.Claim.Namespace)
	if errors.Is(err, process.ErrNamespaceDeleting) || errors.Is(err, process.ErrNamespaceNotFound) {
		return process.ErrFenced // its tasks are being deleted
	}
	if err != nil {
		return err
	}
	end := attemptEnd{
		claim: &l.Claim, retry: ns.retry, random: rand.Float64(), kind: e.kinds[l.Claim.Kind], workerID: l.WorkerID,
		messages: e.kindMessage,
	}
	a.into(&end)
	d := decide(end)
	d.completion.AnsweredBy = l.WorkerID
	if d.park = e.parking.parkedBy(ns, l, a.Response); d.park != nil {
		e.workers.Prefer(l.Claim.Namespace, l.WorkerID) // the next task may follow at once
	}
	return e.endLease(ns, l, d)
}
