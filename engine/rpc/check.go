package rpc

import (
	"math"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

const (
	structName    protoreflect.FullName = "google.protobuf.Struct"
	valueName     protoreflect.FullName = "google.protobuf.Value"
	listName      protoreflect.FullName = "google.protobuf.ListValue"
	timestampName protoreflect.FullName = "google.protobuf.Timestamp"
	durationName  protoreflect.FullName = "google.protobuf.Duration"
)

// maxJSONDepth is the maximum nesting of objects and lists in a JSON value. Deeper values would
// fail in the database, together with other requests of the same transaction.
const maxJSONDepth = process.MaxJSONDepth

// maxTimestamp is the first second of the year 10000.
const maxTimestamp = 253402300800

// contentCheck checks one type of message, including nested messages, for content that PostgreSQL
// or the JSON encoder rejects and that protovalidate rules cannot express: NUL characters, times
// outside 1970–9999, negative or too long durations, and values that JSON cannot express. It is
// created once per type and reads only the fields that can be invalid, never fields of bytes, such
// as the payloads of processes.
type contentCheck struct {
	fields []fieldCheck
}

type fieldCheck struct {
	fd    protoreflect.FieldDescriptor
	value valueCheck // for the field, each element of a list, or each value of a map
}

// valueCheck checks one value. It is nil if there is nothing to check.
type valueCheck func(v protoreflect.Value) *process.InvalidError

// contentChecks creates the checks of message types, once per type.
type contentChecks map[protoreflect.FullName]*contentCheck

func (all contentChecks) of(md protoreflect.MessageDescriptor) *contentCheck {
	if c, ok := all[md.FullName()]; ok {
		return c
	}
	c := &contentCheck{}
	all[md.FullName()] = c // set before its fields, because a type may contain itself
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if rules, err := protovalidate.ResolveFieldRules(fd); err == nil &&
			rules.GetRepeated().GetItems().GetIgnore() == validate.Ignore_IGNORE_ALWAYS {
			continue // its handler checks each element
		}
		kind := fd
		if fd.IsMap() {
			kind = fd.MapValue()
		}
		value := all.valueCheck(kind)
		if value != nil || fd.IsMap() && fd.MapKey().Kind() == protoreflect.StringKind {
			c.fields = append(c.fields, fieldCheck{fd, value})
		}
	}
	return c
}

func (all contentChecks) valueCheck(fd protoreflect.FieldDescriptor) valueCheck {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return checkString
	case protoreflect.MessageKind:
	default:
		return nil
	}
	switch fd.Message().FullName() {
	case timestampName:
		return checkTimestamp
	case durationName:
		if mustBePositive(fd) {
			return checkPositiveDuration
		}
		return checkDuration
	case structName:
		return func(v protoreflect.Value) *process.InvalidError {
			return checkStruct(v.Message().Interface().(*structpb.Struct), 1)
		}
	case valueName:
		return func(v protoreflect.Value) *process.InvalidError {
			return checkJSONValue(v.Message().Interface().(*structpb.Value), 0)
		}
	case listName:
		return func(v protoreflect.Value) *process.InvalidError {
			return checkJSONList(v.Message().Interface().(*structpb.ListValue), 1)
		}
	}
	c := all.of(fd.Message())
	return func(v protoreflect.Value) *process.InvalidError { return c.check(v.Message()) }
}

// check returns the first fault of a message, with the path of its field.
func (c *contentCheck) check(m protoreflect.Message) *process.InvalidError {
	for i := range c.fields {
		f := &c.fields[i]
		if !m.Has(f.fd) {
			continue
		}
		v := m.Get(f.fd)
		var fault *process.InvalidError
		switch {
		case f.fd.IsList():
			fault = f.checkList(v.List())
		case f.fd.IsMap():
			fault = f.checkMap(v.Map())
		default:
			fault = f.value(v)
		}
		if fault != nil {
			return within(string(f.fd.Name()), fault)
		}
	}
	return nil
}

func (f *fieldCheck) checkList(list protoreflect.List) *process.InvalidError {
	for i := range list.Len() {
		if fault := f.value(list.Get(i)); fault != nil {
			return within("["+strconv.Itoa(i)+"]", fault)
		}
	}
	return nil
}

func (f *fieldCheck) checkMap(m protoreflect.Map) (fault *process.InvalidError) {
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if s, ok := k.Interface().(string); ok {
			fault = checkText(s)
		}
		if fault == nil && f.value != nil {
			fault = f.value(v)
		}
		if fault != nil {
			fault = within("["+strconv.Quote(k.String())+"]", fault)
		}
		return fault == nil
	})
	return fault
}

