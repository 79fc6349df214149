package flows

import (
	"cmp"
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
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// work is the work that a step or an item begins.
type work struct {
	job     *jobs.NewJob     // without keys; nil if the work is not a job
	message *storage.Message // nil for a job, a wait or a delay
	from    origin
	input   []byte // JSON; nil for the payload
	wait    []byte // JSON
	hash    int64  // hash of the value of an item
}

// waitOf is the JSON in the column wait of a wait.
type waitOf struct {
	Kind      string          `json:"kind"`
	Title     string          `json:"title,omitempty"`
	Assignees []string        `json:"assignees,omitempty"`
	Schema    json.RawMessage `json:"resultSchema,omitempty"`
}

// marked is the metadata for the work of a step.
type marked struct {
	RunID  string `json:"progressor.run_id"`
	StepID string `json:"progressor.step_id"`
}

// origin names the step or item for which a run began work. It is the args of the NOTIFY task that
// reports the end of the work.
type origin struct {
	Step  int   `json:"step"`
	Index int   `json:"index"`
	Round int32 `json:"round"`
	Undo  bool  `json:"undo,omitempty"` // for the compensation of the step
}

// json returns the origin as it is stored.
func (o origin) json() []byte {
	text, _ := json.Marshal(o) // cannot fail: plain fields
	return text
}

// rules implements flow.Rules for the template of a run. It only uses the state of the run, the
// facts that the task has loaded, and lists of items that were computed before.
type rules struct{ *basis }

// scope returns the scope of the expressions of the run.
func (r rules) scope(d *flow.Decision) (*flow.Scope, error) {
	if r.facts.payload == nil {
		if r.state.Large {
			return nil, flow.Need{Kind: flow.NeedPayload}
		}
		payload, err := wire.Value(r.state.Payload)
		if err != nil {
			return nil, err
		}
		r.facts.payload = orNull(payload)
	}
	return &flow.Scope{
		Payload: r.facts.payload, Scope: r.state.Scope, ScopeID: r.state.ScopeID, RunID: r.runID,
		Attempt: d.State.Attempt, CreatedTime: r.state.Created,
		Step: func(step int) (flow.Ended, error) { return r.value(d, step) },
	}, nil
}

// value returns the outcome of a step for the expressions of later steps.
func (r rules) value(d *flow.Decision, step int) (v flow.Ended, err error) {
	if end := d.End(step, noIndex); end != nil {
		v, err = r.facts.ended(end)
	} else if d.Status(step) != flow.Pending {
		var known bool
		if v, known = r.facts.values[step]; !known {
			return v, flow.Need{Kind: flow.NeedValue, Step: step}
		}
	}
	v.Status = string(statusOf(d.Status(step)))
	return v, err
}

// Condition implements flow.Rules.
func (r rules) Condition(d *flow.Decision, step int) (bool, error) {
	scope, err := r.scope(d)
	if err != nil {
		return false, err
	}
	return r.template.Condition(&r.template.Steps[step], scope)
}

// Items implements flow.Rules.
func (r rules) Items(d *flow.Decision, step int) ([]int64, error) {
	list, err := r.items(d, step)
	if err != nil {
		return nil, err
	}
	return list.hashes, nil
}

// itemList contains the items of a step and their hashes.
type itemList struct {
	values []*structpb.Value
	hashes []int64
}

// listKey identifies the items of a step. Within a round, the values that the expression of the
// items can use do not change.
type listKey struct {
	process.Key
	created int64
	step    int
	round   int32
}

// lists caches the items of the steps that this node began most recently. A step with 10,000 items
// begins 100 of them at a time, or one whenever another one ends.
type lists struct {
	mu  sync.Mutex
	all map[listKey]*itemList
}

const maxLists = 32

func (r rules) items(d *flow.Decision, step int) (*itemList, error) {
	k := listKey{r.key, r.state.Created.UnixMicro(), step, d.State.Round}
	c := r.lists
	c.mu.Lock()
	list, ok := c.all[k]
	c.mu.Unlock()
	if ok {
		return list, nil
	}
	scope, err := r.scope(d)
	if err != nil {
		return nil, err
	}
	list = &itemList{}
	if list.values, err = r.template.Items(&r.template.Steps[step], scope); err != nil {
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

// Begin implements flow.Rules. The returned work is a *work.
func (r rules) Begin(d *flow.Decision, step, index int) (any, time.Time, error) {
	w := &work{}
	due, err := r.begin(d, w, stepRef{step, index})
	return w, due, err
}

func (r rules) begin(d *flow.Decision, w *work, p stepRef) (due time.Time, err error) {
	s := &r.template.Steps[p.step]
	scope, err := r.scope(d)
	if err != nil {
		return due, err
	}
	if p.index != noIndex {
		list, err := r.items(d, p.step)
		if err != nil {
			return due, err
		}
		if p.index >= len(list.values) {
			return due, errors.New("for_each.items has fewer items than when the step began")
		}
		scope.Item, scope.Index, w.hash = list.values[p.index], p.index, list.hashes[p.index]
	}
	input, own, err := r.input(s, scope)
	if err != nil {
		return due, err
	}
	if own {
		if w.input, err = resultJSON(fmt.Sprintf("steps[%d].input", p.step), input); err != nil {
			return due, err
		}
	}
	w.from = origin{Step: p.step, Index: p.index, Round: d.State.Round}
	switch s.Action {
	case flow.ActionJob:
		w.job, err = r.job(s, s.Source.GetJob(), w.from, input)
	case flow.ActionProcess:
		w.message, err = r.start(s, w.from, input)
		due = r.timeoutOf(s)
	case flow.ActionRun:
		w.message, err = r.run(s, w.from, scope)
		due = r.timeoutOf(s)
	case flow.ActionDelay:
		return r.template.Until(s, scope, r.now)
	case flow.ActionWait:
		return r.open(s, w, scope)
	}
	return due, err
}

// timeoutOf returns when the process or the run of a step that begins now will time out, or the
// zero time if it has no timeout.
func (r rules) timeoutOf(s *flow.Step) (due time.Time) {
	if timeout := s.Source.GetTimeout().AsDuration(); timeout > 0 {
		due = r.now.Add(timeout)
	}
	return due
}

// Undo implements flow.Rules. The returned work is a *work with a job.
func (r rules) Undo(d *flow.Decision, step int) (any, error) {
	s := &r.template.Steps[step]
	v, err := r.value(d, step)
	if err != nil {
		return nil, err
	}
	scope, err := r.scope(d)
	if err != nil {
		return nil, err
	}
	input := scope.Payload
	if !s.ForEach() {
		if input, _, err = r.input(s, scope); err != nil {
			return nil, err
		}
	}
	result := v.Result
	if s.ForEach() && d.Status(step) != flow.Succeeded { // some of its items have succeeded
		text, err := r.Collect(d, step)
		if err != nil {
			return nil, err
		}
		if result, err = wire.Value(text); err != nil {
			return nil, err
		}
	}
	args := structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"input": input, "result": orNull(result)},
	})
	from := origin{Step: step, Index: noIndex, Round: d.State.Round, Undo: true}
	j, err := r.job(s, s.Source.GetCompensation(), from, args)
	return &work{job: j, from: from}, err
}

