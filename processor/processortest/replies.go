package processortest

import (
	"context"
	"errors"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ErrDeferred is returned by Call if the response is deferred and nothing that is due replies. Open
// lists the task, and Trace contains it after the reply.
var ErrDeferred = errors.New("the response is deferred until a later task replies")

// ErrCancelled is returned by Call if the response was deferred, and the process failed or ended
// before it replied.
var ErrCancelled = errors.New("the call was cancelled before the process replied")

// Open returns the IDs of the tasks whose response is deferred, oldest first.
func (p *Process) Open() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []int64
	for _, t := range p.open {
		ids = append(ids, t.id)
	}
	return ids
}

// deferred runs what is due after a call whose response was deferred, and returns the response.
func (p *Process) deferred(ctx context.Context, id int64) ([]byte, error) {
	if err := p.drive(ctx); err != nil {
		return nil, err
	}
	return p.outcome(id)
}

// outcome returns the response of a task whose response was deferred.
func (p *Process) outcome(id int64) ([]byte, error) {
	i := slices.IndexFunc(p.tasks, func(t *progressorv1.Task) bool { return t.GetTaskId() == id })
	switch {
	case i < 0:
		return nil, ErrDeferred
	case p.tasks[i].GetRejection() != nil:
		return nil, &processor.RejectionError{Rejection: p.tasks[i].GetRejection()}
	case p.tasks[i].GetStatus() == progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		return nil, ErrCancelled
	}
	return slices.Clone(p.tasks[i].GetResponse()), nil
}

// takeOwnReply removes the reply to the task itself, if there is one. A response becomes the
// response of the result. takeOwnReply returns a rejection, or nil.
func takeOwnReply(t *task, result *progressorv1.Result) *progressorv1.Rejection {
	i := slices.IndexFunc(result.GetReplies(), func(r *progressorv1.Reply) bool { return r.GetTaskId() == t.id })
	if i < 0 {
		return nil
	}
	own := result.GetReplies()[i]
	result.Replies = slices.Delete(result.GetReplies(), i, i+1)
	result.DeferResponse, result.Response = false, own.GetResponse()
	return own.GetRejection()
}

// badReplies returns a failure if a reply is to a task that is neither open nor ended, or if too
// many tasks would be open.
func (p *Process) badReplies(result *progressorv1.Result) *progressorv1.Failure {
	for _, r := range result.GetReplies() {
		known := slices.ContainsFunc(p.open, func(t *task) bool { return t.id == r.GetTaskId() }) ||
			slices.ContainsFunc(p.tasks, func(t *progressorv1.Task) bool { return t.GetTaskId() == r.GetTaskId() })
		if !known {
			return processor.Fail(process.ReasonBadResponse, "result.replies: %d is not a task that waits for a reply",
				r.GetTaskId()).Failure
		}
	}
	if result.GetDeferResponse() && len(p.open) >= process.MaxOpenTasks {
		return processor.Fail(process.ReasonBadResponse,
			"result.defer_response: at most %d calls may wait for a reply (got %d)",
			process.MaxOpenTasks, len(p.open)+1).Failure
	}
	return nil
}

// reply ends the open tasks to which a result replies.
func (p *Process) reply(result *progressorv1.Result) {
	for _, r := range result.GetReplies() {
		i := slices.IndexFunc(p.open, func(t *task) bool { return t.id == r.GetTaskId() })
		if i < 0 {
			continue // it has ended
		}
		p.trace(p.open[i], progressorv1.TaskStatus_TASK_STATUS_FINISHED, func(ended *progressorv1.Task) {
			ended.Response, ended.Rejection = r.GetResponse(), r.GetRejection()
		})
		p.open = slices.Delete(p.open, i, i+1)
	}
}

// cancelOpen cancels the open tasks of a process that has failed or ended.
func (p *Process) cancelOpen() {
	for _, t := range p.open {
		p.trace(t, progressorv1.TaskStatus_TASK_STATUS_CANCELLED, func(*progressorv1.Task) {})
	}
	p.open = nil
}
