package msgpack

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// message decodes a message of any type.
func (d *decoder) message(m protoreflect.Message, depth int) error {
	if depth > maxDepth {
		return fault("nested deeper than %d maps and arrays", maxDepth)
	}
	if known, err := d.readKnown(m.Interface(), depth); known {
		return err
	}
	n, err := d.mapLen("a map of fields")
	if err != nil {
		return err
	}
	var seen []protoreflect.FieldNumber
	for range n {
		name, err := d.text("the name of a field, a str")
		if err != nil {
			return err
		}
		fields := m.Descriptor().Fields()
		fd := fields.ByJSONName(name)
		if fd == nil {
			fd = fields.ByTextName(name)
		}
		if fd == nil {
			return within(keyStep(name), fault("unknown field: %s", fieldNames(m.Descriptor())))
		}
		if slices.Contains(seen, fd.Number()) {
			return within(fd.TextName(), fault("must not be given twice"))
		}
		seen = append(seen, fd.Number())
		if err := d.field(m, fd, depth); err != nil {
			return within(fd.TextName(), err)
		}
	}
	return nil
}

// fieldNames lists the fields of a message for an error.
func fieldNames(md protoreflect.MessageDescriptor) string {
	fields := md.Fields()
	if fields.Len() == 0 {
		return "this message has none"
	}
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = fields.Get(i).JSONName()
	}
	return "use one of " + strings.Join(names, ", ")
}

// field decodes the value of a field. nil means absent, except for a Value, where it is a value.
func (d *decoder) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) error {
	if err := d.element(); err != nil {
		return err
	}
	next, err := d.next()
	if err != nil {
		return err
	}
	isValue := fd.Message() != nil && fd.Message().FullName() == valueName && !fd.IsList()
	if next == kindNil && !isValue {
		return short(d.low.DecodeNil())
	}
	if choice := fd.ContainingOneof(); choice != nil && m.WhichOneof(choice) != nil {
		return fault("must not be set together with %s", m.WhichOneof(choice).TextName())
	}
	switch {
	case fd.IsList():
		return d.list(m.Mutable(fd).List(), fd, depth)
	case fd.IsMap():
		return d.entries(m.Mutable(fd).Map(), fd, depth)
	case fd.Message() != nil:
		return d.message(m.Mutable(fd).Message(), depth+1)
	}
	v, err := d.scalar(fd)
	if err == nil {
		m.Set(fd, v)
	}
	return err
}

