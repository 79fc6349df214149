package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
)

// A failed delivery is repeated until it succeeds. In the meantime, the status shows the failure.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reaction reaction
		err      string
		again    int // at least
	}{
		"error":   {http.StatusInternalServerError, "HTTP 500 Internal Server Error: no a", 0},
		"missing": {http.StatusNotFound, "HTTP 404 Not Found: no a", 0},
		"slow":    {hang, "no response within 200ms", 0},
		"cut":     {cut, "the server closed the connection without an answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			n := s.start()
			r := newReceiver(t)
			var fails atomic.Bool
			fails.Store(true)
			r.reacts(func(*progressorv1.Change) reaction {
				if fails.Load() {
					return test.reaction
				}
				return accept
			})
			m := sinkTo(r)
			m.GetWebhook().Timeout = durationpb.New(200 * time.Millisecond)
			n.put(t, m)
			n.begin(t, "a")
			eventually(t, "three failures", func() bool { return n.status(t).GetFailures() >= 3 })
			got := n.status(t)
			if got.GetState() != failing || got.GetLastError() != test.err || got.GetNextAttemptTime() == nil ||
				got.GetDeliveredChanges() != 0 {
				t.Errorf("while it fails: %v", got)
			}
			fails.Store(false)
			n.drains(t)
			want(t, "delivered", r.text(), "a created, a stored 1")
			if got := n.status(t); got.GetState() != active || got.GetFailures() != 0 || got.GetLastError() == "" {
				t.Errorf("afterwards: %v", got)
			}
			if _, again, _ := r.counts(); again < test.again {
				t.Errorf("%d changes were received again", again)
			}
		})
	}
}

// While a sink waits for its next attempt, a resume or a put makes it repeat the delivery
// immediately.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start(func(k *sinks.Sinks) { k.RetryLate() })
	r := newReceiver(t)
	n.put(t, sinkTo(r))
	for id, act := range map[string]func(){
		"resumed": func() { n.resume(t) },
		"put":     func() { n.put(t, sinkTo(r)) },
	} {
		r.reacts(func(*progressorv1.Change) reaction { return http.StatusBadGateway })
		n.begin(t, id)
		n.becomes(t, failing)
		// Set the row as if the sink had failed for a long time, and take the lease from the node,
		// so that the node forgets its wait.
		s.exec(`UPDATE sinks SET next_attempt_time = now() + interval '1 hour', token = token + 1, node_id = NULL,
			lease_time = NULL`)
		eventually(t, "a node has the sink and waits", func() bool { return n.status(t).GetNodeId() != 0 })
		r.reacts(nil)
		act()
		n.drains(t)
	}
}

// A response with the status 410 disables a sink until it is resumed.
func TestGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	r.reacts(func(*progressorv1.Change) reaction { return http.StatusGone })
	n.put(t, sinkTo(r))
	n.begin(t, "a")
	n.becomes(t, disabled)
	if got := n.status(t).GetLastError(); got != "the target is gone (HTTP 410 Gone: no a)" {
		t.Error(got)
	}
	eventually(t, "no node delivers", func() bool { return n.status(t).GetNodeId() == 0 })
	if _, _, requests := r.counts(); requests != 1 {
		t.Errorf("%d requests after the status 410", requests)
	}
	r.reacts(nil)
	n.resume(t)
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1")
}

// A change that the target rejects permanently becomes a dead letter, and the next ones are
// delivered. No other change is delivered again.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	r.reacts(func(c *progressorv1.Change) reaction {
		switch {
		case c.GetProcessId() == "b" && c.GetType() == "created":
			return http.StatusUnprocessableEntity
		case c.GetProcessId() == "d":
			return http.StatusRequestEntityTooLarge
		}
		return accept
	})
	n.put(t, sinkTo(r))
	n.pause(t)
	for _, id := range []string{"a", "b", "c", "d"} { // one batch
		n.begin(t, id)
	}
	n.resume(t)
	n.drains(t)
	m := n.sink(t).GetStatus()
	var letters []string
	for _, d := range m.GetRecentDeadLetters() {
		letters = append(letters, d.GetProcessId()+" "+d.GetType()+" "+d.GetError())
	}
	want(t, "dead letters", strings.Join(letters, ", "), "d stored HTTP 413 Request Entity Too Large: no d, "+
		"d created HTTP 413 Request Entity Too Large: no d, b created HTTP 422 Unprocessable Entity: no b")
	if m.GetDeadLetters() != 3 || m.GetState() != active || m.GetDeliveredChanges() != 5 {
		t.Errorf("%v", m)
	}
	if _, again, _ := r.counts(); again != 0 {
		t.Errorf("%d changes were received again", again)
	}
	// A rewind delivers the first dead letter and all later changes again.
	r.reacts(nil)
	first := m.GetRecentDeadLetters()[2].GetChangeTime()
	if _, err := n.Rewind(t.Context(), &progressorv1.RewindSinkRequest{
		Namespace: "ns", SinkId: "s", ToTime: first,
	}); err != nil {
		t.Fatal(err)
	}
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1, b stored 1, c created, c stored 1, d created, d stored 1")
	if m := n.sink(t).GetStatus(); m.GetDeliveredChanges() != 5+6 || m.GetDeadLetters() != 3 {
		t.Errorf("after the rewind: %v", m)
	}
}

