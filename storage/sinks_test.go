package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/changes"
)

// sink creates a sink of namespace shop that begins at a cursor.
func (b *bench) sink(id string, begin changes.Cursor) changes.SinkKey {
	b.t.Helper()
	k := changes.SinkKey{Namespace: "shop", SinkID: id}
	settings := func(*changes.SinkSettings) (changes.SinkSettings, error) {
		return changes.SinkSettings{Config: []byte("{}"), Secrets: []byte("{}"), MaxLag: 7 * 24 * time.Hour}, nil
	}
	must(b.t, 0, changes.PutSink(b.t.Context(), b.Store, k, begin, settings))
	return k
}

// The deletion of a sink deletes the dead letters that a delivery stores at the same time.
func TestDeletedSinkLeavesNoDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin, _, err := changes.Now(t.Context(), b.Store, "shop")
	must(t, 0, err)
	k := b.sink("s", begin)
	rejects, err := b.db.Begin(t.Context())
	must(t, 0, err)
	for _, sql := range []string{
		`UPDATE sinks SET dead_letters = 1`,
		`INSERT INTO sink_dead_letters SELECT 'shop', 's', 1, 'event', 'stored', 'p', now(), 'HTTP 413', now()`,
	} {
		_, err := rejects.Exec(t.Context(), sql)
		must(t, 0, err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- changes.DeleteSink(t.Context(), b.Store, k) }()
	b.until("the deletion waits", func() bool {
		return ask[bool](b, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	must(t, 0, rejects.Commit(t.Context()))
	must(t, 0, <-deleted)
	equal(t, "dead letters", ask[int](b, "SELECT count(*) FROM sink_dead_letters"), 0)
}

// Old changes are kept for a sink that has not delivered them, even if it is paused, unless it is
// DISABLED.
func TestSinksKeepChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recordIn("shop", `, "retention": "86400s"`, "LIFECYCLE")
	b.process("p")
	b.exec("SELECT add_change_partition((now() AT TIME ZONE 'UTC')::date - n) FROM (VALUES (10), (6), (4)) d(n)")
	b.exec("DELETE FROM changes")
	b.exec(`INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id)
		SELECT 'shop', h.lane, row_number() OVER (ORDER BY d.n DESC), -d.n, now() - d.n * interval '1 day', 'lifecycle',
		  'created', 'p'
		  FROM change_heads h, (VALUES (10), (6), (4)) d(n) WHERE h.namespace = 'shop'`)
	begin, err := changes.Oldest(t.Context(), b.Store, "shop")
	must(t, 0, err)
	k := b.sink("s", begin)
	kept := func(what, wanted string) {
		t.Helper()
		must(t, 0, changes.Maintain(t.Context(), b.Store))
		got := ask[string](b, "SELECT coalesce(string_agg(seq::text, ' ' ORDER BY seq), '') FROM changes")
		equal(t, what, got, wanted)
	}
	row, err := changes.GetSink(t.Context(), b.Store, k)
	equal(t, "the lag", must(t, row, err).LagChanges, 3)
	kept("changes of a new sink", "1 2 3")
	claimed, err := changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
	must(t, 0, err)
	next := claimed[0].Cursor
	for lane := range begin.Lanes {
		next.Lanes[lane] = 1
	}
	must(t, 0, changes.AdvanceSink(t.Context(), b.Store, claimed[0].SinkLease, next, 1))
	kept("changes after the first one is delivered", "2 3")
	must(t, 0, changes.PauseSink(t.Context(), b.Store, k))
	kept("changes of a paused sink", "2 3")
	b.exec("UPDATE sinks SET state = 'DISABLED'")
	kept("changes of a disabled sink", "")
}

// A sink keeps its newest dead letters, and counts all of them.
func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin, _, err := changes.Now(t.Context(), b.Store, "shop")
	must(t, 0, err)
	k := b.sink("s", begin)
	b.exec(`INSERT INTO sink_dead_letters SELECT 'shop', 's', n, 'event', 'stored', 'p', now(), 'HTTP 413', now()
		FROM generate_series(1, 1000) n`)
	claimed, err := changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
	must(t, 0, err)
	rejected := []changes.Rejection{{Change: &changes.Change{ChangeID: 5000, Kind: "event"}, Reason: "HTTP 422"}}
	must(t, 0, changes.RejectChanges(t.Context(), b.Store, claimed[0].SinkLease, claimed[0].Cursor, 7, rejected))
	equal(t, "dead letters", ask[string](b, `SELECT concat_ws(' ', count(*), min(change_id), max(change_id))
		FROM sink_dead_letters`), "1000 2 5000")
	row, err := changes.GetSink(t.Context(), b.Store, k)
	must(t, 0, err)
	equal(t, "counted", []any{row.Delivered, row.DeadLetters, row.LastError}, "[7 1 HTTP 422]")
	// A dead letter that waits to be delivered again is kept. Another rejection of the same change
	// increases its number of attempts.
	found, err := changes.RetryDeadLetters(t.Context(), b.Store, k, changes.Selection{ChangeIDs: []int64{2}})
	equal(t, "retried", len(must(t, found, err)), 1)
	again := []changes.Rejection{rejected[0], {Change: &changes.Change{ChangeID: 5001, Kind: "event"}, Reason: "x"}}
	must(t, 0, changes.RejectChanges(t.Context(), b.Store, claimed[0].SinkLease, claimed[0].Cursor, 0, again))
	equal(t, "dead letters", ask[string](b, `SELECT string_agg(concat_ws(' ', change_id, attempts), ', '
		ORDER BY change_id) FROM sink_dead_letters WHERE change_id NOT BETWEEN 3 AND 1000`), "2 1, 5000 2, 5001 1")
}

// Only the node with the lease stores the result of a dead letter that was delivered again.
func TestRetryNeedsTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin, _, err := changes.Now(t.Context(), b.Store, "shop")
	must(t, 0, err)
	k := b.sink("s", begin)
	b.exec(`INSERT INTO sink_dead_letters SELECT 'shop', 's', n, 'event', 'stored', 'p', now(), 'HTTP 413', now()
		FROM generate_series(1, 2) n`)
	claimed, err := changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
	must(t, 0, err)
	late := claimed[0].SinkLease
	must(t, 0, changes.RewindSink(t.Context(), b.Store, k, begin))
	claimed, err = changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
	must(t, 0, err)
	deadLetters := func() string {
		return ask[string](b, `SELECT string_agg(concat_ws(' ', change_id, error, attempts), ', ' ORDER BY change_id)
			FROM sink_dead_letters`)
	}
	if err := changes.EndRetry(t.Context(), b.Store, late, 1); !errors.Is(err, process.ErrFenced) {
		t.Error(err)
	}
	if err := changes.FailRetry(t.Context(), b.Store, late, 2, "late"); !errors.Is(err, process.ErrFenced) {
		t.Error(err)
	}
	equal(t, "after late results", deadLetters(), "1 HTTP 413 1, 2 HTTP 413 1")
	must(t, 0, changes.EndRetry(t.Context(), b.Store, claimed[0].SinkLease, 1))
	must(t, 0, changes.FailRetry(t.Context(), b.Store, claimed[0].SinkLease, 2, "no"))
	equal(t, "after results", deadLetters(), "2 no 2")
}

