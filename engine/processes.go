package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// GetProcess reads a process with the events in a range (nil: all). awaitInit: while it is in INIT, wait for the end of that, at
// most so long.
func (e *Engine) GetProcess(ctx context.Context, key process.Key, r *progressorv1.HistoryRange, awaitInit time.Duration) (*progressorv1.Process, error) {
	if err := e.admit(); err != nil {
		return nil, err
	}
	defer e.leave()
	if _, err := e.namespace(ctx, key.Namespace); err != nil {
		return nil, err
	}
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
			"the range holds more than %d events or %d bytes: set a smaller limit (%d passes them), and go on from the last event_id as offset",
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
	_, err = e.AwaitTask(ctx, AwaitParams{Key: key, TaskID: trace.Tasks[0].TaskID, Timeout: timeout})
	return err
}

// The orders of a list.
const (
	OrderCreated = "created_time desc" // the default
	OrderID      = "process_id"
	OrderChanged = "status_changed_time desc" // with a status that is neither INIT nor RUNNING
)

// The bounds of what one page of a list reads, in rows and in bytes; a page that found less says where to go on.
const (
	maxListed      = 20_000
	maxListedBytes = 64 << 20
)

// ListParams is a page of a list of processes.
type ListParams struct {
	Namespace string
	Status    process.Status // "": all
	OrderBy   string
	PageSize  int // default 100, at most 1,000
	PageToken string
}

// listToken is where the next page begins, and of what list.
type listToken struct {
	Order  string         `json:"o"`
	Status process.Status `json:"s,omitempty"`
	Time   time.Time      `json:"t,omitzero"`
	ID     string         `json:"i"`
}

// ListProcesses lists processes without their histories. A page may hold fewer than asked for, or none, and still have a next.
func (e *Engine) ListProcesses(ctx context.Context, p ListParams) ([]*progressorv1.Process, string, error) {
	if err := e.admit(); err != nil {
		return nil, "", err
	}
	defer e.leave()
	if _, err := e.namespace(ctx, p.Namespace); err != nil {
		return nil, "", err
	}
	attention := p.Status != "" && p.Status != process.StatusInit && p.Status != process.StatusRunning
	order, err := listOrder(p.OrderBy, attention)
	if err != nil {
		return nil, "", err
	}
	from := listToken{Order: order, Status: p.Status}
	if p.PageToken != "" {
		if from, err = readToken(p.PageToken, from); err != nil {
			return nil, "", err
		}
	}
	size := p.PageSize
	if size <= 0 {
		size = 100
	}
	size = min(size, 1000)
	rows, last, more, err := e.listPage(ctx, p, order, storage.Page{Time: from.Time, ID: from.ID}, size)
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.Process, len(rows))
	for n := range rows {
		if list[n], err = wire.Process(&rows[n], nil, nil, nil); err != nil {
			return nil, "", err
		}
	}
	if !more {
		return list, "", nil
	}
	next, err := json.Marshal(listToken{Order: order, Status: p.Status, Time: last.Time, ID: last.ID})
	return list, base64.RawURLEncoding.EncodeToString(next), err
}

func listOrder(order string, attention bool) (string, error) {
	switch order {
	case "":
		if attention {
			return OrderChanged, nil
		}
		return OrderCreated, nil
	case OrderCreated, OrderID:
		return order, nil
	case OrderChanged, "status_changed_time":
		if attention {
			return OrderChanged, nil
		}
		return "", &process.InvalidError{Field: "order_by", Message: "status_changed_time needs a filter on a status that is neither INIT nor RUNNING"}
	}
	return "", &process.InvalidError{Field: "order_by", Message: fmt.Sprintf("%q is none of %q, %q and %q", order, OrderCreated, OrderID, OrderChanged)}
}

func readToken(text string, want listToken) (listToken, error) {
	var t listToken
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.Order != want.Order || t.Status != want.Status {
		return t, &process.InvalidError{Field: "page_token", Message: "it is not of this list: a token goes with the filter and order of the page that gave it"}
	}
	return t, nil
}

