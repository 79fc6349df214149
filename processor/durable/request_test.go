package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// reviewer takes two requests, waits an hour, and answers the second one first.
func reviewer(ctx durable.Ctx) (string, error) {
	asks := durable.Requests[string, int](ctx, "ask")
	first, second := asks.Next(), asks.Next()
	durable.Sleep(ctx, "think", time.Hour)
	second.Reply(len(second.Args))
	n, err := durable.Step(ctx, "count", func(context.Context) (int, error) { return len(first.Args), nil })
	if err != nil || n > 3 {
		first.Reject(processor.Reject("too_long", "%d letters", n))
	} else {
		first.Reply(n)
	}
	return "done", nil
}

func ask(t *testing.T, p *processortest.Process, args string) (string, error) {
	t.Helper()
	response, err := p.Call(t.Context(), fmt.Appendf(nil, `{"ask":%q}`, args))
	return string(response), err
}

// outcomes returns the outcomes of the calls that have ended.
func outcomes(p *processortest.Process) string {
	var list []string
	for _, task := range p.Trace() {
		switch {
		case task.GetType() != progressorv1.TaskType_TASK_TYPE_CALL:
		case task.GetRejection() != nil:
			list = append(list, task.GetRejection().GetReason())
		case task.GetStatus() == progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
			list = append(list, "cancelled")
		default:
			list = append(list, string(task.GetResponse()))
		}
	}
	return strings.Join(list, " ")
}

func TestRequests(t *testing.T) {
	p := start(t, function(reviewer))
	for _, args := range []string{"long", "abc"} {
		if response, err := ask(t, p, args); !errors.Is(err, processortest.ErrDeferred) {
			t.Errorf("%q, %v", response, err)
		}
	}
	if _, err := p.Call(t.Context(), []byte(`{"ask":7}`)); err == nil || errors.Is(err, processortest.ErrDeferred) {
		t.Error(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "outcomes", outcomes(p), "bad_args 3 too_long")
	check(t, "journal", journal(p),
		"start:f call:ask call:ask timer:think fired:think reply:ask step:count reply:ask end:f")
	if p.Status() != process.StatusCompleted || len(p.Open()) > 0 {
		t.Error(p.Status(), p.Open())
	}
}

// A reply is sent once, even if the function is killed anywhere.
func TestRequestsAreKilledEverywhere(t *testing.T) {
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor { return function(reviewer) }, struct{}{},
		durabletest.Call("ask", "long"), durabletest.Call("ask", "abc"), durabletest.Advance(2*time.Hour))
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor { return function(atOnce) }, struct{}{},
		durabletest.Call("ask", "yes"), durabletest.Advance(time.Second))
}

// atOnce answers a request in the task of the call, and then ends.
func atOnce(ctx durable.Ctx) (string, error) {
	asks := durable.Requests[string, string](ctx, "ask")
	request := asks.Next()
	if request.Args == "no" {
		request.Reject(errors.New("no is no question"))
	} else {
		request.Reply(request.Args)
	}
	return request.Args, nil
}

func TestReplyInTheTaskOfTheCall(t *testing.T) {
	for args, want := range map[string]string{"yes": `"yes"`, "no": "rejected: error: no is no question"} {
		p := start(t, function(atOnce))
		got, err := ask(t, p, args)
		if err != nil {
			got = err.Error()
		}
		check(t, args, got, want)
		if p.Status() != process.StatusCompleted {
			t.Error(args, p.Status())
		}
		check(t, "journal", journal(p), "start:f call:ask reply:ask end:f")
	}
}

