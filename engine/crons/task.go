package crons

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
)

// task is one task of a cron's process, with everything that it changes.
type task struct {
	crons      *Crons
	request    *progressorv1.ProcessRequest
	attempt    *engine.Attempt
	now        time.Time
	state      *state
	cron       cron.Cron
	rows       []*crons.Fire
	byFire     map[int64]*crons.Fire // rows by fire time in microseconds
	answer     any                   // the response to a command, encoded as JSON
	deletes    bool
	keptPaused bool           // the namespace is paused
	resumed    bool           // the fire times that are decided were due in a pause
	newest     time.Time      // the newest fire time that is due; earlier ones are caught up
	metadata   map[string]any // new metadata of the process; nil if it does not change
}

// process runs a task of a cron.
func (c *Crons) process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	a := engine.AttemptOf(ctx)
	t := &task{
		crons: c, request: r, attempt: a, now: a.Now().UTC().Truncate(time.Microsecond),
		byFire: map[int64]*crons.Fire{},
	}
	var err error
	if r.GetType() != progressorv1.TaskType_TASK_TYPE_INIT {
		if err = t.read(); engine.IsNewerState(err) {
			return nil, err
		} else if err != nil {
			return nil, processor.Fail(processor.ReasonBadState, "%w", err).NonRetryable()
		}
	}
	switch r.GetType() {
	case progressorv1.TaskType_TASK_TYPE_INIT, progressorv1.TaskType_TASK_TYPE_CALL:
		err = t.carryOut(ctx)
	case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
		t.state.Timer = time.Time{}
		err = t.timerFired(ctx)
	case progressorv1.TaskType_TASK_TYPE_NOTIFY:
		err = t.runEnded(ctx)
	case progressorv1.TaskType_TASK_TYPE_CANCEL:
		return processor.Result().Done()
	default:
		err = processor.Fail(processor.ReasonNotHandled, "a cron does not accept tasks of type %s",
			r.GetType()).NonRetryable()
	}
	if err != nil {
		return nil, err
	}
	return t.done()
}

func (t *task) read() (err error) {
	if t.state, err = decodeToStore(t.request.GetProcess().GetAuxState()); err != nil {
		return err
	}
	t.cron, err = t.state.compile()
	return err
}

// timerFired handles a timer: it ends runs that are past their deadline, continues a backfill, and
// decides the fire times that are due.
func (t *task) timerFired(ctx context.Context) error {
	for _, d := range slices.Clone(t.state.Deadlines) {
		if !d.Due.After(t.now) {
			rerun := t.state.rerunOf(d.Fire)
			t.end(d.Fire, rerun, cron.Timeout, passedTimeout(durationOf(t.state.definition.GetPolicy().GetTimeout())))
			t.send(outgoing{Fire: d.Fire, Rerun: rerun, Cancel: cancelLate})
		}
	}
	if err := t.backfill(ctx); err != nil {
		return err
	}
	if len(t.state.Unsent) < maxOutgoing { // otherwise the unsent messages are sent first
		t.applyStep(t.cron.Tick(t.state.Cron, t.now))
	}
	return nil
}

func passedTimeout(limit time.Duration) string {
	return "the run exceeded its timeout of " + durations.Exact(limit)
}

// runEndArgs is the args of the NOTIFY task that reports the end of a run.
type runEndArgs struct {
	Fire  time.Time `json:"fire"`
	Rerun int32     `json:"rerun,omitempty"` // see attemptID
}

// runEnded handles the end of a run.
func (t *task) runEnded(ctx context.Context) error {
	child := t.request.GetChild()
	var run runEndArgs
	if err := json.Unmarshal(t.request.GetArgs(), &run); err != nil || child == nil {
		return processor.Reject(processor.ReasonBadArgs, "a cron accepts messages only from its own runs")
	}
	status, detail, err := t.crons.endOf(ctx, child)
	if err != nil {
		return err
	}
	if n := slices.IndexFunc(t.state.Replaced, run.Fire.Equal); n >= 0 {
		t.state.Replaced = slices.Delete(t.state.Replaced, n, n+1)
		if status == cron.Skipped {
			t.refuseRow(run.Fire, run.Rerun, t.decisionOf(run.Fire), detail)
		} else {
			t.endRow(run.Fire, status, detail)
		}
		return nil
	}
	if status == cron.Skipped {
		t.refused(run.Fire, run.Rerun, detail)
		return nil
	}
	t.end(run.Fire, run.Rerun, status, detail)
	return nil
}

