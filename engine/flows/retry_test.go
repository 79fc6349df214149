package flows_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (n *node) retry(t testing.TB, r *progressorv1.RetryRunRequest) {
	t.Helper()
	r.Namespace = "pull"
	if _, err := n.Retry(context.Background(), r, kim); err != nil {
		t.Fatal(err)
	}
}

// ask returns the text that a query selects.
func (n *node) ask(t testing.TB, query string, args ...any) (text string) {
	t.Helper()
	if err := n.DB.QueryRow(context.Background(), query, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// do leases a job with this name, checks its args, and answers the lease. If reason is not empty,
// the answer is a failure with this reason.
func (n *node) do(t testing.TB, name, args, reason string) {
	t.Helper()
	l := n.lease(t, name)
	same(t, l.GetJob().GetArgs().GetStringValue(), args)
	n.answer(t, l, `"did `+args+`"`, reason)
}

// TestSecondRetry retries a run with compensated items twice. The second retry keeps the results of
// the items that succeeded after the first retry.
func TestSecondRetry(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "twice", "steps": [
		{"step_id": "each", "job": {}, "for_each": {"items": "payload", "max_running": 1},
		"compensation": {"name": "undo"}},
		{"step_id": "last", "job": {}}]}`)
	n.run(t, "pull", "twice", "r", `["a", "b", "c", "d"]`)
	for _, item := range []string{"a", "b", "c", "d"} {
		n.do(t, "each", item, "")
	}
	n.answer(t, n.lease(t, "last"), "", "broken")
	n.answer(t, n.lease(t, "undo"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "FAILED: each SUCCEEDED undo SUCCEEDED last FAILED")

	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r"})
	n.do(t, "each", "a", "")
	n.do(t, "each", "b", "")
	l := n.lease(t, "each")
	items := n.ask(t, `SELECT string_agg(index || ' ' || status, ', ' ORDER BY index) FROM step_list WHERE run_id = 'r'
		AND index >= 0`)
	same(t, items, "0 SUCCEEDED, 1 SUCCEEDED, 2 RUNNING")
	n.answer(t, l, "", "bad")
	n.answer(t, n.lease(t, "undo"), "", "cannot") // the compensation fails, so the items that succeeded stay done
	same(t, runSummary(n.ended(t, "pull", "r")), "FAILED: each FAILED 2 undo FAILED last CANCELLED")

	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r"})
	n.do(t, "each", "c", "")
	n.do(t, "each", "d", "")
	n.answer(t, n.lease(t, "last"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "SUCCEEDED: each SUCCEEDED 3 last SUCCEEDED 2")
}

// TestAnswerWaitsBehindTheEnd repeats an answer. The run ends while the repeated answer waits to be
// executed.
func TestAnswerWaitsBehindTheEnd(t *testing.T) {
	t.Parallel()
	n, ctx := start(t, storagetest.DSN(t)), context.Background()
	n.put(t, "pull", `{"type": "ask", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "wait": {"kind": "KIND_HUMAN"}}, {"step_id": "b", "wait": {"kind": "KIND_HUMAN"}},
		{"step_id": "c", "job": {}, "depends_on": ["a", "b"], "input": "${steps.a.result.no}"}]}`)
	n.run(t, "pull", "ask", "r", "")
	n.until(t, "pull", "r", "WAITING_WORKER: a RUNNING b RUNNING c PENDING")
	if _, err := n.complete("r", "a", "", result(value(t, `"yes"`))); err != nil {
		t.Fatal(err)
	}
	lock := storagetest.Begin(t, n.DB, "LOCK TABLE flow_steps")
	var answers sync.WaitGroup
	answer := func(awaited, query string) {
		answers.Go(func() {
			if _, err := n.complete("r", "b", "", result(value(t, `"yes"`))); err != nil {
				t.Error(err)
			}
		})
		enginetest.Eventually(t, testTimeout, awaited, func() bool { return n.ask(t, query) == "true" })
	}
	answer("the first answer is run and reads the steps",
		`SELECT (count(*) > 0)::text FROM pg_locks WHERE NOT granted AND relation = 'flow_steps'::regclass`)
	answer("the second answer is stored",
		`SELECT (count(*) > 0)::text FROM schedule WHERE process_id = '~flow/r' AND waits_for = 'process'
			AND task_type = 'CALL'`)
	if err := lock.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	answers.Wait()
}

// TestWaitsOfItemsFail checks that too many failed answers of a for_each end the open waits and the
// run.
func TestWaitsOfItemsFail(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "asks", "steps": [{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"},
		"for_each": {"items": "payload"}}]}`)
	n.run(t, "pull", "asks", "r", `["a", "b", "c"]`)
	index := int32(1)
	if _, err := n.Complete(context.Background(), &progressorv1.CompleteStepRequest{
		Namespace: "pull", RunId: "r", StepId: "ask", Index: &index,
		Outcome: &progressorv1.CompleteStepRequest_Failure{Failure: &progressorv1.Failure{Reason: "no"}},
	}, kim); err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(n.ended(t, "pull", "r")), "FAILED: ask FAILED")
	waits, _, err := n.ListOpenWaits(context.Background(), &progressorv1.ListOpenWaitsRequest{Namespace: "pull"})
	if err != nil || len(waits) != 0 {
		t.Fatalf("waits of a run that has ended are open: %v, %v", waits, err)
	}
	reasons := n.ask(t, `SELECT string_agg(DISTINCT reason, ', ') FROM flow_steps WHERE run_id = 'r'
		AND status = 'cancelled'`)
	same(t, reasons, "too many items of its step failed")
}

