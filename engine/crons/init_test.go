package crons_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// inits returns a cron whose runs end with the INIT task of their process.
func inits(id, args string) *progressorv1.Cron {
	c := starts(id, never, args)
	c.Target.GetStartProcess().RunEnd = progressorv1.StartProcessTarget_RUN_END_INIT
	return c
}

// With RUN_END_INIT a run ends with the INIT task of its process. The process continues, has the
// time of its fire, and is named in the ledger.
func TestRunEndsWithInit(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.Put(t, &progressorv1.Namespace{Namespace: "other"})
	c := inits("lives", "wait")
	c.Target.GetStartProcess().Namespace = "other"
	n.create(t, c)
	n.trigger(t, "lives")
	f := n.awaits(t, "lives", "FIRED SUCCESS 1")[0]
	at := f.GetFireTime().AsTime().Format(time.RFC3339Nano)
	if f.GetProcessId() != "lives/"+at {
		t.Errorf("the ledger names %q", f.GetProcessId())
	}
	if k := n.Count(t, `SELECT count(*) FROM processes WHERE namespace = 'other' AND process_id = $1 AND kind = ''
		AND status = 'RUNNING'
		AND metadata->>'progressor.cron_id' = 'lives' AND metadata->>'progressor.fire_time' = $2
		AND metadata->>'progressor.attempt' = '1'`, f.GetProcessId(), at); k != 1 {
		t.Errorf("%d processes still exist", k)
	}
	for args, want := range map[string]string{
		"complete": "FIRED SUCCESS 1", "fail": "FIRED FAILED 1", "timeout": "FIRED TIMEOUT 1",
	} {
		n.create(t, inits(args, args))
		n.trigger(t, args)
		n.awaits(t, args, want)
	}
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	taken := inits("taken", "wait")
	taken.Spec.Expressions = []string{"@yearly"}
	n.create(t, taken)
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("taken/2020-01-01T00:00:00Z")}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backfill(t.Context(), &progressorv1.BackfillCronRequest{
		Namespace: "ns", CronId: "taken", FromTime: stamp(from), ToTime: stamp(from.Add(time.Second)),
	}, kim); err != nil {
		t.Fatal(err)
	}
	if f := n.awaits(t, "taken", "FIRED FAILED 1")[0]; !strings.Contains(f.GetDetail(), "exists") {
		t.Errorf("taken: %v", f)
	}
}

// If INIT takes longer than the timeout of the cron, or another run replaces the run, the process
// is cancelled after its INIT.
func TestRunEndsBeforeInit(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	slow := inits("slow", "hold")
	slow.Policy.Timeout = durationpb.New(300 * time.Millisecond)
	n.create(t, slow)
	prev := inits("prev", "hold")
	prev.Policy.OverlapAction = progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV
	n.create(t, prev)
	status := func(f *progressorv1.Fire, want string) bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status::text = $2",
			f.GetProcessId(), want) == 1
	}
	late, first := n.trigger(t, "slow"), n.trigger(t, "prev")
	if ids := n.get(t, "prev").GetRunningProcessIds(); len(ids) != 1 || ids[0] != first.GetProcessId() {
		t.Errorf("runs %v, want %s", ids, first.GetProcessId())
	}
	n.awaits(t, "slow", "FIRED TIMEOUT 1")
	eventually(t, "the first one is in its INIT", func() bool { return status(first, "INIT") })
	second := n.trigger(t, "prev")
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED RUNNING 1")
	close(n.gate)
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED SUCCESS 1")
	eventually(t, "two processes are cancelled, and the third one runs", func() bool {
		return status(late, "CANCELLED") && status(first, "CANCELLED") && status(second, "RUNNING")
	})
}
