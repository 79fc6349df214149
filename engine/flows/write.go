package flows

import (
	"time"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// maxUnwritten is how long the row of a run may stay unchanged while its steps change. The row is
// not written for each step, because each write of updated_time changes all indexes of flow_runs.
const maxUnwritten = time.Minute

// showsChange reports whether the row of the run must be written because a step has changed. If so,
// it sets Written to now.
func (t *task) showsChange() bool {
	last := t.state.Created
	if t.state.Written.After(last) {
		last = t.state.Written
	}
	if t.state.Run.Mode == flow.ModeEnded || len(t.order) == 0 || t.now.Sub(last) < maxUnwritten {
		return false
	}
	t.state.Written = t.now
	return true
}

// shownStatus returns the status of the run for clients, as far as the run knows it. An active run
// is running if an open step is neither a job nor a wait. Otherwise, it is queued if it has an open
// job, because the run does not know whether a worker has taken the job. It is also queued if no
// step is open. If all open steps are waits, it waits.
func (t *task) shownStatus(status flows.Status) string {
	if status != flows.Active {
		return string(status)
	}
	waits, queued := false, false
	for step := range t.template.Steps {
		switch s := &t.template.Steps[step]; {
		case t.state.Run.StatusOf(step) != flow.Running:
		case s.Action == flow.ActionWait:
			waits = true
		case t.isJob(stepRef{step, noIndex}):
			queued = true
		default:
			return "running"
		}
	}
	if waits && !queued {
		return "waiting_worker"
	}
	return "queued"
}

// statusEvent adds an event if the status of the run has changed. The run was running if a worker
// had a job that ends in this task.
func (t *task) statusEvent(now *flows.Change) {
	from, to := t.before.shown, t.shownStatus(now.Status)
	if from == to {
		return
	}
	for _, attempt := range t.attempts {
		if from == "queued" && attempt.taken {
			from = "running"
		}
	}
	message := now.BlockedOn
	if message == "" && now.Status != flows.Active { // no message while steps of a failed run are still running
		failure, _ := wire.Failure(now.Failure) // it was encoded by finish
		message = failureText(failure)
	}
	t.event(eventStatus, stepRef{noIndex, noIndex}, from, to, message)
}

// write adds the changes of rows, events and messages to the result of the task.
func (t *task) write(now *flows.Change) {
	if t.cancels {
		now.CancelReason = t.state.Cancel
	}
	ended := t.state.Run.Mode == flow.ModeEnded && (t.created != nil || now.Status != t.before.row.Status)
	switch {
	case t.created != nil:
		t.created.Change = *now
		t.AddEffects(t.created)
	case now.Status != t.before.row.Status || now.BlockedOn != t.before.row.BlockedOn ||
		now.Attempt != t.before.row.Attempt || t.cancels ||
		now.TemplateVersion != t.before.row.TemplateVersion || t.showsChange():
		t.AddEffects(now)
	}
	t.statusEvent(now)
	if ended {
		t.recordEnd(now.Status)
	}
	for _, p := range t.order {
		t.AddEffects(t.rows[p])
	}
	for _, e := range t.events {
		t.AddEffects(e)
	}
	if t.state.Trace != "" {
		for n := range t.messages {
			t.messages[n].Context = []byte(t.state.Trace)
		}
	}
	t.Send(t.messages...)
	if ended && t.state.Key != "" {
		t.AddEffects(flows.Leave(t.state.Type, t.state.Key, t.runID)...)
	}
}
