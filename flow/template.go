package flow

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Template is a compiled template. It must not be modified, because runs share it.
type Template struct {
	Source *progressorv1.Template
	Steps  []Step // in source order
	Linear bool

	byID    map[string]int
	result  *value // the result of a run; if nil, it is the result of the last step that succeeded
	payload *schema
	dedupe  []string
}

// Action is the kind of work that a step does.
type Action int

// The actions.
const (
	ActionJob Action = iota + 1
	ActionProcess
	ActionWait
	ActionDelay
	ActionRun
)

// Step is a step of a template.
type Step struct {
	Index      int
	ID         string
	Source     *progressorv1.StepTemplate
	Action     Action
	Join       progressorv1.JoinRule // never UNSPECIFIED
	DependsOn  []int                 // the previous step in a linear template, or depends_on in a graph
	Dependents []int                 // the steps that depend on this one, in source order
	Weight     int64
	Cancelable bool
	Reads      []int // the steps that its expressions name, ascending

	condition  *expression // if nil, the step always runs
	items      *expression // nil if the step has no for_each
	until      *expression // end of a delay; nil if the delay has a duration
	input      *value      // if nil, the input is the payload of the run, or the item of a for_each
	runPayload *value      // payload of the run that the step starts; if nil, it is the input
	title      *value      // title of a wait
	assignees  []*value    // assignees of a wait
	answer     *schema     // schema of the result of a wait
}

// Index returns the index of a step by its ID.
func (t *Template) Index(id string) (int, bool) {
	i, ok := t.byID[id]
	return i, ok
}

// ForEach reports whether the step runs once for each item of a list.
func (s *Step) ForEach() bool { return s.items != nil }

// path returns the path of a field in the step.
func (s *Step) path(field string) string { return fmt.Sprintf("steps[%d].%s", s.Index, field) }

// Limits that are not in the proto files.
const (
	// MaxItems limits the length of the list of a for_each.
	MaxItems = 10_000
	maxSteps = 1000
	// maxExpressions limits the total length of the expressions of a template, in bytes. The parser
	// and the checker of CEL take about 2 µs per byte, which is half a second for all of them.
	maxExpressions = 256 << 10
)

// compiler compiles the source of a template.
type compiler struct {
	problems
	template *Template
	before   []set // for each step, the steps that have ended when it starts; nil if steps form a cycle
	envs     environments
	programs map[source]func() (cel.Program, error)
	guesses  int // number of suggestions made so far for unknown step IDs
	bytes    int // total size of the expressions compiled so far
	schemas  schemaSize
}

func newCompiler(t *progressorv1.Template) *compiler {
	return &compiler{template: &Template{Source: t, byID: map[string]int{}},
		programs: map[source]func() (cel.Program, error){}}
}

// Compile checks and compiles a template. If there are problems, it returns them and no Template.
func Compile(t *progressorv1.Template) (*Template, []Problem) {
	c := newCompiler(t)
	if n := len(t.GetSteps()); n > maxSteps {
		c.add("steps", "must be at most %d (got %d): start runs of other templates from steps of this one", maxSteps, n)
		return nil, c.all()
	}
	c.contract(t)
	c.template.Linear = t.GetStepOrder() != progressorv1.StepOrder_STEP_ORDER_GRAPH
	c.steps()
	c.link()
	c.topLevel()
	for i := range c.template.Steps {
		c.step(&c.template.Steps[i])
	}
	if c.bytes > maxExpressions {
		c.add("", "expressions must have at most %d bytes in total (got %d)", maxExpressions, c.bytes)
	}
	if problems := c.all(); len(problems) > 0 {
		return nil, problems
	}
	return c.template, nil
}

// Refused returns the problems for which PutTemplate rejects a template although Compile accepts
// it. Compile must accept such templates, because older versions of the engine have stored some.
func Refused(t *progressorv1.Template) (list []Problem) {
	for n, step := range t.GetSteps() {
		if step.GetTimeout().AsDuration() == 0 {
			continue
		}
		path := fmt.Sprintf("steps[%d].timeout", n)
		switch step.GetAction().(type) {
		case *progressorv1.StepTemplate_Wait:
			list = append(list, Problem{path, "is not allowed if the step is a wait: set wait.due"})
		case *progressorv1.StepTemplate_Delay:
			list = append(list, Problem{path, "is not allowed if the step is a delay, which ends at its time"})
		}
	}
	return list
}

