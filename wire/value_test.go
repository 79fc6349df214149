package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/wire"
)

// texts are valid and invalid values.
var texts = []string{
	`null`, `true`, `false`, ` [ ] `, `{}`, `""`, `"ä€😀"`, "\"a\\n\\\"b\\u0000\"", "\"\xff\"",
	`"\\ud83d\\ude00 \\ud83d"`, `"\\/\\"\\`, `"\\x"`, `{"\\n":"\\t\\u0001"}`, "\"\\n\xff\"", "\"\x01\"", `0`, `-0`,
	`01`, `-`, `1.`, `.5`, `1.25`, `-17`, `1e3`, `1E400`,
	`9007199254740993`, `123456789012345678901234567890`, `0.0000001`, `[1,2,[3,{"a":null}]]`, `[1,]`, `[,1]`, `[1 2]`,
	`{"a":1,"b":{"c":[true,"x"]}}`, `{"a":1,}`,
	`{"a":1,"a":2}`, `{"a"}`, `{"a":}`, `{a:1}`, `{"a":1`, `tru`, `nulls`, `1 2`, `"a`, "", " ", "\x00", "1\x00",
	`{"":""}`, strings.Repeat("[", 120) + strings.Repeat("]", 120),
	strings.Repeat(`{"a":`, 99) + `1` + strings.Repeat("}", 99),
	`{"to":"somebody001@example.org", "template" : "welcome","attempt":1}`,
}

// FuzzValue compares the values that this package reads and writes with those of protojson.
func FuzzValue(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := wire.Value(text)
		if len(text) == 0 {
			if got != nil || err != nil {
				t.Fatalf("an empty text is read as %v, %v", got, err)
			}
			return
		}
		want := &structpb.Value{}
		if wrong := protojson.Unmarshal(text, want); wrong != nil {
			if err == nil && !bytes.ContainsAny(text, "eE") && !deep(text) {
				t.Fatalf("%q is read as %v; protojson says %v", text, got, wrong)
			}
			return
		}
		if err == nil && deep(text) {
			return // a value that is too deep becomes a string: TestValuesThatAMessageCannotHold
		}
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("%q is read as %v, %v; want %v", text, got, err, want)
		}
		written, err := wire.ValueJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(protojson.Format(want), `\u0000`) {
			return // it is replaced: TestTextOfAValue
		}
		if back, err := wire.Value(written); err != nil || !proto.Equal(back, want) {
			t.Fatalf("%q is written as %q, which is %v, %v", text, written, back, err)
		}
	})
}

func deep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > process.MaxJSONDepth
}

// A value that PostgreSQL stores and a message cannot hold is read as a string. A list that
// contains it does not fail.
func TestValuesThatAMessageCannotHold(t *testing.T) {
	t.Parallel()
	nested := func(depth int, inner string) string {
		return strings.Repeat("[", depth) + inner + strings.Repeat("]", depth)
	}
	for text, want := range map[string]string{
		`1e400`: `"1e400"`, `-1E+400`: `"-1E+400"`,
		`1` + strings.Repeat("0", 400):    `"1` + strings.Repeat("0", 400) + `"`,
		`1e-400`:                          `0`,
		`[1e3, {"a": "\n�", "b": 1e999}]`: `[1000,{"a":"\n�","b":"1e999"}]`,
		nested(101, `1`):                  nested(101, `1`),
		nested(102, `"]\""`):              nested(101, `"[\"]\\\"\"]"`),
		nested(200, `{"a": 1e400}`):       nested(101, `"`+nested(99, `{\"a\": 1e400}`)+`"`),
		nested(20_000, ``):                nested(101, `"`+nested(19_899, ``)+`"`),
	} {
		for _, text := range []string{text, `{"x":` + text + `}`} {
			v, err := wire.Value([]byte(text))
			if err != nil {
				t.Errorf("%.60s: %v", text, err)
				continue
			}
			if text[0] == '{' {
				s, err := wire.Struct([]byte(text))
				if err != nil || !proto.Equal(s, v.GetStructValue()) {
					t.Errorf("%.60s is an object %.60v, %v", text, s, err)
				}
				continue
			}
			if got, err := wire.ValueJSON(v); err != nil || string(got) != want {
				t.Errorf("%.60s is read as %.300s, %v; want %.300s", text, got, err, want)
			}
			if _, err := proto.Marshal(v); err != nil {
				t.Errorf("%.60s: %v", text, err)
			}
		}
	}
	for _, text := range []string{`[1]`, `"a"`, `{"a":1e400`, `{"a":1e400,"a":1}`, "{\"a\":1e400,\"b\":\"\xff\"}",
		`{"a":1e400,"b":"\ud83d"}`} {
		if s, err := wire.Struct([]byte(text)); err == nil {
			t.Errorf("%q is an object: %v", text, s)
		}
	}
}

