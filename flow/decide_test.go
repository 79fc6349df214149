package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// testRun drives a run by hand. It keeps the contents of the rows of steps and items.
type testRun struct {
	t       *testing.T
	plan    *flow.Plan
	state   *flow.State
	now     time.Time
	items   []string        // items of every step with for_each
	due     time.Duration   // due time of every wait; 0 means none
	rows    map[string]byte // status letters by step, or step.index
	effects []string        // the effects of the last decision, abbreviated

	values   map[string]string // values of items by their names
	noResult error
}

func newTestRun(t *testing.T, steps ...flow.PlanStep) *testRun {
	t.Helper()
	for i := range steps {
		for _, dep := range steps[i].Deps {
			steps[dep].Dependents = append(steps[dep].Dependents, i)
		}
		if steps[i].Join == progressorv1.JoinRule_JOIN_RULE_UNSPECIFIED {
			steps[i].Join = progressorv1.JoinRule_JOIN_RULE_NONE_FAILED
		}
		steps[i].Cancelable = true
	}
	p := &flow.Plan{Steps: steps, MaxAttempts: 1, Backoff: func(int32) time.Duration { return time.Minute },
		Grace: time.Minute}
	return &testRun{t: t, plan: p, state: flow.NewState(p), now: time.Unix(1e9, 0), rows: map[string]byte{},
		values: map[string]string{}}
}

func (p *testRun) name(step, index int) string {
	if index == flow.NoIndex {
		return fmt.Sprint(step)
	}
	return fmt.Sprintf("%d.%d", step, index)
}

func (p *testRun) Condition(*flow.Decision, int) (bool, error)         { return true, nil }
func (p *testRun) Result(*flow.Decision) ([]byte, error)               { return nil, p.noResult }
func (p *testRun) Undo(*flow.Decision, int) (work any, _ error)        { return nil, nil }
func (p *testRun) Collect(_ *flow.Decision, _ int) (r []byte, _ error) { return nil, nil }

func (p *testRun) Items(*flow.Decision, int) (hashes []int64, _ error) {
	for _, item := range p.items {
		hashes = append(hashes, flow.HashItem(structpb.NewStringValue(item)))
	}
	return hashes, nil
}

func (p *testRun) Begin(_ *flow.Decision, step, _ int) (work any, due time.Time, err error) {
	if p.plan.Steps[step].Waits != flow.NoWait && p.due > 0 {
		due = p.now.Add(p.due)
	}
	return nil, due, nil
}

// stored returns the stored items of a step, as Facts contains them.
func (p *testRun) stored(step int) (items []flow.Item) {
	for index := range 100 {
		l := flow.StepStatus(p.rows[p.name(step, index)])
		item := flow.Item{Index: index, Status: l}
		switch l {
		case flow.Succeeded, flow.Skipped, flow.ByHand:
			if value, known := p.values[p.name(step, index)]; known {
				hash := flow.HashItem(structpb.NewStringValue(value))
				item.Hash = &hash
			}
		case flow.Running:
		default:
			continue
		}
		items = append(items, item)
	}
	return items
}

func (p *testRun) itemsIn(step int, letters string) (list []int) {
	for index := range 100 {
		if l, ok := p.rows[p.name(step, index)]; ok && strings.IndexByte(letters, l) >= 0 {
			list = append(list, index)
		}
	}
	return list
}

// testingT is a *testing.T or a *rapid.T.
type testingT interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// decide decides like the engine: it provides the facts that are missing, and decides again. It
// checks that a decision is pure and requests each fact only once.
func decide(
	t testingT, p *flow.Plan, s *flow.State, f flow.Facts, provide func(flow.Need) []flow.Item, inputs ...flow.Input,
) *flow.Decision {
	t.Helper()
	before := encoded(t, s)
	f.Items = map[int][]flow.Item{}
	provided := map[flow.Need]bool{}
	for {
		d, again := flow.Decide(p, s, f, inputs...), flow.Decide(p, s, f, inputs...)
		if !reflect.DeepEqual(d.State, again.State) || !reflect.DeepEqual(d.Effects, again.Effects) {
			t.Fatalf("two decisions about the same facts differ: %v and %v", d.Effects, again.Effects)
		}
		if now := encoded(t, s); now != before {
			t.Fatalf("a decision changed the state that was passed to it from %s to %s", before, now)
		}
		if len(d.Missing) == 0 {
			return d
		}
		for _, need := range d.Missing {
			if provided[need] {
				t.Fatalf("%v, although it was provided", need)
			}
			provided[need] = true
			if items := provide(need); need.Kind == flow.NeedItems {
				f.Items[need.Step] = items
			}
		}
	}
}

