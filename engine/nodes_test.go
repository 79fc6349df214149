package engine_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A call on one node is answered even if its process is busy on another node.
func TestCallOfProcessBusyElsewhere(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a, b := start(t, dsn, byTask{callTask: g.held(true)}), start(t, dsn, byTask{callTask: g.held(true)})
	a.started(t, "p")
	first := a.calling("p", "1")
	receive(t, "the call runs on a", g.entered)
	second, third := b.calling("p", "2"), a.calling("p", "3")
	eventually(t, "both wait", func() bool { return openDB(t, dsn).count(t, "SELECT count(*) FROM schedule") == 2 })
	g.release()
	for n, c := range []<-chan result{first, second, third} {
		if res := receive(t, "call", c); res.err != nil || string(res.ans.Response) != []string{"1", "2", "3"}[n] {
			t.Errorf("%+v", res)
		}
	}
	if b.Waiting() != 0 || a.Waiting() != 0 {
		t.Error("a client still waits")
	}
}

// brief configures a node that the others soon declare dead.
func brief(c *engine.Config) {
	c.ZombieAfter, c.ZombieMargin, c.ScanInterval = time.Second, 500*time.Millisecond, 100*time.Millisecond
	c.DrainTimeout = time.Second
}

// A node that was declared dead while it was disconnected gets a new identity and continues.
func TestDeclaredDeadNodeContinues(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo(), brief)
	old := n.store.NodeID()
	n.started(t, "p")
	if _, err := openDB(t, dsn).Exec(t.Context(), "DELETE FROM nodes"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node has a new identity", func() bool { return n.store.NodeID() != old })
	n.called(t, "p", "x")
}

// If the response to a claim was lost, the node finds the claim and runs the task. The test inserts
// a row into running that belongs to this node but is unknown in its memory.
func TestUnknownClaimIsAdopted(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, processor.Echo(), reg.use)
	n.started(t, "p")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	_, err := openDB(t, dsn).Exec(t.Context(),
		`INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline,
		scheduled_time, running_time, args)
		  VALUES ('ns', 'p', nextval('task_ids'), 'CALL', 1, nextval('fencing_tokens'), $1, now() + interval '1 minute',
		    now(), now() - interval '10 s', 'x')`, n.store.NodeID())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task has run", func() bool {
		return reg.value(t, "progressor_tasks_adopted_total", "namespace=ns") == 1
	})
	eventually(t, "its result is stored", func() bool {
		p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
		return err == nil && string(p.GetAuxState()) == "x"
	})
	if res := receive(t, "a call", n.persisting("p", "continues")); res.err != nil {
		t.Error(res.err)
	}
	eventually(t, "no slot is taken", func() bool { taken, _ := n.Slots("ns"); return taken == 0 })
}