// steps adds the steps of the source to the template.
func (c *compiler) steps() {
	t := c.template
	t.Steps = make([]Step, len(t.Source.GetSteps()))
	for i, source := range t.Source.GetSteps() {
		s := &t.Steps[i]
		*s = Step{
			Index: i, ID: source.GetStepId(), Source: source, Join: source.GetJoinRule(),
			Weight:     int64(max(source.GetWeight(), 1)),
			Cancelable: source == nil || source.Cancelable == nil || source.GetCancelable(),
		}
		if source.GetWeight() == 0 {
			s.Weight = 1
		}
		if s.Join == progressorv1.JoinRule_JOIN_RULE_UNSPECIFIED {
			s.Join = progressorv1.JoinRule_JOIN_RULE_NONE_FAILED
		}
		switch source.GetAction().(type) {
		case *progressorv1.StepTemplate_Job:
			s.Action = ActionJob
		case *progressorv1.StepTemplate_Process:
			s.Action = ActionProcess
		case *progressorv1.StepTemplate_Wait:
			s.Action = ActionWait
		case *progressorv1.StepTemplate_Delay:
			s.Action = ActionDelay
		case *progressorv1.StepTemplate_Run:
			s.Action = ActionRun
		}
		if first, twice := t.byID[s.ID]; twice {
			c.add(s.path("step_id"), "%s is also the ID of steps[%d]: each step needs its own ID", s.ID, first)
		} else if s.ID != "" {
			t.byID[s.ID] = i
		}
	}
}

// topLevel checks and compiles the fields of the template that do not belong to a step.
func (c *compiler) topLevel() {
	t, source := c.template, c.template.Source
	t.payload = c.schema("payload_schema", source.GetPayloadSchema())
	t.dedupe = c.dedupeKeys(source.GetDedupeKeys())
	if source.GetResult() != nil {
		t.result, _ = c.value("result", source.GetResult(), place{step: noStep})
	}
}

// step checks one step and compiles its expressions.
func (c *compiler) step(s *Step) {
	reads := map[int]bool{}
	note := func(steps []int) {
		for _, i := range steps {
			reads[i] = true
		}
	}
	at := place{step: s.Index}
	if text := s.Source.GetCondition(); text != "" {
		s.condition = c.expression(s.path("condition"), text, at, wantBool)
		note(s.condition.steps)
	}
	if each := s.Source.GetForEach(); each != nil {
		s.items = c.expression(s.path("for_each.items"), each.GetItems(), at, wantList)
		note(s.items.steps)
		at.item = true
	}
	values := func(field string, v *structpb.Value) *value {
		compiled, steps := c.value(s.path(field), v, at)
		note(steps)
		return compiled
	}
	if s.Source.GetInput() != nil {
		s.input = values("input", s.Source.GetInput())
	}
	switch action := s.Source.GetAction().(type) {
	case *progressorv1.StepTemplate_Job:
		c.job(s, action.Job)
	case *progressorv1.StepTemplate_Process:
		c.metadata(s.path("process.metadata"), action.Process.GetMetadata())
	case *progressorv1.StepTemplate_Wait:
		s.title = values("wait.title", structpb.NewStringValue(action.Wait.GetTitle()))
		for i, text := range action.Wait.GetAssignees() {
			s.assignees = append(s.assignees,
				values(fmt.Sprintf("wait.assignees[%d]", i), structpb.NewStringValue(text)))
		}
		c.wait(s, action.Wait)
	case *progressorv1.StepTemplate_Delay:
		if until, ok := action.Delay.GetUntil().(*progressorv1.DelayAction_Time); ok {
			s.until = c.expression(s.path("delay.time"), until.Time, at, wantTime)
			note(s.until.steps)
		}
	case *progressorv1.StepTemplate_Run:
		if action.Run.GetPayload() != nil {
			s.runPayload = values("run.payload", action.Run.GetPayload())
		}
		c.run(s, action.Run)
	}
	c.compensation(s)
	for i := range reads {
		s.Reads = append(s.Reads, i)
	}
	slices.Sort(s.Reads)
}
