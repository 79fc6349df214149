package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// LateJob is a job whose start deadline has passed before an attempt has begun.
type LateJob = dbsqlc.FindLateJobsRow

// LateEnd is how a late job ends.
type LateEnd struct {
	Failure []byte // JSON
	Message string
}

// LateJobs is the result of EndLateJobs.
type LateJobs struct {
	Ended    []LateJob
	Notified []process.Key // targets of new messages
}

// EndLateJobs ends at most limit jobs whose start deadline has passed before an attempt has begun.
// It skips jobs that another transaction has locked. end is pure.
func EndLateJobs(ctx context.Context, s *storage.Store, limit int, end func(*LateJob) LateEnd) (LateJobs, error) {
	var late LateJobs
	err := s.TakeTasks(ctx, "end late jobs", func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		rows, err := q.FindLateJobs(ctx, db, int32(limit))
		if late = (LateJobs{Ended: rows}); err != nil || len(rows) == 0 {
			return err
		}
		var a dbsqlc.EndLateJobsParams
		for n := range rows {
			e := end(&rows[n])
			a.Namespaces = append(a.Namespaces, rows[n].Namespace)
			a.ProcessIds = append(a.ProcessIds, rows[n].ProcessID)
			a.Failures = append(a.Failures, string(e.Failure))
			a.Messages = append(a.Messages, e.Message)
			a.Modes = append(a.Modes, s.EventModeOf(rows[n].Namespace))
		}
		ended, err := q.EndLateJobs(ctx, db, a)
		if err != nil {
			return err
		}
		var tell dbsqlc.NotifyParentsParams
		for _, r := range ended {
			tell.Namespaces = append(tell.Namespaces, r.Namespace)
			tell.ProcessIds = append(tell.ProcessIds, r.ProcessID)
			tell.TaskIds = append(tell.TaskIds, r.TaskID)
		}
		parents, err := q.NotifyParents(ctx, db, tell)
		if err != nil {
			return err
		}
		for _, r := range parents {
			late.Notified = append(late.Notified, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
		}
		return q.FreeEnded(ctx, db, dbsqlc.FreeEndedParams{Namespaces: a.Namespaces, ProcessIds: a.ProcessIds})
	})
	return late, err
}
