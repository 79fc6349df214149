package storage_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// A flush deletes leases in the order of their keys. Heartbeats lock leases in the same order. The
// order of the results, and of the statements that store them, does not matter.
func TestLeasesEndInTheOrderOfHeartbeats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const ids = "abcdefghij"
	for _, id := range ids {
		b.enqueue(string(id))
	}
	b.exec(`CREATE TABLE ended (n bigint GENERATED ALWAYS AS IDENTITY, process_id text);
		CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  INSERT INTO ended (process_id) VALUES (OLD.process_id);
		  RETURN OLD;
		END $$;
		CREATE TRIGGER note_end BEFORE DELETE ON leases FOR EACH ROW EXECUTE FUNCTION note_end()`)
	later := func(c *storage.Completion) { c.RetryAfter = time.Hour }
	results := []*storage.Completion{ // two for the general statement, and eight for the fast path
		end(b.leased("b"), storage.Retry, of(&jobs.End{}, jobs.EndIfCancelled{}), later),
		end(b.leased("a"), storage.Failed, broken("no"), of(&jobs.End{})),
	}
	for _, id := range ids[2:] {
		results = slices.Insert(results, 1, end(b.leased(string(id)), storage.Completed, of(&jobs.End{})))
	}
	for _, err := range b.SaveTogether(results...) {
		must(t, 0, err)
	}
	equal(t, "leases that are left", ask[int](b, "SELECT count(*) FROM leases"), 0)
	equal(t, "order", ask[string](b, "SELECT string_agg(process_id, '' ORDER BY n) FROM ended"), ids)
}

// The deletion of leases that are left over waits for no other transaction.
func TestForgettingLeasesWaitsForNoLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time,
			lease_duration, heartbeat_interval)
		SELECT 'shop', 'p' || n, n, 'w', '', now() - interval '1 hour', now(), '1 minute', '20 seconds'
		  FROM generate_series(0, 2) n`)
	forget := func() {
		t.Helper()
		_, err := b.ForgetLeases(t.Context())
		must(t, 0, err)
	}
	other, err := b.db.Begin(t.Context())
	must(t, 0, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = other.Exec(t.Context(), "SELECT FROM leases WHERE process_id = 'p1' FOR UPDATE")
	must(t, 0, err)
	forget()
	equal(t, "leases", ask[string](b, "SELECT string_agg(process_id, ' ') FROM leases"), "p1")
	must(t, 0, other.Rollback(t.Context()))
	forget()
	equal(t, "leases", ask[int](b, "SELECT count(*) FROM leases"), 0)
}
