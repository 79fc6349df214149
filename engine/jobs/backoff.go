package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// EndBackoff starts the next attempt of a job in backoff now. It returns nil if the job is not in
// backoff. by is the caller, if known.
func (q *Jobs) EndBackoff(ctx context.Context, key process.Key, by ...process.Actor) (*progressorv1.Job, error) {
	now, err := jobs.EndBackoff(ctx, q.store, key, by...)
	if err != nil || !now {
		return nil, err
	}
	return q.retried(ctx, key)
}

// retried returns a job that can run again, and wakes everything that the job may be waiting for.
func (q *Jobs) retried(ctx context.Context, key process.Key) (*progressorv1.Job, error) {
	q.wake(key.Namespace)
	return q.Get(ctx, key, 0)
}

// wake wakes everything that a job of a namespace may be waiting for.
func (q *Jobs) wake(namespace string) {
	q.engine.WakePollers()
	q.groups.wake()
	q.admission.checkAll(namespace)
}
