package client

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// workerRun is one Run of a worker: the leases that it holds, and the loops that poll, send answers
// and send heartbeats.
type workerRun struct {
	*Worker
	polling      context.Context // ends when the worker takes no new tasks
	stopPolling  context.CancelFunc
	handling     context.Context // parent of the contexts of handlers
	stopHandlers context.CancelCauseFunc
	requests     context.Context // parent of the contexts of other requests; ends last
	stopRequests context.CancelFunc

	parking *processor.Parking // the processes that the worker has in memory; nil with WithoutParking
	answers chan *heldLease
	sending chan struct{} // bounds the requests with answers
	changed chan struct{} // wakes beat
	room    chan struct{} // wakes awaitRoom

	mu        sync.Mutex
	held      map[string]*heldLease // by lease token
	free      int                   // free slots
	quiet     bool                  // the engine told the worker to take no new tasks
	moreTasks bool                  // the last poll was full: more tasks may be waiting
	drained   chan struct{}         // closed when no lease is held after polling has ended; nil before
}

// sendersAtOnce is the maximum number of concurrent requests with answers. While they are in
// flight, further answers gather into the next batch.
const sendersAtOnce = 4

func newWorkerRun(ctx context.Context, w *Worker) *workerRun {
	r := &workerRun{
		Worker: w, answers: make(chan *heldLease, w.options.concurrency), sending: make(chan struct{}, sendersAtOnce),
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1),
		held: map[string]*heldLease{}, free: w.options.concurrency,
	}
	if !w.options.forgets {
		r.parking = processor.NewParking()
	}
	r.polling, r.stopPolling = context.WithCancel(ctx)
	r.requests, r.stopRequests = context.WithCancel(context.WithoutCancel(ctx))
	r.handling, r.stopHandlers = context.WithCancelCause(r.requests)
	return r
}

// work runs the worker from its first poll to its end.
func (r *workerRun) work() error {
	defer r.stopPolling()
	var loops sync.WaitGroup
	loops.Go(r.beat)
	loops.Go(r.send)
	r.options.logger.Info(
		"worker started", "worker_id", r.options.id, "namespaces", r.namespaces,
		"concurrency", r.options.concurrency,
	)
	err := r.poll()
	r.stopPolling()
	r.drain()
	if r.parking != nil {
		r.parking.Close()
	}
	r.stopRequests()
	loops.Wait()
	r.options.logger.Info("worker stopped", "worker_id", r.options.id)
	return err
}

// poll polls for tasks while slots are free.
func (r *workerRun) poll() error {
	accepted := false
	for failures := 0; ; {
		n := r.awaitRoom()
		if n == 0 {
			return nil
		}
		resp, err := r.pollOnce(n)
		if err == nil {
			if failures > 0 {
				r.options.logger.Info("engine reachable again", "worker_id", r.options.id)
			}
			accepted, failures = true, 0
			r.addRoom(n - len(resp.GetLeases()))
			r.applyWorkerDirective(resp.GetWorker())
			r.setMoreTasks(len(resp.GetLeases()) == n)
			r.start(resp.GetLeases())
			if r.isQuiet() { // polls then return no tasks, only the current directive
				sleep(r.polling, quietPause)
			}
			continue
		}
		r.addRoom(n)
		switch {
		case r.polling.Err() != nil:
			return nil //nolint:nilerr // the worker stops
		case !accepted && isPermanent(err):
			return err
		case failures == 0:
			r.options.logger.Warn("engine unreachable; retrying", "worker_id", r.options.id, "error", err)
		}
		failures++
		sleep(r.polling, pollRetry.interval(failures, rand.Float64()))
	}
}

// pollRetry sets the waits between polls while the engine cannot be reached.
var pollRetry = Retry{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// quietPause is the time between two polls of a worker that takes no new tasks.
const quietPause = time.Second

// isPermanent reports whether every poll would fail with err, because the worker is misconfigured.
func isPermanent(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnauthenticated,
		connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	default:
		return false
	}
}

// awaitRoom waits for free slots and takes up to maxAsked of them. It returns 0 when the worker
// takes no new tasks.
func (r *workerRun) awaitRoom() int {
	for {
		r.mu.Lock()
		n := min(r.free, maxAsked)
		if r.polling.Err() != nil {
			n = 0
		}
		if n > 0 {
			r.free -= n
			r.mu.Unlock()
			return n
		}
		r.mu.Unlock()
		select {
		case <-r.polling.Done():
			return 0
		case <-r.room:
		}
	}
}

