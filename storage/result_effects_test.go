package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
)

// withFire adds two effects to a result: a ledger row of a cron, and an audit entry.
func withFire(f *crons.Fire) func(*storage.Completion) {
	return func(c *storage.Completion) {
		c.Effects = append(c.Effects, f, &storage.AuditRecord{Method: "TriggerCron", By: process.Actor{Name: "kim"}})
	}
}

// The effects of a result are stored with it, once. They are not stored if the attempt is fenced or
// rejects its task.
func TestSaveEffects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	fired := func(n int) *crons.Fire {
		return &crons.Fire{CronID: "c", Change: crons.Decided, RunID: "r", Fire: cron.Fire{
			Time: at.Add(time.Duration(n) * time.Second), Decision: cron.Fired, Status: cron.Running, Attempt: 1,
			Count: 1,
		}}
	}
	// checkRows checks the ledger and the audit. want contains the second of the fire time and the
	// status of each ledger row, then a semicolon and the number of audit entries.
	checkRows := func(what, want string) {
		t.Helper()
		equal(t, what, ask[string](b, `SELECT coalesce(string_agg(extract(second
			FROM fire_time)::int || ' ' || status, ', ' ORDER BY fire_time), '')
			|| '; ' || (SELECT count(*) FROM audit) FROM cron_fires`), want)
	}
	b.process("p")
	c := b.claim("p")
	late := end(c, storage.Finished, withFire(fired(1)))
	late.FencingToken++
	if _, err := b.SaveResult(late); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a late result: %v", err)
	}
	checkRows("rows of a late result", "; 0")
	b.save(end(c, storage.Finished, withFire(fired(1))))
	checkRows("rows of a finished attempt", "1 RUNNING; 1")
	if _, err := b.SaveResult(end(c, storage.Finished, withFire(fired(2)))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a second result: %v", err)
	}
	checkRows("rows of a second result", "1 RUNNING; 1")

	ends := fired(1)
	ends.Change, ends.Status, ends.Detail = crons.Ended, cron.Failed, "broken"
	b.save(end(b.claim("p"), storage.Finished, withFire(ends)))
	again := fired(1)
	again.Change, again.Status = crons.Ended, cron.Success
	b.save(end(b.claim("p"), storage.Finished, withFire(again)))
	checkRows("rows after two ends of the same fire, of which the first one counts", "1 FAILED; 3")

	b.save(end(b.claim("p"), storage.Rejected, withFire(fired(3))))
	checkRows("rows of a rejected task", "1 FAILED; 3")
	b.save(end(b.claim("p"), storage.Removed, withFire(fired(4))))
	checkRows("rows of a result that removes its process", "1 FAILED, 4 RUNNING; 4")
}
