package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
)

// Remove deletes a job that has ended, with its result. It returns a *process.WrongStatusError if
// the job has not ended.
func (q *Jobs) Remove(ctx context.Context, key process.Key, by process.Actor) error {
	if _, err := q.row(ctx, key, 0); err != nil { // it may be a process of another kind
		return err
	}
	removed, err := q.engine.RemoveEnded(ctx, key, "RemoveJob", by)
	if err != nil || removed {
		return err
	}
	row, err := q.row(ctx, key, 0)
	if err != nil {
		return err
	}
	return q.byState(ctx, key, &process.WrongStatusError{
		Key: key, Status: row.Status, Reason: "only a job that has ended can be removed: cancel it first (CancelJob)",
	})
}
