package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A rewind forgets what the function did after the entry. It keeps calls, and the entries of other
// branches.
func TestRewind(t *testing.T) {
	broke := true
	f := function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls[int, struct{}](ctx, "pay")
		early := durable.After(ctx, "early", time.Minute)
		kept := durable.Child[int](ctx, "kept", 1, durable.In("kids"))
		id := durable.UUID(ctx, "id")
		label := func(ctx durable.Ctx, item string) (string, error) {
			return durable.Step(ctx, "label", func(context.Context) (string, error) { return item, nil })
		}
		if _, err := durable.Each(ctx, "parcel", []string{"x", "y"}, label); err != nil {
			return "", err
		}
		late := durable.After(ctx, "late", time.Hour)
		child := durable.Child[int](ctx, "c", 2, durable.In("kids"))
		durable.First(ctx, "either", calls, late)
		calls.Next()
		early.Wait()
		durable.Sleep(ctx, "gap", time.Minute)
		if broke {
			panic("odd")
		}
		n, err := child.Get()
		if err != nil {
			return "", err
		}
		m, err := kept.Get()
		return fmt.Sprint(n, m, id != ""), err
	})
	for name, test := range map[string]struct{ forgotten, journal string }{
		"id": {"value id, step parcel[0]/label, step parcel[1]/label, timer late, child c, first either, timer gap",
			"value:id step:parcel[0]/label step:parcel[1]/label timer:late child:c first:either timer:gap"},
		"parcel[0]/label": {"step parcel[0]/label, timer late, child c, first either, timer gap",
			"step:parcel[0]/label timer:late child:c first:either timer:gap"},
		"parcel[1]/label": {"step parcel[1]/label, timer late, child c, first either, timer gap",
			"step:parcel[1]/label timer:late child:c first:either timer:gap"},
		"late":   {"timer late, child c, first either, timer gap", "timer:late child:c first:either timer:gap"},
		"either": {"first either, timer gap", "first:either timer:gap"},
		"gap":    {"timer gap", "timer:gap"},
	} {
		t.Run(name, func(t *testing.T) {
			broke = true
			p := start(t, f)
			if _, err := p.Call(t.Context(), []byte(`{"pay":1}`)); err != nil {
				t.Fatal(err)
			}
			if err := p.Advance(t.Context(), 3*time.Minute); err != nil || p.Status() != process.StatusError {
				t.Fatal(err, p.Status())
			}
			before := journal(p)
			check(t, "journal", before, "start:f timer:early child:kept value:id step:parcel[0]/label "+
				"step:parcel[1]/label timer:late child:c call:pay first:either fired:early timer:gap")
			broke = false
			response, err := p.Repair(t.Context(), []byte(`{"durable_repair":{"rewind":["`+name+`"]}}`))
			if err != nil {
				t.Fatal(err)
			}
			check(t, "response", string(response),
				`{"forgotten":["`+strings.ReplaceAll(test.forgotten, ", ", `","`)+`"]}`)
			check(t, "journal", journal(p), before+" repair:f "+test.journal)
			check(t, "timers", timersOf(p), "gap late")
		})
	}
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
		broken := true
		return processor.Func(func(ctx context.Context, req *request) (*response, error) {
			broke = broken && req.GetType() != progressorv1.TaskType_TASK_TYPE_REPAIR
			broken = broke
			return f.Process(ctx, req)
		})
	}, struct{}{}, durabletest.Call("pay", 1), durabletest.Advance(3*time.Minute), repairs(`{"rewind":["id"]}`),
		durabletest.Advance(time.Minute),
		durabletest.EndChild("c", 5), durabletest.EndChild("kept", 6))
}

