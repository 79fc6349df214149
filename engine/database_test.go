package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// chain returns a processor whose state is a hash over all calls so far. Each call appends its op,
// and its response is the number of calls and the hash.
func chain() byTask {
	return byTask{
		initTask: answers(processor.Result().AuxState(nil)),
		callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			state := link(r.GetProcess().GetAuxState(), r.GetArgs())
			return processor.Result().Event(r.GetArgs()).AuxState(state).Response(state).Done()
		},
	}
}

// link adds an op to a chain. The state is its length followed by the hash.
func link(state, op []byte) []byte {
	n := uint64(0)
	if len(state) > 8 {
		n = binary.BigEndian.Uint64(state)
	}
	sum := sha256.Sum256(append(bytes.Clone(state), op...))
	return append(binary.BigEndian.AppendUint64(nil, n+1), sum[:]...)
}

// traffic calls chains and records the responses.
type traffic struct {
	nodes []*node
	mu    sync.Mutex
	// acked contains the responses by process and op. unknown contains the calls without a key
	// that got an error: they may or may not have run.
	acked   map[string]map[string]string
	unknown map[string]map[string]bool
	errs    map[string]int
	calls   int
}

func newTraffic(nodes ...*node) *traffic {
	return &traffic{
		nodes: nodes, acked: map[string]map[string]string{}, unknown: map[string]map[string]bool{},
		errs: map[string]int{},
	}
}

const chains = 8

func (tr *traffic) start(t testing.TB) {
	for k := range chains {
		id := fmt.Sprint("c", k)
		tr.nodes[0].started(t, id)
		tr.acked[id], tr.unknown[id] = map[string]string{}, map[string]bool{}
	}
}

// run makes calls until ctx is cancelled. Half of the clients use keys, and repeat each call until
// it succeeds.
func (tr *traffic) run(ctx context.Context, t testing.TB, clients int) {
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id, op := fmt.Sprint("c", rand.IntN(chains)), fmt.Sprintf("op %d-%d", c, n)
				p := engine.CallParams{Key: key(id), Args: []byte(op), Timeout: 5 * time.Second}
				if c%2 == 0 {
					p.IdempotencyKey = op
				}
				tr.call(t, tr.nodes[(c+n)%len(tr.nodes)], p)
			}
		})
	}
	group.Wait()
}

func (tr *traffic) call(t testing.TB, n *node, p engine.CallParams) {
	op := string(p.Args)
	end := time.After(longWait)
	for {
		ans, err := n.Call(context.Background(), p)
		tr.note(t, p, op, ans, err)
		if err == nil || p.IdempotencyKey == "" {
			return
		}
		select { // a call with a key is repeated until it gets a response
		case <-time.After(10 * time.Millisecond):
		case <-end:
			t.Errorf("%s of %s got no response: %v", op, p.Key, err)
			return
		}
	}
}

func (tr *traffic) note(t testing.TB, p engine.CallParams, op string, ans engine.Answer, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	id := p.Key.ProcessID
	if err == nil {
		tr.calls++
		if _, twice := tr.acked[id][op]; twice {
			t.Errorf("%s got two responses", op)
		}
		tr.acked[id][op] = string(ans.Response)
		return
	}
	var te *engine.TaskError
	switch {
	case errors.Is(err, process.ErrUnavailable):
		tr.errs["unavailable"]++
	case errors.Is(err, process.ErrOverloaded):
		tr.errs["overloaded"]++
		return // nothing was stored
	case errors.As(err, &te) && te.WaitTimeout:
		tr.errs["wait"]++
	default:
		t.Errorf("%s of %s: %v", op, p.Key, err)
	}
	if p.IdempotencyKey == "" {
		tr.unknown[id][op] = true
	}
}

