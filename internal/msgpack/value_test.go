package msgpack

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	low "github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

func jsonValue(t testing.TB, text string) *structpb.Value {
	t.Helper()
	v := &structpb.Value{}
	if err := protojson.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// values are the shortest MessagePack encodings, with the Value of each.
var values = []struct{ name, packed, json string }{
	{"nil", "c0", `null`},
	{"true", "c3", `true`},
	{"one", "01", `1`},
	{"minus one", "ff", `-1`},
	{"2^53", "cf 0020000000000000", `9007199254740992`},
	{"past 2^53", "cf 0020000000000001", `{"$int":"9007199254740993"}`},
	{"-2^53", "d3 ffe0000000000000", `-9007199254740992`},
	{"past -2^53", "d3 ffdfffffffffffff", `{"$int":"-9007199254740993"}`},
	{"2^64-1", "cf ffffffffffffffff", `{"$int":"18446744073709551615"}`},
	{"-2^63", "d3 8000000000000000", `{"$int":"-9223372036854775808"}`},
	{"a fraction", "cb 3ff8000000000000", `1.5`},
	{"a whole float", "cb 3ff0000000000000", `{"$float":1}`},
	{"2^53 as a float", "cb 4340000000000000", `{"$float":9007199254740992}`},
	{"1e20", "cb 4415af1d78b58c40", `1e20`},
	{"-0.0", "cb 8000000000000000", `{"$float":"-0"}`},
	{"NaN", "cb 7ff8000000000001", `{"$float":"NaN"}`},
	{"infinity", "cb 7ff0000000000000", `{"$float":"Infinity"}`},
	{"-infinity", "cb fff0000000000000", `{"$float":"-Infinity"}`},
	{"text", "a2 c3a4", `"ä"`},
	{"empty bin", "c4 00", `{"$bin":""}`},
	{"bin", "c4 02 0102", `{"$bin":"AQI="}`},
	{"extension", "d5 05 0102", `{"$ext":[5,"AQI="]}`},
	{"empty extension", "c7 00 80", `{"$ext":[-128,""]}`},
	{"timestamp", "d6 ff 00000001", `{"$ext":[-1,"AAAAAQ=="]}`},
	{"array", "93 01 c0 a1 61", `[1,null,"a"]`},
	{"empty map", "80", `{}`},
	{"map", "82 a1 61 01 a1 62 91 02", `{"a":1,"b":[2]}`},
	{"keys that are ints", "82 02 a1 62 01 a1 61", `{"$map":[[2,"b"],[1,"a"]]}`},
	{"keys of all kinds", "84 a1 61 01 c0 02 cb 3ff0000000000000 03 01 04",
		`{"$map":[["a",1],[null,2],[{"$float":1},3],[1,4]]}`},
	{"a map as a key", "81 81 a1 61 01 c2", `{"$map":[[{"a":1},false]]}`},
	{"bin as a key", "81 c4 01 61 01", `{"$map":[[{"$bin":"YQ=="},1]]}`},
	{"a user's own", "81 a4 24696e74 a1 35", `{"$$int":"5"}`},
	{"any other", "81 a4 24726566 a1 78", `{"$$ref":"x"}`},
	{"a user's own, escaped", "81 a5 2424696e74 a1 35", `{"$$$int":"5"}`},
	{"$", "81 a1 24 01", `{"$$":1}`},
	{"of two keys", "82 a4 24696e74 a1 35 a1 61 01", `{"$int":"5","a":1}`},
	{"within", "81 a1 61 91 81 a4 2462696e c4 00", `{"a":[{"$$bin":{"$bin":""}}]}`},
}

func TestValues(t *testing.T) {
	for _, c := range values {
		t.Run(c.name, func(t *testing.T) {
			packed, want := unhex(t, c.packed), jsonValue(t, c.json)
			got := &structpb.Value{}
			if err := Unmarshal(packed, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("read %v, %v; want %v", got, err, want)
			}
			again, err := Marshal(want)
			if c.name == "NaN" {
				packed[8] = 1 // the NaN of Go
			}
			if err != nil || hex.EncodeToString(again) != hex.EncodeToString(packed) {
				t.Errorf("written as %x, %v; want %x", again, err, packed)
			}
		})
	}
}

// TestOtherWidths checks that longer encodings are decoded like the shortest one.
func TestOtherWidths(t *testing.T) {
	for packed, want := range map[string]string{
		"cc 01": `1`, "cd 0001": `1`, "ce 00000001": `1`, "cf 0000000000000001": `1`, "d0 01": `1`, "d1 0001": `1`,
		"d2 ffffffff":         `-1`,
		"d3 0000000000000001": `1`, "ca 3fc00000": `1.5`, "ca 3f800000": `{"$float":1}`, "d9 01 61": `"a"`,
		"da 0001 61": `"a"`, "db 00000001 61": `"a"`,
		"c5 0001 01": `{"$bin":"AQ=="}`, "c6 00000001 01": `{"$bin":"AQ=="}`, "dc 0001 01": `[1]`,
		"dd 00000001 01":   `[1]`,
		"de 0001 a1 61 01": `{"a":1}`, "df 00000001 a1 61 01": `{"a":1}`, "c7 01 05 01": `{"$ext":[5,"AQ=="]}`,
		"c8 0001 05 01":     `{"$ext":[5,"AQ=="]}`,
		"c9 00000001 05 01": `{"$ext":[5,"AQ=="]}`, "d4 05 01": `{"$ext":[5,"AQ=="]}`,
	} {
		got := &structpb.Value{}
		if err := Unmarshal(unhex(t, packed), got); err != nil || !proto.Equal(got, jsonValue(t, want)) {
			t.Errorf("%s: %v, %v; want %s", packed, got, err, want)
		}
	}
}

// TestObjectsThatResembleMarkers checks that an object that only resembles a marker is encoded as a
// map.
func TestObjectsThatResembleMarkers(t *testing.T) {
	for _, text := range []string{
		`{"$int":5}`, `{"$int":"05"}`, `{"$int":"+5"}`, `{"$int":"18446744073709551616"}`, `{"$int":""}`,
		`{"$float":"1"}`, `{"$float":true}`,
		`{"$bin":"?"}`, `{"$bin":"AQJ="}`, `{"$bin":"AQ\nI="}`, `{"$bin":null}`, `{"$ext":[128,""]}`,
		`{"$ext":[-129,""]}`, `{"$ext":[1.5,""]}`, `{"$ext":["1",""]}`,
		`{"$ext":[1]}`, `{"$map":{}}`, `{"$map":[[1]]}`, `{"$map":[[1,2],3]}`, `{"$ref":"x"}`, `{"$":1}`,
	} {
		packed, err := Marshal(jsonValue(t, text))
		if err != nil || packed[0] != 0x81 {
			t.Errorf("%s is written as %x, %v", text, packed, err)
			continue
		}
		// The bytes are decoded to a value that is encoded to the same bytes.
		got, again := &structpb.Value{}, []byte(nil)
		if err = Unmarshal(packed, got); err == nil {
			again, err = Marshal(got)
		}
		if err != nil || string(again) != string(packed) {
			t.Errorf("%s is returned as %x, %v; want %x", text, again, err, packed)
		}
	}
}

// TestStructs checks that a Struct is plain JSON where possible.
func TestStructs(t *testing.T) {
	for _, c := range []struct{ packed, json string }{
		{"81 a1 61 cb 3ff0000000000000", `{"a":1}`},
		{"81 a1 61 cf 0020000000000001", `{"a":{"$int":"9007199254740993"}}`},
		{"81 a1 61 c4 00", `{"a":{"$bin":""}}`},
		{"81 a4 24696e74 a1 35", `{"$int":"5"}`}, // always an object, because nothing distinguishes it
		{"81 a1 61 81 a4 24696e74 a1 35", `{"a":{"$$int":"5"}}`},
		{"81 a1 61 81 a5 2424696e74 a1 35", `{"a":{"$$$int":"5"}}`},
		{"81 a1 61 81 a4 24726566 a1 78", `{"a":{"$ref":"x"}}`},
		{"81 a1 61 81 a5 2424726566 a1 78", `{"a":{"$$ref":"x"}}`},
		{"81 a1 61 81 01 02", `{"a":{"$map":[[1,2]]}}`},
	} {
		got, want := &structpb.Struct{}, jsonValue(t, c.json).GetStructValue()
		if err := Unmarshal(unhex(t, c.packed), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s is read as %v, %v; want %s", c.packed, got, err, c.json)
		}
		packed, err := Marshal(got)
		back := &structpb.Struct{}
		if err == nil {
			err = Unmarshal(packed, back)
		}
		if err != nil || !proto.Equal(got, back) {
			t.Errorf("%s is returned as %v, %v", c.json, back, err)
		}
	}
}

// anyPacked draws MessagePack in its shortest form. This package writes the same form.
func anyPacked(depth int) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		kinds := 7
		if depth > 0 {
			kinds = 10
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return []byte{0xc0}
		case 1:
			return []byte{byte(0xc2 + rapid.IntRange(0, 1).Draw(t, "bool"))}
		case 2:
			return written(t, func(e *encoder) error { return e.low.EncodeInt(rapid.Int64().Draw(t, "int")) })
		case 3:
			return written(t, func(e *encoder) error { return e.low.EncodeUint(rapid.Uint64().Draw(t, "uint")) })
		case 4:
			f := rapid.OneOf(rapid.Float64(),
				rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -3, 1 << 53, 1 << 54, math.Inf(1), math.NaN()}))
			return written(t, func(e *encoder) error { return e.low.EncodeFloat64(f.Draw(t, "float")) })
		case 5:
			return written(t, func(e *encoder) error { return e.text(rapid.String().Draw(t, "str")) })
		case 6:
			return written(t, func(e *encoder) error { return e.bytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bin")) })
		case 7:
			return written(t, func(e *encoder) error {
				return e.ext(rapid.Int8().Draw(t, "type"), rapid.SliceOf(rapid.Byte()).Draw(t, "ext"))
			})
		case 8:
			elements := rapid.SliceOfN(anyPacked(depth-1), 0, 4).Draw(t, "array")
			packed := written(t, func(e *encoder) error { return e.low.EncodeArrayLen(len(elements)) })
			for _, element := range elements {
				packed = append(packed, element...)
			}
			return packed
		case 9:
			return packedMap(t, names(), depth)
		}
		return packedMap(t, anyPacked(depth-1), depth)
	})
}

