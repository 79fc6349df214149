package crons_test

import (
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// once tells what is wrong with the ledger of a cron that fires every second, from its first row to its last: each time has one row, and
// each of these one run.
func (n *node) once(t testing.TB, id string) {
	t.Helper()
	fires := n.fires(t, id)
	for i := 1; i < len(fires); i++ {
		if step := fires[i].GetFireTime().AsTime().Sub(fires[i-1].GetFireTime().AsTime()); step != time.Second {
			t.Errorf("%s after %s", fires[i].GetFireTime().AsTime(), fires[i-1].GetFireTime().AsTime())
		}
	}
	runs := n.count(t, "SELECT count(*) FROM processes WHERE kind = '' AND metadata->>'progressor.cron_id' = $1", id)
	if fired := n.count(t, "SELECT count(*) FROM cron_fires WHERE cron_id = $1 AND decision = 'FIRED' AND attempt = 1", id); runs != fired {
		t.Errorf("%d fires and %d runs", fired, runs)
	}
}

// everySecond is a cron whose runs may overlap.
func everySecond(id string) *progressorv1.Cron {
	c := starts(id, "* * * * * *", "complete")
	c.Policy.MaxConcurrency = 100
	return c
}

// Of two nodes one decides each fire.
func TestNodesFireOnce(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn)
	b := start(t, dsn)
	for _, id := range []string{"c", "d", "e"} {
		c := everySecond(id)
		c.Spec.MaxFires = 4
		a.create(t, c)
	}
	for _, id := range []string{"c", "d", "e"} {
		b.awaits(t, id, "FIRED SUCCESS 1, FIRED SUCCESS 1, FIRED SUCCESS 1, FIRED SUCCESS 1")
		a.once(t, id)
	}
	if fired := a.metric(t, "progressor_cron_fires_total") + b.metric(t, "progressor_cron_fires_total"); fired != 12 {
		t.Errorf("%v fires are counted", fired)
	}
}

// A node that dies leaves nothing undecided: another one decides all that has come since, each once.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn)
	a.create(t, everySecond("c"))
	eventually(t, "it fires", func() bool { return a.count(t, "SELECT count(*) FROM cron_fires") >= 1 })
	a.store.Close() // nothing is given back, and its row stays
	before := a.count(t, "SELECT count(*) FROM cron_fires")
	passes := time.Now().Add(2100 * time.Millisecond)
	eventually(t, "two fire times pass", func() bool { return time.Now().After(passes) })
	b := start(t, dsn)
	eventually(t, "it goes on", func() bool {
		return b.count(t, "SELECT count(*) FROM cron_fires WHERE status = 'SUCCESS'") >= before+3
	})
	if _, err := b.Pause(t.Context(), &progressorv1.PauseCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what runs has ended", func() bool { return b.count(t, "SELECT count(*) FROM cron_fires WHERE status = 'RUNNING'") == 0 })
	b.once(t, "c")
}
