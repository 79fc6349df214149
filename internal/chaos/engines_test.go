//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// running returns the number of tasks that an engine runs, according to the table running.
func running(t testing.TB, conn *pgx.Conn, n *node) int {
	t.Helper()
	return count(t, conn, `SELECT count(*) FROM running r JOIN nodes n USING (node_id) WHERE n.address = $1`, n.name)
}

// runningHeld returns how many of the tasks that an engine runs are held by a gate. Other tasks
// that it runs may end before the gate is opened.
func runningHeld(t testing.TB, conn *pgx.Conn, n *node, g *gate) int {
	t.Helper()
	return count(t, conn, `SELECT count(*) FROM running r JOIN nodes n USING (node_id)
		WHERE n.address = $1 AND r.task_id = ANY ($2)`, n.name, g.held())
}

// answered is the end of a call that another goroutine waits for.
type answered struct {
	entry *entry
	err   error
	at    time.Time
}

// callConcurrently makes a call through one engine. The call may wait for a long time.
func callConcurrently(t testing.TB, n *node, process, op string) <-chan answered {
	t.Helper()
	f := newFleet(t, n)
	f.try = testTimeout
	end := make(chan answered, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		e := &entry{process: process, op: op}
		err := f.do(ctx, e, 0, &responseCounts{})
		end <- answered{entry: e, err: err, at: time.Now()}
	}()
	return end
}

// A call waits while its process is busy on another engine. It is answered within a second after
// the process has become free.
func TestCallThroughTheOtherEngine(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	newFleet(t, a).start(1)
	var entries []*entry
	var took []time.Duration
	for round := range 11 {
		busy := fmt.Sprintf("busy-%d", round)
		g := c.hold(attemptOf(busy, 1))
		first := callConcurrently(t, a, "p0", busy)
		await(t, testTimeout, "the processor has the first call", func() bool { return g.arrived.Load() == 1 })
		second := callConcurrently(t, b, "p0", fmt.Sprintf("behind-%d", round))
		await(t, testTimeout, "the second call waits for the process", func() bool {
			return count(t, conn, `SELECT count(*) FROM schedule WHERE waits_for = 'process'`) == 1
		})
		g.open()
		opened := time.Now()
		for _, end := range []answered{<-first, <-second} {
			if end.err != nil {
				t.Fatal(end.err)
			}
			entries = append(entries, end.entry)
			if end.entry.op != busy {
				took = append(took, end.at.Sub(opened))
			}
		}
	}
	slices.Sort(took)
	t.Logf("answers of the other engine: median %s, longest %s", took[len(took)/2], took[len(took)-1])
	if worst := took[len(took)-1]; worst > time.Second {
		t.Errorf("the response of the other engine took %s", worst)
	}
	settle(t, dsn)
	verify(t, dsn, entries)
}

// An engine dies during 1,000 calls. The other engine runs its tasks again, and no operation is
// lost or executed twice.
func TestKilledEngine(t *testing.T) {
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	f := newFleet(t, a, b)
	f.start(40)
	attempts := 0
	g := c.hold(func(string, int32) bool {
		attempts++
		return attempts > 400
	})
	l := startLoad(f, plan{clients: 32, processes: 40, calls: 1000, seed: 1})
	await(t, testTimeout, "the engine holds calls",
		func() bool { return runningHeld(t, conn, a, g) >= 5 && g.arrived.Load() >= 8 })
	held := running(t, conn, a)
	died := time.Now()
	a.kill()
	g.open()
	await(t, testTimeout, "the other engine has taken over", func() bool { return running(t, conn, a) == 0 })
	takeover := time.Since(died)
	entries := l.wait()
	t.Logf("the dead engine held %d tasks; taken over after %s; the longest call took %s; clients saw %v",
		held, takeover.Round(time.Millisecond), longest(entries).Round(time.Millisecond), &l.seen)
	if len(entries) != 1000 || l.acked.Load() != 1000 {
		t.Errorf("%d of %d calls were answered", l.acked.Load(), len(entries))
	}
	settle(t, dsn)
	verify(t, dsn, entries)
	replay(t, newFleet(t, b), entries)
	zombies := int(b.metric("progressor_zombies_total"))
	again := count(t, conn, `SELECT count(*) FROM tasks WHERE attempt = 2`)
	// The number may differ slightly from the number of held tasks: the engine took tasks until it
	// died, and PostgreSQL may commit a result that it had sent before.
	if zombies == 0 || again != zombies || c.repeated.Load() == 0 {
		t.Errorf("%d tasks of the dead engine, %d zombies, %d second attempts, %d received by the processor", held,
			zombies, again, c.repeated.Load())
	}
	if takeover > 4*time.Second {
		t.Errorf("taken over after %s", takeover)
	}
}

