package sinks

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxCost limits the cost of a filter for one change, in units of CEL, to about 1 ms. A filter that
// costs more fails, and therefore does not match.
const maxCost = 10_000

// environment declares the variable change.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Types(&progressorv1.Change{}), cel.Container("progressor.v1"), cel.CrossTypeNumericComparisons(true),
		cel.Variable("change", cel.ObjectType("progressor.v1.Change")),
	)
})

// filter selects the changes of a sink.
type filter struct {
	kinds []progressorv1.ChangeKind // empty means all kinds
	match cel.Program               // nil means all changes
}

// newFilter compiles the filter of a sink.
func newFilter(m *progressorv1.Sink) (*filter, error) {
	f := &filter{kinds: m.GetKinds()}
	if strings.TrimSpace(m.GetFilter()) == "" {
		return f, nil
	}
	invalid := func(message string) error {
		return &process.InvalidError{Field: "sink.filter", Message: message}
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("environment of filters: %w", err)
	}
	ast, issues := env.Compile(m.GetFilter())
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, invalid(fmt.Sprintf(
			"line %d, column %d: %s; it is a CEL expression on change, such as change.type == \"failed\"",
			first.Location.Line(), first.Location.Column()+1, first.Message))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, invalid(fmt.Sprintf(
			"must be true or false, such as change.type == \"failed\", but its type is %s", t))
	}
	if f.match, err = env.Program(ast, cel.CostLimit(maxCost)); err != nil {
		return nil, invalid(err.Error())
	}
	return f, nil
}

// matches reports whether the sink delivers a change. A change for which the filter fails, for
// example because its metadata lacks a field, is not delivered.
func (f *filter) matches(c *progressorv1.Change) bool {
	if len(f.kinds) > 0 && !slices.Contains(f.kinds, c.GetKind()) {
		return false
	}
	if f.match == nil {
		return true
	}
	result, _, err := f.match.Eval(map[string]any{"change": c})
	if err != nil {
		return false
	}
	matches, ok := result.Value().(bool)
	return ok && matches
}
