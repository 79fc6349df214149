package flows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// putScoped puts the template "scoped", which has one job. more contains further fields of the
// template.
func (n *node) putScoped(t testing.TB, policy string, more string) {
	t.Helper()
	n.put(t, "pull", `{"type": "scoped", "concurrency_policy": "SCOPE_POLICY_`+policy+`", `+more+
		` "steps": [{"step_id": "a", "job": {}}]}`)
}

// startIn starts a run of the template "scoped" in the scope user/scopeID.
func (n *node) startIn(runID, scopeID string) (*progressorv1.StartRunResponse, error) {
	return n.Start(context.Background(), &progressorv1.StartRunRequest{
		Namespace: "pull", Type: "scoped", RunId: runID, Scope: "user", ScopeId: scopeID,
	}, kim)
}

// started is like startIn. It fails the test if the run does not start.
func (n *node) started(t testing.TB, runID, scopeID string) {
	t.Helper()
	r, err := n.startIn(runID, scopeID)
	if err != nil || !r.GetStarted() {
		t.Fatalf("%s: %v, %v", runID, r, err)
	}
}

// TestScopeQueues checks that runs of the same scope run one after the other, in order.
func TestScopeQueues(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "QUEUE_SAME_SCOPE", "")
	for _, id := range []string{"q1", "q2", "q3"} {
		n.started(t, id, "7")
	}
	n.started(t, "other", "8")
	r := n.until(t, "pull", "q2", "PENDING")
	same(t, r.GetBlockedOn(), "scope: q1")
	n.cancel(t, "pull", "other")
	n.answer(t, n.lease(t), "", "")
	n.ended(t, "pull", "q1")
	n.until(t, "pull", "q2", "QUEUED")
	n.until(t, "pull", "q3", "PENDING")
	n.cancel(t, "pull", "q2")
	n.answer(t, n.lease(t), "", "")
	same(t, runSummary(n.ended(t, "pull", "q3")), "SUCCEEDED: a SUCCEEDED")
}

// TestScopeQueuesOnce checks that runs that wait for their scope are cancelled when another run of
// the scope has succeeded, if the template is not repeatable.
func TestScopeQueuesOnce(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "QUEUE_SAME_SCOPE", `"repeatable": false,`)
	for _, id := range []string{"o1", "o2", "o3", "o4"} {
		n.started(t, id, "7")
	}
	n.until(t, "pull", "o1", "QUEUED")
	n.cancel(t, "pull", "o1")
	n.answer(t, n.lease(t), "", "")
	same(t, runSummary(n.ended(t, "pull", "o2")), "SUCCEEDED: a SUCCEEDED")
	for _, id := range []string{"o3", "o4"} {
		r := n.ended(t, "pull", id)
		same(t, runSummary(r), "CANCELLED: a CANCELLED")
		same(t, r.GetSteps()[0].GetReason(),
			"the run was cancelled: run o2 of the same scope has succeeded, and its template is not repeatable")
	}
	again, err := n.startIn("o5", "7")
	if err != nil || again.GetStarted() || again.GetRun().GetRunId() != "o2" {
		t.Errorf("a start after the success: %v, %v", again, err)
	}
}

// TestScopeCancels checks that with CANCEL_SAME_SCOPE, a new run cancels the active run of its
// scope.
func TestScopeCancels(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "CANCEL_SAME_SCOPE", "")
	n.started(t, "old", "7")
	n.until(t, "pull", "old", "QUEUED")
	n.started(t, "new", "7")
	same(t, runSummary(n.ended(t, "pull", "old")), "CANCELLED: a CANCELLED")
	n.answer(t, n.lease(t), "", "")
	same(t, runSummary(n.ended(t, "pull", "new")), "SUCCEEDED: a SUCCEEDED")
}

// TestScopeReturns checks that with RETURN_SAME_SCOPE, a start returns the active run of the scope.
func TestScopeReturns(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "RETURN_SAME_SCOPE", "")
	n.started(t, "there", "7")
	r, err := n.startIn("another", "7")
	if err != nil || r.GetStarted() || r.GetRun().GetRunId() != "there" {
		t.Fatalf("%v, %v", r, err)
	}
}

// TestNotRepeatable checks that if a template is not repeatable, a start returns the run of the
// same scope that has succeeded. After a run that failed, another run can start.
func TestNotRepeatable(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "ALLOW", `"repeatable": false,`)
	n.started(t, "fails", "7")
	n.answer(t, n.lease(t), "", "broken")
	n.ended(t, "pull", "fails")
	n.started(t, "succeeds", "7")
	n.answer(t, n.lease(t), "", "")
	n.ended(t, "pull", "succeeds")
	r, err := n.startIn("again", "7")
	if err != nil || r.GetStarted() || r.GetRun().GetRunId() != "succeeds" {
		t.Fatalf("%v, %v", r, err)
	}
	var template *flows.TemplateError
	if _, err := n.Repeat(context.Background(), &progressorv1.RepeatRunRequest{
		Namespace: "pull", RunId: "succeeds",
	}, kim); !errors.As(err, &template) {
		t.Fatalf("repeat: %v", err)
	}
}

