package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// world is the environment of a run in a test: the work that is open, its outcomes, and the values
// of the conditions.
type world struct {
	t         *rapid.T
	plan      *flow.Plan
	state     *flow.State
	now       time.Time
	items     map[int]int
	open      map[[2]int]bool // begun and not ended
	asked     map[[2]int]bool
	succeeded map[[2]int]bool         // and not undone
	stored    map[[2]int]bool         // stored as succeeded or skipped, in any attempt
	redone    map[[2]int]bool         // items that succeeded or were skipped since their step was undone
	ends      map[int]flow.StepStatus // statuses of the steps that have ended
	stale     map[int]bool            // steps that were undone and have not run again
	order     []int                   // steps in the order of their success
	due       map[[2]int]time.Time    // due times of open work
	undoing   int                     // -1 if none
	undone    []int
	notUndone []int // steps whose compensation failed
	cancelled bool

	// The random choices of this decision, the choices that lack a fact, and the provided facts.
	draws, lacks map[string]int
	provided     map[flow.Need]bool
}

var errBroken = errors.New("broken")

// drawn returns a random choice, which stays the same within a decision. In one of four cases, it
// returns a Need until the fact is provided.
func (w *world) drawn(name string, step, index int, most int) (n int, err error) {
	key := fmt.Sprint(name, step, ".", index)
	n, known := w.draws[key]
	if !known {
		n = rapid.IntRange(0, most).Draw(w.t, name)
		w.draws[key] = n
		if rapid.IntRange(0, 3).Draw(w.t, "lacks") == 0 {
			w.lacks[key] = rapid.IntRange(0, len(w.plan.Steps)-1).Draw(w.t, "lacks step")
		}
	}
	need := flow.Need{Kind: flow.NeedValue, Step: w.lacks[key]}
	if _, lacks := w.lacks[key]; lacks && !w.provided[need] {
		return 0, need
	}
	return n, nil
}

// failAtRandom returns errBroken in one of 31 cases, or a Need.
func (w *world) failAtRandom(name string, step, index int) error {
	if n, err := w.drawn(name, step, index, 30); n > 0 || err != nil {
		return err
	}
	return errBroken
}

func (w *world) Condition(_ *flow.Decision, step int) (bool, error) {
	n, err := w.drawn("condition", step, flow.NoIndex, 1)
	return n > 0, err
}

func (w *world) Items(_ *flow.Decision, step int) ([]int64, error) {
	_, err := w.drawn("items", step, flow.NoIndex, 0)
	return make([]int64, w.items[step]), err
}

func (w *world) Collect(_ *flow.Decision, step int) ([]byte, error) {
	_, err := w.drawn("results of items", step, flow.NoIndex, 0)
	return nil, err
}

func (w *world) Result(*flow.Decision) ([]byte, error) {
	return nil, w.failAtRandom("no result", 0, flow.NoIndex)
}

func (w *world) Undo(_ *flow.Decision, step int) (work any, _ error) {
	return nil, w.failAtRandom("undo cannot begin", step, flow.NoIndex)
}

func (w *world) Begin(_ *flow.Decision, step, index int) (work any, due time.Time, err error) {
	if err := w.failAtRandom("cannot begin", step, index); err != nil {
		return nil, due, err
	}
	n, err := w.drawn("due", step, index, 1)
	if w.plan.Steps[step].Waits != flow.NoWait && n > 0 {
		due = w.now.Add(time.Minute)
	}
	return nil, due, err
}

// provide provides a fact that a decision lacks.
func (w *world) provide(need flow.Need) (items []flow.Item) {
	w.provided[need] = true
	if need.Kind != flow.NeedItems {
		return nil
	}
	for _, index := range w.itemsOf(w.open, need.Step) {
		items = append(items, flow.Item{Index: index, Status: flow.Running})
	}
	for _, index := range w.itemsOf(w.stored, need.Step) {
		items = append(items, flow.Item{Index: index, Status: flow.Succeeded, Hash: new(int64)})
	}
	return items
}