// within prepends a name, or an index in brackets, to the path of a fault.
func within(name string, fault *process.InvalidError) *process.InvalidError {
	switch {
	case fault.Field == "":
		fault.Field = name
	case fault.Field[0] == '[':
		fault.Field = name + fault.Field
	default:
		fault.Field = name + "." + fault.Field
	}
	return fault
}

func fault(message string) *process.InvalidError { return &process.InvalidError{Message: message} }

func checkString(v protoreflect.Value) *process.InvalidError { return checkText(v.String()) }

func checkText(s string) *process.InvalidError {
	if strings.IndexByte(s, 0) >= 0 {
		return fault("must not contain the character NUL (U+0000)")
	}
	return nil
}

func checkTimestamp(v protoreflect.Value) *process.InvalidError {
	t := v.Message().Interface().(*timestamppb.Timestamp)
	if t.GetSeconds() < 0 || t.GetSeconds() >= maxTimestamp || t.GetNanos() < 0 || t.GetNanos() > 999_999_999 {
		return fault("must be a time from 1970-01-01T00:00:00Z up to the end of the year 9999")
	}
	return nil
}

func checkDuration(v protoreflect.Value) *process.InvalidError {
	d := v.Message().Interface().(*durationpb.Duration)
	if d.CheckValid() != nil || d.GetSeconds() < 0 || d.GetNanos() < 0 || d.AsDuration() > process.MaxDuration {
		return fault("must be a duration from 0s up to 100 years (3153600000s)")
	}
	return nil
}

// checkPositiveDuration is checkDuration for a duration that must not be 0. The rules or the engine
// reject 0.
func checkPositiveDuration(v protoreflect.Value) *process.InvalidError {
	switch d := v.Message().Interface().(*durationpb.Duration); {
	case checkDuration(v) == nil:
		return nil
	case d.CheckValid() == nil && d.AsDuration() < 0:
		return fault(durations.Positive)
	}
	return fault("must be a duration of more than 0s, up to 100 years (3153600000s)")
}

// positiveDurations are the durations that may be 0 according to the rules in the proto files, but
// not in the engine. Older templates and crons may contain 0, which means the default.
var positiveDurations = map[protoreflect.FullName]bool{
	"progressor.v1.JobOptions.start_deadline":     true,
	"progressor.v1.JobOptions.timeout":            true,
	"progressor.v1.JobOptions.lease_duration":     true,
	"progressor.v1.JobOptions.heartbeat_interval": true,
}

// mustBePositive reports whether a duration must not be 0.
func mustBePositive(fd protoreflect.FieldDescriptor) bool {
	rules, err := protovalidate.ResolveFieldRules(fd)
	if err != nil {
		return false
	}
	_, positive := rules.GetDuration().GetGreaterThan().(*validate.DurationRules_Gt)
	return positive || positiveDurations[fd.FullName()]
}

// checkStruct checks an object. depth counts it and the objects and lists around it.
func checkStruct(s *structpb.Struct, depth int) *process.InvalidError {
	if depth > maxJSONDepth {
		return tooDeep()
	}
	for key, v := range s.GetFields() {
		f := checkText(key)
		if f == nil {
			f = checkJSONValue(v, depth)
		}
		if f != nil {
			return within(digits.Key("", key), f)
		}
	}
	return nil
}

func checkJSONList(list *structpb.ListValue, depth int) *process.InvalidError {
	if depth > maxJSONDepth {
		return tooDeep()
	}
	for i, v := range list.GetValues() {
		if f := checkJSONValue(v, depth); f != nil {
			return within("["+strconv.Itoa(i)+"]", f)
		}
	}
	return nil
}

// checkJSONValue checks a value. depth counts the objects and lists around it.
func checkJSONValue(v *structpb.Value, depth int) *process.InvalidError {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue, *structpb.Value_BoolValue:
		return nil
	case *structpb.Value_NumberValue:
		if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
			return fault("must be a finite number: JSON has no NaN and no infinity")
		}
		return nil
	case *structpb.Value_StringValue:
		return checkText(kind.StringValue)
	case *structpb.Value_StructValue:
		return checkStruct(kind.StructValue, depth+1)
	case *structpb.Value_ListValue:
		return checkJSONList(kind.ListValue, depth+1)
	}
	return fault("must be a JSON value: none of null, number, string, bool, object and list is set")
}

func tooDeep() *process.InvalidError {
	return &process.InvalidError{
		Message: "must not be nested deeper than " + strconv.Itoa(maxJSONDepth) + " objects and lists", TooLarge: true}
}
