package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestGraph runs a graph with a condition, a for_each, a process, a delay, a run of another
// template and a join.
func TestGraph(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "only", "job": {}}]}`)
	n.put(t, "ns", `{"type": "graph", "step_order": "STEP_ORDER_GRAPH", "result": "${steps.join.result}", "steps": [
		{"step_id": "split", "job": {}},
		{"step_id": "never", "job": {}, "depends_on": ["split"], "condition": "payload.n > 5.0"},
		{"step_id": "each", "job": {}, "depends_on": ["split"], "for_each": {"items": "payload.items",
		"max_running": 2}, "input": "${item}/${index}"},
		{"step_id": "none", "job": {}, "depends_on": ["split"], "for_each": {"items": "[]"}},
		{"step_id": "proc", "process": {}, "depends_on": ["split"]},
		{"step_id": "pause", "delay": {"duration": "0.01s"}, "depends_on": ["split"]},
		{"step_id": "sub", "run": {"type": "inner", "payload": "${payload.n}"}, "depends_on": ["pause"]},
		{"step_id": "join", "job": {}, "depends_on": ["never", "each", "none", "proc", "sub"],
		"input": "${steps.each.result}"}]}`)
	n.run(t, "ns", "graph", "g1", `{"n": 1, "items": ["a", "b", "c"]}`)
	r := n.ended(t, "ns", "g1")
	same(t, runSummary(r), "SUCCEEDED: split SUCCEEDED never SKIPPED each SUCCEEDED none SUCCEEDED proc SUCCEEDED "+
		"pause SUCCEEDED sub SUCCEEDED join SUCCEEDED")
	same(t, strings.ReplaceAll(r.GetResult().GetStringValue(), " ", ""),
		`join["each\"a/0\"","each\"b/1\"","each\"c/2\""]`)
	same(t, r.GetSteps()[1].GetReason(), "its condition is false")
	same(t, fmt.Sprint(r.GetSteps()[2].GetItemsByStatus()), "map[succeeded:3]")
	same(t, r.GetSteps()[4].GetResult().GetStructValue().GetFields()["process"].GetStringValue(), "g1/proc")
	sub, err := n.Get(context.Background(), "ns", "g1/sub", 0)
	if err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(sub), "SUCCEEDED: only SUCCEEDED")
	same(t, sub.GetParentRunId(), "g1")
	if got := r.GetProgress().GetPercent(); got != 100 {
		t.Fatalf("progress %v", got)
	}
}

// TestForEachEndBeginsTheNextStep checks that the step that begins at the end of a for_each gets
// the results of the items.
func TestForEachEndBeginsTheNextStep(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "each", "steps": [{"step_id": "each", "job": {}, "for_each": {"items": "payload"}},
		{"step_id": "sum", "job": {}, "input": "${steps.each.result}"}]}`)
	n.run(t, "ns", "each", "e1", `["a", "b"]`)
	r := n.ended(t, "ns", "e1")
	same(t, strings.ReplaceAll(r.GetResult().GetStringValue(), " ", ""), `sum["each\"a\"","each\"b\""]`)
}

