package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// After the clock was set back, RepairTimes restarts each period whose start is now in the future.
func TestRepairTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("runs")
	retried := b.start("retried")
	retry := end(retried, storage.Retry)
	retry.RetryAfter = time.Minute
	b.save(retry)
	b.start("cancelled")
	if _, err := b.CancelProcess(storage.Cancel{Key: key("cancelled"), Grace: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.exec(`INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time,
		lease_duration, heartbeat_interval)
		SELECT namespace, process_id, fencing_token, 'w', '', now(), now() + interval '30 s', '30 s', '10 s'
		FROM running WHERE process_id = 'runs'`)
	repaired := func(all bool) int64 {
		n, err := b.RepairTimes(t.Context(), all)
		return must(t, n, err)
	}
	equal(t, "without a step", repaired(true), 0)
	b.exec(`UPDATE running SET running_time = running_time + interval '1 hour', deadline = deadline
		+ interval '1 hour'`)
	b.exec(`UPDATE leases SET leased_time = leased_time + interval '1 hour', expires_time = expires_time
		+ interval '1 hour'`)
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time + interval '1 hour' WHERE waits_for = 'time'")
	b.exec(`UPDATE processes SET cancel_requested_time = cancel_requested_time
		+ interval '1 hour', cancel_deadline = cancel_deadline + interval '1 hour' WHERE cancel_deadline IS NOT NULL`)
	lost, err := b.ListRunning(t.Context(), nil, time.Second)
	// The process "runs" has a worker, so its claim is not adopted.
	equal(t, "claims with times in the future that can be adopted", sorted(ids(must(t, lost, err))), "[cancelled]")
	// Two attempts, a lease and a grace period are repaired.
	equal(t, "repaired", repaired(false), 4)
	equal(t, "backoffs", repaired(true), 1)
	equal(t, "left", repaired(true), 0)
	for what, sql := range map[string]string{
		"attempts": `SELECT count(*) FROM running WHERE deadline < now() + interval '10 minutes'
			AND running_time <= now()`,
		"leases": `SELECT 2 * count(*) FROM leases WHERE expires_time < now() + interval '31 s'
			AND expires_time > now() AND leased_time <= now()`,
		"backoffs": `SELECT 2 * count(*) FROM schedule WHERE process_id = 'retried' AND scheduled_time < now()
			+ interval '61 s' AND scheduled_time > now()`,
		"graces": `SELECT 2 * count(*) FROM processes WHERE cancel_deadline < now() + interval '61 s'
			AND cancel_deadline > now()`,
	} {
		equal(t, what, ask[int](b, sql), 2)
	}
}

// Times of tasks that another transaction is storing or promoting do not change, because that
// transaction must find the same version of the row again.
func TestRepairTimesLeavesLockedProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("runs")
	retry := end(b.start("retried"), storage.Retry)
	retry.RetryAfter = time.Minute
	b.save(retry)
	b.exec(`UPDATE running SET running_time = running_time + interval '1 hour', deadline = deadline
		+ interval '1 hour'`)
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time + interval '1 hour' WHERE waits_for = 'time'")
	repaired := func() int64 {
		n, err := b.RepairTimes(t.Context(), true)
		return must(t, n, err)
	}
	release := b.foreign("SELECT FROM processes FOR UPDATE")
	equal(t, "while the processes are locked", repaired(), 0)
	release()
	equal(t, "afterwards", repaired(), 2)
}
