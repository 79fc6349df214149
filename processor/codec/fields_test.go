package codec

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// clearFields lists the fields that could contain a payload and are not encoded. The keys are the
// reasons.
var clearFields = map[string][]string{
	"metadata is searched": {
		"Process.metadata", "Event.metadata", "StartRequest.metadata", "PutProcessRequest.metadata", "Result.metadata",
		"NewEvent.metadata", "StartCommand.metadata", "StartRunCommand.metadata", "Change.metadata", "Cron.metadata",
		"StartProcessTarget.metadata", "JobOptions.metadata", "Run.metadata", "StartRunRequest.metadata",
		"StartRunTarget.metadata", "ProcessAction.metadata", "CheckpointRequest.metadata",
	},
	"the engine evaluates templates": {
		"Template.result", "StepTemplate.input", "WaitAction.due_result", "RunAction.payload", "ProcessAction.args",
		"StartRunTarget.payload_template",
	},
	"the engine and the console use schemas": {
		"Template.payload_schema", "WaitAction.result_schema", "OpenWait.result_schema",
	},
	"the receiver is not a processor":     {"HttpTarget.body"},
	"the engine writes no payloads there": {"AuditEntry.details", "Change.details"},
}

// Every field of the API that could contain a payload is encoded or listed above.
func TestEveryFieldIsClassified(t *testing.T) {
	t.Parallel()
	found, inClear := map[string]bool{}, slices.Concat(slices.Collect(maps.Values(clearFields))...)
	eachMessage(func(md protoreflect.MessageDescriptor) {
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if !mayHavePayload(fd) {
				continue
			}
			name := nameOf(fd)
			_, encoded := payloadFields[name]
			if encoded == slices.Contains(inClear, name) {
				t.Errorf("%s: must be either in payloadFields or in clearFields", name)
			}
			if encoded && (fd.IsList() || fd.IsMap() || fd.Message() != nil && !isJSON(fd.Message())) {
				t.Errorf("%s: a payload must have the type bytes, Value or Struct", name)
			}
			found[name] = true
		}
	})
	for _, name := range slices.AppendSeq(inClear, maps.Keys(payloadFields)) {
		if !found[name] {
			t.Errorf("%s: there is no such field", name)
		}
	}
}

// mayHavePayload reports whether a field contains bytes or JSON, or is hidden from clients that may
// not see payloads.
func mayHavePayload(fd protoreflect.FieldDescriptor) bool {
	if fd.IsMap() {
		fd = fd.MapValue()
	}
	needs, _ := proto.GetExtension(fd.Options(), progressorv1.E_ShownWith).(progressorv1.Permission)
	return fd.Kind() == protoreflect.BytesKind || fd.Message() != nil && isJSON(fd.Message()) ||
		needs == progressorv1.Permission_PERMISSION_PAYLOAD_READ
}

func isJSON(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Path() == "google/protobuf/struct.proto" || md.FullName() == "google.protobuf.Any"
}

func eachMessage(f func(protoreflect.MessageDescriptor)) {
	var nested func(protoreflect.MessageDescriptors)
	nested = func(all protoreflect.MessageDescriptors) {
		for i := range all.Len() {
			if !all.Get(i).IsMapEntry() {
				f(all.Get(i))
				nested(all.Get(i).Messages())
			}
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(file protoreflect.FileDescriptor) bool {
		nested(file.Messages())
		return true
	})
}

const secret = "hunter2"

// withPayload returns one message of a type for each payload field that it can contain. Only this
// field is set.
func withPayload(t *testing.T, md protoreflect.MessageDescriptor) []protoreflect.Message {
	t.Helper()
	created := func() protoreflect.Message {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return mt.New()
	}
	var all []protoreflect.Message
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if _, ok := payloadFields[nameOf(fd)]; ok {
			m := created()
			switch {
			case fd.Kind() == protoreflect.BytesKind:
				m.Set(fd, protoreflect.ValueOfBytes([]byte(secret)))
			case fd.Message().Name() == "Struct":
				m.Set(fd, protoreflect.ValueOfMessage((&structpb.Struct{Fields: map[string]*structpb.Value{
					secret: structpb.NewStringValue(secret)}}).ProtoReflect()))
			default:
				m.Set(fd, protoreflect.ValueOfMessage(structpb.NewStringValue(secret).ProtoReflect()))
			}
			all = append(all, m)
		} else if fd.Message() != nil && !fd.IsMap() && fd.Message().ParentFile().Package() == "progressor.v1" {
			for _, inner := range withPayload(t, fd.Message()) {
				m := created()
				if fd.IsList() {
					m.Mutable(fd).List().Append(protoreflect.ValueOfMessage(inner))
				} else {
					m.Set(fd, protoreflect.ValueOfMessage(inner))
				}
				all = append(all, m)
			}
		}
	}
	return all
}