// A change of a batch becomes a dead letter, and the next change of its process fails for a while.
// Changes that the target has accepted or rejected in the meantime are not sent again.
func TestFailureAfterADeadLetter(t *testing.T) {
	t.Parallel()
	_, n, r := newSink(t)
	rejected := 0
	r.reacts(func(c *progressorv1.Change) reaction { // holds the lock of r
		switch {
		case c.GetProcessId() != "a":
			return accept
		case c.GetType() == "created":
			rejected++
			return http.StatusUnprocessableEntity
		}
		return http.StatusInternalServerError
	})
	n.pause(t)
	for _, id := range []string{"b", "c", "a"} { // one batch
		n.begin(t, id)
	}
	n.resume(t)
	eventually(t, "five failures", func() bool { return n.status(t).GetFailures() >= 5 })
	r.reacts(nil)
	n.drains(t)
	want(t, "delivered", r.text(), "a stored 1, b created, b stored 1, c created, c stored 1")
	if _, again, _ := r.counts(); again != 0 || rejected != 2 { // once in the batch, and once by itself
		t.Errorf("%d changes were received again, and the rejected one was sent %d times", again, rejected)
	}
	if m := n.sink(t).GetStatus(); m.GetDeliveredChanges() != 5 || m.GetDeadLetters() != 1 {
		t.Errorf("%v", m)
	}
}

// A sink whose changes were deleted is BROKEN. After a rewind and a resume, it continues.
func TestBroken(t *testing.T) {
	t.Parallel()
	s, n, r := newSink(t)
	n.pause(t)
	n.begin(t, "a")
	s.exec(`WITH d AS (DELETE FROM changes RETURNING namespace, lane, seq, "time")
		INSERT INTO change_drops SELECT namespace, lane, max(seq), max("time") FROM d GROUP BY 1, 2`)
	n.resume(t)
	n.becomes(t, broken)
	got := n.status(t).GetLastError()
	if !strings.Contains(got, "deleted before they were delivered: rewind the sink") {
		t.Error(got)
	}
	rewind := &progressorv1.RewindSinkRequest{Namespace: "ns", SinkId: "s", ToTime: beginning}
	if _, err := n.Rewind(t.Context(), rewind); err != nil {
		t.Fatal(err)
	}
	n.resume(t)
	n.begin(t, "b")
	n.drains(t)
	want(t, "delivered", r.text(), "b created, b stored 1")
}

// A sink that lags for longer than max_lag becomes BROKEN, even while it is paused. After a resume,
// the time for max_lag starts again.
func TestLagLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	m := sinkTo(r)
	m.MaxLag = durationpb.New(time.Hour)
	n.put(t, m)
	n.pause(t)
	n.begin(t, "a")
	maintain := func() {
		t.Helper()
		if err := changes.Maintain(t.Context(), n.Store); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(`UPDATE changes SET "time" = "time" - interval '61 minutes'`)
	maintain()
	if got := n.status(t).GetState(); got != paused {
		t.Errorf("a minute after it was created: %s", got)
	}
	s.exec(`UPDATE sinks SET resumed_time = resumed_time - interval '61 minutes'`)
	maintain()
	got := n.status(t)
	if got.GetState() != broken || !strings.Contains(got.GetLastError(), "is older than max_lag") {
		t.Errorf("after its limit: %v", got)
	}
	n.resume(t)
	maintain()
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1")
}