func encoded(t testingT, s *flow.State) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decide makes a decision and records its effects.
func (p *testRun) decide(in flow.Input) *flow.Decision {
	p.t.Helper()
	facts := flow.Facts{Now: p.now, Rules: p}
	d := decide(p.t, p.plan, p.state, facts, func(need flow.Need) []flow.Item { return p.stored(need.Step) }, in)
	p.state, p.effects = d.State, nil
	for _, e := range d.Effects {
		name := p.name(e.Step, e.Index)
		switch e.Kind {
		case flow.EffectBegin:
			p.rows[name] = byte(flow.Running)
			if e.Index != flow.NoIndex {
				p.values[name] = p.items[e.Index]
			}
		case flow.EffectEnd:
			p.rows[name] = byte(e.Status)
		case flow.EffectDropItems:
			rows, values := map[string]byte{}, map[string]string{}
			for before, now := range e.Kept {
				rows[p.name(e.Step, now)], values[p.name(e.Step, now)] = p.rows[p.name(e.Step, before)],
					p.values[p.name(e.Step, before)]
			}
			for index := range 100 {
				delete(p.rows, p.name(e.Step, index))
			}
			maps.Copy(p.rows, rows)
			maps.Copy(p.values, values)
		case flow.EffectReset:
			p.rows[name] = byte(flow.Pending)
		case flow.EffectRunStatus:
			continue
		}
		p.effects = append(p.effects, string(e.Kind)+" "+name)
	}
	return d
}

func (p *testRun) start() { p.decide(flow.Input{Kind: flow.InputStart}) }

func (p *testRun) end(step, index int, l flow.StepStatus) {
	p.t.Helper()
	d := p.decide(flow.Input{Kind: flow.InputEnd,
		Outcome: flow.Outcome{Step: step, Index: index, Round: p.state.Round, Status: l}})
	if !d.Known[0] {
		p.t.Fatalf("the end of %s was ignored", p.name(step, index))
	}
}

func (p *testRun) hasEffect(effect string) bool { return slices.Contains(p.effects, effect) }

func (p *testRun) want(steps string, mode flow.Mode) {
	p.t.Helper()
	if p.state.Steps != steps || p.state.Mode != mode {
		p.t.Fatalf("the run is %s with steps %s, want %s with %s", p.state.Mode, p.state.Steps, mode, steps)
	}
}

// TestFailedItemsEndWaits checks that too many failed items of a step of waits end the other items,
// the step and the run.
func TestFailedItemsEndWaits(t *testing.T) {
	for _, waits := range []flow.Waiting{flow.External, flow.Human, flow.Delay} {
		p := newTestRun(t, flow.PlanStep{Each: true, Waits: waits})
		p.items, p.due = []string{"a", "b", "c"}, time.Hour
		p.start()
		p.end(0, 0, flow.Succeeded)
		p.end(0, 1, flow.Failed)
		p.want("f", flow.ModeEnded)
		if got := p.rows["0.2"]; got != byte(flow.Cancelled) {
			t.Fatalf("the open wait became %c", got)
		}
	}
}

// TestEndOfCancelledWait checks that a cancelled wait keeps its status if it ends again because its
// due time had come before the cancel.
func TestEndOfCancelledWait(t *testing.T) {
	p := newTestRun(t, flow.PlanStep{Waits: flow.External}, flow.PlanStep{Waits: flow.External}, flow.PlanStep{})
	p.start()
	p.end(0, flow.NoIndex, flow.Failed)
	p.want("fco", flow.ModeStopping)
	d := p.decide(flow.Input{Kind: flow.InputEnd,
		Outcome: flow.Outcome{Step: 1, Index: flow.NoIndex, Round: p.state.Round, Status: flow.Succeeded}})
	if d.Known[0] || len(d.Effects) > 0 {
		t.Errorf("the end of a cancelled wait: known %t, effects %v", d.Known[0], d.Effects)
	}
	p.want("fco", flow.ModeStopping)
}

