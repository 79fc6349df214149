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
// can take the tasks after a delay, at most process.MaxRetryAfter. If a token is malformed, or if
// the caller may not work on one of the tasks, it releases none.
func (s *Server) ReleaseLeases(ctx context.Context, tokens []string, delay time.Duration) error {
	delay = min(max(delay, 0), process.MaxRetryAfter)
	parsed := make([]pull.LeaseToken, len(tokens))
	field := func(n int) string { return fmt.Sprintf("lease_tokens[%d]", n) }
	for n, token := range tokens {
		var err error
		if parsed[n], err = parseLeaseToken(field(n), token); err != nil {
			return err
		}
	}
	if err := s.checkLeases(ctx, field, parsed); err != nil {
		return err
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
