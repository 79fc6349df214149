package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Failed attempts whose process or task does not exist are deleted batch by batch, and all others
// are kept, regardless of the table that has their task.
func TestDeleteOrphanedAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("ended")
	b.process("runs")
	b.claim("runs")
	b.process("waits", timer(time.Hour))
	attempts := func(id string, first, n int) {
		b.exec(`INSERT INTO failed_attempts (namespace, process_id, task_id, attempt, reason, message, node_id,
			running_time, failed_time, first_scheduled_time)
			SELECT 'shop', $1, n, 1, 'broken', '', 1, now(), now(), now() FROM generate_series($2::int, $2 + $3 - 1) n`,
			id, first, n)
	}
	attempts("a-gone", 1, 1500)
	for _, id := range []string{"ended", "runs", "waits"} {
		attempts(id, ask[int](b, `SELECT max(task_id)::int FROM (SELECT process_id, task_id FROM tasks UNION ALL
			SELECT process_id, task_id FROM running
			UNION ALL SELECT process_id, task_id FROM schedule) t WHERE process_id = $1`, id), 1)
		attempts(id, 1_000_000, 1) // attempts without a task
	}
	attempts("z-gone", 1, 1500)
	batches := 0
	for after := (storage.AttemptKey{}); batches == 0 || after != (storage.AttemptKey{}); batches++ {
		last, err := b.DeleteOrphanedAttempts(t.Context(), after)
		after = must(t, last, err)
	}
	equal(t, "the number of batches for 3006 rows", batches, 4)
	equal(t, "processes with failed attempts",
		ask[string](b, "SELECT string_agg(process_id, ' ' ORDER BY process_id) FROM failed_attempts"),
		"ended runs waits")
	b.exec("DELETE FROM failed_attempts")
}
