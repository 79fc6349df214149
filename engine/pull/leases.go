package pull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

// PollParams is a request of a worker for tasks.
type PollParams struct {
	Namespaces []string
	WorkerID   string
	JobNames   []string // only jobs with these names; empty means all tasks
	JobsOnly   bool     // no tasks of processes that are not jobs
	Max        int
	Wait       time.Duration
	Lease      time.Duration // 0 means the lease duration of the namespace
	// ContinuesParked is true if the worker can continue processes that it has in memory.
	ContinuesParked bool
}

// Poll leases tasks to a worker. If there are none, it waits until there are, or until Wait has
// passed. If a worker has the directive to take no new tasks, Poll returns no tasks after a short
// pause. The pause limits the rate of such polls, because the worker may poll again immediately.
func (s *Server) Poll(ctx context.Context, p PollParams) ([]*progressorv1.Lease, error) {
	leave, err := s.engine.EnterPoll(p.Namespaces)
	if err != nil {
		return nil, err
	}
	defer leave()
	poll := s.pulls.begin(ctx, p.WorkerID)
	defer s.pulls.finish(poll)
	over := time.NewTimer(p.Wait)
	defer over.Stop()
	offers := 0 // how often the poll was woken
	for first := true; !poll.isEnded(); first = false {
		known := s.pulls.changeCount()
		subscriptions, err := s.subscriptions(ctx, p)
		if err != nil {
			return nil, err
		}
		if err := s.workers.own(ctx, ofWorkerID, seenIn(p.WorkerID, p.Namespaces)...); err != nil {
			return nil, err
		}
		order, err := s.workers.command(ctx, p.WorkerID)
		if err != nil {
			return nil, err
		}
		if order != pull.WorkerContinue {
			if first && p.Wait > 0 {
				s.rest(ctx, poll, min(p.Wait, workersRest))
			}
			return nil, nil
		}
		wait := s.pulls.join(&p, subscriptions)
		if s.workers.lastCommand(ctx, p.WorkerID) != pull.WorkerContinue || s.pulls.changeCount() != known {
			// A command, or the change of a namespace, arrived before the poll could be woken.
			s.pulls.leave(wait)
			continue
		}
		leases, err := s.lease(ctx, poll, p, subscriptions, offers)
		if err != nil || len(leases) > 0 || p.Wait <= 0 {
			s.pulls.leave(wait)
			return leases, err
		}
		select {
		case <-wait.woken:
			offers++
			continue
		case <-over.C:
		case <-poll.ended:
		case <-ctx.Done():
		case <-s.engine.Drained():
		}
		s.pulls.leave(wait)
		return nil, nil
	}
	return nil, nil
}

// ofWorkerID returns the field name for errors of a request with one worker ID.
func ofWorkerID(int) string { return "worker_id" }

// seenIn returns the keys of a worker that was seen in these namespaces.
func seenIn(workerID string, namespaces []string) []pull.WorkerKey {
	seen := make([]pull.WorkerKey, len(namespaces))
	for n, namespace := range namespaces {
		seen[n] = pull.WorkerKey{Namespace: namespace, WorkerID: workerID}
	}
	return seen
}

// rest waits until d has passed, the poll or ctx has ended, or the node drains.
func (s *Server) rest(ctx context.Context, poll *activePoll, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-poll.ended:
	case <-ctx.Done():
	case <-s.engine.Drained():
	}
}

// subscriptions returns what a poll can take now. It skips paused namespaces and job names, and
// jobs that the caller may not take.
func (s *Server) subscriptions(ctx context.Context, p PollParams) ([]pull.Subscription, error) {
	var subscriptions []pull.Subscription
	caller := callerOf(ctx)
	for n, name := range p.Namespaces {
		names, jobsOnly, err := caller.polls(&p, name)
		if err != nil {
			return nil, err
		}
		ns, err := s.engine.NamespaceState(ctx, name)
		if errors.Is(err, process.ErrNamespaceNotFound) || errors.Is(err, process.ErrNamespaceDeleting) {
			return nil, &process.ItemError{
				Field: fmt.Sprintf("namespaces[%d]", n), Key: process.Key{Namespace: name}, Err: err,
			}
		}
		if err != nil {
			return nil, err
		}
		if ns.Lease == 0 {
			return nil, &process.InvalidError{Field: fmt.Sprintf("namespaces[%d]", n),
				Message: fmt.Sprintf("namespace %q calls its processor: "+
					"workers get tasks only if the processor is pull", name)}
		}
		if ns.Paused {
			continue
		}
		lease := p.Lease
		if lease <= 0 {
			lease = ns.Lease
		}
		for _, job := range names {
			if s.engine.IsNamePaused(name, job) {
				continue
			}
			pauses := job == "" && len(s.engine.PausedNames(name)) > 0
			subscriptions = append(subscriptions, pull.Subscription{
				Namespace: name, JobName: job, JobsOnly: jobsOnly, Pauses: pauses,
				StepTimeout: ns.StepTimeout, Lease: lease, MaxLease: process.MaxLease,
			})
		}
	}
	return subscriptions, nil
}

