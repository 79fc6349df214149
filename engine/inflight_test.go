package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestInFlightPerNamespace fills the share of one namespace with different kinds of waiting
// requests. Requests to another namespace must still succeed.
func TestInFlightPerNamespace(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{notifyTask: g.held(true), callTask: g.held(true)}, reg.use, func(c *engine.Config) {
		c.MaxInFlight = 10
	})
	n.put(t, &progressorv1.Namespace{Namespace: "other"})
	n.started(t, "p")
	accepted, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Accepted: true})
	if err != nil {
		t.Fatal(err)
	}
	var waiting []<-chan result
	for range 4 {
		waiting = append(waiting, n.calling("p", "x"))
	}
	awaited := make(chan error, 5)
	for range cap(awaited) {
		go func() {
			_, err := n.AwaitTask(t.Context(), engine.AwaitParams{
				Key: key("p"), TaskID: accepted.TaskID, Timeout: longWait,
			})
			awaited <- err
		}()
	}
	eventually(t, "four requests work and five wait", func() bool {
		return reg.value(t, "progressor_requests_in_flight") == 4 && reg.value(t, "progressor_requests_waiting") == 5
	})
	refused := func(what string, err error) {
		t.Helper()
		var overload *process.OverloadError
		if !errors.As(err, &overload) || !strings.Contains(overload.Bound, `"ns"`) ||
			!strings.Contains(overload.Bound, "max_in_flight") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("call", (<-n.calling("p", "one too many")).err)
	_, err = n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: accepted.TaskID})
	refused("read of a task", err)
	_, err = n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: accepted.TaskID, Timeout: longWait})
	refused("await", err)
	refused("watch", n.WatchProcess(t.Context(), key("p"), 0, func(*progressorv1.WatchProcessResponse) error {
		return errors.New("the watch was admitted")
	}))
	if got := reg.value(t, "progressor_requests_refused_total", "bound=namespace_in_flight"); got != 2 {
		t.Errorf("%v refusals of work were counted", got)
	}
	if got := reg.value(t, "progressor_requests_refused_total", "bound=namespace_awaits"); got != 2 {
		t.Errorf("%v refusals of waits were counted", got)
	}
	if leave, err := n.EnterPoll([]string{"ns"}); err != nil {
		t.Errorf("a poll of a worker: %v", err)
	} else {
		leave()
	}
	if _, err := n.Start(t.Context(), engine.StartParams{
		Key: process.Key{Namespace: "other", ProcessID: "q"},
	}); err != nil {
		t.Errorf("start in the other namespace: %v", err)
	}
	if _, _, err := n.ListErrors(t.Context(), "", 0, ""); err != nil {
		t.Errorf("a request without a namespace: %v", err)
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxWaiting: 17})
	refused("call after a change of the namespace", (<-n.calling("p", "one too many")).err)
	g.release()
	for _, c := range waiting {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	for range cap(awaited) {
		if err := receive(t, "await", awaited); err != nil {
			t.Error(err)
		}
	}
	n.called(t, "p", "after")
}

// When the requests of namespaces fill the node, a part of the limit is left for the answers of
// workers and for operators.
func TestReservedRequests(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{callTask: g.held(true)}, reg.use, func(c *engine.Config) { c.MaxInFlight = 10 })
	n.started(t, "idle")
	var calls []<-chan result
	for _, name := range []string{"ns", "other", "third", "fourth"} {
		count := map[string]int{"ns": 4, "other": 3}[name]
		if name != "ns" {
			n.put(t, &progressorv1.Namespace{Namespace: name})
		}
		p := process.Key{Namespace: name, ProcessID: "p"}
		if _, err := n.Start(t.Context(), engine.StartParams{Key: p}); err != nil {
			t.Fatal(err)
		}
		for range max(count, 1) {
			calls = append(calls, n.calling("p", "x", func(c *engine.CallParams) { c.Key = p }))
		}
		eventually(t, "the calls are in flight", func() bool {
			return reg.value(t, "progressor_requests_in_flight") == float64(len(calls))
		})
	}
	if _, err := n.GetProcess(t.Context(), key("p"), nil, 0); !errors.Is(err, process.ErrOverloaded) {
		t.Errorf("a read of a full node: %v", err)
	}
	if got := reg.value(t, "progressor_requests_refused_total", "bound=in_flight"); got != 1 {
		t.Errorf("%v refusals were counted", got)
	}
	if _, err := n.SuspendProcess(t.Context(), key("idle"), "", process.Actor{}); err != nil {
		t.Errorf("a command of an operator: %v", err)
	}
	leave, err := n.EnterPoll(nil)
	if err != nil {
		t.Errorf("the result of a worker: %v", err)
	} else {
		leave()
	}
	if _, err := n.ResumeProcess(t.Context(), key("idle"), process.Actor{}); err != nil {
		t.Error(err)
	}
	g.release()
	for _, c := range calls {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
}
