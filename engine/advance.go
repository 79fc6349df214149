package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// A flow run that waits for one job usually does not change in any other way until the job ends.
// Therefore, the node that runs the job decides in advance what the run does next. It stores the
// end of the job and this decision in one transaction. If the run has changed, only the end is
// stored, and the run decides in a task of its own (see EndSteps). A run of 3 jobs in sequence
// needs 5 transactions instead of 8.

// maxAdvanceState is the maximum state size, in bytes, of a run that decides in advance. The state
// is compared with the stored one.
const maxAdvanceState = 16 << 10

// errReadsAhead is returned when a run that decides in advance tries to read.
var errReadsAhead = errors.New("a run that decides in advance cannot read")

// waitingRun is a run that waits for the job that its node runs next.
type waitingRun struct {
	claim *storage.Claim // the reserved task that reports the end of the job
	args  []byte         // the args with which the end is reported
}

// waitingRunOf returns the run that has started saved.Next. It returns nil if the run waits for
// more than that job, or if its state is too large. c and d are the claim and the stored decision
// of the run.
func waitingRunOf(c *storage.Claim, d *decision, saved *storage.Saved) *waitingRun {
	if saved.Reserved.FencingToken == 0 || len(d.completion.Messages) != 1 {
		return nil
	}
	claim, _ := followingClaim(c, &d.completion, &storage.Claim{
		Namespace: c.Namespace, ProcessID: c.ProcessID, TaskID: saved.Reserved.TaskID,
		TaskType: process.TaskNotify, Attempt: 1, FencingToken: saved.Reserved.FencingToken,
		Status: process.StatusRunning, RunningTime: saved.Now, FirstEventID: c.FirstEventID,
	})
	if len(claim.AuxState) > maxAdvanceState {
		return nil
	}
	return &waitingRun{claim, d.completion.Messages[0].NotifyParentArgs}
}

// advance decides what a run does after the end of its job. It returns this decision, and adds it
// to the decision d of the job. It returns nil if no run waits for the job, or if the run has to
// decide in a task of its own. The latter is necessary, for example, if the decision reads from the
// database, because the result of the job must not wait for a read. began is the start of that
// attempt.
func (e *Engine) advance(ctx context.Context, ns *namespace, t *turn, d *decision, began time.Time) *decision {
	c := &d.completion
	run := t.run
	if run == nil || !c.MayContinue || c.Outcome != storage.Completed {
		return nil
	}
	child, err := storage.EncodeChildEnd(storage.ChildEnd{
		Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID,
		Status:   progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED.String(),
		Response: c.Response, Args: run.args, WorkerID: c.AnsweredBy, RunningTime: t.claim.RunningTime,
	})
	if err != nil {
		return nil
	}
	run.claim.Child, run.claim.RunningTime = child, t.claim.RunningTime.Add(time.Since(began))
	run.claim.ScheduledTime = run.claim.RunningTime
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errReadsAhead)
	next, _, released := e.attemptAndDecide(ctx, ns, &turn{claim: run.claim})
	next.completion.Continuation = c.Continuation
	if released || !next.completion.MayAdvance() {
		return nil
	}
	e.store.RecordNumbers(run.claim.TaskID, run.claim.FencingToken)
	c.Advance = &storage.Advance{Completion: &next.completion, State: run.claim.AuxState}
	return next
}

// afterAdvance notifies everything that depends on the result of a run that was stored with the end
// of its job. began is the time at which storing began.
func (e *Engine) afterAdvance(ns *namespace, run *waitingRun, d *decision, saved *storage.Saved, began time.Time) {
	if saved.ResponseLost { // only the database knows whether the result is stored
		e.waiters.recheck(d.completion.Key)
		e.watchers.recheck(d.completion.Key)
	}
	if !saved.Advanced {
		return
	}
	own := storage.Saved{Status: process.StatusRunning, Now: saved.Now, TimerDelay: -1}
	if d.completion.Outcome == storage.Completed {
		own.Status = process.StatusCompleted
	}
	e.afterSave(ns, run.claim, d, own, began)
}
