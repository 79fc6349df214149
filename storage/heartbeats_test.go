package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// beats returns heartbeats with progress that extend the leases of claims to an hour.
func (b *bench) beats(claims ...*storage.Claim) []pull.Beat {
	b.t.Helper()
	beats := make([]pull.Beat, len(claims))
	for n, c := range claims {
		beats[n] = pull.Beat{Lease: time.Hour, Progress: []byte(`{"at": 1}`), Token: pull.LeaseToken{
			Key: key(c.ProcessID), FencingToken: c.FencingToken,
			Salt: ask[[]byte](b, "SELECT salt FROM leases WHERE process_id = $1", c.ProcessID),
		}}
	}
	return beats
}

// beat sends heartbeats of worker w.
func (b *bench) beat(claims ...*storage.Claim) []pull.HeartbeatResult {
	b.t.Helper()
	beaten, err := pull.BeatAll(b.t.Context(), b.Store, "w", b.beats(claims...))
	return must(b.t, beaten, err)
}

// extended returns the processes whose leases have been extended to an hour.
func (b *bench) extended() string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(process_id, ' ' ORDER BY process_id), '') FROM leases
		WHERE expires_time > now() + interval '30 minutes'`)
}

// A heartbeat extends the other leases of a worker while the transaction of an application ends one
// of them. That lease is lost only after the commit.
func TestHeartbeatDuringComplete(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	first, ended, last := b.leasedTimer("a"), b.leasedTimer("b"), b.leasedTimer("c")
	expires := ask[time.Time](b, "SELECT expires_time FROM leases WHERE process_id = 'b'")
	tx, err := b.booking(app, completeSQL(ended, 0))
	must(t, tx, err)
	must(t, 0, second(tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")))
	beaten := b.beat(first, ended, last)
	equal(t, "lost", []bool{beaten[0].LeaseLost, beaten[1].LeaseLost, beaten[2].LeaseLost}, "[false false false]")
	equal(t, "leases that were extended", b.extended(), "a c")
	equal(t, "the lease that the application ends", beaten[1].ExpiresTime.Equal(expires), true)
	must(t, 0, tx.Commit(t.Context()))
	beaten = b.beat(first, ended, last)
	equal(t, "lost after the commit", []bool{beaten[0].LeaseLost, beaten[1].LeaseLost, beaten[2].LeaseLost},
		"[false true false]")
}

// A worker learns of a cancel even if its lease is locked.
func TestHeartbeatOfLockedLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue("j")
	c := b.leased("j")
	state, err := b.CancelProcess(storage.Cancel{Key: key("j"), Grace: time.Hour, Reason: "enough"})
	must(t, state, err)
	b.exec("UPDATE leases SET expires_time = now() + interval '1 minute'")
	tx := b.lockLease("j")
	beaten := b.beat(c)[0]
	must(t, 0, tx.Rollback(t.Context()))
	equal(t, "lost, cancelling", []bool{beaten.LeaseLost, beaten.Cancelling}, "[false true]")
	equal(t, "reason", beaten.CancelReason, "enough")
	equal(t, "extended leases", b.extended(), "")
	equal(t, "progress", ask[bool](b, "SELECT progress IS NULL FROM jobs"), true)
}

// A heartbeat takes effect although its lease is locked for a short time, as by another heartbeat
// of the same lease.
func TestHeartbeatAfterAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue("i")
	b.enqueue("j")
	other, c := b.leased("i"), b.leased("j")
	for try := 0; ; try++ {
		b.exec("UPDATE leases SET expires_time = now() + interval '1 minute'")
		tx := b.lockLease("j")
		beats := b.beats(other, c)
		beaten := later(func() ([]pull.HeartbeatResult, error) {
			return pull.BeatAll(t.Context(), b.Store, "w", beats)
		})
		b.until("the other lease is extended", func() bool { return b.extended() == "i" })
		must(t, 0, tx.Rollback(t.Context()))
		all, err := beaten()
		must(t, all, err)
		if b.extended() == "i j" && time.Until(all[1].ExpiresTime) > 30*time.Minute {
			break
		}
		// The test may have held the lock for longer than the heartbeat waits.
		if try == 20 {
			t.Fatalf("the lease was never extended: %+v", all)
		}
	}
	equal(t, "progress", ask[int](b, "SELECT count(*) FROM jobs WHERE progress IS NOT NULL"), 2)
}

// lockLease locks the lease of a process in a transaction.
func (b *bench) lockLease(id string) pgx.Tx {
	b.t.Helper()
	tx, err := b.db.Begin(b.t.Context())
	must(b.t, tx, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	must(b.t, 0, second(tx.Exec(b.t.Context(), "SELECT FROM leases WHERE process_id = $1 FOR UPDATE", id)))
	return tx
}
