package crons

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
)

// task is one task of a cron's process, with everything that it changes.
type task struct {
	*actor.Task
	crons      *Crons
	state      *state
	cron       cron.Cron
	rows       []*crons.Fire
	byFire     map[int64]*crons.Fire // rows by fire time in microseconds
	deletes    bool
	keptPaused bool      // the namespace is paused
	resumed    bool      // the fire times to decide were due during a pause
	newest     time.Time // the newest due fire time; all earlier ones count as catch-up
}

// actor returns the processor of crons.
func (c *Crons) actor() *actor.Actor[*task] {
	return &actor.Actor[*task]{
		Noun: "a cron", New: func(t *actor.Task) *task {
			return &task{Task: t, crons: c, byFire: map[int64]*crons.Fire{}}
		},
		Read: (*task).read, Init: (*task).execute, Call: (*task).execute, Timer: (*task).timerFired,
		Notify: (*task).runEnded, Done: (*task).done,
	}
}

func (t *task) read() (err error) {
	t.state, err = decode(t.Request.GetProcess().GetAuxState(), actor.Decode)
	if err == nil && t.state.Version > stateVersion {
		err = actor.NewerState(fmt.Sprintf("version %d", t.state.Version))
	}
	if err == nil {
		t.cron, err = t.state.compile()
	}
	return actor.BadState(err)
}

// timerFired handles a timer: it ends runs that are past their deadline, continues a backfill, and
// decides the fire times that are due.
func (t *task) timerFired() error {
	t.state.Timer = time.Time{}
	for _, d := range slices.Clone(t.state.Deadlines) {
		if !d.Due.After(t.Now) {
			rerun := t.state.rerunOf(d.Fire)
			t.end(d.Fire, rerun, cron.Timeout, passedTimeout(t.state.definition.GetPolicy().GetTimeout().AsDuration()))
			t.send(outgoing{Fire: d.Fire, Rerun: rerun, Cancel: cancelLate})
		}
	}
	if err := t.backfill(); err != nil {
		return err
	}
	if len(t.state.Unsent) < maxOutgoing { // unsent messages are sent first
		t.applyStep(t.cron.Tick(t.state.Cron, t.Now))
	}
	return nil
}

func passedTimeout(limit time.Duration) string {
	return "the run exceeded its timeout of " + durations.Exact(limit)
}

// runEndArgs contains the args of the NOTIFY task that reports the end of a run.
type runEndArgs struct {
	Fire  time.Time `json:"fire"`
	Rerun int32     `json:"rerun,omitempty"` // see attemptID
}

// runEnded handles the end of a run.
func (t *task) runEnded() error {
	child := t.Request.GetChild()
	var run runEndArgs
	if err := json.Unmarshal(t.Request.GetArgs(), &run); err != nil || child == nil {
		return processor.Reject(processor.ReasonBadArgs, "a cron accepts messages only from its own runs")
	}
	status, detail, err := t.crons.endOf(t.Ctx, child)
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
		t.undoStart(run.Fire, run.Rerun, detail)
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
	t.applyStep(t.cron.Ended(t.state.Cron, fire, status, t.Now, t.Now))
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

// undoStart undoes the start of a run that was refused because another run holds its scope.
func (t *task) undoStart(fire time.Time, rerun int32, reason string) {
	s := t.state
	if t.removeIndependent(fire, rerun) {
		t.refuseRow(fire, rerun, cron.Fired, reason)
		return
	}
	if rerun != 0 || !slices.ContainsFunc(s.Cron.Running, fire.Equal) {
		return
	}
	t.refuseRow(fire, rerun, t.decisionOf(fire), reason)
	t.applyStep(t.cron.Refused(s.Cron, fire, t.Now))
}

// decisionOf returns the decision that started a scheduled or triggered run.
func (t *task) decisionOf(fire time.Time) cron.Decision {
	if run := t.state.Cron.Started(fire); run != nil && run.Queued {
		return cron.Queued
	}
	return cron.Fired
}

// refuseRow changes the row of a fire to skipped. was is the previous decision of the fire. A rerun
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
	if step.Next.Equal(t.Now) { // newer fire times follow
		t.newest = t.Now
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
	if timeout := t.state.definition.GetPolicy().GetTimeout().AsDuration(); timeout > 0 {
		t.state.Deadlines = append(t.state.Deadlines, deadline{Fire: run.Fire, Due: t.Now.Add(timeout)})
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

// Limits for the messages of one result. The next task sends the rest.
const (
	maxOutgoing      = 200
	maxOutgoingBytes = 2 << 20
)

// done completes the result of the task.
func (t *task) done() error {
	s := t.state
	size, sent := 0, 0
	for ; sent < len(s.Unsent) && sent < maxOutgoing && (sent == 0 || size < maxOutgoingBytes); sent++ {
		m, err := t.message(s.Unsent[sent])
		if err != nil {
			return err
		}
		size += len(m.Args) + len(m.Metadata)
		t.Send(m)
	}
	s.Unsent = slices.Clone(s.Unsent[sent:])
	for _, row := range t.rows {
		t.AddEffects(row)
	}
	if t.deletes {
		t.Result.Remove()
		return nil
	}
	t.MoveTimer(&s.Timer, s.timer(t.Now))
	text, err := s.encode()
	t.Result.AuxState(text)
	return err
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

// maxTextBytes is the maximum length of a text in the ledger, in bytes.
const maxTextBytes = 4000
