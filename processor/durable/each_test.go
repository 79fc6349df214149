package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type (
	request  = progressorv1.ProcessRequest
	response = progressorv1.ProcessResponse
)

// The steps of branches run in parallel, and the values are in the order of the items.
func TestEach(t *testing.T) {
	together := make(chan int)
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		values, err := durable.Each(ctx, "item", []int{1, 2, 3}, func(ctx durable.Ctx, n int) (int, error) {
			return durable.Step(ctx, "double", func(context.Context) (int, error) {
				switch n {
				case 1:
					together <- n
				case 2:
					<-together
				}
				return 2 * n, nil
			})
		}, durable.Limit(2))
		return fmt.Sprint(values), err
	}))
	check(t, "journal", journal(p), "start:f step:item[0]/double step:item[1]/double step:item[2]/double end:f")
	tasks := p.Trace()
	check(t, "response", string(tasks[len(tasks)-1].GetResponse()), `"[2 4 6]"`)
	if len(tasks) != 2 { // INIT, all items
		t.Errorf("%d tasks", len(tasks))
	}
}

// All items run to their ends. Their errors are joined.
func TestEachFails(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		_, err := durable.Each(ctx, "item", []string{"a", "b", "c"}, func(ctx durable.Ctx, item string) (int, error) {
			durable.Sleep(ctx, "pause", time.Minute)
			if item == "b" {
				return 0, nil
			}
			return 0, errors.New("no " + item)
		})
		return fmt.Sprint(err), nil
	}))
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted {
		t.Fatal(err, p.Status(), p.Detail())
	}
	tasks := p.Trace()
	check(t, "response", string(tasks[len(tasks)-1].GetResponse()), `"item[0]: no a\nitem[2]: no c"`)
}

// If several branches return errors, a rejection does not hide a failure. The error is cut if it is
// too long for the journal.
func TestJoinedErrors(t *testing.T) {
	for name, test := range map[string]struct {
		errs   []error
		status process.Status
		reason string
	}{
		"rejections": {[]error{processor.Reject("full", "a"), processor.Reject("closed", "b")},
			process.StatusCompleted, "full"},
		"a rejection and a failure": {[]error{processor.Reject("full", "a"), processor.Fail("odd", "b")},
			process.StatusError, "odd"},
		"long errors": {slices.Repeat([]error{errors.New(strings.Repeat("x", 8<<10))}, 200),
			process.StatusError, "error"},
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			_, err := durable.Each(ctx, "item", test.errs, func(ctx durable.Ctx, err error) (int, error) {
				return 0, durable.Run(ctx, "s", func(context.Context) error { return err })
			})
			return "", err
		}))
		var last struct {
			K string
			E durable.StepError
		}
		events := p.Events()
		if err := json.Unmarshal(events[len(events)-1].GetPayload(), &last); err != nil {
			t.Fatal(err)
		}
		if p.Status() != test.status || last.K != "fail" || last.E.Reason != test.reason ||
			!strings.HasPrefix(last.E.Message, "item[0]: step item[0]/s: ") || len(last.E.Message) > 9<<10 {
			t.Errorf("%s: %s, %s with %q", name, p.Status(), last.K, last.E.Reason)
		}
	}
}

// More steps than one task may run, and more new entries than one result may store, take several
// tasks.
func TestManyEntries(t *testing.T) {
	for name, test := range map[string]struct {
		f                 func(ctx durable.Ctx) error
		tasks, checkpoint int // without checkpoints, and with them
	}{
		"steps": {func(ctx durable.Ctx) error {
			_, err := durable.Each(ctx, "item", make([]int, 250), func(ctx durable.Ctx, _ int) (int, error) {
				return 0, durable.Run(ctx, "s", func(context.Context) error { return nil })
			})
			return err
		}, 4, 2},
		"values": {func(ctx durable.Ctx) error {
			for range 1200 {
				durable.Rand(ctx, "n", 6)
			}
			return nil
		}, 3, 2},
	} {
		f := function(func(ctx durable.Ctx) (string, error) { return "", test.f(ctx) })
		p := start(t, f, processortest.WithoutCheckpoints())
		if n := len(p.Trace()); p.Status() != process.StatusCompleted || n != test.tasks {
			t.Errorf("%s: %s %s after %d tasks, want %d", name, p.Status(), p.Detail(), n, test.tasks)
		}
		p = start(t, f)
		if n := len(p.Trace()); p.Status() != process.StatusCompleted || n != test.checkpoint {
			t.Errorf("%s: %s %s after %d tasks, want %d", name, p.Status(), p.Detail(), n, test.checkpoint)
		}
	}
}

