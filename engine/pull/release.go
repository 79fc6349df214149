package pull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/pull"
)

// ReleaseLeases releases leases without an answer. It skips leases that were lost. Other workers
// can take the tasks after a delay, at most process.MaxRetryAfter. It releases none if a token is
// malformed, or if the caller may not work on one of the tasks.
func (s *Server) ReleaseLeases(ctx context.Context, tokens []string, delay time.Duration) error {
	delay = min(max(delay, 0), process.MaxRetryAfter)
	parsed := make([]pull.LeaseToken, len(tokens))
	for n, token := range tokens {
		field := fmt.Sprintf("lease_tokens[%d]", n)
		t, err := parseLeaseToken(field, token)
		if err != nil {
			return err
		}
		if err := s.checkLease(ctx, field, t); err != nil {
			return err
		}
		parsed[n] = t
	}
	for _, t := range parsed {
		l, err := s.heldLease(ctx, t)
		if errors.Is(err, process.ErrFenced) {
			continue
		}
		if err != nil {
			return err
		}
		s.engine.ReleaseLease(l, delay)
		s.leased.drop(t)
	}
	return nil
}