// listPage reads on in the order asked for until the page is full (of processes, or of bytes), the list ends, or
// enough was read.
func (e *Engine) listPage(ctx context.Context, p ListParams, order string, page storage.Page, size int) (found []storage.Process, last storage.Page, more bool, err error) {
	filtered := p.Status != "" && order != OrderChanged
	last = page
	full := 0 // bytes in the page
	for read, bytes := 0, 0; read < maxListed && bytes < maxListedBytes; {
		limit := size + 1
		if filtered {
			limit = max(limit, 1000)
		}
		var rows []storage.Process
		switch order {
		case OrderID:
			rows, err = e.store.ListByID(ctx, p.Namespace, last, limit)
		case OrderChanged:
			rows, err = e.store.ListAttention(ctx, p.Namespace, p.Status, last, limit)
		default:
			rows, err = e.store.ListByCreated(ctx, p.Namespace, last, limit)
		}
		if err != nil {
			return nil, last, false, err
		}
		read += len(rows)
		chunk := 0
		for _, row := range rows {
			if len(found) == size || full > storage.ListBytes {
				return found, last, true, nil
			}
			last = pageOf(row, order)
			chunk += rowBytes(row)
			if !filtered || row.Status == p.Status {
				found = append(found, row)
				full += rowBytes(row)
			}
		}
		bytes += chunk
		if len(rows) < limit && chunk <= storage.ListBytes {
			return found, last, false, nil
		}
		if full > storage.ListBytes {
			break
		}
	}
	return found, last, true, nil
}

func rowBytes(row storage.Process) int {
	n := len(row.AuxState) + len(row.Metadata)
	if row.Detail != nil {
		n += len(*row.Detail)
	}
	return n
}

func pageOf(row storage.Process, order string) storage.Page {
	switch order {
	case OrderID:
		return storage.Page{ID: row.ProcessID}
	case OrderChanged:
		return storage.Page{Time: *row.AttentionTime, ID: row.ProcessID}
	}
	return storage.Page{Time: row.CreatedTime, ID: row.ProcessID}
}

// TraceProcess lists the tasks of a process in task_id order, each with its events. PageSize: default 100, at most 1,000. A page
// ends at about 8 MiB, but holds a task at least.
func (e *Engine) TraceProcess(ctx context.Context, key process.Key, pageSize int, pageToken string) ([]*progressorv1.Task, string, error) {
	if err := e.admit(); err != nil {
		return nil, "", err
	}
	defer e.leave()
	if _, err := e.namespace(ctx, key.Namespace); err != nil {
		return nil, "", err
	}
	after := int64(0)
	if pageToken != "" {
		var err error
		if after, err = strconv.ParseInt(pageToken, 10, 64); err != nil || after < 0 {
			return nil, "", &process.InvalidError{Field: "page_token", Message: "it is not of a trace"}
		}
	}
	if pageSize <= 0 {
		pageSize = 100
	}
	pageSize = min(pageSize, 1000)
	if _, err := e.store.GetProcess(ctx, key); err != nil {
		return nil, "", fmt.Errorf("%s: %w", key, err)
	}
	trace, err := e.store.TraceTasks(ctx, key, after, pageSize)
	if err != nil {
		return nil, "", err
	}
	byTask := map[int64][]storage.Event{}
	for _, ev := range trace.Events {
		byTask[ev.TaskID] = append(byTask[ev.TaskID], ev)
	}
	tasks := make([]*progressorv1.Task, len(trace.Tasks))
	for n := range trace.Tasks {
		if tasks[n], err = wire.Task(&trace.Tasks[n], byTask[trace.Tasks[n].TaskID]); err != nil {
			return nil, "", err
		}
	}
	next := ""
	if trace.More {
		next = strconv.FormatInt(trace.Tasks[len(trace.Tasks)-1].TaskID, 10)
	}
	return tasks, next, nil
}

// PutProcess imports a process with its history and timers; no processor runs.
func (e *Engine) PutProcess(ctx context.Context, r *progressorv1.PutProcessRequest, _ process.Actor) (*progressorv1.Process, error) {
	if err := e.admit(); err != nil {
		return nil, err
	}
	defer e.leave()
	key := process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetProcessId()}
	if _, err := e.namespace(ctx, key.Namespace); err != nil {
		return nil, err
	}
	in, err := wire.Import(r)
	if err != nil {
		return nil, &process.InvalidError{Field: "metadata", Message: err.Error()}
	}
	row, err := e.store.PutProcess(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	e.timers.wake()
	timers, err := e.store.GetTimers(ctx, key)
	if err != nil {
		return nil, err
	}
	return wire.Process(&row, nil, timers, nil)
}

// RemoveProcess deletes a process with everything it has, in whatever status, at once.
func (e *Engine) RemoveProcess(ctx context.Context, key process.Key, _ process.Actor) error {
	if err := e.admit(); err != nil {
		return err
	}
	defer e.leave()
	ns, err := e.namespace(ctx, key.Namespace)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.store.RemoveProcess(ctx, key); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	ns.metrics.removed(began)
	e.waiters.recheck(key)
	e.watchers.recheck(key)
	return nil
}