// A name of a rewind means the step with this name, even if an older operation of another kind has
// the same name. KIND:NAME means an operation of any kind.
func TestRewindNames(t *testing.T) {
	broke := true
	f := function(func(ctx durable.Ctx) (string, error) {
		durable.UUID(ctx, "x")
		durable.Sleep(ctx, "x", time.Minute)
		x, err := durable.Step(ctx, "x", func(context.Context) (string, error) { return "X", nil })
		durable.UUID(ctx, "y")
		durable.After(ctx, "y", time.Hour)
		durable.UUID(ctx, "z")
		durable.Sleep(ctx, "end", time.Minute)
		if broke {
			panic("odd")
		}
		return x, err
	})
	const afterX = `,"value y","timer y","value z","timer end"]}`
	for name, want := range map[string]string{
		"x":       `{"forgotten":["step x"` + afterX,
		"step:x":  `{"forgotten":["step x"` + afterX,
		"try:x":   `{"forgotten":["step x"` + afterX,
		"timer:x": `{"forgotten":["timer x","fired x","step x"` + afterX,
		"value:x": `{"forgotten":["value x","timer x","fired x","step x"` + afterX,
		"timer:y": `{"forgotten":["timer y","value z","timer end"]}`,
		"z":       `{"forgotten":["value z","timer end"]}`,
		"y":       "the journal has several entries y: name one of them as value:y or timer:y",
		"first:y": "the journal has no first y to rewind to: there are none yet",
		"timer:z": "the journal has no timer z to rewind to: the names are end, x, y",
		"w":       "the journal has no entry w to rewind to: the names are end, x, y, z",
		"fired:x": "fired:x: the kind must be step, value, timer, child or first",
	} {
		broke = true
		p := start(t, f)
		if err := p.Advance(t.Context(), 3*time.Minute); err != nil || p.Status() != process.StatusError {
			t.Fatal(err, p.Status())
		}
		broke = false
		response, err := p.Repair(t.Context(), []byte(`{"durable_repair":{"rewind":["`+name+`"]}}`))
		got := string(response)
		if rejected, ok := errors.AsType[*processor.RejectionError](err); ok {
			got = strings.TrimPrefix(rejected.Rejection.GetMessage(), "durable_repair.rewind: ")
		}
		check(t, name, got, want)
	}
}

// A child that a rewind forgets is cancelled, and another one is started.
func TestRewindChild(t *testing.T) {
	broke := true
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		child := durable.Child[int](ctx, "c", 7, durable.In("kids"))
		if broke {
			durable.Sleep(ctx, "pause", time.Minute)
			panic("odd")
		}
		n, err := child.Get()
		return fmt.Sprint(n), err
	}))
	if err := p.Advance(t.Context(), 2*time.Minute); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	broke = false
	if err := repairs(`{"rewind":["c"]}`)(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for _, c := range p.Commands() {
		sent = append(sent, c.GetStart().GetProcessId()+c.GetCancel().GetProcessId())
	}
	tasks := p.Trace()
	again := "process/c~" + fmt.Sprint(tasks[len(tasks)-2].GetTaskId())
	check(t, "commands", strings.Join(sent, " "), "process/c~1 process/c~1 "+again)
	old := &progressorv1.ChildEnd{Namespace: "kids", ProcessId: "process/c~1", Status: cancelled}
	if err := p.ChildEnded(t.Context(), old, []byte(`"c"`)); err != nil || strings.Contains(journal(p), "ended") {
		t.Error(err, "the end of the forgotten child is recorded: "+journal(p))
	}
	endOf(t, p, again, &progressorv1.ChildEnd{Status: completed, Response: []byte("5")})
	check(t, "returned", lastEvent(p.Snapshot()), `{"k":"end","n":"f","v":"5"}`)
}

// After a repair, steps are in another order in the journal than in the function. A second repair
// rewinds in the order of the function.
func TestRewindAfterRepair(t *testing.T) {
	for name, want := range map[string]string{
		"charge":  "charge2",
		"mail":    "mail2 charge2",
		"reserve": "reserve3 mail2 charge2",
		"pause":   "",
	} {
		var done effects
		broke, last := errors.New("no money"), errPanic
		p := start(t, trip(&done, &broke, &last))
		broke = nil
		if err := repairs(`{"set":{"charge":"by hand"}}`)(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := p.Advance(t.Context(), 2*time.Hour); err != nil || p.Status() != process.StatusError {
			t.Fatal(err, p.Status())
		}
		check(t, "journal", journal(p), "start:f step:reserve step:mail step:charge fail:f undo:reserve repair:f "+
			"step:charge step:reserve timer:pause")
		last = nil
		if err := repairs(`{"rewind":["`+name+`"]}`)(t.Context(), p); err != nil {
			t.Fatal(name, err)
		}
		check(t, "effects of rewinding "+name, done.String(),
			strings.TrimSuffix("reserve mail charge undo-reserve reserve2 "+want, " "))
		check(t, "timers", timersOf(p), "pause")
	}
}