// TestFailureAndCompensation checks a step that fails permanently. Running steps are asked to end,
// steps that clean up run, and succeeded steps are compensated, the last one first.
func TestFailureAndCompensation(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "saga", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "book", "job": {}, "compensation": {"name": "unbook"}},
		{"step_id": "pay", "job": {}, "depends_on": ["book"], "compensation": {"name": "refund"}},
		{"step_id": "side", "job": {}, "depends_on": ["book"]},
		{"step_id": "ship", "job": {}, "depends_on": ["pay"]},
		{"step_id": "thank", "job": {}, "depends_on": ["ship"]},
		{"step_id": "clean", "job": {}, "depends_on": ["ship", "side"], "join_rule": "JOIN_RULE_ALL_ENDED"}]}`)
	n.run(t, "pull", "saga", "s1", "")
	n.answer(t, n.lease(t, "book"), `"seat 7"`, "")
	n.answer(t, n.lease(t, "pay"), `"paid"`, "")
	side := n.lease(t, "side")
	n.answer(t, n.lease(t, "ship"), "", "lost_at_sea")
	n.until(t, "pull", "s1", "RUNNING: book SUCCEEDED pay SUCCEEDED side RUNNING ship FAILED thank CANCELLED clean "+
		"PENDING")
	n.acknowledge(t, side)
	n.answer(t, n.lease(t, "clean"), "", "")
	refund := n.lease(t, "refund")
	same(t, refund.GetJob().GetArgs().GetStructValue().GetFields()["result"].GetStringValue(), "paid")
	same(t, runSummary(n.until(t, "pull", "s1", "COMPENSATING")),
		"COMPENSATING: book SUCCEEDED pay SUCCEEDED undo RUNNING side CANCELLED ship FAILED thank CANCELLED clean "+
			"SUCCEEDED")
	n.answer(t, refund, "", "broke")
	n.answer(t, n.lease(t, "unbook"), "", "")
	r := n.ended(t, "pull", "s1")
	same(t, runSummary(r), "FAILED: book SUCCEEDED undo SUCCEEDED pay SUCCEEDED undo FAILED side CANCELLED ship "+
		"FAILED thank CANCELLED clean SUCCEEDED")
	same(t, r.GetFailure().GetReason(), "lost_at_sea")

	// Retry: steps that were undone run again, and a step that could not be undone does not.
	_, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{Namespace: "pull", RunId: "s1"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "book"), `"seat 8"`, "")
	n.answer(t, n.lease(t, "ship"), "", "")
	n.answer(t, n.lease(t, "side"), "", "")
	n.answer(t, n.lease(t, "thank"), `"bye"`, "")
	r = n.ended(t, "pull", "s1")
	same(t, runSummary(r), "SUCCEEDED: book SUCCEEDED 2 pay SUCCEEDED undo FAILED side SUCCEEDED 2 ship SUCCEEDED 2 "+
		"thank SUCCEEDED clean SUCCEEDED")
}

// TestUndoneAsItSucceeds checks that a step that succeeds after it was asked to stop is
// compensated, and that the step keeps its result and its finished_time.
func TestUndoneAsItSucceeds(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "saga", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "charge", "job": {}, "compensation": {"name": "refund"}}, {"step_id": "pack", "job": {}}]}`)
	n.run(t, "pull", "saga", "s1", "")
	charge := n.lease(t, "charge")
	n.answer(t, n.lease(t, "pack"), "", "no_box")
	n.until(t, "pull", "s1", "RUNNING: charge RUNNING pack FAILED")
	n.answer(t, charge, `"receipt 1"`, "")
	refund := n.lease(t, "refund")
	same(t, refund.GetJob().GetArgs().GetStructValue().GetFields()["result"].GetStringValue(), "receipt 1")
	r := n.until(t, "pull", "s1", "COMPENSATING: charge SUCCEEDED undo RUNNING pack FAILED")
	if step := r.GetSteps()[0]; step.GetResult().GetStringValue() != "receipt 1" || step.GetFinishedTime() == nil {
		t.Fatalf("the step that is undone: %v", step)
	}
	n.answer(t, refund, "", "")
	r = n.ended(t, "pull", "s1")
	same(t, runSummary(r), "FAILED: charge SUCCEEDED undo SUCCEEDED pack FAILED")
	if step := r.GetSteps()[0]; step.GetResult().GetStringValue() != "receipt 1" || step.GetFinishedTime() == nil {
		t.Fatalf("the step that was undone: %v", step)
	}
}

