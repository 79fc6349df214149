package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// CheckpointLease stores the events, state and metadata of a lease or of a pushed attempt, before
// its answer. The events follow the event with the ID after (see Engine.CheckpointAttempt). The
// error is process.ErrFenced if the lease was lost.
func (s *Server) CheckpointLease(
	ctx context.Context, token string, after int64, r *progressorv1.Result,
) (yield bool, err error) {
	leave, err := s.engine.EnterPoll(nil)
	if err != nil {
		return false, err
	}
	defer leave()
	t, err := parseLeaseToken("lease_token", token)
	if err != nil {
		return false, err
	}
	c, err := s.checkpointClaim(ctx, t)
	if errors.Is(err, process.ErrFenced) {
		return false, fmt.Errorf("lease of %s: %w", t.Key, err)
	}
	if err != nil {
		return false, err
	}
	s.leased.advance(t) // before the call, because its outcome may be unknown
	return s.engine.CheckpointAttempt(ctx, c, after, r)
}

// checkpointClaim returns the task of a lease or of a pushed attempt, if the caller may store its
// checkpoints.
func (s *Server) checkpointClaim(ctx context.Context, t pull.LeaseToken) (*storage.Claim, error) {
	attempt, pushed := storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken}, false
	if s.leased.get(t) == nil {
		var err error
		if pushed, err = s.engine.IsCheckpointMAC(ctx, attempt, t.Salt); err != nil {
			return nil, err
		}
	}
	if !pushed {
		l, err := s.heldLease(ctx, t)
		if err != nil {
			return nil, err
		}
		return &l.Claim, s.checkAnswer(ctx, "lease_token", l)
	}
	if err := callerOf(ctx).checkJob("lease_token", t.Key.Namespace, ""); err != nil {
		return nil, err
	}
	if c := s.engine.RunningClaim(attempt); c != nil {
		return c, nil
	}
	return pull.ReadAttempt(ctx, s.store, attempt)
}
