package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
	"github.com/progressor-engine/progressor/storage/pull"
)

func TestSearchCallsByPriorityThenAge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n, id := range []string{"a", "b", "c", "d"} {
		b.process(id)
		b.call(id, withoutSlot, func(c *storage.Call) { c.Priority = []int32{5, 0, 5, -1}[n] })
	}
	first := b.searchCalls(3)
	equal(t, "three", sorted(ids(first)), "[a b d]")
	equal(t, "the rest", ids(b.searchCalls(3)), "[c]")
	equal(t, "no more", len(b.searchCalls(3)), 0)
	c := first[slices.IndexFunc(first, func(c storage.Claim) bool { return c.ProcessID == "a" })]
	equal(t, "a claim", []any{
		c.Attempt, c.Priority, string(c.Args), c.Status, c.FencingToken > 0, c.RunningTime.IsZero(),
	}, "[1 5 args RUNNING true false]")
	b.save(end(&c, storage.Finished, events("a")))
}

func TestSearchOfSeveralNamespaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in := func(namespace string) func(*storage.Init) {
		return func(in *storage.Init) { in.Key.Namespace, in.Capture = namespace, false }
	}
	for n := range 4 {
		for _, namespace := range []string{"one", "two", "three"} {
			must(t, 0, func() error { _, err := b.PrepareInit(newInit(fmt.Sprint(n), in(namespace))); return err }())
		}
	}
	claims, err := b.SearchCalls(t.Context(), []storage.ClaimLimit{
		{Namespace: "one", Max: 3, StepTimeout: timeout}, {Namespace: "two", Max: 1, StepTimeout: time.Hour},
	})
	count := map[string]int{}
	for _, c := range must(t, claims, err) {
		count[c.Namespace]++
	}
	equal(t, "claims", count, map[string]int{"one": 3, "two": 1})
	equal(t, "the step timeouts", ask[string](b,
		"SELECT string_agg(DISTINCT namespace || (deadline - running_time)::text, ' ') FROM running"),
		"one00:01:00 two01:00:00")
	claims, err = b.SearchCalls(t.Context(), nil)
	equal(t, "without free slots", len(must(t, claims, err)), 0)
}

func TestSearchTimersLongestDueFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n, id := range []string{"a", "b", "c", "later"} {
		b.process(id, timer(time.Hour))
		b.exec(`UPDATE schedule SET scheduled_time = statement_timestamp() + $2 * interval '1 minute'
			WHERE process_id = $1`, id, []int{-2, -9, -5, 30}[n])
	}
	claims, next, err := b.SearchTimers(t.Context(), room(2))
	equal(t, "two", sorted(ids(must(t, claims, err))), "[b c]")
	// Timer a is still due, so another scan follows after half of the time since it was due.
	if next[ns] < time.Minute || next[ns] > 2*time.Minute {
		t.Errorf("the next scan is in %v, want 1 to 2 minutes", next)
	}
	claims, next, err = b.SearchTimers(t.Context(), room(2))
	equal(t, "the rest", ids(must(t, claims, err)), "[a]")
	if next[ns] < 28*time.Minute || next[ns] > 30*time.Minute {
		t.Errorf("the next timer is due in %v, want 28 to 30 minutes", next)
	}
	b.exec("DELETE FROM schedule WHERE process_id = 'later'")
	claims, next, err = b.SearchTimers(t.Context(), room(2))
	equal(t, "nothing", []any{len(must(t, claims, err)), len(next)}, "[0 0]")
}

// If several timers of one process are due in one scan, one runs and the others wait for it.
func TestSearchTimersTakesOneOfAProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p", named(time.Hour, "x", "y", "z"))
	b.due("p")
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time - interval '1 minute' WHERE timer_name = 'y'")
	claims := b.searchTimers(9)
	equal(t, "claims", []any{len(claims), claims[0].TimerName}, "[1 y]")
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT x waits for time#0, TIMEOUT y runs#1, TIMEOUT z waits for time#0")
	equal(t, "a second scan", len(b.searchTimers(9)), 0)
	next := b.save(end(&claims[0], storage.Finished)).Next
	equal(t, "the next", next.TimerName, "x")
	equal(t, "the last", b.save(end(next, storage.Finished)).Next.TimerName, "z")
}