// The text of a value is the same in every build of the program, because the text is part of the
// fingerprint of a request. protojson writes spaces in some builds and none in others.
func TestTextOfAValue(t *testing.T) {
	t.Parallel()
	value, err := structpb.NewValue(
		map[string]any{"b": []any{1.0, -2.5, 1e20, 0.0, 1e-7, 1e21}, "a": map[string]any{"x": nil, "ä": "€"}, "c": true,
			"d": "<\"\\\n\x01\x7f>"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := wire.ValueJSON(value)
	if want := `{"a":{"x":null,"ä":"€"},"b":[1,-2.5,100000000000000000000,0,1e-7,1e+21],"c":true,"d":"<\"\\\n\u0001` +
		"\x7f" + `>"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	for _, broken := range []*structpb.Value{{}, structpb.NewNumberValue(math.NaN()),
		structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{nil}})} {
		if text, err := wire.ValueJSON(broken); err == nil {
			t.Errorf("%v is written as %s", broken, text)
		}
	}
	for from, want := range map[string]string{"a\x00b": "\"a\uFFFDb\"", "a\xffb": "\"a\uFFFDb\"", "a\"b": `"a\"b"`,
		"a\nb": `"a\nb"`} {
		if text, err := wire.ValueJSON(structpb.NewStringValue(from)); err != nil || string(text) != want {
			t.Errorf("%q is written as %s, %v; want %s", from, text, err, want)
		}
	}
}

// BenchmarkValue compares the functions of this package with encoding/json and protojson.
func BenchmarkValue(b *testing.B) {
	plain := `{"to":"somebody001@example.org","template":"welcome","attempt":1,"vip":true,` +
		`"items":[{"sku":"tea","quantity":2,"price":4.5},` +
		`{"sku":"cup","quantity":1,"price":12}],"note":null,"address":"Long Street 5"}`
	for name, text := range map[string][]byte{"plain": []byte(plain),
		"escaped": []byte(strings.ReplaceAll(plain, "Long Street", `Long \"Street\"\n`))} {
		value, err := wire.Value(text)
		if err != nil {
			b.Fatal(err)
		}
		for _, run := range []struct {
			name string
			once func() error
		}{
			{"read", func() error { _, err := wire.Value(text); return err }},
			{"read by encoding json", func() error {
				var x any
				_ = json.Unmarshal(text, &x)
				_, err := structpb.NewValue(x)
				return err
			}},
			{"read by protojson", func() error { return protojson.Unmarshal(text, &structpb.Value{}) }},
			{"write", func() error { _, err := wire.ValueJSON(value); return err }},
			{"write by encoding json", func() error {
				encoder := json.NewEncoder(&bytes.Buffer{})
				encoder.SetEscapeHTML(false)
				return encoder.Encode(value.AsInterface())
			}},
			{"write by protojson", func() error {
				written, _ := protojson.Marshal(value)
				return json.Compact(&bytes.Buffer{}, written)
			}},
		} {
			b.Run(name+"/"+run.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := run.once(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
