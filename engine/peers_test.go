package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// shift moves stored times of live rows, which has the effect of a clock step in the other
// direction.
func (d db) shift(t testing.TB, by string) {
	t.Helper()
	_, err := d.Exec(context.Background(), `
		WITH n AS (UPDATE nodes SET beat_time = beat_time + $1::interval, started_time = started_time + $1::interval),
		     l AS (UPDATE leases SET leased_time = leased_time + $1::interval, beat_time = beat_time + $1::interval,
		       expires_time = expires_time + $1::interval)
		UPDATE running SET running_time = running_time + $1::interval, deadline = deadline + $1::interval`, by)
	if err != nil {
		t.Fatal(err)
	}
}

// A forward step of the database clock turns neither a node nor a running task into a zombie.
func TestForwardClockStepMakesNoZombies(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	regA, regB := newRegistry(), newRegistry()
	a, b := start(t, dsn, byTask{callTask: g.held(true)}, brief, regA.use),
		start(t, dsn, byTask{callTask: g.held(true)}, brief, regB.use)
	rows := openDB(t, dsn)
	var calls []<-chan result
	for k := range 20 {
		n, id := []*node{a, b}[k%2], fmt.Sprintf("p%d", k)
		n.started(t, id)
		calls = append(calls, n.calling(id, "x"))
		receive(t, "the call runs", g.entered)
	}
	eventually(t, "the nodes know each other", func() bool { return a.KnowsPeers(1) && b.KnowsPeers(1) })
	rows.shift(t, "-1 hour")
	scans := func() float64 {
		return regA.value(t, "progressor_zombie_collection_duration_ms") +
			regB.value(t, "progressor_zombie_collection_duration_ms")
	}
	before := scans()
	eventually(t, "zombies were collected", func() bool { return scans() >= before+4 })
	if n := rows.count(t, "SELECT count(*) FROM nodes WHERE dead_beat_time IS NOT NULL"); n != 0 {
		t.Errorf("%d nodes were declared dead", n)
	}
	g.release()
	for _, c := range calls {
		if res := receive(t, "a call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	// On a busy machine, a node may cancel its own attempts, because its heartbeats are late.
	fenced := regA.value(t, "progressor_attempts_fenced_total") + regB.value(t, "progressor_attempts_fenced_total")
	if n := regA.value(t, "progressor_zombies_total") + regB.value(t, "progressor_zombies_total"); n != 0 ||
		len(g.entered) > int(fenced) {
		t.Errorf("%v zombies, %d second attempts, %v cancelled ones", n, len(g.entered), fenced)
	}
}

// A node that was declared dead cancels its attempt, runs the task again, and gets a new identity.
func TestNodeDeclaredDeadCancelsItsAttempts(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	ended := make(chan error, 10)
	var began atomic.Int32 // counted here, because a released task does not count the attempt
	held := func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if began.Add(1) > 1 {
			return processor.Echo().Process(ctx, r)
		}
		err := g.pass(ctx, r, true)
		ended <- context.Cause(ctx)
		return nil, err
	}
	a := start(t, dsn, byTask{callTask: held}, brief)
	old := a.store.NodeID()
	a.started(t, "p")
	call := a.calling("p", "x")
	receive(t, "the call runs", g.entered)
	if _, err := openDB(t, dsn).Exec(t.Context(), "UPDATE nodes SET dead_beat_time = beat_time"); err != nil {
		t.Fatal(err)
	}
	if receive(t, "the end of the first attempt", ended) == nil {
		t.Error("the first attempt was not cancelled")
	}
	if res := receive(t, "the answer", call); res.err != nil || string(res.ans.Response) != "x" {
		t.Errorf("%+v", res)
	}
	eventually(t, "the node has a new identity", func() bool { return a.store.NodeID() != old })
}

// An attempt that another attempt has replaced is cancelled when the node checks its claims.
func TestLostAttemptIsCancelled(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	a := start(t, dsn, byTask{callTask: g.held(true)}, reg.use)
	a.started(t, "p")
	a.calling("p", "x")
	receive(t, "the call runs", g.entered)
	_, err := openDB(t, dsn).Exec(t.Context(), "UPDATE running SET fencing_token = nextval('fencing_tokens')")
	if err != nil {
		t.Fatal(err)
	}
	a.DoubtClaims()
	eventually(t, "the attempt is cancelled", func() bool {
		return reg.value(t, "progressor_attempts_fenced_total") >= 1
	})
}

// One node does a shared chore. If that node leaves, another node takes over the chore.
func TestNodesDivideChores(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	regs := []registry{newRegistry(), newRegistry(), newRegistry()}
	var nodes []*node
	for _, r := range regs {
		nodes = append(nodes, start(t, dsn, processor.Echo(), brief, r.use))
	}
	for _, n := range nodes {
		eventually(t, "the nodes know each other", func() bool { return n.KnowsPeers(2) })
	}
	for _, chore := range []string{"zombies", "purge", "forget", "expire", "kinds"} {
		owners := 0
		for _, n := range nodes {
			if n.Owns(chore) {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("%d nodes own %s", owners, chore)
		}
	}
	owner := 0
	for i, n := range nodes {
		if n.Owns("zombies") {
			owner = i
		}
	}
	scans := func(i int) float64 { return regs[i].value(t, "progressor_zombie_collection_duration_ms") }
	var before []float64
	for i := range nodes {
		before = append(before, scans(i))
	}
	eventually(t, "the owner collects zombies", func() bool { return scans(owner) >= before[owner]+5 })
	for i := range nodes {
		if did := scans(i) - before[i]; i != owner && did > 1 {
			t.Errorf("node %d has also collected zombies %v times", i, did)
		}
	}
	// Other nodes take over a chore when its owner leaves.
	nodes[owner].stop()
	remaining := append(append([]*node{}, nodes[:owner]...), nodes[owner+1:]...)
	eventually(t, "another node owns the chore", func() bool {
		a, b := remaining[0], remaining[1]
		return a.Owns("zombies") != b.Owns("zombies") && a.KnowsPeers(1) && b.KnowsPeers(1)
	})
}

// After a backward step of the database clock, messages are delivered and grace periods end.
func TestBackwardClockStepStopsNothing(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{callTask: g.held(false), notifyTask: noted}, brief)
	for _, id := range []string{"target", "receiver", "stuck"} {
		n.started(t, id)
	}
	n.calling("stuck", "x")
	receive(t, "the call runs", g.entered)
	grace := time.Second
	rows := openDB(t, dsn)
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("stuck"), Grace: &grace}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE processes SET cancel_requested_time = cancel_requested_time
			+ interval '1 hour', cancel_deadline = cancel_deadline + interval '1 hour'
			WHERE cancel_deadline IS NOT NULL`,
		`INSERT INTO messages (namespace, process_id, kind, created_time, args) VALUES ('ns', 'target', 'notify', now()
			+ interval '1 hour', ' told')`,
		`INSERT INTO messages (namespace, process_id, kind, created_time, args, sender_namespace, sender_process_id,
			sender_task_id)
			VALUES ('ns', 'receiver', 'notify', now() + interval '1 hour', ' told', 'ns', 'target', 1)`,
	} {
		if tag, err := rows.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}
	n.SetBack()
	eventually(t, "the messages are delivered", func() bool {
		return n.state(t, "target") == "start told" && n.state(t, "receiver") == "start told"
	})
	eventually(t, "the grace period is over", func() bool { return n.status(t, "stuck") == "CANCELLED" })
}
