package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Change gives a job that is not at its end other options. process.ErrJobNotFound: there is no such job; a *process.WrongStatusError: it is at
// its end, or runs and was to have another run_time.
func Change(ctx context.Context, s *storage.Store, u Update) error {
	a := dbsqlc.UpdateJobParams{
		Namespace: u.Key.Namespace, ProcessID: u.Key.ProcessID, TimeoutUs: u.Timeout.Microseconds(), Tags: string(u.Tags), Options: string(u.Options),
		Actor: u.Actor, Fields: u.Fields, Mode: s.EventModeOf(u.Key.Namespace),
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
	return s.Locked(ctx, "update job", []process.Key{u.Key}, func(ctx context.Context, db storage.DB) error {
		if u.Lease > 0 {
			if err := dbsqlc.New().UpdateLeases(ctx, db, dbsqlc.UpdateLeasesParams{
				Namespace: u.Key.Namespace, ProcessID: u.Key.ProcessID, LeaseUs: u.Lease.Microseconds(),
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
			return &process.WrongStatusError{Key: u.Key, Status: row.Status, Reason: "the job is at its end"}
		case !row.Changed:
			return &process.WrongStatusError{Key: u.Key, Status: row.Status, Reason: "run_time changes only while a job waits, and this one runs: leave it out of update_mask, or give it when the job waits again"}
		}
		// One that waited for a place may wait for its time now.
		return dbsqlc.New().FreeEnded(ctx, db, dbsqlc.FreeEndedParams{Namespaces: []string{u.Key.Namespace}, ProcessIds: []string{u.Key.ProcessID}})
	})
}

// Retry lets a job that is at its end run again, if no other job holds its unique key meanwhile. by: who asked.
func Retry(ctx context.Context, s *storage.Store, key process.Key, unique storage.Unique, clearSuccesses bool, by ...process.Actor) error {
	actor := ""
	if len(by) > 0 {
		actor = by[0].Name
	}
	return s.Locked(ctx, "retry job", []process.Key{key}, func(ctx context.Context, db storage.DB) error {
		if err := lockKey(ctx, db, key.Namespace, unique.Key); err != nil {
			return err
		}
		r, err := dbsqlc.New().RetryJob(ctx, db, dbsqlc.RetryJobParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID, ClearSuccesses: clearSuccesses, Actor: actor, Mode: s.EventModeOf(key.Namespace),
			UniqueKey: unique.Key, UniqueTtlUs: unique.TTL.Microseconds(), UniqueWaiting: unique.Waiting,
		})
		if err != nil {
			return err
		}
		switch r.Outcome {
		case "not_found":
			return process.ErrJobNotFound
		case "status":
			return &process.WrongStatusError{Key: key, Status: r.Status, Reason: "only a job that has FAILED or was CANCELLED can be retried"}
		case "held":
			return &process.WrongStatusError{Key: key, Status: r.Status, Reason: fmt.Sprintf("job %q holds its unique key: retry this one when that one is at its end, and its ttl over", r.Holder)}
		}
		return nil
	})
}

// lockKey holds a unique key, as an Enqueue with it does: of both that one comes first which is first here.
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
