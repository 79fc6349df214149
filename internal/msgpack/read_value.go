package msgpack

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// The keys of objects for values that JSON cannot represent:
//
//	{"$int": "9007199254740993"}   an integer beyond 2^53
//	{"$float": 1}                  a float up to 2^53 without a fraction, unlike an integer;
//	                               "NaN", "Infinity", "-Infinity" and "-0" as strings
//	{"$bin": "AQI="}               bin
//	{"$ext": [5, "AQI="]}          an extension: its type and its bytes
//	{"$map": [[1, "a"], …]}        a map with keys that are not all strings, in its order
//
// When an object whose single key begins with $ is decoded, the key gets another $, which it loses
// when it is encoded. An object that only resembles one of the above ({"$int": true}) is encoded as
// a map. A number beyond 2^53 in a Value is a float, and so is -0.
//
// The same applies to a google.protobuf.Struct (metadata, details, schemas) with two exceptions,
// because they are searched and compiled as JSON: a float without a fraction is a number, and only
// the keys above get another $, so that {"$ref": "…"} of a JSON Schema does not change.
const (
	markInt   = "$int"
	markFloat = "$float"
	markBin   = "$bin"
	markExt   = "$ext"
	markMap   = "$map"
)

// holder is the message that contains a JSON value.
type holder int

const (
	inValue  holder = iota // a google.protobuf.Value: lossless
	inStruct               // a google.protobuf.Struct: plain JSON if possible
)

// escapes reports whether an object with a single key gets another $ when it is decoded, and loses
// it when it is encoded.
func (h holder) escapes(key string) bool {
	if h == inValue {
		return strings.HasPrefix(key, "$")
	}
	switch name := strings.TrimLeft(key, "$"); "$" + name {
	case markInt, markFloat, markBin, markExt, markMap:
		return len(name) < len(key)
	}
	return false
}

func marked(mark string, v *structpb.Value) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{mark: v}})
}

// value decodes any value as a Value.
func (d *decoder) value(h holder, depth int) (*structpb.Value, error) {
	if depth > maxDepth {
		return nil, fault("nested deeper than %d maps and arrays", maxDepth)
	}
	if err := d.element(); err != nil {
		return nil, err
	}
	next, err := d.next()
	if err != nil {
		return nil, err
	}
	switch next {
	case kindNil:
		return structpb.NewNullValue(), short(d.low.DecodeNil())
	case kindBool:
		v, err := d.bool()
		return structpb.NewBoolValue(v), err
	case kindInt:
		n, err := d.int()
		if v, exact := n.exact(); exact {
			return structpb.NewNumberValue(v), err
		}
		return marked(markInt, structpb.NewStringValue(n.String())), err
	case kindFloat:
		v, err := d.float()
		return floatValue(v, h), err
	case kindStr:
		v, err := d.text("a str")
		return structpb.NewStringValue(v), err
	case kindBin:
		v, err := d.raw()
		return marked(markBin, base64Value(v)), err
	case kindExt:
		extType, data, err := d.ext()
		return marked(markExt, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewNumberValue(float64(extType)), base64Value(data),
		}})), err
	case kindArray:
		list := &structpb.ListValue{}
		return structpb.NewListValue(list), d.listValue(list, h, depth)
	}
	return d.mapValue(h, depth)
}

func base64Value(b []byte) *structpb.Value {
	return structpb.NewStringValue(base64.StdEncoding.EncodeToString(b))
}

// floatValue returns a float as a Value: a number, unless an integer has the same JSON.
func floatValue(v float64, h holder) *structpb.Value {
	var text string
	switch {
	case math.IsNaN(v):
		text = "NaN"
	case math.IsInf(v, 1):
		text = "Infinity"
	case math.IsInf(v, -1):
		text = "-Infinity"
	case h == inStruct, v != math.Trunc(v), math.Abs(v) > maxExact:
		return structpb.NewNumberValue(v)
	case v == 0 && math.Signbit(v):
		text = "-0" // as a number, its sign would be lost in the database
	default:
		return marked(markFloat, structpb.NewNumberValue(v))
	}
	return marked(markFloat, structpb.NewStringValue(text))
}

func (d *decoder) listValue(list *structpb.ListValue, h holder, depth int) error {
	n, err := d.arrayLen("an array")
	if err != nil {
		return err
	}
	for i := range n {
		v, err := d.value(h, depth+1)
		if err != nil {
			return within(indexStep(i), err)
		}
		list.Values = append(list.Values, v)
	}
	return nil
}

// mapValue decodes a map: an object if all keys are strings, otherwise {"$map": …}.
func (d *decoder) mapValue(h holder, depth int) (*structpb.Value, error) {
	n, err := d.mapLen("a map")
	if err != nil {
		return nil, err
	}
	var keys, values []*structpb.Value
	allText := true
	for range n {
		key, err := d.value(h, depth+1)
		if err != nil {
			return nil, within("[key]", err)
		}
		value, err := d.value(h, depth+1)
		if err != nil {
			return nil, within(valueStep(key), err)
		}
		_, isText := key.GetKind().(*structpb.Value_StringValue)
		allText = allText && isText
		keys, values = append(keys, key), append(values, value)
	}
	if !allText {
		return pairsValue(keys, values)
	}
	object := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(keys))}
	for i, key := range keys {
		name := key.GetStringValue()
		if _, twice := object.GetFields()[name]; twice {
			return nil, within(keyStep(name), fault("must not be given twice"))
		}
		if len(keys) == 1 && h.escapes(name) {
			name = "$" + name
		}
		object.Fields[name] = values[i]
	}
	return structpb.NewStructValue(object), nil
}

// pairsValue decodes a map with keys that are not all strings.
func pairsValue(keys, values []*structpb.Value) (*structpb.Value, error) {
	pairs := make([]*structpb.Value, len(keys))
	seen := make(map[string]bool, len(keys))
	for i, key := range keys {
		id, err := Marshal(key) // equal for equal keys, regardless of their encoding
		if err != nil {
			return nil, err
		}
		if seen[string(id)] {
			return nil, within(valueStep(key), fault("must not be given twice"))
		}
		seen[string(id)] = true
		pairs[i] = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{key, values[i]}})
	}
	return marked(markMap, structpb.NewListValue(&structpb.ListValue{Values: pairs})), nil
}

// valueStep returns the path step of a key.
func valueStep(key *structpb.Value) string {
	switch k := key.GetKind().(type) {
	case *structpb.Value_StringValue:
		return keyStep(k.StringValue)
	case *structpb.Value_NumberValue:
		return "[" + strconv.FormatFloat(k.NumberValue, 'g', -1, 64) + "]"
	}
	return "[key]"
}

// structValue decodes a map into a Struct. A Struct is always an object, so no key gets another $.
func (d *decoder) structValue(object *structpb.Struct, depth int) error {
	n, err := d.mapLen("a map")
	if err != nil {
		return err
	}
	for range n {
		key, err := d.text("a str, as every key of an object")
		if err != nil {
			return err
		}
		if _, twice := object.GetFields()[key]; twice {
			return within(keyStep(key), fault("must not be given twice"))
		}
		v, err := d.value(inStruct, depth+1)
		if err != nil {
			return within(keyStep(key), err)
		}
		if object.Fields == nil {
			object.Fields = map[string]*structpb.Value{}
		}
		object.Fields[key] = v
	}
	return nil
}
