package crons_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// In a paused namespace, crons can be created, changed and deleted, because these commands run
// nothing. The crons fire after the resume, with their current definition.
func TestPausedNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	ctx := t.Context()
	before := starts("before", "* * * * * *", "complete")
	before.Policy.MaxConcurrency = 100
	n.create(t, before)
	eventually(t, "the cron fires", func() bool { return n.Count(t, "SELECT count(*) FROM cron_fires") > 0 })
	if _, err := n.SetNamespacePaused(ctx, "ns", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing runs", func() bool { return n.Count(t, "SELECT count(*) FROM running") == 0 })
	rows := n.Count(t, "SELECT count(*) FROM cron_fires")
	made := n.create(t, starts("made", "* * * * * *", "complete"))
	if made.GetEtag() == "" || len(made.GetNextFireTimes()) != 10 {
		t.Errorf("created: %v", made)
	}
	for _, id := range []string{"gone", "held"} {
		n.create(t, starts(id, "* * * * * *", "complete"))
	}
	passes := time.Now().Add(1100 * time.Millisecond)
	eventually(t, "a fire time passes", func() bool { return time.Now().After(passes) })
	change := starts("made", "* * * * * *", "wait")
	change.Etag = "0"
	if _, err := n.Update(ctx, &progressorv1.UpdateCronRequest{Cron: change}, kim); !errors.Is(err,
		process.ErrStaleEtag) {
		t.Errorf("an old etag: %v", err)
	}
	change.Etag = made.GetEtag()
	if c, err := n.Update(ctx, &progressorv1.UpdateCronRequest{Cron: change}, kim); err != nil ||
		c.GetEtag() == made.GetEtag() {
		t.Errorf("update: %v, %v", c, err)
	}
	for range 2 { // resuming a cron does not decide anything either
		if c, err := n.Pause(ctx, &progressorv1.PauseCronRequest{
			Namespace: "ns", CronId: "held",
		}, kim); err != nil || !c.GetPaused() {
			t.Errorf("pause: %v, %v", c, err)
		}
		if c, err := n.Resume(ctx, &progressorv1.ResumeCronRequest{
			Namespace: "ns", CronId: "held",
		}, kim); err != nil || c.GetPaused() {
			t.Errorf("resume: %v, %v", c, err)
		}
	}
	if _, err := n.Pause(ctx, &progressorv1.PauseCronRequest{Namespace: "ns", CronId: "held"}, kim); err != nil {
		t.Error(err)
	}
	if _, err := n.Trigger(ctx, &progressorv1.TriggerCronRequest{
		Namespace: "ns", CronId: "made",
	}, kim); !errors.Is(err, process.ErrNamespacePaused) {
		t.Errorf("trigger: %v", err)
	}
	if err := n.Delete(ctx, &progressorv1.DeleteCronRequest{Namespace: "ns", CronId: "gone"}, kim); err != nil {
		t.Error(err)
	}
	from := time.Now().Add(-time.Hour).Truncate(time.Second)
	if k, err := n.Backfill(ctx, &progressorv1.BackfillCronRequest{
		Namespace: "ns", CronId: "held", FromTime: stamp(from), ToTime: stamp(from.Add(3 * time.Second)),
	}, kim); err != nil || k != 3 {
		t.Errorf("backfill: %d, %v", k, err)
	}
	if now := n.Count(t, "SELECT count(*) FROM cron_fires"); now != rows {
		t.Errorf("%d fire times were decided during the pause, %d before", now, rows)
	}
	if _, err := n.SetNamespacePaused(ctx, "ns", false); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "held", "FIRED SUCCESS 1, FIRED SUCCESS 1, FIRED SUCCESS 1") // one after the other
	eventually(t, "the changed cron fires with its new definition", func() bool {
		return n.Count(t, `SELECT count(*) FROM processes WHERE starts_with(process_id, 'made/')
			AND status = 'RUNNING'`) == 1
	})
	missed := func() int {
		return n.Count(t, `SELECT count(*) FROM generate_series((SELECT min(fire_time) FROM cron_fires
			WHERE cron_id = 'before'),
			(SELECT max(fire_time) FROM cron_fires WHERE cron_id = 'before'), interval '1 s') s
			WHERE NOT EXISTS (SELECT 1 FROM cron_fires f WHERE f.cron_id = 'before' AND f.fire_time = s)`)
	}
	eventually(t, "the fire times of the pause are decided", func() bool {
		return n.Count(t, `SELECT count(*) FROM cron_fires WHERE cron_id = 'before'
			AND fire_time > now() - interval '3 s'`) > 0
	})
	if k := missed(); k != 0 {
		t.Errorf("%d fire times are lost", k)
	}
}

// A run that was decided before its namespace was paused starts when the namespace is resumed.
func TestRunInAPausedNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.Put(t, &progressorv1.Namespace{Namespace: "other"})
	if _, err := n.SetNamespacePaused(t.Context(), "other", true); err != nil {
		t.Fatal(err)
	}
	for id, end := range map[string]progressorv1.StartProcessTarget_RunEnd{
		"process": 0, "init": progressorv1.StartProcessTarget_RUN_END_INIT,
	} {
		c := starts(id, never, "complete")
		c.Target.GetStartProcess().Namespace, c.Target.GetStartProcess().RunEnd = "other", end
		n.create(t, c)
		n.trigger(t, id)
	}
	eventually(t, "both wait", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE namespace = 'other' AND status = 'INIT'") == 2
	})
	if _, err := n.SetNamespacePaused(t.Context(), "other", false); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "process", "FIRED SUCCESS 1")
	n.awaits(t, "init", "FIRED SUCCESS 1")
}