// TestRetryWaitsForUndoneSteps retries a run whose first step was undone while the second stays
// done. The third step waits until the first has run again, and sees its new result.
func TestRetryWaitsForUndoneSteps(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "saga", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "charge", "job": {}, "compensation": {"name": "refund"}},
		{"step_id": "pack", "job": {}, "depends_on": ["charge"]},
		{"step_id": "ship", "job": {}, "depends_on": ["pack"], "input": "${steps.charge.result}"}]}`)
	n.run(t, "pull", "saga", "s1", "")
	n.answer(t, n.lease(t, "charge"), `"receipt 1"`, "")
	n.answer(t, n.lease(t, "pack"), "", "")
	n.answer(t, n.lease(t, "ship"), "", "no_address")
	n.answer(t, n.lease(t, "refund"), "", "")
	failed := n.ended(t, "pull", "s1")
	same(t, runSummary(failed), "FAILED: charge SUCCEEDED undo SUCCEEDED pack SUCCEEDED ship FAILED")
	for _, r := range append(n.list(t, "pull", "", ""), failed) {
		if got := r.GetProgress().GetPercent(); got != 66 {
			t.Errorf("progress %v of a FAILED run in which two of three steps succeeded", got)
		}
	}
	again := func() {
		t.Helper()
		r, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{Namespace: "pull", RunId: "s1"}, kim)
		if err != nil {
			t.Fatal(err)
		}
		same(t, runSummary(r), "QUEUED: charge PENDING pack SUCCEEDED ship PENDING")
	}

	// A step that has to run again and is cancelled before it begins shows no running_time.
	// Otherwise, its duration would count from the previous attempt.
	again()
	r, err := n.Cancel(context.Background(), &progressorv1.CancelRunRequest{Namespace: "pull", RunId: "s1"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(r), "CANCELLED: charge CANCELLED pack SUCCEEDED ship CANCELLED")
	if ship := r.GetSteps()[2]; ship.GetRunningTime() != nil || ship.GetFinishedTime() == nil {
		t.Fatalf("ship, which has not begun again: %v", ship)
	}
	if got := r.GetProgress().GetPercent(); got != 33 {
		t.Fatalf("progress %v of a run in which one of three steps succeeded", got)
	}

	if _, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{
		Namespace: "pull", RunId: "s1",
	}, kim); err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "charge"), `"receipt 3"`, "")
	ship := n.lease(t, "ship")
	same(t, ship.GetJob().GetArgs().GetStringValue(), "receipt 3")
	n.answer(t, ship, "", "")
	r = n.ended(t, "pull", "s1")
	same(t, runSummary(r), "SUCCEEDED: charge SUCCEEDED 2 pack SUCCEEDED ship SUCCEEDED 2")
	if got := r.GetProgress().GetPercent(); got != 100 {
		t.Fatalf("progress %v", got)
	}
}

// TestItemsFail checks a step with more failed items than allowed.
func TestItemsFail(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "items", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["0.001s"]}},
		"steps": [
		{"step_id": "each", "job": {}, "for_each": {"items": "payload", "max_failures": 1}},
		{"step_id": "after", "job": {}}]}`)
	n.run(t, "pull", "items", "i1", `["a", "b", "c", "d"]`)
	byItem := map[string]*progressorv1.Lease{}
	for range 4 {
		l := n.lease(t)
		byItem[l.GetJob().GetArgs().GetStringValue()] = l
	}
	n.answer(t, byItem["a"], `"A"`, "")
	n.answer(t, byItem["b"], "", "bad")
	n.answer(t, byItem["c"], "", "bad")
	n.until(t, "pull", "i1", "RUNNING: each RUNNING after PENDING")
	n.acknowledge(t, byItem["d"])
	// The second attempt runs the items that did not succeed.
	for range 3 {
		l := n.lease(t)
		if args := l.GetJob().GetArgs().GetStringValue(); args == "a" {
			t.Fatal("an item that succeeded is done again")
		} else {
			n.answer(t, l, `"`+strings.ToUpper(args)+`"`, "")
		}
	}
	n.answer(t, n.lease(t, "after"), `"end"`, "")
	r := n.ended(t, "pull", "i1")
	same(t, runSummary(r), "SUCCEEDED: each SUCCEEDED 2 after SUCCEEDED")
	var results []string
	for _, v := range r.GetSteps()[0].GetResult().GetListValue().GetValues() {
		results = append(results, v.GetStringValue())
	}
	same(t, strings.Join(results, ""), "ABCD")
}

// TestExpressionFails checks that a step fails if an expression in its input cannot be evaluated,
// and that the failure names the expression.
func TestExpressionFails(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "bad",
		"steps": [{"step_id": "a", "job": {}, "input": {"x": "${payload.missing.field}"}}]}`)
	n.run(t, "ns", "bad", "b1", `{"n": 1}`)
	r := n.ended(t, "ns", "b1")
	same(t, runSummary(r), "FAILED: a FAILED")
	same(t, r.GetFailure().GetReason(), "expression")
	if !strings.Contains(r.GetFailure().GetMessage(), "payload.missing.field") {
		t.Fatalf("the failure does not name the expression: %s", r.GetFailure().GetMessage())
	}
}

// TestNestedRunFails checks that a step that starts a run has the failure of that run, and that the
// step fails if the run cannot start.
func TestNestedRunFails(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "only", "job": {}}]}`)
	n.put(t, "ns", `{"type": "outer", "steps": [{"step_id": "sub", "run": {"type": "inner"}, "ignore_failure": true},
		{"step_id": "gone", "run": {"type": "nothing"}}]}`)
	n.run(t, "ns", "outer", "o1", `{"fail": {"only": "no luck"}}`)
	r := n.ended(t, "ns", "o1")
	same(t, runSummary(r), "FAILED: sub FAILED gone FAILED")
	same(t, r.GetSteps()[0].GetFailure().GetMessage(), "no luck")
	same(t, r.GetFailure().GetReason()+": "+r.GetFailure().GetMessage(), "not_started: there is no template nothing")
}

