package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Lease is a task that a worker holds.
type Lease struct {
	Claim     Claim
	WorkerID  string
	Salt      []byte
	Duration  time.Duration // time until it expires without a heartbeat
	Heartbeat time.Duration
	Timeout   time.Duration // timeout of the attempt
	Progress  []byte        // JSON of earlier attempts of a job, set only by Poll; nil if there is none
}

// ReleaseTimers moves due tasks of these namespaces to the wait queue of the workers. It returns
// their number by namespace.
func (s *Store) ReleaseTimers(ctx context.Context, namespaces []string) (map[string]int, error) {
	rows, err := s.q.ReleaseTimers(ctx, s.hot, dbsqlc.ReleaseTimersParams{
		Namespaces: namespaces, Modes: s.EventModes(namespaces), Lim: maxFlushItems,
	})
	released := map[string]int{}
	for _, namespace := range rows {
		released[namespace]++
	}
	return released, mapped("release timers", err)
}

// ForgetLeases deletes leases that remained when their attempts ended in another way.
func (s *Store) ForgetLeases(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetLeases(ctx, s.kept)
	return n >= 1000, mapped("delete old leases", err)
}

// Answered is the stored result of an ended attempt.
type Answered = dbsqlc.LeaseAnsweredRow