// Collect implements flow.Rules. It returns the results in the order of the items. The result is
// null for items that did not succeed.
func (r rules) Collect(d *flow.Decision, step int) ([]byte, error) {
	stored, known := r.facts.results[step]
	if !known {
		return nil, flow.Need{Kind: flow.NeedResults, Step: step}
	}
	results := make([]json.RawMessage, d.State.Each[step].Count)
	for index := range results {
		results[index] = json.RawMessage("null")
		result := stored[index]
		if end := d.End(step, index); end != nil && len(end.Result) > 0 { // its row is not written yet
			result = end.Result
		}
		if len(result) > 0 {
			results[index] = result
		}
	}
	return encode(results)
}

// Result implements flow.Rules. It returns nil if the template defines no result. The result of the
// run is then that of the last step that succeeded.
func (r rules) Result(d *flow.Decision) ([]byte, error) {
	if !r.template.HasResult() {
		return nil, nil
	}
	scope, err := r.scope(d)
	if err != nil {
		return nil, err
	}
	v, err := r.template.Result(scope)
	if err != nil {
		return nil, err
	}
	return resultJSON("result", v)
}

// workID returns a process ID without its prefix. The process is the work of a step or item, or the
// compensation of a step.
func (b *basis) workID(from origin) string {
	id := b.runID + "/" + b.template.Steps[from.Step].ID
	if from.Index != noIndex {
		id += "." + strconv.Itoa(from.Index)
	}
	if from.Undo {
		id += ".undo"
	}
	if from.Round > 1 {
		id += "~" + strconv.Itoa(int(from.Round))
	}
	return id
}

