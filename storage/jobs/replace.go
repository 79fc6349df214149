package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// replaceTries is the maximum number of tries of EnqueueReplacing. It tries again if another job
// takes the unique key.
const replaceTries = 20

// errHolderChanged means that another job has taken the unique key since its holder was read.
var errHolderChanged = errors.New("another job has the unique key now")

// EnqueueReplacing enqueues a job. If a waiting job has its unique key, that job gets the args and
// the time of j instead. replaced reports whether this happened. The error is process.ErrOverloaded
// if another job takes the key during each of replaceTries tries.
func EnqueueReplacing(
	ctx context.Context, s *storage.Store, j *NewJob,
) (done Enqueued, replaced bool, err error) {
	for range replaceTries {
		done, replaced, err = enqueueReplacing(ctx, s, j)
		if !errors.Is(err, errHolderChanged) {
			return done, replaced, err
		}
	}
	return done, false, fmt.Errorf("unique key %q: %w", j.Unique.Key, process.ErrOverloaded)
}

// enqueueReplacing locks the holder of the key before the key, as every transaction does.
func enqueueReplacing(
	ctx context.Context, s *storage.Store, j *NewJob,
) (done Enqueued, replaced bool, err error) {
	holder, err := storage.Query(ctx, s.ReadOne, "read unique key", dbsqlc.New().ReadKeyHolder,
		dbsqlc.ReadKeyHolderParams{Namespace: j.Key.Namespace, UniqueKey: j.Unique.Key})
	if err != nil {
		return done, false, err
	}
	keys := []process.Key{j.Key}
	if holder.ProcessID != "" && holder.ProcessID != j.Key.ProcessID {
		keys = append(keys, process.Key{Namespace: j.Key.Namespace, ProcessID: holder.ProcessID})
	}
	changed := false
	err = s.RunLocked(ctx, "enqueue job", keys, func(ctx context.Context, db storage.DB) error {
		done, err = enqueueIn(ctx, s, db, j)
		if changed = storage.IsUniqueViolation(err); changed {
			return errHolderChanged // another session has created the job
		}
		sameRequest := done.Outcome == JobExists && j.RequestID != uuid.Nil // another node has stored the same request
		if err != nil || done.Outcome != JobDuplicate && !sameRequest {
			return err
		}
		if changed = sameRequest || done.ProcessID != holder.ProcessID; changed {
			return errHolderChanged
		}
		replaced, err = replace(ctx, s, db, keys[len(keys)-1], j, holder.Now)
		return err
	})
	if changed {
		err = errHolderChanged
	}
	return done, replaced, err
}

// replace sets the args and the time of a waiting job to the args and the time of j.
func replace(
	ctx context.Context, s *storage.Store, db storage.DB, key process.Key, j *NewJob, now time.Time,
) (bool, error) {
	rows, err := dbsqlc.New().GetJobs(ctx, db, dbsqlc.GetJobsParams{
		Ords: []int32{0}, Namespaces: []string{key.Namespace}, ProcessIds: []string{key.ProcessID},
	})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	at := j.RunTime
	if j.Delay > 0 {
		at = now.Add(j.Delay)
	}
	u := &Update{
		Actor: j.Actor, Fields: []string{"args", "run_time"}, Timeout: rows[0].Timeout, Tags: rows[0].Tags,
		Options: rows[0].Options, Args: &j.Args, RunTime: &at,
	}
	err = u.write(ctx, db, key, s.EventModeOf(key.Namespace))
	if _, runs := errors.AsType[*process.WrongStatusError](err); runs {
		return false, nil // the job runs, or it has ended and holds the key for its TTL
	}
	return err == nil, err
}
