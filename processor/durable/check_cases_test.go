package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A check reports what would stop a process with a new build, and operations that the new build has
// changed, added or removed.
func TestCheckCases(t *testing.T) {
	const place = " (durable/check_cases_test.go)"
	wait := func(ctx durable.Ctx) { durable.Sleep(ctx, "wait", time.Hour) }
	step := func(ctx durable.Ctx, name string) error {
		return durable.Run(ctx, name, func(context.Context) error { return nil })
	}
	value := func(ctx durable.Ctx) (string, error) { return durable.Step(ctx, "a", (&effects{}).says("a")) }
	for name, c := range map[string]struct {
		before, after func(ctx durable.Ctx) (string, error)
		calls         []string
		want          string
	}{
		"a value has another type": {
			before: func(ctx durable.Ctx) (string, error) { _, err := value(ctx); wait(ctx); return "", err },
			after: func(ctx durable.Ctx) (string, error) {
				_, err := durable.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil })
				return "", err
			},
			want: "error durable_journal: durable/check_cases_test.go:",
		},
		"a field was removed": {
			before: func(ctx durable.Ctx) (string, error) {
				_, err := durable.Step(ctx, "a", func(context.Context) (order, error) { return order{Item: "x"}, nil })
				wait(ctx)
				return "", err
			},
			after: func(ctx durable.Ctx) (string, error) {
				_, err := durable.Step(ctx, "a", func(context.Context) (struct{ Price int }, error) {
					return struct{ Price int }{}, nil
				})
				wait(ctx)
				return "", err
			},
			want: `changed the value of step a has a field that its type lacks: unknown field "item"` + place,
		},
		"a source of First was removed": {
			before: func(ctx durable.Ctx) (string, error) {
				calls := durable.Calls[int, int](ctx, "go")
				durable.First(ctx, "which", calls, durable.After(ctx, "late", time.Hour))
				wait(ctx)
				return "", nil
			},
			after: func(ctx durable.Ctx) (string, error) {
				durable.First(ctx, "which", durable.After(ctx, "late", time.Hour))
				wait(ctx)
				return "", nil
			},
			calls: []string{`{"go":1}`},
			want:  "error durable_journal: durable/check_cases_test.go:",
		},
		"a call is no longer opened": {
			before: func(ctx durable.Ctx) (string, error) {
				durable.Calls[int, int](ctx, "go")
				wait(ctx)
				return "", nil
			},
			after: func(ctx durable.Ctx) (string, error) { wait(ctx); return "", nil },
			calls: []string{`{"go":1}`},
			want:  "orphan call go: was accepted, and the function does not open this call",
		},
		"children are started differently": {
			before: func(ctx durable.Ctx) (string, error) {
				return durable.Child[string](ctx, "c", 1, durable.In("a")).Get()
			},
			after: func(ctx durable.Ctx) (string, error) {
				return durable.Child[string](ctx, "c", 1, durable.In("b")).Get()
			},
			want: "changed child c: was started in the namespace a, not in b" + place,
		},
		"a child becomes a job": {
			before: func(ctx durable.Ctx) (string, error) { return durable.Child[string](ctx, "c", 1).Get() },
			after:  func(ctx durable.Ctx) (string, error) { return durable.Job[string](ctx, "c", 1).Get() },
			want:   "changed child c: was started as a child, but is now a job" + place,
		},
		"the function no longer waits": {
			before: func(ctx durable.Ctx) (string, error) { durable.Calls[int, int](ctx, "go").Next(); return "", nil },
			after:  func(durable.Ctx) (string, error) { return "", nil },
			want:   "changed end: the function returns a value here, and no longer waits",
		},
		"the function panics": {
			before: func(ctx durable.Ctx) (string, error) { wait(ctx); return "", nil },
			after:  func(durable.Ctx) (string, error) { panic("odd") },
			want:   "error panic: function f panicked: odd",
		},
		"a new step hides what follows": {
			before: func(ctx durable.Ctx) (string, error) { err := step(ctx, "a"); wait(ctx); return "", err },
			after: func(ctx durable.Ctx) (string, error) {
				v, err := durable.Step(ctx, "key", (&effects{}).says("secret"))
				if v != "secret" {
					return "", errors.New("bad key")
				}
				_ = step(ctx, "a")
				wait(ctx)
				return "", err
			},
			want: "orphan step a: has completed, perhaps renamed to key; " +
				"it may be later, but with guessed values the function fails: error: bad key\n" +
				"orphan timer wait: is pending, and will have no effect; " +
				"it may be later, but with guessed values the function fails: error: bad key\n" +
				"new step key: the next task runs it" + place,
		},
		"a timer is stopped": {
			before: func(ctx durable.Ctx) (string, error) {
				durable.After(ctx, "t", time.Hour)
				wait(ctx)
				return "", nil
			},
			after: func(ctx durable.Ctx) (string, error) {
				durable.After(ctx, "t", time.Hour).Stop()
				wait(ctx)
				return "", nil
			},
			want: "new stopped t: the next task stops the timer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, function(c.before))
			for _, call := range c.calls {
				if _, err := p.Call(t.Context(), []byte(call)); err != nil {
					t.Fatal(err)
				}
			}
			check(t, "the old build", checked(t, p, function(c.before)), "")
			got := checked(t, p, function(c.after))
			if n := len(c.want); c.want[n-1] == ':' && len(got) > n { // lines of this file change
				got = got[:n]
			}
			check(t, "findings", got, c.want)
		})
	}
}