// lease tries once to claim tasks for a worker. The poll was woken offers times.
func (s *Server) lease(
	ctx context.Context, poll *activePoll, p PollParams, subscriptions []pull.Subscription, offers int,
) ([]*progressorv1.Lease, error) {
	if len(subscriptions) == 0 || p.Max <= 0 || !s.engine.CanHandOut(subscriptions[0].Namespace) {
		return nil, nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	held, err := s.polled(limit, p, subscriptions, offers)
	if err != nil {
		return nil, err
	}
	leases := make([]*progressorv1.Lease, 0, len(held))
	histories := 0
	for n := range held {
		// The worker has disconnected or is stopping, the kind does not admit the job, or the
		// histories fill the response.
		gone := ctx.Err() != nil || poll.isEnded()
		if gone || histories > maxHistoriesBytes || !s.engine.Admits(&held[n].Claim) {
			s.engine.ReleaseLease(&held[n], 0)
			continue
		}
		lease, history, err := s.handOut(&held[n], p.ContinuesParked)
		histories += history
		if err != nil {
			s.engine.RefuseLease(&held[n], err)
			continue
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// maxHistoriesBytes limits the total size of the events of all leases in a response. The statement
// that leases the tasks limits the size of the tasks without these events (see
// process.MaxPollBytes).
const maxHistoriesBytes = process.MaxHistoryBytes

// pollsAtOnce is the number of polls that use the database at a time. Each poll skips the rows that
// others have locked. With eight polls of 100 jobs each, skipping took a third of the time of a
// claim.
const pollsAtOnce = 2

// polled claims tasks when it is the turn of this poll.
func (s *Server) polled(
	ctx context.Context, p PollParams, subscriptions []pull.Subscription, offers int,
) ([]storage.Lease, error) {
	select {
	case s.polling <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("poll of %s: %w", p.WorkerID, ctx.Err())
	}
	defer func() { <-s.polling }()
	grouped := s.pulls.grouped(subscriptions)
	leases, err := pull.Poll(ctx, s.store, p.WorkerID, subscriptions, p.Max, grouped)
	if err != nil || len(leases) > 0 || offers == 0 {
		return leases, err
	}
	first, ok := lockable(subscriptions, offers)
	if !ok {
		return nil, nil
	}
	wait := min(minLockWait*time.Duration(offers), maxLockWait)
	return pull.PollLocked(ctx, s.store, p.WorkerID, subscriptions, p.Max, grouped, first, wait)
}

// A poll may find none of the tasks that it was offered. Either the poll was late, or it skipped a
// process with so many requests that a flush nearly always locks the process. Such a poll waits for
// the lock of the first process. It waits for minLockWait after the first offer, and longer after
// each further one. It waits for at most maxLockWait, because it keeps another poll from the
// database.
const (
	minLockWait = 20 * time.Millisecond
	maxLockWait = 100 * time.Millisecond
)

// lockable returns the subscription whose first process a poll locks. The subscriptions that
// include tasks of processes take turns. The others are skipped, because jobs are rarely locked.
func lockable(subscriptions []pull.Subscription, offers int) (first storage.FirstCall, ok bool) {
	var of []storage.FirstCall
	for _, l := range subscriptions {
		if l.JobName == "" && !l.JobsOnly {
			of = append(of, storage.FirstCall{Namespace: l.Namespace, SkipPaused: l.Pauses, OnlyPolled: true})
		}
	}
	if len(of) == 0 {
		return storage.FirstCall{}, false
	}
	return of[offers%len(of)], true
}

// handOut returns the message of a lease and caches the lease. The message omits the history if the
// worker can continue the process in memory. handOut also returns the size of the events in the
// message, in bytes.
func (s *Server) handOut(l *storage.Lease, continuesParked bool) (lease *progressorv1.Lease, history int, err error) {
	c := &l.Claim
	h, err := s.engine.HandOut(l, continuesParked)
	if err != nil {
		return nil, 0, err
	}
	job, err := wire.LeasedJob(l)
	if err != nil {
		return nil, 0, err
	}
	s.store.RecordNumbers(c.TaskID, c.FencingToken)
	s.leased.put(l, h.Trace)
	return &progressorv1.Lease{
		LeaseToken: leaseToken(l), Namespace: c.Namespace, Request: h.Request, Job: job,
		ExpiresTime:       timestamppb.New(c.RunningTime.Add(min(l.Duration, 2*l.Heartbeat))),
		HeartbeatInterval: durationpb.New(l.Heartbeat), LeasedTime: timestamppb.New(c.RunningTime),
		Traceparent: h.Traceparent, Tracestate: h.Tracestate, MayCheckpoint: engine.MayCheckpoint(c),
	}, h.HistoryBytes, nil
}
