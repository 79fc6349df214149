package flow_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// play drives a run by hand. It keeps what the rows of steps and items would contain.
type play struct {
	t     *testing.T
	plan  *flow.Plan
	state *flow.State
	now   time.Time
	items []string        // of every step with for_each
	due   time.Duration   // of every wait; 0 means none
	rows  map[string]byte // status letters by step, or step.index
	said  []string        // the effects of the last decision, abbreviated

	values   map[string]string // of items by their names
	noResult error
}

func newPlay(t *testing.T, steps ...flow.PlanStep) *play {
	t.Helper()
	for i := range steps {
		for _, dep := range steps[i].Deps {
			steps[dep].Dependants = append(steps[dep].Dependants, i)
		}
		if steps[i].Join == progressorv1.JoinRule_JOIN_RULE_UNSPECIFIED {
			steps[i].Join = progressorv1.JoinRule_JOIN_RULE_NONE_FAILED
		}
		steps[i].Cancelable = true
	}
	p := &flow.Plan{Steps: steps, MaxAttempts: 1, Backoff: func(int32) time.Duration { return time.Minute }, Grace: time.Minute}
	return &play{t: t, plan: p, state: flow.NewState(p), now: time.Unix(1e9, 0), rows: map[string]byte{}, values: map[string]string{}}
}

func (p *play) name(step, index int) string {
	if index == flow.NoIndex {
		return fmt.Sprint(step)
	}
	return fmt.Sprintf("%d.%d", step, index)
}

func (p *play) Condition(int) (bool, error) { return true, nil }

func (p *play) Items(int) (hashes []int64, _ error) {
	for _, item := range p.items {
		hashes = append(hashes, flow.HashItem(structpb.NewStringValue(item)))
	}
	return hashes, nil
}

func (p *play) Result() error  { return p.noResult }
func (p *play) Undo(int) error { return nil }

func (p *play) Begin(step, _ int) (due time.Time, err error) {
	if p.plan.Steps[step].Waits != flow.NoWait && p.due > 0 {
		due = p.now.Add(p.due)
	}
	return due, nil
}

func (p *play) ResultBytes(int, int) int          { return 0 }
func (p *play) OpenItems(step int) ([]int, error) { return p.itemsIn(step, "o"), nil }

func (p *play) DoneItems(step int) (done []flow.DoneItem, _ error) {
	for _, index := range p.itemsIn(step, "shk") {
		item := flow.DoneItem{Index: index}
		if value, known := p.values[p.name(step, index)]; known {
			hash := flow.HashItem(structpb.NewStringValue(value))
			item.Hash = &hash
		}
		done = append(done, item)
	}
	return done, nil
}

func (p *play) itemsIn(step int, letters string) (list []int) {
	for index := range 100 {
		if l, ok := p.rows[p.name(step, index)]; ok && strings.IndexByte(letters, l) >= 0 {
			list = append(list, index)
		}
	}
	return list
}

