package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine/flows"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func input(t testing.TB, step, json string) *progressorv1.StepInput {
	return &progressorv1.StepInput{StepId: step, Input: value(t, json)}
}

// TestRetryWithInputs retries a run with other inputs for a step whose expression failed, a step
// that was undone, and a step that starts a run. The inputs stay for later retries and for
// compensations.
func TestRetryWithInputs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "inner", "steps": [{"step_id": "only", "job": {}}]}`)
	n.put(t, "pull", `{"type": "outer", "steps": [
		{"step_id": "first", "job": {}, "compensation": {"name": "undo"}},
		{"step_id": "bad", "job": {}, "input": "${payload.missing}"},
		{"step_id": "sub", "run": {"type": "inner", "payload": "${payload.old}"}}]}`)
	n.run(t, "pull", "outer", "r", `{"old": "x"}`)
	n.answer(t, n.lease(t, "first"), "", "")
	n.answer(t, n.lease(t, "undo"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "FAILED: first SUCCEEDED undo SUCCEEDED bad FAILED sub CANCELLED")

	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r", Inputs: []*progressorv1.StepInput{
		input(t, "first", `"a"`), input(t, "bad", `"b"`), input(t, "sub", `"c"`),
	}})
	n.do(t, "first", "a", "")
	n.do(t, "bad", "b", "no")
	undo := n.lease(t, "undo")
	same(t, undo.GetJob().GetArgs().GetStructValue().GetFields()["input"].GetStringValue(), "a")
	n.answer(t, undo, "", "")
	r := n.ended(t, "pull", "r")
	same(t, r.GetSteps()[1].GetInput().GetStringValue(), "b")
	same(t, n.ask(t, "SELECT string_agg(message, '; ') FROM job_events WHERE type = 'retried'"),
		"with new inputs for bad, first, sub")

	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r", Inputs: []*progressorv1.StepInput{input(t, "bad", "null")}})
	n.do(t, "first", "a", "")
	l := n.lease(t, "bad")
	if _, null := l.GetJob().GetArgs().GetKind().(*structpb.Value_NullValue); !null {
		t.Errorf("the input is %v, want null", l.GetJob().GetArgs())
	}
	n.answer(t, l, "", "")
	n.do(t, "only", "c", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "SUCCEEDED: first SUCCEEDED 3 bad SUCCEEDED 3 sub SUCCEEDED")
}

// TestRetryRefusesInputs checks that a retry is rejected if an input would have no effect or the
// inputs are too large, that the error names the field, and that the run does not change.
func TestRetryRefusesInputs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "all", "steps": [{"step_id": "done", "job": {}}, {"step_id": "fails", "job": {}},
		{"step_id": "each", "job": {}, "for_each": {"items": "payload"}}, {"step_id": "ask", "wait": {}},
		{"step_id": "pause", "delay": {"duration": "1s"}}, {"step_id": "told", "process": {"args": "e30="}},
		{"step_id": "last", "job": {}}]}`)
	n.run(t, "pull", "all", "r", `["a"]`)
	n.answer(t, n.lease(t, "done"), "", "")
	n.answer(t, n.lease(t, "fails"), "", "no")
	before := n.ended(t, "pull", "r")
	of := func(bytes int) string { return `"` + strings.Repeat("<", bytes-2) + `"` }
	for _, c := range []struct {
		field, want string
		inputs      []*progressorv1.StepInput
	}{
		{"inputs[1].step_id", "version 1 of the template has no step none",
			[]*progressorv1.StepInput{input(t, "fails", "1"), input(t, "none", "1")}},
		{"inputs[0].step_id", "step done does not run again", []*progressorv1.StepInput{input(t, "done", "1")}},
		{"inputs[1].step_id", "step each has for_each",
			[]*progressorv1.StepInput{input(t, "fails", "1"), input(t, "each", "1")}},
		{"inputs[0].step_id", "step ask has no input", []*progressorv1.StepInput{input(t, "ask", "1")}},
		{"inputs[0].step_id", "step pause has no input", []*progressorv1.StepInput{input(t, "pause", "1")}},
		{"inputs[0].step_id", "its process has args", []*progressorv1.StepInput{input(t, "told", "1")}},
		{"inputs[1].step_id", "step fails is listed twice",
			[]*progressorv1.StepInput{input(t, "fails", "1"), input(t, "fails", "2")}},
		{"inputs[0].input", "at most 1048576 bytes",
			[]*progressorv1.StepInput{input(t, "fails", of(1_100_000))}},
		{"inputs", "at most 262144 bytes of JSON for all steps of a run (got 262145)",
			[]*progressorv1.StepInput{input(t, "fails", of(131_072)), input(t, "last", of(131_073))}},
	} {
		n.refuses(t, &progressorv1.RetryRunRequest{RunId: "r", Inputs: c.inputs}, c.field, c.want, before)
	}

	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r", Inputs: []*progressorv1.StepInput{
		input(t, "fails", of(131_072)), input(t, "last", of(131_072)),
	}})
	n.answer(t, n.lease(t, "fails"), "", "no")
	before = n.ended(t, "pull", "r")
	n.refuses(t, &progressorv1.RetryRunRequest{
		RunId: "r", Inputs: []*progressorv1.StepInput{input(t, "fails", of(131_073))},
	}, "inputs", "(got 262145)", before)
}