// names draws keys of an object.
func names() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		name := rapid.OneOf(
			rapid.SampledFrom([]string{"$", "$int", "$$int", "$float", "$bin", "$ext", "$map", "$x", "a"}),
			rapid.String())
		return written(t, func(e *encoder) error { return e.text(name.Draw(t, "name")) })
	})
}

func packedMap(t *rapid.T, keys *rapid.Generator[[]byte], depth int) []byte {
	drawn := rapid.SliceOfNDistinct(keys, 0, 3, identity).Draw(t, "keys")
	// An object is encoded in this order.
	slices.SortFunc(drawn, func(a, b []byte) int { return strings.Compare(nameOf(a), nameOf(b)) })
	packed := written(t, func(e *encoder) error { return e.low.EncodeMapLen(len(drawn)) })
	for _, key := range drawn {
		packed = append(append(packed, key...), anyPacked(depth-1).Draw(t, "value")...)
	}
	return packed
}

// identity returns the same text for keys that are equal in a Struct, such as 1 as an integer and
// as a float.
func identity(key []byte) string {
	v := &structpb.Value{}
	if err := Unmarshal(key, v); err != nil {
		return string(key)
	}
	if float := v.GetStructValue().GetFields()[markFloat]; float != nil {
		v = float
	}
	id, err := Marshal(v)
	if err != nil {
		return string(key)
	}
	return string(id)
}

// nameOf returns a key of a map as text, or "" if it is not text.
func nameOf(key []byte) string {
	v := &structpb.Value{}
	_ = Unmarshal(key, v)
	return v.GetStringValue()
}

func written(t *rapid.T, write func(*encoder) error) []byte {
	buf := &bytes.Buffer{}
	if err := write(&encoder{low.NewEncoder(buf)}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestNothingIsLost checks that MessagePack that was decoded as a Value is encoded to the same
// bytes, even if the Value was stored as JSON in between.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		packed := anyPacked(3).Draw(t, "packed")
		v, stored := &structpb.Value{}, &structpb.Value{}
		if err := Unmarshal(packed, v); err != nil {
			t.Fatalf("%x: %v", packed, err)
		}
		text, err := protojson.Marshal(v)
		if err != nil {
			t.Fatalf("%x is not JSON: %v", packed, err)
		}
		if err := protojson.Unmarshal(text, stored); err != nil {
			t.Fatal(err)
		}
		for _, v := range []*structpb.Value{v, stored} {
			if again, err := Marshal(v); err != nil || string(again) != string(packed) {
				t.Fatalf("%s is written as %x, %v; was %x", text, again, err, packed)
			}
		}
	})
}
