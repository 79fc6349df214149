package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func asksPerson(ctx durable.Ctx) (string, error) {
	_, err := durable.Human[bool](ctx, "c")
	return "", err
}

func startsFlow(ctx durable.Ctx) (string, error) {
	_, err := durable.Flow[bool](ctx, "c", "t", 1).Get()
	return "", err
}

// A check reports that a question became a run of a flow, or the reverse.
func TestCheckQuestionOrFlow(t *testing.T) {
	const place = " (durable/check_human_test.go)"
	check(t, "flow", checked(t, start(t, function(startsFlow)), function(asksPerson)),
		"changed child c: was started as a run of a flow, but is now a question"+place)
	check(t, "question", checked(t, start(t, function(asksPerson)), function(startsFlow)),
		"changed child c: was started as a question, but is now a run of a flow"+place)
}

// Older versions did not record whether a run is a question. A check accepts such a run as both.
func TestCheckRunOfOlderVersion(t *testing.T) {
	old := strings.NewReplacer(`,"run":"flow"`, "", `,"run":"question"`, "")
	for _, f := range []func(ctx durable.Ctx) (string, error){asksPerson, startsFlow} {
		p := start(t, function(f)).Snapshot()
		started := 0
		for _, e := range p.GetHistory() {
			text := old.Replace(string(e.GetPayload()))
			if text != string(e.GetPayload()) {
				started++
			}
			e.Payload = []byte(text)
		}
		if started != 1 {
			t.Errorf("%d events record the kind of a run, want 1", started)
		}
		check(t, "question", checkedProcess(t, p, function(asksPerson)), "")
		check(t, "flow", checkedProcess(t, p, function(startsFlow)), "")
	}
}

// A check reports an answer that cannot be decoded, and continues with the error of Human.
func TestCheckAnswerOfAnotherType(t *testing.T) {
	const finding = "changed child c: the answer cannot be decoded: " +
		"cannot unmarshal bool into Go value of type int (durable/check_human_test.go)"
	asks := func(wait func(ctx durable.Ctx)) func(ctx durable.Ctx) (string, error) {
		return func(ctx durable.Ctx) (string, error) {
			_, err := durable.Human[int](ctx, "c", durable.In("kids"))
			wrong, ok := errors.AsType[*durable.StepError](err)
			if !ok || wrong.Reason != durable.ReasonBadValue {
				return "", err
			}
			if wait == nil {
				return "", err
			}
			wait(ctx)
			return "", nil
		}
	}
	wait := func(ctx durable.Ctx) { durable.Sleep(ctx, "wait", time.Hour) }
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		_, err := durable.Human[bool](ctx, "c", durable.In("kids"))
		wait(ctx)
		return "", err
	}))
	endOf(t, p, "~flow/process/c~1", &progressorv1.ChildEnd{Status: completed, Response: []byte("true")})
	check(t, "journal", journal(p), "start:f child:c ended:c timer:wait")
	check(t, "handled", checked(t, p, function(asks(wait))), finding)
	check(t, "returned", checked(t, p, function(asks(nil))),
		"error the function returns an error here, and no longer waits: bad_value: "+
			"the answer of run c cannot be decoded: cannot unmarshal bool into Go value of type int\n"+finding)
	check(t, "new step", checked(t, p, function(asks(func(ctx durable.Ctx) {
		_ = durable.Run(ctx, "a", func(context.Context) error { return nil })
		wait(ctx)
	}))), finding+"\nnew step a: the next task runs it (durable/check_human_test.go)")
}
