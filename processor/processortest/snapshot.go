package processortest

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Now returns the current time of the process clock.
func (p *Process) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Status returns the status of the process, or "" if it does not exist.
func (p *Process) Status() process.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Detail returns the reason why the status is ERROR, or "" in other statuses.
func (p *Process) Detail() string { return p.Snapshot().GetDetail() }

// State returns the state that the processor has stored.
func (p *Process) State() []byte { return p.Snapshot().GetAuxState() }

// Events returns all events, oldest first.
func (p *Process) Events() []*progressorv1.Event { return p.Snapshot().GetHistory() }

// Timers returns the pending timers, earliest first.
func (p *Process) Timers() []*progressorv1.Timer { return p.Snapshot().GetTimers() }

// Metadata returns the searchable attributes.
func (p *Process) Metadata() map[string]any { return p.Snapshot().GetMetadata().AsMap() }

// Commands returns all commands that the process has sent, in order.
func (p *Process) Commands() []*progressorv1.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.commands)
}

// Trace returns the tasks that have ended, in the order in which they ended. Each task contains its
// events. Trace does not return failed attempts that are retried.
func (p *Process) Trace() []*progressorv1.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tasks)
}

// Snapshot returns the complete process, as GetProcess does.
func (p *Process) Snapshot() *progressorv1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.snapshot()
	for _, event := range p.history {
		shown.History = append(shown.History, proto.CloneOf(event))
	}
	return shown
}

// snapshot returns the process with its timers, without its history.
func (p *Process) snapshot() *progressorv1.Process {
	shown := proto.CloneOf(p.state)
	shown.Status, shown.PreviousStatus = statusOf(p.status), statusOf(p.previous)
	pending := slices.SortedFunc(slices.Values(p.timers), func(a, b *task) int {
		return cmp.Or(a.at().Compare(b.at()), cmp.Compare(a.id, b.id))
	})
	for _, t := range pending {
		shown.Timers = append(shown.Timers, &progressorv1.Timer{
			Name: t.timerName, FireTime: timestamppb.New(t.at()), Status: progressorv1.TaskStatus_TASK_STATUS_WAITING,
			Remove: t.kind == progressorv1.TaskType_TASK_TYPE_REMOVE,
		})
	}
	return shown
}

// shownHistory returns the events that a task receives: the events in the range r, or those that
// the history mode selects if r is nil.
func (p *Process) shownHistory(r *progressorv1.HistoryRange) []*progressorv1.Event {
	if r == nil {
		switch p.settings.mode {
		case process.HistoryNone:
			return nil
		case process.HistoryLast:
			r = &progressorv1.HistoryRange{
				Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD, Limit: proto.Int32(1),
			}
		default:
			r = &progressorv1.HistoryRange{}
		}
	}
	shown := make([]*progressorv1.Event, 0, len(p.history))
	backward := r.GetDirection() == progressorv1.HistoryRange_DIRECTION_BACKWARD
	for _, event := range p.history {
		before, after := event.GetEventId() < r.GetOffset(), event.GetEventId() > r.GetOffset()
		if r.Offset == nil || backward && before || !backward && after {
			shown = append(shown, proto.CloneOf(event))
		}
	}
	if backward {
		slices.Reverse(shown)
	}
	if r.Limit != nil && int(r.GetLimit()) < len(shown) {
		shown = shown[:max(r.GetLimit(), 0)]
	}
	return shown
}

// trace records the end of a task for Trace. more sets the fields that depend on the outcome.
func (p *Process) trace(t *task, status progressorv1.TaskStatus, more func(*progressorv1.Task)) {
	ended := &progressorv1.Task{
		TaskId: t.id, Namespace: p.state.GetNamespace(), ProcessId: p.state.GetProcessId(), Type: t.kind,
		Status:        status,
		ScheduledTime: timestamppb.New(t.due), RunningTime: timestamppb.New(p.now),
		FinishedTime: timestamppb.New(p.now),
		Args:         t.args, Context: t.request.context, IdempotencyKey: t.request.idempotencyKey, Attempt: t.attempt,
		TimerName: t.timerName, Events: t.stored,
	}
	more(ended)
	p.tasks = append(p.tasks, ended)
}

func statusOf(status process.Status) progressorv1.ProcessStatus {
	return progressorv1.ProcessStatus(progressorv1.ProcessStatus_value["PROCESS_STATUS_"+string(status)])
}
