package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// maxCost bounds the cost of an expression for one job, in units of CEL. An expression that
	// reaches it takes about 1 ms. An expression that costs more fails.
	maxCost = 10_000
	// maxKey is the longest key, in bytes. A longer one is replaced by its digest.
	maxKey = 256
	// maxConstraints is the limit per namespace, because every job is evaluated against every
	// constraint.
	maxConstraints = 100
)

// environment declares the variables of expressions. Names with a dot are separate variables, so
// that job.nmae is an error when the constraint is put. Otherwise such a constraint would match no
// job.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("job.name", cel.StringType), cel.Variable("job.args", cel.DynType),
		cel.Variable("job.priority", cel.IntType),
		cel.Variable("job.tags", cel.ListType(cel.StringType)),
		cel.Variable("job.metadata", cel.MapType(cel.StringType, cel.DynType)),
	)
})

// rule is a compiled constraint.
type rule struct {
	jobs.Constraint
	match cel.Program
	key   cel.Program // nil if all jobs share one key
}

// rules are the constraints of a namespace in one version.
type rules struct {
	version int64
	all     []*rule
	byName  map[string]*rule
}

func newRules(version int64, constraints []jobs.Constraint) (*rules, error) {
	r := &rules{version: version, byName: map[string]*rule{}}
	for _, c := range constraints {
		compiled, err := compile(c)
		if err != nil {
			return nil, fmt.Errorf("constraint %q: %w", c.Name, err)
		}
		r.all = append(r.all, compiled)
		r.byName[c.Name] = compiled
	}
	return r, nil
}

// of returns the rule of a key queue, or nil if its constraint no longer exists.
func (r *rules) of(line string) *rule {
	name, _, _ := strings.Cut(line, "=")
	return r.byName[name]
}

func compile(c jobs.Constraint) (*rule, error) {
	r := &rule{Constraint: c}
	var err error
	if r.match, err = program("constraint.match", c.Match, "a condition, true or false", cel.BoolType); err != nil {
		return nil, err
	}
	if c.Key != "" {
		r.key, err = compileKey("constraint.key", c.Key)
	}
	return r, err
}

// compileKey compiles an expression whose value is a key.
func compileKey(field, text string) (cel.Program, error) {
	return program(field, text, "a string, a number or a bool", cel.StringType, cel.IntType, cel.UintType,
		cel.DoubleType, cel.BoolType)
}

// program compiles an expression whose value must have one of the types in kinds.
func program(field, text, wants string, kinds ...*cel.Type) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, &process.InvalidError{
			Field: field,
			Message: fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1,
				issueText(text, first)),
		}
	}
	fits := ast.OutputType().IsExactType(cel.DynType)
	for _, k := range kinds {
		fits = fits || ast.OutputType().IsExactType(k)
	}
	if !fits {
		return nil, &process.InvalidError{
			Field: field, Message: fmt.Sprintf("its value is of type %s, but must be %s", ast.OutputType(), wants),
		}
	}
	p, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, &process.InvalidError{Field: field, Message: err.Error()}
	}
	return p, nil
}

// ofJob matches an unknown name of the job. CEL reports only the first part of such a name.
var ofJob = regexp.MustCompile(`^job(\s*\.\s*\w+)*`)

// issueText returns the message of CEL, or a clearer one for common mistakes.
func issueText(text string, issue *cel.Error) string {
	lines := strings.Split(text, "\n")
	at := ""
	if n := issue.Location.Line() - 1; n >= 0 && n < len(lines) {
		if line := []rune(lines[n]); issue.Location.Column() >= 0 && issue.Location.Column() <= len(line) {
			at = string(line[issue.Location.Column():])
		}
	}
	switch {
	case strings.HasPrefix(issue.Message, "undeclared reference to 'job'"):
		return fmt.Sprintf("unknown name %s: use job.name, job.args, job.priority, job.tags or job.metadata",
			ofJob.FindString(at))
	case strings.HasPrefix(issue.Message, "Syntax error: token recognition error at: '=") && strings.HasPrefix(at, "="):
		return "= is not an operator: use == to compare"
	case strings.HasPrefix(issue.Message, "undeclared reference to '") &&
		!strings.Contains(issue.Message, "did you mean"):
		name, _, _ := strings.Cut(strings.TrimPrefix(issue.Message, "undeclared reference to '"), "'")
		return fmt.Sprintf("unknown name %s: use job.name, job.args, job.priority, job.tags or job.metadata", name)
	}
	return issue.Message
}

