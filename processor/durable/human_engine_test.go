package durable_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// On PostgreSQL, a question waits in the inbox, an answer must match the schema, and a question
// that is due ends by itself.
func TestEngineHuman(t *testing.T) {
	t.Parallel()
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		yes, err := durable.Human[bool](ctx, "release", durable.Title("Release ${a}?"), durable.About("tea"))
		if err != nil {
			return "", err
		}
		answer, err := durable.Human[int](ctx, "count", durable.Due(time.Millisecond), durable.DueAnswer(7))
		if err != nil {
			return "", err
		}
		_, err = durable.Human[int](ctx, "late", durable.Due(time.Millisecond), durable.Assignees("sales"))
		late, _ := errors.AsType[*durable.StepError](err)
		return fmt.Sprint(yes, answer, late.Reason), nil
	}), nil)
	begin(t, n)
	run := runOf(t, n, "release")
	waits, _, err := n.Flows.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{Namespace: "ns"})
	if err != nil || len(waits) != 1 {
		t.Fatal(waits, err)
	}
	if w := waits[0]; w.GetTitle() != "Release ${a}?" || w.GetInput().GetStringValue() != "tea" ||
		w.GetRunId() != run.GetRunId() || w.GetStepId() != "answer" ||
		w.GetKind() != progressorv1.WaitAction_KIND_HUMAN ||
		w.GetResultSchema().GetFields()["type"].GetStringValue() != "boolean" {
		t.Errorf("the wait is %v", w)
	}
	answer := func(v *structpb.Value) error {
		_, err := n.Flows.Complete(t.Context(), &progressorv1.CompleteStepRequest{
			Namespace: "ns", RunId: run.GetRunId(), StepId: "answer",
			Outcome: &progressorv1.CompleteStepRequest_Result{Result: v},
		}, process.Actor{})
		return err
	}
	wrong, ok := errors.AsType[*process.InvalidError](answer(structpb.NewStringValue("yes")))
	if !ok || wrong.Field != "result" {
		t.Errorf("a wrong answer: %v", wrong)
	}
	if err := answer(structpb.NewBoolValue(true)); err != nil {
		t.Fatal(err)
	}
	p := stored(t, n, completed)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"true 7timeout"}`)
}
