package engine

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// nested returns lists nested to a depth.
func nested(depth int) *structpb.Value {
	v := structpb.NewBoolValue(true)
	for range depth {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return v
}

func fuzzedAnswers() []*progressorv1.ProcessResponse {
	result := func(r *progressorv1.Result) *progressorv1.ProcessResponse {
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: r}}
	}
	object := func(v *structpb.Value) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"a": v}}
	}
	after := func(d *durationpb.Duration) *progressorv1.SetTimer {
		return &progressorv1.SetTimer{When: &progressorv1.SetTimer_After{After: d}}
	}
	return []*progressorv1.ProcessResponse{
		{},
		result(&progressorv1.Result{}),
		result(&progressorv1.Result{
			Events: []*progressorv1.NewEvent{
				{
					Payload: []byte("e"), Metadata: object(structpb.NewStringValue("a\x00b")),
					Timestamp: timestamppb.New(time.Unix(1, 0)),
				},
			},
			AuxState: []byte("state"), Response: []byte("response"), Metadata: object(structpb.NewNumberValue(1.5)),
			Action: &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}},
		}),
		result(&progressorv1.Result{
			Action: &progressorv1.Result_SetTimer{SetTimer: after(durationpb.New(process.MaxDuration))},
		}),
		result(&progressorv1.Result{
			Action: &progressorv1.Result_SetTimer{
				SetTimer: after(&durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MinInt32}),
			},
		}),
		result(&progressorv1.Result{
			NamedTimers: []*progressorv1.SetTimer{
				{Name: "n", When: &progressorv1.SetTimer_At{At: timestamppb.New(time.Unix(253402300799, 0))}},
			}, UnsetNamedTimers: []string{"m"},
		}),
		result(&progressorv1.Result{
			NamedTimers: []*progressorv1.SetTimer{
				{Name: "a\x00b", When: &progressorv1.SetTimer_After{After: &durationpb.Duration{}}},
			},
		}),
		result(&progressorv1.Result{UnsetNamedTimers: []string{"a\x00b"}}),
		result(&progressorv1.Result{Metadata: object(structpb.NewNumberValue(math.NaN()))}),
		result(&progressorv1.Result{Metadata: object(nested(300))}),
		result(&progressorv1.Result{Events: []*progressorv1.NewEvent{{Metadata: object(&structpb.Value{})}}}),
		result(&progressorv1.Result{Commands: []*progressorv1.Command{
			{
				Command: &progressorv1.Command_Start{
					Start: &progressorv1.StartCommand{
						ProcessId: "p", Metadata: object(nested(2)), NotifyParentArgs: []byte{},
					},
				},
			},
			{
				Command: &progressorv1.Command_Notify{
					Notify: &progressorv1.NotifyCommand{Namespace: "other", ProcessId: "p", Args: []byte("x")},
				},
			},
			{Command: &progressorv1.Command_Cancel{Cancel: &progressorv1.CancelCommand{ProcessId: "p", Reason: "r"}}},
		}}),
		{
			Outcome: &progressorv1.ProcessResponse_Rejection{
				Rejection: &progressorv1.Rejection{Reason: "no\x00", Message: "m", Details: []byte{0xff}},
			},
		},
		{
			Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Reason: "r", Message: strings.Repeat("ä", 5000), Details: nested(5)},
			},
		},
		{
			Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Reason: "r", Details: nested(3000)},
			},
		},
		{
			Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Details: structpb.NewNumberValue(math.Inf(1))},
			},
		},
	}
}

// FuzzDecide passes arbitrary responses of a processor to decide. It must not panic, errors must
// name the field, and the decision must be storable.
func FuzzDecide(f *testing.F) {
	for n, answer := range fuzzedAnswers() {
		text, err := proto.Marshal(answer)
		if err != nil {
			f.Fatal(err)
		}
		for kind := range process.TaskTypes() {
			f.Add(text, byte(kind), int32(n), int64(n))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, kind byte, attempt int32, lastEvent int64) {
		answer := &progressorv1.ProcessResponse{}
		if proto.Unmarshal(text, answer) != nil {
			return
		}
		types := process.TaskTypes()
		claim := claimOf(types[int(kind)%len(types)], max(attempt, 1))
		claim.LastEventID = max(lastEvent, 0)
		checkDecision(t, attemptEnd{claim: claim, response: answer, retry: process.DefaultRetryPolicy(), random: 0.5})
	})
}

// tester is implemented by *testing.T and *rapid.T.
type tester interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

var _, _ tester = (*testing.T)(nil), (*rapid.T)(nil)

// fields are the prefixes of the field names in errors for invalid responses.
var fields = []string{"outcome", "result", "rejection", "failure"}

// checkRefusal checks that the error for an invalid response names the field.
func checkRefusal(t tester, end attemptEnd) {
	err := processor.Check(wire.TaskType(end.claim.TaskType), end.response)
	if err == nil || end.err != nil || end.claim.TaskType == process.TaskRemove {
		return
	}
	var refusal *process.InvalidError
	if !errors.As(err, &refusal) {
		t.Fatalf("%v does not name a field", err)
	}
	for _, field := range fields {
		if strings.HasPrefix(refusal.Field, field) {
			return
		}
	}
	t.Fatalf("%q is not a field of a response: %v", refusal.Field, err)
}

// checkStorable checks for values that PostgreSQL rejects. One such value would fail the whole
// flush.
func checkStorable(t tester, c storage.Completion) {
	texts := append([]string{c.Detail}, c.UnsetNames...)
	documents := [][]byte{c.Failure, c.Rejection, c.Metadata}
	var times []time.Time
	timers := c.NamedTimers
	if c.Timer != nil {
		timers = append([]storage.SetTimer{*c.Timer}, timers...)
	}
	for _, timer := range timers {
		texts, times = append(texts, timer.Name), append(times, timer.At)
		if timer.After < 0 || timer.After > process.MaxDuration {
			t.Fatalf("a timer after %s", timer.After)
		}
	}
	for _, e := range c.Events {
		documents, times = append(documents, e.Metadata), append(times, e.Timestamp)
	}
	for _, m := range c.Messages {
		texts = append(texts, m.Target.Namespace, m.Target.ProcessID, m.Reason)
		documents, times = append(documents, m.Metadata), append(times, m.StartTime)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Fatalf("not valid in a column of PostgreSQL: %q", text)
		}
	}
	for _, at := range times {
		if !at.IsZero() && (at.Unix() < 0 || at.Year() > 9999) {
			t.Fatalf("not a valid time for PostgreSQL: %s", at)
		}
	}
	for _, document := range documents {
		var value any
		if len(document) == 0 {
			continue
		}
		if err := json.Unmarshal(document, &value); err != nil || !utf8.Valid(document) {
			t.Fatalf("not JSON: %v: %s", err, document)
		}
		if depth := depthOf(t, value); depth > 110 { // the limit of a value, with its envelope
			t.Fatalf("nested %d deep: %.200s", depth, document)
		}
	}
}

// depthOf returns the nesting depth of a value. It also fails for NUL characters, which jsonb does
// not support.
func depthOf(t tester, value any) int {
	depth := 0
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "\x00") {
			t.Fatalf("NUL in %q", v)
		}
	case map[string]any:
		for name, member := range v {
			depth = max(depth, 1+depthOf(t, name), 1+depthOf(t, member))
		}
	case []any:
		for _, element := range v {
			depth = max(depth, 1+depthOf(t, element))
		}
	}
	return depth
}
