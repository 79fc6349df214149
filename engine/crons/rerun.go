package crons

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/crons"
)

// maxReruns limits how many reruns of a cron can run at the same time.
const maxReruns = 1000

// rerunFire starts a run for a fire that was skipped, or whose run failed, timed out or was
// cancelled. The run has the original fire time. It starts immediately, and the policies ignore it.
func (t *task) rerunFire(fire time.Time) error {
	s := t.state
	if t.keptPaused {
		return processor.Reject(rejectedPaused, "no run can start while the namespace is paused")
	}
	reruns := 0
	for _, run := range s.Independent {
		if !run.Backfill {
			reruns++
		}
	}
	if reruns >= maxReruns {
		return processor.Reject(rejectedFull, "at most %d reruns of a cron can run at a time (%d are running)",
			maxReruns, reruns)
	}
	row, err := crons.Get(t.Ctx, t.crons.store, t.Key.Namespace, s.definition.GetCronId(), fire)
	if err != nil {
		return err
	}
	before := strings.ToLower(row.Decision)
	switch at := fire.UTC().Format(time.RFC3339Nano); {
	case row.EndedTime == nil:
		return processor.Reject(rejectedStatus, "the fire of %s is %s: cancel it first", at, row.Status)
	case row.Status == "SUCCESS":
		return processor.Reject(rejectedStatus, "the fire of %s has succeeded: trigger the cron instead", at)
	case row.Count > 1:
		return processor.Reject(rejectedStatus,
			"the ledger row of %s covers %d fire times: backfill that period instead", at, row.Count)
	}
	run := outgoing{Fire: fire, Attempt: row.Attempt + 1}
	if row.Attempt > 0 {
		before, run.Rerun = strings.ToLower(row.Status), run.Attempt
	}
	if s.definition.GetTarget().GetStartRun() != nil &&
		len(attemptID(s.definition.GetCronId(), fire, run.Rerun)) > maxFlowRunID {
		return processor.Reject(rejectedStatus,
			"the ID of the run would have more than %d bytes: the ID of the cron is too long", maxFlowRunID)
	}
	reason := "rerun; the fire was " + before
	if row.Reason != "" && row.Attempt == 0 {
		reason += ": " + row.Reason
	}
	if row.Attempt > 0 {
		reason = fmt.Sprintf("%s, in run %s", reason, row.ProcessID)
	}
	decided := cron.Fire{
		Time: fire, Status: cron.Running, Decision: cron.Fired, Reason: cut(reason), Attempt: run.Attempt,
		Manual: true, Count: 1,
	}
	t.row(crons.Fire{Fire: decided, Change: crons.Rerun, RunID: runID(s.definition, fire, run.Rerun)})
	s.Independent = append(s.Independent, independentRun{Fire: fire, Rerun: run.Rerun})
	s.Decisions[strings.ToLower(row.Decision)]--
	s.Decisions[cron.Fired.String()]++
	t.crons.metrics.decided(t, decided)
	t.start(run)
	return nil
}

// removeIndependent removes an independent run that has ended, and reports whether it was running.
func (t *task) removeIndependent(fire time.Time, rerun int32) bool {
	n := t.state.independentRun(fire)
	if n < 0 || t.state.Independent[n].Rerun != rerun {
		return false
	}
	t.state.Independent = slices.Delete(t.state.Independent, n, n+1)
	return true
}
