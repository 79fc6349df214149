package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func keyedInit(k, args string) func(*storage.Init) {
	return func(in *storage.Init) { keyed(k, args)(&in.Call) }
}

// tryInit starts a process and returns the outcome.
func (b *bench) tryInit(id string, change ...func(*storage.Init)) storage.Prepared {
	b.t.Helper()
	p, err := b.PrepareInit(newInit(id, change...))
	return must(b.t, p, err)
}

func TestInitIsCaptured(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.start("p", func(in *storage.Init) {
		in.Kind, in.Metadata, in.Context, in.Priority, in.HistoryRange = "kind", []byte(`{"a": 1}`), []byte("ctx"), 7,
			`{"limit": 3}`
	})
	b.is("p", "INIT e0: INIT runs#1")
	equal(t, "the claim", []any{
		c.Namespace, c.ProcessID, c.TaskType, c.Attempt, c.Priority, string(c.Args), string(c.Context), c.HistoryRange,
		c.Kind, string(c.Metadata), c.Status, c.LastEventID,
	},
		[]any{ns, "p", "INIT", 1, 7, "args", "ctx", `{"limit": 3}`, "kind", `{"a": 1}`, "INIT", 0})
	if c.FencingToken == 0 || c.TaskID == 0 || c.RunningTime.IsZero() || c.CreatedTime.IsZero() {
		t.Errorf("the claim is incomplete: %+v", c)
	}
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{must(t, row, err).Kind, string(row.Metadata), row.AuxState == nil, row.Attention == nil},
		`[kind {"a": 1} true true]`)
	lease := ask[string](b, `SELECT (deadline - running_time)::text || ' ' ||
		(node_id = $1) || ' ' || priority || ' ' || history_range::text FROM running`, b.NodeID())
	equal(t, "the lease", lease, `00:01:00 true 7 {"limit": 3}`)
	equal(t, "a second start", b.tryInit("p").Outcome, storage.Exists)
	equal(t, "a start under a key that is new", b.tryInit("p", keyedInit("k", "x")).Outcome, storage.Exists)
	equal(t, "requests", ask[int](b, "SELECT count(*) FROM requests"), 0)
}

func TestInitWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	equal(t, "without a slot", b.tryInit("p", func(in *storage.Init) { in.Capture = false }).Outcome,
		storage.Postponed)
	b.is("p", "INIT e0: INIT waits for place#0")
	in := time.Now().Add(time.Hour)
	equal(t, "with a start time", b.tryInit("q", func(i *storage.Init) { i.StartTime = in }).Outcome, storage.Postponed)
	b.is("q", "INIT e0: INIT waits for time#0")
	equal(t, "its time", ask[time.Time](b, "SELECT scheduled_time FROM schedule WHERE process_id = 'q'").UnixMilli(),
		in.UnixMilli())
	equal(t, "with a past start time",
		b.tryInit("r", func(i *storage.Init) { i.StartTime = time.Now().Add(-time.Hour) }).Outcome, storage.Captured)

	equal(t, "calls found", ids(b.searchCalls(9)), "[p]")
	equal(t, "timers found", len(b.searchTimers(9)), 0)
	b.due("q")
	equal(t, "timers found when due", ids(b.searchTimers(9)), "[q]")
	b.is("q", "INIT e0: INIT runs#1")
}

func TestInitWithKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.tryInit("p", keyedInit("k", "x"))
	equal(t, "the first", first.Outcome, storage.Captured)
	again := b.tryInit("p", keyedInit("k", "x"))
	equal(t, "again", []any{again.Outcome, again.TaskID, again.ProcessID}, []any{storage.Replayed, first.TaskID, "p"})
	equal(t, "with other args", b.tryInit("p", keyedInit("k", "y")).Outcome, storage.Mismatched)
	equal(t, "under another key", b.tryInit("p", keyedInit("k2", "x")).Outcome, storage.Exists)
	b.save(end(first.Claim, storage.Finished))
	equal(t, "after its end", b.tryInit("p", keyedInit("k", "x")).TaskID, first.TaskID)
	requests, err := b.ReadRequests(t.Context(), process.RequestID(ns, "p", "k"), uuid.New())
	equal(t, "requests", len(must(t, requests, err)), 1)
	equal(t, "its task", requests[0].TaskID, first.TaskID)
	// The key outlives the process.
	if err := b.RemoveProcess(t.Context(), key("p")); err != nil {
		t.Fatal(err)
	}
	equal(t, "after the process was removed", b.tryInit("p", keyedInit("k", "x")).Outcome, storage.Replayed)
}

