package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Statements that list or delete workers read a limited number of pages, although there are many
// workers and leases. Workers with running attempts are not deleted.
func TestWorkersWithManyLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`INSERT INTO workers (namespace, worker_id, last_seen_time, owner)
		SELECT 'shop', 'w' || n, now() - interval '1 hour', 'key:a' FROM generate_series(1, 1000) n`)
	b.exec(`INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time,
			lease_duration, heartbeat_interval)
		SELECT 'shop', 'p' || n, n, 'w' || n % 5 + 1, '', now(), now(), '1 minute', '20 seconds'
		  FROM generate_series(1, 500) n`)
	b.exec(`INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline,
			scheduled_time, running_time)
		SELECT 'shop', l.process_id, nextval('task_ids'), 'INIT', 1, l.fencing_token, 1, now(), now(), now()
		  FROM leases l WHERE l.worker_id <> 'w5'`)
	b.exec("SELECT setval('fencing_tokens', 1000)")
	b.exec("VACUUM ANALYZE workers, leases, running")
	conn, q, owner := b.connect(storage.HotConfig), dbsqlc.New(), "key:a"
	for _, test := range []struct {
		name  string
		pages int // maximum number of pages that are read
		run   func(dbsqlc.DBTX) error
	}{
		{"list one worker", 1000, func(db dbsqlc.DBTX) error {
			return second(q.ListWorkers(t.Context(), db, dbsqlc.ListWorkersParams{
				Namespace: ns, Exactly: "w7", Lim: 1, MaxNamespaces: 1, MaxBytes: 1 << 20,
			}))
		}},
		{"delete workers", 20_000, func(db dbsqlc.DBTX) error {
			return q.ForgetWorkersOf(t.Context(), db, dbsqlc.ForgetWorkersOfParams{
				Owner: &owner, Namespaces: []string{ns}, OwnedUs: time.Minute.Microseconds(), Lim: 5000,
			})
		}},
	} {
		sql, args := recorded(test.run)
		if pages := buffersOf(t, conn, sql, args...); pages > test.pages {
			t.Errorf("%s: %d pages were read, want at most %d", test.name, pages, test.pages)
		}
	}
	equal(t, "workers with leases", ask[string](b, "SELECT string_agg(worker_id, ' ' ORDER BY worker_id) FROM workers"),
		"w1 w2 w3 w4")
	b.exec("DELETE FROM leases")
	b.exec("DELETE FROM running")
}
