package client_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// adder is a worker's processor: a durable function that adds the args of calls and publishes the
// total. It counts how often the code of the function begins and which requests it gets.
type adder struct {
	processor.Processor
	begun, parked, complete atomic.Int32
}

func newAdder() *adder {
	a := &adder{}
	a.Processor = durable.Func("add", func(ctx durable.Ctx, _ struct{}) (int, error) {
		a.begun.Add(1)
		calls := durable.Calls[int, int](ctx, "add")
		total := 0
		for {
			total += calls.Next()
			durable.Sleep(ctx, "pause", time.Millisecond)
			durable.Publish(ctx, total)
		}
	})
	return a
}

func (a *adder) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if r.GetParkedId() != "" {
		a.parked.Add(1)
	}
	if len(r.GetProcess().GetHistory()) > 0 {
		a.complete.Add(1)
	}
	return a.Processor.Process(ctx, r)
}

// wantTasks checks how many tasks the worker continued in memory or with a history. Another task
// may get a history too, if it runs so soon after the result before it that the engine does not
// know yet which worker has the process in its memory.
func (a *adder) wantTasks(t *testing.T, tasks, histories int32) {
	t.Helper()
	parked, complete := a.parked.Load(), a.complete.Load()
	if parked+complete != tasks || complete < histories || complete > histories+1 {
		t.Errorf("%d tasks ran in memory and %d with the history, and the function has begun %d times; "+
			"want %d tasks and %d histories", parked, complete, a.begun.Load(), tasks, histories)
	}
}

// released returns how many attempts of a worker have ended with a release.
func (w *testWorker) released() (n int) {
	for {
		select {
		case a := <-w.ended:
			if a.Outcome == client.OutcomeReleased {
				n++
			}
		default:
			return n
		}
	}
}

// adds calls the function p and waits until it has published the total.
func (h *testEngine) adds(amount, total int) {
	h.t.Helper()
	if _, err := h.client.Call(h.t.Context(), &progressorv1.CallRequest{
		Namespace: "pull", ProcessId: "p", Args: fmt.Appendf(nil, `{"add":%d}`, amount)}); err != nil {
		h.t.Fatal(err)
	}
	enginetest.Eventually(h.t, testTimeout, "the total is published", func() bool {
		resp, err := h.client.Process.GetProcess(h.t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "pull", ProcessId: "p"})
		return err == nil && string(resp.GetProcess().GetAuxState()) == fmt.Sprint(total)
	})
}

// A durable function that waits stays in the memory of its worker. The engine then sends no
// history. With a codec, it is the same.
func TestWorkerKeepsFunction(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]client.Option{
		"plain": nil, "encoded": {client.WithCodec(newCodec(t, "k1"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
			h.client = client.New(h.url, opts...)
			a := newAdder()
			h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
			h.start("pull", "p")
			for total := range 3 {
				h.adds(1, total+1)
			}
			a.wantTasks(t, 6, 0)
		})
	}
}

// If another worker takes a task of the function, it gets the history.
func TestWorkerTakesFunctionOfAnother(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	a, b := newAdder(), newAdder()
	w := h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
	h.start("pull", "p")
	h.adds(1, 1)
	w.stop()
	w = h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(b) })
	h.adds(1, 2)
	if n := w.released(); n != 0 {
		t.Errorf("the other worker has released %d tasks", n)
	}
	a.wantTasks(t, 2, 0)
	b.wantTasks(t, 2, 1)
}

// A worker that no longer has the function in its memory releases the lease, and then gets the
// history.
func TestWorkerHasLostFunction(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	a, b := newAdder(), newAdder()
	same := client.WithWorkerID("w")
	w := h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) }, same)
	h.start("pull", "p")
	h.adds(1, 1)
	w.stop()
	w = h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(b) }, same)
	h.adds(1, 2)
	if n := w.released(); n != 1 {
		t.Errorf("the worker has released %d tasks, want 1", n)
	}
	b.wantTasks(t, 2, 1)
}

// A worker without parking, even with the ID of one that has the function in its memory, gets the
// history.
func TestWorkerWithoutParking(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	a, b := newAdder(), newAdder()
	same := client.WithWorkerID("w")
	w := h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) }, same)
	h.start("pull", "p")
	h.adds(1, 1)
	w.stop()
	w = h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(b) }, same, client.WithoutParking())
	h.adds(1, 2)
	if n := w.released(); n != 0 || b.parked.Load() != 0 || b.complete.Load() != 2 {
		t.Errorf("%d tasks were released, %d ran in memory and %d with the history", n, b.parked.Load(),
			b.complete.Load())
	}
}

// The worker that has the function in its memory gets its tasks, if it polls.
func TestWorkerWithFunctionIsPreferred(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	var all []*adder
	for range 5 {
		a := newAdder()
		all = append(all, a)
		h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
	}
	h.start("pull", "p")
	for total := range 20 {
		h.adds(1, total+1)
	}
	var inMemory, history int32
	for _, a := range all {
		inMemory += a.parked.Load()
		history += a.complete.Load()
	}
	if inMemory < 30 || history > 10 { // a worker may have no poll at the moment
		t.Errorf("%d tasks ran in memory, %d with the history", inMemory, history)
	}
}
