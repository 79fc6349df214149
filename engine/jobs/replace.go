package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// checkReplace rejects a unique job that replaces another one but has no explicit key. A key that
// is derived from the args is useless here, because it differs if the args differ. path is the
// prefix of field names in errors.
func checkReplace(path string, u *progressorv1.Unique) error {
	if u.GetReplace() && u.GetKey() == "" {
		return &process.InvalidError{
			Field:   path + "options.unique.replace",
			Message: "needs options.unique.key: the default key depends on the args",
		}
	}
	return nil
}

// storeJob stores a job. If replaced is true, j was not stored. An existing job with the same
// unique key got the args and the time of j.
func (q *Jobs) storeJob(ctx context.Context, j *jobs.NewJob) (done jobs.Enqueued, replaced bool, err error) {
	if !j.Unique.Replace {
		done, err = q.enqueueBy(ctx, j, func(j *jobs.NewJob) (jobs.Enqueued, error) { return q.enqueueOne(ctx, j) })
		return done, false, err
	}
	done, err = q.enqueueBy(ctx, j, func(j *jobs.NewJob) (jobs.Enqueued, error) {
		done, replaced, err = jobs.EnqueueReplacing(ctx, q.store, j)
		return done, err
	})
	if replaced {
		q.wake(j.Key.Namespace)
	}
	return done, replaced, err
}
