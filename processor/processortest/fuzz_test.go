package processortest_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// scripted answers each attempt according to the next byte, and with an empty result after the last
// byte.
type scripted struct {
	script []byte
	odd    *progressorv1.ProcessResponse // an arbitrary response
}

func (s *scripted) Process(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if len(s.script) == 0 {
		return processor.Result().Done()
	}
	next := s.script[0]
	s.script = s.script[1:]
	switch next % 10 {
	case 0:
		return processor.Result().Event([]byte("e")).AuxState([]byte{next}).SetTimerAfter(
			time.Duration(next) * time.Millisecond).Done()
	case 1:
		return processor.Result().SetNamedTimerAfter("a", 0).UnsetNamedTimer("b").Done()
	case 2:
		return processor.Result().SetNamedTimerAfter("b", time.Second).UnsetTimers().Done()
	case 3:
		return processor.Result().RemoveAfter(time.Minute).Done()
	case 4:
		return processor.Result().Complete().Done()
	case 5:
		return processor.Result().Remove().Done()
	case 6:
		return nil, processor.Reject("no", "no")
	case 7:
		return nil, processor.Fail("broken", "broken")
	case 8:
		return nil, processor.Fail("broken", "broken").NonRetryable()
	default:
		return proto.CloneOf(s.odd), nil
	}
}

// FuzzProcess runs random operations on a process with random answers of its processor. It must not
// panic, and the resulting state must be valid.
func FuzzProcess(f *testing.F) {
	odd, err := proto.Marshal(
		&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
			Events: []*progressorv1.NewEvent{{Payload: []byte("odd")}},
			Action: &progressorv1.Result_SetTimer{SetTimer: &progressorv1.SetTimer{
				When: &progressorv1.SetTimer_After{After: &durationpb.Duration{Seconds: -5}},
			}},
		}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 1, 1, 8, 2, 3}, []byte{0, 10, 7, 9, 20}, odd)
	f.Add([]byte{0, 1, 4, 8, 6, 5, 8}, []byte{9, 9, 9, 9, 0, 6, 4}, odd)
	f.Add([]byte{0, 1, 7, 1, 8, 2, 8, 3, 5, 5}, []byte{0, 8, 2, 7, 7, 7, 7}, []byte{})
	f.Add([]byte{0, 8, 8, 0, 5, 8}, []byte{3, 3, 5}, []byte{0x0a, 0x00})
	f.Fuzz(func(t *testing.T, steps, script, odd []byte) {
		answer := &progressorv1.ProcessResponse{}
		if proto.Unmarshal(odd, answer) != nil || len(steps) > 100 || len(script) > 200 {
			return
		}
		p := processortest.New(&scripted{script: script, odd: answer})
		ctx := t.Context()
		for _, step := range steps {
			switch step % 9 {
			case 0:
				_, _ = p.Start(ctx, []byte("start")) // rejected and failed operations are valid steps
			case 1:
				_, _ = p.Call(ctx, nil, processortest.IdempotencyKey(strings.Repeat("k", int(step)%3)))
			case 2:
				_ = p.RepairSimple(ctx)
			case 3:
				_, _ = p.Repair(ctx, nil)
			case 4:
				_ = p.Notify(ctx, nil)
			case 5:
				_ = p.Cancel(ctx, "enough")
			case 6:
				_ = p.Suspend()
			case 7:
				_ = p.Resume(ctx)
			case 8:
				_ = p.Advance(ctx, time.Duration(step)*time.Second)
			}
			checkState(t, p)
		}
	})
}

// namesField matches the error for an invalid answer. It also matches the error for too many
// timers, which several valid answers together can set.
var namesField = regexp.MustCompile(`: (outcome|result|rejection|failure)[.:\[]|timers may be pending`)

// checkState reports states of the process that the engine could not have stored.
func checkState(t *testing.T, p *processortest.Process) {
	s, status := p.Snapshot(), p.Status()
	for i, event := range s.GetHistory() {
		if event.GetEventId() != int64(i)+1 {
			t.Fatalf("event %d is the %dth", event.GetEventId(), i+1)
		}
	}
	if s.GetLastEventId()-s.GetFirstEventId()+1 != int64(len(s.GetHistory())) {
		t.Fatalf("the last event is %d, with %d events in the history", s.GetLastEventId(), len(s.GetHistory()))
	}
	names := map[string]bool{}
	for _, timer := range s.GetTimers() {
		if names[timer.GetName()] {
			t.Fatalf("two timers have the name %q", timer.GetName())
		}
		names[timer.GetName()] = true
	}
	switch status {
	case process.StatusError:
		if s.GetCorruptedBy() == 0 || len(names) > 0 {
			t.Fatalf("in ERROR by task %d, with timers %v", s.GetCorruptedBy(), names)
		}
	case process.StatusCompleted, process.StatusCancelled:
		if len(names) > 0 {
			t.Fatalf("%s, with timers %v", status, names)
		}
	}
	ended := map[int64]bool{}
	for _, task := range p.Trace() {
		if ended[task.GetTaskId()] {
			t.Fatalf("task %d has ended twice", task.GetTaskId())
		}
		ended[task.GetTaskId()] = true
		failure := task.GetFailure()
		if failed := task.GetStatus() == progressorv1.TaskStatus_TASK_STATUS_ERROR; failed != (failure != nil) {
			t.Fatalf("a task is %s, with the failure %v", task.GetStatus(), failure)
		}
		if failure.GetReason() == process.ReasonBadResponse && !namesField.MatchString(failure.GetMessage()) {
			t.Fatalf("%q names no field", failure.GetMessage())
		}
	}
}
