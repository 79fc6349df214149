package insight

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// FailingTask is a task of an internal kind that fails and is retried.
type FailingTask struct {
	Key     process.Key
	TaskID  int64
	Type    process.TaskType
	Attempt int32 // newest failed attempt
	Reason  string
	Message string
	For     time.Duration // since the oldest recorded failure
}

// ListFailingTasks returns tasks of processes of internal kinds that have failed for longer than
// minAge, in no particular order, up to limit. It omits paused namespaces, and tasks that wait for
// an operator. The search_path of db must be progressor.
func ListFailingTasks(
	ctx context.Context, db storage.DB, minAge time.Duration, limit int,
) ([]FailingTask, error) {
	rows, err := dbsqlc.New().ListFailingTasks(ctx, db, dbsqlc.ListFailingTasksParams{
		MinAgeUs: minAge.Microseconds(), Lim: int32(limit),
	})
	if err != nil {
		return nil, err
	}
	tasks := make([]FailingTask, len(rows))
	for i, r := range rows {
		tasks[i] = FailingTask{
			Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, TaskID: r.TaskID,
			Type: process.TaskType(r.TaskType), Attempt: r.Attempt, Reason: r.Reason, Message: r.Message,
			For: time.Duration(r.FailingSeconds * float64(time.Second)),
		}
	}
	return tasks, nil
}
