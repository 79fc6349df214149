package crons_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// once checks the ledger of a cron that fires every second. From the first row to the last, each
// time has one row, and there are as many runs as fires.
func (n *node) once(t testing.TB, id string) {
	t.Helper()
	fires := n.fires(t, id)
	for i := 1; i < len(fires); i++ {
		if step := fires[i].GetFireTime().AsTime().Sub(fires[i-1].GetFireTime().AsTime()); step != time.Second {
			t.Errorf("%s after %s", fires[i].GetFireTime().AsTime(), fires[i-1].GetFireTime().AsTime())
		}
	}
	runs := n.Count(t, "SELECT count(*) FROM processes WHERE kind = '' AND metadata->>'progressor.cron_id' = $1", id)
	fired := n.Count(t, "SELECT count(*) FROM cron_fires WHERE cron_id = $1 AND decision = 'FIRED' AND attempt = 1", id)
	if runs != fired {
		t.Errorf("%d fires and %d runs", fired, runs)
	}
}

// everySecond returns a cron whose runs may overlap.
func everySecond(id string) *progressorv1.Cron {
	c := starts(id, "* * * * * *", "complete")
	c.Policy.MaxConcurrency = 100
	return c
}

// With two nodes, each fire is decided once.
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
	eventually(t, "12 fires are counted", func() bool {
		return a.metric(t, "progressor_cron_fires_total")+b.metric(t, "progressor_cron_fires_total") == 12
	})
}

// After a node has died, another one decides all fires since then exactly once.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn)
	a.create(t, everySecond("c"))
	eventually(t, "the cron fires", func() bool { return a.Count(t, "SELECT count(*) FROM cron_fires") >= 1 })
	a.Store.Close() // nothing is released, and its row remains
	before := a.Count(t, "SELECT count(*) FROM cron_fires")
	passes := time.Now().Add(2100 * time.Millisecond)
	eventually(t, "two fire times pass", func() bool { return time.Now().After(passes) })
	b := start(t, dsn)
	eventually(t, "the cron continues", func() bool {
		return b.Count(t, "SELECT count(*) FROM cron_fires WHERE status = 'SUCCESS'") >= before+3
	})
	if _, err := b.Pause(t.Context(), &progressorv1.PauseCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no run continues", func() bool {
		return b.Count(t, "SELECT count(*) FROM cron_fires WHERE status = 'RUNNING'") == 0
	})
	b.once(t, "c")
}

// A cron fires while other processes use all slots and others wait for slots.
func TestFiresWhileAllIsBusy(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.create(t, everySecond("c"))
	_, err := n.PutNamespace(t.Context(), &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1,
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "p"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"holds", "waits"} {
		if _, err := n.Start(t.Context(), engine.StartParams{
			Key: key(id), Args: []byte("hold"), Accepted: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the slot is taken", func() bool {
		// Both tasks run if a scan had begun with the old number of slots.
		return n.Count(t, "SELECT count(*) FROM running WHERE process_id IN ('holds', 'waits')") >= 1
	})
	before := n.Count(t, "SELECT count(*) FROM cron_fires")
	eventually(t, "the cron fires", func() bool { return n.Count(t, "SELECT count(*) FROM cron_fires") >= before+2 })
	if n.Count(t, "SELECT count(*) FROM running WHERE process_id IN ('holds', 'waits')") == 0 {
		t.Error("no run holds the slot")
	}
	close(n.gate)
}

// Old rows of the ledger and old tasks of an existing cron are deleted after their retention.
// Unfinished ones stay.
func TestForget(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "complete")
	n.create(t, c)
	n.trigger(t, "c")
	n.awaits(t, "c", "FIRED SUCCESS 1")
	c.CronId, c.Target.GetStartProcess().Args = "d", nil
	n.create(t, c)
	n.trigger(t, "d")
	for _, old := range []string{
		"UPDATE cron_fires SET decided_time = now() - interval '10 days'",
		"UPDATE tasks SET finished_time = now() - interval '10 days' WHERE process_id = '~cron/c'",
	} {
		storagetest.Exec(t, n.DB, old)
	}
	n.KeepLedger(9 * 24 * time.Hour)
	n.forget(t)
	if rows := n.Count(t, "SELECT count(*) FROM cron_fires"); rows != 1 {
		t.Errorf("%d rows are left", rows)
	}
	tasks, others := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = '~cron/c'"),
		n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = '~cron/d'")
	if tasks != 0 || others == 0 {
		t.Errorf("%d old tasks are left, and %d young ones", tasks, others)
	}
	n.trigger(t, "c")
}