// refuses checks that a retry is refused, and that the run is unchanged. The error names the field
// or, if field is "", is a StatusError.
func (n *node) refuses(
	t *testing.T, r *progressorv1.RetryRunRequest, field, want string, before *progressorv1.Run,
) {
	t.Helper()
	r.Namespace = "pull"
	_, err := n.Retry(context.Background(), r, kim)
	if status, ok := errors.AsType[*flows.StatusError](err); field == "" && (!ok ||
		!strings.Contains(status.Message, want)) {
		t.Errorf("%v, want %s", err, want)
	}
	if field != "" {
		refusedField(t, err, field, want)
	}
	if after := n.ended(t, "pull", r.GetRunId()); !proto.Equal(after, before) {
		t.Errorf("the rejected retry (%s) changed the run to\n%v\nfrom\n%v", want, after, before)
	}
	same(t, n.ask(t, "SELECT status::text FROM processes WHERE process_id = '~flow/' || $1", r.GetRunId()), "COMPLETED")
}

// TestRefusedRetryKeepsVersion checks that a refused retry with the newest version changes neither
// the version nor the failure of the run.
func TestRefusedRetryKeepsVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putScoped(t, "REJECT_SAME_SCOPE", "")
	n.started(t, "r", "7")
	n.answer(t, n.lease(t), "", "no")
	before := n.ended(t, "pull", "r")
	n.started(t, "other", "7")
	n.putScoped(t, "REJECT_SAME_SCOPE", `"name": "another version",`)
	n.refuses(t, &progressorv1.RetryRunRequest{RunId: "r", NewestVersion: true}, "",
		"run other of the same scope has not ended", before)
	n.refuses(t, &progressorv1.RetryRunRequest{
		RunId: "r", NewestVersion: true, Inputs: []*progressorv1.StepInput{input(t, "b", "1")},
	}, "inputs[0].step_id", "version 2 of the template has no step b", before)
	n.answer(t, n.lease(t), "", "")
	n.ended(t, "pull", "other")
	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r"})
	n.answer(t, n.lease(t), "", "")
	r := n.ended(t, "pull", "r")
	same(t, fmt.Sprintf("%d %s", r.GetTemplateVersion(), runSummary(r)), "1 SUCCEEDED: a SUCCEEDED 2")
}

// TestRepeatWithAnotherPayload repeats a run with another payload, which must match the schema.
func TestRepeatWithAnotherPayload(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "payload_schema": {"type": "string"}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "one", "r", `"old"`)
	n.do(t, "a", "old", "")
	n.ended(t, "pull", "r")
	again := &progressorv1.RepeatRunRequest{Namespace: "pull", RunId: "r", Payload: value(t, "5")}
	_, err := n.Repeat(context.Background(), again, kim)
	refusedField(t, err, "payload", "")
	again.Payload = value(t, `"new"`)
	r, err := n.Repeat(context.Background(), again, kim)
	if err != nil {
		t.Fatal(err)
	}
	same(t, r.GetRepeatOfRunId(), "r")
	n.do(t, "a", "new", "")
	again.Payload = nil
	if _, err = n.Repeat(context.Background(), again, kim); err != nil {
		t.Fatal(err)
	}
	n.do(t, "a", "old", "")
}
