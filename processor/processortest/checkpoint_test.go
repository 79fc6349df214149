package processortest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A timer can store checkpoints, even if its attempt fails afterwards. Other tasks cannot.
func TestCheckpoints(t *testing.T) {
	var late context.Context
	p := processortest.New(processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		late = ctx
		if r.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			_, err := processor.Checkpoint(ctx, processor.Result().Event([]byte("x")))
			if !errors.Is(err, processor.ErrNoCheckpoints) {
				t.Errorf("%s: %v", r.GetType(), err)
			}
			return processor.Result().SetTimerAfter(time.Second).Done()
		}
		made := processor.Result().Event(fmt.Appendf(nil, "a%d", r.GetAttempt())).AuxState([]byte("b"))
		if yield, err := processor.Checkpoint(ctx, made); yield || err != nil {
			t.Error(yield, err)
		}
		if r.GetAttempt() == 1 {
			return nil, processor.Fail("odd", "odd")
		}
		return processor.Result().Event([]byte("c")).Done()
	}))
	if _, err := p.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, e := range p.Events() {
		events = append(events, fmt.Sprintf("%d %s of %d", e.GetEventId(), e.GetPayload(), e.GetTaskId()))
	}
	if got, want := fmt.Sprint(events, string(p.State())), "[1 a1 of 2 2 a2 of 2 3 c of 2]b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := len(p.Trace()[1].GetEvents()); n != 3 {
		t.Errorf("the task has %d events", n)
	}
	if _, err := processor.Checkpoint(late, processor.Result().Event(nil)); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a checkpoint after the end: %v", err)
	}
}
