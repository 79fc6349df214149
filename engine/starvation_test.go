package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// worked returns a processor function that takes 3 ms, counts the task in n and returns the
// arguments as the response.
func worked(
	n *atomic.Int64,
) func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
		}
		n.Add(1)
		return byTask{}.Process(ctx, r)
	}
}

// idle stores n processes that are RUNNING and have no tasks. Their IDs are the prefix and a number
// from 1 to n.
func (d db) idle(t *testing.T, prefix string, n int) {
	t.Helper()
	_, err := d.Exec(t.Context(), `INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT 'ns', $1::text || p, 'RUNNING', 'INIT' FROM generate_series(1, $2::int) p`, prefix, n)
	if err != nil {
		t.Fatal(err)
	}
	storagetest.Recount(t, d)
}

// waiting stores one task for each process whose ID begins with prefix. waitsFor is what the tasks
// wait for, and timer is the name of the timer if the tasks are timers.
func (d db) waiting(t *testing.T, prefix, taskType, waitsFor, timer string) {
	t.Helper()
	_, err := d.Exec(t.Context(), `INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for,
		scheduled_time, timer_name)
		SELECT namespace, process_id, nextval('task_ids'), $2::text::task_type, $3::text::waits_for, now(), $4::text
		  FROM processes WHERE starts_with(process_id, $1)`, prefix, taskType, waitsFor,
		map[bool]*string{true: &timer}[taskType == "TIMEOUT"])
	if err != nil {
		t.Fatal(err)
	}
}

// callers starts clients that call processes without pause until stop is called. Each client calls
// one process: the n-th client calls the process whose ID is prefix and n.
func (n *node) callers(t *testing.T, clients int, prefix string, priority int32) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	for client := range clients {
		go func() {
			for ctx.Err() == nil {
				p := engine.CallParams{Key: key(fmt.Sprint(prefix, client+1)), Priority: priority}
				_, err := n.Call(ctx, p)
				switch {
				case errors.Is(err, process.ErrOverloaded):
					select {
					case <-time.After(10 * time.Millisecond): // the client retries
					case <-ctx.Done():
					}
				case err != nil && ctx.Err() == nil:
					t.Error(err)
				}
			}
			ended <- struct{}{}
		}()
	}
	stop = sync.OnceFunc(func() {
		cancel()
		for range clients {
			<-ended
		}
	})
	t.Cleanup(stop)
	return stop
}

// twoSlots starts a node with two slots for the namespace "ns". It counts the ended calls, and the
// ended tasks of another type.
func twoSlots(t *testing.T, other progressorv1.TaskType) (n *node, d db, calls, others *atomic.Int64) {
	t.Helper()
	calls, others = &atomic.Int64{}, &atomic.Int64{}
	dsn := storagetest.DSN(t)
	n = start(t, dsn, byTask{callTask: worked(calls), other: worked(others)})
	ns := quick()
	ns.MaxRunning = 2
	n.put(t, ns)
	return n, openDB(t, dsn), calls, others
}

// Timers fire although the calls of clients occupy all slots, and calls still run while the timers
// fire.
func TestTimersFireAlongsideCalls(t *testing.T) {
	t.Parallel()
	const due = 100
	n, d, calls, fired := twoSlots(t, timeoutTask)
	d.idle(t, "called-", 16)
	d.idle(t, "timer-", due)
	stop := n.callers(t, 16, "called-", 0)
	eventually(t, "calls occupy the slots", func() bool { return calls.Load() > 100 })
	before := calls.Load()
	d.waiting(t, "timer-", "TIMEOUT", "time", "")
	eventually(t, "the timers have fired", func() bool { return fired.Load() == due })
	meanwhile := calls.Load() - before
	stop()
	if meanwhile < due/4 {
		t.Errorf("%d calls ended while %d timers fired", meanwhile, due)
	}
}

// Calls with a higher priority run although thousands of stored tasks wait for a slot, and stored
// tasks still run in the meantime.
func TestCallsRunAlongsideABacklog(t *testing.T) {
	t.Parallel()
	const backlog = 3000
	n, d, calls, ended := twoSlots(t, notifyTask)
	d.idle(t, "called-", 4)
	d.idle(t, "stored-", backlog)
	d.waiting(t, "stored-", "NOTIFY", "place", "")
	eventually(t, "stored tasks run", func() bool { return ended.Load() > 10 })
	before := ended.Load()
	stop := n.callers(t, 4, "called-", -1000)
	eventually(t, "calls with a higher priority run", func() bool {
		return calls.Load() > 100 || ended.Load() == backlog
	})
	meanwhile := ended.Load() - before
	stop()
	if calls.Load() <= 100 || meanwhile < 20 {
		t.Errorf("%d calls and %d stored tasks ended", calls.Load(), meanwhile)
	}
}
