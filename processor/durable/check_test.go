package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// order is the input of the functions of this test.
type order struct {
	Item  string `json:"item"`
	Price int    `json:"price"`
}

// build is a version of a function. Its zero value is the old one.
type build struct {
	early, renamed, removed, moved, tail bool // a step
	undone                               bool // reserve has no undo
	after                                time.Duration
	wait                                 string // the name of the last timer
	fail                                 error
	ran                                  *effects
}

func (b build) function() processor.Processor {
	return durable.Func("f", b.run)
}

func (b build) step(ctx durable.Ctx, name string, opts ...durable.StepOption) (*order, error) {
	return durable.Step(ctx, name, func(context.Context) (*order, error) {
		b.ran.add(name)
		return &order{Item: name, Price: 1}, nil
	}, opts...)
}

func (b build) run(ctx durable.Ctx, in order) (string, error) {
	if b.fail != nil {
		return "", b.fail
	}
	pays := durable.Calls[pay, paid](ctx, "pay")
	if b.early {
		stock, err := b.step(ctx, "stock")
		if err != nil || stock.Price < 1 { // panics with the zero value
			return "", err
		}
	}
	name, opts := "reserve", []durable.StepOption{durable.Undo(func(context.Context, *order) error { return nil })}
	if b.renamed {
		name = "hold"
	}
	if b.undone {
		opts = nil
	}
	if !b.removed {
		if _, err := b.step(ctx, name, opts...); err != nil {
			return "", err
		}
	}
	after := b.after
	if after == 0 {
		after = time.Hour
	}
	late := durable.After(ctx, "late", after)
	if durable.First(ctx, "which", pays, late) == late {
		return "", processor.Reject("late", "not paid")
	}
	amount := pays.Next().Amount
	if !b.moved {
		if _, err := b.step(ctx, "charge"); err != nil {
			return "", err
		}
	}
	if _, err := durable.Each(ctx, "parcel", []string{"a", "b"}, func(ctx durable.Ctx, _ string) (*order, error) {
		return b.step(ctx, "label")
	}); err != nil {
		return "", err
	}
	if b.tail {
		if _, err := b.step(ctx, "pack"); err != nil {
			return "", err
		}
	}
	wait := b.wait
	if wait == "" {
		wait = "pause"
	}
	durable.Sleep(ctx, wait, time.Hour)
	if b.moved {
		if _, err := b.step(ctx, "charge"); err != nil {
			return "", err
		}
	}
	_, err := b.step(ctx, "mail")
	return fmt.Sprint(in.Item, amount), err
}

// checked returns the findings of a build about a process, one per line.
func checked(t *testing.T, p *processortest.Process, build processor.Processor) string {
	t.Helper()
	return checkedProcess(t, p.Snapshot(), build)
}

func checkedProcess(t *testing.T, p *progressorv1.Process, build processor.Processor) string {
	t.Helper()
	report, err := durablecheck.Run(t.Context(), build, p)
	if err != nil {
		return "error: " + err.Error()
	}
	var lines []string
	for _, f := range report.Findings {
		f.Place, _, _ = strings.Cut(f.Place, ":") // lines of this file change
		lines = append(lines, string(f.Class)+" "+f.String())
	}
	return strings.Join(lines, "\n")
}

// A check finds what a new build would change for a process that waits. It runs no step.
func TestCheck(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const place = " (durable/check_test.go)"
	for name, c := range map[string]struct {
		build         build
		waits, unpaid string // findings about a process that waits for the timer pause, and for the call
		both          bool   // unpaid is the same as waits
	}{
		"nothing changes": {},
		"a step is inserted": {build: build{early: true}, both: true,
			waits: "new step stock: the next task runs it" + place},
		"a step is inserted later": {build: build{tail: true},
			waits: "new step pack: the next task runs it" + place},
		"a step is removed": {build: build{removed: true}, both: true,
			waits: "orphan step reserve: has completed, and cannot be undone if the function fails"},
		"a step is renamed": {build: build{renamed: true}, both: true,
			waits: "orphan step reserve: has completed, and cannot be undone if the function fails, " +
				"perhaps renamed to hold\nnew step hold: the next task runs it" + place},
		"a step is moved": {build: build{moved: true}},
		"a timer is changed": {build: build{after: 2 * time.Hour}, both: true,
			waits: "changed timer late: was set to 1h, not to 2h" + place},
		"a timer is renamed": {build: build{wait: "rest"},
			waits: "orphan timer pause: is pending, and will have no effect, perhaps renamed to rest\n" +
				"new timer rest: the next task sets it" + place},
		"an undo is removed": {build: build{undone: true}, both: true,
			waits: "changed step reserve: no longer has an Undo: if the function fails, it ends in ERROR" + place},
		"the function fails": {build: build{fail: errors.New("no")}, both: true,
			waits: "error the function returns an error here, and no longer waits: error: no"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.both && c.unpaid == "" {
				c.unpaid = c.waits
			}
			p := processortest.New(build{ran: &effects{}}.function())
			if _, err := p.Start(t.Context(), []byte(`{"item":"tea","price":7}`)); err != nil {
				t.Fatal(err)
			}
			var ran effects
			c.build.ran = &ran
			check(t, "unpaid", checked(t, p, c.build.function()), c.unpaid)
			if _, err := p.Call(t.Context(), []byte(`{"pay":{"amount":7}}`)); err != nil {
				t.Fatal(err)
			}
			check(t, "waits", checked(t, p, c.build.function()), c.waits)
			check(t, "effects of the check", ran.String(), "")
		})
	}
}
