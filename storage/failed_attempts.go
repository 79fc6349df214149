package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// orphanBatch is the number of failed attempts that one statement checks.
const orphanBatch = 1000

// AttemptKey identifies a failed attempt. Keys are ordered by process, task and attempt.
type AttemptKey struct {
	Process process.Key
	TaskID  int64
	Attempt int32
}

// DeleteOrphanedAttempts checks a batch of failed attempts after a key and deletes those whose task
// does not exist. It returns the last key of the batch, or the zero key at the end.
func (s *Store) DeleteOrphanedAttempts(ctx context.Context, after AttemptKey) (last AttemptKey, err error) {
	r, err := s.q.DeleteOrphanedAttempts(ctx, s.general, dbsqlc.DeleteOrphanedAttemptsParams{
		AfterNamespace: after.Process.Namespace, AfterProcessID: after.Process.ProcessID,
		AfterTaskID: after.TaskID, AfterAttempt: after.Attempt, Lim: orphanBatch,
	})
	if err != nil {
		return after, mapped("delete orphaned attempts", err)
	}
	if r.LookedAt < orphanBatch {
		return AttemptKey{}, nil
	}
	return AttemptKey{
		Process: process.Key{Namespace: r.LastNamespace, ProcessID: r.LastProcessID},
		TaskID:  r.LastTaskID, Attempt: r.LastAttempt,
	}, nil
}
