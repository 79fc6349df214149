package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// explained waits until the explanation of the process contains the texts.
func explained(t *testing.T, n *enginetest.Node, texts ...string) *progressorv1.ExplainProcessResponse {
	t.Helper()
	var e *progressorv1.ExplainProcessResponse
	said := ""
	defer func() {
		if t.Failed() {
			t.Log(said)
		}
	}()
	enginetest.Eventually(t, 20*time.Second, "explain says "+strings.Join(texts, " … "), func() bool {
		var err error
		if e, err = n.ExplainProcess(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		said = strings.Join([]string{e.GetWaitsForDetail(), e.GetNext(), e.GetUnblock()}, "\n")
		for _, text := range texts {
			if !strings.Contains(said, text) {
				return false
			}
		}
		return true
	})
	return e
}

func waitsFor(t *testing.T, e *progressorv1.ExplainProcessResponse, want progressorv1.WaitsFor) {
	t.Helper()
	if e.GetWaitsFor() != want {
		t.Errorf("waits for %s, want %s: %s", e.GetWaitsFor(), want, e.GetWaitsForDetail())
	}
}

// explainedOrder is an order whose steps the test controls.
type explainedOrder struct {
	bank   atomic.Pointer[error] // the error of the step charge
	undo   atomic.Pointer[error] // the error of the undo of reserve
	inStep chan struct{}         // receives a value when the step charge has begun
	leave  chan struct{}         // lets the step continue
}

func (o *explainedOrder) function() processor.Processor {
	return durable.Func("order", func(ctx durable.Ctx, _ struct{}) (string, error) {
		pays := durable.Calls[string, int](ctx, "pay")
		if _, err := durable.Step(ctx, "reserve", func(context.Context) (int, error) { return 7, nil },
			durable.Undo(func(context.Context, int) error { return *o.undo.Load() })); err != nil {
			return "", err
		}
		late := durable.After(ctx, "pay-within", 3*time.Hour)
		if durable.First(ctx, "paid-or-late", pays, late) == late {
			return "", processor.Reject("late", "not paid")
		}
		late.Stop()
		pays.Next()
		if err := durable.Run(ctx, "charge", func(context.Context) error {
			o.inStep <- struct{}{}
			<-o.leave
			return *o.bank.Load()
		}, durable.Retry(3, 40*time.Minute)); err != nil {
			return "", err
		}
		return pays.Next(), nil
	})
}

func (o *explainedOrder) sets(bank, undo error) {
	o.bank.Store(&bank)
	o.undo.Store(&undo)
}

// fire makes the timer with this name due.
func fire(t *testing.T, n *enginetest.Node, name string) {
	t.Helper()
	storagetest.Exec(t, n.DB, `UPDATE schedule SET scheduled_time = statement_timestamp()
		WHERE process_id = 'p' AND timer_name = $1`, name)
}

// explain describes each state of a function on PostgreSQL in the words of the function.
func TestExplain(t *testing.T) {
	t.Parallel()
	o := &explainedOrder{inStep: make(chan struct{}, 9), leave: make(chan struct{}, 9)}
	o.sets(processor.Fail("bank", "card declined"), nil)
	n := node(t, storagetest.DSN(t), o.function())
	t.Cleanup(func() { close(o.leave) })
	begin(t, n)
	call := func(args string) {
		t.Helper()
		if _, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(args)}); err != nil {
			t.Fatal(err)
		}
	}
	waitsFor(t, explained(t, n, `The function "order" waits for timer "pay-within", due at `, "(in ",
		`unless the function stops it.`, `progressor call ns p --args '{"CALL":…}'`),
		progressorv1.WaitsFor_WAITS_FOR_TIME)

	call(`{"pay":"visa"}`)
	<-o.inStep
	waitsFor(t, explained(t, n, `The function "order" (task `, "TIMEOUT) runs on node ",
		`The step that ended last is "reserve".`), progressorv1.WaitsFor_WAITS_FOR_UNSPECIFIED)
	o.leave <- struct{}{}
	waitsFor(t, explained(t, n, `Step "charge" failed once: bank: card declined. The next try is due at `,
		`Step "charge" is retried at `, "Wait for that time."), progressorv1.WaitsFor_WAITS_FOR_TIME)
	fire(t, n, "retry:charge")
	<-o.inStep
	explained(t, n, `Step "charge" (task `, "runs on node ",
		"It is try 2 of this step. The last one failed: bank: card declined.")
	o.leave <- struct{}{}
	explained(t, n, `Step "charge" failed 2 times: bank: card declined.`)

	down := errors.New("the shop is closed")
	o.sets(processor.Fail("bank", "card declined"), down)
	fire(t, n, "retry:charge")
	<-o.inStep
	o.leave <- struct{}{}
	waitsFor(t, explained(t, n, "undo of step reserve: the shop is closed",
		`The function "order" undoes its steps: "reserve" is the last one.`,
		"To run the undo again, run progressor repair ns p --simple."), progressorv1.WaitsFor_WAITS_FOR_OPERATOR)
	o.sets(nil, nil)
	if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key, Simple: true}); err != nil {
		t.Fatal(err)
	}
	waitsFor(t, explained(t, n,
		`The function "order" ended with the error: bank: step charge: card declined. It undid 1 step.`,
		`To run step "charge" again, run progressor repair ns p --rewind charge.`,
		"To let it count as done, run progressor repair ns p --skip-step charge. To do so with a result, run "+
			"progressor repair ns p --set-step charge=JSON.",
		"with its old input and a new history, run progressor repair ns p."), progressorv1.WaitsFor_WAITS_FOR_OPERATOR)

	if _, err := n.Repair(t.Context(), engine.RepairParams{
		Key: key, Args: []byte(`{"durable_repair":{"skip":["charge"]}}`),
	}); err != nil {
		t.Fatal(err)
	}
	waitsFor(t, explained(t, n, `The function "order" waits for a call.`, "Nothing until it is called.",
		`To call it, run progressor call ns p --args '{"pay":…}'.`), progressorv1.WaitsFor_WAITS_FOR_UNSPECIFIED)
	if e, err := n.ExplainWithoutPayloads(t.Context(), key); err != nil ||
		!strings.Contains(e.GetWaitsForDetail(), "It is idle") {
		t.Error(e, err)
	}
	call(`{"pay":"amex"}`)
	explained(t, n, `It has been COMPLETED since `, `The function "order" returned a value.`)
}

