package msgpack

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	low "github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// messageTypes returns all messages of the API, including the requests and responses of every
// service, in order.
func messageTypes(t testing.TB) []protoreflect.MessageType {
	var types []protoreflect.MessageType
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			found, err := protoregistry.GlobalTypes.FindMessageByName(file.Messages().Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, found)
		}
		return true
	})
	if len(types) < 100 {
		t.Fatalf("%d messages", len(types))
	}
	return types
}

// draw sets random fields of a message to random values.
func draw(t *rapid.T, m protoreflect.Message, depth int) {
	proto.Reset(m.Interface()) // m already has a value if its key in a map is drawn twice
	switch m := m.Interface().(type) {
	case *timestamppb.Timestamp:
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"),
			rapid.Int64Range(0, 999999999).Draw(t, "nanos"))
		proto.Merge(m, timestamppb.New(at))
		return
	case *durationpb.Duration:
		proto.Merge(m, durationpb.New(time.Duration(rapid.Int64().Draw(t, "duration"))))
		return
	case *fieldmaskpb.FieldMask:
		m.Paths = rapid.SliceOf(rapid.SampledFrom([]string{"options", "options.max_retry", "job_id"})).Draw(t, "paths")
		return
	case *structpb.Value, *structpb.Struct:
		packed := anyPacked(2)
		if _, isStruct := m.(*structpb.Struct); isStruct {
			packed = rapid.Custom(func(t *rapid.T) []byte { return packedMap(t, names(), 2) })
		}
		if err := Unmarshal(packed.Draw(t, "json"), m); err != nil {
			t.Fatal(err)
		}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !rapid.Bool().Draw(t, "set") || depth == 0 && fd.Message() != nil {
			continue
		}
		switch {
		case fd.IsList():
			for range rapid.IntRange(1, 2).Draw(t, "length") {
				if fd.Message() != nil {
					draw(t, m.Mutable(fd).List().AppendMutable().Message(), depth-1)
				} else {
					m.Mutable(fd).List().Append(drawScalar(t, fd))
				}
			}
		case fd.IsMap():
			for range rapid.IntRange(1, 2).Draw(t, "length") {
				key := drawScalar(t, fd.MapKey()).MapKey()
				if fd.MapValue().Message() != nil {
					draw(t, m.Mutable(fd).Map().Mutable(key).Message(), depth-1)
				} else {
					m.Mutable(fd).Map().Set(key, drawScalar(t, fd.MapValue()))
				}
			}
		case fd.Message() != nil:
			draw(t, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, drawScalar(t, fd))
		}
	}
}

func drawScalar(t *rapid.T, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.String().Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-2, 12).Draw(t, "enum")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	}
	t.Fatalf("%s: no field of the API has the kind %s yet", fd.FullName(), fd.Kind())
	return protoreflect.Value{}
}

// TestEveryMessage checks that every message of the API, with random values, is equal after it was
// encoded and decoded.
func TestEveryMessage(t *testing.T) {
	for _, typ := range messageTypes(t) {
		t.Run(string(typ.Descriptor().Name()), rapid.MakeCheck(func(t *rapid.T) {
			m, again := typ.New(), typ.New().Interface()
			draw(t, m, 3)
			packed, err := Marshal(m.Interface())
			if err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			if err := Unmarshal(packed, again); err != nil || !proto.Equal(m.Interface(), again) {
				t.Fatalf("%v is read as %v, %v", m, again, err)
			}
		}))
	}
}

// pack encodes Go's maps, slices and scalars as MessagePack, as a library of another language
// would.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := low.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type object = map[string]any

