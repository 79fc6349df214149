package progressorv1_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Each limit accepts the largest and the smallest value, and rejects the first value beyond it. The
// error has the path of the field and a rule, from which the RPC layer knows whether the value is
// too large or invalid.
func TestLimits(t *testing.T) {
	const mebibyte = 1 << 20
	start := func(change func(*progressorv1.StartRequest)) proto.Message {
		request := &progressorv1.StartRequest{Namespace: "demo"}
		change(request)
		return request
	}
	result := func(result *progressorv1.Result) proto.Message {
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: result}}
	}
	setTimer := func(timer *progressorv1.SetTimer) proto.Message {
		return result(&progressorv1.Result{Action: &progressorv1.Result_SetTimer{SetTimer: timer}})
	}
	call := func(processID string) proto.Message {
		return &progressorv1.CallRequest{Namespace: "demo", ProcessId: processID}
	}
	put := func(status progressorv1.ProcessStatus) proto.Message {
		return &progressorv1.PutProcessRequest{Namespace: "demo", ProcessId: "1", Status: status}
	}
	list := func(pageSize int32) proto.Message {
		return &progressorv1.ListProcessesRequest{Namespace: "demo", PageSize: pageSize}
	}
	history := func(r *progressorv1.HistoryRange) proto.Message {
		return &progressorv1.GetProcessRequest{Namespace: "demo", ProcessId: "1", Range: r}
	}
	template := func(templateType string) proto.Message {
		return &progressorv1.GetTemplateRequest{Namespace: "demo", Type: templateType}
	}
	skip := func(stepID string) proto.Message {
		return &progressorv1.SkipStepRequest{Namespace: "demo", RunId: "1", StepId: stepID}
	}
	century := 100 * 365 * 24 * time.Hour

	for _, tt := range []struct {
		name        string
		message     proto.Message
		field, rule string // "" if it is valid
	}{
		{"the engine chooses an id", start(func(*progressorv1.StartRequest) {}), "", ""},
		{"longest id", start(func(r *progressorv1.StartRequest) { r.ProcessId = strings.Repeat("é", 128) }), "", ""},
		{"id in bytes, not in characters",
			start(func(r *progressorv1.StartRequest) { r.ProcessId = strings.Repeat("é", 129) }), "process_id",
			"string.max_bytes"},
		{"no id", call(""), "process_id", "string.min_bytes"},
		{"no namespace", &progressorv1.CallRequest{ProcessId: "1"}, "namespace", "string.pattern"},
		{"long namespace", start(func(r *progressorv1.StartRequest) { r.Namespace = strings.Repeat("n", 129) }),
			"namespace", "string.max_len"},
		{"namespace with a line break", start(func(r *progressorv1.StartRequest) { r.Namespace = "demo\n" }),
			"namespace", "string.pattern"},
		{"all characters of a namespace", start(func(r *progressorv1.StartRequest) { r.Namespace = "a/Z-0_9.b" }), "",
			""},
		{"long key", start(func(r *progressorv1.StartRequest) { r.IdempotencyKey = strings.Repeat("k", 257) }),
			"idempotency_key", "string.max_bytes"},
		{"largest args", start(func(r *progressorv1.StartRequest) { r.Args = make([]byte, mebibyte) }), "", ""},
		{"args", start(func(r *progressorv1.StartRequest) { r.Args = make([]byte, mebibyte+1) }), "args",
			"bytes.max_len"},
		{"context", start(func(r *progressorv1.StartRequest) { r.Context = make([]byte, mebibyte+1) }), "context",
			"bytes.max_len"},
		{"unknown enum", start(func(r *progressorv1.StartRequest) { r.Wait = 99 }), "wait", "enum.defined_only"},
		{"negative duration", start(func(r *progressorv1.StartRequest) { r.Timeout = durationpb.New(-1) }), "timeout",
			"duration.gte_lte"},
		{"a century", start(func(r *progressorv1.StartRequest) { r.Timeout = durationpb.New(century) }), "", ""},
		{"more than a century", start(func(r *progressorv1.StartRequest) { r.Timeout = durationpb.New(century + 1) }),
			"timeout", "duration.gte_lte"},
		{"1970", start(func(r *progressorv1.StartRequest) { r.StartTime = &timestamppb.Timestamp{} }), "", ""},
		{"1969", start(func(r *progressorv1.StartRequest) { r.StartTime = &timestamppb.Timestamp{Seconds: -1} }),
			"start_time", "timestamp.gte_lte"},
		{"the year 10000", start(func(r *progressorv1.StartRequest) {
			r.StartTime = &timestamppb.Timestamp{Seconds: 253402300800}
		}), "start_time", "timestamp.gte_lte"},
		{"page size", list(1001), "page_size", "int32.gte_lte"},
		{"negative page size", list(-1), "page_size", "int32.gte_lte"},
		{"largest page", list(1000), "", ""},
		{"no events", history(&progressorv1.HistoryRange{Limit: new(int32)}), "", ""},
		{"negative limit", history(&progressorv1.HistoryRange{Limit: proto.Int32(-1)}), "range.limit", "int32.gte"},
		{"repair without an action", &progressorv1.RepairRequest{Namespace: "demo", ProcessId: "1"}, "how", "required"},
		{"await without a key", &progressorv1.AwaitTaskRequest{Namespace: "demo", ProcessId: "1"}, "key", "required"},
		{"put as running", put(progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING), "", ""},
		{"put as completed", put(progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED), "status", "enum.in"},
		{"namespace without a processor",
			&progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{Namespace: "demo"}},
			"namespace.processor", "required"},
		{"response without an outcome", &progressorv1.ProcessResponse{}, "outcome", "required"},
		{"1,001 events", result(&progressorv1.Result{Events: make([]*progressorv1.NewEvent, 1001)}), "result.events",
			"repeated.max_items"},
		{"large event", result(
			&progressorv1.Result{Events: []*progressorv1.NewEvent{{Payload: make([]byte, mebibyte+1)}}}),
			"result.events[0].payload", "bytes.max_len"},
		{"timer without a time", setTimer(&progressorv1.SetTimer{}), "result.set_timer.when", "required"},
		{"longest type of a template", template(strings.Repeat("a", 128)), "", ""},
		{"all characters of a type", template("a-0_9.b"), "", ""},
		{"long type", template(strings.Repeat("a", 129)), "type", "string.pattern"},
		{"no type", template(""), "type", "string.pattern"},
		{"longest step", skip(strings.Repeat("a", 64)), "", ""},
		{"long step", skip(strings.Repeat("a", 65)), "step_id", "string.pattern"},
		{"step with a dash", skip("a-b"), "step_id", "string.pattern"},
		{"timer in the past",
			setTimer(&progressorv1.SetTimer{When: &progressorv1.SetTimer_After{After: durationpb.New(-time.Hour)}}), "",
			""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := protovalidate.Validate(tt.message)
			var invalid *protovalidate.ValidationError
			switch {
			case tt.field == "" && err != nil:
				t.Fatalf("a valid message is rejected: %v", err)
			case tt.field == "":
			case !errors.As(err, &invalid):
				t.Fatalf("got %v, want that %s violates %s", err, tt.field, tt.rule)
			default:
				first := invalid.Violations[0].Proto
				if got := protovalidate.FieldPathString(first.GetField()); got != tt.field ||
					first.GetRuleId() != tt.rule {
					t.Errorf("%s violates %s, want %s violates %s", got, first.GetRuleId(), tt.field, tt.rule)
				}
			}
		})
	}
}

