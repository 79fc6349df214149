package flow

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Condition reports whether the condition of a step holds. It returns true for a step without a
// condition.
func (t *Template) Condition(s *Step, scope *Scope) (bool, error) {
	if s.condition == nil {
		return true, nil
	}
	result, err := s.condition.eval(t.variables(scope))
	if err != nil {
		return false, err
	}
	switch v := result.(type) {
	case types.Bool:
		return bool(v), nil
	case *structpb.Value:
		if b, ok := v.GetKind().(*structpb.Value_BoolValue); ok {
			return b.BoolValue, nil
		}
	}
	return false, s.condition.errorf("is %s; a condition must be true or false", typeOf(result))
}

// maxItems limits the total size of the items of a step, in bytes. It is the maximum size of a
// message.
const maxItems = process.MaxMessageBytes

// Items returns the items of a step with for_each, at most MaxItems.
func (t *Template) Items(s *Step, scope *Scope) ([]*structpb.Value, error) {
	result, err := s.items.eval(t.variables(scope))
	if err != nil {
		return nil, err
	}
	size := -1
	switch v := result.(type) {
	case *structpb.Value:
		if list, ok := v.GetKind().(*structpb.Value_ListValue); ok {
			size = len(list.ListValue.GetValues())
		}
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			size = int(n)
		}
	}
	switch {
	case size < 0:
		return nil, s.items.errorf("is %s; for_each needs a list", typeOf(result))
	case size > MaxItems:
		return nil, s.items.errorf("must have at most %d items (got %d)", MaxItems, size)
	}
	converted, err := (&conversion{most: maxItems}).value(result)
	if err != nil {
		return nil, s.items.errorf("%s", err)
	}
	return converted.GetListValue().GetValues(), nil
}

// HashItem returns a hash of the value of an item. It is the same on all nodes.
func HashItem(item *structpb.Value) int64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(canonical(item.AsInterface())) // cannot fail: the item came as JSON
	return int64(h.Sum64())
}

// Until returns the time at which the delay of a step ends. now is the start of the step.
func (t *Template) Until(s *Step, scope *Scope, now time.Time) (time.Time, error) {
	if s.until == nil {
		return now.Add(s.Source.GetDelay().GetDuration().AsDuration()), nil
	}
	result, err := s.until.eval(t.variables(scope))
	if err != nil {
		return time.Time{}, err
	}
	at, err := timestampOf(s.until, result)
	return timeOf(at), err
}

// Input returns the input of a step, or of the item in the scope.
func (t *Template) Input(s *Step, scope *Scope) (*structpb.Value, error) {
	switch {
	case s.input != nil:
		return s.input.eval(t, scope)
	case s.ForEach():
		return orNull(scope.Item), nil
	}
	return orNull(scope.Payload), nil
}

// Payload returns the payload of the run that a step starts.
func (t *Template) Payload(s *Step, scope *Scope) (*structpb.Value, error) {
	if s.runPayload == nil {
		return t.Input(s, scope)
	}
	return s.runPayload.eval(t, scope)
}

// Title returns the title of a wait.
func (t *Template) Title(s *Step, scope *Scope) (string, error) {
	return s.title.string(t.variables(scope))
}

// maxAssignees limits the assignees of a wait. The proto rules set the same limit for the template.
const maxAssignees = 1000

// Assignees returns the assignees of a wait. If there are none, anyone may answer. An expression
// may evaluate to a list of assignees.
func (t *Template) Assignees(s *Step, scope *Scope) ([]string, error) {
	var all []string
	for _, a := range s.assignees {
		names, err := a.assigned(t.variables(scope))
		if err != nil {
			return nil, err
		}
		// An empty list would let anyone answer.
		if len(names) == 0 {
			return nil, a.failed("is empty, which would let anyone answer")
		}
		for _, name := range names {
			if name == "" {
				return nil, a.failed("contains an empty name")
			}
		}
		if all = append(all, names...); len(all) > maxAssignees {
			return nil, a.failed("has more than 1000 assignees")
		}
	}
	return all, nil
}

func (v *value) failed(message string) error {
	text := v.root.constant.GetStringValue()
	if v.root.expression != nil {
		text = v.root.expression.text
	}
	return &ExpressionError{Path: v.path, Expression: text, Message: message}
}

func (v *value) assigned(vars variables) ([]string, error) {
	if v.root.expression == nil {
		text, err := v.string(vars)
		return []string{text}, err
	}
	result, err := v.root.expression.eval(vars)
	if err != nil {
		return nil, err
	}
	converted, err := (&conversion{most: process.MaxPayloadBytes}).value(result)
	if err != nil {
		return nil, v.root.expression.errorf("%s", err)
	}
	list, ok := converted.GetKind().(*structpb.Value_ListValue)
	if !ok {
		list = &structpb.Value_ListValue{ListValue: &structpb.ListValue{Values: []*structpb.Value{converted}}}
	}
	var names []string
	for _, item := range list.ListValue.GetValues() {
		name, ok := item.GetKind().(*structpb.Value_StringValue)
		if !ok {
			return nil, v.root.expression.errorf("contains %s; an assignee must be a string", kindOf(item))
		}
		names = append(names, name.StringValue)
	}
	return names, nil
}

// HasResult reports whether the template defines the result of a run. Otherwise, the result of a
// run is the result of the last step that succeeded.
func (t *Template) HasResult() bool { return t.result != nil }

// Result returns the result of a run that succeeded, as the template defines it.
func (t *Template) Result(scope *Scope) (*structpb.Value, error) {
	if t.result == nil {
		return null, nil
	}
	return t.result.eval(t, scope)
}

// The following methods apply the default values of the messages, so that they are defined in one
// place.

// MaxAttempts returns the number of attempts of a run, including the first.
func (t *Template) MaxAttempts() int32 { return max(t.Source.GetRetryPolicy().GetMaxAttempts(), 1) }

// Repeatable reports whether a run may be started again after it succeeded.
func (t *Template) Repeatable() bool { return isTrue(t.Source.Repeatable) }

// Schedulable reports whether a cron may start runs of the template.
func (t *Template) Schedulable() bool { return isTrue(t.Source.Schedulable) }

// Enabled reports whether runs of the template may be started.
func (t *Template) Enabled() bool { return isTrue(t.Source.Enabled) }

// Cancelable reports whether runs of the template may be cancelled.
func (t *Template) Cancelable() bool {
	return t.Source.GetCancelPolicy() == nil || isTrue(t.Source.GetCancelPolicy().Supported)
}

// Concurrency returns the policy for a run that finds another one with its dedupe key. It is never
// UNSPECIFIED.
func (t *Template) Concurrency() progressorv1.ScopePolicy {
	if p := t.Source.GetConcurrencyPolicy(); p != progressorv1.ScopePolicy_SCOPE_POLICY_UNSPECIFIED {
		return p
	}
	return progressorv1.ScopePolicy_SCOPE_POLICY_ALLOW
}

// isTrue returns the value of a setting that is true by default.
func isTrue(b *bool) bool { return b == nil || *b }

func orNull(v *structpb.Value) *structpb.Value {
	if v.GetKind() == nil {
		return null
	}
	return v
}
