package flow

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Problem is an error in a template, a target or a value. Its message describes what is valid.
type Problem struct {
	Path    string // such as steps[2].depends_on[0]; "" for the whole message
	Message string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// maxProblems limits the number of problems in an answer. A template of 16 MiB could have millions
// of them.
const maxProblems = 1000

// problems collects problems.
type problems struct {
	list []Problem
	more int
}

func (p *problems) add(path, format string, args ...any) {
	if len(p.list) == maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// all returns the problems in the order of their steps. Problems that belong to no step come first.
func (p *problems) all() []Problem {
	slices.SortStableFunc(p.list, func(a, b Problem) int { return stepOf(a.Path) - stepOf(b.Path) })
	if p.more > 0 {
		return append(p.list, Problem{Message: fmt.Sprintf("and %d more problems", p.more)})
	}
	return p.list
}

// stepOf returns the index of the step that a path belongs to, or -1 if it belongs to none.
func stepOf(path string) int {
	rest, ok := strings.CutPrefix(path, "steps[")
	if !ok {
		return -1
	}
	number, _, _ := strings.Cut(rest, "]")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

// rules validates messages against the rules in the proto files. The API checks the same rules, but
// messages from a file or a configuration do not pass through it.
var rules = sync.OnceValues(func() (protovalidate.Validator, error) {
	return protovalidate.New(protovalidate.WithMessages(&progressorv1.Template{}, &progressorv1.StartRunTarget{}))
})

// contract checks a message against the rules in the proto files.
func (p *problems) contract(m proto.Message) {
	validator, err := rules()
	if err == nil {
		err = validator.Validate(m)
	}
	if err == nil {
		return
	}
	violated, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		p.add("", "the rules of the API cannot be checked: %s", err)
		return
	}
	for _, v := range violated.Violations {
		p.add(protovalidate.FieldPathString(v.Proto.GetField()), "%s", violation(v))
	}
}

// named maps the patterns of names to descriptions for messages.
var named = map[string]string{
	"^[a-z0-9_.-]{1,128}$": "must be 1 to 128 characters of a-z, 0-9, _, . and -",
	"^[a-z0-9_]{1,64}$":    "must be 1 to 64 characters of a-z, 0-9 and _",
	"^[a-zA-Z0-9._/-]+$":   "must be 1 to 128 characters of a-z, A-Z, 0-9, ., _, / and -",
}

func violation(v *protovalidate.Violation) string {
	message := v.Proto.GetMessage()
	switch rule := v.Proto.GetRuleId(); rule {
	case "string.pattern":
		if words := named[v.RuleValue.String()]; words != "" {
			message = words
		}
		if text := v.FieldValue.String(); text != "" {
			return fmt.Sprintf("%.100q %s", text, message)
		}
		return "is required: it " + message
	case "string.min_bytes", "repeated.min_items":
		return "is required: it must not be empty"
	case "required":
		if v.FieldDescriptor == nil {
			return "is required: set one of " + choices(v)
		}
		return "is required"
	case "duration.gte_lte":
		d, ok := v.FieldValue.Message().Interface().(*durationpb.Duration)
		if ok && d.AsDuration() < 0 && v.FieldDescriptor.FullName() == "progressor.v1.JobOptions.start_deadline" {
			return durations.Positive // 0 is also rejected
		}
	case "enum.defined_only":
		if v.FieldDescriptor != nil && v.FieldDescriptor.Enum() != nil {
			return fmt.Sprintf("must be one of %s (got %d)", strings.Join(enumNames(v.FieldDescriptor.Enum()), ", "),
				v.FieldValue.Enum())
		}
	}
	return message
}

// choices returns the fields of the required oneof of a step or a delay. It is used in the message
// for a oneof that is not set.
func choices(v *protovalidate.Violation) string {
	path := v.Proto.GetField().GetElements()
	messages := map[string]protoreflect.MessageDescriptor{
		"action": (&progressorv1.StepTemplate{}).ProtoReflect().Descriptor(),
		"until":  (&progressorv1.DelayAction{}).ProtoReflect().Descriptor(),
	}
	name := path[len(path)-1].GetFieldName()
	message := messages[name]
	if message == nil {
		return "its fields"
	}
	fields := message.Oneofs().ByName(protoreflect.Name(name)).Fields()
	var names []string
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

func enumNames(enum protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range enum.Values().Len() {
		names = append(names, string(enum.Values().Get(i).Name()))
	}
	return names
}