// Several nodes write. The node that delivers is killed, and the receiver often fails, while a long
// transaction of another application is open. No change is missing, and the changes of each process
// are received in order.
func TestNoGap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	long, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(context.Background()) }()
	if _, err := long.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	victim := s.start()
	r := newReceiver(t)
	requests := 0
	r.reacts(func(*progressorv1.Change) reaction { // holds the lock of r
		requests++
		switch {
		case requests%37 == 0:
			return cut
		case requests%23 == 0:
			return http.StatusServiceUnavailable
		case requests%101 == 0:
			return hang
		}
		return accept
	})
	m := sinkTo(r)
	m.GetWebhook().Timeout = durationpb.New(100 * time.Millisecond)
	victim.put(t, m)
	eventually(t, "a node delivers", func() bool { return victim.status(t).GetNodeId() == victim.Store.NodeID() })
	nodes := []*node{s.start(), s.start()}
	const processes, calls = 10, 20
	for p := range processes {
		nodes[p%2].begin(t, fmt.Sprintf("p%d", p))
	}
	var writers sync.WaitGroup
	for p := range processes {
		writers.Go(func() {
			for i := range calls {
				nodes[i%2].callOften(t, fmt.Sprintf("p%d", p), fmt.Sprint(i))
			}
		})
	}
	eventually(t, "some changes are delivered", func() bool {
		events, _, _ := r.counts()
		return events > processes
	})
	victim.Store.Close() // like a kill: the lease is not released
	writers.Wait()
	nodes[1].drains(t)
	got, again, faults := r.counts()
	if stored := int64(enginetest.Count(t, s.db, "SELECT count(*) FROM events")); got != stored ||
		got < processes*(calls+1) {
		t.Errorf("%d events were received, %d are stored", got, stored)
	}
	if faults == 0 || again == 0 {
		t.Errorf("%d faults, and %d changes were received again", faults, again)
	}
}

// callOften calls a process until the call is stored.
func (n *node) callOften(t testing.TB, id, key string) {
	for {
		_, err := n.Call(context.Background(), engine.CallParams{
			Key: process.Key{Namespace: "ns", ProcessID: id}, Args: []byte("x"), IdempotencyKey: key,
		})
		if err == nil {
			return
		}
		if !errors.Is(err, process.ErrUnavailable) {
			t.Error(err)
			return
		}
	}
}

// When the node that delivers is killed, another one continues after the end of the lease. The old
// node can no longer move the cursor.
func TestNodeIsKilled(t *testing.T) {
	t.Parallel()
	s, first, r := newSink(t)
	first.begin(t, "a")
	first.drains(t)
	second := s.start(func(k *sinks.Sinks) { k.ClaimOne() })
	if got := second.status(t).GetNodeId(); got != first.Store.NodeID() {
		t.Errorf("node %d delivers", got)
	}
	lease := changes.SinkLease{SinkKey: changes.SinkKey{Namespace: "ns", SinkID: "s"}, NodeID: first.Store.NodeID()}
	lease.Token = int64(enginetest.Count(t, s.db, "SELECT token FROM sinks"))
	first.Store.Close()
	second.begin(t, "b")
	second.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1, b created, b stored 1")
	if got := second.status(t).GetNodeId(); got != second.Store.NodeID() {
		t.Errorf("node %d delivers", got)
	}
	at, _, err := changes.Now(t.Context(), second.Store, "ns")
	if err != nil {
		t.Fatal(err)
	}
	advance := func(token int64, generation uuid.UUID) error {
		lease.Token, at.Generation = token, generation
		return changes.AdvanceSink(t.Context(), second.Store, lease, at, 1)
	}
	token := int64(enginetest.Count(t, s.db, "SELECT token FROM sinks"))
	if late := advance(lease.Token, at.Generation); !errors.Is(late, process.ErrFenced) {
		t.Errorf("the old node moves the cursor: %v", late)
	}
	lease.NodeID = second.Store.NodeID()
	if late := advance(token, uuid.New()); !errors.Is(late, process.ErrFenced) {
		t.Errorf("after a failover, a cursor from before is stored: %v", late)
	}
}

// A node that stops passes its sinks to another node immediately, without duplicates.
func TestNodeStops(t *testing.T) {
	t.Parallel()
	s, first, r := newSink(t)
	first.begin(t, "a")
	first.drains(t)
	second := s.start()
	first.Stop()
	if free := enginetest.Count(t, s.db, "SELECT count(*) FROM sinks WHERE node_id IS NULL"); free == 0 &&
		second.status(t).GetNodeId() != second.Store.NodeID() {
		t.Error("the sink was not released")
	}
	second.begin(t, "b")
	second.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1, b created, b stored 1")
	if _, again, _ := r.counts(); again != 0 {
		t.Errorf("%d changes were received again", again)
	}
}
