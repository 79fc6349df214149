package storage

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// GetTask returns a task in any status, or process.ErrTaskNotFound.
func (s *Store) GetTask(ctx context.Context, key process.Key, taskID int64) (Task, error) {
	row, err := s.q.GetTask(ctx, s.general, dbsqlc.GetTaskParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, TaskID: taskID,
	})
	return row, noRow(mapped("get task of "+key.String(), err), process.ErrTaskNotFound)
}

// Trace is a page of the tasks of a process by task_id, with all events of these tasks.
type Trace struct {
	Tasks  []Task
	Events []Event
	Failed []FailedAttempt // failed attempts of these tasks, oldest first
	More   bool            // there may be more tasks after the last one
}

// minTraceEvents is how many bytes of events a page can always contain, even if its tasks already
// fill it.
const minTraceEvents = 1 << 20

// TraceTasks lists the tasks of a process after a task. A page ends at limit, or at about
// ListBytes.
func (s *Store) TraceTasks(ctx context.Context, key process.Key, after int64, limit int) (Trace, error) {
	rows, err := s.q.TraceTasks(ctx, s.general, dbsqlc.TraceTasksParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, AfterTaskID: after, MaxBytes: ListBytes, Lim: int32(limit),
	})
	if err != nil || len(rows) == 0 {
		return Trace{}, mapped("trace "+key.String(), err)
	}
	t := Trace{Tasks: make([]Task, len(rows))}
	ids := make([]int64, len(rows))
	size := 0
	for n, r := range rows {
		t.Tasks[n], ids[n] = Task(r), r.TaskID
		size += len(r.Args) + len(r.Context) + len(r.Response) + len(r.Failure) + len(r.Rejection)
	}
	t.More = len(rows) == limit || size > ListBytes
	budget := max(ListBytes-size, minTraceEvents)
	t.Events, err = s.q.TraceEvents(ctx, s.general, dbsqlc.TraceEventsParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, TaskIds: ids, FirstTaskID: ids[0], MaxBytes: int64(budget),
	})
	if err != nil {
		return Trace{}, mapped("trace "+key.String(), err)
	}
	t.cut(budget)
	t.Failed, err = s.q.ListFailedAttempts(ctx, s.general, dbsqlc.ListFailedAttemptsParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, TaskIds: ids[:len(t.Tasks)],
	})
	return t, mapped("trace "+key.String(), err)
}

// FailedAttempt is an attempt of a task that failed and was repeated.
type FailedAttempt = dbsqlc.ListFailedAttemptsRow

// cut removes the tasks whose events may not have been read completely. The events of the first
// task are always complete.
func (t *Trace) cut(budget int) {
	size := 0
	for _, e := range t.Events {
		size += len(e.Payload) + len(e.Metadata)
	}
	if size <= budget {
		return
	}
	end := max(t.Events[len(t.Events)-1].TaskID, t.Tasks[0].TaskID+1)
	before := func(id int64) bool { return id < end }
	t.More = t.More || !before(t.Tasks[len(t.Tasks)-1].TaskID)
	t.Tasks = slices.DeleteFunc(t.Tasks, func(task Task) bool { return !before(task.TaskID) })
	t.Events = slices.DeleteFunc(t.Events, func(e Event) bool { return !before(e.TaskID) })
}

// TaskRef identifies a task.
type TaskRef struct {
	Key    process.Key
	TaskID int64
}

// Answer is the result of an ended task.
type Answer = dbsqlc.ReadAnswersRow

// ReadAnswers returns the tasks that have ended, with their results. Ord of an answer is the index
// of its task. It returns at most about ListBytes. cut is true if some tasks after the last answer
// may also have ended.
func (s *Store) ReadAnswers(ctx context.Context, refs []TaskRef) (answers []Answer, cut bool, err error) {
	arg := dbsqlc.ReadAnswersParams{MaxBytes: ListBytes}
	for n, r := range refs {
		arg.Append(dbsqlc.ReadAnswersItem{Ord: int32(n), Key: r.Key, TaskID: r.TaskID})
	}
	answers, err = s.q.ReadAnswers(ctx, s.kept, arg)
	size := 0
	for n := range answers {
		size += len(answers[n].Response) + len(answers[n].Failure) + len(answers[n].Rejection)
	}
	return answers, size >= ListBytes, mapped("read answers", err)
}

// ReadRequests returns the stored idempotent requests with these IDs. Unknown IDs are missing from
// the result.
func (s *Store) ReadRequests(ctx context.Context, ids ...uuid.UUID) ([]Request, error) {
	rows, err := s.q.ReadRequests(ctx, s.general, ids)
	return rows, mapped("read requests", err)
}