// TestCleanUpIsCancelled cancels a run during its cleanup step.
func TestCleanUpIsCancelled(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "clean", "timeout": "3600s", "steps": [{"step_id": "a", "job": {}},
		{"step_id": "clean", "join_rule": "JOIN_RULE_ALL_ENDED", "job": {}}]}`)
	n.run(t, "pull", "clean", "r", "")
	n.answer(t, n.lease(t, "a"), "", "broken")
	clean := n.lease(t, "clean")
	n.cancel(t, "pull", "r")
	n.acknowledge(t, clean)
	same(t, runSummary(n.ended(t, "pull", "r")), "CANCELLED: a FAILED clean CANCELLED")
}

// TestRetryWithAnotherList retries a run with the newest version of its template, in which the
// items of the for_each are another list. Items that succeeded and are still in the list keep their
// results.
func TestRetryWithAnotherList(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	put := func(field string) {
		n.put(t, "pull", `{"type": "lists", "steps": [{"step_id": "each", "job": {}, "for_each": {"items": "payload.`+
			field+`", "max_running": 1}}]}`)
	}
	put("old")
	n.run(t, "pull", "lists", "r", `{"old": ["a", "b", "c", "d"], "new": ["b", "a", "x", "c"]}`)
	n.do(t, "each", "a", "")
	n.do(t, "each", "b", "")
	n.do(t, "each", "c", "bad")
	n.ended(t, "pull", "r")
	put("new")
	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r", NewestVersion: true})
	n.do(t, "each", "x", "")
	n.do(t, "each", "c", "")
	r := n.ended(t, "pull", "r")
	same(t, runSummary(r), "SUCCEEDED: each SUCCEEDED 2")
	var results []string
	for _, v := range r.GetResult().GetListValue().GetValues() {
		results = append(results, v.GetStringValue())
	}
	same(t, strings.Join(results, ", "), "did b, did a, did x, did c")
	if items := r.GetSteps()[0].GetItemsByStatus(); len(items) != 1 || items["succeeded"] != 4 {
		t.Errorf("items %v", items)
	}
}

// TestCancelledWhenDue checks two waits that are due at the same time. The failure of the first
// cancels the second, which shows no result of its own timeout.
func TestCancelledWhenDue(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "late", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "wait": {"due": "0.2s"}},
		{"step_id": "b", "wait": {"due": "0.2s", "due_action": "DUE_ACTION_SUCCEED", "due_result": "late"}}]}`)
	n.run(t, "pull", "late", "r", "")
	r := n.ended(t, "pull", "r")
	same(t, runSummary(r), "FAILED: a FAILED b CANCELLED")
	if b := r.GetSteps()[1]; b.GetResult() != nil || b.GetFailure() != nil {
		t.Errorf("the wait that was cancelled: %v", b)
	}
}

// TestBadResult checks that a run whose result cannot be computed is compensated.
func TestBadResult(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "bad", "steps": [{"step_id": "a", "job": {}, "compensation": {"name": "undo"}}],
		"result": "${steps.a.result.missing}"}`)
	n.run(t, "pull", "bad", "r", "")
	n.answer(t, n.lease(t, "a"), `{"x": 1}`, "")
	n.answer(t, n.lease(t, "undo"), "", "")
	r := n.ended(t, "pull", "r")
	same(t, runSummary(r), "FAILED: a SUCCEEDED undo SUCCEEDED")
	same(t, r.GetFailure().GetReason(), "expression")
	if strings.Count(r.GetFailure().GetMessage(), "result: ") != 1 {
		t.Errorf("failure %v", r.GetFailure())
	}
}

