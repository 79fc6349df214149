package pull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// ReleaseLeases releases leases without an answer. It skips leases that were lost. Other workers
// can take the tasks after a delay, at most process.MaxRetryAfter.
func (s *Server) ReleaseLeases(ctx context.Context, tokens []string, delay time.Duration) error {
	delay = min(max(delay, 0), process.MaxRetryAfter)
	for n, token := range tokens {
		t, err := parseLeaseToken(fmt.Sprintf("lease_tokens[%d]", n), token)
		if err != nil {
			return err
		}
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