// TestDatabaseFaultDoesNotFailAStep terminates the connection on which a run reads the values
// for the next step. The step begins a moment later.
func TestDatabaseFaultDoesNotFailAStep(t *testing.T) {
	t.Parallel()
	n, ctx := start(t, storagetest.DSN(t)), context.Background()
	n.put(t, "pull", `{"type": "join", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}},
		{"step_id": "c", "job": {}, "depends_on": ["a", "b"], "input": "${steps.a.result}"}]}`)
	n.run(t, "pull", "join", "j1", "")
	a, b := n.lease(t, "a"), n.lease(t, "b")
	n.answer(t, a, `"of a"`, "")
	n.until(t, "pull", "j1", "RUNNING: a SUCCEEDED b RUNNING")
	lock := storagetest.Begin(t, n.DB, `LOCK TABLE flow_steps`)
	n.answer(t, b, `"of b"`, "")
	enginetest.Eventually(t, testTimeout, "the connection that reads steps is terminated", func() bool {
		var cut int // in its own transaction: a transaction sees pg_stat_activity as of its first read
		if err := n.DB.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'
			  AND query LIKE '%ReadSteps%'`).Scan(&cut); err != nil {
			t.Fatal(err)
		}
		return cut > 0
	})
	if err := lock.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	c := n.lease(t, "c")
	same(t, c.GetJob().GetArgs().GetStringValue(), "of a")
	n.answer(t, c, "", "")
	same(t, runSummary(n.ended(t, "pull", "j1")), "SUCCEEDED: a SUCCEEDED b SUCCEEDED c SUCCEEDED")
}

// TestFailedItemsSayWhy checks that the failure of a step contains the failure of its first failed
// item, even if the run ends later.
func TestFailedItemsSayWhy(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "items", "steps": [{"step_id": "each", "job": {}, "for_each": {"items": "payload"}}]}`)
	n.run(t, "pull", "items", "i1", `["a", "b"]`)
	n.run(t, "pull", "items", "i2", `["a"]`)
	byRun := map[string]*progressorv1.Lease{}
	for range 3 {
		l := n.lease(t)
		byRun[l.GetJob().GetJobId()] = l
	}
	n.answer(t, byRun["~job/i1/each.1"], "", "bad")
	n.acknowledge(t, byRun["~job/i1/each.0"])
	n.answer(t, byRun["~job/i2/each.0"], "", "bad")
	failure := n.ended(t, "pull", "i1").GetFailure()
	same(t, failure.GetMessage(), "1 of 2 items of step each failed, item 1: as asked")
	same(t, fmt.Sprint(failure.GetDetails().GetStructValue().AsMap()), "map[item:1 reason:bad]")
	same(t, n.ended(t, "pull", "i2").GetFailure().GetMessage(), "the only item of step each failed, item 0: as asked")
}

// TestUnknownNames checks the errors for unknown steps and versions of templates.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "line", "steps": [{"step_id": "a", "wait": {}}, {"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "line", "l1", "")
	_, _, err := n.ListSteps(context.Background(), &progressorv1.ListStepsRequest{
		Namespace: "pull", RunId: "l1", StepId: "nope",
	})
	if !errors.Is(err, process.ErrStepNotFound) {
		t.Fatalf("a step that does not exist: %v", err)
	}
	if list, _, err := n.ListSteps(context.Background(), &progressorv1.ListStepsRequest{
		Namespace: "pull", RunId: "l1", StepId: "b",
	}); err != nil || len(list) != 0 {
		t.Fatalf("a step that has not begun: %v, %v", list, err)
	}
	_, err = n.GetTemplate(context.Background(), &progressorv1.GetTemplateRequest{
		Namespace: "pull", Type: "line", Version: 9,
	})
	if !errors.Is(err, process.ErrTemplateNotFound) ||
		!strings.Contains(err.Error(), "version 9 of template pull/line (the newest is 1)") {
		t.Fatalf("a version that does not exist: %v", err)
	}
}