// decide makes a decision and records its effects.
func (p *play) decide(event func(*flow.Decision) error) {
	p.t.Helper()
	d := flow.Decide(p.plan, p.state, p, p.now)
	if err := event(d); err != nil {
		p.t.Fatal(err)
	}
	p.said = nil
	for _, e := range d.Effects {
		name := p.name(e.Step, e.Index)
		switch e.Kind {
		case flow.EffectBegin:
			p.rows[name] = byte(flow.Open)
			if e.Index != flow.NoIndex {
				p.values[name] = p.items[e.Index]
			}
		case flow.EffectEnd:
			p.rows[name] = byte(e.Status)
		case flow.EffectDropItems:
			rows, values := map[string]byte{}, map[string]string{}
			for before, now := range e.Kept {
				rows[p.name(e.Step, now)], values[p.name(e.Step, now)] = p.rows[p.name(e.Step, before)], p.values[p.name(e.Step, before)]
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
		p.said = append(p.said, string(e.Kind)+" "+name)
	}
}

func (p *play) start() { p.decide(func(d *flow.Decision) error { return d.Start() }) }

func (p *play) end(step, index int, l flow.StepStatus) {
	p.t.Helper()
	p.decide(func(d *flow.Decision) error {
		known, err := d.Ended(flow.Outcome{Step: step, Index: index, Round: p.state.Round, Status: l})
		if !known {
			p.t.Fatalf("the end of %s is not known", p.name(step, index))
		}
		return err
	})
}

func (p *play) did(effect string) bool { return slices.Contains(p.said, effect) }

func (p *play) want(steps string, mode flow.Mode) {
	p.t.Helper()
	if p.state.Steps != steps || p.state.Mode != mode {
		p.t.Fatalf("the run is %s with steps %s, want %s with %s", p.state.Mode, p.state.Steps, mode, steps)
	}
}

// TestItemsThatWaitFail checks that too many failed items of a step of waits end the other items,
// the step and the run.
func TestItemsThatWaitFail(t *testing.T) {
	for _, waits := range []flow.Waiting{flow.External, flow.Human, flow.Delay} {
		p := newPlay(t, flow.PlanStep{Each: true, Waits: waits})
		p.items, p.due = []string{"a", "b", "c"}, time.Hour
		p.start()
		p.end(0, 0, flow.Succeeded)
		p.end(0, 1, flow.Failed)
		p.want("f", flow.ModeEnded)
		if got := p.rows["0.2"]; got != byte(flow.Cancelled) {
			t.Fatalf("the wait that was open is %c", got)
		}
	}
}

// TestCleanUpIsStopped checks that a timeout, and then a cancel, reach a step that cleans up and
// began while the run stops.
func TestCleanUpIsStopped(t *testing.T) {
	graph := func() *play {
		p := newPlay(t, flow.PlanStep{}, flow.PlanStep{Deps: []int{0}, Join: progressorv1.JoinRule_JOIN_RULE_ALL_ENDED})
		p.plan.Timeout = time.Hour
		p.start()
		p.end(0, flow.NoIndex, flow.Failed)
		p.want("fo", flow.ModeStopping)
		return p
	}
	cancel := func(d *flow.Decision) error { return d.Cancel() }

	p := graph()
	p.decide(cancel)
	if !p.did("ask 1") {
		t.Errorf("a cancel does not reach the step that cleans up: %v", p.said)
	}
	p.end(1, flow.NoIndex, flow.Cancelled)
	p.want("fc", flow.ModeEnded)

	p = graph()
	p.now = p.now.Add(time.Hour)
	p.decide(func(d *flow.Decision) error { return d.Tick() })
	if !p.did("ask 1") {
		t.Errorf("the timeout does not reach the step that cleans up: %v", p.said)
	}
	p.decide(cancel)
	if p.did("ask 1") {
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
		p := newPlay(t, flow.PlanStep{Each: true}, flow.PlanStep{Deps: []int{0}})
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
		p.decide(func(d *flow.Decision) error { return d.Retry() })
		got := ""
		for _, index := range p.itemsIn(0, "o") {
			got += p.items[index]
			p.end(0, index, flow.Succeeded)
		}
		if got != test.want {
			t.Errorf("of %s %s was done, and now the list is %s: %q is done again, want %q", test.before, test.done, test.now, got, test.want)
		}
		p.want("so", flow.ModeRunning)
		if n := len(p.itemsIn(0, "s")); n != len(test.now) {
			t.Errorf("the list is %s, and %d items are stored", test.now, n)
		}
	}
}

// TestCleanUpOfALine checks that a step that cleans up in a linear template waits for all steps
// before it, even if the previous one was skipped by hand.
func TestCleanUpOfALine(t *testing.T) {
	p := newPlay(t, flow.PlanStep{}, flow.PlanStep{Deps: []int{0}}, flow.PlanStep{Deps: []int{1}, Join: progressorv1.JoinRule_JOIN_RULE_ALL_ENDED})
	p.plan.Linear = true
	p.start()
	p.decide(func(d *flow.Decision) error { return d.Skip(1, flow.NoIndex) })
	p.want("ohp", flow.ModeRunning)
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.want("sho", flow.ModeRunning)
}

// TestNoResult checks that a run whose result cannot be computed fails as if a step had failed: it
// uses its attempts, then undoes its steps.
func TestNoResult(t *testing.T) {
	p := newPlay(t, flow.PlanStep{Undoable: true})
	p.plan.MaxAttempts = 2
	p.noResult = errors.New("no such field")
	p.start()
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.want("s", flow.ModeResting)
	p.now = p.now.Add(time.Minute)
	p.decide(func(d *flow.Decision) error { return d.Tick() })
	p.want("s", flow.ModeCompensating)
	if !p.did("undo 0") {
		t.Errorf("the step is not undone: %v", p.said)
	}
	p.decide(func(d *flow.Decision) error {
		_, err := d.Ended(flow.Outcome{Step: 0, Index: flow.NoIndex, Round: p.state.Round, Undo: true, Status: flow.Succeeded})
		return err
	})
	if p.state.Mode != flow.ModeEnded || p.state.Status != flow.ByFailure || p.state.BadResult != "no such field" {
		t.Errorf("the run is %+v", p.state)
	}

	p.noResult = nil
	p.decide(func(d *flow.Decision) error { return d.Retry() })
	p.end(0, flow.NoIndex, flow.Succeeded)
	if p.state.Status != "succeeded" || p.state.BadResult != "" {
		t.Errorf("the run is %+v", p.state)
	}
}

// TestTimeoutWhileItUndoes checks that the timeout of a run does not end its compensations: a run
// that undoes its steps has no timer, and a tick after the timeout changes nothing.
func TestTimeoutWhileItUndoes(t *testing.T) {
	p := newPlay(t, flow.PlanStep{Undoable: true}, flow.PlanStep{Deps: []int{0}})
	p.plan.Timeout = time.Hour
	p.start()
	p.end(0, flow.NoIndex, flow.Succeeded)
	p.end(1, flow.NoIndex, flow.Failed)
	p.want("sf", flow.ModeCompensating)
	p.now = p.now.Add(2 * time.Hour)
	if at := p.state.Timer(p.now); !at.IsZero() {
		t.Errorf("the timer of the run is set to %v", at)
	}
	p.decide(func(d *flow.Decision) error { return d.Tick() })
	p.want("sf", flow.ModeCompensating)
	p.decide(func(d *flow.Decision) error {
		_, err := d.Ended(flow.Outcome{Step: 0, Index: flow.NoIndex, Round: p.state.Round, Undo: true, Status: flow.Failed})
		return err
	})
	if p.state.Mode != flow.ModeEnded || p.state.Status != flow.ByFailure {
		t.Errorf("the run is %+v", p.state)
	}
}
