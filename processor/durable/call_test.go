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
)

type pay struct {
	Amount int `json:"amount"`
}

type paid struct {
	Total int `json:"total"`
}

// payments adds payments until the total is 100, or until an hour has passed.
func payments() processor.Processor {
	return function(func(ctx durable.Ctx) (string, error) {
		total := 0
		pays := durable.Calls(ctx, "pay", durable.Accept(func(p pay) (paid, error) {
			if p.Amount < 0 {
				return paid{}, errors.New("negative")
			}
			if total+p.Amount > 100 {
				return paid{}, processor.Reject("too_much", "at most %d", 100-total)
			}
			return paid{total + p.Amount}, nil
		}))
		late := durable.After(ctx, "late", time.Hour)
		for total < 100 {
			if durable.First(ctx, "next", pays, late) == late {
				return "late", nil
			}
			total += pays.Next().Amount
		}
		if !late.Stop() {
			return "", errors.New("the timer has fired")
		}
		return "paid", nil
	})
}

func TestCalls(t *testing.T) {
	p := start(t, payments())
	for _, test := range []struct{ args, want string }{
		{`{"pay":{"amount":60}}`, `{"total":60}`},
		{`{"pay":{"amount":60}}`, "rejected: too_much: at most 40"},
		{`{"pay":{"amount":-1}}`, "rejected: error: negative"},
		{`{"pay":{"sum":1}}`, `rejected: bad_args: decode the args: json: unknown field "sum"`},
		{`{"pay":{},"x":{}}`, "rejected: bad_args: the args must be an object with one field, the name of the call, " +
			`as in {"pay":{}}`},
		{`7`, `rejected: bad_args: the args must be an object with one field, the name of the call, as in {"pay":{}}`},
		{`{"":1}`, "rejected: bad_args: the name of the call must not be empty"},
		{`{"refund":{}}`, `rejected: not_open: the function does not take the call "refund" now (it takes: pay)`},
		{`{}`, ``},
		{`{"pay":{"amount":40}}`, `{"total":100}`},
	} {
		response, err := p.Call(t.Context(), []byte(test.args))
		got := string(response)
		if err != nil {
			got = err.Error()
		}
		check(t, test.args, got, test.want)
	}
	if p.Status() != process.StatusCompleted {
		t.Error(p.Status(), p.Detail())
	}
	check(t, "journal", journal(p),
		"start:f timer:late call:pay first:next call:pay first:next#2 stopped:late end:f")
}

// First returns the source that happened first, even if both sources have happened.
func TestFirst(t *testing.T) {
	p := start(t, payments())
	if err := p.Notify(t.Context(), []byte(`{"pay":{"amount":1}}`)); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f timer:late call:pay first:next fired:late first:next#2 end:f")
	tasks := p.Trace()
	check(t, "response", string(tasks[len(tasks)-1].GetResponse()), `"late"`)
}

// First uses the order of the journal, not the order of its arguments.
func TestFirstIsTheEarliest(t *testing.T) {
	for name, callFirst := range map[string]bool{"call": true, "timer": false} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			calls := durable.Calls[int, int](ctx, "c")
			timer := durable.After(ctx, "t", time.Minute)
			durable.Sleep(ctx, "busy", time.Hour)
			if durable.First(ctx, "which", timer, calls) == timer {
				return "timer", nil
			}
			return "call", nil
		}))
		for range 2 {
			if callFirst {
				if _, err := p.Call(t.Context(), []byte(`{"c":1}`)); err != nil {
					t.Fatal(err)
				}
			} else if err := p.Advance(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			callFirst = !callFirst
		}
		if err := p.Advance(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		tasks := p.Trace()
		check(t, name, string(tasks[len(tasks)-1].GetResponse()), `"`+name+`"`)
	}
}

// A call that arrives while a step waits for its next try is recorded. The call does not run the
// step.
func TestCallDuringRetry(t *testing.T) {
	tries := 0
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls[int, int](ctx, "c")
		if err := durable.Run(ctx, "a", func(context.Context) error {
			if tries++; tries == 1 {
				return errors.New("odd")
			}
			return nil
		}, durable.Retry(2, time.Minute)); err != nil {
			return "", err
		}
		return fmt.Sprint(calls.Next()), nil
	}))
	if _, err := p.Call(t.Context(), []byte(`{"c":7}`)); err != nil || tries != 1 {
		t.Error(err, tries)
	}
	if err := p.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f try:a call:c step:a end:f")
}

// A restart keeps all accepted calls, so a process rejects calls beyond the number and the bytes
// that a restart can keep.
func TestTooManyCalls(t *testing.T) {
	for name, test := range map[string]struct{ calls, bytes int }{"calls": {500, 0}, "bytes": {3, 1<<20 - 5000}} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			calls := durable.Calls[string, int](ctx, "c")
			durable.Sleep(ctx, "pause", time.Hour)
			calls.Next()
			return "", durable.Restart(struct{}{})
		}))
		call := func() error {
			_, err := p.Call(t.Context(), fmt.Appendf(nil, `{"c":"%s"}`, strings.Repeat("x", test.bytes)))
			return err
		}
		for range test.calls {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		err := call()
		r, ok := errors.AsType[*processor.RejectionError](err)
		if !ok || r.Rejection.GetReason() != durable.ReasonTooMany {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusRunning {
			t.Fatal(err, p.Status(), p.Detail())
		}
		if n := strings.Count(journal(p), "call:c"); n != test.calls-1 {
			t.Errorf("%s: %d calls after the restart", name, n)
		}
	}
}

// A call is stored even if the function fails because of it. The function fails in the next task.
func TestCallBeforeDefect(t *testing.T) {
	broken := true
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls(ctx, "c", durable.Accept(func(n int) (int, error) { return n + 1, nil }))
		n := calls.Next()
		if broken {
			panic("odd")
		}
		return fmt.Sprint(n), nil
	}))
	response, err := p.Call(t.Context(), []byte(`{"c":7}`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, "response", string(response), "8")
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	broken = false
	if err := p.RepairSimple(t.Context()); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status())
	}
	check(t, "journal", journal(p), "start:f call:c end:f")
}
