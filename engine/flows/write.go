package flows

import (
	"time"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/storage/flows"
)

// maxUnwritten is how long the row of a run may stay unchanged while its steps change. The row is
// not written for each step, because each write of updated_time changes all indexes of flow_runs.
const maxUnwritten = time.Minute

// showsChange reports whether the row of the run is to be written because a step has changed.
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

// write adds the changes of rows, events and messages to the result of the task.
func (t *task) write(now *flows.Change) {
	a := t.attempt
	nowhere := place{noIndex, noIndex}
	if t.cancels {
		now.CancelReason = t.state.Cancel
	}
	ended := t.state.Run.Mode == flow.ModeEnded && (t.created != nil || now.Status != t.before.Status)
	switch {
	case t.created != nil:
		t.created.Change = *now
		a.AddEffects(t.created)
		t.event(eventStatus, nowhere, "", string(now.Status), now.BlockedOn)
	case now.Status != t.before.Status || now.BlockedOn != t.before.BlockedOn || now.Attempt != t.before.Attempt || t.cancels || now.TemplateVersion != t.before.TemplateVersion:
		a.AddEffects(now)
		if now.Status != t.before.Status {
			t.event(eventStatus, nowhere, string(t.before.Status), string(now.Status), now.BlockedOn)
		}
	case t.showsChange():
		a.AddEffects(now)
	}
	if ended {
		t.over(now.Status)
	}
	for _, p := range t.order {
		a.AddEffects(t.rows[p])
	}
	for _, e := range t.events {
		a.AddEffects(e)
	}
	if t.state.Trace != "" {
		for n := range t.messages {
			t.messages[n].Context = []byte(t.state.Trace)
		}
	}
	a.Send(t.messages...)
	if ended && t.state.Key != "" {
		a.AddEffects(flows.Leave(t.state.Type, t.state.Key, t.runID)...)
	}
}