// An engine is stopped for longer than its lease, while its processor works. Its late results are
// rejected, whether the attempt that replaced them has ended or is still running.
func TestStoppedEngine(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	newFleet(t, a).start(2)
	gates := map[string][2]*gate{}
	var ends []<-chan answered
	for i, op := range []string{"ended", "runs"} {
		gates[op] = [2]*gate{c.hold(attemptOf(op, 1)), c.hold(attemptOf(op, 2))}
		ends = append(ends, callConcurrently(t, a, fmt.Sprintf("p%d", i), op))
		await(t, testTimeout, "the processor has the call", func() bool { return gates[op][0].arrived.Load() == 1 })
	}
	stopped := time.Now()
	a.signal(syscall.SIGSTOP)
	await(t, testTimeout, "the other engine has taken over", func() bool {
		return gates["ended"][1].arrived.Load() == 1 && gates["runs"][1].arrived.Load() == 1
	})
	takeover := time.Since(stopped)
	gates["ended"][1].open()
	await(t, testTimeout, "the second attempt has ended", func() bool {
		return count(t, conn, `SELECT count(*) FROM tasks WHERE task_type = 'CALL' AND status = 'FINISHED'`) == 1
	})
	// The responses to the first attempts arrive while their engine is stopped.
	gates["ended"][0].open()
	gates["runs"][0].open()
	await(t, testTimeout, "the processor has answered", func() bool { return c.inFlight.Load() == 1 })
	a.signal(syscall.SIGCONT)
	awake := time.Now()
	await(t, testTimeout, "both late results are counted",
		func() bool { return a.metric("progressor_stale_results_total") == 2 })
	t.Logf("taken over after %s; late results refused %s after the engine continued", takeover.Round(time.Millisecond),
		time.Since(awake).Round(time.Millisecond))
	if n := count(t, conn, `SELECT count(*) FROM events WHERE payload = 'runs'`) +
		count(t, conn, `SELECT count(*) FROM tasks WHERE args = 'runs'`); n != 0 {
		t.Error("a part of a late result is stored while the next attempt runs")
	}
	gates["runs"][1].open()
	var entries []*entry
	for _, end := range ends {
		got := <-end
		if got.err != nil {
			t.Error(got.err)
		}
		entries = append(entries, got.entry)
	}
	settle(t, dsn)
	verify(t, dsn, entries)
	if n := count(t, conn, `SELECT count(*) FROM events WHERE payload IN ('ended', 'runs') AND attempt = 2`); n != 2 {
		t.Errorf("%d of 2 events are of the second attempt", n)
	}
	if zombies := b.metric("progressor_zombies_total"); zombies != 2 {
		t.Errorf("%v zombies", zombies)
	}
	await(t, testTimeout, "the engine is ready again", a.isReady)
	if end := <-callConcurrently(t, a, "p0", "afterwards"); end.err != nil {
		t.Error(end.err)
	}
}

