package elements

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	for text, values := range map[string]int{
		`[0,0,0,0,0,0,0,0,0,0]`:                           10,
		`[[],[],[],[],[]]`:                                10,
		`{"a":{"b":[1,2]},"c":"d"}`:                       5,
		`{"text, with [ and {": "more, \" , \\", "a": 1}`: 2,
		`{"a": "\\\\", "b": [","]}`:                       3,
		`{"a": "\\\\\"[[[[[[[[[[[[[[", "b": 1}`:           2,
	} {
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s is not JSON", text)
		}
		if err := CheckJSON([]byte(text), values); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := CheckJSON([]byte(text), values-1); err == nil {
			t.Errorf("%s has %d values, but is accepted with a limit of %d", text, values, values-1)
		}
	}
	for _, cut := range []string{`"`, `"\`, `["a`, `"\\\"`, ``, `["a\\"`} {
		if err := CheckJSON([]byte(strings.Repeat(" ", 10)+cut), 5); err != nil {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

// FuzzCheckJSON checks that JSON with more than four times as many keys and values as the limit is
// rejected. A JSON decoder counts the keys and values.
func FuzzCheckJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x,\"[",{"b":null}],"c":{}}`))
	f.Add([]byte(`["\\",[[[]]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		values := 0
		decoder := json.NewDecoder(bytes.NewReader(data))
		if !json.Valid(data) {
			return
		}
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			if d, ok := token.(json.Delim); !ok || d == '[' || d == '{' {
				values++ // with the keys
			}
		}
		if len(data) <= values/4 {
			return
		}
		if values > 4 && CheckJSON(data, values/4-1) == nil {
			t.Errorf("%q has %d keys and values, but is accepted as less than %d", data, values, values/4)
		}
	})
}

func TestCheckProto(t *testing.T) {
	t.Parallel()
	list := &structpb.ListValue{}
	for range 100 {
		list.Values = append(list.Values, structpb.NewNumberValue(0))
	}
	m := &progressorv1.StartRequest{Namespace: "n", ProcessId: "p", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"list": structpb.NewListValue(list)},
	}}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	md := m.ProtoReflect().Descriptor()
	// The message has 3 fields, the entry with its key and value, the list, and 2 fields per
	// element.
	const fields = 3 + 1 + 2 + 1 + 2*100
	if err := CheckProto(data, md, fields); err != nil {
		t.Errorf("%d fields: %v", fields, err)
	}
	if err := CheckProto(data, md, fields-1); err == nil {
		t.Errorf("%d fields are accepted with a limit of %d", fields, fields-1)
	}
	packed, err := proto.Marshal(&progressorv1.HttpTarget{SuccessCodes: make([]int32, 50)})
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckProto(packed, (&progressorv1.HttpTarget{}).ProtoReflect().Descriptor(), 49); err == nil {
		t.Error("50 packed numbers are accepted with a limit of 49")
	}
	for n := range data {
		_ = CheckProto(data[:n], md, 5) // a malformed message causes no panic
	}
}
