package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// EndBackoff makes the next attempt of a job now if the job waits for it. Otherwise it returns nil. by: who asked, if
// that is known.
func (q *Jobs) EndBackoff(ctx context.Context, key process.Key, by ...process.Actor) (*progressorv1.Job, error) {
	now, err := jobs.EndBackoff(ctx, q.store, key, by...)
	if err != nil || !now {
		return nil, err
	}
	return q.retried(ctx, key)
}

// retried wakes everything that a job may wait for that can run again, and returns the job.
func (q *Jobs) retried(ctx context.Context, key process.Key) (*progressorv1.Job, error) {
	q.wake(key.Namespace)
	return q.Get(ctx, key, 0)
}

// wake wakes everything that a job of a namespace may wait for.
func (q *Jobs) wake(namespace string) {
	q.engine.Retried()
	q.groups.wake()
	q.admission.look(namespace)
}