// TestDeadlineOfItems checks that a step keeps the earliest deadline of its items, and that a new
// deadline of the step itself replaces the previous one.
func TestDeadlineOfItems(t *testing.T) {
	s, now := &flow.State{}, time.Unix(1e9, 0)
	for index, after := range []time.Duration{3, 1, 2} {
		s.SetDeadline(0, index, now.Add(after))
		s.SetDeadline(0, flow.NoIndex, now.Add(after))
	}
	want := []flow.Deadline{{Step: 0, Index: 1, At: now.Add(1)}, {Step: 0, Index: flow.NoIndex, At: now.Add(2)}}
	if !reflect.DeepEqual(s.Deadlines, want) {
		t.Errorf("deadlines %v, want %v", s.Deadlines, want)
	}
}

// TestCleanUpIsStopped checks that a cancel or a timeout reaches a cleanup step that began while
// the run was stopping, and that the step is asked to end only once.
func TestCleanUpIsStopped(t *testing.T) {
	graph := func() *testRun {
		p := newTestRun(t, flow.PlanStep{},
			flow.PlanStep{Deps: []int{0}, Join: progressorv1.JoinRule_JOIN_RULE_ALL_ENDED})
		p.plan.Timeout = time.Hour
		p.start()
		p.end(0, flow.NoIndex, flow.Failed)
		p.want("fo", flow.ModeStopping)
		return p
	}
	cancel := flow.Input{Kind: flow.InputCancel}

	p := graph()
	p.decide(cancel)
	if !p.hasEffect("cancel 1") {
		t.Errorf("a cancel does not reach the step that cleans up: %v", p.effects)
	}
	p.end(1, flow.NoIndex, flow.Cancelled)
	p.want("fc", flow.ModeEnded)

	p = graph()
	p.now = p.now.Add(time.Hour)
	p.decide(flow.Input{Kind: flow.InputTick})
	if !p.hasEffect("cancel 1") {
		t.Errorf("the timeout does not reach the step that cleans up: %v", p.effects)
	}
	p.decide(cancel)
	if p.hasEffect("cancel 1") {
		t.Error("a step is asked to end a second time")
	}
}

// TestRetryWithAnotherList checks a retry with a changed list of items. Done items that are still
// in the list stay done, and all others run once.
func TestRetryWithAnotherList(t *testing.T) {
	for _, test := range []struct {
		before, done, now, want string // one letter for each item
	}{
		{"abcd", "ab", "abcd", "cd"},
		{"abcd", "ab", "bacd", "cd"},
		{"abcd", "bc", "bcde", "de"},
		{"abcd", "ab", "xyz", "xyz"},
		{"abcd", "acd", "d", ""},
		{"aab", "aa", "aaab", "ab"},
		{"abc", "ab", "", ""},
		{"ab", "a", "ba", "b"},
	} {
		p := newTestRun(t, flow.PlanStep{Each: true}, flow.PlanStep{Deps: []int{0}})
		p.items = strings.Split(test.before, "")
		p.start()
		done := test.done
		for index, item := range p.items {
			if rest, ok := strings.CutPrefix(done, item); ok {
				done = rest
				p.end(0, index, flow.Succeeded)
			}
		}
		for _, index := range p.itemsIn(0, "o") {
			p.end(0, index, flow.Failed)
		}
		p.want("fc", flow.ModeEnded)
		p.items = strings.Split(test.now, "")
		if test.now == "" {
			p.items = nil
		}
		p.decide(flow.Input{Kind: flow.InputRetry})
		got := ""
		for _, index := range p.itemsIn(0, "o") {
			got += p.items[index]
			p.end(0, index, flow.Succeeded)
		}
		if got != test.want {
			t.Errorf("items %s, of which %s succeeded, then the list %s: %q runs again, want %q", test.before,
				test.done, test.now, got, test.want)
		}
		p.want("so", flow.ModeRunning)
		if n := len(p.itemsIn(0, "s")); n != len(test.now) {
			t.Errorf("the list is %s, but %d items are stored", test.now, n)
		}
	}
}

// lacking implements Rules. The condition of a step lacks a value until known contains the step.
type lacking struct {
	*testRun
	known map[int]bool
}

func (l *lacking) Condition(_ *flow.Decision, step int) (bool, error) {
	if !l.known[step] {
		return false, flow.Need{Kind: flow.NeedValue, Step: step}
	}
	return false, nil
}

