package engine_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

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
	a, b := start(t, dsn, by{callTask: g.held(true)}), start(t, dsn, by{callTask: g.held(true)})
	a.started(t, "p")
	first := a.calling("p", "1")
	receive(t, "the call runs on a", g.entered)
	second, third := b.calling("p", "2"), a.calling("p", "3")
	eventually(t, "both wait", func() bool { return look(t, dsn).count(t, "SELECT count(*) FROM schedule") == 2 })
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

// lateOnce returns a processor whose first attempt is held and then responds "late", ignoring its
// context. Other attempts echo.
func lateOnce(g *gate) by {
	return by{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if string(r.GetArgs()) != "zombie" || r.GetAttempt() > 1 {
			return processor.Echo().Process(ctx, r)
		}
		_ = g.pass(ctx, r, false)
		return processor.Result().Event([]byte("late")).AuxState([]byte("late")).Response([]byte("late")).
			SetTimerAfter(time.Hour).Done()
	}}
}

// A disconnected node is declared dead. Another node takes over its task, and its late result is
// rejected.
func TestZombieRetried(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	line, slow := through(t, dsn)
	regA, regB := newRegistry(), newRegistry()
	a := start(t, slow, lateOnce(g), brief, regA.use)
	b := start(t, dsn, lateOnce(g), brief, regB.use)
	a.started(t, "p")
	call := a.calling("p", "zombie", keyed("k"), func(p *engine.CallParams) { p.Timeout = longWait })
	receive(t, "the call runs on a", g.entered)
	rows := look(t, dsn)
	if got := rows.count(t, "SELECT count(*) FROM running WHERE node_id = $1", a.store.NodeID()); got != 1 {
		t.Fatalf("%d rows run on a", got)
	}
	behind := b.calling("p", "behind it")
	line.away()
	twin := receive(t, "the second attempt's answer, on b",
		b.calling("p", "zombie", keyed("k"), func(p *engine.CallParams) { p.Timeout = longWait }))
	if twin.err != nil || string(twin.ans.Response) != "zombie" {
		t.Fatalf("%+v", twin)
	}
	if res := receive(t, "the call behind it", behind); res.err != nil {
		t.Errorf("%+v", res)
	}
	if a.Ready() == nil {
		t.Error("a node without heartbeat is ready")
	}
	if got := regB.value(t, "progressor_zombies_total", "namespace=ns"); got != 1 {
		t.Errorf("b collected %v zombies", got)
	}
	line.back()
	g.release()
	if res := receive(t, "the answer, on a", call); res.err != nil || string(res.ans.Response) != "zombie" ||
		res.ans.TaskID != twin.ans.TaskID {
		t.Errorf("%+v", res)
	}
	eventually(t, "the late result is rejected", func() bool {
		return regA.value(t, "progressor_stale_results_total", "namespace=ns") == 1
	})
	p, err := b.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || string(p.GetAuxState()) != "behind it" || p.GetLastEventId() != 3 || len(p.GetTimers()) != 0 {
		t.Errorf("%v, %v", p, err)
	}
	task, err := b.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: twin.ans.TaskID})
	if err != nil || task.GetAttempt() != 2 {
		t.Errorf("%v, %v", task, err)
	}
	eventually(t, "node a is back", func() bool { return a.Ready() == nil })
	a.called(t, "p", "on a again")
}

