package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// load runs clients that call a few processes through one or more workers. The args of a call are
// its op, a unique text. The events show the result: an acknowledged op is stored once, and any
// other op at most once.
type load struct {
	workers   []*worker
	processes int
	clients   int
	calls     int // per client

	done     atomic.Int64
	mutex    sync.Mutex
	acked    map[string]bool // false if the outcome is unknown
	repeated atomic.Int64
}

// run makes all calls. Every other client uses keys and repeats unanswered calls. meanwhile runs
// concurrently.
func (l *load) run(meanwhile func()) {
	l.acked = map[string]bool{}
	all(l.clients+1, func(i int) {
		if i == l.clients {
			if meanwhile != nil {
				meanwhile()
			}
			return
		}
		w := l.workers[i%len(l.workers)]
		for n := range l.calls {
			op := fmt.Sprintf("op-%d-%d", i, n)
			id := fmt.Sprintf("p%d", (i+n)%l.processes)
			for !l.call(w, id, op, i%2 == 0) {
				l.repeated.Add(1)
			}
			l.done.Add(1)
		}
	})
}

// call makes a call, and reports whether its client is done with it.
func (l *load) call(w *worker, id, op string, withKey bool) bool {
	c := call(id, func(c *storage.Call) {
		yes := func() bool { return true }
		c.Args, c.MaxWaiting, c.MayWait, c.Here = []byte(op), 100000, yes, yes
		if withKey {
			keyed(op, op)(c)
		}
	})
	p, err := w.store.PrepareCall(c)
	if errors.Is(err, process.ErrUnavailable) && withKey {
		return false
	}
	l.mutex.Lock()
	l.acked[op] = err == nil
	l.mutex.Unlock()
	switch {
	case err != nil && !errors.Is(err, process.ErrUnavailable):
		w.t.Errorf("call %s of %s: %v", op, id, err)
	case p.Claim != nil:
		w.start(p.Claim)
	}
	return true
}

// check waits until all work is done and checks what was stored.
func (l *load) check(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for _, w := range l.workers {
		w.ran.Wait()
	}
	for _, w := range l.workers {
		w.sweep(db)
	}
	rows, err := db.Query(t.Context(), "SELECT convert_from(payload, 'UTF8'), count(*) FROM events GROUP BY 1")
	must(t, rows, err)
	stored := map[string]int{}
	var op string
	var n int
	for rows.Next() {
		if err := rows.Scan(&op, &n); err != nil {
			t.Fatal(err)
		}
		stored[op] = n
	}
	unknown := 0
	for op, acked := range l.acked {
		if !acked {
			unknown++
		}
		if n := stored[op]; n > 1 || (acked && n == 0) {
			t.Errorf("%s, acknowledged: %t, was stored %d times", op, acked, n)
		}
		delete(stored, op)
	}
	delete(stored, "args") // the args of the INIT tasks
	if len(stored) > 0 {
		t.Errorf("%v were not requested", stored)
	}
	t.Logf("%d calls, %d of unknown outcome, %d repeated", len(l.acked), unknown, l.repeated.Load())
	report, err := storage.CheckInvariants(t.Context(), db)
	quiet, err2 := storage.CheckQuiescent(t.Context(), db, 0, time.Minute)
	if err := errors.Join(err, err2); err != nil || len(report.Violations)+len(quiet.Violations) > 0 {
		t.Error(err, report.Violations, quiet.Violations)
	}
}

// create creates the processes of a load.
func (l *load) create(t *testing.T, w *worker) {
	t.Helper()
	for n := range l.processes {
		p, err := w.store.PrepareInit(newInit(fmt.Sprintf("p%d", n)))
		w.start(must(t, p, err).Claim)
	}
}