// TestReading checks that values with several encodings are decoded from each of them.
func TestReading(t *testing.T) {
	ext := func(b ...byte) low.RawMessage {
		return append(map[int]low.RawMessage{4: {0xd6, 0xff}, 8: {0xd7, 0xff}, 12: {0xc7, 12, 0xff}}[len(b)], b...)
	}
	for _, c := range []struct {
		name string
		from object
		json string
	}{
		{"both kinds of names", object{"process_id": "p", "idempotencyKey": "k"},
			`{"processId":"p","idempotencyKey":"k"}`},
		{"nil", object{"namespace": nil, "range": nil, "metadata": nil, "args": nil}, `{}`},
		{"bytes", object{"args": []byte{1, 2}}, `{"args":"AQI="}`},
		{"seconds", object{"timeout": 5}, `{"timeout":"5s"}`},
		{"seconds, float", object{"timeout": 0.1}, `{"timeout":"0.1s"}`},
		{"seconds, 32 bits", object{"timeout": float32(1.5)}, `{"timeout":"1.5s"}`},
		{"seconds, below zero", object{"timeout": -1.25}, `{"timeout":"-1.25s"}`},
		{"seconds, rounded", object{"timeout": 1.9999999999}, `{"timeout":"2s"}`},
		{"duration", object{"timeout": "1.000000001s"}, `{"timeout":"1.000000001s"}`},
		{"time", object{"startTime": "2026-11-20T12:00:00.5+02:00"}, `{"startTime":"2026-11-20T10:00:00.5Z"}`},
		{"time of 4 bytes", object{"startTime": ext(0, 0, 0, 60)}, `{"startTime":"1970-01-01T00:01:00Z"}`},
		{"time of 8 bytes", object{"startTime": ext(0, 0, 0, 4, 0, 0, 0, 60)},
			`{"startTime":"1970-01-01T00:01:00.000000001Z"}`},
		{"time of 12 bytes", object{"startTime": ext(0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
			`{"startTime":"1969-12-31T23:59:59.000000001Z"}`},
		{"time of Go", object{"startTime": time.Unix(60, 0)}, `{"startTime":"1970-01-01T00:01:00Z"}`},
		{"enum", object{"wait": "WAIT_ACCEPTED"}, `{"wait":"WAIT_ACCEPTED"}`},
		{"enum by number", object{"wait": 2}, `{"wait":"WAIT_ACCEPTED"}`},
		{"an int of 32 bits as a float", object{"priority": 7.0}, `{"priority":7}`},
		{"an int of 64 bits as text", object{"range": object{"offset": "9007199254740993"}},
			`{"range":{"offset":"9007199254740993"}}`},
		{"an int of 64 bits", object{"range": object{"offset": uint64(math.MaxInt64)}},
			`{"range":{"offset":"9223372036854775807"}}`},
		{"empty within", object{"range": object{}}, `{"range":{}}`},
	} {
		want, got := &progressorv1.StartRequest{}, &progressorv1.StartRequest{}
		if err := protojson.Unmarshal([]byte(c.json), want); err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(pack(t, c.from), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, err, want)
		}
	}
	mask := &progressorv1.UpdateJobRequest{}
	if err := Unmarshal(pack(t, object{"updateMask": "priority,maxRetry"}), mask); err != nil ||
		strings.Join(mask.GetUpdateMask().GetPaths(), " ") != "priority max_retry" {
		t.Errorf("field mask: %v, %v", mask, err)
	}
}

// TestReadingIsStrict checks that invalid input is rejected with its path and a description of what
// is valid.
func TestReadingIsStrict(t *testing.T) {
	deep := func(n int) any {
		return low.RawMessage(append(bytes.Repeat([]byte{0x91}, n), 0xc0))
	}
	raw := func(text string) low.RawMessage { return unhex(t, text) }
	for _, c := range []struct {
		name string
		m    proto.Message
		from any
		want string
	}{
		{"unknown field", &progressorv1.HistoryRange{}, object{"limt": 1},
			`limt: unknown field: use one of offset, limit, direction`},
		{"unknown field within", &progressorv1.CallRequest{}, object{"range": object{"a b": 1}},
			`range["a b"]: unknown field`},
		{"unknown field of none", &progressorv1.UnsetTimer{}, object{"x": 1},
			`x: unknown field: this message has none`},
		{"name that is not text", &progressorv1.CallRequest{}, map[int]int{1: 1},
			`must be the name of a field, a str, not an int`},
		{"field twice by both names", &progressorv1.CallRequest{},
			raw("82 a9 70726f636573734964 a1 61 aa 70726f636573735f6964 a1 61"), `process_id: must not be given twice`},
		{"nil twice", &progressorv1.CallRequest{}, raw("82 a4 61726773 c0 a4 61726773 c0"),
			`args: must not be given twice`},
		{"two fields of a oneof", &progressorv1.RepairRequest{}, raw("82 a6 73696d706c65 80 a9 70726f636573736f72 80"),
			`must not be set together with simple`},
		{"no map", &progressorv1.CallRequest{}, []int{1}, `must be a map of fields, not an array`},
		{"nothing", &progressorv1.CallRequest{}, raw(""), `an empty body is not a MessagePack map: send the byte 0x80`},
		{"nil", &progressorv1.CallRequest{}, nil, `must be a map of fields, not nil`},
		{"no end", &progressorv1.CallRequest{}, raw("81 a4 617267"), `the body ends in the middle of the message`},
		{"no value", &progressorv1.CallRequest{}, raw("81 a4 61726773"),
			`args: the body ends in the middle of the message`},
		{"a wrong length", &progressorv1.CallRequest{}, raw("81 a4 61726773 c6 ffffffff 00"),
			`args: the body ends`},
		{"missing elements", &progressorv1.PollRequest{}, raw("81 aa 6e616d65737061636573 dd ffffffff"),
			`namespaces[0]: the body ends`},
		{"bytes behind", &progressorv1.CallRequest{}, raw("80 c0c0"), `must be a single message: 2 bytes follow it`},
		{"no MessagePack", &progressorv1.CallRequest{}, raw("81 a4 61726773 c1"),
			`args: the byte 0xc1, which is not valid in MessagePack`},
		{"bin for text", &progressorv1.CallRequest{}, object{"processId": []byte("p")},
			`process_id: must be a str, not bin`},
		{"text for bin", &progressorv1.CallRequest{}, object{"args": "aGk="}, `args: must be bin (bytes), not a str`},
		{"bad UTF-8", &progressorv1.CallRequest{}, object{"processId": "a\xff"}, `process_id: must be valid UTF-8`},
		{"bad UTF-8 within", &progressorv1.StartRequest{}, object{"metadata": object{"a": []any{"\xff"}}},
			`metadata.a[0]: must be valid UTF-8`},
		{"bool", &progressorv1.SetTimer{}, object{"remove": 1}, `remove: must be true or false, not an int`},
		{"int of 32 bits", &progressorv1.CallRequest{}, object{"priority": int64(1) << 31},
			`priority: must be an int from -2147483648 up to 2147483647, not 2147483648`},
		{"int with a fraction", &progressorv1.CallRequest{}, object{"priority": 1.5},
			`priority: must be an int from -2147483648 up to 2147483647, not 1.5`},
		{"int of 64 bits", &progressorv1.AwaitTaskRequest{}, object{"taskId": uint64(1) << 63},
			`task_id: must be an int from`},
		{"float past 2^53", &progressorv1.AwaitTaskRequest{}, object{"taskId": 1e17}, `task_id: must be an int from`},
		{"text for an int", &progressorv1.AwaitTaskRequest{}, object{"taskId": "1e3"}, `not the str "1e3"`},
		{"double", &progressorv1.Progress{}, object{"percent": "1"}, `percent: must be a number, not a str`},
		{"long int for a double", &progressorv1.Progress{}, object{"percent": int64(1)<<53 + 1},
			`percent: the integer 9007199254740993 is beyond 2^53`},
		{"enum", &progressorv1.CallRequest{}, object{"wait": "WAIT_FOREVER"},
			`wait: must be one of WAIT_UNSPECIFIED, WAIT_COMPLETED, WAIT_ACCEPTED, not "WAIT_FOREVER"`},
		{"enum of another type", &progressorv1.CallRequest{}, object{"wait": true},
			`wait: must be the name of an enum's value, a str, not a bool`},
		{"duration", &progressorv1.CallRequest{}, object{"timeout": "1m"},
			`timeout: must be a duration: a number of seconds, or text such as "1.5s", not "1m"`},
		{"duration without an end", &progressorv1.CallRequest{}, object{"timeout": math.Inf(1)},
			`timeout: must be a duration`},
		{"no duration", &progressorv1.CallRequest{}, object{"timeout": math.NaN()}, `timeout: must be a duration`},
		{"long duration", &progressorv1.CallRequest{}, object{"timeout": 1e15}, `(at most 10,000 years), not 1e+15`},
		{"duration of another type", &progressorv1.CallRequest{}, object{"timeout": []int{}},
			`timeout: must be a duration: a number of seconds, or text such as "1.5s", not an array`},
		{"time without a zone", &progressorv1.StartRequest{}, object{"startTime": "2026-11-20T12:00:00"},
			`start_time: must be a time: text such as "2026-11-20T12:00:00Z", or the timestamp extension (-1), ` +
				`not "2026-11-20T12:00:00"`},
		{"time as a number", &progressorv1.StartRequest{}, object{"startTime": 1},
			`start_time: must be a time: text such as "2026-11-20T12:00:00Z", or the timestamp extension (-1), ` +
				`not an int`},
		{"time of another extension", &progressorv1.StartRequest{}, object{"startTime": raw("d6 05 00000000")},
			`not the extension 5`},
		{"time of 1 byte", &progressorv1.StartRequest{}, object{"startTime": raw("d4 ff 00")},
			`with 4, 8 or 12 bytes, not 1`},
		{"time after the year 9999", &progressorv1.StartRequest{},
			object{"startTime": raw("c7 0c ff 00000000 7fffffffffffffff")}, `in the years 1 to 9999`},
		{"time with too many nanoseconds", &progressorv1.StartRequest{},
			object{"startTime": raw("c7 0c ff ffffffff 0000000000000000")}, `fewer than 1e9 nanoseconds`},
		{"element", &progressorv1.PollRequest{}, object{"namespaces": []any{"a", nil}},
			`namespaces[1]: must be a str, not nil`},
		{"message in a list", &progressorv1.Result{}, object{"events": []any{object{}, 5}},
			`events[1]: must be a map of fields, not an int`},
		{"no list", &progressorv1.Result{}, object{"events": object{}}, `events: must be an array, not a map`},
		{"entry", &progressorv1.ConnectProcessor{}, object{"headers": object{"X-A": 1}},
			`headers.X-A: must be a str, not an int`},
		{"entry twice", &progressorv1.ConnectProcessor{}, raw("81 a7 68656164657273 82 a1 61 a1 62 a1 61 a1 62"),
			`headers.a: must not be given twice`},
		{"key twice", &progressorv1.StartRequest{}, raw("81 a8 6d65746164617461 82 a1 61 01 a1 61 02"),
			`metadata.a: must not be given twice`},
		{"key twice within", &progressorv1.StartRequest{}, object{"metadata": object{"a": raw("82 a1 61 01 a1 61 02")}},
			`metadata.a.a: must not be given twice`},
		{"number twice as a key", &progressorv1.JobResult{}, object{"result": raw("82 01 c0 cc 01 c0")},
			`result[1]: must not be given twice`},
		{"key of an object", &progressorv1.StartRequest{}, object{"metadata": map[int]int{1: 1}},
			`metadata: must be a str, as every key of an object, not an int`},
		{"deep", &progressorv1.JobResult{}, object{"result": deep(300)}, `nested deeper than 200 maps and arrays`},
		{"deep metadata", &progressorv1.StartRequest{}, object{"metadata": object{"a": deep(300)}},
			`nested deeper than 200 maps and arrays`},
	} {
		err := Unmarshal(pack(t, c.from), c.m)
		_, ok := err.(*Error) //nolint:errorlint // it is one, not wrapped
		if !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// TestWritingRefuses checks that the errors for values that cannot be encoded name the values.
func TestWritingRefuses(t *testing.T) {
	for want, m := range map[string]proto.Message{
		"process_id: must be valid UTF-8": &progressorv1.CallRequest{ProcessId: "\xff"},
		"timeout: not a valid google.protobuf.Durat": &progressorv1.CallRequest{
			Timeout: &durationpb.Duration{Nanos: -1, Seconds: 1}},
		"result: not a JSON value": &progressorv1.JobResult{Result: &structpb.Value{}},
		`metadata["\xff"]: must be valid UTF-8`: &progressorv1.StartRequest{
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"\xff": structpb.NewNullValue()}}},
		"metadata.a[0]: not a JSON value": &progressorv1.StartRequest{
			Metadata: &structpb.Struct{
				Fields: map[string]*structpb.Value{
					"a": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{nil}})}}},
		"leases[0].namespace: must be valid UTF-8": &progressorv1.PollResponse{
			Leases: []*progressorv1.Lease{{Namespace: "\xff"}}},
		"processor.connect.headers.a: must be valid": &progressorv1.Namespace{
			Processor: &progressorv1.ProcessorConfig{
				Transport: &progressorv1.ProcessorConfig_Connect{
					Connect: &progressorv1.ConnectProcessor{Headers: map[string]string{"a": "\xff"}}}}},
	} {
		if _, err := Marshal(m); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzUnmarshal decodes any bytes as any message of the API. Errors must be an *Error, and a
// decoded message must be equal after it was encoded and decoded again.
func FuzzUnmarshal(f *testing.F) {
	types := messageTypes(f)
	for n, typ := range types {
		f.Add(uint16(n), []byte{0x80})
		switch typ.Descriptor().Name() {
		case "StartRequest":
			f.Add(uint16(n),
				pack(f, object{"namespace": "n", "args": []byte("x"), "startTime": time.Unix(1, 2), "timeout": 1.5,
					"metadata": object{"a": []any{1, 1.0, nil}}}))
		case "EnqueueRequest", "JobResult", "Job":
			for _, c := range values {
				f.Add(uint16(n), append(unhex(f, "81 a6 726573756c74"), unhex(f, c.packed)...))
				f.Add(uint16(n), append(unhex(f, "81 a4 61726773"), unhex(f, c.packed)...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, data []byte) {
		typ := types[int(which)%len(types)]
		m, again := typ.New().Interface(), typ.New().Interface()
		if err := Unmarshal(data, m); err != nil {
			if own := (*Error)(nil); !errors.As(err, &own) || own.Message == "" {
				t.Fatalf("%s: %#v", typ.Descriptor().Name(), err)
			}
			return
		}
		packed, err := Marshal(m)
		if err != nil {
			t.Fatalf("%v: %v", m, err)
		}
		if err := Unmarshal(packed, again); err != nil || !proto.Equal(m, again) {
			t.Fatalf("%v is read again as %v, %v", m, again, err)
		}
		if twice, err := Marshal(again); err != nil || !bytes.Equal(packed, twice) {
			t.Fatalf("%x is written again as %x, %v", packed, twice, err)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	packed := pack(b, object{"namespace": "bench", "processId": "p-12345", "args": make([]byte, 200)})
	b.ReportAllocs()
	for b.Loop() {
		m := &progressorv1.CallRequest{}
		if err := Unmarshal(packed, m); err != nil {
			b.Fatal(err)
		}
		if _, err := Marshal(m); err != nil {
			b.Fatal(err)
		}
	}
}
