package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ExtendAttempt sets the timeout of a running attempt, counted from its beginning, in place of the
// step timeout of its namespace. It returns process.ErrFenced if the attempt has ended.
func (s *Store) ExtendAttempt(ctx context.Context, c *Claim, timeout time.Duration) error {
	n, err := s.q.ExtendAttempt(ctx, s.general, dbsqlc.ExtendAttemptParams{
		Namespace: c.Namespace, ProcessID: c.ProcessID, FencingToken: c.FencingToken, TimeoutUs: timeout.Microseconds(),
	})
	if err == nil && n == 0 {
		return process.ErrFenced
	}
	return mapped("extend attempt of "+process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}.String(), err)
}