func (w *world) itemsOf(set map[[2]int]bool, step int) (list []int) {
	for k := range set {
		if k[0] == step && k[1] != flow.NoIndex {
			list = append(list, k[1])
		}
	}
	slices.Sort(list)
	return list
}

// drawPlan draws a plan without cycles.
func drawPlan(t *rapid.T) *flow.Plan {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	p := &flow.Plan{
		Steps: make([]flow.PlanStep, n), Linear: rapid.Bool().Draw(t, "linear"),
		MaxAttempts: int32(rapid.IntRange(1, 3).Draw(t, "attempts")),
		Backoff:     func(int32) time.Duration { return time.Minute },
		Grace:       time.Duration(rapid.IntRange(0, 1).Draw(t, "grace")) * time.Minute,
	}
	if rapid.Bool().Draw(t, "timeout") {
		p.Timeout = 10 * time.Minute
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case p.Linear && i > 0:
			s.Deps = []int{i - 1}
		case !p.Linear:
			for j := range i {
				if rapid.IntRange(0, 2).Draw(t, "depends") == 0 {
					s.Deps = append(s.Deps, j)
				}
			}
			s.Join = progressorv1.JoinRule(rapid.IntRange(1, 4).Draw(t, "join"))
		}
		for _, j := range s.Deps {
			p.Steps[j].Dependents = append(p.Steps[j].Dependents, i)
		}
		s.Conditional = rapid.IntRange(0, 4).Draw(t, "conditional") == 0
		s.Each = rapid.IntRange(0, 3).Draw(t, "each") == 0
		s.MaxRunning = rapid.IntRange(0, 3).Draw(t, "max running")
		s.MaxFailures = rapid.IntRange(0, 2).Draw(t, "max failures")
		s.Waits = flow.Waiting(max(rapid.IntRange(-4, 3).Draw(t, "waits"), 0))
		s.Cancelable = rapid.Bool().Draw(t, "cancelable")
		s.Ignore = rapid.IntRange(0, 3).Draw(t, "ignore") == 0
		s.Undoable = rapid.Bool().Draw(t, "undoable")
	}
	return p
}

// TestRunsOfRandomGraphs drives runs of random graphs with random outcomes, cancels, skips and
// retries. For each step that begins, it checks the rules on the complete graph. Decisions do not
// read the complete graph. Every run has to end.
func TestRunsOfRandomGraphs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, plan: drawPlan(t), now: time.Unix(1e9, 0), items: map[int]int{}}
		for step := range w.plan.Steps {
			w.items[step] = rapid.SampledFrom([]int{0, 1, 3, 7, 150}).Draw(t, "items")
		}
		w.ends, w.stale = map[int]flow.StepStatus{}, map[int]bool{}
		w.open, w.asked, w.succeeded, w.undoing = map[[2]int]bool{}, map[[2]int]bool{}, map[[2]int]bool{}, -1
		w.stored, w.redone, w.due = map[[2]int]bool{}, map[[2]int]bool{}, map[[2]int]time.Time{}
		w.state = flow.NewState(w.plan)
		w.decide(flow.Input{Kind: flow.InputStart})
		for range 5000 {
			if w.state.Mode == flow.ModeEnded {
				if !w.retryAtRandom() {
					w.atEnd()
					return
				}
				continue
			}
			w.randomEvent()
		}
		t.Fatalf("the run does not end: %+v, open %v", w.state, w.open)
	})
}

