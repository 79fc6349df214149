package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// deployed is a processor whose build can be replaced.
type deployed struct{ processor.Processor }

func (d *deployed) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	return d.Processor.Process(ctx, req)
}

// answering waits an hour before it takes calls, which it answers if requests is true.
func answering(requests bool) processor.Processor {
	return function(func(ctx durable.Ctx) (string, error) {
		if !requests {
			calls := durable.Calls[string, string](ctx, "ask")
			durable.Sleep(ctx, "think", time.Hour)
			return calls.Next(), nil
		}
		asks := durable.Requests[string, string](ctx, "ask")
		durable.Sleep(ctx, "think", time.Hour)
		first, second := asks.Next(), asks.Next()
		first.Reject(errors.New("no"))
		second.Reply("answer")
		return first.Args, nil
	})
}

// If a new build answers the calls of a queue, it also gets calls that an older build has accepted.
// The callers already have a response, so a reply to such a call does nothing.
func TestCallsBecomeRequests(t *testing.T) {
	d := &deployed{answering(false)}
	p := start(t, d)
	if _, err := ask(t, p, "old"); err != nil {
		t.Fatal(err)
	}
	check(t, "the older build", checked(t, p, answering(false)), "")
	check(t, "the newer build", checked(t, p, answering(true)),
		"changed call ask: was accepted without a reply: Reply and Reject have no effect")
	d.Processor = answering(true)
	if _, err := ask(t, p, "new"); !errors.Is(err, processortest.ErrDeferred) {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "outcomes", outcomes(p), ` "answer"`)
	check(t, "journal", journal(p), "start:f timer:think call:ask call:ask fired:think reply:ask end:f")
	if p.Status() != process.StatusCompleted {
		t.Error(p.Status(), p.Detail())
	}
}

// A check reports requests that a build does not answer, and those that it answers at once.
func TestCheckOfRequests(t *testing.T) {
	waiting := func(f func(asks *durable.RequestQueue[string, string], wait func())) processor.Processor {
		return function(func(ctx durable.Ctx) (string, error) {
			asks := durable.Requests[string, string](ctx, "ask")
			f(asks, func() { durable.Sleep(ctx, "think", time.Hour) })
			return "", nil
		})
	}
	old := waiting(func(asks *durable.RequestQueue[string, string], wait func()) {
		request := asks.Next()
		wait()
		request.Reply("late")
	})
	p := start(t, old)
	_, _ = ask(t, p, "x")
	for name, c := range map[string]struct {
		build processor.Processor
		want  string
	}{
		"the same build": {build: old},
		"it replies at once": {
			build: waiting(func(asks *durable.RequestQueue[string, string], wait func()) {
				asks.Next().Reply("soon")
				wait()
			}),
			want: "new reply ask: the next task answers the call",
		},
		"it replies after another wait": {
			build: function(func(ctx durable.Ctx) (string, error) {
				request := durable.Requests[string, string](ctx, "ask").Next()
				durable.Sleep(ctx, "more", time.Minute)
				request.Reply("soon")
				durable.Sleep(ctx, "think", time.Hour)
				return "", nil
			}),
			want: "new timer more: the next task sets it (durable/request_builds_test.go)",
		},
		"it no longer replies": {
			build: function(func(ctx durable.Ctx) (string, error) {
				durable.Calls[string, string](ctx, "ask").Next()
				durable.Sleep(ctx, "think", time.Hour)
				return "", nil
			}),
			want: "changed call ask: its caller waits for a reply, which Calls does not send",
		},
		"it does not open the call": {
			build: function(func(ctx durable.Ctx) (string, error) {
				durable.Sleep(ctx, "think", time.Hour)
				return "", nil
			}),
			want: "orphan call ask: its caller waits for a reply, and the function does not open this call",
		},
	} {
		check(t, name, checked(t, p, c.build), c.want)
	}
}

// A process that is imported with its history does not reply to calls of the process from which the
// history comes.
func TestRequestsOfAnImportedProcess(t *testing.T) {
	t.Parallel()
	n := node(t, storagetest.DSN(t), answering(true))
	var history []*progressorv1.Event
	for id, payload := range []string{
		`{"k":"start","n":"f","v":{}}`, `{"k":"timer","n":"think","v":1}`,
		`{"k":"call","n":"ask","v":"a","t":987654321}`, `{"k":"call","n":"ask","v":"b","t":987654322}`,
	} {
		history = append(history, &progressorv1.Event{EventId: int64(id + 1), Payload: []byte(payload)})
	}
	if _, err := n.PutProcess(t.Context(), &progressorv1.PutProcessRequest{
		Namespace: key.Namespace, ProcessId: key.ProcessID, Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		History: history, Timers: []*progressorv1.Timer{{Name: "think", FireTime: timestamppb.Now()}},
	}, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	check(t, "end", lastEvent(stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)),
		`{"k":"end","n":"f","v":"a"}`)
}
