package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Change changes options of a job that has not ended. update is called while the job is locked, so
// that no concurrent change is lost. It gets the job and returns the update to store. Errors of
// update are returned unchanged. The error is process.ErrJobNotFound if the job does not exist, and
// a *process.WrongStatusError if the job has ended, or if it runs and the update changes args or
// run_time. A job of several workers counts as running as soon as its slots wait for workers.
func Change(ctx context.Context, s *storage.Store, key process.Key, update func(*Row) (*Update, error)) error {
	var refused error
	err := s.RunLocked(ctx, "update job", []process.Key{key}, func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().GetJobs(ctx, db, dbsqlc.GetJobsParams{
			Ords: []int32{0}, Namespaces: []string{key.Namespace}, ProcessIds: []string{key.ProcessID},
		})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			refused = process.ErrJobNotFound
			return refused
		}
		u, err := update(&rows[0])
		if err != nil {
			refused = err
			return refused
		}
		return u.write(ctx, db, key, s.EventModeOf(key.Namespace))
	})
	return cmp.Or(refused, err)
}

// write stores an update. The caller has locked the job.
func (u *Update) write(ctx context.Context, db storage.DB, key process.Key, mode int32) error {
	a := dbsqlc.UpdateJobParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, TimeoutUs: u.Timeout.Microseconds(), Tags: string(u.Tags),
		Options: string(u.Options), Actor: u.Actor, Fields: u.Fields, Mode: mode,
	}
	if u.Metadata != nil {
		a.SetsMetadata, a.Metadata = true, string(*u.Metadata)
	}
	if u.Priority != nil {
		a.SetsPriority, a.Priority = true, *u.Priority
	}
	if u.RunTime != nil {
		a.SetsRunTime, a.RunTime = true, *u.RunTime
	}
	if u.Args != nil {
		a.SetsArgs, a.Args = true, *u.Args
	}
	if u.Lease > 0 {
		if err := dbsqlc.New().UpdateLeases(ctx, db, dbsqlc.UpdateLeasesParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID, LeaseUs: u.Lease.Microseconds(),
		}); err != nil {
			return err
		}
	}
	row, err := dbsqlc.New().UpdateJob(ctx, db, a)
	if errors.Is(err, pgx.ErrNoRows) {
		return process.ErrJobNotFound
	}
	if err != nil {
		return err
	}
	switch {
	case !row.Open:
		return &process.WrongStatusError{Key: key, Status: row.Status, Reason: "the job has ended"}
	case !row.Changed:
		return &process.WrongStatusError{Key: key, Status: row.Status,
			Reason: "args and run_time cannot change while the job runs or, " +
				"if it is for several workers, while its places wait for workers: leave them out of update_mask, or " +
				"set them when the job waits again"}
	}
	// The job may have waited for a slot, and may now have to wait for its run time.
	return dbsqlc.New().FreeEnded(ctx, db, dbsqlc.FreeEndedParams{
		Namespaces: []string{key.Namespace}, ProcessIds: []string{key.ProcessID},
	})
}

// Retry runs a job that has ended without success again, unless another job holds its unique key.
// If clearSuccesses is true, Retry also runs a job that has succeeded, and the workers of a group
// that have succeeded run again. If the job waits for its next attempt, the attempt begins now. by
// is the operator. The error is process.ErrJobNotFound if the job does not exist, and a
// *process.WrongStatusError if the job cannot be retried or another job holds the key.
func Retry(
	ctx context.Context, s *storage.Store, key process.Key, unique Unique, clearSuccesses bool, by ...process.Actor,
) error {
	actor := ""
	if len(by) > 0 {
		actor = by[0].Name
	}
	return s.RunLocked(ctx, "retry job", []process.Key{key}, func(ctx context.Context, db storage.DB) error {
		if err := lockKey(ctx, db, key.Namespace, unique.Key); err != nil {
			return err
		}
		r, err := dbsqlc.New().RetryJob(ctx, db, dbsqlc.RetryJobParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID, ClearSuccesses: clearSuccesses, Actor: actor,
			Mode:      s.EventModeOf(key.Namespace),
			UniqueKey: unique.Key, UniqueTtlUs: unique.TTL.Microseconds(), UniqueWaiting: unique.Waiting,
		})
		if err != nil {
			return err
		}
		switch r.Outcome {
		case "not_found":
			return process.ErrJobNotFound
		case "status":
			if now, err := endBackoff(ctx, s, db, key, actor); err != nil || now {
				return err
			}
			return &process.WrongStatusError{Key: key, Status: r.Status, Reason: notRetried}
		case "held":
			return &process.WrongStatusError{
				Key: key, Status: r.Status,
				Reason: fmt.Sprintf("job %q holds its unique key: retry this job after that job has ended and its "+
					"TTL is over", r.Holder),
			}
		}
		return nil
	})
}

// lockKey locks a unique key as Enqueue does, so that the transaction that locks it first takes
// precedence.
func lockKey(ctx context.Context, db storage.DB, namespace, unique string) error {
	if unique == "" {
		return nil
	}
	a := dbsqlc.EnsureJobKeysParams{Namespaces: []string{namespace}, UniqueKeys: []string{unique}}
	if err := dbsqlc.New().EnsureJobKeys(ctx, db, a); err != nil {
		return err
	}
	return dbsqlc.New().LockJobKeys(ctx, db, dbsqlc.LockJobKeysParams(a))
}
