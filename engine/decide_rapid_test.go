package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// Responses of every shape that a Go processor can return, including invalid ones.
var (
	drawnText = rapid.OneOf(rapid.String(),
		rapid.SampledFrom([]string{"", "\x00", "\xff\xfe", "a\x00b", "hopeless", process.ReasonTimeout}))
	drawnTime = rapid.Custom(func(t *rapid.T) *timestamppb.Timestamp {
		return &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "s"), Nanos: rapid.Int32().Draw(t, "ns")}
	})
	drawnDuration = rapid.Custom(func(t *rapid.T) *durationpb.Duration {
		return &durationpb.Duration{Seconds: rapid.Int64().Draw(t, "s"), Nanos: rapid.Int32().Draw(t, "ns")}
	})
	drawnTimer = rapid.Custom(func(t *rapid.T) *progressorv1.SetTimer {
		timer := &progressorv1.SetTimer{Remove: rapid.Bool().Draw(t, "remove")}
		if rapid.Bool().Draw(t, "named") {
			timer.Name = drawnText.Draw(t, "name")
		}
		switch rapid.IntRange(0, 5).Draw(t, "when") {
		case 0:
			return nil
		case 1:
			timer.When = &progressorv1.SetTimer_At{At: drawnTime.Draw(t, "at")}
		case 2:
			timer.When = &progressorv1.SetTimer_At{}
		case 3:
			timer.When = &progressorv1.SetTimer_After{After: drawnDuration.Draw(t, "after")}
		case 4:
			timer.When = &progressorv1.SetTimer_After{
				After: durationpb.New(time.Duration(rapid.Int32().Draw(t, "ms")) * time.Millisecond),
			}
		}
		return timer
	})
	drawnEvent = rapid.Custom(func(t *rapid.T) *progressorv1.NewEvent {
		if rapid.IntRange(0, 9).Draw(t, "nil") == 0 {
			return nil
		}
		e := &progressorv1.NewEvent{
			Payload: rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "payload"), Metadata: drawnStruct().Draw(t, "metadata"),
		}
		if rapid.Bool().Draw(t, "timed") {
			e.Timestamp = drawnTime.Draw(t, "timestamp")
		}
		return e
	})
	drawnCommand = rapid.SampledFrom([]*progressorv1.Command{
		nil, {}, {Command: &progressorv1.Command_Notify{}},
		{Command: &progressorv1.Command_Notify{Notify: &progressorv1.NotifyCommand{ProcessId: "p"}}},
		{Command: &progressorv1.Command_Start{}}, {Command: &progressorv1.Command_Cancel{}},
	})
	drawnResult = rapid.Custom(func(t *rapid.T) *progressorv1.Result {
		r := &progressorv1.Result{
			Events: rapid.SliceOfN(drawnEvent, 0, 3).Draw(t, "events"), Metadata: drawnStruct().Draw(t, "metadata"),
			AuxState:         rapid.SampledFrom([][]byte{nil, {}, {1}}).Draw(t, "state"),
			Response:         rapid.SampledFrom([][]byte{nil, {}, {1}}).Draw(t, "response"),
			NamedTimers:      rapid.SliceOfN(drawnTimer, 0, 2).Draw(t, "timers"),
			UnsetNamedTimers: rapid.SliceOfN(drawnText, 0, 2).Draw(t, "unset"),
		}
		if rapid.IntRange(0, 5).Draw(t, "commanding") == 0 {
			r.Commands = rapid.SliceOfN(drawnCommand, 0, 2).Draw(t, "commands")
		}
		switch rapid.IntRange(0, 7).Draw(t, "action") {
		case 1:
			r.Action = &progressorv1.Result_SetTimer{SetTimer: drawnTimer.Draw(t, "timer")}
		case 2:
			r.Action = &progressorv1.Result_UnsetTimer{}
		case 3:
			r.Action = &progressorv1.Result_Remove{}
		case 4:
			r.Action = &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}}
		}
		return r
	})
	drawnResponse = rapid.Custom(func(t *rapid.T) *progressorv1.ProcessResponse {
		switch rapid.IntRange(0, 10).Draw(t, "outcome") {
		case 0:
			return nil
		case 1:
			return &progressorv1.ProcessResponse{}
		case 2:
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{}}
		case 3:
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{}}
		case 4:
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{}}
		case 5:
			rejection := &progressorv1.Rejection{
				Reason: drawnText.Draw(t, "reason"), Message: drawnText.Draw(t, "message"),
				Details: rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "details"),
			}
			return &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Rejection{Rejection: rejection},
			}
		case 6, 7:
			failure := &progressorv1.Failure{
				Reason: drawnText.Draw(t, "reason"), Message: drawnText.Draw(t, "message"),
				NonRetryable: rapid.Bool().Draw(t, "final"),
				Details:      drawnValue().Draw(t, "details"),
			}
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure}}
		}
		return &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: drawnResult.Draw(t, "result")},
		}
	})
	drawnError = rapid.Custom(func(t *rapid.T) error {
		inner := errors.New(drawnText.Draw(t, "text"))
		return []error{
			nil, nil, nil, inner, context.DeadlineExceeded, context.Canceled, &processor.UnreachableError{Err: inner},
			&processor.LostError{Err: inner},
			&processor.BadResponseError{Err: inner}, &processor.FailureError{}, processor.Fail("hopeless", "x"),
			processor.Reject("no", "x"),
			fmt.Errorf("in: %w", &historyTooLargeError{events: 1}),
		}[rapid.IntRange(0, 12).Draw(t, "error")]
	})
	drawnEnd = rapid.Custom(func(t *rapid.T) attemptEnd {
		claim := claimOf(rapid.SampledFrom(process.TaskTypes()).Draw(t, "type"),
			rapid.Int32Range(1, 5).Draw(t, "attempt"))
		claim.LastEventID = rapid.Int64Range(0, 1000).Draw(t, "last event")
		return attemptEnd{
			claim: claim, response: drawnResponse.Draw(t, "response"), err: drawnError.Draw(t, "error"),
			random: rapid.Float64Range(0, 0.999).Draw(t, "random"),
			retry: process.RetryPolicy{
				Initial:       time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
				Coefficient:   rapid.Float64Range(0, 10).Draw(t, "coefficient"),
				Max:           time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "max")),
				MaxAttempts:   rapid.Int32Range(0, 6).Draw(t, "attempts"),
				JitterPortion: rapid.Float64Range(0, 1).Draw(t, "jitter"), NonRetryable: []string{"hopeless"},
			},
		}
	})
)

