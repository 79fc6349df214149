package storage

import (
	"context"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// GetTask reads a task at any point of its life, or answers process.ErrTaskNotFound.
func (s *Store) GetTask(ctx context.Context, key process.Key, taskID int64) (Task, error) {
	row, err := s.q.GetTask(ctx, s.general, dbsqlc.GetTaskParams{Namespace: key.Namespace, ProcessID: key.ProcessID, TaskID: taskID})
	return row, noRow(mapped("get task of "+key.String(), err), process.ErrTaskNotFound)
}

// TraceTasks lists the tasks of a process behind one of them, in task_id order, and the events of these tasks.
func (s *Store) TraceTasks(ctx context.Context, key process.Key, after int64, limit int) ([]Task, []Event, error) {
	rows, err := s.q.TraceTasks(ctx, s.general, dbsqlc.TraceTasksParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, AfterTaskID: after, Lim: int32(limit), //nolint:gosec // a page
	})
	if err != nil {
		return nil, nil, mapped("trace "+key.String(), err)
	}
	tasks := make([]Task, len(rows))
	ids := make([]int64, len(rows))
	for n, r := range rows {
		tasks[n], ids[n] = Task(r), r.TaskID
	}
	events, err := s.q.TraceEvents(ctx, s.general, dbsqlc.TraceEventsParams{Namespace: key.Namespace, ProcessID: key.ProcessID, TaskIds: ids})
	return tasks, events, mapped("trace "+key.String(), err)
}

// TaskRef names a task whose end somebody waits for.
type TaskRef struct {
	Key    process.Key
	TaskID int64
}

// Answer is how a task ended.
type Answer = dbsqlc.ReadAnswersRow

// ReadAnswers tells which of the tasks have ended, and how; Ord of an answer is the index of its task.
func (s *Store) ReadAnswers(ctx context.Context, refs []TaskRef) ([]Answer, error) {
	var arg dbsqlc.ReadAnswersParams
	for n, r := range refs {
		arg.Ords = append(arg.Ords, int32(n)) //nolint:gosec // a batch
		arg.Namespaces = append(arg.Namespaces, r.Key.Namespace)
		arg.ProcessIds = append(arg.ProcessIds, r.Key.ProcessID)
		arg.TaskIds = append(arg.TaskIds, r.TaskID)
	}
	rows, err := s.q.ReadAnswers(ctx, s.kept, arg)
	return rows, mapped("read answers", err)
}

// ReadRequests finds what idempotent requests were accepted as. Unknown ones are missing.
func (s *Store) ReadRequests(ctx context.Context, ids ...uuid.UUID) ([]Request, error) {
	rows, err := s.q.ReadRequests(ctx, s.kept, ids)
	return rows, mapped("read requests", err)
}
