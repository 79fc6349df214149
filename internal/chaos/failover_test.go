//go:build linux

package chaos

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestChaosFailover crashes PostgreSQL under load and promotes its standby: once with an
// asynchronous and once with a synchronous standby, for each minute of -chaos.duration.
func TestChaosFailover(t *testing.T) {
	for range max(1, int(*chaosDuration/time.Minute)) {
		t.Run("asynchronous standby", failoverWithLoss)
		t.Run("synchronous standby", failoverWithoutLoss)
	}
}

// failover is two engines under load, on a primary with a standby.
type failover struct {
	*storagetest.Replicated
	t     *testing.T
	chain *chain
	nodes []*node
	fleet *fleet
	sinks *sinkWatch
	load  *load
}

func newFailover(t *testing.T) *failover {
	f := &failover{Replicated: storagetest.NewReplicated(t), t: t, chain: newChain(t)}
	f.chain.responses = map[string][][]byte{}
	f.nodes = []*node{startNode(t, "a", f.DSN), startNode(t, "b", f.DSN)}
	putChain(t, f.nodes[0], f.chain, record)
	f.fleet = newFleet(t, f.nodes...)
	f.fleet.try = testTimeout // a wait that hangs fails the test
	f.sinks = startSinks(f.fleet)
	f.fleet.start(20)
	return f
}

// awaitMore waits until the given number of further calls was answered.
func (f *failover) awaitMore(calls int64) time.Duration {
	f.t.Helper()
	before := f.load.acked.Load()
	return await(f.t, testTimeout, "calls are answered", func() bool { return f.load.acked.Load() >= before+calls })
}

// After a failover to a standby that lacks the last commits, no client gets a response that the
// processor never returned, and nothing hangs. The engines count tasks that were lost before they
// ended.
func failoverWithLoss(t *testing.T) {
	f := newFailover(t)
	f.load = startLoad(f.fleet, plan{clients: 24, processes: 20, seed: 20})
	f.awaitMore(200)
	replicated := time.Now()
	f.CatchUp()
	f.Detach()
	f.awaitMore(200)
	g := f.chain.hold(nil) // these calls are lost before they end
	// The 24 clients may wait for only a few of the 20 processes, because each process runs one
	// call at a time.
	await(t, testTimeout, "the processor holds calls", func() bool { return g.arrived.Load() >= 5 })
	f.FailOver()
	failed := time.Now()
	await(t, testTimeout, "lost calls are reported", func() bool { return f.metric("progressor_tasks_lost_total") > 0 })
	f.chain.openAll()
	took := f.awaitMore(200)
	entries := f.load.finish()
	f.load.seen.only(t)
	settle(t, f.DSN)

	histories := readHistories(t, observe(t, f.DSN))
	lost := 0
	for _, e := range entries {
		if e.outcome != acked {
			continue
		}
		if !slices.ContainsFunc(f.chain.responses[e.process+" "+e.op],
			func(a []byte) bool { return bytes.Equal(a, e.answer) }) {
			t.Errorf("%s of %s was answered %x, which the processor never returned to it", e.op, e.process, e.answer)
		}
		mayBeLost := e.ended.After(replicated) && e.begun.Before(failed)
		if h := histories[e.process]; mayBeLost && h != nil && len(h.answers[e.op]) == 0 {
			e.outcome = unknown
			lost++
		}
	}
	verify(t, f.DSN, entries)
	f.sinks.lossy = true
	f.verifySinks()
	t.Logf("%d calls answered, %d of them lost by the failover, %.0f reported as lost; 200 more were answered in %s; "+
		"clients saw %v",
		f.load.acked.Load(), lost, f.metric("progressor_tasks_lost_total"), took.Round(time.Millisecond), &f.load.seen)
	if lost == 0 {
		t.Error("the failover lost nothing, so the test checked nothing")
	}
}

// verifySinks checks that the sinks have delivered all changes that were not lost, in order.
func (f *failover) verifySinks() {
	f.t.Helper()
	for _, w := range f.sinks.defects(observe(f.t, f.DSN)) {
		f.t.Error(w)
	}
	total, again := f.sinks.counts()
	f.t.Logf("%d changes received from the sinks, %d of them again", total, again)
}

func (f *failover) metric(name string) (sum float64) {
	for _, n := range f.nodes {
		sum += n.metric(name)
	}
	return sum
}

// A failover to a synchronous standby loses nothing, even if commits waited for it when the primary
// crashed.
func failoverWithoutLoss(t *testing.T) {
	f := newFailover(t)
	f.Synchronous()
	f.load = startLoad(f.fleet, plan{clients: 24, processes: 20, seed: 21})
	f.awaitMore(200)
	f.Detach()
	f.Await(`SELECT count(*) >= 1 FROM pg_stat_activity ` +
		`WHERE application_name = 'progressor lane' AND wait_event = 'SyncRep'`)
	f.FailOver()
	took := f.awaitMore(200)
	entries := f.load.finish()
	f.load.seen.only(t)
	settle(t, f.DSN)
	verify(t, f.DSN, entries)
	f.verifySinks()
	replay(t, f.fleet, entries)
	t.Logf("%d calls answered; 200 more in %s after the failover; clients saw %v", f.load.acked.Load(),
		took.Round(time.Millisecond), &f.load.seen)
}
