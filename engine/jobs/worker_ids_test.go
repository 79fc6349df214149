package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A client has a limited number of worker IDs in a namespace. IDs of absent workers are replaced.
// IDs of workers that were seen recently, have leases or have a command are not.
func TestWorkerIDsOfAClientAreLimited(t *testing.T) {
	t.Parallel()
	const most = 10_000
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueueAll(t, "first")
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := n.DB.Exec(t.Context(), sql, args...)
		must(t, err)
	}
	poll := func(ctx context.Context, id string, names ...string) error {
		_, err := n.Poll(ctx, pull.PollParams{Namespaces: []string{"pull"}, WorkerID: id, JobNames: names, Max: 1})
		return err
	}
	a, b := ownedBy(t, "key:a"), ownedBy(t, "key:b")
	must(t, poll(a, "with a lease", "first"))
	exec(`INSERT INTO workers (namespace, worker_id, last_seen_time, owner)
		SELECT 'pull', 'w' || i, now(), 'key:a' FROM generate_series(1, $1) i`, most-2)
	must(t, poll(a, "the last", "absent"))
	wantFull := func(id string) {
		t.Helper()
		err := poll(a, id, "absent")
		want := fmt.Sprintf("worker_id: a client may use %d IDs in namespace pull", most)
		if full, ok := errors.AsType[*process.OverloadError](err); !ok || !strings.Contains(full.Bound, want) {
			t.Errorf("worker %s: %v", id, err)
		}
	}
	wantFull("one too many")
	must(t, poll(a, "the last", "absent"))
	must(t, poll(a, "w1", "absent"))
	must(t, poll(b, "of another client", "absent"))
	// A worker with a lease and a worker with a command keep their IDs, even if they were not seen
	// for a long time.
	exec(`UPDATE workers SET last_seen_time = now() - interval '3 minutes',
		directive = CASE worker_id WHEN 'w2' THEN 'quiet' END WHERE worker_id IN ('with a lease', 'w2')`)
	wantFull("one too many")
	exec("UPDATE workers SET last_seen_time = now() - interval '3 minutes' WHERE worker_id IN ('w3', 'w4')")
	must(t, poll(a, "in place of w3", "absent"))
	var gone, left int
	must(t, n.DB.QueryRow(t.Context(), `SELECT $1 - count(*) FILTER (WHERE worker_id ~ '^w\d+$'), count(*)
		FROM workers WHERE owner = 'key:a'`, most-2).Scan(&gone, &left))
	if gone != 2 || left != most-1 {
		t.Errorf("%d workers were deleted, and %d are left", gone, left)
	}
}
