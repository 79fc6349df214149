package flow

import (
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Scope is the environment of the expressions of a run at one moment. It is not safe for concurrent
// use. The caller may replace Item and Index between two evaluations, but must not modify the
// values.
type Scope struct {
	Payload     *structpb.Value
	Scope       string
	ScopeID     string
	RunID       string
	Attempt     int32
	CreatedTime time.Time

	// Step returns the outcome of a step by index. It is called only for steps that the expression
	// names, at most once per evaluation. An evaluation returns the error of Step unchanged.
	Step func(index int) (Ended, error)

	// Item and Index are set while an item of for_each is evaluated.
	Item  *structpb.Value
	Index int

	native map[*structpb.Value]ref.Val // values that expressions used before, converted for CEL
}

// Ended is the outcome of a step, as expressions of later steps see it.
type Ended struct {
	Status  string          // in lower case, as in the tables: succeeded, skipped, failed, …
	Result  *structpb.Value // nil means null
	Failure *progressorv1.Failure
}

// FailureValue converts a failure to the form that expressions and templates see. It returns null
// if f is nil.
func FailureValue(f *progressorv1.Failure) *structpb.Value {
	if f == nil {
		return structpb.NewNullValue()
	}
	details := f.GetDetails()
	if details == nil {
		details = structpb.NewNullValue()
	}
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"reason": structpb.NewStringValue(f.GetReason()), "message": structpb.NewStringValue(f.GetMessage()),
		"non_retryable": structpb.NewBoolValue(f.GetNonRetryable()), "details": details,
	}})
}

// variables resolves the names in an evaluation. It returns JSON as *structpb.Value and everything
// else as CEL values.
type variables interface {
	lookup(name string) (any, bool, error)
	nativeOf(v *structpb.Value) ref.Val
}

// runVariables are the variables of a run for one evaluation.
type runVariables struct {
	*Scope
	template *Template
	ended    map[int]Ended
}

func (t *Template) variables(s *Scope) *runVariables { return &runVariables{Scope: s, template: t} }

func (v *runVariables) lookup(name string) (any, bool, error) {
	switch name {
	case "payload":
		return v.Payload, true, nil
	case "scope":
		return types.String(v.Scope.Scope), true, nil
	case "scope_id":
		return types.String(v.ScopeID), true, nil
	case "run.id":
		return types.String(v.RunID), true, nil
	case "run.attempt":
		return types.Int(v.Attempt), true, nil
	case "run.created_time":
		return types.Timestamp{Time: v.CreatedTime}, true, nil
	case "item":
		return v.Item, true, nil
	case "index":
		return types.Int(v.Index), true, nil
	}
	rest, ok := strings.CutPrefix(name, "steps.")
	if !ok {
		return nil, false, nil
	}
	id, field, _ := strings.Cut(rest, ".")
	i, ok := v.template.byID[id]
	if !ok {
		return nil, false, nil
	}
	e, err := v.step(i)
	if err != nil {
		return nil, true, err
	}
	switch field {
	case "status":
		return types.String(e.Status), true, nil
	case "result":
		return e.Result, true, nil
	case "failure":
		return FailureValue(e.Failure), true, nil
	}
	return nil, false, nil
}

func (v *runVariables) step(i int) (Ended, error) {
	if e, ok := v.ended[i]; ok {
		return e, nil
	}
	if v.Step == nil {
		return Ended{}, fmt.Errorf("flow: an expression reads step %s, which is not in the scope",
			v.template.Steps[i].ID)
	}
	e, err := v.Step(i)
	if err != nil {
		return Ended{}, err
	}
	if v.ended == nil {
		v.ended = map[int]Ended{}
	}
	v.ended[i] = e
	return e, nil
}

// activation adapts variables to CEL.
type activation struct {
	variables
	failed error // error of the lookup
}

func (a *activation) ResolveName(name string) (any, bool) {
	v, ok, err := a.lookup(strings.TrimPrefix(name, "."))
	if err != nil {
		a.failed = err
		return types.WrapErr(err), true
	}
	if json, isJSON := v.(*structpb.Value); isJSON {
		return a.nativeOf(json), true
	}
	return v, ok
}

func (a *activation) Parent() interpreter.Activation { return nil }

// native converts JSON for CEL, using Go maps and slices. With protobuf messages, which CEL wraps
// again on each access, a filter over 10,000 items took 300 ms.
func native(v *structpb.Value) ref.Val {
	return types.DefaultTypeAdapter.NativeToValue(process.PlainNumbers(v.AsInterface()))
}

// nativeOf caches the converted values, except items: each item is used in one or two evaluations
// only.
func (s *Scope) nativeOf(v *structpb.Value) ref.Val {
	if v == s.Item {
		return native(v)
	}
	converted, ok := s.native[v]
	if !ok {
		if s.native == nil {
			s.native = map[*structpb.Value]ref.Val{}
		}
		converted = native(v)
		s.native[v] = converted
	}
	return converted
}
