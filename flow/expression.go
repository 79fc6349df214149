package flow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
)

const (
	// maxCost limits the cost of an expression that is evaluated once, in units of costEstimator.
	// The limit is about 0.1 s within a transaction. A filter and a map over 10,000 items cost
	// 325,000 units and take 16 ms.
	maxCost = 1_000_000
	// maxItemCost limits the cost of an expression that is evaluated for each item of a for_each.
	// Up to 10,000 items are evaluated one after the other, so each has about 1 ms.
	maxItemCost = 10_000
	// maxDepth limits the depth of an expression. The time of the checker grows with the cube of
	// the depth of nested lists without a type: 240 brackets took 2.7 s.
	maxDepth = 60
	// maxExpression limits the length of an expression within a value, in bytes. The proto rules
	// set the same limit for fields that are expressions.
	maxExpression = 16 << 10
)

// ExpressionError reports that an expression has no value in a scope, or a value that cannot be
// used.
type ExpressionError struct {
	Path       string // path of the expression in the template
	Expression string
	Message    string
}

func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Path, quote(e.Expression), e.Message)
}

// quote formats an expression for a message.
func quote(text string) string { return "`" + shortened(text) + "`" }

func shortened(text string) string {
	const limit = 200
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// want describes how the value of an expression is used, which determines the allowed types.
type want int

const (
	wantBool want = iota
	wantList
	wantTime
	wantValue
)

// noStep is the step index of a place outside of all steps.
const noStep = -1

// place is the context of an expression. It determines the names that the expression may use.
type place struct {
	step   int
	item   bool // evaluated for each item of for_each
	target bool // part of the target of a cron
}

// expression is an expression that was checked.
type expression struct {
	path, text string
	plain      *plainPath // nil if CEL evaluates it
	program    func() (cel.Program, error)
	steps      []int // indexes of the steps that it names
}

// environments holds the CEL environments for the places of one template. Names with a dot are
// separate variables, so that run.idd is an error of the template and not of a run.
type environments struct {
	steps [3]*cel.Env // including the steps of the template
}

var baseEnvironments = sync.OnceValues(func() ([3]*cel.Env, error) {
	options := []cel.EnvOption{
		cel.ParserRecursionLimit(maxDepth), cel.EnableIdentifierEscapeSyntax(), cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	}
	run := append(slices.Clone(options),
		cel.Variable("payload", cel.DynType), cel.Variable("scope", cel.StringType),
		cel.Variable("scope_id", cel.StringType),
		cel.Variable("run.id", cel.StringType), cel.Variable("run.attempt", cel.IntType),
		cel.Variable("run.created_time", cel.TimestampType))
	item := append(slices.Clone(run), cel.Variable("item", cel.DynType), cel.Variable("index", cel.IntType))
	target := append(slices.Clone(options),
		cel.Variable("cron_id", cel.StringType), cel.Variable("fire_time", cel.TimestampType),
		cel.Variable("attempt", cel.IntType))
	var envs [3]*cel.Env
	var errs []error
	for i, o := range [][]cel.EnvOption{run, item, target} {
		env, err := cel.NewEnv(o...)
		envs[i] = env
		errs = append(errs, err)
	}
	return envs, errors.Join(errs...)
})

// names returns the names that an expression in a place may use.
func (p place) names() []string {
	switch {
	case p.target:
		return []string{"cron_id", "fire_time", "attempt"}
	case p.item:
		return []string{"payload", "scope", "scope_id", "run.id", "run.attempt", "run.created_time", "steps.ID", "item",
			"index"}
	}
	return []string{"payload", "scope", "scope_id", "run.id", "run.attempt", "run.created_time", "steps.ID"}
}

// of returns the environment of a place. If steps is set, it includes the steps of the template, at
// about 3 µs each.
func (e *environments) of(p place, t *Template, steps bool) (*cel.Env, error) {
	n := 0
	switch {
	case p.target:
		n = 2
	case p.item:
		n = 1
	}
	base, err := baseEnvironments()
	if err != nil || !steps {
		return base[n], err
	}
	if e.steps[n] == nil {
		var variables []cel.EnvOption
		for i := range t.Steps {
			for _, field := range stepFields {
				kind := cel.DynType
				if field == "status" {
					kind = cel.StringType
				}
				variables = append(variables, cel.Variable("steps."+t.Steps[i].ID+"."+field, kind))
			}
		}
		if e.steps[n], err = base[n].Extend(variables...); err != nil {
			return nil, err
		}
	}
	return e.steps[n], nil
}

var stepFields = []string{"status", "result", "failure"}

// expression checks an expression. The result may be evaluated only if there was no problem.
func (c *compiler) expression(path, text string, at place, w want) *expression {
	e := &expression{path: path, text: strings.TrimSpace(text)}
	c.bytes += len(text)
	switch {
	case len(text) > maxExpression:
		c.add(path, "an expression must have at most %d bytes (got %d)", maxExpression, len(text))
		return e
	case c.bytes > maxExpressions: // Compile reports it
		return e
	case text == "" && (w == wantList || w == wantTime): // the proto rules report it
		return e
	case e.text == "":
		c.add(path, "is an empty expression: write one, such as payload.name")
		return e
	}
	if e.plain = parsePlain(e.text, at); e.plain != nil &&
		(e.plain.kind == kindJSON || e.plain.kind == wantKinds[w] || w == wantValue) {
		if e.plain.step != "" {
			c.mayRead(e, at, e.plain.step)
		}
		return e
	}
	e.plain = nil
	c.check(e, at, w)
	return e
}

// check parses and checks an expression with CEL.
func (c *compiler) check(e *expression, at place, w want) {
	env, err := c.envs.of(at, c.template, false)
	if err != nil {
		c.add(e.path, "cannot be checked: %s", err)
		return
	}
	known := source{text: e.text, place: at, want: w}
	known.place.step = 0
	if e.program = c.programs[known]; e.program != nil {
		return
	}
	parsed, issues := env.Parse(e.text)
	if issues.Err() != nil {
		c.issues(e, at, issues)
		return
	}
	walk := &walker{compiler: c, expression: e, place: at}
	walk.visit(parsed.NativeRep().Expr())
	if walk.wrong {
		return
	}
	if walk.steps {
		if env, err = c.envs.of(at, c.template, true); err != nil {
			c.add(e.path, "cannot be checked: %s", err)
			return
		}
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		c.issues(e, at, issues)
		return
	}
	if message := misfit(checked.OutputType(), w); message != "" {
		c.add(e.path, "%s: %s", quote(e.text), message)
		return
	}
	limit := uint64(maxCost)
	if at.item {
		limit = maxItemCost
	}
	e.program = sync.OnceValues(func() (cel.Program, error) {
		return env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostTracking(costEstimator{}),
			cel.CostLimit(limit))
	})
	if !walk.steps {
		c.programs[known] = e.program
	}
}

