package durable_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// putTemplate stores a template of the namespace ns, given as JSON.
func putTemplate(t *testing.T, n *enginetest.Node, text string) {
	t.Helper()
	m := &progressorv1.Template{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	m.Namespace = "ns"
	if _, err := n.Flows.PutTemplate(t.Context(), &progressorv1.PutTemplateRequest{Template: m}); err != nil {
		t.Fatal(err)
	}
}

// runOf waits until the run of a child waits for an answer, and returns it.
func runOf(t *testing.T, n *enginetest.Node, name string) (r *progressorv1.Run) {
	t.Helper()
	var id string
	enginetest.Eventually(t, time.Minute, name+" waits for an answer", func() bool {
		err := n.DB.QueryRow(t.Context(), "SELECT run_id FROM flow_runs WHERE run_id LIKE '%/' || $1 || '~%'",
			name).Scan(&id)
		if err == nil {
			r, err = n.Flows.Get(t.Context(), "ns", id, 0)
		}
		return err == nil && r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_WAITING_WORKER
	})
	return r
}

// On PostgreSQL, a function starts runs, and gets their results and the reasons of their failures.
func TestEngineFlows(t *testing.T) {
	t.Parallel()
	n := family(t, durable.Func("take-back", takeBack), nil)
	putTemplate(t, n, `{"type": "refund", "steps": [{"step_id": "pay", "wait": {"kind": "KIND_HUMAN"}}]}`)
	putTemplate(t, n, `{"type": "voucher", "result": "V-${payload.order}",
		"steps": [{"step_id": "print", "delay": {"duration": "0s"}}]}`)
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key, Args: []byte(`{"order": "7"}`)}); err != nil {
		t.Fatal(err)
	}
	run := runOf(t, n, "refund")
	if run.GetScope() != "order" || run.GetScopeId() != "7" {
		t.Errorf("the run is %v", run)
	}
	if _, err := n.Flows.Complete(t.Context(), &progressorv1.CompleteStepRequest{
		Namespace: "ns", RunId: run.GetRunId(), StepId: "pay", Outcome: &progressorv1.CompleteStepRequest_Failure{
			Failure: &progressorv1.Failure{Reason: "card_expired", Message: "in May"}},
	}, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	p := stored(t, n, completed)
	check(t, "end", lastEvent(p), `{"k":"end","n":"take-back","v":"V-7"}`)
}

// On PostgreSQL, the cancel of a function cancels its runs, and a run whose template does not exist
// is an error.
func TestEngineCancelsFlows(t *testing.T) {
	t.Parallel()
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Flow[any](ctx, "none", "none", nil).Get(); err == nil {
			return "the run has started", nil
		}
		return durable.Flow[string](ctx, "wait", "wait", nil).Get()
	}), nil)
	putTemplate(t, n, `{"type": "wait", "steps": [{"step_id": "a", "wait": {"kind": "KIND_HUMAN"}}]}`)
	begin(t, n)
	run := runOf(t, n, "wait")
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key, Reason: "no more"}); err != nil {
		t.Fatal(err)
	}
	stored(t, n, cancelled)
	enginetest.Eventually(t, time.Minute, "the run is cancelled", func() bool {
		r, err := n.Flows.Get(t.Context(), "ns", run.GetRunId(), 0)
		return err == nil && r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_CANCELLED &&
			r.GetCancelReason() == "the parent was cancelled"
	})
}