// forget deletes old rows, like the collector.
func (n *node) forget(t testing.TB) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = n.Kinds()[0].Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The misfire policy decides the fire times that passed while no node ran, and it decides all of
// them at the first check.
func TestMisfires(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn)
	policies := map[string]func(*progressorv1.CronPolicy){
		"now":    func(p *progressorv1.CronPolicy) { p.MaxConcurrency = 100 },
		"single": func(*progressorv1.CronPolicy) {},
		"limited": func(p *progressorv1.CronPolicy) {
			p.MaxConcurrency, p.MisfirePolicy, p.CatchupLimit = 100,
				progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED, 2
		},
		"skip": func(p *progressorv1.CronPolicy) {
			p.MaxConcurrency, p.MisfirePolicy = 100, progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP
		},
		"window": func(p *progressorv1.CronPolicy) {
			p.MaxConcurrency, p.CatchupWindow = 100, durationpb.New(2500*time.Millisecond)
		},
	}
	for id, change := range policies {
		c := starts(id, "* * * * * *", "wait")
		change(c.Policy)
		a.create(t, c)
	}
	a.Stop()
	stopped := time.Now()
	eventually(t, "five fire times pass", func() bool { return time.Now().After(stopped.Add(5100 * time.Millisecond)) })
	b := start(t, dsn)
	for id := range policies {
		var missed, fired, skipped int
		eventually(t, "the first check is stored", func() bool {
			// The first check decided the most fire times. Later checks decide one or two.
			return b.DB.QueryRow(t.Context(),
				`SELECT count(*) FILTER (WHERE decision = 'MISSED'), count(*) FILTER
				(WHERE decision = 'FIRED'), count(*) FILTER (WHERE decision = 'SKIPPED_CONCURRENCY')
				FROM cron_fires WHERE cron_id = $1 GROUP BY decided_time HAVING count(*) >= 4 ORDER BY count(*) DESC
				  LIMIT 1`, id).Scan(&missed, &fired, &skipped) == nil
		})
		ok := false
		switch id {
		case "now":
			ok = missed == 0 && skipped == 0
		case "single":
			ok = fired == 1 && missed >= 3 && skipped == 0 || fired == 0 && skipped >= 3 // a run is still running
		case "limited":
			ok = fired == 2 && skipped == 0
		case "skip":
			ok = fired == 1 && skipped == 0
		case "window":
			ok = fired >= 2 && fired <= 3 && skipped == 0
		}
		if !ok {
			t.Errorf("%s: %d missed, %d fired, %d skipped", id, missed, fired, skipped)
		}
	}
}

// ResumeCron repairs a cron whose process is in ERROR.
func TestResumeOfABrokenCron(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * * *", "complete")
	c.Policy.MaxConcurrency = 100
	n.create(t, c)
	replaceStart := func(from, to string) {
		t.Helper()
		_, err := n.DB.Exec(t.Context(),
			`UPDATE processes SET aux_state = convert_to($1, 'UTF8') || substring(aux_state FROM length($2) + 1)
			WHERE process_id = '~cron/c' AND starts_with(encode(aux_state, 'escape'), $2)`, to, from)
		if err != nil {
			t.Fatal(err)
		}
	}
	status := func() string {
		p, err := n.GetProcess(t.Context(), key("~cron/c"), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.GetStatus().String()
	}
	eventually(t, "the cron is broken", func() bool {
		replaceStart(`{"v":1,`, `{"v":!,`) // not JSON
		return status() == "PROCESS_STATUS_ERROR"
	})
	replaceStart(`{"v":!,`, `{"v":1,`)
	if _, err := n.Resume(t.Context(), &progressorv1.ResumeCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	before := n.Count(t, "SELECT count(*) FROM cron_fires")
	eventually(t, "the cron fires", func() bool { return n.Count(t, "SELECT count(*) FROM cron_fires") > before+1 })
}

// A run may be in another namespace than its cron. The cron is notified when the run ends.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.Put(t, &progressorv1.Namespace{Namespace: "other"})
	c := starts("c", never, "complete")
	c.Target.GetStartProcess().Namespace = "other"
	n.create(t, c)
	n.trigger(t, "c")
	n.awaits(t, "c", "FIRED SUCCESS 1")
	if k := n.Count(t, "SELECT count(*) FROM processes WHERE namespace = 'other'"); k != 1 {
		t.Errorf("%d runs", k)
	}
}