// An engine that was frozen for longer than its lease cancels its attempts when it continues. The
// operation is executed once.
func TestFrozenEngineCancelsItsAttempts(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	newFleet(t, a).start(1)
	gates := [2]*gate{c.hold(attemptOf("op", 1)), c.hold(attemptOf("op", 2))}
	end := callConcurrently(t, a, "p0", "op")
	await(t, testTimeout, "the processor has the call", func() bool { return gates[0].arrived.Load() == 1 })
	a.signal(syscall.SIGSTOP)
	await(t, testTimeout, "the other engine has taken over", func() bool { return gates[1].arrived.Load() == 1 })
	a.signal(syscall.SIGCONT)
	await(t, testTimeout, "the first attempt is cancelled",
		func() bool { return a.metric("progressor_attempts_fenced_total") == 1 })
	gates[1].open()
	got := <-end
	if got.err != nil {
		t.Error(got.err)
	}
	gates[0].open()
	settle(t, dsn)
	verify(t, dsn, []*entry{got.entry})
	if dead := b.metric("progressor_nodes_declared_dead_total"); dead != 1 {
		t.Errorf("%v nodes were declared dead", dead)
	}
}

// Two engines are restarted one after the other, under load. No call is lost, no attempt is used
// up, and both exit without an error.
func TestRollingRestart(t *testing.T) {
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	nodes := []*node{startNode(t, "a0", dsn), startNode(t, "b0", dsn)}
	putChain(t, nodes[0], c, nil)
	f := newFleet(t, nodes...)
	// With many processes, only a few calls are for a process that is held on the other engine.
	const processes = 200
	f.start(processes)
	l := startLoad(f, plan{clients: 16, processes: processes, seed: 5})
	for i, n := range nodes {
		before := l.acked.Load()
		await(t, testTimeout, "calls are answered", func() bool { return l.acked.Load() >= before+100 })
		g := c.hold(nil)
		await(t, testTimeout, "the engine holds calls", func() bool { return runningHeld(t, conn, n, g) >= 2 })
		n.signal(syscall.SIGTERM)
		await(t, testTimeout, "the engine drains", func() bool { return n.log.has(`"msg":"draining"`) })
		if waitUntil(100*time.Millisecond, func() bool { return runningHeld(t, conn, n, g) == 0 }) {
			t.Errorf("engine %s does not wait for its running tasks", n.name)
		}
		asked := time.Now()
		g.open()
		if code := n.exit(); code != 0 {
			t.Errorf("engine %s ended with code %d", n.name, code)
		}
		t.Logf("engine %s drained in %s", n.name, time.Since(asked).Round(time.Millisecond))
		f.replace(i, startNode(t, n.name[:1]+"1", dsn))
	}
	before := l.acked.Load()
	await(t, testTimeout, "calls are answered", func() bool { return l.acked.Load() >= before+100 })
	entries := l.finish()
	t.Logf("the longest call took %s; clients saw %v", longest(entries).Round(time.Millisecond), &l.seen)
	l.seen.only(t)
	settle(t, dsn)
	verify(t, dsn, entries)
	if int(l.acked.Load()) != len(entries) {
		t.Errorf("%d of %d calls were answered", l.acked.Load(), len(entries))
	}
	if n := count(t, conn, `SELECT count(*) FROM tasks WHERE attempt <> 1`); n != 0 || c.repeated.Load() != 0 {
		t.Errorf("%d tasks have used up an attempt, %d were sent to the processor again", n, c.repeated.Load())
	}
}

// An engine that is stopping does not wait forever. Tasks that do not finish in time are released,
// without using up an attempt.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn, "--engine.drain-timeout", "300ms"), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	f := newFleet(t, a, b)
	f.start(1)
	g := c.hold(nil)
	l := startLoad(f, plan{clients: 1, processes: 1, calls: 1})
	await(t, testTimeout, "the processor has the call", func() bool { return g.arrived.Load() == 1 })
	began := time.Now()
	if code := a.terminate(); code != 0 {
		t.Errorf("the engine ended with code %d", code)
	}
	await(t, testTimeout, "the other engine has the call", func() bool { return g.arrived.Load() == 2 })
	t.Logf("released and taken over after %s", time.Since(began).Round(time.Millisecond))
	g.open()
	entries := l.wait()
	settle(t, dsn)
	verify(t, dsn, entries)
	if l.acked.Load() != 1 || count(t, conn, `SELECT count(*) FROM tasks WHERE attempt <> 1`) != 0 {
		t.Error("the call was lost, or an attempt was used up")
	}
}
