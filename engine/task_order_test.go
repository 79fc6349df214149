package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// journal records the work of processors outside the database.
type journal struct {
	mu      sync.Mutex
	entries []entry
	at      map[string]int // running attempts by process
	overlap bool           // two attempts of one process ran at the same time
}

type entry struct {
	process string
	task    int64
	kind    progressorv1.TaskType
	attempt int32
	token   int64
	args    string
}

func newJournal() *journal { return &journal{at: map[string]int{}} }

// recording returns a processor that records every task in the journal and then calls p.
func (j *journal) recording(p processor.Processor) processor.Processor {
	return processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		id := r.GetProcess().GetProcessId()
		j.mu.Lock()
		j.entries = append(j.entries, entry{
			id, r.GetTaskId(), r.GetType(), r.GetAttempt(), r.GetFencingToken(), string(r.GetArgs()),
		})
		j.at[id]++
		j.overlap = j.overlap || j.at[id] > 1
		j.mu.Unlock()
		defer func() {
			j.mu.Lock()
			j.at[id]--
			j.mu.Unlock()
		}()
		return p.Process(ctx, r)
	})
}

// of returns the entries of a process and a type.
func (j *journal) of(id string, kind progressorv1.TaskType) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var some []entry
	for _, e := range j.entries {
		if e.process == id && e.kind == kind {
			some = append(some, e)
		}
	}
	return some
}

// inOrder checks that a process ran n tasks of a type, in the order of their task IDs and with
// increasing fencing tokens. It also checks that no process ran two tasks at the same time.
func (j *journal) inOrder(t testing.TB, id string, kind progressorv1.TaskType, n int) {
	t.Helper()
	entries := j.of(id, kind)
	if len(entries) != n {
		t.Errorf("%s ran %d tasks, not %d", id, len(entries), n)
	}
	if j.overlap {
		t.Error("two tasks of one process ran at the same time")
	}
	if !slices.IsSortedFunc(entries, func(a, b entry) int { return int(a.task - b.task) }) {
		t.Errorf("%s ran its tasks out of order", id)
	}
	if !slices.IsSortedFunc(entries, func(a, b entry) int { return int(a.token - b.token) }) {
		t.Errorf("the fencing tokens of %s do not increase", id)
	}
}

// 200 concurrent calls of one process run one at a time, in the order in which they were accepted,
// on one node or on three.
func TestCallsInOrder(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			j := newJournal()
			var all []*node
			for range nodes {
				all = append(all, start(t, dsn, j.recording(processor.Echo())))
			}
			all[0].started(t, "p")
			var calls []<-chan result
			for n := range 200 {
				calls = append(calls, all[n%nodes].calling("p", fmt.Sprint(n)))
			}
			for n, c := range calls {
				if res := receive(t, "call", c); res.err != nil || string(res.ans.Response) != fmt.Sprint(n) {
					t.Fatalf("call %d: %+v", n, res)
				}
			}
			j.inOrder(t, "p", callTask, 200)
		})
	}
}

