package rpc

import (
	"errors"
	"fmt"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/warm"
	"github.com/progressor-engine/progressor/process"
)

// validation checks requests against the rules in the proto files and with contentChecks. It is
// created once for all requests of the served services, so that no client waits for the compilation
// of rules.
type validation struct {
	rules  protovalidate.Validator
	checks contentChecks
	// deep runs the rules on goroutines with large stacks, because the rules need 5 KiB of stack.
	// If they ran on the goroutine of the connection, 10,000 waiting clients would have stacks of
	// 16 KiB instead of 8 KiB.
	deep *warm.Goroutines
}

func newValidation(services ...string) (*validation, error) {
	var requests []protoreflect.MessageDescriptor
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, fmt.Errorf("validation of %s: %w", name, err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			requests = append(requests, methods.Get(i).Input())
		}
	}
	return validationOf(requests...)
}

// validationOf returns a validation for messages of these types.
func validationOf(requests ...protoreflect.MessageDescriptor) (*validation, error) {
	checks := contentChecks{}
	for _, request := range requests {
		checks.of(request)
	}
	rules, err := protovalidate.New(protovalidate.WithMessageDescriptors(requests...), protovalidate.WithDisableLazy(),
		// Report only the first violation, because a message of 16 MiB could have millions.
		protovalidate.WithFailFast())
	if err != nil {
		return nil, fmt.Errorf("validation: %w", err)
	}
	return &validation{rules, checks, warm.New()}, nil
}

// check returns a *process.InvalidError if the request violates a rule.
func (v *validation) check(request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	r := m.ProtoReflect()
	if c := v.checks[r.Descriptor().FullName()]; c != nil {
		if fault := c.check(r); fault != nil {
			return fault
		}
	}
	return requestError(m, v.deep.Wait(func() error { return v.rules.Validate(m) }))
}

// CheckRules checks a request against the rules in the proto files, outside a server. A violation
// is a *process.InvalidError.
func CheckRules(request proto.Message) error {
	return requestError(request, protovalidate.Validate(request))
}

// requestError converts an error of the validator to an error of the engine, and nil to nil.
func requestError(request proto.Message, err error) error {
	if err == nil {
		return nil
	}
	d := request.ProtoReflect().Descriptor()
	if violated, ok := errors.AsType[*protovalidate.ValidationError](err); ok && len(violated.Violations) > 0 {
		return invalidOf(d, violated.Violations[0])
	}
	return fmt.Errorf("validate %s: %w", d.FullName(), err)
}

// invalidOf converts a violation of a rule.
func invalidOf(request protoreflect.MessageDescriptor, violation *protovalidate.Violation) *process.InvalidError {
	rule := violation.Proto.GetRuleId()
	message := violation.Proto.GetMessage()
	switch {
	case rule == "required" && violation.FieldDescriptor == nil:
		message = "is required: set one of " + choices(request, violation)
	case rule == "required" || isEmpty(violation.FieldValue):
		message = "is required: it must not be empty"
	case isNotPositive(violation):
		message = durations.Positive
	case rule == "string.pattern" && patternWords[violation.RuleValue.String()] != "":
		message = patternWords[violation.RuleValue.String()]
	case message == "":
		message = "violates the rule " + rule
	case rule == "enum.defined_only" && violation.FieldDescriptor != nil && violation.FieldDescriptor.Enum() != nil:
		message = "must be one of " + enumNames(violation.FieldDescriptor.Enum())
	case rule == "enum.in" || rule == "enum.not_in":
		// The message of the rule contains numbers, so it is replaced by names.
		message = "must be one of " + listedNames(violation, rule == "enum.in")
	}
	return &process.InvalidError{
		Field:    protovalidate.FieldPathString(violation.Proto.GetField()),
		Message:  message,
		TooLarge: isLimit(rule),
	}
}

// isNotPositive reports whether a violation is a duration that must be positive but is not.
func isNotPositive(violation *protovalidate.Violation) bool {
	field := violation.FieldDescriptor
	if field == nil || field.Kind() != protoreflect.MessageKind || field.IsList() || field.IsMap() {
		return false
	}
	d, ok := violation.FieldValue.Message().Interface().(*durationpb.Duration)
	return ok && d.AsDuration() <= 0 && mustBePositive(field)
}

// patternWords describe the patterns in the proto files in words.
var patternWords = map[string]string{
	"^([a-zA-Z0-9._/-]{0,127}[*]|[a-zA-Z0-9._/-]{1,128})$": "must be the name of a namespace, or a prefix and *, " +
		"such as shop/*",
	"^[a-zA-Z0-9._-]+$":    "must contain only a-z, A-Z, 0-9, ., _ and -, such as audit",
	"^[a-zA-Z0-9._/-]+$":   "must contain only a-z, A-Z, 0-9, ., _, / and -, such as shop/orders",
	"^https?://":           "must begin with http:// or https://, such as http://127.0.0.1:9000",
	"^[a-z0-9]{1,32}$":     "must be 1 to 32 characters of a-z and 0-9, such as k3v9q2m1x7ab",
	"^[a-z0-9_]{1,64}$":    "must be 1 to 64 characters of a-z, 0-9 and _, such as charge_card",
	"^[a-z0-9_.-]{1,128}$": "must be 1 to 128 characters of a-z, 0-9, _, . and -, such as order.ship",
}

// choices returns the fields of the oneof that a violation refers to.
func choices(request protoreflect.MessageDescriptor, violation *protovalidate.Violation) string {
	path := violation.Proto.GetField().GetElements()
	for _, e := range path[:max(len(path)-1, 0)] {
		field := request.Fields().ByName(protoreflect.Name(e.GetFieldName()))
		if field != nil && field.IsMap() {
			field = field.MapValue()
		}
		if field == nil || field.Message() == nil {
			return "its choices"
		}
		request = field.Message()
	}
	if len(path) == 0 || request.Oneofs().ByName(protoreflect.Name(path[len(path)-1].GetFieldName())) == nil {
		return "its choices"
	}
	fields := request.Oneofs().ByName(protoreflect.Name(path[len(path)-1].GetFieldName())).Fields()
	names := make([]string, 0, fields.Len())
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// isEmpty reports whether an invalid value is the empty string.
func isEmpty(v protoreflect.Value) bool {
	s, ok := v.Interface().(string)
	return ok && s == ""
}

// isLimit reports whether a rule limits a size in bytes, characters or elements.
func isLimit(rule string) bool {
	_, name, _ := strings.Cut(rule, ".")
	switch name {
	case "max_len", "max_bytes", "max_items", "max_pairs":
		return true
	}
	return false
}

// listedNames returns the names of the enum values that a rule lists, or of all others if listed is
// false.
func listedNames(violation *protovalidate.Violation, listed bool) string {
	numbers, values := violation.RuleValue.List(), violation.FieldDescriptor.Enum().Values()
	var names []string
	for i := range values.Len() {
		in := false
		for j := range numbers.Len() {
			in = in || numbers.Get(j).Int() == int64(values.Get(i).Number())
		}
		if in == listed {
			names = append(names, string(values.Get(i).Name()))
		}
	}
	return strings.Join(names, ", ")
}

func enumNames(enum protoreflect.EnumDescriptor) string {
	values := enum.Values()
	names := make([]string, 0, values.Len())
	for i := range values.Len() {
		names = append(names, string(values.Get(i).Name()))
	}
	return strings.Join(names, ", ")
}
