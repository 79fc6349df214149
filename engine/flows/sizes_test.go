package flows_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// text returns a JSON string that repeats s n times.
func text(s string, n int) string { return `"` + strings.Repeat(s, n) + `"` }

const mib = 1 << 20

// TestLargeResults ends runs with the largest allowed results, by the end of a job, by an answer
// and at their start, and passes each result to an outer run.
func TestLargeResults(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "job", "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "pull", `{"type": "wait", "steps": [{"step_id": "a", "wait": {"kind": "KIND_HUMAN"}}]}`)
	n.put(t, "pull", `{"type": "at_once", "steps": [{"step_id": "a", "condition": "false", "job": {}}],
		"result": "${payload}"}`)
	for _, inner := range []string{"job", "wait", "at_once"} {
		n.put(t, "pull", fmt.Sprintf(`{"type": "around_%s", "steps": [{"step_id": "sub", "run": {"type": %q}}]}`, inner,
			inner))
	}
	for name, result := range map[string]string{"mib": text("x", mib-2), "html": text("<&>", 100_000)} {
		for _, inner := range []string{"job", "wait", "at_once"} {
			for _, around := range []bool{false, true} {
				runID, templateType, ends := name+"-"+inner, inner, name+"-"+inner
				if around {
					runID, templateType, ends = runID+"-around", "around_"+inner, runID+"-around/sub"
				}
				n.run(t, "pull", templateType, runID, result)
				switch inner {
				case "job":
					n.answer(t, n.lease(t, "a"), result, "")
				case "wait":
					enginetest.Eventually(t, testTimeout, "the wait is answered", func() bool {
						_, err := n.Complete(context.Background(), &progressorv1.CompleteStepRequest{
							Namespace: "pull", RunId: ends, StepId: "a",
							Outcome: &progressorv1.CompleteStepRequest_Result{Result: value(t, result)},
						}, kim)
						return err == nil
					})
				}
				r := n.ended(t, "pull", runID)
				got := r.GetResult().GetStringValue()
				if len(got) != len(result)-2 || r.GetStatus() != progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
					t.Errorf("%s: %s with a result of %d bytes, %.300s", runID, r.GetStatus(), len(got), r.GetFailure())
				}
			}
		}
	}
	n.wantSmallResponses(t)
}

// wantSmallResponses checks that no task has a response that is larger than a payload.
func (n *node) wantSmallResponses(t *testing.T) {
	t.Helper()
	const large = `
		SELECT count(*)
		  FROM (SELECT response FROM tasks UNION ALL SELECT response FROM answers) all_tasks
		 WHERE octet_length(response) > 1048576`
	if k := n.Count(t, large); k > 0 {
		t.Errorf("%d responses are larger than a payload", k)
	}
}

// TestLargeFailures ends runs, and runs around them, with a failure message of 300,000 bytes. The
// runs keep the first 4 KiB of the message.
func TestLargeFailures(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "job", "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "pull", `{"type": "around", "steps": [{"step_id": "sub", "run": {"type": "job"}}]}`)
	message := strings.Repeat("<\x01", 150_000)
	for _, templateType := range []string{"job", "around"} {
		n.run(t, "pull", templateType, templateType, "")
		l := n.lease(t, "a")
		if err := n.CompleteLease(context.Background(), l.GetLeaseToken(),
			engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Failure{
					Failure: &progressorv1.Failure{Reason: "broken", Message: message},
				},
			}}); err != nil {
			t.Fatal(err)
		}
		r := n.ended(t, "pull", templateType)
		if r.GetFailure().GetMessage() != message[:4096] || r.GetStatus() != progressorv1.RunStatus_RUN_STATUS_FAILED {
			t.Errorf("%s is %s with %d bytes", templateType, r.GetStatus(), len(r.GetFailure().GetMessage()))
		}
	}
}

