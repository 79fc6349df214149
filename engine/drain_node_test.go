package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A node that is drained by a request to another node finishes its tasks and takes no new ones. It
// keeps running until it is stopped.
func TestDrainNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a, b := start(t, dsn, byTask{callTask: g.held(true)}, brief), start(t, dsn, processor.Echo(), brief)
	for k := range 20 {
		a.started(t, fmt.Sprint("p", k))
	}
	running := a.calling("p0", "x")
	receive(t, "the task runs on a", g.entered)
	w := a.watching("p1", 0)
	w.wants(t, "1", "RUNNING 1")
	id := fmt.Sprint(a.store.NodeID())
	nodes, err := b.ListNodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].GetNodeId() != id || nodes[0].GetRunning() != 1 ||
		nodes[0].GetDraining() || nodes[1].GetRunning() != 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	for range 2 {
		if node, err := b.DrainNode(t.Context(), id, process.Actor{}); err != nil || node.GetNodeId() != id ||
			!node.GetDraining() {
			t.Errorf("%v, %v", node, err)
		}
	}
	eventually(t, "node a drains", func() bool {
		return a.Ready() != nil && strings.Contains(a.Ready().Error(), "draining")
	})
	if err := receive(t, "the end of a stream", w.ended); !errors.Is(err, process.ErrUnavailable) {
		t.Error(err)
	}
	if res := <-a.calling("p2", "x"); !errors.Is(res.err, process.ErrUnavailable) {
		t.Errorf("%+v", res)
	}
	// New timers go to b.
	for k := range 20 {
		if k > 0 {
			b.called(t, fmt.Sprint("p", k), "set")
		}
	}
	if b.Ready() != nil {
		t.Error(b.Ready())
	}
	nodes, err = a.ListNodes(t.Context())
	if err != nil || !nodes[0].GetDraining() || nodes[0].GetRunning() != 1 || nodes[1].GetDraining() {
		t.Errorf("%v, %v", nodes, err)
	}
	g.release()
	if res := receive(t, "the call", running); res.err != nil || string(res.ans.Response) != "x" {
		t.Errorf("%+v", res)
	}
	rows := openDB(t, dsn)
	eventually(t, "node a runs no tasks", func() bool { return a.Attempts() == 0 })
	beat := rows.texts(t, "SELECT max(beat_time)::text FROM nodes WHERE node_id = $1", a.store.NodeID())[0]
	eventually(t, "node a still has its row", func() bool {
		return rows.count(t, `SELECT count(*) FROM nodes WHERE node_id = $1 AND draining
			AND beat_time > $2::text::timestamptz`, a.store.NodeID(), beat) == 1
	})
	a.stop()
	if got := rows.count(t, "SELECT count(*) FROM nodes"); got != 1 {
		t.Errorf("%d nodes are left", got)
	}
	var invalid *process.InvalidError
	if _, err := b.DrainNode(t.Context(), "first", process.Actor{}); !errors.As(err, &invalid) ||
		invalid.Field != "node_id" {
		t.Error(err)
	}
	if _, err := b.DrainNode(t.Context(), id, process.Actor{}); !errors.Is(err, process.ErrNodeNotFound) {
		t.Error(err)
	}
}
