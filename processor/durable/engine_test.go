package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

var key = process.Key{Namespace: "ns", ProcessID: "p"}

// node starts an engine whose failed tasks are retried soon.
func node(t *testing.T, dsn string, p processor.Processor) *enginetest.Node {
	t.Helper()
	n := enginetest.Start(t, dsn, p, enginetest.Kinds)
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(20 * time.Millisecond), MaxAttempts: 3,
	}})
	return n
}

func begin(t *testing.T, n *enginetest.Node) {
	t.Helper()
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key, Args: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
}

// stored returns the process once it has this status.
func stored(t *testing.T, n *enginetest.Node, status progressorv1.ProcessStatus) *progressorv1.Process {
	t.Helper()
	var p *progressorv1.Process
	enginetest.Eventually(t, 20*time.Second, "the process is "+status.String(), func() bool {
		var err error
		p, err = n.GetProcess(t.Context(), key, &progressorv1.HistoryRange{}, 0)
		return err == nil && p.GetStatus() == status
	})
	return p
}

func lastEvent(p *progressorv1.Process) string {
	return string(p.GetHistory()[len(p.GetHistory())-1].GetPayload())
}

// parcels waits for a payment, sends parcels in parallel, and waits.
func parcels(done *effects) processor.Processor {
	return function(func(ctx durable.Ctx) (string, error) {
		pays := durable.Calls(ctx, "pay", durable.Accept(func(p pay) (paid, error) {
			return paid{Total: p.Amount}, nil
		}))
		durable.UUID(ctx, "order") // the INIT task stores it, so the first step runs in the next task
		if _, err := durable.Step(ctx, "reserve", done.says("reserve")); err != nil {
			return "", err
		}
		late := durable.After(ctx, "late", time.Hour)
		if durable.First(ctx, "paid-or-late", pays, late) == late {
			return "", processor.Reject("late", "not paid")
		}
		amount := pays.Next().Amount
		labels, err := durable.Each(ctx, "parcel", []string{"a", "b", "c"},
			func(ctx durable.Ctx, parcel string) (string, error) {
				return durable.Step(ctx, "label", done.says("label-"+parcel))
			}, durable.Limit(2))
		durable.Sleep(ctx, "pause", 20*time.Millisecond)
		durable.Publish(ctx, map[string]string{"state": "done"})
		return fmt.Sprint(amount, labels), err
	})
}

// On PostgreSQL, a function has the same outcome if the first attempt at every task with steps is
// lost after the steps have run. A step whose result was stored never runs again.
func TestEngine(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]bool{"nothing is lost": false, "first attempts are lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done effects
			f := parcels(&done)
			n := node(t, storagetest.DSN(t), processor.Func(func(ctx context.Context, req *request) (*response, error) {
				resp, err := f.Process(ctx, req)
				if loses && req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && req.GetAttempt() == 1 {
					return nil, &processor.LostError{Err: errors.New("the test lost it")}
				}
				return resp, err
			}))
			begin(t, n)
			// An earlier call would restart the retries of the task whose attempt was lost.
			enginetest.Eventually(t, 20*time.Second, "the function waits for the payment", func() bool {
				p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING)
				return lastEvent(p) == `{"k":"timer","n":"late","v":3600}`
			})
			answer, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(`{"pay":{"amount":7}}`)})
			if err != nil {
				t.Fatal(err)
			}
			check(t, "response", string(answer.Response), `{"total":7}`)
			p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
			check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"7 [label-a label-b label-c]"}`)
			check(t, "state", string(p.GetAuxState()), `{"state":"done"}`)
			ran := strings.Fields(done.String())
			slices.Sort(ran)
			want := "label-a label-b label-c reserve"
			if loses {
				want = "label-a label-b label-c label-c reserve reserve" // a checkpoint stored a and b
			}
			check(t, "effects", strings.Join(ran, " "), want)
		})
	}
}

// A node stops while a function waits for a timer. Another node continues the function.
func TestEngineMoves(t *testing.T) {
	t.Parallel()
	var done effects
	f := function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "a", done.says("a")); err != nil {
			return "", err
		}
		calls := durable.Calls[int, int](ctx, "go")
		calls.Next()
		durable.Sleep(ctx, "pause", 50*time.Millisecond)
		return durable.Step(ctx, "b", done.says("b"))
	})
	dsn := storagetest.DSN(t)
	first := node(t, dsn, f)
	begin(t, first)
	enginetest.Eventually(t, 20*time.Second, "the first step", func() bool {
		_, err := first.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(`{"go":1}`)})
		return err == nil
	})
	first.Stop()
	second := node(t, dsn, f)
	p := stored(t, second, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"b"}`)
	check(t, "effects", done.String(), "a b")
}

// A function that returned an error is undone and in ERROR. A repair starts it again, with a new
// history. Then a cancel undoes it.
func TestEngineUndoes(t *testing.T) {
	t.Parallel()
	var done effects
	failures := make(chan error, 1)
	failures <- errors.New("odd")
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "a", done.says("a"), durable.Undo(func(_ context.Context, what string) error {
			done.add("undo-" + what)
			return nil
		})); err != nil {
			return "", err
		}
		if err := durable.Run(ctx, "b", func(context.Context) error {
			select {
			case err := <-failures:
				return err
			default:
				return nil
			}
		}); err != nil {
			return "", err
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	}))
	begin(t, n)
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_ERROR)
	check(t, "detail", p.GetDetail(), "step b: odd")
	check(t, "effects", done.String(), "a undo-a")
	if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key}); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, 20*time.Second, "the function sleeps", func() bool {
		return lastEvent(stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING)) ==
			`{"k":"timer","n":"pause","v":3600}`
	})
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key, Reason: "no more"}); err != nil {
		t.Fatal(err)
	}
	p = stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED)
	check(t, "last event", lastEvent(p), `{"k":"undo","n":"a"}`)
	check(t, "effects", done.String(), "a undo-a a undo-a")
	if p.GetFirstEventId() == 1 || len(p.GetHistory()) != 5 {
		t.Errorf("the history begins with %d and has %d events", p.GetFirstEventId(), len(p.GetHistory()))
	}
}
