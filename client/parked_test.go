package client_test

import (
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

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
// history. This is also true with a codec.
func TestWorkerKeepsFunction(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]client.Option{
		"plain": nil, "encoded": {client.WithCodec(newCodec(t, "k1"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
			h.client = client.New(h.url, opts...)
			a := enginetest.NewAdder()
			h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
			h.start("pull", "p")
			for total := range 3 {
				h.adds(1, total+1)
			}
			a.WantTasks(t, 6, 0)
		})
	}
}

// If another worker takes a task of the function, that worker gets the history.
func TestWorkerTakesFunctionOfAnother(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	a, b := enginetest.NewAdder(), enginetest.NewAdder()
	w := h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
	h.start("pull", "p")
	h.adds(1, 1)
	w.stop()
	w = h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(b) })
	h.adds(1, 2)
	if n := w.released(); n != 0 {
		t.Errorf("the other worker has released %d tasks", n)
	}
	a.WantTasks(t, 2, 0)
	b.WantTasks(t, 2, 1)
}

// replaced runs the function once on a worker, stops that worker, and then runs the function on a
// second worker with the same ID.
func replaced(t *testing.T, opts ...client.WorkerOption) (second *testWorker, tasks *enginetest.Adder) {
	t.Helper()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	same := client.WithWorkerID("w")
	first := h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(enginetest.NewAdder()) }, same)
	h.start("pull", "p")
	h.adds(1, 1)
	first.stop()
	tasks = enginetest.NewAdder()
	second = h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(tasks) }, append(opts, same)...)
	h.adds(1, 2)
	return second, tasks
}

// A worker that no longer has the function in its memory releases the lease, and then gets the
// history.
func TestWorkerHasLostFunction(t *testing.T) {
	t.Parallel()
	w, tasks := replaced(t)
	if n := w.released(); n != 1 {
		t.Errorf("the worker has released %d tasks, want 1", n)
	}
	tasks.WantTasks(t, 2, 1)
}

// A worker without parking gets the history, even if it has the ID of a worker that had the
// function in its memory.
func TestWorkerWithoutParking(t *testing.T) {
	t.Parallel()
	w, tasks := replaced(t, client.WithoutParking())
	if n := w.released(); n != 0 {
		t.Errorf("the worker has released %d tasks", n)
	}
	tasks.WantTasks(t, 2, 2)
}

// Most tasks of a function run on the worker that has the function in its memory.
func TestWorkerWithFunctionIsPreferred(t *testing.T) {
	t.Parallel()
	h := newServer(t, enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds), nil)
	var all []*enginetest.Adder
	for range 5 {
		a := enginetest.NewAdder()
		all = append(all, a)
		h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(a) })
	}
	h.start("pull", "p")
	for total := range 20 {
		h.adds(1, total+1)
	}
	var inMemory, history int32
	for _, a := range all {
		inMemory += a.Parked.Load()
		history += a.Complete.Load()
	}
	if inMemory < 30 || history > 10 { // a worker may not be polling when a task becomes available
		t.Errorf("%d tasks ran in memory, %d with the history", inMemory, history)
	}
}