// If two tasks of one process wait for a slot, a claim takes one and leaves the other. Two tasks
// can wait for a slot after a timer was due before a call.
func TestClaimsTakeOneOfAProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, claim := range []string{"searched", "polled"} {
		b.process(claim)
		b.call(claim, withoutSlot)
		b.call(claim, withoutSlot)
		b.exec("UPDATE schedule SET waits_for = 'place' WHERE process_id = $1", claim)
		var claims []storage.Claim
		if claim == "searched" {
			claims = b.searchCalls(9)
		} else {
			leases, err := pull.Poll(t.Context(), b.Store, "w",
				[]pull.Subscription{{Namespace: ns, StepTimeout: timeout, Lease: timeout, MaxLease: timeout}}, 9, false)
			for _, l := range must(t, leases, err) {
				claims = append(claims, l.Claim)
			}
		}
		equal(t, claim, ids(claims), "["+claim+"]")
		b.is(claim, "RUNNING e0: INIT FINISHED, CALL runs#1, CALL waits for place#0")
		b.exec("UPDATE schedule SET waits_for = 'process' WHERE process_id = $1", claim)
		b.save(end(&claims[0], storage.Finished))
		// Hide the second task, so that the second claim does not see it.
		b.exec("UPDATE schedule SET waits_for = 'operator' WHERE process_id = $1", claim)
	}
	b.exec("DELETE FROM schedule")
}

// A row that is changed after the snapshot of a claim, but before it is locked, is claimed in its
// current version and deleted from schedule. (If the claim deleted the row by its old position, the
// row would stay in schedule, and its job would run twice.)
func TestClaimOfARowThatWasChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue("a")
	b.enqueue("b")
	conn := b.connect(storage.HotConfig)
	_, err := conn.Exec(t.Context(), "SET lock_timeout = 0")
	must(t, 0, err)
	// The claim of process a waits for its token. It has not reached process b.
	release := b.foreign("ALTER SEQUENCE fencing_tokens MINVALUE 1")
	claimed := make(chan int)
	go func() {
		rows, err := dbsqlc.New().SearchCalls(context.Background(), conn, dbsqlc.SearchCallsParams{
			Namespaces: []string{ns}, Limits: []int32{9}, StepTimeoutsUs: []int64{1e9}, Owns: []bool{false},
			Urgents: []bool{false}, Modes: []int32{int32(storage.EventsAll)},
		})
		if err != nil {
			t.Error(err)
		}
		claimed <- len(rows)
	}()
	for deadline := time.Now().Add(waitLimit); ask[int](b,
		"SELECT count(*) FROM pg_stat_activity WHERE pid = $1::bigint AND wait_event_type = 'Lock'",
		int64(conn.PgConn().PID())) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the claim did not wait for its token")
		}
		pause()
	}
	b.exec("UPDATE schedule SET retry_interval = '1 second' WHERE process_id = 'b'")
	release()
	equal(t, "claimed", <-claimed, 2)
	equal(t, "waiting and running tasks",
		ask[string](b, "SELECT (SELECT count(*) FROM schedule) || ' ' || (SELECT count(*) FROM running)"), "0 2")
}

func TestSearchTimersSkips(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("busy", timer(time.Hour))
	b.claim("busy")
	b.process("called", timer(time.Hour))
	b.call("called", withoutSlot)
	b.process("free", timer(time.Hour))
	for _, id := range []string{"busy", "called", "free"} {
		b.due(id)
	}
	equal(t, "claims", ids(b.searchTimers(9)), "[free]")
	c := b.searchCalls(9)
	equal(t, "the call", ids(c), "[called]")
	equal(t, "then its timer", b.save(end(&c[0], storage.Finished)).Next.TimerName, "")
}

// foreign runs a statement in a transaction of another session. The transaction stays open until
// the test ends or release is called, and is then rolled back.
func (b *bench) foreign(sql string, args ...any) (release func()) {
	b.t.Helper()
	tx, err := b.db.BeginTx(b.t.Context(), pgx.TxOptions{})
	if err == nil {
		_, err = tx.Exec(b.t.Context(), sql, args...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	b.t.Cleanup(release)
	return release
}

// Rows that another session has locked are skipped without waiting. Neither a client that hangs in
// a transaction nor another scan stops a scan.
func TestSearchSkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		b.process(id, timer(time.Hour))
		b.due(id)
		if id < "c" {
			b.call(id, withoutSlot)
		}
	}
	release := b.foreign("SELECT FROM processes WHERE process_id IN ('a', 'c') FOR UPDATE")
	equal(t, "calls", ids(b.searchCalls(9)), "[b]")
	equal(t, "timers", ids(b.searchTimers(9)), "[d]")
	release()
	equal(t, "calls, released", ids(b.searchCalls(9)), "[a]")
	equal(t, "timers, released", ids(b.searchTimers(9)), "[c]")
}

func TestSearchByManyNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 200
	all(n, func(i int) {
		in := newInit(fmt.Sprintf("p%03d", i))
		in.Capture = i%2 == 0
		p, err := b.PrepareInit(in)
		if err == nil && in.Capture {
			_, err = b.SaveResult(end(p.Claim, storage.Finished, timer(0), withoutPromote))
		}
		if err != nil {
			t.Error(err)
		}
	})
	other := open(t, b.dsn, storage.Config{})
	found := make(chan string, 2*n)
	all(8, func(i int) {
		s := []*storage.Store{b.Store, other}[i%2]
		for {
			calls, err := s.SearchCalls(t.Context(), room(7))
			timers, _, err2 := s.SearchTimers(t.Context(), room(7))
			if err != nil || err2 != nil {
				t.Error(err, err2)
				return
			}
			for _, c := range append(calls, timers...) {
				found <- c.ProcessID
			}
			if len(calls)+len(timers) == 0 {
				return
			}
		}
	})
	close(found)
	var list []string
	for id := range found {
		list = append(list, id)
	}
	equal(t, "claims", len(list), n)
	equal(t, "distinct claims", len(slices.Compact(sorted(list))), n)
	equal(t, "running", ask[int](b, "SELECT count(*) FROM running"), n)
}

func TestReadZombies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dead := open(t, b.dsn, storage.Config{})
	b.start("alive")
	late := b.start("late")
	p, err := dead.PrepareInit(newInit("zombie"))
	must(t, p, err)
	zombies := func() []string {
		suspects, err := b.ListSuspects(t.Context(), 5*time.Second, 100)
		rows, err := b.ReadZombies(t.Context(), must(t, suspects, err), 5*time.Second)
		var list []string
		for _, z := range must(t, rows, err) {
			list = append(list, fmt.Sprintf("%s %s#%d", z.ProcessID, z.TaskType, z.Attempt))
		}
		return sorted(list)
	}
	equal(t, "at first", zombies(), "[]")
	b.exec("UPDATE running SET deadline = statement_timestamp() - interval '4 seconds' WHERE process_id = 'late'")
	equal(t, "within the margin", zombies(), "[]")
	b.exec("UPDATE running SET deadline = deadline - interval '2 seconds' WHERE process_id = 'late'")
	equal(t, "past the margin", zombies(), "[late INIT#1]")
	b.exec("UPDATE nodes SET beat_time = beat_time - interval '1 hour'")
	equal(t, "after a step of the clock", zombies(), "[late INIT#1]")
	beats, err := b.ListBeats(t.Context())
	for _, n := range must(t, beats, err) {
		if n.NodeID != dead.NodeID() {
			continue
		}
		early, err := b.DeclareDead(t.Context(), n.NodeID, n.BeatTime.Add(-time.Second))
		equal(t, "declared dead after another heartbeat", must(t, early, err), false)
		declared, err := b.DeclareDead(t.Context(), n.NodeID, n.BeatTime)
		equal(t, "declared dead", must(t, declared, err), true)
	}
	if _, err := dead.Beat(t.Context(), storage.NodeReport{}); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the heartbeat of a node that was declared dead: %v", err)
	}
	equal(t, "zombies of a dead node", zombies(), "[late INIT#1 zombie INIT#1]")
	if err := dead.DeleteNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "zombies of a deleted node", zombies(), "[late INIT#1 zombie INIT#1]")
	// A zombie is taken over under its own token. When its node continues after a long pause, it
	// cannot store the result.
	b.save(end(p.Claim, storage.Retry))
	if _, err := dead.SaveResult(end(p.Claim, storage.Finished)); err == nil {
		t.Error("the late result was stored")
	}
	b.is("zombie", "INIT e0: INIT runs#2")
	b.save(end(late, storage.Failed, broken("zombie detected")))
	b.is("late", "ERROR e0: INIT ERROR")
}

func TestListRunningOmitsKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := open(t, b.dsn, storage.Config{})
	a, c := b.start("a"), b.start("b")
	must(t, 0, func() error { _, err := other.PrepareInit(newInit("other")); return err }())
	b.save(end(c, storage.Finished, events("e")))
	c = b.claim("b")
	for _, x := range []struct {
		known []int64
		age   time.Duration
		want  string
	}{
		{nil, 0, "[a b]"}, {[]int64{}, 0, "[a b]"}, {[]int64{a.FencingToken}, 0, "[b]"},
		{[]int64{a.FencingToken, c.FencingToken}, 0, "[]"}, {nil, time.Hour, "[]"},
	} {
		rows, err := b.ListRunning(t.Context(), x.known, x.age)
		equal(t, "rows", sorted(ids(must(t, rows, err))), x.want)
		for _, r := range rows {
			if r.ProcessID == "b" {
				equal(t, "the claim", []any{r.TaskID, r.FencingToken, r.LastEventID, string(r.Args), r.Status},
					[]any{c.TaskID, c.FencingToken, 1, "args", "RUNNING"})
			}
		}
	}
}