// source identifies an expression that names no step. Such an expression is compiled once, even if
// it occurs several times in a template.
type source struct {
	text  string
	place place
	want  want
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)

// issues adds the errors that CEL found, in the terms of a template.
func (c *compiler) issues(e *expression, at place, issues *cel.Issues) {
	const most = 3 // errors after a syntax error are mostly its consequences
	for _, issue := range issues.Errors()[:min(len(issues.Errors()), most)] {
		message := issue.Message
		if m := undeclared.FindStringSubmatch(message); m != nil {
			message = fmt.Sprintf("%s is not available here; use %s", m[1], strings.Join(at.names(), ", "))
			if m[1] == "item" || m[1] == "index" {
				message = fmt.Sprintf(
					"%s is not available here: it exists only in expressions that for_each evaluates for each item",
					m[1])
			}
		}
		if strings.Contains(message, "recursion") {
			c.add(e.path, "%s: is nested deeper than %d: simplify it, or compute a part of it in an earlier step",
				quote(e.text), maxDepth)
			return
		}
		c.add(e.path, "%s: line %d, column %d: %s", quote(e.text), issue.Location.Line(), issue.Location.Column()+1,
			message)
	}
}

// mayRead reports whether an expression may name a step. If it may, mayRead records the step.
func (c *compiler) mayRead(e *expression, at place, id string) bool {
	i, ok := c.template.byID[id]
	switch {
	case !ok:
		c.add(e.path, "%s: there is no step %.100s; %s", quote(e.text), id, c.known(id))
		return false
	case at.step == i:
		c.add(e.path, "%s: refers to its own step, which has not ended at that time", quote(e.text))
		return false
	case at.step != noStep && c.before != nil && !c.before[at.step].has(i):
		if c.template.Linear {
			c.add(e.path, "%s: step %s comes later and has not ended at that time", quote(e.text), id)
		} else {
			c.add(e.path, "%s: step %s may not have ended at that time: add it to depends_on of this step or of an "+
				"earlier one", quote(e.text), id)
		}
		return false
	}
	if !slices.Contains(e.steps, i) {
		e.steps = append(e.steps, i)
	}
	return true
}

// walker finds the names in an expression before CEL checks it. The messages of walker about steps
// are more specific than those of CEL.
type walker struct {
	*compiler
	expression *expression
	place      place
	steps      bool // the expression names steps
	wrong      bool
}

func (w *walker) refuse(format string, args ...any) {
	w.wrong = true
	w.add(w.expression.path, "%s: %s", quote(w.expression.text), fmt.Sprintf(format, args...))
}

func (w *walker) visit(e celast.Expr) {
	switch e.Kind() {
	case celast.IdentKind:
		w.name([]string{strings.TrimPrefix(e.AsIdent(), ".")}, false)
	case celast.SelectKind:
		if names := chain(e); names != nil {
			w.name(names, e.AsSelect().IsTestOnly())
			return
		}
		w.visit(e.AsSelect().Operand())
	case celast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			w.visit(call.Target())
		}
		w.all(e.AsCall().Args())
	case celast.ListKind:
		w.all(e.AsList().Elements())
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.all([]celast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()})
		}
	case celast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			w.visit(field.AsStructField().Value())
		}
	case celast.ComprehensionKind:
		each := e.AsComprehension()
		for _, name := range []string{each.IterVar(), each.IterVar2()} {
			if name == "steps" || name == "run" {
				w.refuse("%s is a reserved name: give the variable another name", name)
				return
			}
		}
		w.all([]celast.Expr{each.IterRange(), each.AccuInit(), each.LoopCondition(), each.LoopStep(), each.Result()})
	}
}