// origin returns the origin of a step's work, an item's work or a step's compensation in the
// current round.
func (t *task) origin(p stepRef, undo bool) origin {
	return origin{Step: p.step, Index: p.index, Round: t.state.Run.Round, Undo: undo}
}

// job returns the job of a step or of its compensation. By default, its cancel has the grace period
// of the template.
func (r rules) job(
	s *flow.Step, action *progressorv1.JobAction, from origin, args *structpb.Value,
) (*jobs.NewJob, error) {
	options := proto.CloneOf(action.GetOptions())
	if options == nil {
		options = &progressorv1.JobOptions{}
	}
	if timeout := s.Source.GetTimeout(); timeout != nil && !from.Undo {
		options.Timeout = timeout
	}
	if options.CancelGrace == nil {
		options.CancelGrace = durationpb.New(r.template.Grace())
	}
	j, err := r.jobs.Convert(fmt.Sprintf("steps[%d].job.", from.Step), &progressorv1.EnqueueRequest{
		Namespace: cmp.Or(action.GetNamespace(), r.key.Namespace), JobId: process.StepPrefix + r.workID(from),
		Name: cmp.Or(action.GetName(), s.ID), Args: args, Options: options,
	})
	if err != nil {
		return nil, err
	}
	if j.Metadata == nil {
		j.Metadata = r.defaultMetadata(s.ID)
	}
	return j, nil
}

// defaultMetadata returns the default metadata for the work of a step: the IDs of the run and the
// step.
func (r rules) defaultMetadata(stepID string) []byte {
	text, _ := json.Marshal(marked{r.runID, stepID}) // cannot fail: plain strings
	return text
}

// start returns the message that starts the process of a step.
func (r rules) start(s *flow.Step, from origin, input *structpb.Value) (*storage.Message, error) {
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
		metadata = r.defaultMetadata(s.ID)
	}
	return &storage.Message{
		Kind:   storage.MessageStart,
		Target: process.Key{Namespace: cmp.Or(action.GetNamespace(), r.key.Namespace), ProcessID: r.workID(from)},
		Args:   args, Metadata: metadata,
		NotifyParentArgs: from.json(),
	}, nil
}

// run returns the message that starts the run of a step.
func (r rules) run(s *flow.Step, from origin, scope *flow.Scope) (*storage.Message, error) {
	payload, err := r.payload(s, scope)
	if err != nil {
		return nil, err
	}
	text, err := resultJSON("payload", payload)
	if err != nil {
		return nil, err
	}
	id := r.workID(from)
	if len(id) > maxRunID {
		return nil, fmt.Errorf("the ID of its run, %s, must have at most %d bytes (got %d): start the outer run with "+
			"a shorter ID", id, maxRunID, len(id))
	}
	args, err := encode(&command{Method: methodStart, startFields: startFields{
		Type: s.Source.GetRun().GetType(), Version: s.Source.GetRun().GetVersion(), Payload: text, Parent: r.runID,
	}})
	if err != nil {
		return nil, err
	}
	return &storage.Message{
		Kind: storage.MessageStart, Target: keyOf(r.key.Namespace, id), Args: args, NotifyParentArgs: from.json(),
	}, nil
}

// kindHuman is the kind of a wait that a person answers.
const kindHuman = "HUMAN"

// open prepares a wait, and returns when the wait is due, or zero if it has no due time.
func (r rules) open(s *flow.Step, prepared *work, scope *flow.Scope) (due time.Time, err error) {
	w := s.Source.GetWait()
	row := waitOf{Kind: "EXTERNAL"}
	if w.GetKind() == progressorv1.WaitAction_KIND_HUMAN {
		row.Kind = kindHuman
	}
	if row.Title, err = r.template.Title(s, scope); err != nil {
		return due, err
	}
	if row.Assignees, err = r.template.Assignees(s, scope); err != nil {
		return due, err
	}
	if w.GetResultSchema() != nil {
		if row.Schema, err = protojson.Marshal(w.GetResultSchema()); err != nil {
			return due, err
		}
	}
	if prepared.wait, err = json.Marshal(row); err != nil {
		return due, err
	}
	if w.GetDue() != nil {
		due = r.now.Add(w.GetDue().AsDuration())
	}
	return due, nil
}
