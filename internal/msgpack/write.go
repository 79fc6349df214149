package msgpack

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	low "github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// encoder encodes a message.
type encoder struct{ low *low.Encoder }

func (e *encoder) message(m protoreflect.Message) error {
	if known, err := e.writeKnown(m.Interface()); known {
		return err
	}
	fields := m.Descriptor().Fields()
	n := 0
	for i := range fields.Len() {
		if m.Has(fields.Get(i)) {
			n++
		}
	}
	if err := e.low.EncodeMapLen(n); err != nil {
		return err
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		if err := e.low.EncodeString(fd.JSONName()); err != nil {
			return err
		}
		if err := e.field(fd, m.Get(fd)); err != nil {
			return within(fd.TextName(), err)
		}
	}
	return nil
}

func (e *encoder) field(fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case fd.IsList():
		return e.list(fd, v.List())
	case fd.IsMap():
		return e.entries(fd, v.Map())
	}
	return e.single(fd, v)
}

func (e *encoder) list(fd protoreflect.FieldDescriptor, list protoreflect.List) error {
	if err := e.low.EncodeArrayLen(list.Len()); err != nil {
		return err
	}
	for i := range list.Len() {
		if err := e.single(fd, list.Get(i)); err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}

// entries encodes a map with its keys in order.
func (e *encoder) entries(fd protoreflect.FieldDescriptor, entries protoreflect.Map) error {
	if err := e.low.EncodeMapLen(entries.Len()); err != nil {
		return err
	}
	keys := make([]protoreflect.MapKey, 0, entries.Len())
	entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		if err := e.single(fd.MapKey(), key.Value()); err != nil {
			return err
		}
		if err := e.single(fd.MapValue(), entries.Get(key)); err != nil {
			return within(keyStep(key.String()), err)
		}
	}
	return nil
}

func (e *encoder) single(fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return e.message(v.Message())
	case protoreflect.EnumKind:
		if value := fd.Enum().Values().ByNumber(v.Enum()); value != nil {
			return e.low.EncodeString(string(value.Name()))
		}
		return e.low.EncodeInt(int64(v.Enum()))
	case protoreflect.BoolKind:
		return e.low.EncodeBool(v.Bool())
	case protoreflect.StringKind:
		return e.text(v.String())
	case protoreflect.BytesKind:
		return e.bytes(v.Bytes())
	case protoreflect.FloatKind:
		return e.low.EncodeFloat32(float32(v.Float()))
	case protoreflect.DoubleKind:
		return e.low.EncodeFloat64(v.Float())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return e.low.EncodeUint(v.Uint())
	}
	return e.low.EncodeInt(v.Int())
}

func (e *encoder) text(s string) error {
	if !utf8.ValidString(s) {
		return fault("must be valid UTF-8")
	}
	return e.low.EncodeString(s)
}

// bytes encodes a bin. The library would encode a nil slice as nil.
func (e *encoder) bytes(b []byte) error {
	if err := e.low.EncodeBytesLen(len(b)); err != nil {
		return err
	}
	_, err := e.low.Writer().Write(b)
	return err
}

func (e *encoder) ext(extType int8, b []byte) error {
	if err := e.low.EncodeExtHeader(extType, len(b)); err != nil {
		return err
	}
	_, err := e.low.Writer().Write(b)
	return err
}

// number encodes a number of JSON: an int if it is a whole number up to 2^53 and not -0, otherwise
// a float.
func (e *encoder) number(v float64) error {
	if v != math.Trunc(v) || math.Abs(v) > maxExact || v == 0 && math.Signbit(v) { // NaN is not equal to itself
		return e.low.EncodeFloat64(v)
	}
	return e.low.EncodeInt(int64(v))
}
