package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// notRetried is the error text for jobs that Retry does not accept.
const notRetried = "only a job that has FAILED, was CANCELLED or waits for its next attempt (RETRYABLE) " +
	"can be retried; to run a SCHEDULED job now, set its run_time (UpdateJob)"

// EndBackoff lets a job that waits for its next attempt run now. It reports whether the job was
// waiting. by is the caller.
func EndBackoff(ctx context.Context, s *storage.Store, key process.Key, by ...process.Actor) (now bool, err error) {
	actor := ""
	if len(by) > 0 {
		actor = by[0].Name
	}
	err = s.RunLocked(ctx, "end backoff", []process.Key{key}, func(ctx context.Context, db storage.DB) error {
		now, err = endBackoff(ctx, s, db, key, actor)
		return err
	})
	return now, err
}

// endBackoff is EndBackoff in a transaction that has locked the job.
func endBackoff(ctx context.Context, s *storage.Store, db storage.DB, key process.Key, actor string) (bool, error) {
	n, err := dbsqlc.New().EndBackoff(ctx, db, dbsqlc.EndBackoffParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, Actor: actor, Mode: s.EventModeOf(key.Namespace),
	})
	return n > 0, err
}