// verify reads every chain and compares it with the responses.
func (tr *traffic) verify(t testing.TB, n *node) {
	t.Helper()
	t.Logf("%d calls succeeded, errors %v", tr.calls, tr.errs)
	for id, acked := range tr.acked {
		p, err := n.GetProcess(context.Background(), key(id), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		state, seen := []byte{}, map[string]bool{}
		for _, e := range p.GetHistory() {
			op := string(e.GetPayload())
			state = link(state, e.GetPayload())
			if seen[op] {
				t.Errorf("%s: %s is stored twice", id, op)
			}
			seen[op] = true
			answer, ok := acked[op]
			switch {
			case ok && answer != string(state):
				t.Errorf("%s: %s was answered %s, stored is %s", id, op, hex.EncodeToString([]byte(answer))[:24],
					hex.EncodeToString(state)[:24])
			case !ok && !tr.unknown[id][op]:
				t.Errorf("%s: %s is stored but was not requested", id, op)
			}
		}
		for op := range acked {
			if !seen[op] {
				t.Errorf("%s: %s was answered, but is not stored", id, op)
			}
		}
		if !bytes.Equal(state, p.GetAuxState()) {
			t.Errorf("%s: the state is not the chain of its events", id)
		}
	}
}

// settled waits until no task runs or waits.
func settled(t testing.TB, d db) {
	t.Helper()
	eventually(t, "no task runs or waits", func() bool {
		return d.count(t, "SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM schedule)") == 0
	})
}

// Connections break under load on both nodes. Every acknowledged call is stored once, and no task
// is left behind.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	regA, regB := newRegistry(), newRegistry()
	a, b := start(t, slow, chain(), regA.use), start(t, dsn, chain(), regB.use)
	a.put(t, &progressorv1.Namespace{Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR})
	tr := newTraffic(a, b)
	tr.start(t)
	rows := openDB(t, dsn)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.run(ctx, t, 16)
	}()
	for n := 0; ctx.Err() == nil; n++ {
		pass(150 * time.Millisecond)
		if n%2 == 0 {
			line.Cut()
			continue
		}
		if _, err := rows.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'progressor%'
			  AND random() < 0.5`); err != nil {
			t.Error(err)
		}
	}
	receive(t, "the end of the load", done)
	settled(t, rows)
	tr.verify(t, b)
	for _, reg := range []registry{regA, regB} {
		if reg.value(t, "progressor_zombies_total") > 0 {
			t.Error("a task became a zombie")
		}
	}
	if tr.calls < 20 {
		t.Error("too few calls for a meaningful test")
	}
}

// The database is restarted under load, with the shutdown modes immediate and fast. The engine
// recovers by itself.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	server, err := pgembed.Start(t.Context(), pgembed.Config{
		Dir: filepath.Join(t.TempDir(), "server"), Ephemeral: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	dsn := server.DSN()
	if err := storage.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { storagetest.Invariants(t, dsn) })
	reg := newRegistry()
	a, b := start(t, dsn, chain(), reg.use), start(t, dsn, chain())
	a.put(t, &progressorv1.Namespace{
		Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR,
		StepTimeout: durationpb.New(time.Minute),
	})
	tr := newTraffic(a, b)
	tr.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.run(ctx, t, 8)
	}()
	answered := func() int {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return tr.calls
	}
	for _, mode := range []string{"immediate", "fast"} {
		before := answered()
		eventually(t, "calls succeed", func() bool { return answered() > before+50 })
		if err := server.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
	}
	before := answered()
	eventually(t, "calls succeed after the last restart", func() bool { return answered() > before+50 })
	cancel()
	receive(t, "the end of the load", done)
	settled(t, openDB(t, dsn))
	tr.verify(t, b)
}

// While the database is unavailable, requests fail within 5 s. Results of running attempts are
// stored when the database is available again. No task becomes a zombie, although no node could
// store a heartbeat for longer than zombie_after.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	g := newGate()
	defer g.release()
	regA, regB := newRegistry(), newRegistry()
	a, b := start(t, slow, byTask{callTask: g.held(false)}, brief, regA.use),
		start(t, slow, byTask{callTask: g.held(false)}, brief, regB.use)
	a.put(t, &progressorv1.Namespace{Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR})
	a.started(t, "p")
	b.started(t, "q")
	onA, onB := a.calling("p", "x"), b.calling("q", "y")
	receive(t, "one runs", g.entered)
	receive(t, "the other runs", g.entered)
	line.away()
	began := time.Now()
	eventually(t, "requests fail", func() bool {
		res := <-a.calling("q", "z")
		return errors.Is(res.err, process.ErrUnavailable)
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the rejection took %s", took)
	}
	g.release()
	pass(1500 * time.Millisecond) // longer than a node may go without a heartbeat
	if a.Ready() == nil || b.Ready() == nil {
		t.Error("a node without a database is ready")
	}
	line.back()
	for k, c := range []<-chan result{onA, onB} {
		if res := receive(t, "the call", c); res.err != nil || string(res.ans.Response) != []string{"x", "y"}[k] {
			t.Errorf("%+v", res)
		}
	}
	eventually(t, "both are ready", func() bool { return a.Ready() == nil && b.Ready() == nil })
	a.called(t, "p", "continues")
	if n := regA.value(t, "progressor_zombies_total") + regB.value(t, "progressor_zombies_total"); n > 0 {
		t.Errorf("%v zombies were collected", n)
	}
}

// Connections often break, also between the commit of a scan and its response. All timers still run
// at their first attempt, and none is stuck for more than 12 s.
func TestLostScans(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	c := &timerRecorder{}
	n := start(t, slow, c.processor())
	const timers = 400
	for k := range timers {
		id := fmt.Sprint("p", k)
		n.started(t, id)
		n.called(t, id, fmt.Sprintf("set %dms", 1500+k*5))
	}
	rows := openDB(t, dsn)
	began := time.Now()
	for time.Since(began) < 3*time.Second {
		pass(30 * time.Millisecond)
		line.Cut()
	}
	settled(t, rows)
	if got := rows.count(t, `SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND attempt = 1
		AND status = 'FINISHED'`); got != timers {
		t.Errorf("%d of %d timers ran at their first attempt", got, timers)
	}
	// A claimed task that no node runs would wait 15 s for the collector.
	if got := rows.count(t, `SELECT coalesce(max(extract(epoch FROM finished_time - scheduled_time)), 0)::int FROM tasks
		WHERE task_type = 'TIMEOUT'`); got > 12 {
		t.Errorf("a timer was stuck for %d s", got)
	}
}

// readOnly makes new sessions of the test database read-only or writable.
func (d db) readOnly(t *testing.T, value string) {
	t.Helper()
	name := d.texts(t, "SELECT current_database()::text")[0]
	_, err := d.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = %s", name, value))
	if err != nil {
		t.Fatal(err)
	}
}

// A node whose lanes cannot write is not ready, even if its heartbeats are stored.
func TestReadinessCoversLanes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	rows := openDB(t, dsn)
	n := start(t, dsn, chain())
	n.started(t, "p")
	rows.readOnly(t, "on")
	rows.texts(t, `SELECT pg_terminate_backend(pid, 10000)::text FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'progressor lane'`)
	eventually(t, "a call is refused", func() bool {
		_, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Args: []byte("x")})
		return errors.Is(err, process.ErrUnavailable)
	})
	eventually(t, "readiness names the lane", func() bool {
		err := n.Ready()
		return err != nil && strings.HasPrefix(err.Error(), "lane 0 has been unable to write to the database since ")
	})
	rows.readOnly(t, "off")
	eventually(t, "the node is ready", func() bool { return n.Ready() == nil })
	n.called(t, "p", "continues")
}

// A node whose first write meets a read-only server is not ready. It recovers when the server is
// writable.
func TestFirstRequestMeetsAReadOnlyServer(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	rows := openDB(t, dsn)
	n := start(t, dsn, chain())
	lanes := rows.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'progressor lane'`)
	if lanes != 0 {
		t.Fatalf("%d lanes are connected", lanes)
	}
	rows.readOnly(t, "on")
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Args: []byte("start")}); !errors.Is(err,
		process.ErrUnavailable) {
		t.Errorf("start: %v", err)
	}
	if err := n.Ready(); err == nil ||
		!strings.HasPrefix(err.Error(), "lane 0 has been unable to write to the database since ") {
		t.Errorf("readiness: %v", err)
	}
	rows.readOnly(t, "off")
	eventually(t, "the node is ready", func() bool { return n.Ready() == nil })
	n.started(t, "p")
	n.called(t, "p", "continues")
}
