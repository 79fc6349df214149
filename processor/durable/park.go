package durable

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A function that waits stays in memory, parked, so that the next task continues it without a
// replay. If the parked run is lost, the next task replays the function as usual.

// branchBytes is the approximate memory of a waiting goroutine, in bytes.
const branchBytes = 8 << 10

// newTask returns the task of a request. It continues the parked run of the process if there is one
// that matches the stored history.
func newTask(ctx context.Context, p *program, req *progressorv1.ProcessRequest) (*task, error) {
	t := &task{result: processor.Result(), began: time.Now()}
	kept := processor.KeptOf(ctx)
	if r, ok := kept.Value().(*run); ok {
		if r.program == p && r.failure() == nil && r.journal.last() == req.GetProcess().GetLastEventId() {
			kept.Take()
			r.unpark(ctx, req)
			t.run = r
			return t, nil
		}
		kept.Drop()
	}
	j, err := readJournal(req.GetProcess())
	if err != nil {
		return nil, err
	}
	t.run = newRun(ctx, p, req, j)
	return t, nil
}

// last returns the number of the last event.
func (j *journal) last() int64 { return j.first + int64(len(j.entries)) - 1 }

// unpark prepares a parked run for its next task.
func (r *run) unpark(ctx context.Context, req *progressorv1.ProcessRequest) {
	r.ctx, r.request = ctx, req
	r.journal.saved, r.journal.bytes = len(r.journal.entries), 0
	r.parked.Store(false)
}

// end ends the task, and its run unless the next task can continue it.
func (t *task) end(response *progressorv1.ProcessResponse, err error) {
	kept := processor.KeptOf(t.ctx)
	early, _ := kept.Value().(earlySteps)
	if kept == nil || len(early) > 0 || err != nil || !t.mayPark(response) {
		t.close()
		return
	}
	parked := processor.Parked{
		LastEventID: t.journal.last(),
		Bytes:       t.journal.size() + branchBytes*len(t.branches),
	}
	t.ctx, t.request, t.effects = context.Background(), idle(t.request), newEffects()
	clear(t.due)
	t.parked.Store(true)
	kept.Park(t.run, parked, t.close)
}

// mayPark reports whether the run waits in the state that a replay would reach after the result of
// this task is stored.
func (t *task) mayPark(response *progressorv1.ProcessResponse) bool {
	switch t.request.GetType() {
	case progressorv1.TaskType_TASK_TYPE_INIT, progressorv1.TaskType_TASK_TYPE_CALL,
		progressorv1.TaskType_TASK_TYPE_NOTIFY, progressorv1.TaskType_TASK_TYPE_TIMEOUT:
	default:
		return false
	}
	if t.journal.size() > process.MaxHistoryBytes { // it can never be replayed
		return false
	}
	result := response.GetResult()
	return result != nil && !result.GetRestartHistory() && t.begun && t.returned == nil &&
		t.ctx.Err() == nil && t.failure() == nil && t.journal.ended() == nil
}

// idle returns the part of a request that a misused Ctx may read after the end of its task.
func idle(req *progressorv1.ProcessRequest) *progressorv1.ProcessRequest {
	p := req.GetProcess()
	return &progressorv1.ProcessRequest{Process: &progressorv1.Process{
		Namespace: p.GetNamespace(), ProcessId: p.GetProcessId(), CreatedTime: p.GetCreatedTime(),
	}}
}
