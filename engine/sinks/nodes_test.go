package sinks_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// shares returns how many sinks each node has, sorted.
func (n *node) shares(t testing.TB) string {
	t.Helper()
	list, _, err := n.List(t.Context(), &progressorv1.ListSinksRequest{Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int64]int{}
	for _, m := range list {
		counts[m.GetStatus().GetNodeId()]++
	}
	return fmt.Sprint(slices.Sorted(maps.Values(counts)))
}

// Nodes share the sinks. A node that starts gets some of them, without duplicates. When a node is
// killed, the others continue with its sinks.
func TestNodesShareSinks(t *testing.T) {
	t.Parallel()
	const count = 6
	s := newSite(t)
	nodes := []*node{s.start()}
	var receivers []*receiver
	for i := range count {
		r := newReceiver(t)
		m := sinkTo(r)
		m.SinkId = fmt.Sprintf("s%d", i)
		nodes[0].put(t, m)
		receivers = append(receivers, r)
	}
	started := 0
	deliver := func() {
		t.Helper()
		started++
		nodes[len(nodes)-1].begin(t, fmt.Sprintf("p%d", started))
		for i, r := range receivers {
			eventually(t, fmt.Sprintf("sink s%d has delivered all", i), func() bool {
				events, _, _ := r.counts()
				return events == int64(started)
			})
		}
	}
	for _, shares := range []string{"[6]", "[3 3]", "[2 2 2]"} {
		if shares != "[6]" {
			nodes = append(nodes, s.start())
		}
		eventually(t, "the nodes have "+shares, func() bool { return nodes[0].shares(t) == shares })
		deliver()
	}
	for i, r := range receivers {
		if _, again, _ := r.counts(); again != 0 {
			t.Errorf("sink s%d: %d changes were received again", i, again)
		}
	}
	nodes[0].Store.Close() // as if the node were killed
	nodes = nodes[1:]
	eventually(t, "the others have the sinks of the killed node", func() bool { return nodes[0].shares(t) == "[3 3]" })
	deliver()
}

// A lease from before a backward step of the database clock does not block a sink.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	s, first, r := newSink(t)
	first.begin(t, "a")
	first.drains(t)
	first.Store.Close() // as if the node were killed
	s.exec(`UPDATE sinks SET lease_time = lease_time + interval '1 hour', asked_node_id = 1,
		asked_time = now() + interval '1 hour'`)
	second := s.start()
	second.begin(t, "b")
	second.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1, b created, b stored 1")
}

// After a failover that has lost the last commits, a sink continues by itself at its stored
// position. Its next changes have larger numbers than the lost ones.
func TestFailover(t *testing.T) {
	t.Parallel()
	db := storagetest.NewReplicated(t)
	s := &site{t: t, dsn: db.DSN, db: storagetest.Connect(t, db.DSN)}
	n := s.start()
	r := newReceiver(t)
	n.put(t, sinkTo(r))
	n.begin(t, "a")
	n.drains(t)
	db.CatchUp()
	db.Detach()
	n.begin(t, "lost")
	n.drains(t)
	db.FailOver()
	n.callOften(t, "a", "afterwards")
	eventually(t, "the sink has delivered the later changes", func() bool {
		events, _, _ := r.counts()
		return events == 3
	})
	lost := -1
	eventually(t, "the new primary answers", func() bool {
		return s.db.QueryRow(t.Context(), "SELECT count(*) FROM events WHERE process_id = 'lost'").Scan(&lost) == nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if lost != 0 || r.ids["a"] < 1_000_000_000_000 {
		t.Errorf("%d lost events are stored, and the last change of a has the number %d", lost, r.ids["a"])
	}
}

// A node stops delivering for a sink when another node has the lease, even with the same token. It
// claims the sink again when that lease is over.
func TestLeaseOfAnotherNode(t *testing.T) {
	t.Parallel()
	s, n, r := newSink(t)
	n.begin(t, "a")
	n.drains(t)
	token := enginetest.Count(t, s.db, "SELECT token FROM sinks")
	s.exec("UPDATE sinks SET node_id = node_id + 1000")
	eventually(t, "the node has claimed the sink again", func() bool {
		return enginetest.Count(t, s.db, "SELECT token FROM sinks") == token+1
	})
	n.begin(t, "b")
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1, b created, b stored 1")
}