// TestScopeFromTwoNodes starts runs of one scope on two nodes at the same time. With
// REJECT_SAME_SCOPE, one run starts, and the errors of all others contain its ID.
func TestScopeFromTwoNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	one, two := start(t, dsn), start(t, dsn)
	one.putScoped(t, "REJECT_SAME_SCOPE", "")
	var mu sync.Mutex
	var wg sync.WaitGroup
	started, named := []string{}, map[string]bool{}
	for i := range 20 {
		n := one
		if i%2 == 1 {
			n = two
		}
		wg.Go(func() {
			id := fmt.Sprintf("r%d", i)
			_, err := n.startIn(id, "7")
			var scope *flows.ScopeError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				started = append(started, id)
			case errors.As(err, &scope):
				named[scope.RunID] = true
			default:
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wg.Wait()
	if len(started) != 1 || len(named) != 1 || !named[started[0]] {
		t.Fatalf("%v started, but the errors name %v", started, named)
	}
}

// TestRepeat checks that a new run can be started with the payload of an old one.
func TestRepeat(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "again", "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "ns", "again", "old", `{"n": 1}`)
	n.ended(t, "ns", "old")
	r, err := n.Repeat(context.Background(), &progressorv1.RepeatRunRequest{Namespace: "ns", RunId: "old"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	r = n.ended(t, "ns", r.GetRunId())
	same(t, r.GetRepeatOfRunId()+" "+r.GetResult().GetStringValue(), `old a {"n":1}`)
}

// TestRetryWithTheNewestVersion checks that a retry can continue a run with the newest version of
// its template, if that version contains all steps that have succeeded.
func TestRetryWithTheNewestVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "v", "steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "v", "r1", "")
	n.answer(t, n.lease(t, "a"), "", "")
	n.answer(t, n.lease(t, "b"), "", "broken")
	n.ended(t, "pull", "r1")
	retry := func() (*progressorv1.Run, error) {
		return n.Retry(context.Background(), &progressorv1.RetryRunRequest{
			Namespace: "pull", RunId: "r1", NewestVersion: true,
		}, kim)
	}
	n.put(t, "pull", `{"type": "v", "steps": [{"step_id": "b", "job": {}}]}`)
	var status *flows.StatusError
	if _, err := retry(); !errors.As(err, &status) {
		t.Fatalf("a step that succeeded is missing: %v", err)
	}
	n.until(t, "pull", "r1", "FAILED: a SUCCEEDED b FAILED")
	n.put(t, "pull", `{"type": "v", "steps": [{"step_id": "a", "job": {}}, {"step_id": "new", "job": {}},
		{"step_id": "b", "job": {}}]}`)
	r, err := retry()
	if err != nil {
		t.Fatal(err)
	}
	same(t, fmt.Sprint(r.GetTemplateVersion()), "3")
	n.answer(t, n.lease(t, "new"), "", "")
	n.answer(t, n.lease(t, "b"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r1")), "SUCCEEDED: a SUCCEEDED new SUCCEEDED b SUCCEEDED 2")
}

// TestRepeatedStart checks that a start with the same idempotency key and payload returns the
// existing run, even if it comes from another address and the template has a new version.
func TestRepeatedStart(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "ALLOW", "")
	ask := func(source, payload string) (*progressorv1.StartRunResponse, error) {
		return n.Start(context.Background(),
			&progressorv1.StartRunRequest{
				Namespace: "pull", Type: "scoped", IdempotencyKey: "k", Payload: value(t, payload),
			}, process.Actor{Source: source})
	}
	first, err := ask("10.0.0.7:1", `{"b": 1, "a": 2}`)
	if err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "a"), "", "")
	n.ended(t, "pull", first.GetRun().GetRunId())
	ended, err := ask("10.0.0.7:1", `{"b": 1, "a": 2}`)
	if err != nil || ended.GetRun().GetStatus() != progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		t.Fatalf("a run that has succeeded is shown as %s: %v", ended.GetRun().GetStatus(), err)
	}
	n.putScoped(t, "ALLOW", `"description": "another",`)
	again, err := ask("10.0.0.8:2", `{"b": 1, "a": 2}`)
	if err != nil {
		t.Fatal(err)
	}
	same(t, fmt.Sprint(again.GetStarted(), again.GetRun().GetRunId(), again.GetRun().GetTemplateVersion()),
		fmt.Sprint(true, first.GetRun().GetRunId(), 1))
	if _, err := ask("10.0.0.7:1", `{"b": 3}`); !errors.Is(err, process.ErrIdempotencyMismatch) {
		t.Fatalf("another payload: %v", err)
	}
}

// TestStepReasons checks the reason of steps that are cancelled because their run ends. The reason
// names the step that failed the run, with the failure, or contains the reason for which the run
// was cancelled.
func TestStepReasons(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "why", "step_order": "STEP_ORDER_GRAPH", "steps": [{"step_id": "a", "job": {}},
		{"step_id": "b", "job": {}, "depends_on": ["a"]},
		{"step_id": "person", "wait": {"kind": "KIND_HUMAN"}}]}`)
	reasons := func(r *progressorv1.Run) (all string) {
		for _, s := range r.GetSteps() {
			all += s.GetReason() + "|"
		}
		return all
	}
	n.run(t, "pull", "why", "failed", "")
	n.answer(t, n.lease(t, "a"), "", "broken")
	same(t, reasons(n.ended(t, "pull", "failed")), "|step a failed: as asked|step a failed: as asked|")
	n.run(t, "pull", "why", "stopped", "")
	n.answer(t, n.lease(t, "a"), "", "")
	n.cancel(t, "pull", "stopped")
	same(t, reasons(n.ended(t, "pull", "stopped")),
		"|the run was cancelled: not needed|the run was cancelled: not needed|")
	var from string
	err := n.DB.QueryRow(context.Background(),
		`SELECT string_agg(from_status, ' ' ORDER BY step_id) FROM job_events WHERE job_id = 'failed'
			AND to_status = 'cancelled'`).Scan(&from)
	if err != nil {
		t.Fatal(err)
	}
	same(t, from, "pending running")
}