// explain names the child, the job or the request for which a function waits.
func TestExplainChildren(t *testing.T) {
	t.Parallel()
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		asks := durable.Requests[int, int](ctx, "ask")
		durable.Child[string](ctx, "invoice", 1, durable.In("kids")).Get()
		ask := asks.Next()
		label, err := durable.Job[string](ctx, "label", ask.Args, durable.In("images")).Get()
		ask.Reply(len(label))
		return label, err
	}), durable.Func("kid", func(ctx durable.Ctx, _ int) (string, error) {
		return durable.Calls[string, int](ctx, "sign").Next(), nil
	}))
	n.Put(t, enginetest.Pull("images"))
	begin(t, n)
	e := explained(t, n, `The function "f" waits for child "invoice" (kids/p/invoice~`,
		"To see what it waits for, run progressor explain kids 'p/invoice~",
		"It continues when this ends, or when it is called.")
	waitsFor(t, e, progressorv1.WaitsFor_WAITS_FOR_PROCESS)
	_, id, _ := strings.Cut(e.GetWaitsForDetail(), "(kids/")
	id, _, _ = strings.Cut(id, ")")
	kid := process.Key{Namespace: "kids", ProcessID: id}
	if _, err := n.Call(t.Context(), engine.CallParams{Key: kid, Args: []byte(`{"sign":"ann"}`)}); err != nil {
		t.Fatal(err)
	}
	explained(t, n, `The function "f" waits for a call.`)
	if _, err := n.Call(t.Context(), engine.CallParams{
		Key: key, Args: []byte(`{"ask":3}`), Accepted: true,
	}); err != nil {
		t.Fatal(err)
	}
	explained(t, n, `The function "f" waits for job "label" (images/p/label~`, `Call "ask" (task `,
		"has waited for its reply since ")
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	explained(t, n, "It has been CANCELLED since", "enough")
}

// explain says how a function that panics can continue, and with which rejection a function has
// ended.
func TestExplainEnds(t *testing.T) {
	t.Parallel()
	var fixed atomic.Bool
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		durable.Sleep(ctx, "pause", time.Millisecond)
		if !fixed.Load() {
			panic("a bug")
		}
		return "", processor.Reject("sold_out", "no tea")
	}))
	begin(t, n)
	explained(t, n, "a bug", `The function "f" has not ended.`,
		"for example with a fixed version, run progressor repair ns p --simple.",
		"To let a step count as done, run progressor repair ns p --skip-step STEP.")
	fixed.Store(true)
	if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key, Simple: true}); err != nil {
		t.Fatal(err)
	}
	explained(t, n, "It has been COMPLETED since", `The function "f" ended with the error: sold_out: no tea.`)
}
