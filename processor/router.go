package processor

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Router is a Processor with one function for each type of task. Without a function, tasks are
// answered as follows:
//
//   - INIT, CALL, REPAIR: a rejection with the reason "not_handled"
//   - NOTIFY: by OnCall, if set; else a rejection with the reason "not_handled"
//   - TIMEOUT: a failure with the reason "not_handled" that is not retried
//   - CANCEL: a result that changes nothing; the process is cancelled
type Router struct {
	OnInit    Func // the first task of a process
	OnCall    Func // a call whose caller waits for the response
	OnNotify  Func // an accepted call, or a message of another process; if nil, OnCall is used
	OnRepair  Func // an operator's repair of a process in ERROR
	OnTimeout Func // a timer fired; req.TimerName is "" for the default one
	OnCancel  Func // the last task before the process is CANCELLED
}

// Process calls the function for the type of the task.
func (r *Router) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if handle := r.route(req.GetType()); handle != nil {
		return handle(ctx, req)
	}
	return nil, notHandled(req.GetType())
}

func (r *Router) route(t progressorv1.TaskType) Func {
	switch t {
	case progressorv1.TaskType_TASK_TYPE_INIT:
		return r.OnInit
	case progressorv1.TaskType_TASK_TYPE_CALL:
		return r.OnCall
	case progressorv1.TaskType_TASK_TYPE_NOTIFY:
		if r.OnNotify == nil {
			return r.OnCall
		}
		return r.OnNotify
	case progressorv1.TaskType_TASK_TYPE_REPAIR:
		return r.OnRepair
	case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
		return r.OnTimeout
	case progressorv1.TaskType_TASK_TYPE_CANCEL:
		if r.OnCancel == nil {
			return unchanged
		}
		return r.OnCancel
	default:
		return nil
	}
}

func unchanged(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return Result().Done()
}

// rejectable reports whether a task of this type may be rejected.
func rejectable(t progressorv1.TaskType) bool {
	switch t {
	case progressorv1.TaskType_TASK_TYPE_INIT, progressorv1.TaskType_TASK_TYPE_CALL,
		progressorv1.TaskType_TASK_TYPE_NOTIFY, progressorv1.TaskType_TASK_TYPE_REPAIR:
		return true
	default:
		return false
	}
}

func notHandled(t progressorv1.TaskType) error {
	if rejectable(t) {
		return Reject(ReasonNotHandled, "this processor does not handle %s", t)
	}
	return Fail(ReasonNotHandled, "this processor does not handle %s", t).NonRetryable()
}
