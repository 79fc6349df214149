package rpc

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func call(change func(*progressorv1.CallRequest)) proto.Message {
	r := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p"}
	change(r)
	return r
}

func start(change func(*progressorv1.StartRequest)) proto.Message {
	r := &progressorv1.StartRequest{Namespace: "n"}
	change(r)
	return r
}

func put(change func(*progressorv1.PutProcessRequest)) proto.Message {
	r := &progressorv1.PutProcessRequest{Namespace: "n", ProcessId: "p",
		Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING}
	change(r)
	return r
}

// The validation of a request returns the field that breaks a rule of the proto files, or contains
// text or numbers that cannot be stored.
func TestRequestsThatBreakARule(t *testing.T) {
	t.Parallel()
	valid, err := newValidation(services...)
	if err != nil {
		t.Fatal(err)
	}
	mib := make([]byte, 1<<20+1)
	for _, c := range []struct {
		name     string
		request  proto.Message
		field    string // "" if the request is valid
		tooLarge bool
	}{
		{"valid", call(func(*progressorv1.CallRequest) {}), "", false},
		{"largest args", call(func(r *progressorv1.CallRequest) { r.Args = mib[:1<<20] }), "", false},
		{"args", call(func(r *progressorv1.CallRequest) { r.Args = mib }), "args", true},
		{"context", call(func(r *progressorv1.CallRequest) { r.Context = mib }), "context", true},
		{"no namespace", call(func(r *progressorv1.CallRequest) { r.Namespace = "" }), "namespace", false},
		{"characters of a namespace", call(func(r *progressorv1.CallRequest) { r.Namespace = "a b" }), "namespace",
			false},
		{"long namespace", call(func(r *progressorv1.CallRequest) { r.Namespace = strings.Repeat("a", 129) }),
			"namespace", true},
		{"no process_id", call(func(r *progressorv1.CallRequest) { r.ProcessId = "" }), "process_id", false},
		{"bytes of a process_id", call(func(r *progressorv1.CallRequest) { r.ProcessId = strings.Repeat("é", 129) }),
			"process_id", true},
		{"idempotency_key", call(func(r *progressorv1.CallRequest) { r.IdempotencyKey = strings.Repeat("k", 257) }),
			"idempotency_key", true},
		{"wait", call(func(r *progressorv1.CallRequest) { r.Wait = 9 }), "wait", false},
		{"direction", call(func(r *progressorv1.CallRequest) { r.Range = &progressorv1.HistoryRange{Direction: 9} }),
			"range.direction", false},
		{"limit", call(func(r *progressorv1.CallRequest) {
			r.Range = &progressorv1.HistoryRange{Limit: proto.Int32(-1)}
		}), "range.limit", false},
		{"negative timeout", call(func(r *progressorv1.CallRequest) { r.Timeout = durationpb.New(-time.Second) }),
			"timeout", false},
		{"broken timeout", call(func(r *progressorv1.CallRequest) { r.Timeout = &durationpb.Duration{Nanos: 2e9} }),
			"timeout", false},
		{"long timeout", call(func(r *progressorv1.CallRequest) {
			r.Timeout = durationpb.New(process.MaxDuration + 1)
		}), "timeout", false},
		{"longest timeout", call(func(r *progressorv1.CallRequest) { r.Timeout = durationpb.New(process.MaxDuration) }),
			"", false},
		{"NUL", call(func(r *progressorv1.CallRequest) { r.IdempotencyKey = "\x00" }), "idempotency_key", false},
		{"no process_id to start", start(func(*progressorv1.StartRequest) {}), "", false},
		{"too early", start(func(r *progressorv1.StartRequest) { r.StartTime = &timestamppb.Timestamp{Seconds: -1} }),
			"start_time", false},
		{"earliest", start(func(r *progressorv1.StartRequest) { r.StartTime = &timestamppb.Timestamp{} }), "", false},
		{"too late", start(func(r *progressorv1.StartRequest) {
			r.StartTime = &timestamppb.Timestamp{Seconds: maxTimestamp}
		}), "start_time", false},
		{"latest", start(func(r *progressorv1.StartRequest) {
			r.StartTime = timestamppb.New(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))
		}), "", false},
		{"NaN", start(func(r *progressorv1.StartRequest) {
			r.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(math.NaN())}}
		}), "metadata.a", false},
		{"value without a kind", start(func(r *progressorv1.StartRequest) {
			r.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": {}}}
		}), "metadata.a", false},
		{"status", put(func(r *progressorv1.PutProcessRequest) {
			r.Status = progressorv1.ProcessStatus_PROCESS_STATUS_INIT
		}), "status", false},
		{"timers", put(func(r *progressorv1.PutProcessRequest) {
			for range 101 {
				r.Timers = append(r.Timers, &progressorv1.Timer{FireTime: timestamppb.Now()})
			}
		}), "timers", true},
		{"payload", put(func(r *progressorv1.PutProcessRequest) {
			r.History = []*progressorv1.Event{{EventId: 1}, {EventId: 2, Payload: mib}}
		}), "history[1].payload", true},
		{"NUL in an event", put(func(r *progressorv1.PutProcessRequest) {
			m, err := structpb.NewStruct(map[string]any{"k": map[string]any{"l": []any{"x", "\x00"}}})
			if err != nil {
				t.Fatal(err)
			}
			r.History = []*progressorv1.Event{{EventId: 1, Metadata: m}}
		}), "history[0].metadata.k.l[1]", false},
		{"headers", &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
			Namespace: "n", Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
				Connect: &progressorv1.ConnectProcessor{Url: "http://localhost", Headers: map[string]string{"A": "\x00"}},
			}},
		}}, `namespace.processor.connect.headers["A"]`, false},
		{"no processor", &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{Namespace: "n"}},
			"namespace.processor", false},
		{"await nothing", &progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: "p"}, "key", false},
	} {
		err := valid.check(c.request)
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: got %v, want none", c.name, err)
			}
			continue
		}
		invalid, ok := errors.AsType[*process.InvalidError](err)
		if !ok || invalid.Field != c.field || invalid.TooLarge != c.tooLarge || invalid.Message == "" {
			t.Errorf("%s: got %#v, want field %s, too large %v", c.name, err, c.field, c.tooLarge)
		}
	}
}

