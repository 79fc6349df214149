package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
)

// Misuse ends the task at once, with an error that names the file and the line.
func TestMisuse(t *testing.T) {
	for name, test := range map[string]struct {
		f    func(ctx durable.Ctx)
		want string
	}{
		"goroutine": {func(ctx durable.Ctx) { elsewhere(func() { durable.Sleep(ctx, "a", 1) }) },
			"a durable operation outside the goroutine of its Ctx"},
		"wait in a goroutine": {func(ctx durable.Ctx) {
			timer := durable.After(ctx, "a", 1)
			elsewhere(func() { timer.Wait() })
		}, "a durable operation outside the goroutine of its Ctx"},
		"step body": {func(ctx durable.Ctx) {
			_ = durable.Run(ctx, "a", func(context.Context) error {
				durable.Sleep(ctx, "b", 1)
				return nil
			})
		}, "a durable operation in the body of step a"},
		"outer context in a branch": {func(ctx durable.Ctx) {
			_, _ = durable.Each(ctx, "a", []int{1}, func(durable.Ctx, int) (int, error) {
				return 0, durable.Run(ctx, "b", func(context.Context) error { return nil })
			})
		}, "a durable operation outside the goroutine of its Ctx"},
		"name":  {func(ctx durable.Ctx) { durable.Now(ctx, "a/b") }, `the name "a/b" must have`},
		"names": {func(ctx durable.Ctx) { durable.Now(ctx, "") }, `the name "" must have`},
		"undo": {func(ctx durable.Ctx) {
			_ = durable.Run(ctx, "a", func(context.Context) error { return nil },
				durable.Undo(func(context.Context, int) error { return nil }))
		}, "the undo of step a takes a type that differs"},
		"retry": {func(ctx durable.Ctx) {
			_ = durable.Run(ctx, "a", func(context.Context) error { return nil }, durable.Retry(0, 0))
		}, "Retry of step a"},
		"sources": {func(ctx durable.Ctx) { durable.First(ctx, "a") }, "First a has no sources"},
		"a source of another branch": {func(ctx durable.Ctx) {
			timer := durable.After(ctx, "a", 1)
			_, _ = durable.Each(ctx, "b", []int{1}, func(ctx durable.Ctx, _ int) (int, error) {
				durable.First(ctx, "c", timer)
				return 0, nil
			})
		}, "First b[0]/c: timer a belongs to another branch"},
		"limit": {func(ctx durable.Ctx) {
			nothing := func(durable.Ctx, int) (int, error) { return 0, nil }
			_, _ = durable.Each(ctx, "a", []int{1}, nothing, durable.Limit(0))
		}, "Limit of a"},
		"duration": {func(ctx durable.Ctx) { durable.Sleep(ctx, "a", 200*365*24*time.Hour) },
			"timer a: must be at most 36500 days"},
		"timers": {func(ctx durable.Ctx) {
			for range 81 {
				durable.After(ctx, "a", time.Hour)
			}
		}, "timer a#81: 80 timers are pending"},
		"value": {func(ctx durable.Ctx) { durable.Publish(ctx, func() {}) },
			"the published value cannot be encoded"},
		"metadata": {func(ctx durable.Ctx) { durable.SetMetadata(ctx, map[string]any{"a": func() {}}) },
			"the metadata cannot be stored"},
		"large metadata": {func(ctx durable.Ctx) {
			durable.SetMetadata(ctx, map[string]any{"a": strings.Repeat("x", 64<<10)})
		}, "the metadata cannot be stored"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, function(func(ctx durable.Ctx) (string, error) {
				test.f(ctx)
				durable.Sleep(ctx, "end", time.Hour)
				return "", nil
			}))
			if err := p.Advance(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if detail := p.Detail(); p.Status() != process.StatusError || !strings.Contains(detail, test.want) ||
				!strings.HasPrefix(detail, "durable/misuse_test.go:") {
				t.Errorf("%s %q, want %q", p.Status(), detail, test.want)
			}
		})
	}
}

// A function that leaves its goroutine or panics fails, and continues after a repair.
func TestDefects(t *testing.T) {
	for name, test := range map[string]struct {
		defect func()
		want   string
	}{
		"panic":  {func() { panic("odd") }, "function f panicked: odd"},
		"goexit": {func() { runtime.Goexit() }, "the function f called runtime.Goexit, as t.FailNow does"},
	} {
		t.Run(name, func(t *testing.T) {
			var done effects
			broken := true
			p := start(t, function(func(ctx durable.Ctx) (string, error) {
				_, err := durable.Step(ctx, "a", done.says("a"))
				if broken {
					test.defect()
				}
				return "", err
			}))
			if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
				t.Fatal(err, p.Status())
			}
			check(t, "detail", p.Detail(), test.want)
			check(t, "journal", journal(p), "start:f step:a")
			broken = false
			if err := p.RepairSimple(t.Context()); err != nil || p.Status() != process.StatusCompleted {
				t.Error(err, p.Status(), p.Detail())
			}
			check(t, "effects", done.String(), "a")
		})
	}
}

