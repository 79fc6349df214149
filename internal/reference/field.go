package main

import (
	"fmt"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// known contains the JSON types of well-known messages.
var known = map[protoreflect.FullName]string{
	"google.protobuf.Duration": "duration", "google.protobuf.Timestamp": "time",
	"google.protobuf.Struct": "JSON object", "google.protobuf.Value": "any JSON",
	"google.protobuf.FieldMask": "names of fields", "google.protobuf.Empty": "{}",
}

func (p *page) typeOf(field *protogen.Field) string {
	d := field.Desc
	name := p.single(field)
	switch {
	case d.IsMap():
		return "map of " + d.MapKey().Kind().String() + " to " + p.single(field.Message.Fields[1])
	case d.IsList():
		name = "list of " + name
	case d.HasOptionalKeyword():
		name += ", optional"
	}
	if oneof := d.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
		name += ", one of `" + string(oneof.Name()) + "`"
	}
	return name
}

// single returns the type of one value of a field.
func (p *page) single(field *protogen.Field) string {
	switch {
	case field.Enum != nil:
		return link(title(field.Enum.Desc), title(field.Enum.Desc))
	case field.Message == nil || field.Desc.IsMap():
		return field.Desc.Kind().String()
	}
	full := field.Message.Desc.FullName()
	if name := known[full]; name != "" {
		return name
	}
	if heading := p.services[full]; heading != "" {
		return link(title(field.Message.Desc), heading)
	}
	return link(title(field.Message.Desc), title(field.Message.Desc))
}

// rulesOf returns the validation rules of a field as text.
func rulesOf(field *protogen.Field) []string {
	rules, ok := proto.GetExtension(field.Desc.Options(), validate.E_Field).(*validate.FieldRules)
	if !ok || rules == nil {
		return nil
	}
	texts := formatRules(rules)
	if rules.GetRequired() {
		texts = append([]string{"required"}, texts...)
	}
	if rules.GetIgnore() == validate.Ignore_IGNORE_IF_ZERO_VALUE && len(texts) > 0 {
		texts[0] = "empty, or " + texts[0]
	}
	return texts
}

func formatRules(rules *validate.FieldRules) []string {
	switch r := rules.GetType().(type) {
	case *validate.FieldRules_String_:
		texts := withUnit(bounds(r.String_.MinBytes, r.String_.MaxBytes), "bytes")
		texts = append(texts, withUnit(bounds(r.String_.MinLen, r.String_.MaxLen), "characters")...)
		if r.String_.Pattern != nil {
			texts = append(texts, "`"+r.String_.GetPattern()+"`")
		}
		return texts
	case *validate.FieldRules_Bytes:
		return withUnit(bounds(r.Bytes.MinLen, r.Bytes.MaxLen), "bytes")
	case *validate.FieldRules_Repeated:
		texts := withUnit(bounds(r.Repeated.MinItems, r.Repeated.MaxItems), "items")
		if r.Repeated.GetItems() != nil {
			for _, each := range formatRules(r.Repeated.GetItems()) {
				texts = append(texts, "each "+each)
			}
		}
		return texts
	case *validate.FieldRules_Map:
		return withUnit(bounds(r.Map.MinPairs, r.Map.MaxPairs), "pairs")
	case *validate.FieldRules_Int32:
		return withUnit(limits(r.Int32), "")
	case *validate.FieldRules_Int64:
		return withUnit(limits(r.Int64), "")
	case *validate.FieldRules_Uint32:
		return withUnit(limits(r.Uint32), "")
	case *validate.FieldRules_Double:
		return withUnit(limits(r.Double), "")
	case *validate.FieldRules_Duration:
		return withUnit(limits(r.Duration), "")
	}
	return nil // enums and times have the same rules everywhere
}

// withUnit appends the unit to a formatted range. It returns nil if the range is empty.
func withUnit(formatted, unit string) []string {
	if formatted == "" {
		return nil
	}
	if unit == "bytes" && strings.HasSuffix(formatted, "iB") {
		unit = ""
	}
	return []string{strings.TrimSpace(formatted + " " + unit)}
}

func bounds(least, most *uint64) string {
	switch {
	case least == nil && most == nil:
		return ""
	case most == nil:
		return "at least " + grouped(*least)
	case least == nil || *least == 0:
		return "at most " + grouped(*most)
	case *least == *most:
		return grouped(*least)
	}
	return grouped(*least) + "–" + grouped(*most)
}

// limits formats the bounds of a rule for numbers or durations. Their fields have the same names.
func limits(rules proto.Message) string {
	m := rules.ProtoReflect()
	get := func(names ...protoreflect.Name) (string, bool) {
		for _, name := range names {
			if fd := m.Descriptor().Fields().ByName(name); fd != nil && m.Has(fd) {
				value := formatValue(m.Get(fd))
				if name == "gt" || name == "lt" {
					return value + " (excluded)", true
				}
				return value, true
			}
		}
		return "", false
	}
	least, hasLeast := get("gte", "gt")
	most, hasMost := get("lte", "lt")
	switch {
	case hasLeast && hasMost:
		return least + "–" + most
	case hasLeast:
		return "at least " + least
	case hasMost:
		return "at most " + most
	}
	return ""
}

func formatValue(v protoreflect.Value) string {
	switch value := v.Interface().(type) {
	case protoreflect.Message:
		d, ok := value.Interface().(*durationpb.Duration)
		if !ok {
			return ""
		}
		if d.GetSeconds() > 0 && d.GetSeconds()%(365*24*3600) == 0 {
			return fmt.Sprintf("%d years", d.GetSeconds()/(365*24*3600))
		}
		return d.AsDuration().String()
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case int32:
		return signed(int64(value))
	case int64:
		return signed(value)
	case uint32:
		return grouped(uint64(value))
	}
	return v.String()
}

func signed(n int64) string {
	if n < 0 {
		return "-" + grouped(uint64(-n))
	}
	return grouped(uint64(n))
}

// grouped formats a number for people: 1 MiB, 10,000.
func grouped(n uint64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 4<<10 && n%(1<<10) == 0 && n%1000 != 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
