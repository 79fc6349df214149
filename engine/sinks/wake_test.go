package sinks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// waitUntil reports whether a condition becomes true within a second.
func waitUntil(cond func() bool) bool { return enginetest.WaitUntil(time.Second, cond) }

// A commit wakes the sinks of its namespace on the same node. Without that, they would read again
// after an hour.
func TestCommitWakesTheSink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start(func(k *sinks.Sinks) { k.WaitForWake() })
	r := newReceiver(t)
	n.put(t, sinkTo(r))
	for p := range 5 {
		n.begin(t, fmt.Sprintf("p%d", p))
		n.drains(t)
	}
	if _, err := n.SuspendProcess(t.Context(), key("p0"), "a reason", kim); err != nil {
		t.Fatal(err)
	}
	n.drains(t)
	if events, again, _ := r.counts(); events != 5 || again != 0 {
		t.Errorf("%d events were received, and %d changes were received again", events, again)
	}
}

// A commit of another node also wakes a sink, once the other node knows of the sink.
func TestNoticeWakesTheSink(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	s := newSite(t)
	first := s.start(func(k *sinks.Sinks) { k.WaitForWake() })
	r := newReceiver(t)
	first.put(t, sinkTo(r))
	eventually(t, "a node delivers", func() bool { return first.status(t).GetNodeId() == first.Store.NodeID() })
	second := s.start(func(k *sinks.Sinks) { k.WaitForWake() })
	started := 0
	eventually(t, "a commit of the other node wakes the sink", func() bool {
		// The other node may not have read yet that there is a sink.
		second.begin(t, fmt.Sprintf("p%d", started))
		started++
		return waitUntil(func() bool { return second.status(t).GetLagChanges() == 0 })
	})
	if events, _, _ := r.counts(); events != int64(started) {
		t.Errorf("%d of %d events were received", events, started)
	}
	second.pause(t)
	eventually(t, "no node delivers", func() bool { return second.status(t).GetNodeId() == 0 })
}

// A commit of a node that takes only requests also wakes the sink of another node.
func TestNoticeOfRequestsOnlyWakesTheSink(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	s := newSite(t)
	front := s.startWith(func(c *engine.Config) { c.RequestsOnly = true })
	r := newReceiver(t)
	front.put(t, sinkTo(r))
	back := s.start(func(k *sinks.Sinks) { k.WaitForWake() })
	suspended := 0
	eventually(t, "a commit of the node for requests wakes the sink", func() bool {
		id := fmt.Sprintf("p%d", suspended)
		suspended++
		front.begin(t, id) // the other node runs the task, and wakes its sink
		back.drains(t)
		// The node that takes only requests may not have read yet that another node delivers.
		if _, err := front.SuspendProcess(t.Context(), key(id), "a reason", kim); err != nil {
			t.Fatal(err)
		}
		return waitUntil(func() bool { return back.status(t).GetLagChanges() == 0 })
	})
	status := back.status(t)
	if status.GetNodeId() != back.Store.NodeID() {
		t.Errorf("node %d delivers, not node %d, which runs tasks", status.GetNodeId(), back.Store.NodeID())
	}
	if events, _, _ := r.counts(); events != int64(suspended) {
		t.Errorf("%d of %d events were received", events, suspended)
	}
}