// TestMissingFacts checks that a decision requests the facts of all steps that may begin together,
// but at most 100 facts at a time, because results of steps may be large.
func TestMissingFacts(t *testing.T) {
	p := newTestRun(t, slices.Repeat([]flow.PlanStep{{Conditional: true}}, 250)...)
	rules := &lacking{testRun: p, known: map[int]bool{}}
	var asked []int
	for {
		d := flow.Decide(p.plan, p.state, flow.Facts{Now: p.now, Rules: rules}, flow.Input{Kind: flow.InputStart})
		if len(d.Missing) == 0 {
			p.state = d.State
			break
		}
		asked = append(asked, len(d.Missing))
		for _, need := range d.Missing {
			rules.known[need.Step] = true
		}
	}
	if want := []int{100, 100, 50}; !slices.Equal(asked, want) {
		t.Errorf("the decision asked for %v facts, want %v", asked, want)
	}
	p.want(strings.Repeat("k", 250), flow.ModeEnded)
}

// TestCleanUpInLinearTemplate checks that a cleanup step of a linear template waits for all steps
// before it, even if an operator has skipped the previous step.
func TestCleanUpInLinearTemplate(t *testing.T) {
	p := newTestRun(t, flow.PlanStep{}, flow.PlanStep{Deps: []int{0}},
		flow.PlanStep{Deps: []int{1}, Join: progressorv1.JoinRule_JOIN_RULE_ALL_ENDED})
	p.plan.Linear = true
	p.start()
	p.decide(flow.Input{Kind: flow.InputSkip, Outcome: flow.Outcome{Step: 1, Index: flow.NoIndex}})
	p.want("ohp", flow.ModeRunning)
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.want("sho", flow.ModeRunning)
}

// TestNoResult checks that a run whose result cannot be computed fails as if a step had failed: it
// uses its attempts, then undoes its steps.
func TestNoResult(t *testing.T) {
	p := newTestRun(t, flow.PlanStep{Undoable: true})
	p.plan.MaxAttempts = 2
	p.noResult = errors.New("no such field")
	p.start()
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.want("s", flow.ModeResting)
	p.now = p.now.Add(time.Minute)
	p.decide(flow.Input{Kind: flow.InputTick})
	p.want("s", flow.ModeCompensating)
	if !p.hasEffect("undo 0") {
		t.Errorf("the step is not undone: %v", p.effects)
	}
	p.decide(flow.Input{Kind: flow.InputEnd,
		Outcome: flow.Outcome{Step: 0, Index: flow.NoIndex, Round: p.state.Round, Undo: true, Status: flow.Succeeded}})
	if p.state.Mode != flow.ModeEnded || p.state.Status != flow.ByFailure || p.state.BadResult != "no such field" {
		t.Errorf("the run is %+v", p.state)
	}

	p.noResult = nil
	p.decide(flow.Input{Kind: flow.InputRetry})
	p.end(0, flow.NoIndex, flow.Succeeded)
	if p.state.Status != "succeeded" || p.state.BadResult != "" {
		t.Errorf("the run is %+v", p.state)
	}
}

// TestTimeoutDuringCompensation checks that the timeout of a run does not end its compensations: a
// run that undoes its steps has no timer, and a tick after the timeout changes nothing.
func TestTimeoutDuringCompensation(t *testing.T) {
	p := newTestRun(t, flow.PlanStep{Undoable: true}, flow.PlanStep{Deps: []int{0}})
	p.plan.Timeout = time.Hour
	p.start()
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.end(1, flow.NoIndex, flow.Failed)
	p.want("sf", flow.ModeCompensating)
	p.now = p.now.Add(2 * time.Hour)
	if at := p.state.Timer(p.now); !at.IsZero() {
		t.Errorf("the timer of the run is set to %v", at)
	}
	p.decide(flow.Input{Kind: flow.InputTick})
	p.want("sf", flow.ModeCompensating)
	p.decide(flow.Input{Kind: flow.InputEnd,
		Outcome: flow.Outcome{Step: 0, Index: flow.NoIndex, Round: p.state.Round, Undo: true, Status: flow.Failed}})
	if p.state.Mode != flow.ModeEnded || p.state.Status != flow.ByFailure {
		t.Errorf("the run is %+v", p.state)
	}
}
