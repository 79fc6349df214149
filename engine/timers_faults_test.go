package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Timers do not belong to a node. If a node dies, another node fires the timers that were set on
// the dead node. Only a task that the dead node was running waits until the node is declared dead.
func TestTimersOfDeadNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	dead := start(t, dsn, c.processor())
	const timers = 10
	for k := range timers {
		id := fmt.Sprint("p", k)
		dead.started(t, id)
		dead.called(t, id, fmt.Sprintf("set %dms,name n %dms", 300+k, 400+k))
	}
	dead.crash()
	rows, claimed := openDB(t, dsn), map[string]bool{}
	for k := range timers {
		id := fmt.Sprint("p", k)
		claimed[id] = rows.count(t, "SELECT count(*) FROM running WHERE process_id = $1", id) > 0
	}
	second := &timerRecorder{}
	start(t, dsn, second.processor(), func(c *engine.Config) { c.ScanInterval = 100 * time.Millisecond })
	ready := time.Now()
	eventually(t, "all timers have fired", func() bool {
		return rows.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT'") == 2*timers
	})
	for _, f := range second.all() {
		due := f.scheduled
		if ready.After(due) {
			due = ready
		}
		// A node is declared dead after 10 s.
		if late := f.at.Sub(due); late > 5*time.Second && !claimed[f.process] {
			t.Errorf("%s %q: %s late", f.process, f.name, late)
		}
	}
}

// All timers that came due while no node ran are fired, in the order in which they were due.
func TestOverdueTimers(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	first := start(t, dsn, c.processor())
	if _, err := first.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	pass(100 * time.Millisecond) // a running scan may not know of the pause
	const timers = 300
	base := time.Now().Add(-time.Hour)
	for k := range timers {
		order := k * 7 % timers // not in the order of creation
		_, err := first.PutProcess(t.Context(), &progressorv1.PutProcessRequest{
			Namespace: "ns", ProcessId: fmt.Sprint("p", k), Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			Timers: []*progressorv1.Timer{{FireTime: timestamppb.New(base.Add(time.Duration(order) * time.Second))}},
		}, process.Actor{})
		if err != nil {
			t.Fatal(err)
		}
	}
	first.stop()
	second := start(t, dsn, c.processor())
	second.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	if _, err := second.SetNamespacePaused(t.Context(), "ns", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all timers have fired", func() bool { return c.count() == timers })
	if all := c.all(); !slices.IsSortedFunc(all, func(a, b fired) int { return a.scheduled.Compare(b.scheduled) }) {
		t.Error("the timers did not fire in the order of their due times")
	}
}

// While many timers are due, calls still get slots.
func TestTimersLeaveRoomForCalls(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words,
		timeoutTask: func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			<-time.After(100 * time.Millisecond) // must take longer than the calls, even on a busy machine
			return processor.Result().Done()
		}})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 4})
	n.started(t, "caller")
	rows := openDB(t, dsn)
	const fired = "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND status = 'FINISHED'"
	for k := range 100 {
		_, err := n.PutProcess(t.Context(), &progressorv1.PutProcessRequest{
			Namespace: "ns", ProcessId: fmt.Sprint("p", k), Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			Timers: []*progressorv1.Timer{{FireTime: timestamppb.New(time.Now().Add(300 * time.Millisecond))}},
		}, process.Actor{})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "timers run", func() bool { return rows.count(t, fired) > 0 })
	for range 3 {
		n.called(t, "caller", "while timers run")
	}
	if n := rows.count(t, fired); n == 100 {
		t.Error("the calls waited for all the timers")
	}
	eventually(t, "all timers have fired", func() bool { return rows.count(t, fired) == 100 })
}

// A timer in the far future does not delay a nearer timer that is set later. The nearer timer fires
// in time, although the next regular scan is 10 s away.
func TestTimerHorizon(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	n := start(t, dsn, c.processor(), func(c *engine.Config) { c.ScanInterval = 10 * time.Second })
	n.started(t, "far")
	n.called(t, "far", "set 800000h") // 91 years
	n.started(t, "near")
	n.called(t, "near", "set 5h")
	n.called(t, "near", "set 40ms")
	eventually(t, "the near timer fires", func() bool { return c.count() == 1 })
	if f := c.all()[0]; f.process != "near" || f.at.Sub(f.scheduled) > time.Second {
		t.Errorf("fired %+v", f)
	}
}

// If all slots of one namespace are taken and it has due timers, the timers of other namespaces
// still fire in time.
func TestTimersAlongsideAFullNamespace(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	g := newGate()
	defer g.release()
	n := start(t, dsn, c.processor(), func(cfg *engine.Config) {
		cfg.Builtins["held"] = byTask{timeoutTask: g.held(true)}
		cfg.ScanInterval = 10 * time.Second
	})
	n.put(t, &progressorv1.Namespace{Namespace: "full", MaxRunning: 1, Processor: builtin("held")})
	for k := range 5 {
		_, err := n.PutProcess(t.Context(), &progressorv1.PutProcessRequest{
			Namespace: "full", ProcessId: fmt.Sprint("p", k), Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			Timers: []*progressorv1.Timer{{FireTime: timestamppb.Now()}},
		}, process.Actor{})
		if err != nil {
			t.Fatal(err)
		}
	}
	receive(t, "the full namespace has no free slot", g.entered)
	n.started(t, "p")
	n.called(t, "p", "set 60ms")
	eventually(t, "the timer fires", func() bool { return c.count() == 1 })
	if late := c.all()[0].at.Sub(c.all()[0].scheduled); late > 2*time.Second {
		t.Errorf("%s late", late)
	}
	g.release()
	eventually(t, "the full namespace continues", func() bool {
		return openDB(t, dsn).count(t,
			"SELECT count(*) FROM tasks WHERE namespace = 'full' AND status = 'FINISHED'") == 5
	})
}

// Timers that are set while a scan runs fire in time. In this test, eight processes set timers all
// the time, so scans often overlap with new timers.
func TestTimersSetAllTheTime(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	n := start(t, dsn, c.processor(), func(c *engine.Config) { c.ScanInterval = 10 * time.Second })
	const processes, rounds = 8, 40
	done := make(chan error, processes)
	for k := range processes {
		id := fmt.Sprint("p", k)
		n.started(t, id)
		go func() {
			for r := range rounds {
				// The delays differ, so that a scan for another timer rarely finds this timer by
				// chance.
				_, err := n.Call(context.Background(), engine.CallParams{
					Key: key(id), Args: fmt.Appendf(nil, "name t%d %dms", r, 5+(k*7+r*3)%40),
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range processes {
		if err := receive(t, "calls", done); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all timers have fired", func() bool { return c.count() == processes*rounds })
	for _, f := range c.all() {
		if late := f.at.Sub(f.scheduled); late > 3*time.Second {
			t.Errorf("%s %q was %s late", f.process, f.name, late)
		}
	}
}
