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
	Progress  []byte        // JSON that an earlier attempt of the job reported, or nil; only set by Poll
	// WorkerToken is the fencing token that the worker got, if the SQL function complete has
	// replaced it since. Otherwise it is 0.
	WorkerToken int64
}

// ReleaseTimers moves due tasks of these namespaces to the wait queue of the workers. It returns
// the number of moved tasks by namespace.
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

// ForgetLeases deletes leases that remained because their attempts ended without an answer of the
// worker. more is true if there may be more.
func (s *Store) ForgetLeases(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetLeases(ctx, s.kept)
	return n >= 1000, mapped("delete old leases", err)
}

// Answered is the stored result of an ended attempt.
type Answered = dbsqlc.LeaseAnsweredRow
