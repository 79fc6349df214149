package pull

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// CompleteLease stores the answer of a worker. It returns process.ErrFenced if the lease was lost,
// unless the same answer is already stored.
func (s *Server) CompleteLease(ctx context.Context, token string, a engine.LeaseAnswer) error {
	leave, err := s.engine.EnterPoll(nil)
	if err != nil {
		return err
	}
	defer leave()
	t, err := parseLeaseToken("lease_token", token)
	if err != nil {
		return err
	}
	l, err := s.answeredLease(ctx, t, a)
	if errors.Is(err, process.ErrFenced) {
		return s.answeredBefore(ctx, t, a)
	}
	if err != nil {
		return err
	}
	if err := s.checkAnswer(ctx, "lease_token", l); err != nil {
		return err
	}
	if last := l.Claim.LastEventID; a.LastEventID != 0 && a.LastEventID != last {
		return &process.InvalidError{Field: "last_event_id", Message: fmt.Sprintf(
			"must be %d, the last event of the process (got %d)", last, a.LastEventID)}
	}
	err = s.engine.EndLease(ctx, l, a)
	s.leased.drop(t)
	if errors.Is(err, process.ErrFenced) {
		return s.answeredBefore(ctx, t, a)
	}
	return err
}

// answeredLease returns the lease of an answer, with the last event of its process. If the attempt
// has stored checkpoints, on any node, a cached lease does not have their events, so answeredLease
// reads the lease from the database.
func (s *Server) answeredLease(ctx context.Context, t pull.LeaseToken, a engine.LeaseAnswer) (*storage.Lease, error) {
	if l := s.leased.current(t); l != nil && a.LastEventID == 0 {
		return l, nil
	}
	l, err := pull.ReadLease(ctx, s.store, t)
	return &l, err
}

// answeredBefore handles an answer to a lease that was lost. It returns nil if the same answer is
// already stored, because the worker has sent it twice. It returns process.ErrFenced if the attempt
// has ended in another way, or if the caller may not take the task.
func (s *Server) answeredBefore(ctx context.Context, t pull.LeaseToken, a engine.LeaseAnswer) error {
	stored, err := pull.LeaseAnswered(ctx, s.store, t)
	if err == nil && callerOf(ctx).checkJob("", t.Key.Namespace, stored.KindName) != nil {
		err = process.ErrFenced // the salt is not checked, so the error must not name the job
	}
	if err == nil && !s.engine.IsStored(a, storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken}, &stored) {
		err = process.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("lease of %s: %w", t.Key, err)
	}
	return nil
}

// LeaseEnd is an answer with the token of its lease.
type LeaseEnd struct {
	Token  string
	Answer engine.LeaseAnswer
}

// maxEndsAtOnce is the number of answers of a batch that are stored concurrently. It is enough to
// fill every lane.
const maxEndsAtOnce = 256

// CompleteLeases calls CompleteLease for each answer, concurrently so that they share flushes. It
// returns one error per answer.
func (s *Server) CompleteLeases(ctx context.Context, ends []LeaseEnd) []error {
	failed := make([]error, len(ends))
	room := make(chan struct{}, maxEndsAtOnce)
	var stored sync.WaitGroup
	for n, end := range ends {
		room <- struct{}{}
		stored.Add(1)
		s.runners.Go(func() {
			defer func() { <-room; stored.Done() }()
			failed[n] = s.CompleteLease(ctx, end.Token, end.Answer)
		})
	}
	stored.Wait()
	return failed
}