// If a task of the process is due, a check does not report steps that this task may be about to
// run.
func TestCheckOfBusyProcess(t *testing.T) {
	f := func(last string) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			if _, err := durable.Step(ctx, "a", (&effects{}).says("a")); err != nil {
				return "", err
			}
			durable.Calls[int, int](ctx, "go").Next()
			return durable.Step(ctx, last, (&effects{}).says(last))
		})
	}
	p := start(t, f("b")).Snapshot()
	p.Timers = append(p.Timers, &progressorv1.Timer{FireTime: timestamppb.Now()})
	p.LastEventId++
	p.History = append(p.History, &progressorv1.Event{EventId: p.GetLastEventId(),
		Payload: []byte(`{"k":"call","n":"go","v":1}`)})
	report, err := durablecheck.Run(t.Context(), f("c"), p)
	if err != nil || len(report.Findings) != 0 {
		t.Errorf("%v, %v", report, err)
	}
	p.Timers = nil
	report, err = durablecheck.Run(t.Context(), f("c"), p)
	if err != nil || !report.Has(durablecheck.New) {
		t.Errorf("%v, %v", report, err)
	}
}

// A check of a function that has failed reports a step that must be undone but no longer has an
// undo.
func TestCheckOfFailedFunction(t *testing.T) {
	f := func(name string) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			_, err := durable.Step(ctx, name, (&effects{}).says("a"), durable.Undo(func(context.Context, string) error {
				return errors.New("not now")
			}))
			return "", errors.Join(err, errors.New("odd"))
		})
	}
	p := processortest.New(f("a"))
	_, _ = p.Start(t.Context(), []byte(`{}`))
	check(t, "the old build", checked(t, p, f("a")), "")
	check(t, "renamed", checked(t, p, f("b")),
		"error step a: must be undone, but the function no longer contains it, or it has no Undo")
}

// A check reports a history that is not a journal. For a processor that is not a function, it
// returns ErrUnsupported.
func TestCheckOfOthers(t *testing.T) {
	f := function(func(durable.Ctx) (string, error) { return "", nil })
	p := &progressorv1.Process{FirstEventId: 1, LastEventId: 1,
		History: []*progressorv1.Event{{EventId: 1, Payload: []byte("x")}}}
	report, err := durablecheck.Run(t.Context(), f, p)
	if err != nil || len(report.Findings) != 1 ||
		report.Findings[0].String() != "event 1 is not an entry of a journal" {
		t.Errorf("%v, %v", report, err)
	}
	if _, err := durablecheck.Run(t.Context(), processor.Guard(&processor.Router{}, nil), p); !errors.Is(err,
		durablecheck.ErrUnsupported) {
		t.Errorf("a router: %v", err)
	}
}

// A field of the input that the new build lacks is reported without a place: no line of the
// function decodes the input.
func TestCheckOfTheInput(t *testing.T) {
	wait := func(ctx durable.Ctx) (string, error) { durable.Sleep(ctx, "wait", time.Hour); return "", nil }
	p := processortest.New(durable.Func("f", func(ctx durable.Ctx, _ order) (string, error) { return wait(ctx) }))
	if _, err := p.Start(t.Context(), []byte(`{"item": "tea"}`)); err != nil {
		t.Fatal(err)
	}
	check(t, "findings", checked(t, p, function(wait)),
		`changed the input of the function has a field that its type lacks: unknown field "item"`)
}
