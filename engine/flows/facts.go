package flows

import (
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// facts are the stored data that a task has loaded for its decision. A decision names the facts
// that it lacks. Results of steps can be large, so they are not loaded in advance.
type facts struct {
	payload *structpb.Value          // nil if it is not loaded
	values  map[int]flow.Ended       // results and failures by step
	items   map[int][]flow.Item      // by step
	results map[int]map[int][]byte   // by step and item, as JSON
	decoded map[*flow.End]flow.Ended // the ends of steps that end in this task
}

func newFacts() facts {
	return facts{
		values: map[int]flow.Ended{}, items: map[int][]flow.Item{}, results: map[int]map[int][]byte{},
		decoded: map[*flow.End]flow.Ended{},
	}
}

// ended returns the outcome of a step that ends in this task, without its status.
func (f *facts) ended(end *flow.End) (flow.Ended, error) {
	v, known := f.decoded[end]
	if known {
		return v, nil
	}
	var err error
	v.Result, err = wire.Value(end.Result)
	v.Failure = failureOf(end)
	f.decoded[end] = v
	return v, err
}

// decide runs flow.Decide for inputs. It loads missing facts until the decision is complete.
func (t *task) decide(inputs ...flow.Input) error {
	t.before.steps = t.state.Run.Steps
	for {
		known := flow.Facts{Now: t.now, Items: t.facts.items, Rules: rules{&t.basis}}
		d := flow.Decide(t.template.plan, t.state.Run, known, inputs...)
		if len(d.Missing) == 0 {
			t.decision, t.state.Run = d, d.State
			return nil
		}
		if err := t.load(d.Missing...); err != nil {
			return err
		}
	}
}

// load loads facts. It reads the results of several steps with one statement.
func (t *task) load(needs ...flow.Need) error {
	var steps []string
	for _, need := range needs {
		var err error
		switch need.Kind {
		case flow.NeedPayload:
			err = t.loadPayload()
		case flow.NeedValue:
			t.facts.values[need.Step] = flow.Ended{}
			steps = append(steps, t.template.Steps[need.Step].ID)
		case flow.NeedItems:
			err = t.loadItems(need.Step)
		case flow.NeedResults:
			err = t.loadResults(need.Step)
		}
		if err != nil {
			return readError(err)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	rows, err := flows.Values(t.Ctx, t.flows.store, t.key.Namespace, t.runID, steps...)
	if err != nil {
		return readError(err)
	}
	for _, row := range rows {
		step, _ := t.template.Index(row.StepID)
		var v flow.Ended
		if v.Result, err = wire.Value(row.Result); err != nil {
			return err
		}
		if v.Failure, err = wire.Failure(row.Failure); err != nil {
			return err
		}
		t.facts.values[step] = v
	}
	return nil
}

func (t *task) loadPayload() error {
	row, err := flows.Get(t.Ctx, t.flows.store, t.key.Namespace, t.runID)
	if err != nil {
		return err
	}
	payload, err := wire.Value(row.Payload)
	t.facts.payload = orNull(payload)
	return err
}

// loadItems loads the items of a step that are running, have succeeded or were skipped.
func (t *task) loadItems(step int) error {
	rows, err := flows.ItemsOf(t.Ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID, false)
	if err != nil {
		return err
	}
	var items []flow.Item
	for n := range rows {
		item := flow.Item{Index: int(rows[n].Index), Hash: rows[n].ItemHash}
		switch rows[n].Status {
		case flows.StepRunning:
			item.Status = flow.Running
		case flows.StepSucceeded:
			item.Status = flow.Succeeded
		case flows.StepSkipped:
			item.Status = flow.Skipped
		case flows.StepPending, flows.StepFailed, flows.StepCancelled:
			continue
		}
		items = append(items, item)
	}
	t.facts.items[step] = items
	return nil
}

func (t *task) loadResults(step int) error {
	rows, err := flows.ItemsOf(t.Ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID, true)
	results := make(map[int][]byte, len(rows))
	for n := range rows {
		results[int(rows[n].Index)] = rows[n].Result
	}
	t.facts.results[step] = results
	return err
}

// value returns the outcome of a step after the decision, and loads it if necessary.
func (t *task) value(step int) (flow.Ended, error) {
	v, err := rules{&t.basis}.value(t.decision, step)
	need, lacks := errors.AsType[flow.Need](err)
	if !lacks {
		return v, err
	}
	if err := t.load(need); err != nil {
		return v, err
	}
	return rules{&t.basis}.value(t.decision, step)
}

// readError marks the error of a failed read, so that the task is retried.
func readError(err error) error { return &processor.UnreachableError{Err: err} }

func orNull(v *structpb.Value) *structpb.Value {
	if v == nil {
		return structpb.NewNullValue()
	}
	return v
}