// Every enum field of every request must be restricted to known values, so that the engine gets no
// unknown number. (The engine itself sends ProcessRequest.)
func TestEnumsOfRequestsAreDefined(t *testing.T) {
	fields := 0
	seen := map[protoreflect.FullName]bool{}
	var visit func(protoreflect.MessageDescriptor)
	visit = func(message protoreflect.MessageDescriptor) {
		if seen[message.FullName()] || message.ParentFile().Package() != "progressor.v1" {
			return
		}
		seen[message.FullName()] = true
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			if field.Message() != nil {
				visit(field.Message())
			}
			if field.Enum() == nil || field.Enum().ParentFile().Package() != "progressor.v1" {
				continue
			}
			fields++
			rules, ok := proto.GetExtension(field.Options(), validate.E_Field).(*validate.FieldRules)
			if field.IsList() {
				rules = rules.GetRepeated().GetItems()
			}
			if !ok || !rules.GetEnum().GetDefinedOnly() && len(rules.GetEnum().GetIn()) == 0 {
				t.Errorf("%s accepts numbers that its enum does not have", field.FullName())
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		progressorv1.File_progressor_v1_process_proto, progressorv1.File_progressor_v1_processor_proto,
		progressorv1.File_progressor_v1_namespace_proto, progressorv1.File_progressor_v1_worker_proto,
		progressorv1.File_progressor_v1_job_proto, progressorv1.File_progressor_v1_cron_proto,
		progressorv1.File_progressor_v1_flow_proto, progressorv1.File_progressor_v1_admin_proto,
		progressorv1.File_progressor_v1_change_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if input := methods.Get(j).Input(); input.Name() != "ProcessRequest" {
					visit(input)
				}
			}
		}
	}
	if fields < 20 {
		t.Errorf("found only %d enum fields", fields)
	}
}
