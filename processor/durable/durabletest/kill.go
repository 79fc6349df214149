package durabletest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Action is one step of a script. Its error ends the test.
type Action func(ctx context.Context, p *processortest.Process) error

// Call calls the process with the name of a call and its args. A rejection ends the test. Call does
// not wait for the reply to a request.
func Call(name string, args any) Action {
	return func(ctx context.Context, p *processortest.Process) error {
		text, err := json.Marshal(map[string]any{name: args})
		if err != nil {
			return err
		}
		if _, err = p.Call(ctx, text); errors.Is(err, processortest.ErrDeferred) {
			return nil
		}
		return err
	}
}

// Advance lets time pass. Every timer fires at its own time.
func Advance(d time.Duration) Action {
	return func(ctx context.Context, p *processortest.Process) error {
		until := p.Now().Add(d)
		for p.Now().Before(until) {
			next := until
			if timers := p.Timers(); len(timers) > 0 && timers[0].GetFireTime().AsTime().Before(until) {
				next = timers[0].GetFireTime().AsTime()
			}
			pause := max(next.Sub(p.Now()), time.Nanosecond)
			time.Sleep(pause) // the clock of the test, which the function sees
			if err := p.Advance(ctx, pause); err != nil {
				return err
			}
		}
		return nil
	}
}

// Cancel cancels the process.
func Cancel(reason string) Action {
	return func(ctx context.Context, p *processortest.Process) error { return p.Cancel(ctx, reason) }
}

// KillEverywhere starts a process of a durable function with the input, runs the script, and then
// repeats this once for each result and checkpoint with journal entries. In each repetition, the
// attempt that made this result is killed before the result is stored: its steps and undos have
// run, its entries are lost, and the task is attempted again. The outcome must be the same each
// time: the status, the state, the metadata, what the function returned, which entries the journal
// contains, which children were started and cancelled, and which requests were answered. Values of
// Now and UUID may differ, and so may the tries of a step.
//
// All of this is done twice: as in the engine's program or in a worker, where a task stores
// checkpoints between steps, and as in a pushed processor, where each step has its own task. The
// outcome must be the same.
//
// function makes the processor of one repetition, with new fakes of the services that it uses. Its
// t belongs to the repetition: with t.Cleanup it can check the fakes at the end, for example that a
// card was charged once. Each repetition is a bubble of testing/synctest: time.Now and time.Sleep
// follow the clock of the script. Its keys (durable.StepKey) differ from those of the others, so
// that all can share the database of durable.Tx. function must open the connections, and t.Cleanup
// must close them.
func KillEverywhere(t *testing.T, function func(t *testing.T) processor.Processor, input any, script ...Action) {
	t.Helper()
	var first *repetition
	for _, place := range places {
		run := func(t *testing.T, kill int) *repetition { return repeat(t, place, function, input, script, kill) }
		var unkilled *repetition
		t.Run(place.name+", not killed", func(t *testing.T) {
			unkilled = run(t, 0)
			if first == nil {
				first = unkilled
			}
			unkilled.compare(t, first)
		})
		if t.Failed() {
			return
		}
		if len(unkilled.results) == 0 {
			t.Fatal("the process stored no journal entries")
		}
		for i, result := range unkilled.results {
			t.Run(fmt.Sprintf("%s, killed before result %d, %s", place.name, i+1, result), func(t *testing.T) {
				run(t, i+1).compare(t, first)
			})
		}
	}
}

// place simulates one way to run a processor.
type place struct {
	name    string
	options []processortest.Option
}

var places = []place{
	{"with checkpoints", nil},
	{"without checkpoints", []processortest.Option{processortest.WithoutCheckpoints()}},
}

// repetition is one run of the script.
type repetition struct {
	inner   processor.Processor
	kill    int // the number of the result to lose, or 0
	created *timestamppb.Timestamp
	results []string // the entries of each result and checkpoint
	outcome string
}

func (r *repetition) compare(t *testing.T, first *repetition) {
	t.Helper()
	if r.outcome != first.outcome {
		t.Errorf("the outcome is\n%s\nof the first run it is\n%s", r.outcome, first.outcome)
	}
}

