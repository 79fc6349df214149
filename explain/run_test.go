package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// TestRuns checks the description of runs: which step waits, for what, and how it can continue.
func TestRuns(t *testing.T) {
	run := func(r explain.Run) explain.State {
		return state(func(s *explain.State) { s.Process.ProcessID, s.Run = "~flow/A-2", &r }, waiting(timer(2, 160)))
	}
	open := func(p explain.Step) explain.State {
		p.ID = "approve"
		return run(explain.Run{Status: "active", Attempt: 1, Steps: []explain.Step{p}})
	}
	job := process.Key{Namespace: "shop", ProcessID: "~job/A-2/approve"}
	end := func(s explain.State, to process.Status) explain.State {
		s.Process.Status, s.Waiting = to, nil
		return s
	}
	for name, tt := range map[string]struct {
		state    explain.State
		waitsFor process.WaitsFor
		nextTime time.Time
		texts    []string
	}{
		"a person": {open(explain.Step{Index: -1, Wait: "HUMAN", Title: "Approve order A-2", Assignees: "sales",
			Due: at(160)}), process.WaitsForOperator, at(160),
			[]string{`Step approve waits for sales, "Approve order A-2", until 2026-11-20T12:02:40.000Z.`,
				"The answer, or the due time if there is none, at 2026-11-20T12:02:40.000Z (in 1m)",
				"To answer it, run progressor run complete shop A-2 approve --result …."}},
		"somebody outside": {open(explain.Step{Index: 3, Wait: "EXTERNAL"}), process.WaitsForOperator, time.Time{},
			[]string{"Item 3 of step approve waits for an external answer.",
				"progressor run complete shop A-2 approve --index 3 --wait-token … --result ….",
				"To see the token, run progressor run waits shop --run A-2."}},
		"a delay": {open(explain.Step{Index: -1, Due: at(160)}), process.WaitsForTime, at(160),
			[]string{"Step approve waits until 2026-11-20T12:02:40.000Z."}},
		"a worker": {
			open(explain.Step{Index: -1, Process: job, Status: process.StatusInit, WaitsFor: process.WaitsForPlace,
				Scheduled: at(90)}), process.WaitsForPlace, time.Time{},
			[]string{"has waited for a worker or a slot since",
				"To see more, run progressor explain shop '~job/A-2/approve'."}},
		"a constraint": {
			open(explain.Step{Index: -1, Process: job, Status: process.StatusInit,
				WaitsFor: process.WaitsForConstraint}), process.WaitsForConstraint, time.Time{},
			[]string{"waits for a constraint"}},
		"a job that runs": {open(explain.Step{Index: -1, Process: job, Status: process.StatusInit, WorkerID: "w1"}),
			process.WaitsForProcess, time.Time{}, []string{"Worker w1 has the job of step approve."}},
		"a job that is retried": {
			open(explain.Step{Index: -1, Process: job, Status: process.StatusInit, WaitsFor: process.WaitsForTime,
				Attempt: 2, Scheduled: at(130), Failure: "busy: come again."}),
			process.WaitsForTime, at(130),
			[]string{"Step approve failed in attempt 2 (busy: come again.).", "Attempt 3 at"}},
		"a job that has failed": {open(explain.Step{Index: -1, Process: job, Status: process.StatusError}),
			process.WaitsForOperator, time.Time{}, []string{"Step approve has failed."}},
		"a job that is suspended": {open(explain.Step{Index: -1, Process: job, Status: process.StatusSuspended}),
			process.WaitsForOperator, time.Time{}, []string{"is suspended"}},
		"a process": {
			open(explain.Step{Index: -1, Process: process.Key{Namespace: "shop", ProcessID: "A-2/approve"},
				Status: process.StatusRunning}), process.WaitsForProcess, time.Time{},
			[]string{"Step approve is active: A-2/approve executes it."}},
		"items": {open(explain.Step{Index: -1}), process.WaitsForProcess, time.Time{},
			[]string{"runs for each of its items"}},
		"a compensation": {open(explain.Step{Index: -1, Undoing: true}), process.WaitsForProcess, time.Time{},
			[]string{"Step approve is being compensated."}},
		"a cancel": {run(explain.Run{Status: "cancel_requested", CancelReason: "enough", More: true,
			Steps: []explain.Step{{ID: "ship", Index: -1, Process: job, WorkerID: "w1"}}}), process.WaitsForProcess,
			time.Time{},
			[]string{"The run is ending: enough. Worker w1 has", "To list them, run progressor run steps shop A-2."}},
		"its scope": {run(explain.Run{Status: "pending", BlockedOn: "scope: A-1"}), process.WaitsForConstraint,
			time.Time{}, []string{"waits for its scope, which run A-1 holds",
				"run progressor run get shop A-1. To end it, run progressor run cancel shop A-1."}},
		"its time": {run(explain.Run{Status: "pending", BlockedOn: "time: 2026-11-20T12:02:40Z"}),
			process.WaitsForTime, at(160), []string{"does not begin before 2026-11-20T12:02:40.000Z"}},
		"a back-off": {run(explain.Run{Status: "pending", Attempt: 1, BlockedOn: "backoff: 2026-11-20T12:02:40Z",
			Failure: "broken: x"}), process.WaitsForTime, at(160),
			[]string{"Attempt 1 of the run failed (broken: x).", "Attempt 2 begins at"}},
		"FAILED": {end(run(explain.Run{Status: "failed", Failure: "expression: no such key"}),
			process.StatusCompleted), process.WaitsForOperator, time.Time{},
			[]string{"The run is FAILED: expression: no such key.", "fails again with the same values",
				"progressor run retry shop A-2 --newest-version", "progressor run repeat shop A-2 --payload"}},
		"EXPIRED": {end(run(explain.Run{Status: "expired", Failure: "timeout: it took too long"}),
			process.StatusCompleted), process.WaitsForOperator, time.Time{},
			[]string{"The run is EXPIRED: timeout: it took too long.",
				"did not succeed, run progressor run retry shop A-2."}},
		"CANCELLED": {end(run(explain.Run{Status: "cancelled", CancelReason: "enough"}), process.StatusCompleted), "",
			time.Time{}, []string{"The run was cancelled: enough.", "progressor run retry shop A-2"}},
		"SUCCEEDED": {end(run(explain.Run{Status: "succeeded"}), process.StatusCompleted), "", time.Time{},
			[]string{"Nothing: the run has ended."}},
		"its own task": {state(func(s *explain.State) {
			s.Process.ProcessID, s.Run = "~flow/A-2", &explain.Run{Status: "active"}
		}, waiting(call(6, process.WaitsForPlace, 90))), process.WaitsForPlace, time.Time{},
			[]string{"Task 6 (CALL) waits for a slot"}},
	} {
		e := explain.Explain(tt.state)
		text := e.Detail + "\n" + e.Next + "\n" + e.Unblock
		if e.WaitsFor != tt.waitsFor || !e.NextTime.Equal(tt.nextTime) {
			t.Errorf("%s: waits for %q until %s, want %q, %s\n%s", name, e.WaitsFor, e.NextTime, tt.waitsFor,
				tt.nextTime, text)
		}
		for _, want := range tt.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
}
