package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
)

// booking does three steps, of which mail cannot be undone, and then returns the error of last.
func booking(done *effects, last func() error) processor.Processor {
	undo := durable.Undo(func(_ context.Context, what string) error {
		done.add("undo-" + what)
		return nil
	})
	return function(func(ctx durable.Ctx) (string, error) {
		for _, name := range []string{"hotel", "mail", "flight"} {
			var opts []durable.StepOption
			if name != "mail" {
				opts = append(opts, undo)
			}
			if _, err := durable.Step(ctx, name, done.says(name), opts...); err != nil {
				return "", err
			}
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "booked", last()
	})
}

func TestSaga(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		status  process.Status
		detail  string
		effects string
	}{
		"success": {nil, process.StatusCompleted, "", "hotel mail flight"},
		"rejection": {processor.Reject("full", "x"), process.StatusCompleted, "",
			"hotel mail flight undo-flight undo-hotel"},
		"failure": {errors.New("odd"), process.StatusError, "odd", "hotel mail flight undo-flight undo-hotel"},
	} {
		t.Run(name, func(t *testing.T) {
			var done effects
			p := start(t, booking(&done, func() error { return test.err }))
			if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != test.status ||
				p.Detail() != test.detail {
				t.Error(err, p.Status(), p.Detail())
			}
			check(t, "effects", done.String(), test.effects)
		})
		durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
			return booking(&effects{}, func() error { return test.err })
		}, struct{}{}, durabletest.Advance(time.Hour))
	}
}

// A cancelled process is undone in its last task.
func TestCancel(t *testing.T) {
	var done effects
	p := start(t, booking(&done, func() error { return nil }))
	if err := p.Cancel(t.Context(), "no more"); err != nil || p.Status() != process.StatusCancelled {
		t.Error(err, p.Status())
	}
	check(t, "effects", done.String(), "hotel mail flight undo-flight undo-hotel")
	check(t, "journal", journal(p),
		"start:f step:hotel step:mail step:flight timer:pause undo:flight undo:hotel")
}

// An undo that fails is retried. It is never skipped.
func TestUndoFails(t *testing.T) {
	tries := 0
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		if err := durable.Run(ctx, "a", func(context.Context) error { return nil },
			durable.Undo(func(context.Context, struct{}) error {
				if tries++; tries < 5 {
					return processor.Fail("busy", "no")
				}
				return nil
			})); err != nil {
			return "", err
		}
		return "", errors.New("odd")
	}))
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError || tries != 3 {
		t.Error(err, p.Status(), tries)
	}
	check(t, "detail", p.Detail(), "undo of step a: no")
	if err := p.RepairSimple(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "detail", p.Detail(), "odd")
	check(t, "journal", journal(p), "start:f step:a fail:f undo:a")
}

// A step with an undo that a new build no longer contains is not skipped silently.
func TestUndoIsGone(t *testing.T) {
	var done effects
	changed := false
	old, changedTo := booking(&done, func() error { return nil }), function(func(durable.Ctx) (string, error) {
		return "", errors.New("odd")
	})
	p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if changed {
			return changedTo.Process(ctx, req)
		}
		return old.Process(ctx, req)
	}))
	changed = true
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
		t.Error(err, p.Status())
	}
	check(t, "detail", p.Detail(),
		"step flight must be undone, but the function no longer contains it, or it has no Undo")
}

// A repair of a function that returned an error starts it again, with a new history.
func TestRepairStartsAgain(t *testing.T) {
	var done effects
	failure := errors.New("odd")
	p := start(t, booking(&done, func() error { return failure }))
	if _, err := p.Repair(t.Context(), nil); err == nil {
		t.Error("a process that runs is repaired")
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	failure = nil
	if _, err := p.Repair(t.Context(), []byte(`{"x":1}`)); err == nil {
		t.Error("bad args are accepted")
	}
	if _, err := p.Repair(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f step:hotel step:mail step:flight timer:pause")
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status())
	}
	check(t, "effects", done.String(), "hotel mail flight undo-flight undo-hotel hotel mail flight")
}

// A repair that starts a function again keeps only the calls that the function has not taken.
func TestRepairKeepsCalls(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls[int, int](ctx, "c")
		durable.Sleep(ctx, "pause", time.Hour)
		if n := calls.Next(); n == 1 {
			return "", errors.New("odd")
		}
		return "", nil
	}))
	for _, args := range []string{`{"c":1}`, `{"c":2}`} {
		if _, err := p.Call(t.Context(), []byte(args)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	if _, err := p.Repair(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f call:c timer:pause")
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status())
	}
}

// A repair after a defect continues the function.
func TestRepairContinues(t *testing.T) {
	broken := true
	var done effects
	p := start(t, booking(&done, func() error {
		if broken {
			panic("odd")
		}
		return nil
	}))
	if err := p.Advance(t.Context(), 2*time.Hour); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	if _, err := p.Repair(t.Context(), []byte(`{}`)); err == nil {
		t.Error("args are accepted")
	}
	broken = false
	if _, err := p.Repair(t.Context(), nil); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "effects", done.String(), "hotel mail flight")
}

// If the input of a restart cannot be stored, the function fails. The result of its last step is
// stored, so that a repair does not lose it.
func TestRestartBadly(t *testing.T) {
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "a", done.says("a")); err != nil {
			return "", err
		}
		return "", durable.Restart(func() {})
	}))
	check(t, "detail", p.Detail(), "the input of Restart cannot be encoded as JSON: json: unsupported type: func()")
	check(t, "journal", journal(p), "start:f step:a fail:f")
	check(t, "effects", done.String(), "a")
}

// A function restarts with a new input and keeps the calls that it has not taken.
func TestRestart(t *testing.T) {
	type state struct {
		Round int `json:"round"`
	}
	p := processortest.New(durable.Func("rounds", func(ctx durable.Ctx, in state) (int, error) {
		calls := durable.Calls[int, int](ctx, "add")
		durable.After(ctx, "unused", 3*time.Hour)
		durable.Sleep(ctx, "pause", time.Hour)
		sum := calls.Next()
		durable.Publish(ctx, sum)
		if in.Round < 2 {
			return 0, durable.Restart(state{in.Round + 1})
		}
		return sum, nil
	}))
	if _, err := p.Start(t.Context(), []byte(`{"round":1}`)); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{`{"add":1}`, `{"add":2}`} {
		if _, err := p.Call(t.Context(), []byte(args)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:rounds call:add timer:unused timer:pause")
	check(t, "state", string(p.State()), "1")
	if n := len(p.Timers()); n != 2 {
		t.Errorf("%d timers", n)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "state", string(p.State()), "2")
}