// addRoom frees n slots.
func (r *workerRun) addRoom(n int) {
	r.mu.Lock()
	r.free += n
	r.mu.Unlock()
	signal(r.room)
}

func (r *workerRun) setMoreTasks(more bool) {
	r.mu.Lock()
	r.moreTasks = more
	r.mu.Unlock()
}

func (r *workerRun) pollRequest(n int, wait time.Duration) *progressorv1.PollRequest {
	req := &progressorv1.PollRequest{
		Namespaces: r.namespaces, WorkerId: r.options.id, JobNames: r.names(), JobsOnly: r.rest == nil,
		MaxLeases: int32(n), ContinuesParked: r.parking != nil,
	}
	if wait > 0 {
		req.Wait = durationpb.New(wait)
	}
	if r.options.lease > 0 {
		req.LeaseDuration = durationpb.New(r.options.lease)
	}
	return req
}

// pollOnce sends a poll. If the worker stops, pollOnce still waits up to pollMargin for the
// response, because it may have leases.
func (r *workerRun) pollOnce(n int) (*progressorv1.PollResponse, error) {
	ctx, cancel := context.WithTimeout(r.requests, pollWait+requestTimeout)
	defer cancel()
	defer context.AfterFunc(r.polling, func() { r.endPoll(ctx, cancel) })()
	return r.client.Worker.Poll(ctx, r.pollRequest(n, pollWait))
}

// endPoll asks the engine to end the poll whose context is poll. It cancels the poll if there is no
// response within pollMargin.
func (r *workerRun) endPoll(poll context.Context, cancelPoll context.CancelFunc) {
	limit, cancel := context.WithTimeout(poll, pollMargin)
	defer cancel()
	_, err := repeat(limit, r.client.retry, true, func() (*progressorv1.ReleaseResponse, error) {
		return r.client.Worker.Release(limit, &progressorv1.ReleaseRequest{WorkerId: r.options.id, EndPolls: true})
	})
	if err != nil && poll.Err() == nil {
		r.options.logger.Info("ending the poll failed", "worker_id", r.options.id, "error", err)
	}
	<-limit.Done()
	cancelPoll()
}

// start runs leases. Their slots are already taken.
func (r *workerRun) start(leases []*progressorv1.Lease) {
	if len(leases) == 0 {
		return
	}
	received := time.Now()
	all := make([]*heldLease, len(leases))
	for n, l := range leases {
		all[n] = newHeldLease(r, l, received)
	}
	r.mu.Lock()
	stopping := r.drained != nil || r.polling.Err() != nil
	for _, h := range all {
		if !stopping {
			r.held[h.lease.GetLeaseToken()] = h
		}
	}
	r.mu.Unlock()
	if stopping { // the leases arrived after the worker was told to stop
		tokens := make([]string, len(leases))
		for n, l := range leases {
			tokens[n] = l.GetLeaseToken()
		}
		r.release(tokens, 0)
		r.addRoom(len(leases))
		return
	}
	for _, h := range all {
		go r.execute(h)
	}
	signal(r.changed)
}

// applyWorkerDirective applies the engine's directive to the whole worker.
func (r *workerRun) applyWorkerDirective(d progressorv1.WorkerDirective) {
	r.mu.Lock()
	before := r.quiet
	r.quiet = d == progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	changed := before != r.quiet
	r.mu.Unlock()
	switch {
	case d == progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP && r.polling.Err() == nil:
		r.options.logger.Info("worker stops: requested by an operator", "worker_id", r.options.id)
		r.stopPolling()
	case changed && r.polling.Err() == nil:
		text := "worker takes new tasks again"
		if !before {
			text = "worker takes no new tasks: requested by an operator"
		}
		r.options.logger.Info(text, "worker_id", r.options.id)
	}
}

func (r *workerRun) isQuiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quiet
}