// TestStepTimeouts checks steps and items that start runs or processes. If a run or a process
// exceeds the timeout of its step, the step or item fails, and the run is cancelled. A template
// with a timeout of a wait or a delay is rejected.
func TestStepTimeouts(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "inner", "steps": [{"step_id": "ask", "wait": {}}]}`)
	n.put(t, "pull", `{"type": "outer", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "one", "timeout": "0.2s", "ignore_failure": true, "run": {"type": "inner"}},
		{"step_id": "each", "timeout": "0.2s", "for_each": {"items": "[1, 2]", "max_failures": 2},
		"run": {"type": "inner"}},
		{"step_id": "process", "timeout": "0.2s", "ignore_failure": true, "process": {}}]}`)
	n.run(t, "pull", "outer", "r", "")
	r := n.ended(t, "pull", "r")
	same(t, runSummary(r), "SUCCEEDED: one FAILED each SUCCEEDED process FAILED")
	for _, step := range []int{0, 2} {
		f := r.GetSteps()[step].GetFailure()
		if f.GetReason() != "timeout" || f.GetMessage() != "it did not end within 200ms" {
			t.Errorf("failure %v", f)
		}
	}
	for _, id := range []string{"r/one", "r/each.0", "r/each.1"} {
		// On a busy machine, the timeout may end before the run has started.
		enginetest.Eventually(t, testTimeout, "run "+id+" starts", func() bool {
			_, err := n.Get(t.Context(), "pull", id, 0)
			return err == nil
		})
		n.ended(t, "pull", id)
	}
	same(t, n.ask(t, "SELECT string_agg(DISTINCT cancel_reason, ', ') FROM flow_runs WHERE run_id LIKE 'r/%'"),
		"the timeout of its step expired")

	for action, want := range map[string]string{"wait": "set wait.due", "delay": "ends at its time"} {
		m := &progressorv1.StepTemplate{
			StepId: "a", Timeout: seconds(1), Action: &progressorv1.StepTemplate_Wait{Wait: &progressorv1.WaitAction{}},
		}
		if action == "delay" {
			m.Action = &progressorv1.StepTemplate_Delay{
				Delay: &progressorv1.DelayAction{Until: &progressorv1.DelayAction_Duration{Duration: seconds(2)}},
			}
		}
		_, err := n.PutTemplate(t.Context(), &progressorv1.PutTemplateRequest{
			Template: &progressorv1.Template{Namespace: "pull", Type: "no", Steps: []*progressorv1.StepTemplate{m}},
		})
		refusedField(t, err, "template.steps[0].timeout", want)
	}
}

// TestPartOfItemsIsUndone checks the compensation of a step if only some of its items succeeded.
// The compensation gets the results of these items.
func TestPartOfItemsIsUndone(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "part", "steps": [{"step_id": "list", "for_each": {"items": "[1, 2, 3]"}, "job": {},
		"compensation": {"name": "undo"}}]}`)
	n.run(t, "pull", "part", "r1", "")
	leases := map[string]*progressorv1.Lease{}
	for range 3 {
		l := n.lease(t, "list")
		leases[l.GetJob().GetJobId()] = l
	}
	n.answer(t, leases["~job/r1/list.1"], `"one"`, "")
	n.answer(t, leases["~job/r1/list.0"], "", "broken")
	n.acknowledge(t, leases["~job/r1/list.2"])
	undo := n.lease(t, "undo")
	same(t, string(undo.GetRequest().GetArgs()), `{"input":null,"result":[null,"one",null]}`)
	n.answer(t, undo, "", "")
	same(t, runSummary(n.ended(t, "pull", "r1")), "FAILED: list FAILED undo SUCCEEDED")

	_, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{Namespace: "pull", RunId: "r1"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.answer(t, n.lease(t, "list"), `"again"`, "")
	}
	r := n.ended(t, "pull", "r1")
	same(t, runSummary(r)+" "+r.GetResult().String(),
		`SUCCEEDED: list SUCCEEDED 2 `+value(t, `["again","again","again"]`).String())
}

// TestPartOfItemsIsUndoneAfterBackoff checks that items that succeeded in the previous attempt are
// compensated if the run is cancelled before the next one.
func TestPartOfItemsIsUndoneAfterBackoff(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "part", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["600s"]}},
		"steps": [{"step_id": "list", "for_each": {"items": "[1, 2]", "max_running": 1}, "job": {},
		"compensation": {"name": "undo"}}]}`)
	n.run(t, "pull", "part", "r1", "")
	n.answer(t, n.lease(t, "list"), `"one"`, "")
	n.answer(t, n.lease(t, "list"), "", "broken")
	n.until(t, "pull", "r1", "PENDING")
	n.cancel(t, "pull", "r1")
	undo := n.lease(t, "undo")
	same(t, string(undo.GetRequest().GetArgs()), `{"input":null,"result":["one",null]}`)
	n.answer(t, undo, "", "")
	same(t, runSummary(n.ended(t, "pull", "r1")), "CANCELLED: list CANCELLED undo SUCCEEDED")
}