// retryAtRandom retries a run that did not succeed, in one of three cases, and reports whether it
// did.
func (w *world) retryAtRandom() bool {
	if w.state.Status == "succeeded" || rapid.IntRange(0, 2).Draw(w.t, "retry") != 0 {
		return false
	}
	if len(w.open) != 0 {
		w.t.Fatalf("the run has ended, but these steps are open: %v", w.open)
	}
	for _, step := range w.undone {
		for k := range w.succeeded {
			if k[0] == step {
				delete(w.succeeded, k)
			}
		}
		for _, index := range w.itemsOf(w.redone, step) {
			delete(w.redone, [2]int{step, index})
		}
	}
	w.order, w.undone, w.notUndone, w.cancelled = w.notUndone, nil, nil, false
	w.decide(flow.Input{Kind: flow.InputRetry})
	return true
}

// randomEvent makes one random event happen.
func (w *world) randomEvent() {
	before := w.state.Mode
	switch n := rapid.IntRange(0, 30).Draw(w.t, "event"); {
	case n == 0 && before != flow.ModeCompensating && !w.cancelled:
		w.cancelled = true
		w.decide(flow.Input{Kind: flow.InputCancel})
	case n == 1:
		w.skip()
	case n < 4 || len(w.open) == 0 && w.undoing < 0:
		if at := w.state.Timer(w.now); at.After(w.now) {
			w.now = at
		}
		for _, due := range w.state.DueNow(w.now) {
			w.endDue(due)
		}
		w.decide(flow.Input{Kind: flow.InputTick})
	case w.undoing >= 0:
		l := rapid.SampledFrom([]flow.StepStatus{flow.Succeeded, flow.Failed}).Draw(w.t, "undone")
		o := flow.Outcome{Step: w.undoing, Index: flow.NoIndex, Undo: true, Round: w.state.Round, Status: l}
		if d := w.decide(flow.Input{Kind: flow.InputEnd, Outcome: o}); !d.Known[0] {
			w.t.Fatal("the end of a compensation was ignored")
		}
	default:
		open := w.opened()
		k := open[rapid.IntRange(0, len(open)-1).Draw(w.t, "which")]
		letters := []flow.StepStatus{flow.Succeeded, flow.Succeeded, flow.Succeeded, flow.Failed}
		if w.asked[k] {
			letters = append(letters, flow.Cancelled, flow.Cancelled)
		}
		w.end(k, flow.Outcome{Status: rapid.SampledFrom(letters).Draw(w.t, "end"),
			WorkerLost: rapid.IntRange(0, 5).Draw(w.t, "lost") == 0})
	}
}

// endDue ends the step or the due items of a deadline.
func (w *world) endDue(due flow.Deadline) {
	keys := [][2]int{{due.Step, due.Index}}
	if due.Index != flow.NoIndex {
		keys = nil
		w.state.ClearDeadline(due.Step)
		for _, index := range w.itemsOf(w.open, due.Step) {
			switch k := [2]int{due.Step, index}; {
			case w.due[k].IsZero():
			case w.due[k].After(w.now):
				w.state.SetDeadline(due.Step, index, w.due[k])
			default:
				keys = append(keys, k)
			}
		}
	}
	for _, k := range keys {
		delete(w.due, k) // they end one after the other: between two ends, the others need no deadline
	}
	for _, k := range keys {
		letters := []flow.StepStatus{flow.Succeeded, flow.Failed, flow.Skipped}
		w.end(k, flow.Outcome{Status: rapid.SampledFrom(letters).Draw(w.t, "at its due time")})
	}
}

// checkDeadlines checks that open work keeps its deadlines.
func (w *world) checkDeadlines() {
	for k, at := range w.due {
		known := slices.ContainsFunc(w.state.Deadlines, func(d flow.Deadline) bool {
			return d.Step == k[0] && (d.Index == flow.NoIndex) == (k[1] == flow.NoIndex) && !d.At.After(at)
		})
		if w.open[k] && !at.IsZero() && !known && w.state.Mode != flow.ModeEnded {
			w.t.Fatalf("%v is due at %s, but the deadlines are %v", k, at, w.state.Deadlines)
		}
	}
	if len(w.state.Deadlines) > len(w.plan.Steps) {
		w.t.Fatalf("%d deadlines of %d steps", len(w.state.Deadlines), len(w.plan.Steps))
	}
}