func (w *walker) all(list []celast.Expr) {
	for _, e := range list {
		w.visit(e)
	}
}

// chain returns the names of a.b.c, or nil if the expression does not begin with a name.
func chain(e celast.Expr) []string {
	var names []string
	for ; e.Kind() == celast.SelectKind; e = e.AsSelect().Operand() {
		names = append(names, e.AsSelect().FieldName())
	}
	if e.Kind() != celast.IdentKind {
		return nil
	}
	names = append(names, strings.TrimPrefix(e.AsIdent(), "."))
	slices.Reverse(names)
	return names
}

// name checks a name with its fields. If has is set, the name is the argument of has().
func (w *walker) name(names []string, has bool) {
	if w.place.target {
		return // CEL reports unknown names
	}
	switch names[0] {
	case "run":
		switch {
		case len(names) < 2:
			w.refuse("run is not a value: write run.id, run.attempt or run.created_time")
		case has && len(names) == 2:
			w.refuse("run.%s needs no has(): it is always set", names[1])
		}
	case "steps":
		switch {
		case len(names) < 3:
			id := "ID"
			if len(names) == 2 && !has {
				id = names[1]
			}
			w.refuse("steps is not a value: write steps.%s.status, steps.%s.result or steps.%s.failure", id, id, id)
		case !slices.Contains(stepFields, names[2]):
			w.refuse("a step has status, result and failure, but no %s: its result is steps.%s.result", names[2],
				names[1])
		case has && len(names) == 3:
			w.refuse("steps.%s.%s needs no has(), it is null if the step has no value: write steps.%s.%s != null",
				names[1], names[2], names[1], names[2])
		default:
			w.steps = true
			w.wrong = !w.mayRead(w.expression, w.place, names[1]) || w.wrong
		}
	}
}

// misfit returns the reason why an expression of type t cannot be used for w, or "" if it can.
func misfit(t *cel.Type, w want) string {
	switch kind := t.Kind(); {
	case kind == cel.DynKind:
		return ""
	case w == wantBool && kind != cel.BoolKind:
		return fmt.Sprintf("is of type %s; a condition must be true or false", t)
	case w == wantList && kind != cel.ListKind:
		return fmt.Sprintf("is of type %s; for_each needs a list", t)
	case w == wantTime && kind == cel.StringKind:
		return "is of type string: write timestamp(…) around it"
	case w == wantTime && kind != cel.TimestampKind:
		return fmt.Sprintf("is of type %s; a delay needs a timestamp, such as run.created_time + duration('1h')", t)
	case w == wantValue:
		return notJSON(t)
	}
	return ""
}

// notJSON returns the reason why values of a type cannot be JSON, or "" if they can.
func notJSON(t *cel.Type) string {
	switch t.Kind() {
	case cel.ListKind:
		if len(t.Parameters()) > 0 {
			return notJSON(t.Parameters()[0])
		}
	case cel.MapKind:
		if p := t.Parameters(); len(p) == 2 {
			if k := p[0].Kind(); k != cel.StringKind && k != cel.DynKind && k != cel.TypeParamKind {
				return fmt.Sprintf(
					"has keys of type %s, but the keys of a JSON object are strings: write string(…) around them", p[0])
			}
			return notJSON(p[1])
		}
	case cel.TypeKind:
		return "is a type, which JSON cannot represent: write string(…) around it, or remove type()"
	}
	return ""
}

// eval returns a *structpb.Value for a plain path into JSON, and a CEL value otherwise.
func (e *expression) eval(v variables) (any, error) {
	if e.plain != nil {
		return e.plain.resolve(e, v)
	}
	program, err := e.program()
	if err != nil {
		return nil, e.errorf("%s", err)
	}
	a := &activation{variables: v}
	result, _, err := program.Eval(a)
	switch {
	case a.failed != nil:
		return nil, a.failed
	case err != nil:
		return nil, e.errorf("%s", evalMessage(err))
	}
	return result, nil
}

func (e *expression) errorf(format string, args ...any) error {
	return &ExpressionError{Path: e.path, Expression: e.text, Message: fmt.Sprintf(format, args...)}
}

func evalMessage(err error) string {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "no such key: "):
		return fmt.Sprintf("there is no field %q", strings.TrimPrefix(text, "no such key: "))
	case strings.Contains(text, "cost limit exceeded"):
		return fmt.Sprintf("costs more than the limit of %d units, or of %d if it is evaluated for each item", maxCost,
			maxItemCost)
	case strings.Contains(text, "no such overload"):
		return text + ": an operator, a function or a field is used with a value of the wrong type (numbers in JSON " +
			"are doubles: 1.0, not 1; null has no fields)"
	}
	return text
}