// TestLargeItems checks that results of items may be larger in total than a payload, and that a
// step fails with a reason if they are too large.
func TestLargeItems(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "each", "steps": [{"step_id": "a", "job": {}, "for_each": {"items": "payload"}}]}`)
	n.run(t, "pull", "each", "fits", "[1,2,3,4,5,6,7,8,9,10,11,12]")
	for range 12 {
		n.answer(t, n.lease(t, "a"), text("x", 100_000), "")
	}
	r := n.ended(t, "pull", "fits")
	if got := len(r.GetResult().GetListValue().GetValues()); got != 12 {
		t.Errorf("fits: %s, %d results", runSummary(r), got)
	}
	n.run(t, "pull", "each", "large", "[1,2,3,4,5,6,7,8,9,10,11,12]")
	for range 9 {
		n.answer(t, n.lease(t, "a"), text("x", mib-2), "")
	}
	r = n.ended(t, "pull", "large")
	same(t, runSummary(r)+" "+r.GetFailure().GetReason(), "FAILED: a FAILED result_too_large")
}

// TestLargeCompensation checks a compensation whose input and result are larger in total than the
// args of other jobs may be.
func TestLargeCompensation(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "undo", "steps": [{"step_id": "a", "job": {}, "compensation": {"name": "undo"}},
		{"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "undo", "u", text("i", mib-2))
	n.answer(t, n.lease(t, "a"), text("r", mib-2), "")
	n.answer(t, n.lease(t, "b"), "", "broken")
	l := n.lease(t, "undo")
	args := l.GetRequest().GetJobArgs().GetStructValue().GetFields()
	if len(args["input"].GetStringValue()) != mib-2 || len(args["result"].GetStringValue()) != mib-2 {
		t.Errorf("the compensation gets %d and %d bytes", len(args["input"].GetStringValue()),
			len(args["result"].GetStringValue()))
	}
	n.answer(t, l, "", "")
	same(t, runSummary(n.ended(t, "pull", "u")), "FAILED: a SUCCEEDED undo SUCCEEDED b FAILED")
}

// TestCompensationWithoutInput checks that the run reports why a compensation cannot begin.
func TestCompensationWithoutInput(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "undo", "steps": [
		{"step_id": "a", "job": {}, "input": "${run.attempt == 1 ? [1][0] : [1][int(payload)]}",
		"compensation": {"name": "undo"}},
		{"step_id": "b", "job": {}}], "retry_policy": {"max_attempts": 2}}`)
	n.run(t, "pull", "undo", "u", "7")
	n.answer(t, n.lease(t, "a"), "", "")
	n.answer(t, n.lease(t, "b"), "", "broken")
	n.answer(t, n.lease(t, "b"), "", "broken")
	same(t, runSummary(n.ended(t, "pull", "u")), "FAILED: a SUCCEEDED undo FAILED b FAILED 2")
	if k := n.Count(t, `SELECT count(*) FROM job_events
		WHERE type = 'compensation_changed' AND to_status = 'failed'
		  AND message LIKE '%index out of bounds%'`); k != 1 {
		t.Errorf("%d events have the reason", k)
	}
}

// TestManyDelays checks that two steps of 10,000 delays each do not make the state of the run too
// large.
func TestManyDelays(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	items := strings.Repeat("0,", 9_999) + "0"
	n.put(t, "pull", `{"type": "many", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "for_each": {"items": "payload"}, "delay": {"duration": "1s"}},
		{"step_id": "b", "for_each": {"items": "payload"}, "delay": {"time": "run.created_time + duration('2s')"}}]}`)
	n.run(t, "pull", "many", "many", "["+items+"]")
	var largest int
	enginetest.Eventually(t, 5*testTimeout, "the run ends", func() bool {
		var size int
		row := n.DB.QueryRow(context.Background(),
			`SELECT octet_length(aux_state) FROM processes WHERE process_id = '~flow/many'`)
		if err := row.Scan(&size); err != nil {
			t.Fatal(err)
		}
		largest = max(largest, size)
		return n.Count(t, "SELECT count(*) FROM flow_runs WHERE finished_time IS NOT NULL") == 1
	})
	same(t, runSummary(n.ended(t, "pull", "many")), "SUCCEEDED: a SUCCEEDED b SUCCEEDED")
	k := n.Count(t, "SELECT count(*) FROM flow_steps WHERE index >= 0 AND status = 'succeeded'")
	if k != 20_000 {
		t.Errorf("%d items succeeded, want 20000", k)
	}
	if largest > 4096 {
		t.Errorf("the state of the run has %d bytes", largest)
	}
}
