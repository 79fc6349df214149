package msgpack

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

func (e *encoder) value(v *structpb.Value, h holder) error {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return e.low.EncodeNil()
	case *structpb.Value_BoolValue:
		return e.low.EncodeBool(kind.BoolValue)
	case *structpb.Value_NumberValue:
		return e.number(kind.NumberValue)
	case *structpb.Value_StringValue:
		return e.text(kind.StringValue)
	case *structpb.Value_ListValue:
		return e.listValue(kind.ListValue, h)
	case *structpb.Value_StructValue:
		return e.object(kind.StructValue, h)
	}
	return fault("not a JSON value: set null, number, string, bool, object or list")
}

func (e *encoder) listValue(list *structpb.ListValue, h holder) error {
	if err := e.low.EncodeArrayLen(len(list.GetValues())); err != nil {
		return err
	}
	return e.elements(list.GetValues(), h)
}

func (e *encoder) elements(values []*structpb.Value, h holder) error {
	for i, v := range values {
		if err := e.value(v, h); err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}

// object encodes an object, or the value that it represents.
func (e *encoder) object(object *structpb.Struct, h holder) error {
	if len(object.GetFields()) == 1 {
		for key, v := range object.GetFields() {
			if name, doubled := strings.CutPrefix(key, "$"); doubled && h.escapes(name) {
				if err := e.low.EncodeMapLen(1); err != nil {
					return err
				}
				return e.member(name, v, h)
			}
			if ok, err := e.special(key, v, h); ok {
				return err
			}
		}
	}
	return e.members(object, h)
}

// members encodes an object as a map with its keys in order.
func (e *encoder) members(object *structpb.Struct, h holder) error {
	if err := e.low.EncodeMapLen(len(object.GetFields())); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(object.GetFields())) {
		if err := e.member(key, object.GetFields()[key], h); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) member(key string, v *structpb.Value, h holder) error {
	if err := e.text(key); err != nil {
		return within(keyStep(key), err)
	}
	return within(keyStep(key), e.value(v, h))
}

// special encodes the value that an object with a single key represents. If the object represents
// no such value, it writes nothing and returns false.
func (e *encoder) special(mark string, v *structpb.Value, h holder) (ok bool, err error) {
	switch mark {
	case markInt:
		if n, ok := parseInteger(v.GetStringValue()); ok {
			if n.negative {
				return true, e.low.EncodeInt(int64(n.bits))
			}
			return true, e.low.EncodeUint(n.bits)
		}
	case markFloat:
		if f, ok := floatOf(v); ok {
			return true, e.low.EncodeFloat64(f)
		}
	case markBin:
		if b, ok := bytesOf(v); ok {
			return true, e.bytes(b)
		}
	case markExt:
		if extType, b, ok := extOf(v); ok {
			return true, e.ext(extType, b)
		}
	case markMap:
		if pairs, ok := pairsOf(v); ok {
			return true, e.pairs(pairs, h)
		}
	}
	return false, nil
}

func floatOf(v *structpb.Value) (float64, bool) {
	if number, ok := v.GetKind().(*structpb.Value_NumberValue); ok {
		return number.NumberValue, true
	}
	switch v.GetStringValue() {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	case "-0":
		return math.Copysign(0, -1), true
	}
	return 0, false
}

func bytesOf(v *structpb.Value) ([]byte, bool) {
	text, ok := v.GetKind().(*structpb.Value_StringValue)
	if !ok {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text.StringValue)
	return b, err == nil && !strings.ContainsAny(text.StringValue, "\r\n") // the decoder skips it
}

func extOf(v *structpb.Value) (extType int8, b []byte, ok bool) {
	parts := v.GetListValue().GetValues()
	if len(parts) != 2 {
		return 0, nil, false
	}
	number, isNumber := parts[0].GetKind().(*structpb.Value_NumberValue)
	b, ok = bytesOf(parts[1])
	if !isNumber || !ok || number.NumberValue != math.Trunc(number.NumberValue) ||
		math.Abs(number.NumberValue+0.5) > 127.5 {
		return 0, nil, false
	}
	return int8(number.NumberValue), b, true
}

// pairsOf returns the pairs of a map with keys that are not all strings.
func pairsOf(v *structpb.Value) ([]*structpb.Value, bool) {
	list, ok := v.GetKind().(*structpb.Value_ListValue)
	if !ok {
		return nil, false
	}
	for _, pair := range list.ListValue.GetValues() {
		if len(pair.GetListValue().GetValues()) != 2 {
			return nil, false
		}
	}
	return list.ListValue.GetValues(), true
}

func (e *encoder) pairs(pairs []*structpb.Value, h holder) error {
	if err := e.low.EncodeMapLen(len(pairs)); err != nil {
		return err
	}
	for i, pair := range pairs {
		if err := e.elements(pair.GetListValue().GetValues(), h); err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}
