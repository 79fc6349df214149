package flows

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// begun is the work that begins with a step or an item.
type begun struct {
	message *storage.Message // nil for a wait or a delay
	input   []byte           // JSON; nil for the payload
	token   string
	wait    []byte // JSON
	hash    int64  // of the value of an item
}

// waitOf is the content of the column wait of a wait.
type waitOf struct {
	Kind      string          `json:"kind"`
	Title     string          `json:"title,omitempty"`
	Assignees []string        `json:"assignees,omitempty"`
	Schema    json.RawMessage `json:"resultSchema,omitempty"`
}

// marked is the metadata of the work of a step.
type marked struct {
	RunID  string `json:"progressor.run_id"`
	StepID string `json:"progressor.step_id"`
}

// input is the part of a NOTIFY that reports the end of a step.
type input struct {
	Step  int   `json:"step"`
	Index int   `json:"index"`
	Round int32 `json:"round"`
	Undo  bool  `json:"undo,omitempty"`
}

// scope returns the scope of the expressions of the run.
func (t *task) scope() (*flow.Scope, error) {
	if t.payload == nil {
		text := []byte(t.state.Payload)
		if t.state.Large {
			row, err := flows.Get(t.ctx, t.flows.store, t.key.Namespace, t.runID)
			if err != nil {
				return nil, t.faulted(err)
			}
			text = row.Payload
		}
		payload, err := valueOf(text)
		if err != nil {
			return nil, err
		}
		t.payload = orNull(payload)
	}
	return &flow.Scope{
		Payload: t.payload, Scope: t.state.Scope, ScopeID: t.state.ScopeID, RunID: t.runID, Attempt: t.state.Run.Attempt, CreatedTime: t.state.Created, Step: t.value,
	}, nil
}

// value returns the outcome of a step for the expressions of later steps.
func (t *task) value(step int) (flow.Ended, error) {
	if v, ok := t.values[step]; ok {
		return v, nil
	}
	v := flow.Ended{Status: string(statusOf(t.decision.Status(step)))}
	if t.template.Steps[step].ForEach() && t.decision.Status(step) == flow.Succeeded && t.decision.EndsNow(step) {
		if _, err := t.results(step); err != nil {
			return v, err
		}
	}
	if e := t.ends[place{step, noIndex}]; e != nil {
		result, err := valueOf(e.result)
		if err != nil {
			return v, err
		}
		v.Result, v.Failure = result, e.failure
	} else if t.decision.Status(step) != flow.Pending {
		rows, err := flows.Values(t.ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID)
		if err != nil {
			return v, t.faulted(err)
		}
		for _, row := range rows {
			if v.Result, err = valueOf(row.Result); err != nil {
				return v, err
			}
			if v.Failure, err = wire.Failure(row.Failure); err != nil {
				return v, err
			}
		}
	}
	t.values[step] = v
	return v, nil
}

// Condition implements flow.Reader.
func (t *task) Condition(step int) (bool, error) {
	scope, err := t.scope()
	if err != nil {
		return false, err
	}
	return t.template.Condition(&t.template.Steps[step], scope)
}

// Items implements flow.Reader.
func (t *task) Items(step int) ([]int64, error) {
	list, err := t.items(step)
	if err != nil {
		return nil, err
	}
	return list.hashes, nil
}

// itemList is the items of a step and their hashes.
type itemList struct {
	values []*structpb.Value
	hashes []int64
}

// listKey identifies the items of a step. The values that its expression can see do not change
// within a round.
type listKey struct {
	process.Key
	created int64
	step    int
	round   int32
}

// lists caches the items of the steps that this node began last. A step of 10,000 items begins them
// 100 at a time, or one whenever another ends.
type lists struct {
	mu  sync.Mutex
	all map[listKey]*itemList
}

const maxLists = 32