// A body that leaves its goroutine without a panic has no result. A step is not repeated, an undo
// does not count as done, and a call is not accepted.
func TestGoexitInBodies(t *testing.T) {
	runs := map[string]int{}
	leave := func(what string) {
		runs[what]++
		runtime.Goexit()
	}
	f := func(last string) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			calls := durable.Calls(ctx, "c", durable.Accept(func(int) (int, error) {
				leave("accept")
				return 0, nil
			}))
			err := durable.Run(ctx, "a", func(context.Context) error { return nil },
				durable.Undo(func(context.Context, struct{}) error {
					leave("undo")
					return nil
				}))
			switch last {
			case "step":
				err = durable.Run(ctx, "b", func(context.Context) error {
					leave("step")
					return nil
				})
			case "undo":
				return "", errors.New("odd")
			case "accept":
				calls.Next()
			}
			return "", err
		})
	}
	for last, want := range map[string]string{
		"step": "the body of step b", "undo": "Undo of step a", "accept": "Accept of call c",
	} {
		p := start(t, f(last))
		if last == "accept" {
			if _, err := p.Call(t.Context(), []byte(`{"c":1}`)); err == nil {
				t.Error("a call was accepted")
			}
		}
		check(t, last, p.Detail(), want+" called runtime.Goexit, as t.FailNow does")
		if p.Status() != process.StatusError || runs[last] != 1 {
			t.Errorf("%s: %s after %d runs", last, p.Status(), runs[last])
		}
	}
}

// A step that waits for its next try runs again, even if its try panics together with another step
// whose result is stored.
func TestPanicInRetry(t *testing.T) {
	tries, broken := 0, true
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		_, err := durable.Each(ctx, "item", []string{"a", "b"}, func(ctx durable.Ctx, item string) (string, error) {
			if item == "b" {
				durable.Sleep(ctx, "pause", time.Second)
				return durable.Step(ctx, "s", done.says("b"))
			}
			return "", durable.Run(ctx, "s", func(context.Context) error {
				if tries++; tries == 1 {
					return errors.New("odd")
				}
				if broken {
					panic("odd")
				}
				return nil
			}, durable.Retry(3, time.Second))
		})
		return "", err
	}))
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status(), p.Detail())
	}
	broken = false
	if err := p.RepairSimple(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status(), p.Detail())
	}
	check(t, "effects", done.String(), "b")
}

// More steps fail at the same time than there are timers. All of them are retried.
func TestManyRetries(t *testing.T) {
	var mu sync.Mutex
	tries := map[int]int{}
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		for range 80 {
			durable.After(ctx, "unused", 24*time.Hour)
		}
		items := make([]int, 150)
		for n := range items {
			items[n] = n
		}
		_, err := durable.Each(ctx, "item", items, func(ctx durable.Ctx, n int) (string, error) {
			return "", durable.Run(ctx, "s", func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if tries[n]++; tries[n] == 1 {
					return errors.New("odd")
				}
				return nil
			}, durable.Retry(2, time.Second))
		})
		return "", err
	}))
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Fatal(err, p.Status(), p.Detail())
	}
	for n, tries := range tries {
		if tries != 2 {
			t.Errorf("item %d: %d tries", n, tries)
		}
	}
	if n := strings.Count(journal(p), "try:"); n != len(tries) {
		t.Errorf("%d failures are stored", n)
	}
}

// A panic in the body of a step fails the task, which is retried.
func TestPanicInStep(t *testing.T) {
	tries := 0
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		return "", durable.Run(ctx, "a", func(context.Context) error {
			if tries++; tries == 1 {
				panic("odd")
			}
			return nil
		})
	}))
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted || tries != 2 {
		t.Error(err, p.Status(), p.Detail(), tries)
	}
}

// The results of steps that ran together with one that panicked are stored.
func TestPanicWithOtherSteps(t *testing.T) {
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		items := []string{"a", "b", "c"}
		_, err := durable.Each(ctx, "item", items, func(ctx durable.Ctx, item string) (string, error) {
			return durable.Step(ctx, "s", func(c context.Context) (string, error) {
				if item == "b" {
					panic("odd")
				}
				return done.says(item)(c)
			})
		})
		return "", err
	}))
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusError {
		t.Error(err, p.Status())
	}
	check(t, "journal", journal(p), "start:f step:item[0]/s step:item[2]/s")
	if n := len(done.String()); n != len("a c") {
		t.Errorf("effects: %s", done.String())
	}
}

// If a value cannot be stored, its step returns an error, so that the effect is not repeated.
func TestBadValues(t *testing.T) {
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"not JSON": {func() {}, "step a: the value cannot be encoded as JSON: json: unsupported type: func()"},
		"too large": {strings.Repeat("x", 1<<20),
			"step a: the value has 1048578 bytes as JSON, at most 1044480 are allowed"},
	} {
		runs := 0
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			_, err := durable.Step(ctx, "a", func(context.Context) (any, error) {
				runs++
				return test.value, nil
			}, durable.Retry(3, time.Second))
			return fmt.Sprint(err), nil
		}))
		tasks := p.Trace()
		check(t, name, string(tasks[len(tasks)-1].GetResponse()), fmt.Sprintf("%q", test.want))
		if runs != 1 {
			t.Errorf("%s: %d runs", name, runs)
		}
	}
}

// The journal must be complete.
func TestJournals(t *testing.T) {
	f := function(func(ctx durable.Ctx) (string, error) {
		durable.Sleep(ctx, "a", time.Hour)
		return "", nil
	})
	p := processortest.New(f, processortest.WithHistory(process.HistoryNone))
	if _, err := p.Start(t.Context(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	_, err := p.Call(t.Context(), []byte(`{"x":{}}`))
	r, ok := errors.AsType[*processor.RejectionError](err)
	if !ok || r.Rejection.GetReason() != durable.ReasonJournal {
		t.Errorf("without a history: %v", err)
	}
	for name, test := range map[string]struct{ args, reason string }{
		"unknown field": {`{"a":1}`, processor.ReasonBadArgs}, "no args": {``, processor.ReasonBadArgs},
		"too large": {`{` + strings.Repeat(" ", 1<<20-100) + `}`, processor.ReasonBadArgs},
	} {
		_, err := processortest.New(f).Start(t.Context(), []byte(test.args))
		if r, ok := errors.AsType[*processor.RejectionError](err); !ok || r.Rejection.GetReason() != test.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
}
