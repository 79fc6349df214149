package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// counter is a function that adds the args of calls and publishes the total. It counts how often
// its code begins and ends.
type counter struct{ begun, ended atomic.Int32 }

func (c *counter) processor() processor.Processor {
	return function(func(ctx durable.Ctx) (string, error) {
		c.begun.Add(1)
		defer c.ended.Add(1)
		calls := durable.Calls[int, int](ctx, "add")
		total := 0
		for {
			total += calls.Next()
			durable.Sleep(ctx, "pause", time.Millisecond)
			durable.Publish(ctx, total)
		}
	})
}

// parked returns the number of functions that wait in the memory of a node.
func parked(t *testing.T, n *enginetest.Node) float64 {
	t.Helper()
	families, err := n.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "progressor_functions_parked" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("the metric is missing")
	return 0
}

// add calls a counter and waits until it has published the total.
func add(t *testing.T, n *enginetest.Node, amount, total int) {
	t.Helper()
	args := fmt.Appendf(nil, `{"add":%d}`, amount)
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: args}); err != nil {
		t.Fatal(err)
	}
	published(t, n, total)
}

// published waits until a counter has published the total.
func published(t *testing.T, n *enginetest.Node, total int) {
	t.Helper()
	enginetest.Eventually(t, 20*time.Second, "the total is published", func() bool {
		p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING)
		return string(p.GetAuxState()) == fmt.Sprint(total)
	})
}

// A function that waits in memory continues without a replay. It ends with its node.
func TestParked(t *testing.T) {
	t.Parallel()
	var c counter
	n := node(t, storagetest.DSN(t), c.processor())
	begin(t, n)
	for total := range 5 {
		add(t, n, 1, total+1)
		enginetest.Eventually(t, 20*time.Second, "the function is parked", func() bool { return parked(t, n) == 1 })
	}
	check(t, "begun", fmt.Sprint(c.begun.Load()), "1")
	check(t, "ended", fmt.Sprint(c.ended.Load()), "0")
	n.Stop()
	check(t, "ended after the stop", fmt.Sprint(c.ended.Load()), "1")
}

// Two nodes run the tasks of a function in turn. A node does not continue a function that the other
// has continued.
func TestParkedElsewhere(t *testing.T) {
	t.Parallel()
	var c counter
	dsn := storagetest.DSN(t)
	nodes := []*enginetest.Node{node(t, dsn, c.processor()), node(t, dsn, c.processor())}
	begin(t, nodes[0])
	for total := range 6 {
		n := nodes[total%2]
		add(t, n, 1, total+1)
		enginetest.Eventually(t, 20*time.Second, "the function is parked", func() bool {
			return parked(t, n) == 1
		})
	}
}

// A call with a range of the history is rejected. The next call without a range succeeds.
func TestParkedRange(t *testing.T) {
	t.Parallel()
	var c counter
	n := node(t, storagetest.DSN(t), c.processor())
	begin(t, n)
	add(t, n, 1, 1)
	_, err := n.Call(t.Context(), engine.CallParams{
		Key: key, Args: []byte(`{"add":1}`), Range: &progressorv1.HistoryRange{Limit: proto.Int32(1)},
	})
	if ended, ok := errors.AsType[*engine.TaskError](err); !ok || ended.Rejection.GetReason() != durable.ReasonJournal {
		t.Errorf("a call with a range: %v", err)
	}
	add(t, n, 1, 2)
}

// The effects of a parked task are stored once.
func TestParkedEffects(t *testing.T) {
	t.Parallel()
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		durable.Publish(ctx, "begun")
		calls := durable.Calls[int, int](ctx, "add")
		for {
			calls.Next()
			durable.After(ctx, "late", time.Hour)
		}
	}))
	begin(t, n)
	n.Count(t, `UPDATE processes SET aux_state = NULL RETURNING 1`)
	for range 2 {
		if _, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(`{"add":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING)
	check(t, "state", string(p.GetAuxState()), "")
	check(t, "timers", fmt.Sprint(n.Count(t, `SELECT count(*) FROM schedule`)), "2")
}

// After a failover of the database, which may have lost events, no function continues in memory.
// Sequences that move backwards look like a failover.
func TestParkedFailover(t *testing.T) {
	t.Parallel()
	var c counter
	n := node(t, storagetest.DSN(t), c.processor())
	begin(t, n)
	add(t, n, 1, 1)
	enginetest.Eventually(t, 20*time.Second, "the function is parked", func() bool { return parked(t, n) == 1 })
	n.Count(t, "SELECT setval('task_ids', 1) + setval('fencing_tokens', 1)")
	n.Count(t, `SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
		WHERE application_name LIKE 'progressor %' AND datname = current_database()`)
	enginetest.Eventually(t, time.Minute, "the function leaves the memory", func() bool { return c.ended.Load() > 0 })
	enginetest.Eventually(t, time.Minute, "the database is available", func() bool {
		_, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(`{"add":1}`), IdempotencyKey: "2"})
		return err == nil
	})
	published(t, n, 2)
}

// A processor that discards the result of a parked function and runs it again gets the history. So
// does one that fails.
func TestParkedTwice(t *testing.T) {
	t.Parallel()
	var c counter
	f := c.processor()
	n := node(t, storagetest.DSN(t), processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if resp, err := f.Process(ctx, req); req.GetType() == progressorv1.TaskType_TASK_TYPE_INIT {
			return resp, err
		}
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && req.GetAttempt() == 1 {
			return nil, errors.New("odd")
		}
		return f.Process(ctx, req)
	}))
	begin(t, n)
	for total := range 3 {
		add(t, n, 1, total+1)
	}
}

// A goroutine that misuses the Ctx of a function in memory ends. The function continues.
func TestParkedMisuse(t *testing.T) {
	t.Parallel()
	misuse, misused := make(chan struct{}), make(chan struct{})
	var begun atomic.Int32
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		if begun.Add(1) == 1 {
			go func() {
				defer close(misused)
				<-misuse
				durable.UUID(ctx, "id")
				t.Error("an operation of another goroutine has returned")
			}()
		}
		calls := durable.Calls[int, int](ctx, "add")
		return fmt.Sprint(calls.Next()), nil
	}))
	begin(t, n)
	enginetest.Eventually(t, 20*time.Second, "the function is parked", func() bool { return parked(t, n) == 1 })
	close(misuse)
	<-misused
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key, Args: []byte(`{"add":7}`)}); err != nil {
		t.Fatal(err)
	}
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"7"}`)
	check(t, "begun", fmt.Sprint(begun.Load()), "1")
}
