package rpc

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// requestTypes returns the request types of all services, in the order of the proto files.
func requestTypes(f *testing.F) []protoreflect.MessageType {
	var types []protoreflect.MessageType
	for _, name := range services {
		service, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			f.Fatal(err)
		}
		methods := service.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			found, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(i).Input().FullName())
			if err != nil {
				f.Fatal(err)
			}
			types = append(types, found)
		}
	}
	return types
}

// FuzzRequest decodes arbitrary bytes as any type of request, in protobuf, JSON and MessagePack,
// and validates it. It must not panic, errors must name the field, and valid requests can be
// encoded and decoded again in each encoding.
func FuzzRequest(f *testing.F) {
	types := requestTypes(f)
	for _, m := range []proto.Message{
		&progressorv1.StartRequest{Namespace: "n", ProcessId: "p", Args: []byte("x"), StartTime: timestamppb.Now(),
			Metadata: &structpb.Struct{
				Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1),
					"b": structpb.NewStringValue("\x00")},
			}},
		&progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Timeout: durationpb.New(-1), Wait: 77},
		&progressorv1.RepairRequest{Namespace: "n", ProcessId: "~p", How: &progressorv1.RepairRequest_Simple{}},
		&progressorv1.ListProcessesRequest{Namespace: "n", Filter: `status = "RUNNING"`, PageSize: -1},
		&progressorv1.PutNamespaceRequest{
			Namespace: &progressorv1.Namespace{Namespace: "n",
				RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: -1}}},
	} {
		binary, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		text, err := jsonCodec.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		pack, err := packed{}.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for n, typ := range types {
			if typ.Descriptor() == m.ProtoReflect().Descriptor() {
				f.Add(byte(n), binary)
				f.Add(byte(n), text)
				f.Add(byte(n), pack)
			}
		}
	}
	f.Add(byte(0), []byte{0x0a, 0x01, 0xff})
	f.Add(byte(0), []byte(`{"namespace":"a","namespace":"b"}`))
	valid, err := newValidation(services...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		typ := types[int(which)%len(types)]
		for _, codec := range []interface{ Unmarshal([]byte, any) error }{binary{}, jsonCodec, packed{}} {
			m := typ.New().Interface()
			if codec.Unmarshal(data, m) != nil {
				continue
			}
			if err := valid.check(m); err != nil {
				var fault *process.InvalidError
				if !errors.As(err, &fault) || fault.Field == "" {
					t.Fatalf("%s: %v does not name a field", typ.Descriptor().Name(), err)
				}
				continue
			}
			canBeWritten(t, m)
		}
	})
}

// canBeWritten encodes and decodes a message. Unknown fields are lost in JSON and MessagePack.
func canBeWritten(t *testing.T, m proto.Message) {
	empty := func() proto.Message { return m.ProtoReflect().New().Interface() }
	again, known, fromJSON := empty(), empty(), empty()
	b, err := proto.Marshal(m)
	if err == nil {
		err = errors.Join((binary{}).Unmarshal(b, again),
			proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, known))
	}
	if err != nil || !proto.Equal(m, again) {
		t.Fatalf("%v is decoded as %v, %v", m, again, err)
	}
	text, err := jsonCodec.Marshal(m)
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	if err := jsonCodec.Unmarshal(text, fromJSON); err != nil && !strings.Contains(err.Error(), "2^53") {
		t.Fatalf("%s: %v", text, err)
	} else if err == nil && !proto.Equal(known, fromJSON) {
		t.Fatalf("%v is decoded from JSON as %v", known, fromJSON)
	}
	fromPack := empty()
	pack, err := packed{}.Marshal(m)
	if err == nil {
		err = packed{}.Unmarshal(pack, fromPack)
	}
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	// An object with a $ in a key may be decoded as a different object with the same meaning. Both
	// have the same encoding.
	if again, err := (packed{}).Marshal(fromPack); err != nil || !bytes.Equal(again, pack) {
		t.Fatalf("%v is decoded from MessagePack as %v", known, fromPack)
	}
}
