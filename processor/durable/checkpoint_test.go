package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
)

// tasksOf returns how many tasks of a process have ended, except for its INIT.
func tasksOf(p *processortest.Process) int { return len(p.Trace()) - 1 }

// A checkpoint stores the published state and metadata. The next attempt does not run the stored
// steps again.
func TestCheckpointStoresState(t *testing.T) {
	crashed := false
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := durable.Step(ctx, name, done.says(name)); err != nil {
				return "", err
			}
			durable.Publish(ctx, name)
			durable.SetMetadata(ctx, map[string]any{name: 1})
		}
		return "", durable.Run(ctx, "c", func(context.Context) error {
			if !crashed {
				crashed = true
				panic("odd")
			}
			return nil
		})
	}))
	check(t, "journal", journal(p), "start:f step:a step:b")
	check(t, "state", string(p.State()), `"b"`)
	check(t, "metadata", fmt.Sprint(p.Metadata()), "map[a:1 b:1]")
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "effects", done.String(), "a b")
}

// A checkpoint cannot set a timer, so the step after the timer runs in another task.
func TestCheckpointSetsNoTimers(t *testing.T) {
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "a", done.says("a")); err != nil {
			return "", err
		}
		late := durable.After(ctx, "late", time.Minute)
		_, err := durable.Step(ctx, "b", done.says("b"))
		late.Wait()
		return "", err
	}))
	check(t, "journal", journal(p), "start:f step:a timer:late step:b")
	if n := tasksOf(p); n != 2 {
		t.Errorf("%d tasks", n)
	}
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "effects", done.String(), "a b")
}

// After a failed attempt, each step has its own task, with all of its attempts.
func TestCheckpointsAfterFailures(t *testing.T) {
	tries := map[string]int{}
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		for _, name := range []string{"a", "b", "c", "d"} {
			if err := durable.Run(ctx, name, func(context.Context) error {
				if tries[name]++; tries[name] <= 2 && name > "a" {
					panic("odd")
				}
				return nil
			}); err != nil {
				return "", err
			}
		}
		return "", nil
	}), processortest.WithRetryPolicy(process.RetryPolicy{Initial: time.Second, MaxAttempts: 3}))
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	if n := tasksOf(p); n != 3 {
		t.Errorf("%d tasks", n)
	}
}

// A task ends after a second of steps, and when a timer is due, so that other tasks do not wait for
// long.
func TestCheckpointsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(pause time.Duration) processor.Processor {
			return function(func(ctx durable.Ctx) (string, error) {
				for range 4 {
					if err := durable.Run(ctx, "a", func(context.Context) error {
						time.Sleep(pause)
						return nil
					}); err != nil {
						return "", err
					}
				}
				return "", nil
			})
		}
		for pause, want := range map[time.Duration]int{400 * time.Millisecond: 2, time.Second: 4, 0: 1} {
			if n := tasksOf(start(t, f(pause))); n != want {
				t.Errorf("%d tasks with steps of %s, want %d", n, pause, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a tenth is 100 ms
		defer cancel()
		p := processortest.New(f(60 * time.Millisecond))
		if _, err := p.Start(ctx, []byte(`{}`)); err != nil || tasksOf(p) != 2 {
			t.Errorf("%d tasks with a short timeout, %v", tasksOf(p), err)
		}
	})
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		begin, late := durable.After(ctx, "begin", time.Minute), durable.After(ctx, "late", time.Minute)
		begin.Wait()
		for range 3 {
			if err := durable.Run(ctx, "a", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
		}
		late.Wait()
		return "", nil
	}))
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "journal", journal(p),
		"start:f timer:begin timer:late fired:begin fired:late step:a step:a#2 step:a#3 end:f")
}

// A cancelled process does not undo a step again if the undo of another step fails.
func TestCheckpointsOfUndos(t *testing.T) {
	var done effects
	tries := 0
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		for _, name := range []string{"a", "b", "c"} {
			if _, err := durable.Step(ctx, name, done.says(name), durable.Undo(func(_ context.Context, s string) error {
				if tries++; s == "a" && tries < 5 {
					return errors.New("odd")
				}
				done.add("undo-" + s)
				return nil
			})); err != nil {
				return "", err
			}
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	}))
	if err := p.Cancel(t.Context(), "no more"); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCancelled {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "effects", done.String(), "a b c undo-c undo-b undo-a")
	check(t, "journal", journal(p), "start:f step:a step:b step:c timer:pause undo:c undo:b undo:a")
}
