//go:build linux

package chaos

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/pgembed"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxRecovery is the maximum time that a call may take if a connection to the database is lost. Any
// time for which the database is down is added.
const maxRecovery = 6 * time.Second

func TestPostgres(t *testing.T) {
	server := durable.get(t)
	t.Run("crashes", func(t *testing.T) { postgresCrashes(t, server) })
	t.Run("terminates backends", func(t *testing.T) { backendsTerminated(t, server) })
}

// crash ends the server as a crash would, and does not restart it.
func crash(t testing.TB, server *pgembed.Server) {
	t.Helper()
	if err := syscall.Kill(server.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Dead():
	case <-time.After(testTimeout):
		t.Fatal("PostgreSQL does not end")
	}
}

func restart(t testing.TB, server *pgembed.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := server.Restart(ctx, "immediate"); err != nil {
		t.Fatal(err)
	}
}

// unavailable sends a new request to an engine whose database is down. The engine must reject it
// with UNAVAILABLE. seen records how long that takes.
func unavailable(t testing.TB, n *node, seen *responseCounts) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	began := time.Now()
	_, err := one(n).Call(ctx,
		&progressorv1.CallRequest{Namespace: namespace, ProcessId: "p0", Args: []byte("unanswered")})
	seen.note(err, time.Since(began))
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a call without a database: %v after %s", err, time.Since(began))
	}
}

// The database dies under load, twice. While it is down, new requests get an error within 3 s, and
// nothing hangs. When it is back, the engines continue by themselves.
func postgresCrashes(t *testing.T, server *pgembed.Server) {
	dsn := database(t, server)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	f := newFleet(t, a, b)
	f.start(20)
	l := startLoad(f, plan{clients: 16, processes: 20, seed: 4})
	var down time.Duration
	for _, long := range []bool{false, true} {
		before := l.acked.Load()
		await(t, testTimeout, "calls are answered", func() bool { return l.acked.Load() >= before+100 })
		began := time.Now()
		crash(t, server)
		if long { // long enough for the engines to cancel their attempts
			await(t, testTimeout, "the engines know that they are cut off",
				func() bool { return !a.isReady() && !b.isReady() })
			var probes responseCounts
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() { unavailable(t, a, &probes) })
				group.Go(func() { unavailable(t, b, &probes) })
			}
			group.Wait()
			t.Logf("new requests in the meantime: %v", &probes)
			if probes.worst > 3*time.Second {
				t.Errorf("UNAVAILABLE after %s", probes.worst)
			}
		}
		restart(t, server)
		gone := time.Since(began)
		down = max(down, gone)
		before = l.acked.Load()
		first := await(t, testTimeout, "a call is answered", func() bool { return l.acked.Load() > before })
		ready := await(t, testTimeout, "the engines are ready again", func() bool { return a.isReady() && b.isReady() })
		t.Logf("PostgreSQL was down for %s; the first call was answered %s after it came back; all engines were "+
			"ready %s later",
			gone.Round(time.Millisecond), first.Round(time.Millisecond), ready.Round(time.Millisecond))
	}
	before := l.acked.Load()
	await(t, testTimeout, "calls are answered", func() bool { return l.acked.Load() >= before+100 })
	entries := l.finish()
	worst := longest(entries)
	t.Logf("the longest call took %s; clients saw %v; %v zombies, %v adopted", worst.Round(time.Millisecond), &l.seen,
		a.metric("progressor_zombies_total")+b.metric("progressor_zombies_total"),
		a.metric("progressor_tasks_adopted_total")+b.metric("progressor_tasks_adopted_total"))
	if worst > maxRecovery+down {
		t.Errorf("a call took %s; the database was down for %s", worst, down)
	}
	if l.seen.of(connect.CodeUnavailable) == 0 {
		t.Error("no client got an error")
	}
	settle(t, dsn)
	verify(t, dsn, entries)
	replay(t, f, entries)
}

// All connections of the engines are cut repeatedly, under load.
func backendsTerminated(t *testing.T, server *pgembed.Server) {
	dsn := database(t, server)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	f := newFleet(t, a, b)
	f.start(20)
	l := startLoad(f, plan{clients: 16, processes: 20, seed: 6})
	cut := 0
	var recovery time.Duration
	for range 10 {
		before := l.acked.Load()
		await(t, testTimeout, "calls are answered", func() bool { return l.acked.Load() >= before+30 })
		cut += terminateBackends(t, conn)
		before = l.acked.Load()
		recovery = max(recovery,
			await(t, testTimeout, "calls are answered again", func() bool { return l.acked.Load() >= before+10 }))
	}
	entries := l.finish()
	worst := longest(entries)
	t.Logf("%d connections were cut; ten more calls were answered within %s; the longest took %s; clients saw %v; "+
		"%v adopted", cut,
		recovery.Round(time.Millisecond), worst.Round(time.Millisecond), &l.seen,
		a.metric("progressor_tasks_adopted_total")+b.metric("progressor_tasks_adopted_total"))
	if worst > maxRecovery {
		t.Errorf("a call took %s", worst)
	}
	settle(t, dsn)
	verify(t, dsn, entries)
	replay(t, f, entries)
}