// keys returns the keys that a job needs to run, by the name of the constraint.
func (r *rules) keys(s jobs.Subject) map[string]string {
	if len(r.all) == 0 {
		return nil
	}
	var keys map[string]string
	vars := variables(s)
	for _, rule := range r.all {
		if key, matches := rule.keyFor(vars); matches {
			if keys == nil {
				keys = map[string]string{}
			}
			keys[rule.Name] = key
		}
	}
	return keys
}

// keyFor reports whether a job matches, and returns its key. If the match expression fails, for
// example because the job does not have the argument, the job does not match. If the key expression
// of a matching job fails, its key is "", so that the job is still limited, together with all jobs
// whose key expression fails.
func (r *rule) keyFor(vars map[string]any) (key string, matches bool) {
	v, _, err := r.match.Eval(vars)
	if err != nil || v != types.True {
		return "", false
	}
	if r.key == nil {
		return "", true
	}
	if v, _, err = r.key.Eval(vars); err != nil {
		return "", true
	}
	return keyText(v), true
}

func keyText(v ref.Val) string {
	var key string
	switch v := v.(type) {
	case types.String:
		key = wire.Plain(string(v))
	case types.Double:
		key = strconv.FormatFloat(float64(v), 'f', -1, 64) // 7 instead of 7e+00, for both 7 and 7.0
	case types.Int, types.Uint, types.Bool:
		key = fmt.Sprint(v.Value())
	}
	if len(key) > maxKey {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	}
	return key
}

// variables returns the values of a job for expressions.
func variables(s jobs.Subject) map[string]any {
	var args any
	metadata, tags := map[string]any{}, []string{}
	for _, j := range []struct {
		from []byte
		into any
	}{{s.Args, &args}, {s.Metadata, &metadata}, {s.Tags, &tags}} {
		if len(j.from) > 0 {
			_ = json.Unmarshal(j.from, j.into) // this program wrote it as JSON
		}
	}
	if args = process.PlainNumbers(args); args == nil {
		args = types.NullValue
	}
	return map[string]any{
		"job.name": s.Name, "job.args": args, "job.priority": int64(s.Priority), "job.tags": tags,
		"job.metadata": metadata,
	}
}

// constrained returns the keys that a job needs under these rules. r may be nil.
func (r *rules) constrained(s jobs.Subject) jobs.Constrained {
	if r == nil {
		return jobs.Constrained{}
	}
	return jobs.Constrained{Version: r.version, Keys: r.keys(s)}
}

// storedConstraint checks a constraint and converts it to its stored form.
func storedConstraint(c *progressorv1.Constraint) (jobs.Constraint, error) {
	s := jobs.Constraint{Name: c.GetName(), Match: c.GetMatch(), Key: c.GetKey(), MaxRunning: c.GetMaxRunning()}
	switch {
	case strings.Contains(s.Name, "=") || wire.Plain(s.Name) != s.Name:
		return s, &process.InvalidError{
			Field: "constraint.name", Message: "must be UTF-8 text without the characters = and NUL",
		}
	case s.MaxRunning == 0 && c.GetRate() == nil:
		return s, &process.InvalidError{
			Field:   "constraint.max_running",
			Message: "must be at least 1 if there is no rate: otherwise the constraint limits nothing",
		}
	}
	if r := c.GetRate(); r != nil {
		s.RateCount, s.RatePer, s.RateBurst = r.GetCount(), r.GetPer().AsDuration(), r.GetBurst()
		s.RateBurst = cmp.Or(s.RateBurst, s.RateCount)
		if s.RatePer < time.Microsecond {
			return s, &process.InvalidError{Field: "constraint.rate.per", Message: "must be at least 1 µs"}
		}
	}
	_, err := compile(s)
	return s, err
}