func repeat(
	t *testing.T, at place, function func(t *testing.T) processor.Processor, input any, script []Action, kill int,
) *repetition {
	r := &repetition{kill: kill, created: timestamppb.New(time.UnixMicro(rand.Int64N(1 << 50)))}
	synctest.Test(t, func(t *testing.T) {
		r.inner = function(t)
		p := processortest.New(r, append(at.options, processortest.WithTime(time.Now()))...)
		args, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Start(t.Context(), args); err != nil {
			t.Fatalf("start: %v", err)
		}
		for i, action := range script {
			if err := action(t.Context(), p); err != nil {
				t.Fatalf("action %d of the script: %v", i+1, err)
			}
		}
		r.outcome = outcomeOf(p)
	})
	return r
}

// Process passes the task on. It loses one result or checkpoint and repeats the attempt.
func (r *repetition) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	req.GetProcess().CreatedTime = r.created
	a := &attempt{repetition: r, inner: processor.CheckpointerOf(ctx), again: proto.CloneOf(req)}
	a.again.Attempt++
	watched := ctx
	if a.inner != nil {
		watched = processor.WithCheckpointer(ctx, a)
	}
	resp, err := r.inner.Process(watched, req)
	if a.killed || err == nil && r.loses(resp.GetResult()) {
		return r.inner.Process(ctx, a.again)
	}
	return resp, err
}

// loses records the entries of a result. It reports whether the result is the one to lose.
func (r *repetition) loses(result *progressorv1.Result) bool {
	if len(result.GetEvents()) == 0 {
		return false
	}
	var made []string
	for _, event := range result.GetEvents() {
		e := decode(event.GetPayload())
		made = append(made, e.Kind+" "+e.Name)
	}
	r.results = append(r.results, strings.Join(made, ", "))
	return len(r.results) == r.kill
}

// attempt is an attempt that may be killed.
type attempt struct {
	repetition *repetition
	inner      processor.Checkpointer
	again      *progressorv1.ProcessRequest // the request of the next attempt
	killed     bool
}

// Checkpoint stores a checkpoint, or loses it.
func (a *attempt) Checkpoint(ctx context.Context, result *progressorv1.Result) (yield bool, err error) {
	if a.killed = a.killed || a.repetition.loses(result); a.killed {
		return false, process.ErrFenced
	}
	if yield, err = a.inner.Checkpoint(ctx, result); err != nil {
		return yield, err
	}
	p := a.again.GetProcess()
	for _, event := range result.GetEvents() {
		p.LastEventId++
		p.History = append(p.History, &progressorv1.Event{EventId: p.GetLastEventId(), Payload: event.GetPayload()})
	}
	if result.AuxState != nil {
		p.AuxState = result.GetAuxState()
	}
	if result.GetMetadata() != nil {
		p.Metadata = result.GetMetadata()
	}
	return yield, nil
}

// entry is an entry of the journal: see docs/journal.md.
type entry struct {
	Kind  string          `json:"k"`
	Name  string          `json:"n"`
	Value json.RawMessage `json:"v"`
	Error json.RawMessage `json:"e"`
}

func decode(payload []byte) entry {
	var e entry
	if err := json.Unmarshal(payload, &e); err != nil {
		return entry{Kind: "other", Name: "event"}
	}
	return e
}

// outcomeOf describes what must not depend on kills.
func outcomeOf(p *processortest.Process) string {
	var names []string
	var values []entry
	returned := ""
	for _, event := range p.Events() {
		e := decode(event.GetPayload())
		switch e.Kind {
		case "value":
			values = append(values, e)
		case "end", "fail":
			returned = string(e.Value) + string(e.Error)
		}
		switch e.Kind {
		case "try":
		case "reply":
			names = append(names, "reply "+e.Name+" "+string(e.Value)+string(e.Error))
		default:
			names = append(names, e.Kind+" "+e.Name)
		}
	}
	slices.Sort(names)
	metadata, _ := json.Marshal(p.Metadata()) // was JSON
	text := fmt.Sprintf(
		"status: %s %s\nstate: %s\nmetadata: %s\nreturned: %s\nentries: %s\ncommands: %s\nopen calls: %d",
		p.Status(), p.Detail(), p.State(), metadata, cmp.Or(returned, "nothing"), strings.Join(names, ", "),
		strings.Join(sent(p), ", "), len(p.Open()))
	for _, v := range values {
		var value string
		if json.Unmarshal(v.Value, &value) == nil && value != "" { // of Now or UUID
			text = strings.ReplaceAll(text, value, "<"+v.Name+">")
		}
	}
	return text
}
