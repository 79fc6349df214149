package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// described formats a rejection, with the sizes of its message and details.
func described(r *progressorv1.Rejection) string {
	message := r.GetMessage()
	if strings.HasPrefix(message, "long ") {
		message = fmt.Sprintf("%s…%s of %d", message[:5], message[len(message)-4:], len(message))
	}
	return fmt.Sprintf("%s: %s, %d", r.GetReason(), message, len(r.GetDetails()))
}

// The details of a rejection that is too large are omitted, and the process continues. A rejection
// by hand has the same limits.
func TestLargeRejections(t *testing.T) {
	const largest, margin = 1044480, 20
	rejections := map[string]error{
		"x, 1044460": processor.Reject("no", "x").WithDetails(make([]byte, largest-margin)),
		"x (details omitted: the rejection has 1044491 bytes, at most 1044480 are allowed), 0": processor.Reject("no",
			"x").WithDetails(make([]byte, largest)),
		"long …y… of 8195, 1000": &processor.RejectionError{Rejection: &progressorv1.Rejection{
			Reason: "no", Message: "long " + strings.Repeat("y", 2<<20), Details: make([]byte, 1000),
		}},
	}
	for want, err := range rejections {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			durable.Calls(ctx, "pay", durable.Accept(func(int) (int, error) {
				return 0, fmt.Errorf("checked: %w", err)
			}))
			asks := durable.Requests[int, int](ctx, "ask")
			for {
				asks.Next().Reject(err)
			}
		}))
		for _, name := range []string{"pay", "ask"} {
			_, got := p.Call(t.Context(), []byte(`{"`+name+`":1}`))
			rejected, _ := errors.AsType[*processor.RejectionError](got)
			if rejected == nil || p.Status() != process.StatusRunning {
				t.Fatalf("%s: %s %s: %v", name, p.Status(), p.Detail(), got)
			}
			check(t, name, described(rejected.Rejection), "no: "+want)
		}
		started := processortest.New(function(func(durable.Ctx) (string, error) { return "", err }))
		_, got := started.Start(t.Context(), []byte(`{}`))
		rejected, _ := errors.AsType[*processor.RejectionError](got)
		if rejected == nil {
			t.Fatal(got)
		}
		check(t, "start", described(rejected.Rejection), "no: "+want)
	}
}

// A response of Accept that cannot be stored rejects the call.
func TestBadResponsesOfAccept(t *testing.T) {
	for want, response := range map[string]any{
		"has 1044482 bytes as JSON, at most 1044480 are allowed":      strings.Repeat("x", 1044480),
		"cannot be encoded as JSON: json: unsupported type: chan int": make(chan int),
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			durable.Calls(ctx, "pay", durable.Accept(func(int) (any, error) { return response, nil })).Next()
			return "", nil
		}))
		_, err := p.Call(t.Context(), []byte(`{"pay":1}`))
		if p.Status() != process.StatusRunning || err == nil {
			t.Fatal(p.Status(), p.Detail(), err)
		}
		check(t, "rejection", err.Error(), "rejected: bad_value: the response of call pay "+want)
	}
}

// Many large replies and rejections are stored in several results.
func TestManyLargeReplies(t *testing.T) {
	for name, answer := range map[string]func(*durable.Request[int, string]){
		"replies": func(r *durable.Request[int, string]) { r.Reply(strings.Repeat("x", 1<<20-5000)) },
		"rejections": func(r *durable.Request[int, string]) {
			r.Reject(processor.Reject("no", "no").WithDetails(make([]byte, 1<<20-5000)))
		},
	} {
		const requests = 20
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			asks := durable.Requests[int, string](ctx, "ask")
			var taken []*durable.Request[int, string]
			for range requests {
				taken = append(taken, asks.Next())
			}
			durable.Sleep(ctx, "think", time.Hour)
			for _, request := range taken {
				answer(request)
			}
			return "done", nil
		}))
		for range requests {
			if _, err := p.Call(t.Context(), []byte(`{"ask":1}`)); !errors.Is(err, processortest.ErrDeferred) {
				t.Fatal(name, err)
			}
		}
		if err := p.Advance(t.Context(), time.Hour); err != nil || p.Status() != process.StatusCompleted {
			t.Errorf("%s: %s %.200s: %v", name, p.Status(), p.Detail(), err)
		}
	}
}