// The error for an invalid enum lists the names of its valid values.
func TestRulesOnEnumsListNames(t *testing.T) {
	t.Parallel()
	valid, err := newValidation(services...)
	if err != nil {
		t.Fatal(err)
	}
	for want, request := range map[string]proto.Message{
		"status: must be one of PROCESS_STATUS_RUNNING, PROCESS_STATUS_ERROR": put(
			func(r *progressorv1.PutProcessRequest) {
				r.Status = progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
			}),
		"verb: must be one of BULK_VERB_SIMPLE_REPAIR, BULK_VERB_SUSPEND, BULK_VERB_RESUME, BULK_VERB_CANCEL, " +
			"BULK_VERB_REMOVE, BULK_VERB_RETRY, BULK_VERB_REPAIR": &progressorv1.StartBulkRequest{
			Namespace: "n", Filter: "status = ERROR",
		},
	} {
		if err := valid.check(request); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// If a required oneof is not set, the error lists the fields of the oneof, even in nested messages.
func TestARequiredChoiceIsListed(t *testing.T) {
	t.Parallel()
	valid, err := newValidation(services...)
	if err != nil {
		t.Fatal(err)
	}
	for want, request := range map[string]proto.Message{
		"key: is required: set one of task_id, idempotency_key": &progressorv1.AwaitTaskRequest{Namespace: "n",
			ProcessId: "p"},
		"namespace.processor.transport: is required: set one of connect, " +
			"pull, builtin": &progressorv1.PutNamespaceRequest{
			Namespace: &progressorv1.Namespace{Namespace: "n", Processor: &progressorv1.ProcessorConfig{}},
		},
		"how: is required: set one of processor, simple": &progressorv1.RepairRequest{Namespace: "n", ProcessId: "p"},
	} {
		if err := valid.check(request); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := CheckRules(request); err == nil || err.Error() != want {
			t.Errorf("CheckRules: got %v, want %s", err, want)
		}
	}
}

// If a duration must be positive, the error for a negative one says so. It does not name a range
// that begins with 0.
func TestPositiveDurations(t *testing.T) {
	t.Parallel()
	valid, err := newValidation(services...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*durationpb.Duration{durationpb.New(-time.Second), durationpb.New(-1)} {
		for field, o := range map[string]*progressorv1.JobOptions{
			"start_deadline": {StartDeadline: d}, "timeout": {Timeout: d},
			"lease_duration": {LeaseDuration: d}, "heartbeat_interval": {HeartbeatInterval: d},
		} {
			err := valid.check(&progressorv1.EnqueueRequest{Namespace: "n", Name: "work", Options: o})
			want := "options." + field + ": must be a positive duration, such as 30s"
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", d.AsDuration(), err, want)
			}
		}
	}
	for _, d := range []time.Duration{-time.Second, 0} {
		err := valid.check(&progressorv1.PutConstraintRequest{Constraint: &progressorv1.Constraint{
			Namespace: "n", Name: "api", Match: "true", Key: "args.id",
			Rate: &progressorv1.RateLimit{Count: 1, Per: durationpb.New(d)},
		}})
		if want := "constraint.rate.per: must be a positive duration, such as 30s"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", d, err, want)
		}
	}
	for want, o := range map[string]*progressorv1.JobOptions{
		"options.start_deadline: must be a duration of more than 0s, up to 100 years (3153600000s)": {
			StartDeadline: &durationpb.Duration{Seconds: 3153600001}},
		"options.cancel_grace: must be a duration from 0s up to 100 years (3153600000s)": {
			CancelGrace: durationpb.New(-1)},
	} {
		err := valid.check(&progressorv1.EnqueueRequest{Namespace: "n", Name: "work", Options: o})
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// CheckRules returns the same error. The command line uses CheckRules too.
	err = CheckRules(&progressorv1.EnqueueRequest{Namespace: "n", Name: "work", Options: &progressorv1.JobOptions{
		StartDeadline: durationpb.New(-time.Second)}})
	if want := "options.start_deadline: must be a positive duration, such as 30s"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// checkPut checks the history, the timers and the metadata of an imported process. metadataJSON
// encodes metadata with sorted keys.
func TestImportsAndMetadata(t *testing.T) {
	t.Parallel()
	large, err := structpb.NewStruct(map[string]any{"a": strings.Repeat("x", process.MaxMetadataBytes)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		request *progressorv1.PutProcessRequest
		field   string
	}{
		{"valid", &progressorv1.PutProcessRequest{History: []*progressorv1.Event{{EventId: 1}, {EventId: 2}}}, ""},
		{"gap in the event IDs",
			&progressorv1.PutProcessRequest{History: []*progressorv1.Event{{EventId: 1}, {EventId: 3}}},
			"history[1].event_id"},
		{"large metadata", &progressorv1.PutProcessRequest{Metadata: large}, "metadata"},
		{"large metadata of an event",
			&progressorv1.PutProcessRequest{History: []*progressorv1.Event{{EventId: 1, Metadata: large}}},
			"history[0].metadata"},
		{"two timers with one name", &progressorv1.PutProcessRequest{
			Timers: []*progressorv1.Timer{{Name: "a"}, {Name: ""}, {Name: "a"}}}, "timers[2].name"},
	} {
		invalid, _ := errors.AsType[*process.InvalidError](checkPut(c.request))
		if c.field == "" && invalid != nil || c.field != "" && (invalid == nil || invalid.Field != c.field) {
			t.Errorf("%s: got %v, want %q", c.name, invalid, c.field)
		}
	}
	m, err := structpb.NewStruct(map[string]any{"b": "<&>", "a": []any{1.0, nil, true}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := metadataJSON("metadata", m)
	if want := `{"a":[1,null,true],"b":"<&>"}`; err != nil || string(got) != want {
		t.Errorf("metadata: got %s, %v, want %s", got, err, want)
	}
}

// Requests of clients must not use IDs that begin with ~, which belong to the engine.
func TestIDsOfTheEngineAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := ownKey(&progressorv1.CallRequest{Namespace: "n", ProcessId: "~cron/x"}); err == nil {
		t.Error("~cron/x: got no error")
	}
	for _, id := range []string{"", "x", "a~b"} {
		if key, err := ownKey(&progressorv1.StartRequest{Namespace: "n", ProcessId: id}); err != nil ||
			key.ProcessID != id {
			t.Errorf("%q: got %v, %v", id, key, err)
		}
	}
	batch := &progressorv1.EnqueueBatchRequest{
		Jobs: []*progressorv1.EnqueueRequest{{JobId: "mail-1"}, {JobId: "~mine"}}}
	_, err := (&jobService{}).EnqueueBatch(t.Context(), batch)
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "jobs[1].job_id" {
		t.Errorf("batch: %v", err)
	}
}

func BenchmarkValidation(b *testing.B) {
	valid, err := newValidation(services...)
	if err != nil {
		b.Fatal(err)
	}
	r := &progressorv1.CallRequest{
		Namespace: "bench", ProcessId: "0197a8f2-8d1c-7c3e-9d9e-000000000000", Args: make([]byte, 200),
		IdempotencyKey: "key-1",
		Timeout:        durationpb.New(time.Minute),
	}
	b.Run("content", func(b *testing.B) {
		b.ReportAllocs()
		c := valid.checks[r.ProtoReflect().Descriptor().FullName()]
		for b.Loop() {
			if c.check(r.ProtoReflect()) != nil {
				b.Fatal()
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := valid.check(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Every pattern in the proto files has a description for errors.
func TestPatternsHaveWords(t *testing.T) {
	seen := 0
	var look func(protoreflect.MessageDescriptors)
	look = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				rules, err := protovalidate.ResolveFieldRules(fields.Get(j))
				if err != nil {
					t.Fatal(err)
				}
				for _, pattern := range []string{rules.GetString().GetPattern(),
					rules.GetRepeated().GetItems().GetString().GetPattern()} {
					if pattern == "" {
						continue
					}
					if seen++; patternWords[pattern] == "" {
						t.Errorf("%s: patternWords lacks %s", fields.Get(j).FullName(), pattern)
					}
				}
			}
			look(messages.Get(i).Messages())
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(f protoreflect.FileDescriptor) bool {
		look(f.Messages())
		return true
	})
	if seen < 50 {
		t.Errorf("only %d patterns found", seen)
	}
	err := CheckRules(&progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{Namespace: "a:b"}})
	const want = "namespace.namespace: must contain only a-z, A-Z, 0-9, ., _, / and -, such as shop/orders"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