// end records the end of a run. Later ends of the same run are ignored.
func (t *task) end(fire time.Time, rerun int32, status cron.Status, detail string) {
	if t.removeIndependent(fire, rerun) {
		t.endRow(fire, status, detail)
		return
	}
	if rerun != 0 || !slices.ContainsFunc(t.state.Cron.Running, fire.Equal) {
		return
	}
	t.endRow(fire, status, detail)
	t.applyStep(t.cron.Ended(t.state.Cron, fire, status, t.now, t.now))
	if t.state.Cron.Failures > 0 {
		t.crons.metrics.failed(t)
	}
}

// endRow records the end of a run, or of a waiting fire, in the ledger.
func (t *task) endRow(fire time.Time, status cron.Status, detail string) {
	t.state.Deadlines = slices.DeleteFunc(t.state.Deadlines, func(d deadline) bool { return d.Fire.Equal(fire) })
	t.row(crons.Fire{
		Fire: cron.Fire{Time: fire, Status: status, Decision: cron.Fired, Count: 1}, Change: crons.Ended,
		Detail: cut(detail),
	})
	t.crons.metrics.ended(t, status)
}

// refused undoes the start of a run that was refused because of another run of its scope.
func (t *task) refused(fire time.Time, rerun int32, reason string) {
	s := t.state
	if t.removeIndependent(fire, rerun) {
		t.refuseRow(fire, rerun, cron.Fired, reason)
		return
	}
	if rerun != 0 || !slices.ContainsFunc(s.Cron.Running, fire.Equal) {
		return
	}
	t.refuseRow(fire, rerun, t.decisionOf(fire), reason)
	t.applyStep(t.cron.Refused(s.Cron, fire, t.now))
}

// decisionOf returns the decision that started a scheduled or triggered run.
func (t *task) decisionOf(fire time.Time) cron.Decision {
	if run := t.state.Cron.Started(fire); run != nil && run.Queued {
		return cron.Queued
	}
	return cron.Fired
}

// refuseRow changes the row of a fire to skipped. was is the decision of the fire before. A rerun
// keeps its attempt, because the ID of the next rerun depends on it.
func (t *task) refuseRow(fire time.Time, rerun int32, was cron.Decision, reason string) {
	s := t.state
	s.Decisions[was.String()]--
	s.Decisions[cron.SkippedConcurrency.String()]++
	s.Deadlines = slices.DeleteFunc(s.Deadlines, func(d deadline) bool { return d.Fire.Equal(fire) })
	t.row(crons.Fire{
		Fire: cron.Fire{
			Time: fire, Status: cron.Skipped, Decision: cron.SkippedConcurrency, Attempt: rerun, Reason: cut(reason),
			Count: 1,
		}, Change: crons.Refused,
	})
	t.crons.metrics.refused(t)
}

