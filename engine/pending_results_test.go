package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// leasedTask polls until a worker of a node gets a task of a process.
func (n *node) leasedTask(t testing.TB, id string) *progressorv1.Lease {
	t.Helper()
	polled, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"ns"}, WorkerID: "w", Max: 1, Wait: longWait,
	})
	if err != nil || len(polled) != 1 || polled[0].GetRequest().GetProcess().GetProcessId() != id {
		t.Fatalf("poll for %s: %v, %v", id, polled, err)
	}
	return polled[0]
}

// answered sends the answer of a worker to a lease.
func (n *node) answered(t testing.TB, l *progressorv1.Lease, b *processor.ResultBuilder) error {
	t.Helper()
	response, err := b.Done()
	if err != nil {
		t.Fatal(err)
	}
	return n.CompleteLease(t.Context(), l.GetLeaseToken(), engine.LeaseAnswer{Response: response})
}

// leasedTimer starts a process and returns the lease of its timer.
func (n *node) leasedTimer(t testing.TB, id string) *progressorv1.Lease {
	t.Helper()
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key(id), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	if err := n.answered(t, n.leasedTask(t, id), processor.Result().SetTimerAfter(0)); err != nil {
		t.Fatal(err)
	}
	return n.leasedTask(t, id)
}

// completeSQL ends an attempt from SQL, with one event.
const completeSQL = `SELECT progressor.complete($1, $2, ARRAY['done']::bytea[], outcome => $3, timer_after => $4)`

// complete ends the attempt of a lease from SQL.
func (d db) complete(t testing.TB, l *progressorv1.Lease, outcome string, after *string) {
	t.Helper()
	d.exec(t, completeSQL, l.GetLeaseToken(), l.GetRequest().GetProcess().GetLastEventId(), outcome, after)
}

// completeLocked ends the attempt of a lease from SQL, and returns when the node has tried to store
// the result. The process is locked until unlock is called.
func (n *node) completeLocked(t testing.TB, dsn string, d db, l *progressorv1.Lease) (unlock func()) {
	t.Helper()
	// A session that waits for the process when the application commits keeps the node from
	// storing the result.
	tx, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), completeSQL, l.GetLeaseToken(), 0, "complete", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	unlock = enginetest.KeepLocked(t, dsn, l.GetRequest().GetProcess().GetProcessId())
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node has tried to store the result", func() bool { return n.store.PutAside() > 0 })
	return unlock
}

// Results that are left to another node do not delay those of this node, even if they are older and
// fill a page.
func TestResultsLeftToAnotherNode(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	dsn := storagetest.DSN(t)
	patient := func(c *engine.Config) { c.ZombieAfter = time.Hour }
	a := start(t, dsn, fails(t), patient)
	a.put(t, enginetest.Pull("ns"))
	a.crash()
	b, rows := start(t, dsn, fails(t), patient, rarely), openDB(t, dsn)
	b.put(t, enginetest.Pull("ns"))
	eventually(t, "the node takes the other one for live", func() bool { return b.KnowsPeers(1) })
	l := b.leasedTimer(t, "p")
	next := int64(rows.count(t, "SELECT nextval('fencing_tokens')"))
	owns := func(token int64) bool { return b.Owns(fmt.Sprint("result ", token)) }
	var others []int64
	for ; len(others) < 600 || !owns(next); next++ {
		if !owns(next) {
			others = append(others, next)
		}
	}
	rows.exec(t, `INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id,
			deadline, scheduled_time, running_time)
		SELECT 'ns', 'other' || token, token, 'TIMEOUT', 1, token, 1, now() + interval '1 hour', now(), now()
		FROM unnest($1::bigint[]) token`, others)
	rows.exec(t, `INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time,
			expires_time, lease_duration, heartbeat_interval, pending_result)
		SELECT 'ns', 'other' || token, token, 'w', '', now(), now(), '1 minute', '20 seconds', '{}'
		FROM unnest($1::bigint[]) token`, others)
	rows.exec(t, "SELECT setval('fencing_tokens', $1, false)", next)
	rows.complete(t, l, "complete", nil)
	eventually(t, "the result of this node is stored", func() bool { return b.status(t, "p") == "COMPLETED" })
	rows.exec(t, "DELETE FROM running")
	rows.exec(t, "DELETE FROM leases")
	rows.endedOnce(t, 1)
}

