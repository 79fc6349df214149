package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// GetProcess returns a process with the events in a range, or all events if the range is nil. If
// the process is in INIT, GetProcess first waits up to awaitInit for the end of INIT.
func (e *Engine) GetProcess(
	ctx context.Context, key process.Key, r *progressorv1.HistoryRange, awaitInit time.Duration,
) (*progressorv1.Process, error) {
	enter := e.enter
	if awaitInit > 0 {
		enter = e.enterWaiting
	}
	share, err := enter(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	defer e.leave(share)
	rng := wire.RangeOf(r)
	view, err := e.store.ViewProcess(ctx, key, rng)
	if err == nil && view.Process.Status == process.StatusInit && awaitInit > 0 {
		if err = e.awaitInit(ctx, key, awaitInit); err == nil {
			view, err = e.store.ViewProcess(ctx, key, rng)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	size := 0
	for i := range view.Events {
		size += len(view.Events[i].Payload) + len(view.Events[i].Metadata)
	}
	if len(view.Events) > process.MaxHistoryEvents || size > process.MaxHistoryBytes {
		return nil, &process.InvalidError{Field: "range.limit", TooLarge: true, Message: fmt.Sprintf(
			"the range has more than %d events or %d bytes: set a smaller limit (%d exceeds them), and continue with "+
				"the last event_id as offset",
			process.MaxHistoryEvents, process.MaxHistoryBytes, len(view.Events))}
	}
	return wire.Process(&view.Process, view.Events, view.Timers, r)
}

// awaitInit waits for the end of the INIT task of a process.
func (e *Engine) awaitInit(ctx context.Context, key process.Key, timeout time.Duration) error {
	trace, err := e.store.TraceTasks(ctx, key, 0, 1)
	if err != nil || len(trace.Tasks) == 0 {
		return err
	}
	_, err = e.awaitTask(ctx, AwaitParams{Key: key, TaskID: trace.Tasks[0].TaskID, Timeout: timeout})
	return err
}

// ListProcesses lists the processes of a namespace that match a filter (see storage/search),
// without their histories. A page may have fewer processes than requested, or none, and still have
// a next page.
func (e *Engine) ListProcesses(
	ctx context.Context, r *progressorv1.ListProcessesRequest,
) ([]*progressorv1.Process, string, error) {
	share, err := e.enter(ctx, r.GetNamespace())
	if err != nil {
		return nil, "", err
	}
	defer e.leave(share)
	filter, err := search.Parse(r.GetFilter())
	if err != nil {
		return nil, "", err
	}
	if r.GetUsersOnly() {
		filter = filter.And(search.OfUsers)
	}
	page, err := search.List(ctx, e.store, search.Query{
		Namespace: r.GetNamespace(), Filter: filter, OrderBy: r.GetOrderBy(), PageSize: int(r.GetPageSize()),
		PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.Process, len(page.Processes))
	for n := range page.Processes {
		if list[n], err = wire.Process(&page.Processes[n], nil, nil, nil); err != nil {
			return nil, "", err
		}
	}
	return list, page.NextPageToken, nil
}

// TraceProcess lists the tasks of a process by task_id, each with its events. The page size is 100
// by default and at most 1,000. A page ends at about 8 MiB, but has at least one task.
func (e *Engine) TraceProcess(
	ctx context.Context, key process.Key, pageSize int, pageToken string,
) (*progressorv1.TraceProcessResponse, error) {
	share, err := e.enter(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	defer e.leave(share)
	after := int64(0)
	if pageToken != "" {
		var err error
		if after, err = strconv.ParseInt(pageToken, 10, 64); err != nil || after < 0 {
			return nil, process.InvalidPageToken()
		}
	}
	if pageSize <= 0 {
		pageSize = 100
	}
	pageSize = min(pageSize, 1000)
	p, err := e.store.GetProcess(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	trace, err := e.store.TraceTasks(ctx, key, after, pageSize)
	if err != nil {
		return nil, err
	}
	byTask := map[int64][]storage.Event{}
	for _, ev := range trace.Events {
		byTask[ev.TaskID] = append(byTask[ev.TaskID], ev)
	}
	failed := map[int64][]storage.FailedAttempt{}
	for _, a := range trace.Failed {
		failed[a.TaskID] = append(failed[a.TaskID], a)
	}
	tasks := make([]*progressorv1.Task, len(trace.Tasks))
	for n := range trace.Tasks {
		if tasks[n], err = wire.Task(&trace.Tasks[n], byTask[trace.Tasks[n].TaskID]); err != nil {
			return nil, err
		}
		wire.FailedAttempts(tasks[n], failed[trace.Tasks[n].TaskID])
	}
	response := &progressorv1.TraceProcessResponse{
		Tasks: tasks, HistoryRestartedTime: wire.Timestamp(p.HistoryRestartedTime), FirstEventId: p.FirstEventID,
	}
	if trace.More {
		response.NextPageToken = strconv.FormatInt(trace.Tasks[len(trace.Tasks)-1].TaskID, 10)
	}
	return response, nil
}

// PutProcess imports a process with its history and timers. No processor runs.
func (e *Engine) PutProcess(
	ctx context.Context, r *progressorv1.PutProcessRequest, by process.Actor,
) (*progressorv1.Process, error) {
	share := e.shareOf(r.GetNamespace())
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	key := process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetProcessId()}
	if _, err := e.namespace(ctx, key.Namespace); err != nil {
		return nil, err
	}
	in, err := wire.Import(r)
	if err != nil {
		return nil, &process.InvalidError{Field: "metadata", Message: err.Error()}
	}
	row, err := e.store.PutProcess(ctx, in, by)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	e.timers.alarm(key.Namespace, 0)
	timers, err := e.store.GetTimers(ctx, key)
	if err != nil {
		return nil, err
	}
	return wire.Process(&row, nil, timers, nil)
}

// errRemoved cancels the attempts of a process that was removed. Their results cannot be stored.
var errRemoved = errors.New("the process was removed")

// RemoveProcess deletes a process and all of its data, in any status.
func (e *Engine) RemoveProcess(ctx context.Context, key process.Key, by process.Actor) error {
	keys := []process.Key{key}
	return e.remove(ctx, key.Namespace, keys, func() ([]process.Key, error) {
		if err := e.store.RemoveProcess(ctx, key, by); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return keys, nil
	})
}

// RemoveProcesses deletes processes like RemoveProcess, but writes no audit entry. It is called by
// kinds. It ignores processes that do not exist. namespace is the namespace of the command.
func (e *Engine) RemoveProcesses(ctx context.Context, namespace string, keys []process.Key) error {
	return e.remove(ctx, namespace, keys, func() ([]process.Key, error) {
		return keys, e.store.RemoveProcesses(ctx, keys)
	})
}

// RemoveStopped is like RemoveProcesses, but only removes processes that are neither INIT nor
// RUNNING.
func (e *Engine) RemoveStopped(ctx context.Context, namespace string, keys []process.Key) error {
	return e.remove(ctx, namespace, keys, func() ([]process.Key, error) { return e.store.RemoveStopped(ctx, keys) })
}

// RemoveEnded deletes a process that is COMPLETED or CANCELLED, or a FAILED job. It reports whether
// there was such a process. It is called by kinds.
func (e *Engine) RemoveEnded(
	ctx context.Context, key process.Key, method string, by process.Actor,
) (removed bool, err error) {
	keys := []process.Key{key}
	err = e.remove(ctx, key.Namespace, keys, func() ([]process.Key, error) {
		removed, err = e.store.RemoveEnded(ctx, key, method, by)
		if !removed {
			return nil, err
		}
		return keys, err
	})
	return removed, err
}

// remove calls store, which returns the processes that it has removed. remove cancels their
// attempts on this node, and notifies the waiters of all processes in keys.
func (e *Engine) remove(
	ctx context.Context, namespace string, keys []process.Key, store func() ([]process.Key, error),
) error {
	share := e.shareOf(namespace)
	if err := e.admit(share); err != nil {
		return err
	}
	defer e.leave(share)
	ns, err := e.namespace(ctx, namespace)
	if err != nil {
		return err
	}
	began := time.Now()
	attempts := map[process.Key][]*running{}
	for _, key := range keys { // read before the removal, because another process may get the ID afterwards
		attempts[key] = e.attempts.of(key)
	}
	removed, err := store()
	if err != nil {
		return err
	}
	for _, key := range removed {
		for _, r := range attempts[key] {
			r.cancel(errRemoved)
		}
	}
	ns.metrics.removed(began)
	for _, key := range keys {
		e.waiters.recheck(key)
		e.watchers.recheck(key)
	}
	return nil
}