func (d *decoder) list(list protoreflect.List, fd protoreflect.FieldDescriptor, depth int) error {
	n, err := d.arrayLen("an array")
	if err != nil {
		return err
	}
	for i := range n {
		if err := d.element(); err != nil {
			return err
		}
		if fd.Message() != nil {
			err = d.message(list.AppendMutable().Message(), depth+2)
		} else {
			var v protoreflect.Value
			if v, err = d.scalar(fd); err == nil {
				list.Append(v)
			}
		}
		if err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}

func (d *decoder) entries(entries protoreflect.Map, fd protoreflect.FieldDescriptor, depth int) error {
	n, err := d.mapLen("a map")
	if err != nil {
		return err
	}
	for range n {
		if err := d.element(); err != nil {
			return err
		}
		k, err := d.scalar(fd.MapKey())
		if err != nil {
			return err
		}
		key, step := k.MapKey(), keyStep(k.String())
		if entries.Has(key) {
			return within(step, fault("must not be given twice"))
		}
		if fd.MapValue().Message() != nil {
			err = d.message(entries.Mutable(key).Message(), depth+2)
		} else {
			var v protoreflect.Value
			if v, err = d.scalar(fd.MapValue()); err == nil {
				entries.Set(key, v)
			}
		}
		if err != nil {
			return within(step, err)
		}
	}
	return nil
}

func (d *decoder) scalar(fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch kind := fd.Kind(); kind {
	case protoreflect.BoolKind:
		v, err := d.bool()
		return protoreflect.ValueOfBool(v), err
	case protoreflect.StringKind:
		v, err := d.text("a str")
		return protoreflect.ValueOfString(v), err
	case protoreflect.BytesKind:
		v, err := d.bytes()
		return protoreflect.ValueOfBytes(v), err
	case protoreflect.EnumKind:
		return d.enum(fd.Enum())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return d.double(kind)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		v, err := d.whole(math.MinInt32, math.MaxInt32)
		return protoreflect.ValueOfInt32(int32(v)), err
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		v, err := d.whole(0, math.MaxUint32)
		return protoreflect.ValueOfUint32(uint32(v)), err
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		v, err := d.whole(math.MinInt64, math.MaxInt64)
		return protoreflect.ValueOfInt64(v), err
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		v, err := d.number("an int from 0 up to 2^64-1")
		if err == nil && v.negative {
			err = fault("must be an int from 0 up to 2^64-1, not %s", v)
		}
		return protoreflect.ValueOfUint64(v.bits), err
	}
	return protoreflect.Value{}, fault("fields of kind %s are not supported in MessagePack", fd.Kind())
}

// whole decodes an int between two limits.
func (d *decoder) whole(least, most int64) (int64, error) {
	what := fmt.Sprintf("an int from %d up to %d", least, most)
	n, err := d.number(what)
	if err != nil {
		return 0, err
	}
	v, ok := n.int64()
	if !ok || v < least || v > most {
		return 0, fault("must be %s, not %s", what, n)
	}
	return v, nil
}

// number decodes an int, or what other languages send instead: a float without a fraction
// (JavaScript), or a str (from JSON, where 64-bit integers are strings).
func (d *decoder) number(what string) (integer, error) {
	next, err := d.next()
	if err != nil {
		return integer{}, err
	}
	switch next {
	case kindInt:
		return d.int()
	case kindFloat:
		v, err := d.float()
		if err != nil {
			return integer{}, err
		}
		if v != math.Trunc(v) || math.Abs(v) > maxExact {
			return integer{}, fault("must be %s, not %v", what, v)
		}
		return integer{v < 0, uint64(int64(v))}, nil
	case kindStr:
		s, err := d.text(what)
		if err != nil {
			return integer{}, err
		}
		if n, ok := parseInteger(s); ok {
			return n, nil
		}
		return integer{}, fault("must be %s, not the str %.40q", what, s)
	}
	return integer{}, fault("must be %s, not %s", what, next)
}

// parseInteger parses a canonical integer: no sign except -, no leading zeros.
func parseInteger(s string) (integer, bool) {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return integer{v < 0, uint64(v)}, strconv.FormatInt(v, 10) == s
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return integer{false, v}, err == nil && strconv.FormatUint(v, 10) == s
}

func (d *decoder) double(kind protoreflect.Kind) (protoreflect.Value, error) {
	v, err := d.anyNumber("a number")
	if kind == protoreflect.FloatKind {
		if err == nil && float64(float32(v)) != v && !math.IsNaN(v) {
			err = fault("must be a float of 32 bits, not %v", v)
		}
		return protoreflect.ValueOfFloat32(float32(v)), err
	}
	return protoreflect.ValueOfFloat64(v), err
}

// anyNumber decodes an int or a float as a double, if the double holds it exactly.
func (d *decoder) anyNumber(what string) (float64, error) {
	next, err := d.next()
	if err != nil {
		return 0, err
	}
	switch next {
	case kindFloat:
		return d.float()
	case kindInt:
		n, err := d.int()
		if err != nil {
			return 0, err
		}
		v, ok := n.exact()
		if !ok {
			return 0, fault("the integer %s is beyond 2^53 and would lose digits", n)
		}
		return v, nil
	}
	return 0, fault("must be %s, not %s", what, next)
}

func (d *decoder) enum(ed protoreflect.EnumDescriptor) (protoreflect.Value, error) {
	next, err := d.next()
	if err != nil {
		return protoreflect.Value{}, err
	}
	if next == kindInt { // validation rejects unknown numbers, as in the other encodings
		v, err := d.whole(math.MinInt32, math.MaxInt32)
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v)), err
	}
	name, err := d.text("the name of an enum's value, a str")
	if err != nil {
		return protoreflect.Value{}, err
	}
	if value := ed.Values().ByName(protoreflect.Name(name)); value != nil {
		return protoreflect.ValueOfEnum(value.Number()), nil
	}
	names := make([]string, ed.Values().Len())
	for i := range names {
		names[i] = string(ed.Values().Get(i).Name())
	}
	return protoreflect.Value{}, fault("must be one of %s, not %.100q", strings.Join(names, ", "), name)
}