// endedOnce checks that the attempts that ended from SQL are recorded once, with their events.
func (d db) endedOnce(t testing.TB, attempts int) {
	t.Helper()
	got := d.count(t, "SELECT count(*) FROM tasks WHERE status = 'FINISHED' AND attempt = 1 AND task_type <> 'INIT'")
	events := d.count(t, `SELECT count(*) FROM events e JOIN tasks t USING (namespace, process_id, task_id)
		WHERE t.status = 'FINISHED' AND e.attempt = t.attempt AND e.payload = 'done'`)
	if left := d.count(t, "SELECT count(*) FROM leases WHERE pending_result IS NOT NULL"); got != attempts ||
		events != attempts || left != 0 {
		t.Errorf("%d attempts with %d events have ended, want %d; %d results are left", got, events, attempts, left)
	}
}

// A node stores the result of an attempt that a worker has ended from SQL, and notifies everything
// that waits for it. It learns of the result by a notice, because in this test it polls only once
// an hour.
func TestResultsFromSQL(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, rows := start(t, dsn, fails(t), rarely), openDB(t, dsn)
	n.put(t, enginetest.Pull("ns"))

	l := n.leasedTimer(t, "p")
	w := n.watching("p", 0)
	w.wants(t, "RUNNING 0")
	called := n.calling("p", "x", long)
	eventually(t, "a call waits for the attempt", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule") == 1
	})
	rows.complete(t, l, "complete", nil)
	w.wants(t, "1", "COMPLETED 1")
	if err := receive(t, "the end of the watch", w.ended); err != nil {
		t.Error(err)
	}
	if end := taskError(t, receive(t, "the end of the call", called).err); !end.Cancelled {
		t.Errorf("the call: %v", end)
	}

	l = n.leasedTimer(t, "timer")
	w = n.watching("timer", 0)
	w.wants(t, "RUNNING 0")
	rows.complete(t, l, "timer", new("0s"))
	w.wants(t, "1") // although the status has not changed
	l = n.leasedTask(t, "timer")
	if r := l.GetRequest(); r.GetType() != timeoutTask || r.GetAttempt() != 1 || payloads(r.GetProcess()) != "done" {
		t.Errorf("the next task: %v", r)
	}
	rows.complete(t, l, "wait", nil)
	w.wants(t, "2")
	eventually(t, "the process waits", func() bool { return rows.count(t, "SELECT count(*) FROM running") == 0 })
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("timer")}); err != nil {
		t.Fatal(err)
	}
	rows.complete(t, n.leasedTask(t, "timer"), "complete", nil)
	eventually(t, "the process is cancelled", func() bool { return n.status(t, "timer") == "CANCELLED" })
	rows.endedOnce(t, 4)
}

