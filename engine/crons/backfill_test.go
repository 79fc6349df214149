package crons_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// january is a time before the crons of these tests were created.
var january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// backfillRequest returns a request to backfill the given number of minutes, starting at january.
// The cron must fire every minute.
func backfillRequest(id string, minutes int) *progressorv1.BackfillCronRequest {
	return &progressorv1.BackfillCronRequest{
		Namespace: "ns", CronId: id, FromTime: stamp(january),
		ToTime: stamp(january.Add(time.Duration(minutes) * time.Minute)),
	}
}

func (n *node) backfill(t testing.TB, r *progressorv1.BackfillCronRequest, want int32) {
	t.Helper()
	if k, err := n.Backfill(t.Context(), r, kim); err != nil || k != want {
		t.Fatalf("%d fire times, %v; want %d", k, err, want)
	}
}

// repeated returns a ledger with the same row k times.
func repeated(k int, row string) string {
	return strings.TrimSuffix(strings.Repeat(row+", ", k), ", ")
}

// By default, a backfill runs its fire times one after the other, in order. It does not wait for
// other runs of the cron.
func TestBackfillInOrder(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * *", "wait")
	c.Paused = true // only the backfill fires
	n.create(t, c)
	regular := n.trigger(t, "c")
	n.backfill(t, backfillRequest("c", 10), 10)
	ended := repeated(1, "FIRED SUCCESS 1")
	for k := range 10 {
		rows := "FIRED RUNNING 1, FIRED RUNNING 1" // the next one of the backfill, and the regular one
		if k > 0 {
			rows = ended + ", " + rows
		}
		fires := n.awaits(t, "c", rows)
		want := january.Add(time.Duration(k) * time.Minute)
		if !fires[k].GetFireTime().AsTime().Equal(want) || !fires[k].GetManual() {
			t.Fatalf("run %d is %v, want %s", k, fires[k], want)
		}
		if left := n.get(t, "c").GetBackfills(); k < 9 && (len(left) != 1 || left[0].GetMaxConcurrency() != 1 ||
			!left[0].GetFromTime().AsTime().Equal(january.Add(time.Duration(k+1)*time.Minute))) {
			t.Errorf("the rest of the backfill: %v", left)
		}
		n.call(t, fires[k].GetProcessId(), "complete")
		ended = repeated(k+1, "FIRED SUCCESS 1")
	}
	n.awaits(t, "c", ended+", FIRED RUNNING 1")
	n.call(t, regular.GetProcessId(), "complete")
	n.awaits(t, "c", repeated(11, "FIRED SUCCESS 1"))
	if left := n.get(t, "c").GetBackfills(); len(left) > 0 {
		t.Errorf("the rest of the backfill: %v", left)
	}
}

// A backfill starts a run only if fewer runs of backfills are active than its max_concurrency. The
// runs of an earlier backfill also count. StopBackfills drops the fire times that have not started.
func TestBackfillConcurrencyAndStop(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * *", "wait")
	c.Paused = true
	n.create(t, c)
	first, second := backfillRequest("c", 3), backfillRequest("c", 10)
	first.MaxConcurrency, second.MaxConcurrency = 3, 4
	n.backfill(t, first, 3)
	n.awaits(t, "c", repeated(3, "FIRED RUNNING 1"))
	n.backfill(t, second, 7)
	fires := n.awaits(t, "c", repeated(4, "FIRED RUNNING 1"))
	if _, err := n.cancelFire(t, "c", fires[1]); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "c", "FIRED RUNNING 1, FIRED CANCELLED 1, "+repeated(3, "FIRED RUNNING 1"))
	k, err := n.StopBackfills(t.Context(), &progressorv1.StopBackfillsRequest{
		Namespace: "ns", CronId: "c", Reason: "enough",
	}, kim)
	if err != nil || k != 1 {
		t.Fatalf("%d backfills, %v", k, err)
	}
	n.call(t, fires[0].GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, FIRED CANCELLED 1, "+repeated(3, "FIRED RUNNING 1"))
	if left := n.get(t, "c"); len(left.GetBackfills()) > 0 || len(left.GetRunningProcessIds()) != 3 {
		t.Errorf("after the stop: %v", left)
	}
	if k := n.Count(t, `SELECT count(*) FROM audit WHERE method = 'StopBackfills'
		AND details->>'note' = 'enough'`); k != 1 {
		t.Errorf("the audit log has %d commands", k)
	}
	wrong := backfillRequest("c", 3)
	wrong.MaxConcurrency, wrong.OverlapAction = 2, progressorv1.OverlapAction_OVERLAP_ACTION_SKIP
	if _, err := n.Backfill(t.Context(), wrong, kim); !isInvalid(err, "max_concurrency") {
		t.Errorf("max_concurrency with overlap_action: %v", err)
	}
}

// A backfill skips the fire times that have rows, even if there are many, and ends.
func TestBackfillAmongExistingRows(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * *", "complete")
	c.Paused = true
	n.create(t, c)
	storagetest.Exec(t, n.DB,
		`INSERT INTO cron_fires (namespace, cron_id, fire_time, decision, attempt, status, decided_time, ended_time)
		SELECT 'ns', 'c', $1::timestamptz + k * interval '1 minute', 'MISSED', 0, 'SKIPPED', now(), now()
		FROM generate_series(1, 498) k`, january)
	r := backfillRequest("c", 500)
	r.MaxConcurrency = 2
	n.backfill(t, r, 2)
	eventually(t, "both runs have ended", func() bool {
		return n.Count(t, "SELECT count(*) FROM cron_fires WHERE status = 'SUCCESS'") == 2
	})
	if left := n.get(t, "c").GetBackfills(); len(left) > 0 {
		t.Errorf("the rest of the backfill: %v", fmt.Sprint(left))
	}
}
