package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// trip reserves, sends a mail and charges. broke is the error of the charge, and last is the error
// of the function.
func trip(done *effects, broke, last *error) processor.Processor {
	undo := durable.Undo(func(c context.Context, what string) error {
		done.add("undo-" + what + keyOf(c))
		return nil
	})
	step := func(what string, fails *error) func(context.Context) (string, error) {
		return func(c context.Context) (string, error) {
			done.add(what + keyOf(c))
			return what, *fails
		}
	}
	var never error
	return function(func(ctx durable.Ctx) (string, error) {
		var all []string
		for _, what := range []string{"reserve", "mail", "charge"} {
			fails, opts := &never, []durable.StepOption{undo}
			switch what {
			case "mail":
				opts = nil
			case "charge":
				fails = broke
			}
			value, err := durable.Step(ctx, what, step(what, fails), opts...)
			if err != nil {
				return "", err
			}
			all = append(all, value)
		}
		durable.Sleep(ctx, "pause", time.Hour)
		if errors.Is(*last, errPanic) {
			panic("odd")
		}
		return strings.Join(all, "+"), *last
	})
}

// errPanic lets trip panic at its end.
var errPanic = errors.New("panic")

// keyOf returns the key suffix of a step that runs again.
func keyOf(c context.Context) string {
	_, number, _ := strings.Cut(durable.StepKey(c), "~")
	return number
}

// repairs returns an action that repairs a process by step.
func repairs(args string, more ...func()) durabletest.Action {
	return func(ctx context.Context, p *processortest.Process) error {
		for _, f := range more {
			f()
		}
		_, err := p.Repair(ctx, []byte(`{"durable_repair":`+args+`}`))
		return err
	}
}

// A repair continues a function that has failed. Steps that were undone run again, with a new key.
func TestRepairByStep(t *testing.T) {
	const first = "reserve mail charge undo-reserve "
	for name, test := range map[string]struct {
		args     string
		effects  string
		returned string
		undone   string // what a later failure undoes
		journal  string // what the repair adds
	}{
		"skip": {`{"skip":["charge"]}`, first + "reserve2", "reserve+mail+", " undo-reserve2",
			`{"k":"repair","n":"f","v":{"skip":["charge"],"forget":[1,3,4,5]}} ` +
				`{"k":"step","n":"charge","skipped":true}`},
		"set": {`{"set":{"charge":"by hand"}}`, first + "reserve2", "reserve+mail+by hand",
			" undo-by hand undo-reserve2",
			`{"k":"repair","n":"f","v":{"set":["charge"],"forget":[1,3,4,5]}} {"k":"step","n":"charge","v":"by hand"}`},
		"rewind": {`{"rewind":["charge"]}`, first + "reserve2 charge", "reserve+mail+charge",
			" undo-charge undo-reserve2", `{"k":"repair","n":"f","v":{"rewind":["charge"],"forget":[1,3,4,5]}}`},
		"rewind further": {`{"rewind":["mail"]}`, first + "reserve2 mail2 charge", "reserve+mail+charge",
			" undo-charge undo-reserve2", `{"k":"repair","n":"f","v":{"rewind":["mail"],"forget":[1,2,3,4,5]}}`},
		"several": {`{"rewind":["mail"],"set":{"charge":"by hand"}}`, first + "reserve2 mail2", "reserve+mail+by hand",
			" undo-by hand undo-reserve2", `{"k":"repair","n":"f","v":{"set":["charge"],"rewind":["mail"],` +
				`"forget":[1,2,3,4,5]}} {"k":"step","n":"charge","v":"by hand"}`},
		"set an undone step": {`{"set":{"reserve":"R8"},"skip":["charge"]}`, strings.TrimSuffix(first, " "), "R8+mail+",
			" undo-R82", `{"k":"repair","n":"f","v":{"skip":["charge"],"set":["reserve"],"forget":[1,3,4,5]}} ` +
				`{"k":"step","n":"reserve","v":"R8","u":true} {"k":"step","n":"charge","skipped":true}`},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", fails later: ", fails), func(t *testing.T) {
				var done effects
				broke, last := errors.New("no money"), error(nil)
				p := start(t, trip(&done, &broke, &last))
				if p.Status() != process.StatusError || p.Detail() != "step charge: no money" {
					t.Fatal(p.Status(), p.Detail())
				}
				broke = nil
				if fails {
					last = errors.New("odd")
				}
				before := len(p.Events())
				if err := repairs(test.args)(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				check(t, "effects", done.String(), test.effects)
				texts := make([]string, strings.Count(test.journal, `{"k"`))
				for i := range texts {
					texts[i] = string(p.Events()[before+i].GetPayload())
				}
				check(t, "repair", strings.Join(texts, " "), test.journal)
				if err := p.Advance(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				if fails {
					check(t, "effects", done.String(), test.effects+test.undone)
					check(t, "detail", p.Detail(), "odd")
					return
				}
				check(t, "returned", lastEvent(p.Snapshot()), `{"k":"end","n":"f","v":"`+test.returned+`"}`)
			})
		}
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
				broke, last := errors.New("no money"), errors.New("odd")
				p := trip(&effects{}, &broke, &last)
				return processor.Func(func(ctx context.Context, req *request) (*response, error) {
					if req.GetType() == progressorv1.TaskType_TASK_TYPE_REPAIR {
						broke = nil
					}
					return p.Process(ctx, req)
				})
			}, struct{}{}, repairs(test.args), durabletest.Advance(time.Hour))
		})
	}
}

