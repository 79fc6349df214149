package processor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	taskInit    = progressorv1.TaskType_TASK_TYPE_INIT
	taskCall    = progressorv1.TaskType_TASK_TYPE_CALL
	taskNotify  = progressorv1.TaskType_TASK_TYPE_NOTIFY
	taskRepair  = progressorv1.TaskType_TASK_TYPE_REPAIR
	taskTimeout = progressorv1.TaskType_TASK_TYPE_TIMEOUT
	taskCancel  = progressorv1.TaskType_TASK_TYPE_CANCEL
)

func of(t progressorv1.TaskType, args, state string) *progressorv1.ProcessRequest {
	return &progressorv1.ProcessRequest{Type: t, Args: []byte(args),
		Process: &progressorv1.Process{AuxState: []byte(state)}}
}

func TestRouter(t *testing.T) {
	named := func(name string) processor.Func {
		return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return processor.Result().Response([]byte(name)).Done()
		}
	}
	full := &processor.Router{
		OnInit: named("init"), OnCall: named("call"), OnNotify: named("notify"), OnRepair: named("repair"),
		OnTimeout: named("timeout"), OnCancel: named("cancel"),
	}
	for kind, want := range map[progressorv1.TaskType]string{
		taskInit: "init", taskCall: "call", taskNotify: "notify", taskRepair: "repair", taskTimeout: "timeout",
		taskCancel: "cancel",
	} {
		resp, err := full.Process(t.Context(), of(kind, "", ""))
		if got := string(resp.GetResult().GetResponse()); err != nil || got != want {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	resp, err := (&processor.Router{OnCall: named("call")}).Process(t.Context(), of(taskNotify, "", ""))
	if got := string(resp.GetResult().GetResponse()); err != nil || got != "call" {
		t.Errorf("NOTIFY without OnNotify: %q, %v", got, err)
	}
}

func TestNotHandled(t *testing.T) {
	guarded := processor.Guard(&processor.Router{}, nil)
	for kind, want := range map[progressorv1.TaskType]string{
		taskInit: "rejected", taskCall: "rejected", taskNotify: "rejected", taskRepair: "rejected",
		taskTimeout: "failed",
		taskCancel:  "unchanged", progressorv1.TaskType_TASK_TYPE_UNSPECIFIED: "failed", 99: "failed",
	} {
		resp, err := guarded.Process(t.Context(), of(kind, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := "unchanged"
		switch {
		case resp.GetRejection().GetReason() == processor.ReasonNotHandled:
			got = "rejected"
		case resp.GetFailure().GetReason() == processor.ReasonNotHandled && resp.GetFailure().GetNonRetryable():
			got = "failed"
		case !proto.Equal(resp.GetResult(), &progressorv1.Result{}):
			got = resp.String()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

type counter struct {
	Count int `json:"count"`
}

func counting() *processor.JSON[counter] {
	return &processor.JSON[counter]{
		OnCall: func(_ context.Context, t *processor.Task[counter]) error {
			var args struct{ Add int }
			if err := t.Args(&args); err != nil {
				return err
			}
			if args.Add < 0 {
				t.JSONEvent("lost")
				t.State.Count = -1
				return processor.Reject("negative", "add %d", args.Add)
			}
			t.State.Count += args.Add
			t.JSONEvent(args).JSONResponse(t.State)
			return nil
		},
		OnTimeout: func(_ context.Context, t *processor.Task[counter]) error {
			t.JSONEvent(math.NaN()).Complete()
			return nil
		},
	}
}

func TestJSON(t *testing.T) {
	tests := map[string]struct {
		req  *progressorv1.ProcessRequest
		want string // the state and the response, or the reason
	}{
		"first":           {of(taskCall, `{"add":2}`, ""), `{"count":2} {"count":2}`},
		"state kept":      {of(taskCall, `{"add":3}`, `{"count":2}`), `{"count":5} {"count":5}`},
		"state unchanged": {of(taskCall, `{"add":0}`, `{"count":2}`), `absent {"count":2}`},
		"newer state":     {of(taskCall, `{"add":1}`, `{"count":2,"more":true}`), `{"count":3} {"count":3}`},
		"rejected":        {of(taskCall, `{"add":-1}`, `{"count":2}`), "rejection negative"},
		"no args":         {of(taskCall, ``, ``), "rejection bad_args"},
		"other args":      {of(taskCall, `{"subtract":1}`, ``), "rejection bad_args"},
		"two args":        {of(taskCall, `{"add":1}{}`, ``), "rejection bad_args"},
		"bad state":       {of(taskCall, `{"add":1}`, `{"count":"x"}`), "failure bad_state"},
		"not encodable":   {of(taskTimeout, ``, ``), "failure error"},
		"not handled":     {of(taskRepair, ``, ``), "rejection not_handled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := processor.Guard(counting(), nil).Process(t.Context(), test.req)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			switch outcome := resp.GetOutcome().(type) {
			case *progressorv1.ProcessResponse_Result:
				got = "absent"
				if outcome.Result.AuxState != nil {
					got = string(outcome.Result.GetAuxState())
				}
				got += " " + string(outcome.Result.GetResponse())
			case *progressorv1.ProcessResponse_Rejection:
				got = "rejection " + outcome.Rejection.GetReason()
			case *progressorv1.ProcessResponse_Failure:
				got = "failure " + outcome.Failure.GetReason()
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHistoryOf(t *testing.T) {
	req := &progressorv1.ProcessRequest{Process: &progressorv1.Process{History: []*progressorv1.Event{
		{EventId: 1, Payload: []byte(`{"count":1}`)}, {EventId: 2, Payload: []byte(`{"count":2}`)},
	}}}
	events, err := processor.HistoryOf[counter](req)
	if err != nil || fmt.Sprint(events) != "[{1} {2}]" {
		t.Errorf("%v, %v", events, err)
	}
	req.Process.History[1].Payload = []byte("x")
	if _, err := processor.HistoryOf[counter](req); err == nil || !strings.Contains(err.Error(), "event 2") {
		t.Errorf("error %v", err)
	}
	if args, err := processor.ArgsOf[counter](of(taskCall, `{"count":7}`, "")); err != nil || args.Count != 7 {
		t.Errorf("%v, %v", args, err)
	}
}

func TestFailureOf(t *testing.T) {
	for _, test := range []struct {
		err    error
		reason string
	}{
		{processor.Fail("mine", "x"), "mine"},
		{fmt.Errorf("around: %w", processor.Fail("mine", "x")), "mine"},
		{&processor.UnreachableError{Err: io.EOF}, process.ReasonUnavailable},
		{&processor.LostError{Err: io.EOF}, process.ReasonUnavailable},
		{&processor.BadResponseError{Err: io.EOF}, process.ReasonBadResponse},
		{fmt.Errorf("around: %w", context.DeadlineExceeded), process.ReasonTimeout},
		{io.EOF, processor.ReasonError},
	} {
		if got := processor.FailureOf(test.err).GetReason(); got != test.reason {
			t.Errorf("%v: %q, want %q", test.err, got, test.reason)
		}
	}
	failure := processor.Fail("no\xffword\x00", "%w", io.EOF).WithDetails(map[string]any{"n": 1}).NonRetryable()
	if !errors.Is(failure, io.EOF) || failure.Failure.GetReason() != "no\uFFFDword\uFFFD" ||
		!failure.Failure.GetNonRetryable() ||
		failure.Failure.GetDetails().GetStructValue().GetFields()["n"].GetNumberValue() != 1 {
		t.Errorf("%v", failure.Failure)
	}
	if _, err := proto.Marshal(failure.Failure); err != nil {
		t.Error(err)
	}
	if got := processor.Fail("r", "x").WithDetails(math.Inf(1)).Failure; got.GetDetails() != nil ||
		!strings.Contains(got.GetMessage(), "omitted") {
		t.Errorf("%v", got)
	}
	if got := len(processor.Fail("r", "%s", strings.Repeat("ä", 1<<20)).Failure.GetMessage()); got > 9000 {
		t.Errorf("a message of %d bytes", got)
	}
}

func TestGuard(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	guard := func(err error) (*progressorv1.ProcessResponse, error) {
		return processor.Guard(processor.Func(func(
			context.Context, *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			return nil, err
		}), logger).Process(t.Context(), of(taskCall, "", ""))
	}
	if resp, err := guard(context.Canceled); err != nil || resp.GetFailure().GetReason() != processor.ReasonError {
		t.Errorf("another context: %v, %v", resp, err)
	}
	if _, err := guard(&processor.LostError{Err: io.EOF}); err == nil {
		t.Error("a lost response became a response")
	}
	if resp, err := guard(fmt.Errorf("around: %w", processor.Reject("no", "no"))); err != nil ||
		resp.GetRejection().GetReason() != "no" {
		t.Errorf("%v, %v", resp, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stuck := processor.Func(
		func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, ctx.Err()
		})
	if _, err := processor.Guard(stuck, logger).Process(over, of(taskCall, "", "")); !errors.Is(err, context.Canceled) {
		t.Errorf("its own context: %v", err)
	}
	panics := processor.Func(
		func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			panic("oh\xff")
		})
	resp, err := processor.Guard(panics, logger).Process(t.Context(), of(taskCall, "", ""))
	if err != nil || resp.GetFailure().GetReason() != process.ReasonPanic ||
		!strings.Contains(log.String(), "processor_test.go") {
		t.Errorf("%v, %v, log %s", resp, err, log.String())
	}
	aborts := processor.Func(
		func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			panic(http.ErrAbortHandler)
		})
	defer func() {
		if v := recover(); v != any(http.ErrAbortHandler) {
			t.Errorf("recovered %v", v)
		}
	}()
	_, _ = processor.Guard(aborts, logger).Process(t.Context(), of(taskCall, "", ""))
}

func TestCheck(t *testing.T) {
	big := make([]byte, process.MaxPayloadBytes+1)
	after := func(d *durationpb.Duration) *progressorv1.SetTimer {
		return &progressorv1.SetTimer{When: &progressorv1.SetTimer_After{After: d}}
	}
	named := func(name string) *progressorv1.SetTimer {
		return &progressorv1.SetTimer{Name: name, When: &progressorv1.SetTimer_After{After: durationpb.New(1)}}
	}
	set := func(timer *progressorv1.SetTimer) *progressorv1.Result {
		return &progressorv1.Result{Action: &progressorv1.Result_SetTimer{SetTimer: timer}}
	}
	command := func(c *progressorv1.NotifyCommand) *progressorv1.Command {
		return &progressorv1.Command{Command: &progressorv1.Command_Notify{Notify: c}}
	}
	startCommand := func(c *progressorv1.StartCommand) *progressorv1.Command {
		return &progressorv1.Command{Command: &progressorv1.Command_Start{Start: c}}
	}
	object := func(name string, v *structpb.Value) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{name: v}}
	}
	nested := func(depth int, v *structpb.Value) *structpb.Value {
		for range depth {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		}
		return v
	}
	notify := func(id string) *progressorv1.Command { return command(&progressorv1.NotifyCommand{ProcessId: id}) }
	results := map[string]struct {
		result *progressorv1.Result
		field  string
	}{
		"empty":          {&progressorv1.Result{}, ""},
		"negative timer": {set(after(durationpb.New(-1))), ""},
		"events": {&progressorv1.Result{Events: make([]*progressorv1.NewEvent, process.MaxResultEvents+1)},
			"result.events"},
		"payload": {&progressorv1.Result{Events: []*progressorv1.NewEvent{{}, {Payload: big}}},
			"result.events[1].payload"},
		"event's time": {
			&progressorv1.Result{Events: []*progressorv1.NewEvent{{Timestamp: &timestamppb.Timestamp{Seconds: -1}}}},
			"result.events[0].timestamp"},
		"state":    {&progressorv1.Result{AuxState: big}, "result.aux_state"},
		"response": {&progressorv1.Result{Response: big}, "result.response"},
		"large result": {&progressorv1.Result{Events: repeat(9, &progressorv1.NewEvent{Payload: big[1:]})},
			"result"},
		"timer's name": {set(named("x")), "result.set_timer.name"},
		"no time":      {set(&progressorv1.SetTimer{}), "result.set_timer"},
		"time": {
			set(&progressorv1.SetTimer{When: &progressorv1.SetTimer_At{At: &timestamppb.Timestamp{Nanos: -1}}}),
			"result.set_timer.at"},
		"duration":      {set(after(&durationpb.Duration{Seconds: 1, Nanos: -1})), "result.set_timer.after"},
		"long duration": {set(after(durationpb.New(process.MaxDuration + 1))), "result.set_timer.after"},
		"no name": {&progressorv1.Result{NamedTimers: []*progressorv1.SetTimer{named("")}},
			"result.named_timers[0].name"},
		"twice": {&progressorv1.Result{NamedTimers: repeat(2, named("x"))}, "result.named_timers[1].name"},
		"name's NUL": {&progressorv1.Result{NamedTimers: repeat(1, named("a\x00b"))},
			"result.named_timers[0].name"},
		"not UTF-8": {&progressorv1.Result{NamedTimers: repeat(1, named("\xff"))}, "result.named_timers[0].name"},
		"unset's NUL": {&progressorv1.Result{UnsetNamedTimers: []string{"x", "a\x00b"}},
			"result.unset_named_timers[1]"},
		"long unset": {&progressorv1.Result{UnsetNamedTimers: []string{strings.Repeat("x", 257)}},
			"result.unset_named_timers[0]"},
		"many unsets": {&progressorv1.Result{UnsetNamedTimers: repeat(process.MaxTimers+1, "x")},
			"result.unset_named_timers"},
		"metadata": {&progressorv1.Result{Metadata: object("a", structpb.NewStringValue(string(big)))},
			"result.metadata"},
		"no number": {&progressorv1.Result{Metadata: object("a", structpb.NewNumberValue(math.NaN()))},
			"result.metadata.a"},
		"no value": {
			&progressorv1.Result{
				Events: repeat(1, &progressorv1.NewEvent{Metadata: object("a", nested(2, &structpb.Value{}))})},
			"result.events[0].metadata.a[0][0]"},
		"deep": {&progressorv1.Result{Metadata: object("a", nested(100, structpb.NewNullValue()))},
			"result.metadata.a" + strings.Repeat("[0]", 99)},
		"deepest metadata": {&progressorv1.Result{Metadata: object("a", nested(99, structpb.NewNullValue()))}, ""},
		"deep job result": {&progressorv1.Result{JobResult: nested(101, structpb.NewNullValue())},
			"result.job_result" + strings.Repeat("[0]", 100)},
		"deepest job result": {&progressorv1.Result{JobResult: nested(100, structpb.NewNullValue())}, ""},
		"set and unset": {&progressorv1.Result{NamedTimers: repeat(1, named("x")), UnsetNamedTimers: []string{"x"}},
			"result.unset_named_timers[0]"},
		"commands": {&progressorv1.Result{Commands: repeat(process.MaxCommands+1, notify("x"))},
			"result.commands"},
		"command":      {&progressorv1.Result{Commands: repeat(1, &progressorv1.Command{})}, "result.commands[0]"},
		"command's id": {&progressorv1.Result{Commands: repeat(1, notify(""))}, "result.commands[0].process_id"},
		"command's long id": {&progressorv1.Result{Commands: repeat(1, notify(strings.Repeat("x", 257)))},
			"result.commands[0].process_id"},
		"engine's own": {&progressorv1.Result{Commands: repeat(1, notify("~cron/x"))},
			"result.commands[0].process_id"},
		"command's NUL": {&progressorv1.Result{Commands: repeat(1, notify("a\x00b"))},
			"result.commands[0].process_id"},
		"namespace": {
			&progressorv1.Result{
				Commands: repeat(1, command(&progressorv1.NotifyCommand{Namespace: "a b", ProcessId: "x"}))},
			"result.commands[0].namespace"},
		"notify's args": {
			&progressorv1.Result{Commands: repeat(1, command(&progressorv1.NotifyCommand{ProcessId: "x", Args: big}))},
			"result.commands[0].args"},
		"start's time": {&progressorv1.Result{Commands: repeat(1, startCommand(&progressorv1.StartCommand{
			ProcessId: "x", StartTime: &timestamppb.Timestamp{Seconds: -1},
		}))}, "result.commands[0].start_time"},
		"parent's args": {&progressorv1.Result{Commands: repeat(1, startCommand(&progressorv1.StartCommand{
			ProcessId: "x", NotifyParentArgs: big,
		}))}, "result.commands[0].notify_parent_args"},
		"cancel's reason": {
			&progressorv1.Result{Commands: repeat(1, &progressorv1.Command{Command: &progressorv1.Command_Cancel{
				Cancel: &progressorv1.CancelCommand{ProcessId: "x", Reason: string(big)},
			}})}, "result.commands[0].reason"},
		"valid start": {
			&progressorv1.Result{Commands: repeat(1, startCommand(&progressorv1.StartCommand{ProcessId: "x"}))}, ""},
		"valid notify": {&progressorv1.Result{Commands: repeat(1, notify("x"))}, ""},
	}
	for name, test := range results {
		err := processor.Check(taskTimeout,
			&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: test.result}})
		invalid, _ := errors.AsType[*process.InvalidError](err)
		if (err == nil) != (test.field == "") ||
			err != nil && (!processor.BadResponse(err) || invalid == nil || invalid.Field != test.field) {
			t.Errorf("%s: %v, want %s", name, err, test.field)
		}
	}
	rejection := &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{}}
	if processor.Check(taskCall, rejection) != nil || processor.Check(taskTimeout, rejection) == nil ||
		processor.Check(taskCancel, rejection) == nil {
		t.Error("want that a CALL can be rejected, but a TIMEOUT and a CANCEL cannot")
	}
	if processor.Check(taskCall, nil) == nil || processor.Check(taskCall, &progressorv1.ProcessResponse{}) == nil {
		t.Error("a response without an outcome is accepted")
	}
	failure := &progressorv1.Failure{Message: string(big)}
	if processor.Check(taskCall,
		&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure}}) == nil {
		t.Error("a failure that is too large is accepted")
	}
	failure = &progressorv1.Failure{Details: nested(102, structpb.NewNullValue())}
	if processor.Check(taskCall,
		&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure}}) == nil {
		t.Error("a failure whose details are nested too deeply is accepted")
	}
}

func repeat[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
