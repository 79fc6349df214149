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
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// shift is one Run of a worker: the leases that it holds, and the loops that take tasks, answer them and beat.
type shift struct {
	*Worker
	taking     context.Context // ends when nothing new is to be taken
	stopTaking context.CancelFunc
	doing      context.Context // of handlers
	stopDoing  context.CancelCauseFunc
	speaking   context.Context // of requests that tell the engine something: it ends last
	hush       context.CancelFunc

	answers chan *held
	sending chan struct{} // a place for each request with answers
	changed chan struct{} // something that the heart has to look at
	room    chan struct{} // something that who takes tasks has to look at

	mu     sync.Mutex
	held   map[string]*held // by their tokens
	free   int              // how many more may run
	quiet  bool             // told to take nothing new, until told otherwise
	hungry bool             // the last look found as many tasks as were asked for: there are more
	empty  chan struct{}    // closed once nothing is held any more, after the end of taking
}

// sendersAtOnce is how many requests with answers are under way: while they are, the next answers gather.
const sendersAtOnce = 4

func newShift(ctx context.Context, w *Worker) *shift {
	s := &shift{
		Worker: w, answers: make(chan *held, w.options.concurrency), sending: make(chan struct{}, sendersAtOnce),
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1), held: map[string]*held{}, free: w.options.concurrency,
	}
	s.taking, s.stopTaking = context.WithCancel(ctx)
	s.speaking, s.hush = context.WithCancel(context.WithoutCancel(ctx))
	s.doing, s.stopDoing = context.WithCancelCause(s.speaking)
	return s
}

// work is the shift from its first poll to its end.
func (s *shift) work() error {
	defer s.stopTaking()
	var loops sync.WaitGroup
	loops.Go(s.beat)
	loops.Go(s.send)
	s.options.logger.Info("worker takes tasks", "worker_id", s.options.id, "namespaces", s.namespaces, "concurrency", s.options.concurrency)
	err := s.take()
	s.stopTaking()
	s.finish()
	s.hush()
	loops.Wait()
	s.options.logger.Info("worker has ended", "worker_id", s.options.id)
	return err
}

// take polls for tasks while there is room.
func (s *shift) take() error {
	accepted := false
	for failures := 0; ; {
		n := s.awaitRoom()
		if n == 0 {
			return nil
		}
		resp, err := s.poll(n)
		if err == nil {
			if failures > 0 {
				s.options.logger.Info("the engine answers again", "worker_id", s.options.id)
			}
			accepted, failures = true, 0
			s.give(n - len(resp.GetLeases()))
			s.told(resp.GetWorker())
			s.setHungry(len(resp.GetLeases()) == n)
			s.begin(resp.GetLeases())
			if s.isQuiet() { // it gets nothing, and asks whether that still holds
				pause(s.taking, quietPause)
			}
			continue
		}
		s.give(n)
		switch {
		case s.taking.Err() != nil:
			return nil //nolint:nilerr // it was told to stop
		case !accepted && hopeless(err):
			return err
		case failures == 0:
			s.options.logger.Warn("the engine is not reached; trying again", "worker_id", s.options.id, "error", err)
		}
		failures++
		pause(s.taking, pollRetry.interval(failures, rand.Float64()))
	}
}

// pollRetry says how fast a worker asks an engine again that is away.
var pollRetry = Retry{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// quietPause is the time between two polls of a worker that was told to take nothing new.
const quietPause = time.Second

// hopeless tells of an error that the first poll has met and any other would meet: a mistake of who has set the worker up.
func hopeless(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	default:
		return false
	}
}

// awaitRoom waits until a task may be taken, and takes the room for as many as there is; 0: nothing is to be taken any more.
func (s *shift) awaitRoom() int {
	for {
		s.mu.Lock()
		n := min(s.free, maxAsked)
		if s.taking.Err() != nil {
			n = 0
		}
		if n > 0 {
			s.free -= n
			s.mu.Unlock()
			return n
		}
		s.mu.Unlock()
		select {
		case <-s.taking.Done():
			return 0
		case <-s.room:
		}
	}
}

// give gives room back.
func (s *shift) give(n int) {
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	signal(s.room)
}

func (s *shift) setHungry(hungry bool) {
	s.mu.Lock()
	s.hungry = hungry
	s.mu.Unlock()
}

func (s *shift) pollRequest(n int, wait time.Duration) *progressorv1.PollRequest {
	r := &progressorv1.PollRequest{
		Namespaces: s.namespaces, WorkerId: s.options.id, JobNames: s.names(), MaxLeases: int32(n), //nolint:gosec // at most maxAsked
	}
	r.JobsOnly = s.rest == nil
	if wait > 0 {
		r.Wait = durationpb.New(wait)
	}
	if s.options.lease > 0 {
		r.LeaseDuration = durationpb.New(s.options.lease)
	}
	return r
}

func (s *shift) poll(n int) (*progressorv1.PollResponse, error) {
	ctx, cancel := context.WithTimeout(s.taking, pollWait+requestTimeout)
	defer cancel()
	return s.client.Worker.Poll(ctx, s.pollRequest(n, pollWait))
}