// applyStep applies a step that package cron has decided.
func (t *task) applyStep(step cron.Step) {
	s := t.state
	for _, start := range step.Starts {
		t.row(crons.Fire{
			Fire: cron.Fire{
				Time: start.Fire, Status: cron.Running, Decision: cron.Queued, Attempt: start.Attempt, Count: 1,
			},
			Change: crons.Started, RunID: runID(s.definition, start.Fire, 0),
		})
		t.start(outgoing{Fire: start.Fire, Attempt: start.Attempt})
	}
	t.newest = step.State.Decided
	if step.Next.Equal(t.now) { // newer ones follow
		t.newest = t.now
	}
	for _, fire := range step.Fires {
		row := crons.Fire{Fire: fire, Change: crons.Decided}
		row.Reason = cut(fire.Reason)
		if fire.Decision == cron.Fired {
			row.RunID = runID(s.definition, fire.Time, 0)
			t.start(outgoing{Fire: fire.Time, Attempt: fire.Attempt})
		}
		t.row(row)
		if s.Decisions == nil {
			s.Decisions = map[string]int64{}
		}
		s.Decisions[fire.Decision.String()] += fire.Count
		t.crons.metrics.decided(t, fire)
	}
	for _, fire := range step.Cancels {
		s.Deadlines = slices.DeleteFunc(s.Deadlines, func(d deadline) bool { return d.Fire.Equal(fire) })
		s.Replaced = append(s.Replaced, fire)
		if len(s.Replaced) > maxRuns {
			s.Replaced = s.Replaced[1:]
		}
		t.send(outgoing{Fire: fire, Cancel: cancelReplaced})
	}
	if step.Pause != "" {
		t.paused(step.Pause, "")
	}
	s.Cron, s.Next = step.State, step.Next
}

func (t *task) start(run outgoing) {
	t.send(run)
	if run.Fire.After(t.state.LastFire) {
		t.state.LastFire = run.Fire
	}
	if timeout := durationOf(t.state.definition.GetPolicy().GetTimeout()); timeout > 0 {
		t.state.Deadlines = append(t.state.Deadlines, deadline{Fire: run.Fire, Due: t.now.Add(timeout)})
	}
	if run.Attempt > 1 {
		t.crons.metrics.retried(t)
	}
}

func (t *task) send(e outgoing) { t.state.Unsent = append(t.state.Unsent, e) }

// row adds a change of the ledger. It merges changes of the same fire.
func (t *task) row(f crons.Fire) {
	f.CronID = t.state.definition.GetCronId()
	key := f.Time.UnixMicro()
	before, ok := t.byFire[key]
	if !ok {
		t.byFire[key] = &f
		t.rows = append(t.rows, &f)
		return
	}
	if before.Change != crons.Decided {
		*before = f
		return
	}
	before.Status, before.Detail = f.Status, f.Detail
	if f.Change == crons.Started {
		before.Attempt, before.RunID = f.Attempt, f.RunID
	}
}

// The limits of the messages of one result. The next task sends the rest.
const (
	maxOutgoing      = 200
	maxOutgoingBytes = 2 << 20
)

// done returns the result of the task.
func (t *task) done() (*progressorv1.ProcessResponse, error) {
	s, a := t.state, t.attempt
	result := processor.Result()
	size, sent := 0, 0
	for ; sent < len(s.Unsent) && sent < maxOutgoing && (sent == 0 || size < maxOutgoingBytes); sent++ {
		m, err := t.message(s.Unsent[sent])
		if err != nil {
			return nil, err
		}
		size += len(m.Args) + len(m.Metadata)
		a.Send(m)
	}
	s.Unsent = slices.Clone(s.Unsent[sent:])
	for _, row := range t.rows {
		a.AddEffects(row)
	}
	if t.answer != nil {
		result.JSONResponse(t.answer)
	}
	if t.metadata != nil {
		result.Metadata(t.metadata)
	}
	if t.deletes {
		return result.Remove().Done()
	}
	if at := s.timer(t.now); !at.Equal(s.Timer) {
		s.Timer = at
		if at.IsZero() {
			result.UnsetTimers()
		} else {
			result.SetTimerAt(at)
		}
	}
	text, err := s.encode()
	if err != nil {
		return nil, err
	}
	return result.AuxState(text).Done()
}

// message converts an outgoing message to its stored form.
func (t *task) message(e outgoing) (storage.Message, error) {
	key := runKey(t.state.definition, e.Fire, e.Rerun)
	switch {
	case e.Cancel == "":
	case t.state.definition.GetTarget().GetStartRun() != nil:
		return t.crons.flows.CancelMessage(key, cancelReasons[e.Cancel]), nil
	default:
		return storage.Message{Kind: storage.MessageCancel, Target: key, Reason: cancelReasons[e.Cancel]}, nil
	}
	return t.startOf(key, e)
}

// maxTextBytes is the longest text in the ledger, in bytes.
const maxTextBytes = 4000