// A busy process gives up the only slot after 16 tasks in a row if other tasks wait. Therefore, a
// task of another process that was stored after 20 tasks of the busy process runs after 16 to 36 of
// its tasks.
func TestOthersGetTheirTurn(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	j := newJournal()
	n := start(t, dsn, j.recording(byTask{callTask: g.held(true)}))
	n.started(t, "hot")
	n.started(t, "other")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	first := n.persisting("hot", "0")
	receive(t, "the first call runs", g.entered)
	for k := range 60 {
		ids := []string{"hot"}
		if k == 20 {
			ids = append(ids, "other")
		}
		for _, id := range ids {
			_, err := n.Call(t.Context(), engine.CallParams{Key: key(id), Args: fmt.Append(nil, k), Accepted: true})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	g.release()
	receive(t, "the first call", first)
	eventually(t, "all is done", func() bool {
		return len(j.of("hot", notifyTask)) == 60 && len(j.of("other", notifyTask)) == 1
	})
	j.inOrder(t, "hot", notifyTask, 60)
	token, before := j.of("other", notifyTask)[0].token, 0
	for _, e := range j.of("hot", notifyTask) {
		if e.token < token {
			before++
		}
	}
	if before < 16 || before > 20+16 {
		t.Errorf("the other process waited for %d tasks of the busy one", before)
	}
}

// A process that sets a timer of zero in a loop also gives up its slot, both to starts of other
// processes and to its own calls.
func TestLoopLeavesRoom(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	var stop atomic.Bool
	loop := func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if stop.Load() || r.GetProcess().GetProcessId() != "loop" {
			return processor.Result().Response([]byte("done")).Done()
		}
		return processor.Result().SetTimerAfter(0).Done()
	}
	j := newJournal()
	n := start(t, dsn, j.recording(byTask{initTask: loop, timeoutTask: loop}))
	n.started(t, "loop")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	for k := range 5 {
		id := fmt.Sprint("p", k)
		// The client retries if it gets no slot.
		eventually(t, "a start gets a slot", func() bool {
			_, err := n.Start(t.Context(), engine.StartParams{Key: key(id)})
			if err != nil && !errors.Is(err, process.ErrOverloaded) && !errors.Is(err, process.ErrProcessExists) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	eventually(t, "a call of the loop itself gets a slot", func() bool { return (<-n.calling("loop", "x")).err == nil })
	stop.Store(true)
	eventually(t, "the loop ends", func() bool { return n.Attempts() == 0 })
	if len(j.of("loop", timeoutTask)) < 16 {
		t.Errorf("the loop ran %d times", len(j.of("loop", timeoutTask)))
	}
}

// Two processes share one slot. They have so many requests that a flush locks their rows nearly all
// the time. Each gets its turn without waiting for the next regular scan.
func TestHotProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	var mu sync.Mutex
	last, longest, ran := map[string]time.Time{}, map[string]time.Duration{}, map[string]int{}
	n := start(t, dsn, byTask{notifyTask: func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		id := r.GetProcess().GetProcessId()
		mu.Lock()
		if began, ok := last[id]; ok {
			longest[id] = max(longest[id], time.Since(began))
		}
		last[id] = time.Now()
		ran[id]++
		mu.Unlock()
		return processor.Result().Done()
	}}, func(c *engine.Config) { c.ScanInterval = 30 * time.Second })
	n.started(t, "a")
	n.started(t, "b")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for k := range 16 {
		group.Go(func() {
			for ctx.Err() == nil {
				_, err := n.Call(ctx, engine.CallParams{
					Key: key([]string{"a", "b"}[k%2]), Args: []byte("x"), Accepted: true,
				})
				if err != nil && !errors.Is(err, process.ErrOverloaded) {
					t.Error(err)
				}
			}
		})
	}
	for turns := 25; turns <= 200; turns += 25 { // on a busy machine, all tasks may take a long time
		eventually(t, "each process has run its tasks", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran["a"] >= turns && ran["b"] >= turns
		})
	}
	cancel()
	group.Wait()
	mu.Lock()
	defer mu.Unlock()
	for id, d := range longest {
		if d > 15*time.Second { // only a regular scan would take that long
			t.Errorf("%s waited %s for its turn", id, d)
		}
	}
}

// A task runs although other sessions lock its process without a pause, because a scan waits for
// the lock.
func TestScanWaitsForLock(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	j := newJournal()
	n := start(t, dsn, j.recording(byTask{callTask: g.heldBefore(words)}),
		func(c *engine.Config) { c.ScanInterval = 30 * time.Second })
	n.started(t, "busy")
	n.started(t, "locked")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	n.calling("busy", "hold")
	receive(t, "the busy process has the slot", g.entered)
	n.calling("locked", "x")
	rows := openDB(t, dsn)
	eventually(t, "a call waits for the slot", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") == 1
	})
	unlock := enginetest.KeepLocked(t, dsn, "locked")
	g.release()
	eventually(t, "the call runs", func() bool { return len(j.of("locked", callTask)) > 0 })
	unlock()
}