// Values are recorded before a step that could depend on them runs.
func TestValues(t *testing.T) {
	var seen []string
	lost := true
	f := durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) {
		at, id, n := durable.Now(ctx, "at"), durable.UUID(ctx, "id"), durable.Rand(ctx, "n", 1000)
		text := fmt.Sprint(at, id, n, durable.Version(ctx, "fees"), durable.Version(ctx, "other"), ctx.Process())
		err := durable.Run(ctx, "a", func(c context.Context) error {
			seen = append(seen, text+durable.StepKey(c))
			return nil
		})
		durable.SetMetadata(ctx, map[string]any{"state": "done", "tmp": nil})
		return text, err
	}, durable.Versions{"fees": 2})
	p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
		resp, err := f.Process(ctx, req)
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && lost {
			lost = false // the attempt is killed after its step
			return f.Process(ctx, req)
		}
		return resp, err
	}))
	if len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("%q", seen)
	}
	if key := durable.StepKey(t.Context()); key != "" {
		t.Errorf("a context without a step has the key %q", key)
	}
	check(t, "metadata", fmt.Sprint(p.Metadata()), "map[state:done versions:map[fees:2]]")
	check(t, "journal", journal(p), "start:f value:at value:id value:n step:a end:f")
}

// The step keys of a process differ from those of an earlier process with the same ID.
func TestStepKeysOfNewProcess(t *testing.T) {
	keys := map[string]bool{}
	for _, day := range []int{1, 2} {
		start(t, function(func(ctx durable.Ctx) (string, error) {
			return "", durable.Run(ctx, "a", func(c context.Context) error {
				keys[durable.StepKey(c)] = true
				return nil
			})
		}), processortest.WithTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)))
	}
	if len(keys) != 2 {
		t.Errorf("the keys are %v", keys)
	}
}

// A step keeps its result if steps are inserted and removed around it.
func TestChangedFunction(t *testing.T) {
	var done effects
	order := []string{"a", "b"}
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		for i, name := range order {
			if _, err := durable.Step(ctx, name, done.says(name)); err != nil {
				return "", err
			}
			if i == 1 {
				durable.Sleep(ctx, "pause", time.Hour)
			}
		}
		return "", nil
	}))
	order = []string{"new", "b", "c"}
	if err := p.Advance(t.Context(), 2*time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Fatal(err, p.Status())
	}
	check(t, "effects", done.String(), "a b new c")
}

func TestKillEverywhereWithBranches(t *testing.T) {
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			values, err := durable.Each(ctx, "item", []int{1, 2, 3, 4}, func(ctx durable.Ctx, n int) (int, error) {
				calls := durable.Calls[int, int](ctx, "set")
				durable.Sleep(ctx, "pause", time.Duration(5-n)*time.Minute)
				late := durable.After(ctx, "late", time.Hour)
				if durable.First(ctx, "which", late, calls) == late {
					return 0, nil
				}
				set := calls.Next()
				return durable.Step(ctx, "double", func(context.Context) (int, error) { return 2 * set, nil })
			}, durable.Limit(3))
			return fmt.Sprint(values), err
		})
	}, struct{}{}, durabletest.Call("item[0]/set", 7), durabletest.Advance(10*time.Minute),
		durabletest.Call("item[3]/set", 8), durabletest.Advance(2*time.Hour))
}

// The values on which a step depends are stored before the step runs, even if a timer has just
// fired.
func TestStoredBeforeSteps(t *testing.T) {
	var seen []string
	f := function(func(ctx durable.Ctx) (string, error) {
		durable.Sleep(ctx, "pause", time.Hour)
		id := durable.UUID(ctx, "id")
		return "", durable.Run(ctx, "a", func(context.Context) error {
			seen = append(seen, id)
			return nil
		})
	})
	p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT { // every first attempt is killed at its end
			if _, err := f.Process(ctx, req); err != nil {
				return nil, err
			}
		}
		return f.Process(ctx, req)
	}), processortest.WithoutCheckpoints())
	if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
		t.Fatal(err, p.Status())
	}
	if len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("the attempts of the step got %q", seen)
	}
}

// A step that waits for its next try runs at its time even if the function has changed before the
// step.
func TestRetryInChangedFunction(t *testing.T) {
	tries, changed := 0, false
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		if changed {
			durable.Now(ctx, "new")
		}
		return "", durable.Run(ctx, "a", func(context.Context) error {
			if tries++; tries == 1 {
				return errors.New("odd")
			}
			return nil
		}, durable.Retry(2, time.Minute))
	}), processortest.WithoutCheckpoints())
	changed = true
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status())
	}
	check(t, "journal", journal(p), "start:f try:a value:new step:a end:f")
}
