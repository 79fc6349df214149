package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CheckpointLease stores the events, state and metadata of a lease, before its answer. The events
// follow the event with the ID after (see Engine.CheckpointLease). The error is process.ErrFenced
// if the lease was lost.
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
	l, err := s.heldLease(ctx, t)
	if errors.Is(err, process.ErrFenced) {
		return false, fmt.Errorf("lease of %s: %w", t.Key, err)
	}
	if err != nil {
		return false, err
	}
	if err := s.checkAnswer(ctx, "lease_token", l); err != nil {
		return false, err
	}
	s.leased.advance(t) // before the call, because its outcome may be unknown
	return s.engine.CheckpointLease(ctx, l, after, r)
}
