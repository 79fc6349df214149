package processortest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// task is a task that has not ended.
type task struct {
	id        int64
	kind      progressorv1.TaskType
	attempt   int32
	args      []byte
	request   request
	timerName string
	due       time.Time // when it was first due
	retryTime time.Time // when it is retried; zero if it does not wait for a retry
	child     *progressorv1.ChildEnd
	stored    []*progressorv1.Event // stored by checkpoints
}

// at returns when the task may run next.
func (t *task) at() time.Time {
	if t.retryTime.IsZero() {
		return t.due
	}
	return t.retryTime
}

func (p *Process) newTask(kind progressorv1.TaskType, args []byte, r request) *task {
	p.lastTask++
	return &task{id: p.lastTask, kind: kind, args: slices.Clone(args), request: r, due: p.now}
}

// drive runs tasks until none is due: waiting tasks first, then timers, earliest first.
func (p *Process) drive(ctx context.Context) error {
	for range MaxSteps {
		next := p.takeDue()
		if next == nil {
			return nil
		}
		if next.kind == progressorv1.TaskType_TASK_TYPE_REMOVE {
			p.remove()
			return nil
		}
		_, _ = p.run(ctx, next) // p records the outcome
	}
	return ErrEndless
}

func (p *Process) takeDue() *task {
	if p.status != process.StatusRunning {
		return nil
	}
	if p.ending != nil {
		return p.takeEnding()
	}
	for _, list := range []*[]*task{&p.waiting, &p.timers} {
		if i := soonest(*list); i >= 0 && !(*list)[i].at().After(p.now) {
			next := (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return next
		}
	}
	return nil
}

// takeEnding returns the CANCEL task if it may run now. After the grace period, it ends the process
// instead.
func (p *Process) takeEnding() *task {
	if !p.now.Before(p.graceEnd) {
		failure := processor.Fail(process.ReasonGraceExpired, "%s", process.GraceExpiredMessage).Failure
		p.trace(p.ending, progressorv1.TaskStatus_TASK_STATUS_ERROR,
			func(ended *progressorv1.Task) { ended.Failure = failure })
		p.endWith(process.StatusCancelled)
		return nil
	}
	if p.ending.at().After(p.now) {
		return nil
	}
	return p.ending
}

// nextDue returns when the next task may run.
func (p *Process) nextDue() (time.Time, bool) {
	if p.status != process.StatusRunning {
		return time.Time{}, false
	}
	if p.ending != nil {
		if p.ending.at().After(p.graceEnd) {
			return p.graceEnd, true
		}
		return p.ending.at(), true
	}
	all := slices.Concat(p.waiting, p.timers)
	i := soonest(all)
	if i < 0 {
		return time.Time{}, false
	}
	return all[i].at(), true
}

// soonest returns the index of the task that may run first, or -1.
func soonest(tasks []*task) int {
	found := -1
	for i, t := range tasks {
		if found < 0 || cmp.Or(t.at().Compare(tasks[found].at()), cmp.Compare(t.id, tasks[found].id)) < 0 {
			found = i
		}
	}
	return found
}

// run makes one attempt: it calls the processor and applies its answer.
func (p *Process) run(ctx context.Context, t *task) ([]byte, error) {
	t.attempt++
	p.fencing++
	resp, err := p.attempt(ctx, t)
	if err == nil {
		err = processor.Check(t.kind, resp)
	}
	if err != nil {
		return nil, p.fail(t, processor.FailureOf(err))
	}
	switch outcome := resp.GetOutcome().(type) {
	case *progressorv1.ProcessResponse_Rejection:
		return nil, p.reject(t, outcome.Rejection)
	case *progressorv1.ProcessResponse_Failure:
		return nil, p.fail(t, outcome.Failure)
	default:
		result := proto.CloneOf(resp.GetResult())
		rejection := takeOwnReply(t, result)
		failure := p.badReplies(result)
		if failure == nil {
			failure = p.tooManyTimers(result)
		}
		if failure != nil {
			return nil, p.fail(t, failure)
		}
		p.apply(t, result, rejection)
		if rejection != nil {
			return nil, &processor.RejectionError{Rejection: rejection}
		}
		return result.GetResponse(), nil
	}
}

func (p *Process) processRequest(t *task) *progressorv1.ProcessRequest {
	shown := p.snapshot()
	shown.History, shown.Range = p.shownHistory(t.request.historyRange), t.request.historyRange
	req := &progressorv1.ProcessRequest{
		Type: t.kind, Args: slices.Clone(t.args), Process: shown, TaskId: t.id, Attempt: t.attempt,
		FencingToken:   p.fencing,
		IdempotencyKey: t.request.idempotencyKey, Context: slices.Clone(t.request.context), TimerName: t.timerName,
		Deadline: timestamppb.New(p.now.Add(process.DefaultStepTimeout)), ScheduledTime: timestamppb.New(t.due),
		Child: proto.CloneOf(t.child),
	}
	if t.kind == progressorv1.TaskType_TASK_TYPE_CANCEL {
		req.CancelReason, req.Deadline = p.cancelled, timestamppb.New(p.graceEnd)
	}
	return req
}

// apply applies a result. rejection is the result's reply to t itself, or nil.
func (p *Process) apply(t *task, result *progressorv1.Result, rejection *progressorv1.Rejection) {
	t.stored = append(t.stored, p.appendState(t, result)...)
	p.commands = append(p.commands, result.GetCommands()...)
	p.reply(result)
	if result.GetDeferResponse() {
		p.open = append(p.open, t)
	} else {
		p.trace(t, progressorv1.TaskStatus_TASK_STATUS_FINISHED, func(ended *progressorv1.Task) {
			ended.Response, ended.Rejection = result.GetResponse(), rejection
		})
	}
	if t.kind == progressorv1.TaskType_TASK_TYPE_REPAIR {
		p.restore(result)
	}
	p.setTimers(t, result)
	_, removes := result.GetAction().(*progressorv1.Result_Remove)
	if t.kind == progressorv1.TaskType_TASK_TYPE_CANCEL && !removes {
		p.endWith(process.StatusCancelled)
		return
	}
	switch result.GetAction().(type) {
	case *progressorv1.Result_Remove:
		p.remove()
	case *progressorv1.Result_Complete:
		p.endWith(process.StatusCompleted)
	default:
		p.settleStatus(process.StatusRunning)
	}
}

// appendState stores the events, state and metadata of a result or checkpoint.
func (p *Process) appendState(t *task, result *progressorv1.Result) []*progressorv1.Event {
	events := p.appendEvents(t, result)
	if result.AuxState != nil {
		p.state.AuxState = result.GetAuxState()
	}
	if result.GetMetadata() != nil {
		p.state.Metadata = result.GetMetadata()
	}
	return events
}

func (p *Process) appendEvents(t *task, result *progressorv1.Result) []*progressorv1.Event {
	made := result.GetEvents()
	events := make([]*progressorv1.Event, len(made))
	if result.GetRestartHistory() {
		p.history, p.state.FirstEventId, p.state.HistoryRestartedTime = nil, p.state.GetLastEventId()+1,
			timestamppb.New(p.now)
	}
	for i, event := range made {
		timestamp := event.GetTimestamp()
		if timestamp == nil {
			timestamp = timestamppb.New(p.now)
		}
		events[i] = &progressorv1.Event{
			EventId: p.state.GetLastEventId() + int64(i) + 1, TaskId: t.id, Timestamp: timestamp,
			Metadata: event.GetMetadata(), Payload: event.GetPayload(),
		}
	}
	p.history = append(p.history, events...)
	p.state.LastEventId += int64(len(events))
	return events
}

func (p *Process) setTimers(t *task, result *progressorv1.Result) {
	switch action := result.GetAction().(type) {
	case *progressorv1.Result_SetTimer:
		p.setTimer(t, action.SetTimer)
	case *progressorv1.Result_UnsetTimer:
		p.timers = nil
	}
	for _, timer := range result.GetNamedTimers() {
		p.setTimer(t, timer)
	}
	for _, name := range result.GetUnsetNamedTimers() {
		p.timers = dropTimer(p.timers, name)
	}
}

func (p *Process) setTimer(setBy *task, timer *progressorv1.SetTimer) {
	due := p.now
	if at := timer.GetAt(); at != nil && at.AsTime().After(due) {
		due = at.AsTime()
	}
	if after := timer.GetAfter().AsDuration(); after > 0 {
		due = p.now.Add(after)
	}
	kind := progressorv1.TaskType_TASK_TYPE_TIMEOUT
	if timer.GetRemove() {
		kind = progressorv1.TaskType_TASK_TYPE_REMOVE
	}
	set := p.newTask(kind, nil, request{context: setBy.request.context})
	set.timerName, set.due = timer.GetName(), due
	p.timers = append(dropTimer(p.timers, timer.GetName()), set)
}

func dropTimer(timers []*task, name string) []*task {
	return slices.DeleteFunc(timers, func(t *task) bool { return t.timerName == name })
}

// tooManyTimers returns a failure if the result leaves too many timers pending, else nil.
func (p *Process) tooManyTimers(result *progressorv1.Result) *progressorv1.Failure {
	names := map[string]bool{}
	for _, t := range p.timers {
		names[t.timerName] = true
	}
	for _, timer := range result.GetNamedTimers() {
		names[timer.GetName()] = true
	}
	for _, name := range result.GetUnsetNamedTimers() {
		delete(names, name)
	}
	if len(names) <= process.MaxTimers {
		return nil
	}
	return processor.Fail(process.ReasonBadResponse, "at most %d timers may be pending (got %d)", process.MaxTimers,
		len(names)).Failure
}

func (p *Process) reject(t *task, rejection *progressorv1.Rejection) error {
	p.trace(t, progressorv1.TaskStatus_TASK_STATUS_FINISHED,
		func(ended *progressorv1.Task) { ended.Rejection = rejection })
	if t.kind == progressorv1.TaskType_TASK_TYPE_INIT {
		p.remove()
	}
	return &processor.RejectionError{Rejection: rejection}
}

// fail retries a timer, a NOTIFY or a CANCEL according to the retry policy. If there is no retry,
// the process becomes CANCELLED after a CANCEL, and ERROR after any other task.
func (p *Process) fail(t *task, failure *progressorv1.Failure) error {
	timer := t.kind == progressorv1.TaskType_TASK_TYPE_TIMEOUT
	cancels := t.kind == progressorv1.TaskType_TASK_TYPE_CANCEL
	if timer || cancels || t.kind == progressorv1.TaskType_TASK_TYPE_NOTIFY {
		if wait, again := p.settings.retry.Next(t.attempt, failure.GetReason(), failure.GetNonRetryable(), 0.5); again {
			t.retryTime = p.now.Add(wait)
			switch {
			case timer:
				p.timers = append(p.timers, t)
			case !cancels: // a CANCEL stays where it is
				p.waiting = append(p.waiting, t)
			}
			return &processor.FailureError{Failure: failure}
		}
	}
	p.trace(t, progressorv1.TaskStatus_TASK_STATUS_ERROR, func(ended *progressorv1.Task) { ended.Failure = failure })
	switch {
	case cancels:
		p.endWith(process.StatusCancelled)
	case p.status != process.StatusError:
		p.state.Detail, p.state.CorruptedBy = failure.GetMessage(), t.id
		p.broken = p.timers
		if timer {
			p.broken = append([]*task{t}, p.broken...)
		}
		p.timers, p.waiting = nil, nil
		p.cancelOpen()
		p.settleStatus(process.StatusError)
	}
	return &processor.FailureError{Failure: failure}
}

// restore brings back the timers that an error has cancelled, except the default timer if the
// result has an action.
func (p *Process) restore(result *progressorv1.Result) {
	for _, t := range p.broken {
		again := p.newTask(t.kind, nil, t.request)
		again.timerName, again.due = t.timerName, t.due
		p.timers = append(p.timers, again)
	}
	p.broken = nil
	p.state.Detail, p.state.CorruptedBy = "", 0
	if result.GetAction() != nil {
		p.timers = dropTimer(p.timers, "")
	}
}

func (p *Process) endWith(status process.Status) {
	p.timers, p.waiting, p.broken, p.ending = nil, nil, nil, nil
	p.cancelOpen()
	p.settleStatus(status)
}

func (p *Process) settleStatus(status process.Status) {
	if status != p.status {
		p.previous, p.status = p.status, status
		p.state.StatusChangedTime = timestamppb.New(p.now)
	}
}

// remove removes the process. Trace still returns its ended tasks.
func (p *Process) remove() {
	p.exists, p.status, p.previous = false, "", ""
	p.timers, p.waiting, p.broken, p.history, p.ending = nil, nil, nil, nil, nil
	p.cancelOpen()
	clear(p.answers)
	p.state = &progressorv1.Process{Namespace: p.state.GetNamespace(), ProcessId: p.state.GetProcessId(),
		FirstEventId: 1}
}