// The span of an attempt that ends from SQL has the ID that the worker got, because the spans of
// the worker are its children.
func TestSpanOfAResultFromSQL(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), newSpans()
	n, rows := start(t, dsn, fails(t), s.use), openDB(t, dsn)
	n.put(t, enginetest.Pull("ns"))
	ctx, asking := s.Begin(t.Context(), "client")
	if _, err := n.Start(ctx, engine.StartParams{Key: key("p"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	asking.End()
	if err := n.answered(t, n.leasedTask(t, "p"), processor.Result().SetTimerAfter(0)); err != nil {
		t.Fatal(err)
	}
	l := n.leasedTask(t, "p")
	rows.complete(t, l, "complete", nil)
	span := s.await(t, "task TIMEOUT", 1)[0]
	childOf(t, span, asking.SpanContext())
	if id := span.SpanContext().SpanID().String(); !strings.Contains(l.GetTraceparent(), "-"+id+"-") {
		t.Errorf("the worker got the traceparent %q, but the span is %s", l.GetTraceparent(), id)
	}
}

// Until a node stores the result, the process does not change. Neither the worker nor the expiry of
// its lease can end the attempt.
func TestResultFromSQLWithoutNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	back, rows := start(t, dsn, fails(t)), openDB(t, dsn)
	back.put(t, enginetest.Pull("ns"))
	l, suspended := back.leasedTimer(t, "p"), back.leasedTimer(t, "suspended")
	back.stop()
	front := start(t, dsn, fails(t), requestsOnly)
	front.put(t, enginetest.Pull("ns"))
	rows.complete(t, l, "complete", nil)
	rows.complete(t, suspended, "timer", new("1h"))
	rows.exec(t, "UPDATE leases SET expires_time = now() - interval '1 hour'")
	rows.exec(t, "UPDATE running SET deadline = now() - interval '1 hour'")
	late := func(when string) {
		t.Helper()
		if err := front.answered(t, l, processor.Result().Complete()); !errors.Is(err, process.ErrFenced) {
			t.Errorf("%s, the answer of the worker: %v", when, err)
		}
		beaten, err := front.BeatLeases(t.Context(), &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.GetLeaseToken()}},
		})
		if err != nil || beaten[0].GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_LOST {
			t.Errorf("%s, a heartbeat: %v, %v", when, beaten, err)
		}
		if err := front.ReleaseLeases(t.Context(), []string{l.GetLeaseToken()}, 0); err != nil {
			t.Errorf("%s, a release: %v", when, err)
		}
		_, err = front.CheckpointLease(t.Context(), l.GetLeaseToken(), 1,
			&progressorv1.Result{Events: []*progressorv1.NewEvent{{Payload: []byte("late")}}})
		if !errors.Is(err, process.ErrFenced) {
			t.Errorf("%s, a checkpoint: %v", when, err)
		}
	}
	late("before the end")
	if got := front.status(t, "p"); got != "RUNNING" {
		t.Errorf("before the end, the process is %s", got)
	}
	if _, err := front.SuspendProcess(t.Context(), key("suspended"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	start(t, dsn, fails(t)).put(t, enginetest.Pull("ns"))
	eventually(t, "both attempts end", func() bool { return rows.count(t, "SELECT count(*) FROM running") == 0 })
	if a, b := front.status(t, "p"), front.status(t, "suspended"); a != "COMPLETED" || b != "SUSPENDED" {
		t.Errorf("the processes are %s and %s", a, b)
	}
	if n := rows.count(t, "SELECT count(*) FROM schedule WHERE timer_name = '' AND waits_for = 'operator'"); n != 1 {
		t.Errorf("%d timers wait for the operator", n)
	}
	late("after the end")
	rows.endedOnce(t, 2)
}

// A node stops although the process of a pending result is locked. Another node stores the result.
func TestStopWithPendingResult(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn, fails(t), func(c *engine.Config) { c.DrainTimeout = 100 * time.Millisecond })
	rows := openDB(t, dsn)
	a.put(t, enginetest.Pull("ns"))
	unlock := a.completeLocked(t, dsn, rows, a.leasedTimer(t, "p"))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.stop()
	}()
	receive(t, "the node stops", stopped)
	unlock()
	start(t, dsn, fails(t)).put(t, enginetest.Pull("ns"))
	eventually(t, "the attempt ends", func() bool { return rows.count(t, "SELECT count(*) FROM running") == 0 })
	rows.endedOnce(t, 1)
}

// If a node has died, or dies while it ends attempts, another node ends the attempts for which that
// node was responsible. The nodes do not declare the node dead in this test.
func TestResultsFromSQLOfADeadNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	patient := func(c *engine.Config) { c.ZombieAfter = time.Hour }
	a, rows := start(t, dsn, fails(t), patient), openDB(t, dsn)
	a.put(t, enginetest.Pull("ns"))
	const processes = 16
	leases := make([]*progressorv1.Lease, processes)
	for n := range leases {
		leases[n] = a.leasedTimer(t, fmt.Sprint("p", n))
	}
	unlock := a.completeLocked(t, dsn, rows, leases[0])
	a.crash()
	unlock()
	start(t, dsn, fails(t), patient).put(t, enginetest.Pull("ns"))
	for _, l := range leases[1:] {
		rows.complete(t, l, "complete", nil)
	}
	eventually(t, "all processes are completed", func() bool {
		return rows.count(t, "SELECT count(*) FROM processes WHERE status = 'COMPLETED'") == processes
	})
	rows.endedOnce(t, processes)
}