// With the policy ERROR, as in the reference implementation, a zombie breaks its process.
func TestZombieIsError(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	line, slow := through(t, dsn)
	regA := newRegistry()
	a := start(t, slow, lateOnce(g), brief, regA.use)
	b := start(t, dsn, lateOnce(g), brief)
	b.put(t, &progressorv1.Namespace{Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR})
	a.started(t, "p")
	call := a.calling("p", "zombie", func(p *engine.CallParams) { p.Timeout = longWait })
	receive(t, "the call runs on a", g.entered)
	behind := b.calling("p", "behind it")
	rows := look(t, dsn)
	eventually(t, "a call waits", func() bool { return rows.count(t, "SELECT count(*) FROM schedule") == 1 })
	line.away()
	if res := receive(t, "the call behind it", behind); !taskError(t, res.err).Cancelled {
		t.Errorf("%+v", res)
	}
	line.back()
	g.release()
	res := receive(t, "the answer, on a", call)
	if te := taskError(t, res.err); te.Failure.GetReason() != "zombie" {
		t.Errorf("%+v", te)
	}
	p, err := b.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR ||
		p.GetDetail() != "zombie detected" || p.GetCorruptedBy() != res.ans.TaskID ||
		string(p.GetAuxState()) != "start" || p.GetLastEventId() != 1 {
		t.Errorf("%v, %v", p, err)
	}
	eventually(t, "the late result is rejected", func() bool {
		return regA.value(t, "progressor_stale_results_total", "namespace=ns") == 1
	})
}

// A zombie without attempts left breaks its process, also with the policy RETRY.
func TestZombieOutOfAttempts(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	dead := start(t, dsn, by{callTask: g.held(false)}, brief)
	dead.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 1}})
	dead.started(t, "p")
	dead.calling("p", "x")
	receive(t, "the call runs", g.entered)
	dead.crash()
	heir := start(t, dsn, processor.Echo(), brief)
	heir.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 1}})
	eventually(t, "the zombie is collected", func() bool { return heir.status(t, "p") == "ERROR" })
	g.release()
}

// If a node dies while it starts a process, another node starts it.
func TestZombieOfInit(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	dead := start(t, dsn, by{initTask: g.held(false)}, brief)
	if _, err := dead.Start(t.Context(), engine.StartParams{
		Key: key("p"), Args: []byte("a"), Accepted: true, IdempotencyKey: "k",
	}); err != nil {
		t.Fatal(err)
	}
	receive(t, "the start runs", g.entered)
	dead.crash()
	heir := start(t, dsn, processor.Echo(), brief)
	ans, err := heir.Start(t.Context(), engine.StartParams{
		Key: key("p"), Args: []byte("a"), IdempotencyKey: "k", Timeout: longWait,
	})
	if err != nil || string(ans.Response) != "a" {
		t.Errorf("%+v, %v", ans, err)
	}
	g.release()
}

// Zombies that another session has locked do not delay the others.
func TestZombieHeldByAnotherSession(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	dead := start(t, dsn, by{callTask: g.held(false)}, brief)
	for _, id := range []string{"held", "free"} {
		dead.started(t, id)
		dead.calling(id, "x")
		receive(t, "a task runs", g.entered)
	}
	held := storagetest.Begin(t, look(t, dsn).Pool, "SELECT 1 FROM processes WHERE process_id = 'held' FOR UPDATE")
	dead.crash()
	heir := start(t, dsn, processor.Echo(), brief)
	rows := look(t, dsn)
	ended := func(id string) bool {
		return rows.count(t, "SELECT count(*) FROM tasks WHERE process_id = $1 AND task_type = 'CALL' AND attempt = 2",
			id) == 1
	}
	eventually(t, "the free process continues", func() bool { return ended("free") })
	heir.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(time.Hour)})
	if ended("held") {
		t.Error("a locked process was changed")
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the locked process continues", func() bool { return ended("held") })
	g.release()
}

// A node that was declared dead while it was disconnected gets a new identity and continues.
func TestBuriedNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo(), brief)
	old := n.store.NodeID()
	n.started(t, "p")
	if _, err := look(t, dsn).Exec(t.Context(), "DELETE FROM nodes"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node has a new identity", func() bool { return n.store.NodeID() != old })
	n.called(t, "p", "x")
}

// A claim whose response was lost (here: a row in running under this node that is unknown in
// memory) is run.
func TestUnknownClaimIsAdopted(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, processor.Echo(), reg.use)
	n.started(t, "p")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	_, err := look(t, dsn).Exec(t.Context(),
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