func (t *task) items(step int) (*itemList, error) {
	k := listKey{t.key, t.state.Created.UnixMicro(), step, t.state.Run.Round}
	c := &t.flows.lists
	c.mu.Lock()
	list, ok := c.all[k]
	c.mu.Unlock()
	if ok {
		return list, nil
	}
	scope, err := t.scope()
	if err != nil {
		return nil, err
	}
	list = &itemList{}
	if list.values, err = t.template.Items(&t.template.Steps[step], scope); err != nil {
		return nil, err
	}
	for _, item := range list.values {
		list.hashes = append(list.hashes, flow.HashItem(item))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxLists {
		c.all = map[listKey]*itemList{}
	}
	c.all[k] = list
	return list, nil
}

// OpenItems implements flow.Reader.
func (t *task) OpenItems(step int) ([]int, error) {
	rows, err := flows.ItemsOf(t.ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID, false)
	var open []int
	for _, row := range rows {
		if row.Status == flows.StepRunning {
			open = append(open, int(row.Index))
		}
	}
	return open, t.faulted(err)
}

// ResultBytes implements flow.Reader.
func (t *task) ResultBytes(step, index int) int {
	if e := t.ends[place{step, index}]; e != nil {
		return len(e.result)
	}
	return 0
}

// DoneItems implements flow.Reader.
func (t *task) DoneItems(step int) ([]flow.DoneItem, error) {
	rows, err := flows.ItemsOf(t.ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID, false)
	var done []flow.DoneItem
	for _, row := range rows {
		if row.Status == flows.StepSucceeded || row.Status == flows.StepSkipped {
			done = append(done, flow.DoneItem{Index: int(row.Index), Hash: row.ItemHash})
		}
	}
	return done, t.faulted(err)
}

// doer returns the process id, without its prefix, of the work of a step or an item, or of the
// compensation of a step.
func (t *task) doer(p place, undo bool) string {
	id := t.runID + "/" + t.template.Steps[p.step].ID
	if p.index != noIndex {
		id += "." + strconv.Itoa(p.index)
	}
	if undo {
		id += ".undo"
	}
	if round := t.state.Run.Round; round > 1 {
		id += "~" + strconv.Itoa(int(round))
	}
	return id
}

// Begin implements flow.Reader.
func (t *task) Begin(step, index int) (due time.Time, err error) {
	s, p := &t.template.Steps[step], place{step, index}
	scope, err := t.scope()
	if err != nil {
		return due, err
	}
	b := &begun{}
	if index != noIndex {
		list, err := t.items(step)
		if err != nil {
			return due, err
		}
		if index >= len(list.values) {
			return due, errors.New("for_each.items has fewer items than when the step began")
		}
		scope.Item, scope.Index, b.hash = list.values[index], index, list.hashes[index]
	}
	t.begun[p] = b
	input, err := t.template.Input(s, scope)
	if err != nil {
		return due, err
	}
	if s.Source.GetInput() != nil || index != noIndex {
		if b.input, err = resultJSON(fmt.Sprintf("steps[%d].input", step), input); err != nil {
			return due, err
		}
	}
	switch s.Action {
	case flow.ActionJob:
		b.message, err = t.job(s, s.Source.GetJob(), p, false, input)
	case flow.ActionProcess:
		b.message, err = t.start(s, p, input)
		due = t.timeoutOf(s)
	case flow.ActionRun:
		b.message, err = t.run(s, p, scope)
		due = t.timeoutOf(s)
	case flow.ActionDelay:
		return t.template.Until(s, scope, t.now)
	case flow.ActionWait:
		return t.open(s, b, scope)
	}
	return due, err
}

// timeoutOf returns when the process or the run of a step that begins now exceeds its timeout, or
// the zero time if it has none.
func (t *task) timeoutOf(s *flow.Step) (due time.Time) {
	if timeout := s.Source.GetTimeout().AsDuration(); timeout > 0 {
		due = t.now.Add(timeout)
	}
	return due
}

// Undo implements flow.Reader.
func (t *task) Undo(step int) error {
	s, p := &t.template.Steps[step], place{step, noIndex}
	v, err := t.value(step)
	if err != nil {
		return err
	}
	scope, err := t.scope()
	if err != nil {
		return err
	}
	input := scope.Payload
	if s.Source.GetInput() != nil && !s.ForEach() {
		if input, err = t.template.Input(s, scope); err != nil {
			return err
		}
	}
	result := v.Result
	if s.ForEach() && t.decision.Status(step) != flow.Succeeded { // some of its items succeeded
		text, err := t.itemResults(step)
		if err != nil {
			return err
		}
		if result, err = valueOf(text); err != nil {
			return err
		}
	}
	args := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"input": input, "result": orNull(result)}})
	m, err := t.job(s, s.Source.GetCompensation(), p, true, args)
	if err == nil {
		t.messages = append(t.messages, *m)
	}
	return err
}

