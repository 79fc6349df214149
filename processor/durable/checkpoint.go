package durable

import (
	"errors"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A task that stores checkpoints runs steps for at most maxRunOn or a tenth of the time limit of
// its attempt, whichever is shorter. It leaves the next ones to another task. Calls then do not
// wait for long, and each step has most of the step timeout.
const maxRunOn = time.Second

// checkpoint stores the new entries now, so that more steps may run in this task. It returns false
// if the entries have to be stored by the result instead.
func (t *task) checkpoint() (stored bool, err error) {
	if !t.mayCheckpoint() {
		return false, nil
	}
	result := processor.Result()
	addEvents(result, t.journal.unsaved())
	t.effects.addTo(result)
	t.yields, err = processor.Checkpoint(t.ctx, result)
	if errors.Is(err, processor.ErrNoCheckpoints) { // the lease comes from an older engine
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.journal.saved, t.journal.bytes = len(t.journal.entries), 0
	t.effects.published, t.effects.metadataStored = nil, true
	return true, nil
}

// mayCheckpoint reports whether this task may store its new entries and run on. A checkpoint cannot
// set timers, start children or reply to calls. After a failure, each step has its own task, so
// that one that fails again does not use up the attempts of the others.
func (t *task) mayCheckpoint() bool {
	switch {
	case processor.CheckpointerOf(t.ctx) == nil || len(t.effects.timers)+len(t.effects.unset) > 0,
		len(t.effects.commands)+len(t.effects.replies) > 0:
		return false
	case t.request.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL:
		return true // it cannot continue in another task
	}
	limit := maxRunOn
	if deadline, ok := t.ctx.Deadline(); ok {
		limit = min(limit, deadline.Sub(t.began)/10)
	}
	return t.request.GetAttempt() <= 1 && !t.yields && time.Since(t.began) < limit
}
