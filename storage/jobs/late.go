package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// LateJob is a job whose start deadline has passed before an attempt began.
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

// EndLateJobs ends at most limit jobs whose start deadline has passed before an attempt began. It
// skips jobs that another transaction has locked. end must have no side effects.
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
			a.Append(dbsqlc.EndLateJobsItem{
				Key:     process.Key{Namespace: rows[n].Namespace, ProcessID: rows[n].ProcessID},
				Failure: string(e.Failure), Message: e.Message,
				Mode: s.EventModeOf(rows[n].Namespace),
			})
		}
		ended, err := q.EndLateJobs(ctx, db, a)
		if err != nil {
			return err
		}
		var notify dbsqlc.NotifyParentsParams
		for _, r := range ended {
			notify.Append(dbsqlc.NotifyParentsItem{
				Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, TaskID: r.TaskID,
			})
		}
		parents, err := q.NotifyParents(ctx, db, notify)
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
