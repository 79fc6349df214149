package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
)

// effects records the effects of steps, in order.
type effects struct {
	mu   sync.Mutex
	list []string
}

func (e *effects) add(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, what)
}

func (e *effects) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.list, " ")
}

// says returns the body of a step that records its effect and returns it.
func (e *effects) says(what string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		e.add(what)
		return what, nil
	}
}

// function returns a function without input.
func function(f func(ctx durable.Ctx) (string, error)) processor.Processor {
	return durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) { return f(ctx) })
}

func start(t *testing.T, p processor.Processor, opts ...processortest.Option) *processortest.Process {
	t.Helper()
	started := processortest.New(p, opts...)
	if _, err := started.Start(t.Context(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	return started
}

// journal returns the kinds and names of all entries.
func journal(p *processortest.Process) string {
	var entries []string
	for _, event := range p.Events() {
		var e struct{ K, N string }
		if err := json.Unmarshal(event.GetPayload(), &e); err != nil {
			return err.Error()
		}
		entries = append(entries, e.K+":"+e.N)
	}
	return strings.Join(entries, " ")
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// Each step runs once, and its result is stored before the next one runs: by a checkpoint, or by
// the result of a separate task.
func TestSteps(t *testing.T) {
	t.Run("with checkpoints", func(t *testing.T) { testSteps(t, 3) }) // INIT, two steps, the timer
	t.Run("without checkpoints", func(t *testing.T) { testSteps(t, 4, processortest.WithoutCheckpoints()) })
}

func testSteps(t *testing.T, tasks int, opts ...processortest.Option) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		a, err := durable.Step(ctx, "a", done.says("1"))
		if err != nil {
			return "", err
		}
		b, err := durable.Step(ctx, "a", done.says("2"))
		if err != nil {
			return "", err
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return a + b, nil
	}), opts...)
	check(t, "effects", done.String(), "1 2")
	check(t, "journal", journal(p), "start:f step:a step:a#2 timer:pause")
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "journal", journal(p), "start:f step:a step:a#2 timer:pause fired:pause end:f")
	check(t, "effects", done.String(), "1 2")
	trace := p.Trace()
	check(t, "response", string(trace[len(trace)-1].GetResponse()), `"12"`)
	if len(trace) != tasks {
		t.Errorf("%d tasks", len(trace))
	}
	events := 0
	for _, task := range trace {
		events += len(task.GetEvents())
	}
	if events != len(p.Events()) {
		t.Errorf("the tasks have %d events", events)
	}
}

// A step that fails is retried after its wait, and then its error is recorded.
func TestRetry(t *testing.T) {
	tries := 0
	var got error
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		err := durable.Run(ctx, "a", func(context.Context) error {
			tries++
			return processor.Fail("odd", "try %d", tries)
		}, durable.Retry(3, time.Second))
		got = err
		return fmt.Sprint(err), nil
	}))
	for _, test := range []struct {
		wait  time.Duration
		tries int
	}{{0, 1}, {999 * time.Millisecond, 1}, {time.Millisecond, 2}, {1999 * time.Millisecond, 2}, {time.Millisecond, 3}} {
		if err := p.Advance(t.Context(), test.wait); err != nil || tries != test.tries {
			t.Errorf("%d tries, want %d: %v", tries, test.tries, err)
		}
	}
	check(t, "journal", journal(p), "start:f try:a try:a step:a end:f")
	step, ok := errors.AsType[*durable.StepError](got)
	if !ok || step.Reason != "odd" || step.Error() != "step a: try 3" {
		t.Errorf("%#v", got)
	}
}

func TestFinalErrors(t *testing.T) {
	for name, err := range map[string]error{
		"rejection": processor.Reject("no", "never"), "non-retryable": processor.Fail("no", "never").NonRetryable(),
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			got := durable.Run(ctx, "a", func(context.Context) error { return err }, durable.Retry(3, time.Second))
			return fmt.Sprint(got), nil
		}))
		check(t, name, journal(p), "start:f step:a end:f")
	}
}

func TestKillEverywhere(t *testing.T) {
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			id := durable.UUID(ctx, "id")
			durable.Publish(ctx, map[string]string{"id": id})
			a, err := durable.Step(ctx, "a", func(context.Context) (string, error) { return id, nil })
			if err != nil {
				return "", err
			}
			durable.Sleep(ctx, "pause", time.Hour)
			at := durable.Now(ctx, "at")
			b, err := durable.Step(ctx, "b", func(context.Context) (string, error) { return at.String(), nil })
			return a + b, err
		})
	}, struct{}{}, durabletest.Advance(2*time.Hour))
}