// drawnStruct and drawnValue are recursive: a value may be an object, and an object has values.
func drawnStruct() *rapid.Generator[*structpb.Struct] {
	return rapid.Custom(func(t *rapid.T) *structpb.Struct {
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return &structpb.Struct{Fields: rapid.MapOfN(drawnText, rapid.Deferred(drawnValue), 0, 3).Draw(t, "fields")}
	})
}

func drawnValue() *rapid.Generator[*structpb.Value] {
	return rapid.Custom(func(t *rapid.T) *structpb.Value {
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return &structpb.Value{}
		case 2:
			return structpb.NewNumberValue(rapid.SampledFrom([]float64{0, -1.5, 1e300, math.NaN(), math.Inf(1)}).Draw(t,
				"number"))
		case 3:
			return structpb.NewListValue(&structpb.ListValue{
				Values: rapid.SliceOfN(drawnValue(), 0, 2).Draw(t, "list"),
			})
		case 4:
			return structpb.NewStructValue(drawnStruct().Draw(t, "object"))
		case 5:
			return structpb.NewNullValue()
		}
		return structpb.NewStringValue(drawnText.Draw(t, "string"))
	})
}

// decide accepts every input, is deterministic, and never panics.
func TestDecideIsTotalAndPure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		checkDecision(t, drawnEnd.Draw(t, "end"))
	})
}

func checkDecision(t tester, end attemptEnd) {
	before := proto.CloneOf(end.response)
	first, second := decide(end), decide(end)
	if !proto.Equal(before, end.response) && !hasNaN(end.response) {
		t.Fatal("the response of the processor was modified")
	}
	if !sameCompletion(first.completion, second.completion) {
		t.Fatalf("two decisions about one attempt:\n%+v\n%+v", first.completion, second.completion)
	}
	c := first.completion
	switch c.Outcome {
	case storage.Finished, storage.Completed:
		if c.TaskType == process.TaskCancel {
			t.Fatalf("a CANCEL task has the outcome %q", c.Outcome)
		}
	case storage.Cancelled:
		if c.TaskType != process.TaskCancel || c.Timer != nil || c.UnsetTimers ||
			len(c.NamedTimers)+len(c.UnsetNames) > 0 {
			t.Fatalf("a %s is cancelled with %+v", c.TaskType, c)
		}
	case storage.Failed, storage.Retry, storage.Rejected, storage.Removed:
	default:
		t.Fatalf("outcome %q", c.Outcome)
	}
	if c.LastEventID != end.claim.LastEventID || c.FencingToken != end.claim.FencingToken ||
		c.TaskID != end.claim.TaskID {
		t.Fatalf("events would follow %d, under token %d", c.LastEventID, c.FencingToken)
	}
	checkFailure(t, end, first)
	checkRefusal(t, end)
	checkStorable(t, c)
	// The stored data can be decoded again.
	if _, err := wire.Failure(c.Failure); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Rejection(c.Rejection); err != nil {
		t.Fatal(err)
	}
}

func checkFailure(t tester, end attemptEnd, d *decision) {
	c := d.completion
	if c.Outcome == storage.Retry {
		if !end.claim.TaskType.RetriedOnFailure() {
			t.Fatalf("a %s is retried", end.claim.TaskType)
		}
		if c.RetryAfter < time.Millisecond || end.claim.Attempt >= end.retry.MaxAttempts {
			t.Fatalf("attempt %d of %d is followed by one after %s", end.claim.Attempt, end.retry.MaxAttempts,
				c.RetryAfter)
		}
	}
	if c.Outcome == storage.Failed || c.Outcome == storage.Retry || c.Outcome == storage.Rejected {
		if c.AuxState != nil || c.Response != nil || c.Metadata != nil || c.Events != nil || c.Timer != nil ||
			c.NamedTimers != nil || c.UnsetNames != nil || c.UnsetTimers {
			t.Fatalf("a %s keeps %+v", c.Outcome, c)
		}
	}
	failed := c.Outcome == storage.Failed || c.Outcome == storage.Retry
	if failed != (d.failure != nil) || failed != (c.Failure != nil) {
		t.Fatalf("a %s has the failure %v, stored as %q", c.Outcome, d.failure, c.Failure)
	}
}

// sameCompletion compares completions without the spaces in JSON, which protojson adds randomly.
func sameCompletion(a, b storage.Completion) bool {
	for _, c := range []*storage.Completion{&a, &b} {
		c.Failure, c.Rejection, c.Metadata = compact(c.Failure), compact(c.Rejection), compact(c.Metadata)
		for n := range c.Events {
			c.Events[n].Metadata = compact(c.Events[n].Metadata)
		}
	}
	return reflect.DeepEqual(a, b)
}

func compact(text []byte) []byte {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return text
	}
	text, _ = json.Marshal(v)
	return text
}

func hasNaN(r *progressorv1.ProcessResponse) bool {
	return strings.Contains(fmt.Sprint(r), "nan")
}