func (w *world) opened() (list [][2]int) {
	for k := range w.open {
		if !w.plan.Steps[k[0]].Each || k[1] != flow.NoIndex {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return list
}

func (w *world) end(k [2]int, o flow.Outcome) {
	if !w.open[k] {
		return
	}
	o.Step, o.Index, o.Round = k[0], k[1], w.state.Round
	if d := w.decide(flow.Input{Kind: flow.InputEnd, Outcome: o}); !d.Known[0] {
		w.t.Fatalf("the end of %v was ignored", k)
	}
	if w.plan.Steps[k[0]].Each || w.open[k] {
		return // the state does not record which items have ended: each message arrives once
	}
	if d := w.decide(flow.Input{Kind: flow.InputEnd, Outcome: o}); d.Known[0] {
		w.t.Fatalf("%v has ended twice", k)
	}
}

func (w *world) skip() {
	var may []int
	for step := range w.plan.Steps {
		if l := w.state.StatusOf(step); l == flow.Running || l == flow.Pending {
			may = append(may, step)
		}
	}
	if len(may) == 0 || w.state.Mode == flow.ModeCompensating {
		return
	}
	step := rapid.SampledFrom(may).Draw(w.t, "skip")
	w.decide(flow.Input{Kind: flow.InputSkip, Outcome: flow.Outcome{Step: step, Index: flow.NoIndex}})
	for k := range w.open {
		if k[0] == step {
			w.t.Fatalf("step %d was skipped, but %v is open", step, k)
		}
	}
}

// decide makes a decision and applies its effects.
func (w *world) decide(inputs ...flow.Input) *flow.Decision {
	state := &flow.State{}
	if err := json.Unmarshal([]byte(encoded(w.t, w.state)), state); err != nil {
		w.t.Fatal(err)
	}
	if err := state.Fits(w.plan); err != nil {
		w.t.Fatal(err)
	}
	w.draws, w.lacks, w.provided = map[string]int{}, map[string]int{}, map[flow.Need]bool{}
	d := decide(w.t, w.plan, state, flow.Facts{Now: w.now, Rules: w}, w.provide, inputs...)
	w.state = d.State
	begun := 0
	for _, e := range d.Effects {
		w.apply(e)
		if e.Kind == flow.EffectBegin {
			begun++
		}
	}
	if begun > 101 {
		w.t.Fatalf("one decision begins %d steps and items", begun)
	}
	w.checkDeadlines()
	return d
}

// apply checks and applies one effect.
func (w *world) apply(e flow.Effect) {
	k := [2]int{e.Step, e.Index}
	switch e.Kind {
	case flow.EffectBegin:
		if w.open[k] || w.succeeded[k] {
			w.t.Fatalf("%v begins, although it is open or has succeeded", k)
		}
		if !w.open[[2]int{e.Step, flow.NoIndex}] {
			w.checkBegin(e.Step)
		}
		w.open[k], w.due[k] = true, e.Due
		delete(w.stored, k)
		if e.Index != flow.NoIndex {
			if limit := w.plan.Steps[e.Step].MaxRunning; limit > 0 && len(w.itemsOf(w.open, e.Step)) > limit {
				w.t.Fatalf("more than %d items of step %d are open", limit, e.Step)
			}
		}
	case flow.EffectEnd:
		delete(w.open, k)
		delete(w.asked, k)
		if delete(w.stored, k); e.Status != flow.Failed && e.Status != flow.Cancelled {
			w.stored[k], w.redone[k] = true, true
		}
		if e.Index == flow.NoIndex {
			w.ends[e.Step] = e.Status
			delete(w.stale, e.Step)
		}
		if e.Status == flow.Succeeded {
			w.succeeded[k] = true
		}
		partly := e.Status != flow.ByHand && len(w.itemsOf(w.redone, e.Step)) > 0
		if e.Index == flow.NoIndex && w.plan.Steps[e.Step].Undoable && (e.Status == flow.Succeeded || partly) {
			w.order = append(w.order, e.Step)
		}
	case flow.EffectDropItems:
		if len(e.Kept) > 0 {
			w.t.Fatalf("the list of step %d is the same, but its items move: %v", e.Step, e.Kept)
		}
		for _, index := range w.itemsOf(w.stored, e.Step) {
			delete(w.stored, [2]int{e.Step, index})
		}
	case flow.EffectCancel:
		w.asked[k] = true
	case flow.EffectReset:
		delete(w.ends, e.Step)
		w.order = slices.DeleteFunc(w.order, func(step int) bool { return step == e.Step })
	case flow.EffectCompensate:
		w.undoing = e.Step
	case flow.EffectCompensated:
		w.undoing = -1
		if last := w.order[len(w.order)-1]; last != e.Step {
			w.t.Fatalf("step %d is undone before step %d, which succeeded later", e.Step, last)
		}
		w.order = w.order[:len(w.order)-1]
		if e.Status == flow.Succeeded {
			w.undone = append(w.undone, e.Step)
			w.stale[e.Step] = true
		} else {
			w.notUndone = append([]int{e.Step}, w.notUndone...)
		}
	}
}

// checkBegin checks that all direct and indirect dependencies of a step are done, and that none of
// them was undone without having run again.
func (w *world) checkBegin(step int) {
	if !w.depsEnded(step) {
		w.t.Fatalf("step %d begins before its dependencies have ended: %v", step, w.ends)
	}
	seen := map[int]bool{}
	var look func(int)
	look = func(step int) {
		for _, dep := range w.plan.Steps[step].Deps {
			if _, ended := w.ends[dep]; ended && w.stale[dep] {
				w.t.Fatalf("a step begins with the result of step %d, which was undone", dep)
			}
			if !seen[dep] {
				seen[dep] = true
				look(dep)
			}
		}
	}
	look(step)
}

// depsEnded reports whether all direct and indirect dependencies of a step have ended. If the first
// success is enough, it looks for one path.
func (w *world) depsEnded(step int) bool {
	all, one := true, false
	for _, dep := range w.plan.Steps[step].Deps {
		l, ended := w.ends[dep]
		ended = ended && w.depsEnded(dep)
		all = all && ended
		one = one || ended && (l == flow.Succeeded || l == flow.ByHand)
	}
	return all || one && w.plan.Steps[step].Join == progressorv1.JoinRule_JOIN_RULE_ANY_SUCCEEDED
}

// atEnd checks the invariants of a run that has ended.
func (w *world) atEnd() {
	if w.state.Status == "succeeded" {
		for step := range w.plan.Steps {
			if l := w.state.StatusOf(step); l == flow.Failed || l == flow.Cancelled || l == flow.Pending ||
				l == flow.Running {
				w.t.Fatalf("the run succeeded, but step %d is %c", step, l)
			}
			each := w.state.Each[step]
			if each != nil && w.state.StatusOf(step) == flow.Succeeded &&
				len(w.itemsOf(w.redone, step)) < each.Count-each.Failed {
				w.t.Fatalf("step %d succeeded, but %d of its %d items failed; done: %v", step, each.Failed,
					each.Count, w.itemsOf(w.redone, step))
			}
		}
		return
	}
	if len(w.order) != 0 {
		w.t.Fatalf("the run is %s, but these steps are not undone: %v", w.state.Status, w.order)
	}
	if !w.state.Timer(w.now).IsZero() {
		w.t.Fatalf("the run has ended, but has a timer: %+v", w.state)
	}
	for step := range w.plan.Steps {
		if l := w.state.StatusOf(step); l == flow.Pending || l == flow.Running {
			w.t.Fatalf("the run has ended, but step %d is %c", step, l)
		}
	}
}