// job returns the message that enqueues the job of a step or of its compensation. Its cancel has
// the grace period of the template.
func (t *task) job(s *flow.Step, action *progressorv1.JobAction, p place, undo bool, args *structpb.Value) (*storage.Message, error) {
	options := proto.CloneOf(action.GetOptions())
	if options == nil {
		options = &progressorv1.JobOptions{}
	}
	if timeout := s.Source.GetTimeout(); timeout != nil && !undo {
		options.Timeout = timeout
	}
	if options.CancelGrace == nil {
		options.CancelGrace = durationpb.New(t.template.Grace())
	}
	j, err := t.flows.newJob(fmt.Sprintf("steps[%d].job.", p.step), &progressorv1.EnqueueRequest{
		Namespace: cmp.Or(action.GetNamespace(), t.key.Namespace), JobId: process.StepPrefix + t.doer(p, undo), Name: cmp.Or(action.GetName(), s.ID), Args: args, Options: options,
	})
	if err != nil {
		return nil, err
	}
	if j.Metadata == nil {
		j.Metadata = t.mark(s.ID)
	}
	m, err := j.Message()
	if err != nil {
		return nil, err
	}
	m.NotifyParentArgs = t.inputOf(p, undo)
	return &m, nil
}

// mark returns the default metadata of the work of a step: the ids of its run and step.
func (t *task) mark(stepID string) []byte {
	text, _ := json.Marshal(marked{t.runID, stepID}) // cannot fail: plain strings
	return text
}

func (t *task) inputOf(p place, undo bool) []byte {
	text, _ := json.Marshal(input{p.step, p.index, t.state.Run.Round, undo}) // cannot fail: plain fields
	return text
}

// start returns the message that starts the process of a step.
func (t *task) start(s *flow.Step, p place, input *structpb.Value) (*storage.Message, error) {
	action := s.Source.GetProcess()
	args := action.GetArgs()
	if args == nil {
		text, err := resultJSON("input", orNull(input))
		if err != nil {
			return nil, err
		}
		args = text
	}
	metadata, err := wire.JSON(action.GetMetadata())
	if err != nil {
		return nil, err
	}
	if metadata == nil {
		metadata = t.mark(s.ID)
	}
	return &storage.Message{
		Kind: storage.MessageStart, Target: process.Key{Namespace: cmp.Or(action.GetNamespace(), t.key.Namespace), ProcessID: t.doer(p, false)}, Args: args, Metadata: metadata,
		NotifyParentArgs: t.inputOf(p, false),
	}, nil
}

// run returns the message that starts the run of a step.
func (t *task) run(s *flow.Step, p place, scope *flow.Scope) (*storage.Message, error) {
	payload, err := t.template.Payload(s, scope)
	if err != nil {
		return nil, err
	}
	text, err := resultJSON("payload", payload)
	if err != nil {
		return nil, err
	}
	id := t.doer(p, false)
	if len(id) > maxRunID {
		return nil, fmt.Errorf("the ID of its run, %s, would have %d bytes, at most %d: start the outer run with a shorter ID", id, len(id), maxRunID)
	}
	args, err := encode(&command{Method: methodStart, startFields: startFields{
		Type: s.Source.GetRun().GetType(), Version: s.Source.GetRun().GetVersion(), Payload: text, Parent: t.runID,
	}})
	if err != nil {
		return nil, err
	}
	return &storage.Message{Kind: storage.MessageStart, Target: keyOf(t.key.Namespace, id), Args: args, NotifyParentArgs: t.inputOf(p, false)}, nil
}

// open begins a wait.
func (t *task) open(s *flow.Step, b *begun, scope *flow.Scope) (due time.Time, err error) {
	w := s.Source.GetWait()
	row := waitOf{Kind: "EXTERNAL"}
	if w.GetKind() == progressorv1.WaitAction_KIND_HUMAN {
		row.Kind = "HUMAN"
	}
	if row.Title, err = t.template.Title(s, scope); err != nil {
		return due, err
	}
	if row.Assignees, err = t.template.Assignees(s, scope); err != nil {
		return due, err
	}
	if w.GetResultSchema() != nil {
		if row.Schema, err = protojson.Marshal(w.GetResultSchema()); err != nil {
			return due, err
		}
	}
	if b.wait, err = json.Marshal(row); err != nil {
		return due, err
	}
	b.token = rand.Text()
	if w.GetDue() != nil {
		due = t.now.Add(w.GetDue().AsDuration())
	}
	return due, nil
}

// valueOf decodes JSON. It returns nil if there is none.
func valueOf(text []byte) (*structpb.Value, error) { return wire.Value(text) }

func orNull(v *structpb.Value) *structpb.Value {
	if v == nil {
		return structpb.NewNullValue()
	}
	return v
}