// With two nodes, few processes and concurrent scans, there is no deadlock and no failed scan, and
// every op is stored once and in the order of its task.
func TestTwoNodesUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := open(t, b.dsn, storage.Config{})
	l := &load{workers: []*worker{newWorker(t, b.Store), newWorker(t, other)}, processes: 5, clients: 400, calls: 4}
	l.create(t, l.workers[0])
	total := int64(l.clients * l.calls)
	l.run(func() {
		for n := 0; l.done.Load() < total; n++ {
			w := l.workers[n%2]
			calls, err := w.store.SearchCalls(t.Context(), room(20))
			timers, _, err2 := w.store.SearchTimers(t.Context(), room(20))
			if err := errors.Join(err, err2); err != nil {
				t.Errorf("a scan fails: %v", err)
				return
			}
			for _, c := range append(calls, timers...) {
				w.ran.Go(func() { w.start(&c) })
			}
		}
	})
	l.check(t, b.db)
	equal(t, "every event in the order of the tasks",
		ask[int](b, `SELECT count(*) FROM events e JOIN events f USING (namespace, process_id)
		WHERE f.event_id = e.event_id + 1 AND f.task_id <= e.task_id`), 0)
	b.exec("SELECT pg_stat_clear_snapshot()")
	equal(t, "deadlocks", ask[int](b, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), 0)
}

// Backends of lanes are terminated during their work.
func TestLanesAreTerminatedUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	s := open(t, b.dsn, storage.Config{Registerer: registry})
	l := &load{workers: []*worker{newWorker(t, s)}, processes: 8, clients: 32, calls: 40}
	l.create(t, l.workers[0])
	l.run(func() {
		for done := int64(50); done < int64(l.clients*l.calls); done = l.done.Load() + 50 {
			for l.done.Load() < done && l.done.Load() < int64(l.clients*l.calls) {
				ask[int](b, "SELECT 1")
			}
			ask[int](b, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'progressor lane'
				AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()
					AND application_name = 'progressor lane' ORDER BY state, pid LIMIT 1)`)
		}
	})
	l.check(t, b.db)
	families, err := registry.Gather()
	found := 0.0
	for _, family := range must(t, families, err) {
		if family.GetName() == "progressor_flush_recoveries_total" {
			found = family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if found < 3 {
		t.Errorf("%v flushes were recovered, want at least 3", found)
	}
	t.Logf("%v recoveries, %d tasks adopted, %d answers lost", found, l.workers[0].adopted, l.workers[0].lost)
}

// The server crashes and restarts, three times.
func TestServerRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "progressor-restart-*")
	must(t, dir, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := pgembed.Start(t.Context(), pgembed.Config{
		Dir: dir, Ephemeral: true, Unsafe: true, Settings: map[string]string{"shared_buffers": "32MB"},
	})
	must(t, server, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := storage.Migrate(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.DSN(), storage.Config{})
	w := newWorker(t, s)
	l := &load{workers: []*worker{w}, processes: 8, clients: 16, calls: 200}
	l.create(t, w)
	var restarts atomic.Int64
	l.run(func() {
		for done := int64(300); done <= 900; done += 300 {
			for l.done.Load() < done {
				_ = s.Ping(t.Context()) // wait
			}
			if err := server.Restart(t.Context(), "immediate"); err != nil {
				t.Error(err)
				return
			}
			restarts.Add(1)
		}
	})
	l.check(t, storagetest.Connect(t, server.DSN()))
	equal(t, "restarts", restarts.Load(), 3)
	t.Logf("%d tasks adopted, %d answers lost", w.adopted, w.lost)
}

// Connections break during flushes of many items, before and after their commit.
func TestConnectionsAreCutUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := newProxy(t, b.dsn)
	w := newWorker(t, open(t, p.DSN, storage.Config{}))
	l := &load{workers: []*worker{w}, processes: 8, clients: 32, calls: 60}
	l.create(t, w)
	total := int64(l.clients * l.calls)
	cuts := 0
	l.run(func() {
		for l.done.Load() < total-100 {
			<-p.next([]cut{beforeCommit, afterCommit}[cuts%2])
			cuts++
			for next := l.done.Load() + 30; l.done.Load() < min(next, total); {
				ask[int](b, "SELECT 1")
			}
		}
	})
	l.check(t, b.db)
	t.Logf("%d cuts, %d tasks adopted, %d answers lost", cuts, w.adopted, w.lost)
	if cuts < 10 || w.adopted == 0 || w.lost == 0 {
		t.Errorf("%d cuts, %d tasks adopted, %d answers lost; want at least 10, 1 and 1", cuts, w.adopted, w.lost)
	}
}