// begin runs leases; their room was taken.
func (s *shift) begin(leases []*progressorv1.Lease) {
	if len(leases) == 0 {
		return
	}
	received := time.Now()
	all := make([]*held, len(leases))
	for n, l := range leases {
		all[n] = newHeld(s, l, received)
	}
	s.mu.Lock()
	stopping := s.empty != nil || s.taking.Err() != nil
	for _, h := range all {
		if !stopping {
			s.held[h.lease.GetLeaseToken()] = h
		}
	}
	s.mu.Unlock()
	if stopping { // they came while the worker was told to stop
		tokens := make([]string, len(leases))
		for n, l := range leases {
			tokens[n] = l.GetLeaseToken()
		}
		s.release(tokens)
		s.give(len(leases))
		return
	}
	for _, h := range all {
		go s.run(h)
	}
	signal(s.changed)
}

// told does what the engine says to the whole worker.
func (s *shift) told(d progressorv1.WorkerDirective) {
	s.mu.Lock()
	before := s.quiet
	s.quiet = d == progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	changed := before != s.quiet
	s.mu.Unlock()
	switch {
	case d == progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP && s.taking.Err() == nil:
		s.options.logger.Info("worker was told to stop", "worker_id", s.options.id)
		s.stopTaking()
	case changed && s.taking.Err() == nil:
		s.options.logger.Info(map[bool]string{true: "worker was told to take nothing new", false: "worker was told to go on"}[!before], "worker_id", s.options.id)
	}
}

func (s *shift) isQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet
}

// finish lets what runs end within the grace, and gives the rest back.
func (s *shift) finish() {
	s.mu.Lock()
	left := len(s.held)
	s.empty = make(chan struct{})
	if left == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	if left > 0 {
		s.options.logger.Info("worker stops", "worker_id", s.options.id, "running", left, "grace", s.options.grace)
	}
	if s.emptyWithin(s.options.grace) {
		return
	}
	s.stopDoing(ErrWorkerStopped)
	if s.emptyWithin(stopMargin) {
		return
	}
	rest := s.all()
	for _, h := range rest {
		h.mu.Lock()
		runs := h.answer == nil
		h.mu.Unlock()
		if runs { // it does not look at its context
			s.options.logger.Warn("a handler does not stop; its task is given back all the same", h.names()...)
		}
	}
	s.giveBack(rest)
}

// all are the leases that are held.
func (s *shift) all() []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.held))
}

func (s *shift) emptyWithin(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-s.empty:
		return true
	case <-over.C:
		return false
	}
}

// release gives leases back.
func (s *shift) release(tokens []string) {
	ctx, cancel := context.WithTimeout(s.speaking, requestTimeout)
	defer cancel()
	_, err := repeat(ctx, s.client.retry, true, func() (*progressorv1.ReleaseResponse, error) {
		return s.client.Worker.Release(ctx, &progressorv1.ReleaseRequest{WorkerId: s.options.id, LeaseTokens: tokens})
	})
	if err != nil {
		s.options.logger.Warn("tasks not given back: their leases run out", "worker_id", s.options.id, "leases", len(tokens), "error", err)
	}
}

// giveBack ends attempts unanswered.
func (s *shift) giveBack(all []*held) {
	tokens := make([]string, len(all))
	for n, h := range all {
		tokens[n] = h.lease.GetLeaseToken()
	}
	s.release(tokens)
	for _, h := range all {
		s.over(h, OutcomeReleased)
	}
	s.give(len(all))
}

// over takes an attempt off the list; its room is given back by the caller.
func (s *shift) over(h *held, outcome Outcome) {
	s.mu.Lock()
	_, there := s.held[h.lease.GetLeaseToken()]
	delete(s.held, h.lease.GetLeaseToken())
	if len(s.held) == 0 && s.empty != nil && there {
		close(s.empty)
	}
	s.mu.Unlock()
	h.cancel(nil)
	if !there {
		return
	}
	a := Attempt{Lease: h.lease, Outcome: outcome, Duration: time.Since(h.began)}
	if outcome == OutcomeFailed {
		a.Failure = h.answer.GetResponse().GetFailure()
	}
	s.options.ended(a)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stopError is why the context of a handler has ended. It counts as context.Canceled, so that what wraps that is known too.
type stopError struct{ text string }

func (e *stopError) Error() string { return e.text }

func (*stopError) Is(target error) bool { return target == context.Canceled }

// The causes of the end of a handler's context, beside *CancelError and context.DeadlineExceeded.
var (
	ErrLeaseLost     error = &stopError{"the lease was lost: somebody else has the task, or it is at its end"}
	ErrWorkerStopped error = &stopError{"the worker stops: the task goes to another one"}
)

// CancelError is the cause of the end of a handler's context where its job was cancelled.
type CancelError struct{ Reason string }

func (e *CancelError) Error() string {
	if e.Reason == "" {
		return "the job was cancelled"
	}
	return "the job was cancelled: " + e.Reason
}

// Is makes it count as context.Canceled.
func (*CancelError) Is(target error) bool { return target == context.Canceled }

// stopped tells whether an error of a handler says no more than that its context has ended.
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