// A second repair does not bring back what the first one has forgotten.
func TestRepairTwice(t *testing.T) {
	var done effects
	broke, last := errors.New("no money"), error(nil)
	p := start(t, trip(&done, &broke, &last))
	for range 2 {
		if err := repairs(`{"rewind":["charge"]}`)(t.Context(), p); err != nil || p.Status() != process.StatusError {
			t.Fatal(err, p.Status())
		}
	}
	if err := repairs(`{"skip":["charge"]}`)(t.Context(), p); err != nil || p.Status() != process.StatusRunning {
		t.Fatal(err, p.Status())
	}
	check(t, "effects", done.String(), "reserve mail charge undo-reserve reserve2 charge undo-reserve2 "+
		"reserve3 charge undo-reserve3 reserve4")
}

// A repair that is impossible returns the reason and changes nothing.
func TestRepairImpossible(t *testing.T) {
	var done effects
	broke, last := errors.New("no money"), error(nil)
	p := start(t, trip(&done, &broke, &last))
	before := journal(p)
	long := `["a"` + strings.Repeat(`,"a"`, 100) + `]`
	const known = ": the names are charge, mail, reserve"
	const list = `must be a list of names such as ["a"]`
	const fields = `durable_repair: must have no fields other than skip, set and rewind`
	const format = `durable_repair: must be an object such as {"skip":["a"],"set":{"b":1},"rewind":["c"]}`
	for args, want := range map[string]string{
		`{"skip":["charg"]}`:   "bad_args: durable_repair.skip: the function has not reached a step charg" + known,
		`{"set":{"charg":1}}`:  "bad_args: durable_repair.set: the function has not reached a step charg" + known,
		`{"rewind":["charg"]}`: "bad_args: durable_repair.rewind: the journal has no entry charg to rewind to" + known,
		`{"skip":["mail"]}`: "bad_args: durable_repair.skip: step mail has completed and cannot be skipped: " +
			"set its value, or rewind it",
		`{"skip":["charge"],"set":{"charge":1}}`: "bad_args: durable_repair.set: step charge cannot be both skipped " +
			"and set",
		`{}`:                    "bad_args: durable_repair: must name a step",
		`{"skip":` + long + `}`: "bad_args: durable_repair: must name at most 100 steps (got 101)",
		`null`:                  "bad_args: " + format,
		`["charge"]`:            "bad_args: " + format,
		`{"skip":"charge"}`:     "bad_args: durable_repair.skip: " + list,
		`{"skip":null}`:         "bad_args: durable_repair.skip: " + list,
		`{"rewind":[null]}`:     "bad_args: durable_repair.rewind: " + list,
		`{"set":["charge"]}`:    `bad_args: durable_repair.set: must be an object such as {"b":1}`,
		`{"set":null}`:          `bad_args: durable_repair.set: must be an object such as {"b":1}`,
		`{"undo":["charge"]}`:   "bad_args: " + fields,
		`{"Skip":["charge"]}`:   "bad_args: " + fields,
		`{"rewind":["` + strings.Repeat("a", 207) + `"]}`: "bad_args: durable_repair: a name has 207 bytes, " +
			"at most 206 are allowed",
		`{"set":{"reserve":{"a":1}}}`: "durable_journal: the function would fail after this repair: " +
			"durable/repair_test.go:N: the value of step reserve in the journal cannot be decoded as string",
	} {
		err := repairs(args)(t.Context(), p)
		rejected, ok := errors.AsType[*processor.RejectionError](err)
		if !ok {
			t.Errorf("%s: %v", args, err)
			continue
		}
		got := rejected.Rejection.GetReason() + ": " + rejected.Rejection.GetMessage()
		check(t, args, regexp.MustCompile(`go:\d+`).ReplaceAllString(got, "go:N"), want)
	}
	check(t, "journal", journal(p), before)
	check(t, "detail", p.Detail(), "step charge: no money")
}

