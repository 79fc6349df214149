package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage/insight"
)

func TestReadGrowth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	g, err := insight.ReadGrowth(t.Context(), b.Store, time.Hour, 10)
	must(t, g, err)
	if g.XIDAge <= 0 || g.FreezeMaxAge < 100_000 {
		t.Errorf("transaction IDs: age %d of %d", g.XIDAge, g.FreezeMaxAge)
	}
	equal(t, "nothing is late", []any{g.KeyOverdue, g.MessageAge, g.Messages, g.Backlogs, g.Pending}, "[0s 0s 0 0 0]")
	b.exec(`INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
		SELECT gen_random_uuid(), 'shop', 'p', 0, '\x00', statement_timestamp() - h * interval '1 hour'
		FROM unnest(ARRAY[0, 3]) h`)
	b.exec(`INSERT INTO messages (namespace, process_id, kind, held, created_time)
		SELECT 'shop', 'p', 'notify', n > 20, statement_timestamp() - n * interval '1 minute'
		FROM generate_series(1, 21) n`)
	b.exec(`INSERT INTO queue_backlogs (namespace, process_id) VALUES ('shop', 'p')`)
	b.lease(b.fired("ended"))
	b.exec(`UPDATE leases SET pending_result = '{}'`)
	g, err = insight.ReadGrowth(t.Context(), b.Store, time.Hour, 10)
	must(t, g, err)
	equal(t, "late", []any{
		g.KeyOverdue.Round(time.Minute), g.MessageAge.Round(time.Minute), g.Messages, g.Backlogs,
		g.Pending,
	}, "[2h0m0s 20m0s 10 1 1]")
	b.exec("DELETE FROM requests")
	b.exec("DELETE FROM messages")
	b.exec("DELETE FROM queue_backlogs")
}