// A function that ends or restarts rejects the requests that it has taken and not answered. A
// restart keeps those that it has not taken.
func TestUnansweredRequests(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[string, string](ctx, "ask")
		switch request := asks.Next(); request.Args {
		case "restart":
			durable.Sleep(ctx, "think", time.Hour)
			return "", durable.Restart(struct{}{})
		case "end":
			return "ended", nil
		case "refuse":
			durable.Sleep(ctx, "think", time.Hour)
			return "", processor.Reject("refused", "refused")
		default:
			request.Reply("answer to " + request.Args)
			return "", durable.Restart(struct{}{})
		}
	}))
	for _, args := range []string{"restart", "kept"} {
		if _, err := ask(t, p, args); !errors.Is(err, processortest.ErrDeferred) {
			t.Error(err)
		}
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "outcomes", outcomes(p), `not_answered "answer to kept"`)
	if _, err := ask(t, p, "end"); err == nil || !strings.Contains(err.Error(), "not_answered") {
		t.Error(err)
	}
	check(t, "journal", journal(p), "start:f call:ask end:f")
}

func TestRequestsOfAFunctionThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status process.Status
		want   string
	}{
		"an expected no": {processor.Reject("refused", "refused"), process.StatusCompleted, "not_answered"},
		"a failure":      {errors.New("broken"), process.StatusError, "cancelled"},
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			durable.Requests[string, string](ctx, "ask").Next()
			durable.Sleep(ctx, "think", time.Hour)
			return "", test.err
		}))
		_, _ = ask(t, p, "x")
		_ = p.Advance(t.Context(), time.Hour)
		check(t, name, outcomes(p), test.want)
		if p.Status() != test.status {
			t.Error(name, p.Status())
		}
	}
}

// A function that panics is in ERROR, and its open request is cancelled. After a repair, a reply to
// this request does nothing.
func TestReplyAfterRepair(t *testing.T) {
	broken := true
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		request := durable.Requests[string, string](ctx, "ask").Next()
		durable.Sleep(ctx, "think", time.Hour)
		if broken {
			panic("broken")
		}
		request.Reply("late")
		return "done", nil
	}))
	_, _ = ask(t, p, "x")
	_ = p.Advance(t.Context(), 24*time.Hour)
	if p.Status() != process.StatusError {
		t.Fatal(p.Status())
	}
	broken = false
	if err := p.RepairSimple(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.Advance(t.Context(), time.Hour)
	check(t, "outcomes", outcomes(p), "cancelled")
	if p.Status() != process.StatusCompleted {
		t.Error(p.Status(), p.Detail())
	}
}

// First can wait for a request, and the journal contains the task of the request, so that a replay
// answers the same caller.
func TestFirstOfARequest(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[string, string](ctx, "ask")
		late := durable.After(ctx, "late", time.Hour)
		if durable.First(ctx, "asked", asks, late) == late {
			return "late", nil
		}
		request := asks.Next()
		late.Wait()
		request.Reply("late")
		return "asked", nil
	}))
	_, _ = ask(t, p, "x")
	var call struct {
		T int64 `json:"t"`
	}
	if err := json.Unmarshal(p.Events()[2].GetPayload(), &call); err != nil || call.T != p.Open()[0] {
		t.Errorf("the call is of task %d, open are %v, %v", call.T, p.Open(), err)
	}
	_ = p.Advance(t.Context(), time.Hour)
	check(t, "outcomes", outcomes(p), `"late"`)
}

// Branches answer requests that the function has taken.
func TestRepliesInBranches(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[string, string](ctx, "ask")
		taken := []*durable.Request[string, string]{asks.Next(), asks.Next()}
		_, err := durable.Each(ctx, "answer", taken, func(
			ctx durable.Ctx, request *durable.Request[string, string],
		) (string, error) {
			text, err := durable.Step(ctx, "think", (&effects{}).says("on "+request.Args))
			request.Reply(text)
			return text, err
		})
		return "", err
	}))
	_, _ = ask(t, p, "a")
	_, _ = ask(t, p, "b")
	_ = p.Advance(t.Context(), time.Second)
	check(t, "outcomes", outcomes(p), `"on a" "on b"`)
	if p.Status() != process.StatusCompleted {
		t.Error(p.Status(), p.Detail())
	}
}