// Every payload of every message is encoded and decoded, wherever it is nested.
func TestEveryPayloadIsEncoded(t *testing.T) {
	t.Parallel()
	c, err := NewAESGCM("k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	p, messages := NewPayloads(c), 0
	eachMessage(func(md protoreflect.MessageDescriptor) {
		for _, m := range withPayload(t, md) {
			messages++
			encoded, err := p.Encode(t.Context(), m.Interface())
			if err != nil {
				t.Errorf("%s: %v", md.Name(), err)
				continue
			}
			text, err := proto.Marshal(encoded)
			if err != nil || bytes.Contains(text, []byte(secret)) || !bytes.Contains(text, []byte("k1")) &&
				!bytes.Contains(text, []byte(EncodedKey)) {
				t.Errorf("%s: the payload of %v is encoded as %v, %v", md.Name(), m, encoded, err)
			}
			if err := p.Decode(t.Context(), encoded); err != nil || !proto.Equal(encoded, m.Interface()) {
				t.Errorf("%s: %v was decoded to %v, %v", md.Name(), m, encoded, err)
			}
		}
	})
	if messages < 200 {
		t.Errorf("only %d messages with payloads", messages)
	}
}

// States and tasks of the engine's own processes, and reasons of cancellations, are not decoded.
func TestOwnPayloadsAreNotDecoded(t *testing.T) {
	t.Parallel()
	c, err := NewAESGCM("k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPayloads(c)
	history := []*progressorv1.Event{{Payload: []byte("e")}}
	for _, m := range []proto.Message{
		&progressorv1.Process{ProcessId: "~cron/c", AuxState: []byte("s"), History: history},
		&progressorv1.Process{ProcessId: "j", Kind: "job", AuxState: []byte("s"), History: history},
		&progressorv1.Task{ProcessId: "~flow/r", Args: []byte("a"), Response: []byte("r"), Events: history},
		&progressorv1.Task{ProcessId: "p", Args: []byte("why"), Type: progressorv1.TaskType_TASK_TYPE_CANCEL},
		&progressorv1.Change{ProcessId: "~flow/r", Payload: []byte("p")},
		&progressorv1.Failure{Details: structpb.NewNumberValue(7)}, // as the engine writes it
		&progressorv1.Run{Result: structpb.NewStringValue("a constant of the template")},
	} {
		got := proto.Clone(m)
		if err := p.Decode(t.Context(), got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%v was decoded to %v, %v", m, got, err)
		}
	}
	err = p.Decode(t.Context(), &progressorv1.TraceProcessResponse{Tasks: []*progressorv1.Task{
		{ProcessId: "~flow/r", Args: []byte("a")}, {ProcessId: "p", Args: []byte("a")}}})
	field := new(FieldError)
	if !errors.As(err, &field) || field.Field != "tasks[1].args" || !errors.Is(err, ErrPlain) ||
		!strings.HasPrefix(err.Error(), "tasks[1].args: the payload is not encoded") {
		t.Errorf("a task of a user: %v", err)
	}
}

func TestNilPayloadsChangeNothing(t *testing.T) {
	t.Parallel()
	var p *Payloads
	m := &progressorv1.CallRequest{Args: []byte("a")}
	if encoded, err := p.Encode(t.Context(), m); err != nil || encoded != proto.Message(m) {
		t.Errorf("got %v, %v", encoded, err)
	}
	if err := p.Decode(t.Context(), m); err != nil || string(m.GetArgs()) != "a" {
		t.Errorf("got %v, %v", m, err)
	}
	if v, err := p.DecodeValue(t.Context(), structpb.NewStringValue("a")); err != nil || v.GetStringValue() != "a" {
		t.Errorf("got %v, %v", v, err)
	}
}