// A lease does not survive its sink: a sink that was deleted and created again has different
// tokens. A lease belongs only to the node whose ID is in the row of the sink, even if another node
// has the same token. Two nodes can have the same token after a failover that lost a claim.
func TestLeaseOfASinkIsUnique(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin, _, err := changes.Now(t.Context(), b.Store, "shop")
	must(t, 0, err)
	k := b.sink("s", begin)
	claim := func() changes.ClaimedSink {
		t.Helper()
		claimed, err := changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
		if len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		return claimed[0]
	}
	row := func() string {
		return ask[string](b, "SELECT concat_ws(' ', state, delivered, failures, node_id, lease_time) FROM sinks")
	}
	fenced := func(what string, c changes.ClaimedSink) {
		t.Helper()
		before := row()
		kept, err := changes.RenewSinks(t.Context(), b.Store, time.Hour, []changes.SinkLease{c.SinkLease})
		equal(t, what+": renewed leases", len(must(t, kept, err)), 0)
		for name, err := range map[string]error{
			"the cursor": changes.AdvanceSink(t.Context(), b.Store, c.SinkLease, c.Cursor, 1),
			"a failure":  changes.FailSink(t.Context(), b.Store, c.SinkLease, changes.SinkFailure{State: "BROKEN"}),
			"a retry":    changes.EndRetry(t.Context(), b.Store, c.SinkLease, 1),
			"an error":   changes.FailRetry(t.Context(), b.Store, c.SinkLease, 1, "no"),
		} {
			if !errors.Is(err, process.ErrFenced) {
				t.Errorf("%s: %s is stored: %v", what, name, err)
			}
		}
		must(t, 0, changes.ReleaseSink(t.Context(), b.Store, c.SinkLease))
		equal(t, what, row(), before)
	}
	first := claim()
	must(t, 0, changes.DeleteSink(t.Context(), b.Store, k))
	b.sink("s", begin)
	fenced("before the new sink is claimed", first)
	second := claim()
	fenced("after the new sink was claimed", first)
	b.exec("UPDATE sinks SET node_id = node_id + 1")
	fenced("with the token of another node", second)
	b.exec("UPDATE sinks SET node_id = node_id - 1")
	must(t, 0, changes.AdvanceSink(t.Context(), b.Store, second.SinkLease, second.Cursor, 1))
	must(t, 0, changes.RewindSink(t.Context(), b.Store, k, begin))
	claim()
	fenced("after a rewind", second)
}
