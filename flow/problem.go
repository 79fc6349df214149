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

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Problem is one thing that is wrong, with what would be right.
type Problem struct {
	Path    string // as in steps[2].depends_on[0]; "" is the whole
	Message string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// maxProblems bounds an answer: a template of 16 MiB could have millions of them.
const maxProblems = 1000

// problems collects what is wrong.
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

// all are the problems in the order of the steps that they are of, what is of no step first.
func (p *problems) all() []Problem {
	slices.SortStableFunc(p.list, func(a, b Problem) int { return stepOf(a.Path) - stepOf(b.Path) })
	if p.more > 0 {
		return append(p.list, Problem{Message: fmt.Sprintf("and %d problems more", p.more)})
	}
	return p.list
}

// stepOf is the number of the step that a path is of, -1 where it is of none.
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

// rules are those of the contract, for what a file or a configuration says without going through the API.
var rules = sync.OnceValues(func() (protovalidate.Validator, error) {
	return protovalidate.New(protovalidate.WithMessages(&progressorv1.Template{}, &progressorv1.StartRunTarget{}))
})

// contract holds a message to the limits that its fields are annotated with.
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
		p.add("", "the rules of the contract cannot be checked: %s", err)
		return
	}
	for _, v := range violated.Violations {
		p.add(protovalidate.FieldPathString(v.Proto.GetField()), "%s", violation(v))
	}
}

// named are the patterns of names, in words.
var named = map[string]string{
	"^[a-z0-9_.-]{1,128}$": "must be 1 to 128 of a-z, 0-9, _, . and -",
	"^[a-z0-9_]{1,64}$":    "must be 1 to 64 of a-z, 0-9 and _",
	"^[a-zA-Z0-9._/-]+$":   "must be 1 to 128 of a-z, A-Z, 0-9, ., _, / and -",
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
	case "enum.defined_only":
		if v.FieldDescriptor != nil && v.FieldDescriptor.Enum() != nil {
			return fmt.Sprintf("%d is no value of it: must be one of %s", v.FieldValue.Enum(), strings.Join(enumNames(v.FieldDescriptor.Enum()), ", "))
		}
	}
	return message
}

// choices are the fields of the oneof of a step, or of a delay, of which none is set.
func choices(v *protovalidate.Violation) string {
	path := v.Proto.GetField().GetElements()
	messages := map[string]protoreflect.MessageDescriptor{
		"action": (&progressorv1.StepTemplate{}).ProtoReflect().Descriptor(),
		"until":  (&progressorv1.DelayAction{}).ProtoReflect().Descriptor(),
	}
	name := path[len(path)-1].GetFieldName()
	message := messages[name]
	if message == nil {
		return "its choices"
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
