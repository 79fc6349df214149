package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// counting is a processor that echoes, and counts the concurrent tasks, and the ended tasks by
// namespace.
type counting struct {
	running, most atomic.Int64
	ended         map[string]*atomic.Int64
	work          func(context.Context, *progressorv1.ProcessRequest)
}

func newCounting(work func(context.Context, *progressorv1.ProcessRequest), namespaces ...string) *counting {
	c := &counting{work: work, ended: map[string]*atomic.Int64{}}
	for _, name := range namespaces {
		c.ended[name] = &atomic.Int64{}
	}
	return c
}

func (c *counting) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	now := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	c.work(ctx, r)
	c.ended[r.GetProcess().GetNamespace()].Add(1)
	return processor.Echo().Process(ctx, r)
}

// A namespace whose tasks do not end leaves a slot of the node to another namespace, even if more
// tasks of the first namespace wait.
func TestNodeBoundLeavesASlot(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	p := newCounting(func(ctx context.Context, r *progressorv1.ProcessRequest) {
		if r.GetProcess().GetNamespace() == "ns" {
			_ = g.pass(ctx, r, true)
		}
	}, "ns", "other")
	reg := newRegistry()
	n := start(t, dsn, p, reg.use, func(c *engine.Config) { c.MaxRunning = 4 })
	n.put(t, &progressorv1.Namespace{Namespace: "other"})
	for i := range 10 {
		if _, err := n.Start(t.Context(), engine.StartParams{
			Key: key(fmt.Sprint("p", i)), Accepted: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three tasks run, and the others wait", func() bool {
		return p.running.Load() == 3 && reg.value(t, "progressor_node_places_waits_total") > 0
	})
	for i := range 5 {
		if _, err := n.Start(t.Context(), engine.StartParams{
			Key: process.Key{Namespace: "other", ProcessID: fmt.Sprint("q", i)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxBacklog: 7})
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("refused")})
	var overload *process.OverloadError
	if !errors.As(err, &overload) || !strings.Contains(overload.Bound, `"ns"`) ||
		!strings.Contains(overload.Bound, "reached its max_backlog, 7") {
		t.Errorf("one more: %v", err)
	}
	bound, taken := reg.value(t, "progressor_node_places"), reg.value(t, "progressor_node_places_taken")
	if bound != 4 || taken != 3 {
		t.Errorf("%v of %v slots are taken", taken, bound)
	}
	g.release()
	eventually(t, "all have ended", func() bool { return p.ended["ns"].Load() == 10 && p.ended["other"].Load() == 5 })
	if p.most.Load() > 4 {
		t.Errorf("%d tasks ran at a time", p.most.Load())
	}
	eventually(t, "every slot is free", func() bool { return reg.value(t, "progressor_node_places_taken") == 0 })
}

// Clients flood one namespace. Calls, stored tasks and timers of another namespace still run, even
// if the node has few slots.
func TestNodeBoundIsShared(t *testing.T) {
	t.Parallel()
	for _, bound := range []int{1, 4} {
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			t.Parallel()
			const each = 50
			dsn := storagetest.DSN(t)
			p := newCounting(func(ctx context.Context, _ *progressorv1.ProcessRequest) {
				select {
				case <-time.After(3 * time.Millisecond): // the processing time
				case <-ctx.Done():
				}
			}, "ns", "other")
			reg := newRegistry()
			n := start(t, dsn, p, reg.use, func(c *engine.Config) { c.MaxRunning = bound })
			n.put(t, &progressorv1.Namespace{Namespace: "other"})
			d := openDB(t, dsn)
			d.idle(t, "called-", 16)
			d.idle(t, "stored-", each)
			d.idle(t, "timer-", each)
			storagetest.Exec(t, d,
				`UPDATE processes SET namespace = 'other' WHERE NOT starts_with(process_id, 'called-')`)
			storagetest.Recount(t, d)
			stop := n.callers(t, 16, "called-", 0)
			eventually(t, "the node has too few slots", func() bool {
				return p.ended["ns"].Load() > 50 && reg.value(t, "progressor_node_places_waits_total") > 0
			})
			before := p.ended["ns"].Load()
			d.waiting(t, "stored-", "NOTIFY", "place", "")
			d.waiting(t, "timer-", "TIMEOUT", "time", "")
			for i := range 5 {
				for { // the client retries
					_, err := n.Start(t.Context(), engine.StartParams{
						Key: process.Key{Namespace: "other", ProcessID: fmt.Sprint("q", i)},
					})
					if err == nil {
						break
					}
					if !errors.Is(err, process.ErrOverloaded) {
						t.Fatal(err)
					}
				}
			}
			eventually(t, "the tasks of the other namespace have ended", func() bool {
				return p.ended["other"].Load() == 2*each+5
			})
			meanwhile := p.ended["ns"].Load() - before
			stop()
			if meanwhile < each/2 {
				t.Errorf("%d calls ended while %d other tasks did", meanwhile, 2*each+5)
			}
			if p.most.Load() > int64(bound) {
				t.Errorf("%d tasks ran at a time", p.most.Load())
			}
			eventually(t, "every slot is free", func() bool {
				return reg.value(t, "progressor_node_places_taken") == 0
			})
		})
	}
}