// drain waits for the running handlers, at most for the stop grace. Then it cancels the handlers
// that still run, and releases their leases.
func (r *workerRun) drain() {
	r.mu.Lock()
	left := len(r.held)
	r.drained = make(chan struct{})
	if left == 0 {
		close(r.drained)
	}
	r.mu.Unlock()
	if left > 0 {
		r.options.logger.Info(
			"worker stops: waiting for handlers", "worker_id", r.options.id, "running", left,
			"grace", r.options.grace,
		)
	}
	if r.drainedWithin(r.options.grace) {
		return
	}
	r.stopHandlers(ErrWorkerStopped)
	if r.drainedWithin(stopMargin) {
		return
	}
	rest := r.leases()
	for _, h := range rest {
		h.mu.Lock()
		runs := h.answer == nil
		h.mu.Unlock()
		if runs { // the handler ignores its context
			r.options.logger.Warn("handler did not stop; releasing its task anyway", h.logAttrs()...)
		}
	}
	r.releaseAll(rest, 0)
}

// leases returns the leases that are held.
func (r *workerRun) leases() []*heldLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.held))
}

// drainedWithin waits until no lease is held, but at most d. It reports whether no lease is held.
func (r *workerRun) drainedWithin(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-r.drained:
		return true
	case <-over.C:
		return false
	}
}

// release returns leases to the engine unanswered. Other workers can take the tasks after delay.
func (r *workerRun) release(tokens []string, delay time.Duration) {
	ctx, cancel := context.WithTimeout(r.requests, requestTimeout)
	defer cancel()
	_, err := repeat(ctx, r.client.retry, true, func() (*progressorv1.ReleaseResponse, error) {
		req := &progressorv1.ReleaseRequest{WorkerId: r.options.id, LeaseTokens: tokens}
		if delay > 0 {
			req.Delay = durationpb.New(delay)
		}
		return r.client.Worker.Release(ctx, req)
	})
	if err != nil {
		r.options.logger.Warn(
			"releasing tasks failed: their leases will expire", "worker_id", r.options.id, "leases", len(tokens),
			"error", err,
		)
	}
}

// releaseAll ends attempts without an answer. Other workers can take the tasks after delay.
func (r *workerRun) releaseAll(all []*heldLease, delay time.Duration) {
	tokens := make([]string, len(all))
	for n, h := range all {
		tokens[n] = h.lease.GetLeaseToken()
	}
	r.release(tokens, delay)
	for _, h := range all {
		r.remove(h, OutcomeReleased)
	}
	r.addRoom(len(all))
}

// remove removes a lease and calls the callback of WithAttemptEnded. The caller frees the slot.
func (r *workerRun) remove(h *heldLease, outcome Outcome) {
	r.mu.Lock()
	_, there := r.held[h.lease.GetLeaseToken()]
	delete(r.held, h.lease.GetLeaseToken())
	if len(r.held) == 0 && r.drained != nil && there {
		close(r.drained)
	}
	r.mu.Unlock()
	h.cancel(nil)
	if !there {
		return
	}
	a := Attempt{Lease: h.shown(), Outcome: outcome, Duration: time.Since(h.began)}
	if outcome == OutcomeFailed {
		a.Failure = r.decodedFailure(h.answer.GetResponse().GetFailure())
	}
	r.options.ended(a)
}

// decodedFailure decodes a failure that was encoded for the engine. The result is the failure that
// the handler returned.
func (r *workerRun) decodedFailure(f *progressorv1.Failure) *progressorv1.Failure {
	decoded := proto.CloneOf(f)
	if r.client.payloads == nil || r.client.payloads.Decode(r.requests, decoded) != nil {
		return f
	}
	return decoded
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits until d has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stopError is the cause of a handler's context. It matches context.Canceled, so that errors that
// wrap it are recognized too.
type stopError struct{ text string }

func (e *stopError) Error() string { return e.text }

func (*stopError) Is(target error) bool { return target == context.Canceled }

// These errors are causes of a handler's context, in addition to *CancelError and
// context.DeadlineExceeded. They match context.Canceled.
var (
	ErrLeaseLost     error = &stopError{"lease lost: another worker has the task, or it has ended"}
	ErrWorkerStopped error = &stopError{"worker stopped: the task goes to another worker"}
)

// CancelError is the cause of a handler's context whose job was cancelled. It matches
// context.Canceled.
type CancelError struct{ Reason string }

func (e *CancelError) Error() string {
	if e.Reason == "" {
		return "the job was cancelled"
	}
	return "the job was cancelled: " + e.Reason
}

// Is reports whether target is context.Canceled.
func (*CancelError) Is(target error) bool { return target == context.Canceled }

// endedByContext reports whether a handler's error only means that its context has ended.
func endedByContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