// A body cannot answer a request, because it does not run in a replay.
func TestReplyInABody(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		request := durable.Requests[string, string](ctx, "ask").Next()
		return "", durable.Run(ctx, "think", func(context.Context) error {
			request.Reply("x")
			return nil
		})
	}))
	_, _ = ask(t, p, "x")
	_ = p.Advance(t.Context(), time.Second)
	if !strings.Contains(p.Detail(), "a durable operation in the body of step think") {
		t.Error(p.Status(), p.Detail())
	}
}

func TestRequestMisuse(t *testing.T) {
	for want, f := range map[string]func(*durable.Request[string, any]){
		"the call ask is already answered": func(r *durable.Request[string, any]) {
			r.Reply("a")
			r.Reply("b")
		},
		"the reply to call ask: the value cannot be encoded as JSON": func(r *durable.Request[string, any]) {
			r.Reply(make(chan int))
		},
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			f(durable.Requests[string, any](ctx, "ask").Next())
			return "", nil
		}))
		_, _ = ask(t, p, "x")
		_ = p.Advance(t.Context(), time.Second)
		if p.Status() != process.StatusError || !strings.Contains(p.Detail(), want) {
			t.Errorf("%s: %s", p.Status(), p.Detail())
		}
	}
}

// At most 100 requests are open. Then further ones are rejected, and other calls are accepted.
func TestTooManyRequests(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[string, string](ctx, "ask")
		durable.Calls[string, string](ctx, "pay")
		for range process.MaxOpenTasks / 2 {
			asks.Next()
		}
		durable.Sleep(ctx, "think", time.Hour)
		return "", nil
	}))
	for range process.MaxOpenTasks {
		if _, err := ask(t, p, "x"); !errors.Is(err, processortest.ErrDeferred) {
			t.Fatal(err)
		}
	}
	if _, err := ask(t, p, "x"); err == nil || !strings.Contains(err.Error(), "too_many_calls") {
		t.Error(err)
	}
	if _, err := p.Call(t.Context(), []byte(`{"pay":"x"}`)); err != nil {
		t.Error(err)
	}
}

// On PostgreSQL, the callers of requests wait until the function replies, and get its reply even if
// the first attempts at the tasks that reply are lost.
func TestRequestsInTheEngine(t *testing.T) {
	t.Parallel()
	f := function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[string, int](ctx, "ask")
		first, second := asks.Next(), asks.Next()
		durable.Sleep(ctx, "think", 20*time.Millisecond)
		second.Reply(len(second.Args))
		n, err := durable.Step(ctx, "count", func(context.Context) (int, error) { return len(first.Args), nil })
		first.Reject(processor.Reject("too_long", "%d letters", n))
		return "done", err
	})
	n := node(t, storagetest.DSN(t), processor.Func(func(ctx context.Context, req *request) (*response, error) {
		resp, err := f.Process(ctx, req)
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && req.GetAttempt() == 1 {
			return nil, &processor.LostError{Err: errors.New("the test lost it")}
		}
		return resp, err
	}))
	begin(t, n)
	type result struct {
		response string
		err      error
	}
	call := func(args string) <-chan result {
		got := make(chan result, 1)
		go func() {
			answer, err := n.Call(context.WithoutCancel(t.Context()), engine.CallParams{
				Key: key, Args: fmt.Appendf(nil, `{"ask":%q}`, args), Timeout: time.Minute,
			})
			got <- result{string(answer.Response), err}
		}()
		return got
	}
	first := call("long")
	enginetest.Eventually(t, 20*time.Second, "the first request is open", func() bool {
		return n.Count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'reply'") == 1
	})
	if got := <-call("abc"); got.err != nil || got.response != "3" {
		t.Errorf("the second request: %q, %v", got.response, got.err)
	}
	got := <-first
	if failed, ok := errors.AsType[*engine.TaskError](got.err); !ok || failed.Rejection.GetReason() != "too_long" {
		t.Errorf("the first request: %v", got.err)
	}
	check(t, "end", lastEvent(stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)),
		`{"k":"end","n":"f","v":"done"}`)
}