// A Start with a key and without an ID derives the ID from the request, so that repeated requests
// conflict in the primary key.
func TestInitWithDerivedID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := uuid.Must(uuid.NewV7()).String()
	request := process.RequestID(ns, "", key)
	id := process.DerivedProcessID(request, key)
	derived := func(in *storage.Init) {
		in.IdempotencyKey, in.RequestID, in.Fingerprint = key, request, []byte("f")
	}
	first := b.tryInit(id, derived)
	second := b.tryInit(id, derived)
	equal(t, "outcomes", []any{first.Outcome, second.Outcome, second.TaskID}, []any{
		storage.Captured, storage.Replayed, first.TaskID,
	})
	// The rejection of an INIT task also deletes a key that does not name the process.
	b.save(end(first.Claim, storage.Rejected, func(c *storage.Completion) { c.Rejection = []byte(`{"reason":"no"}`) }))
	equal(t, "requests", ask[int](b, "SELECT count(*) FROM requests"), 0)
	third := b.tryInit(id, derived)
	equal(t, "a third", third.Outcome, storage.Captured)
	for _, other := range []string{process.DerivedUUID(request), process.ShortID(request)} {
		earlier := b.tryInit(other, derived)
		equal(t, "a node of an earlier version, which derives "+other, []any{
			earlier.Outcome, earlier.ProcessID, earlier.TaskID,
		}, []any{storage.Replayed, id, third.TaskID})
	}
}

func TestManyInitsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 300
	outcomes := make([]storage.PrepareOutcome, n)
	all(n, func(i int) {
		p, err := b.PrepareInit(newInit(string(rune('a'+i%26)) + "x"))
		if err != nil {
			t.Error(err)
		}
		outcomes[i] = p.Outcome
	})
	count := map[storage.PrepareOutcome]int{}
	for _, o := range outcomes {
		count[o]++
	}
	equal(t, "outcomes", count, map[storage.PrepareOutcome]int{storage.Captured: 26, storage.Exists: n - 26})
	equal(t, "processes", ask[int](b, "SELECT count(*) FROM processes JOIN running USING (namespace, process_id)"), 26)
}

// If another session has created the process of a Start, and the snapshot of the flush does not
// show that process, the process is reported as existing.
func TestInitMeetsInit(t *testing.T) {
	t.Parallel()
	newBench(t).initMeets(storage.Exists, nil)
}

// If the same request has created the process, the result is the task of that request. Both rows
// are committed together, so a transaction that sees the process also sees the request.
func TestInitMeetsDuplicate(t *testing.T) {
	t.Parallel()
	newBench(t).initMeets(storage.Replayed, func(in *storage.Init, tx pgx.Tx) error {
		keyedInit("k", "x")(in)
		_, err := tx.Exec(t.Context(),
			`INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
			VALUES ($1, $2, $3, 0, $4, now())`, in.RequestID, in.Key.Namespace, in.Key.ProcessID, in.Fingerprint)
		return err
	})
}

// initMeets tests a Start whose process another session has created but not committed when the
// Start is stored. also changes the Start and stores further rows in that session; it may be nil.
func (b *bench) initMeets(want storage.PrepareOutcome, also func(*storage.Init, pgx.Tx) error) {
	b.t.Helper()
	var in *storage.Init
	p := createdMeanwhile(b, func(id string, tx pgx.Tx) error {
		if in = newInit(id); also == nil {
			return nil
		}
		return also(in, tx)
	}, func(string) (storage.Prepared, error) { return b.PrepareInit(in) })
	equal(b.t, "outcome", p.Outcome, want)
}

// createdMeanwhile returns the result of an operation on a process that another session has created
// but not committed when the operation is stored. also stores further rows in that session.
func createdMeanwhile[T any](
	b *bench, also func(id string, tx pgx.Tx) error, create func(id string) (T, error),
) T {
	t := b.t
	t.Helper()
	// A session waits for a lock only for a limited time. On a busy machine, this time may end
	// before the other transaction commits.
	for try := 0; ; try++ {
		if try == 20 {
			t.Fatal("no try stayed within the lock timeout")
		}
		id := fmt.Sprintf("p-%d", try)
		tx, err := b.db.BeginTx(t.Context(), pgx.TxOptions{})
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO processes (namespace, process_id, status, attention) VALUES
				('shop', $1, 'COMPLETED', 'COMPLETED')`, id)
		}
		if err == nil {
			err = also(id, tx)
		}
		if err != nil {
			t.Fatal(err)
		}
		created := later(func() (T, error) { return create(id) })
		waits := b.sessionsWait(1, "application_name LIKE 'progressor %'")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		result, err := created()
		b.exec("DELETE FROM requests WHERE process_id = $1", id)
		b.exec("DELETE FROM processes WHERE process_id = $1", id)
		if errors.Is(err, process.ErrUnavailable) || !waits {
			continue
		}
		return must(t, result, err)
	}
}