// A function that has not started has no steps. The repair is not its input.
func TestRepairOfUnstarted(t *testing.T) {
	var done effects
	broke := errors.New("no money")
	req := &request{Type: progressorv1.TaskType_TASK_TYPE_REPAIR, TaskId: 2, Process: &progressorv1.Process{
		Namespace: "test", ProcessId: "p", FirstEventId: 1,
	}, Args: []byte(`{"durable_repair":{"skip":["charge"]}}`)}
	_, err := trip(&done, &broke, &broke).Process(t.Context(), req)
	rejected, ok := errors.AsType[*processor.RejectionError](err)
	if !ok {
		t.Fatal(err)
	}
	check(t, "rejection", rejected.Rejection.GetReason()+": "+rejected.Rejection.GetMessage(), "bad_args: "+
		"durable_repair: the function has not started, so it has no steps: repair it with its args")
}

// A step that is not in the journal yet can be skipped or set, if the function waits for it.
func TestRepairOfStepThatPanics(t *testing.T) {
	var done effects
	f := function(func(ctx durable.Ctx) (string, error) {
		a, err := durable.Step(ctx, "a", func(context.Context) (string, error) { panic("odd") },
			durable.Undo(func(_ context.Context, what string) error {
				done.add("undo-" + what)
				return nil
			}))
		if err != nil {
			return "", err
		}
		b, err := durable.Step(ctx, "b", func(context.Context) (string, error) { panic("odd, too") })
		if err != nil {
			return "", err
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "", errors.New(a + b)
	})
	both := repairs(`{"set":{"a":"A"},"skip":["b"]}`)
	p := start(t, f)
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	err := repairs(`{"skip":["b"]}`)(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "the function has not reached a step b: the names are a") {
		t.Error(err)
	}
	if err := both(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "effects", done.String(), "undo-A")
	check(t, "journal", journal(p), "start:f repair:f step:a step:b timer:pause fired:pause fail:f undo:a")
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor { return f }, struct{}{},
		durabletest.Advance(time.Minute), both, durabletest.Advance(time.Hour))
}

// Children that were cancelled because the function has failed are started again.
func TestRepairAfterCancelOfChildren(t *testing.T) {
	broke := true
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		var all []*durable.Future[int]
		for range 3 {
			all = append(all, durable.Child[int](ctx, "c", 7, durable.In("kids")))
		}
		if err := durable.Run(ctx, "s", func(context.Context) error {
			if broke {
				return errors.New("odd")
			}
			return nil
		}); err != nil {
			return "", err
		}
		sum := 0
		for _, child := range all {
			n, err := child.Get()
			if err != nil {
				return "", err
			}
			sum += n
		}
		return fmt.Sprint(sum), nil
	}))
	if p.Status() != process.StatusError {
		t.Fatal(p.Status(), p.Detail())
	}
	check(t, "journal", journal(p), "start:f child:c child:c#2 child:c#3 step:s fail:f cancel:c cancel:c#2 cancel:c#3")
	broke = false
	response, err := p.Repair(t.Context(), []byte(`{"durable_repair":{"rewind":["s"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, "response", string(response), `{"forgotten":["child c","child c#2","child c#3","step s","fail f",`+
		`"cancel c","cancel c#2","cancel c#3"]}`)
	var started []string
	for _, c := range p.Commands()[6:] {
		started = append(started, strings.Split(c.GetStart().GetProcessId(), "~")[0])
	}
	check(t, "started", strings.Join(started, " "), "process/c process/c#2 process/c#3")
}

// A repair that sets the result of a step removes the timer of the next try of this step.
func TestRepairOfRetry(t *testing.T) {
	f := function(func(ctx durable.Ctx) (string, error) {
		_, err := durable.Each(ctx, "e", []int{0, 1}, func(ctx durable.Ctx, i int) (int, error) {
			if i == 1 {
				durable.Sleep(ctx, "pause", time.Minute)
				_ = durable.Run(ctx, "woke", func(context.Context) error { return nil })
				panic("odd")
			}
			return durable.Step(ctx, "s", func(context.Context) (int, error) { return 0, errors.New("busy") },
				durable.Retry(9, time.Hour))
		})
		return "", err
	})
	p := start(t, f)
	if err := p.Advance(t.Context(), 2*time.Minute); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	if err := repairs(`{"set":{"e[0]/s":1}}`)(t.Context(), p); err == nil || !strings.Contains(err.Error(),
		"the function would fail after this repair: function f panicked: odd") {
		t.Fatal(err)
	}
	if err := repairs(`{"rewind":["e[1]/pause"],"set":{"e[0]/s":1}}`)(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check(t, "timers", timersOf(p), "e[1]/pause")
	var record struct{ V struct{ Forget []int } }
	if err := json.Unmarshal(p.Events()[5].GetPayload(), &record); err != nil ||
		fmt.Sprint(record.V.Forget) != "[1 3 4]" {
		t.Error(err, record)
	}
}

// A panic in the run of a repair is logged once, although the function also runs to find the order
// of its operations.
func TestPanicOfARepairIsLoggedOnce(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		_ = durable.Run(ctx, "a", func(context.Context) error { return errors.New("no") })
		_ = durable.Run(ctx, "b", func(context.Context) error { return errors.New("no") })
		panic("odd")
	}))
	_ = p.Advance(t.Context(), time.Hour)
	if err := repairs(`{"rewind":["b"]}`)(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	_ = p.Advance(t.Context(), time.Hour)
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	if err := repairs(`{"skip":["b"]}`)(t.Context(), p); err == nil {
		t.Error("the function still fails")
	}
	if n := strings.Count(log.String(), "panicked"); n != 1 {
		t.Errorf("%d lines: %s", n, &log)
	}
}

// The engine stores a repair by step and restores the timers that the repair keeps.
func TestEngineRepairByStep(t *testing.T) {
	t.Parallel()
	var done effects
	var fixed atomic.Bool
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		kept := durable.After(ctx, "kept", time.Second)
		if _, err := durable.Step(ctx, "reserve", done.says("reserve"),
			durable.Undo(func(context.Context, string) error {
				done.add("undo")
				return nil
			})); err != nil {
			return "", err
		}
		late := durable.After(ctx, "late", time.Hour)
		charge, err := durable.Step(ctx, "charge", func(context.Context) (string, error) {
			if fixed.Load() {
				return "paid", nil
			}
			return "", errors.New("no money")
		})
		if err != nil {
			return "", err
		}
		late.Stop()
		kept.Wait()
		return charge, nil
	}))
	begin(t, n)
	stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_ERROR)
	repair := engine.RepairParams{Key: key, Args: []byte(`{"durable_repair":{"rewind":["lat"]}}`)}
	if _, err := n.Repair(t.Context(), repair); err == nil || !strings.Contains(err.Error(), "has no entry lat") {
		t.Error(err)
	}
	fixed.Store(true)
	repair.Args = []byte(`{"durable_repair":{"rewind":["late"]}}`)
	if _, err := n.Repair(t.Context(), repair); err != nil {
		t.Fatal(err)
	}
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "effects", done.String(), "reserve undo reserve")
	check(t, "last event", lastEvent(p), `{"k":"end","n":"f","v":"paid"}`)
}

// timersOf returns the names of the timers of a process, in the order of their times.
func timersOf(p *processortest.Process) string {
	var names []string
	for _, timer := range p.Timers() {
		names = append(names, timer.GetName())
	}
	return strings.Join(names, " ")
}
