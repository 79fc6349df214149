package pull

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ReadLease returns the task of a lease, as returned by Poll. It returns process.ErrFenced if the
// worker has lost the lease.
func ReadLease(ctx context.Context, s *storage.Store, t LeaseToken) (storage.Lease, error) {
	var row dbsqlc.PollRow
	err := s.RunReserved(ctx, "read lease", func(ctx context.Context, db storage.DB) error {
		r, err := dbsqlc.New().ReadLease(ctx, db, dbsqlc.ReadLeaseParams{
			Namespace: t.Key.Namespace, ProcessID: t.Key.ProcessID, FencingToken: t.FencingToken, Salt: t.Salt,
		})
		row = dbsqlc.PollRow(r)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return storage.Lease{}, process.ErrFenced
	}
	if err != nil {
		return storage.Lease{}, err
	}
	return leaseOf(&row), nil
}

// LeaseToken identifies a lease: an attempt, and a random salt that cannot be guessed. If the
// attempt is pushed, it has no lease, and the salt is a MAC of the attempt.
type LeaseToken struct {
	Key          process.Key
	FencingToken int64
	Salt         []byte
}

// String returns the token as workers get it: the base64url encoding of the length of the namespace
// (1 byte), the namespace, the fencing token (8 bytes), the salt (16 bytes) and the process ID.
func (t LeaseToken) String() string {
	b := make([]byte, 0, 1+len(t.Key.Namespace)+8+len(t.Salt)+len(t.Key.ProcessID))
	b = append(b, byte(len(t.Key.Namespace)))
	b = append(b, t.Key.Namespace...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.FencingToken))
	b = append(b, t.Salt...)
	b = append(b, t.Key.ProcessID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ReadAttempt returns the task of a running attempt, with only the columns that its checkpoints
// need. It returns process.ErrFenced if the attempt has ended.
func ReadAttempt(ctx context.Context, s *storage.Store, ref storage.AttemptRef) (*storage.Claim, error) {
	var row dbsqlc.ReadAttemptRow
	err := s.RunReserved(ctx, "read attempt", func(ctx context.Context, db storage.DB) (err error) {
		row, err = dbsqlc.New().ReadAttempt(ctx, db, dbsqlc.ReadAttemptParams{
			Namespace: ref.Key.Namespace, ProcessID: ref.Key.ProcessID, FencingToken: ref.FencingToken,
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, process.ErrFenced
	}
	return &storage.Claim{
		Namespace: ref.Key.Namespace, ProcessID: ref.Key.ProcessID, FencingToken: ref.FencingToken,
		TaskID: row.TaskID, TaskType: row.TaskType, Attempt: row.Attempt, Kind: row.Kind,
	}, err
}

// Holder is the holder of a lease.
type Holder struct {
	WorkerID string
	JobName  string // "" if the task does not belong to a job
}

// ReadHolders returns the holder of each lease, or nil if the lease was lost.
func ReadHolders(ctx context.Context, s *storage.Store, tokens []LeaseToken) ([]*Holder, error) {
	var a dbsqlc.ReadHoldersParams
	for n, t := range tokens {
		a.Append(dbsqlc.ReadHoldersItem{Ord: int32(n), Key: t.Key, FencingToken: t.FencingToken, Salt: t.Salt})
	}
	rows, err := storage.Query(ctx, s.RunReserved, "read holders of leases", dbsqlc.New().ReadHolders, a)
	holders := make([]*Holder, len(tokens))
	for _, r := range rows {
		holders[r.Ord] = &Holder{r.WorkerID, r.JobName}
	}
	return holders, err
}

// Beat is a heartbeat for one lease.
type Beat struct {
	Token    LeaseToken
	Progress []byte        // JSON; nil if unchanged
	Lease    time.Duration // new duration from now; 0 if unchanged
}

// HeartbeatResult is the result of a heartbeat.
type HeartbeatResult struct {
	LeaseLost    bool // the lease was lost: answers are no longer accepted
	Cancelling   bool
	CancelReason string
	ExpiresTime  time.Time
	Heartbeat    time.Duration
}

// lockedLeaseWaits are the waits of BeatAll before it tries again to extend leases that other
// transactions have locked. A result, or another heartbeat, locks a lease for some milliseconds. A
// call of the SQL function complete locks it until the transaction of the application ends.
var lockedLeaseWaits = []time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 75 * time.Millisecond, 150 * time.Millisecond,
}

// BeatAll extends leases of a worker. If a lease remains locked by another transaction, the lease
// is not lost, but its ExpiresTime remains the same, and Progress and Lease of the beat are
// ignored.
func BeatAll(ctx context.Context, s *storage.Store, workerID string, beats []Beat) ([]HeartbeatResult, error) {
	all := make([]HeartbeatResult, len(beats))
	skipped := make([]int32, len(beats))
	for n := range skipped {
		skipped[n] = int32(n)
	}
	var err error
	for tried := 0; ; tried++ {
		skipped, err = beatSome(ctx, s, workerID, beats, skipped, all)
		if err != nil || len(skipped) == 0 || tried == len(lockedLeaseWaits) {
			return all, err
		}
		select {
		case <-ctx.Done():
			return all, ctx.Err()
		case <-time.After(lockedLeaseWaits[tried]):
		}
	}
}

// beatSome sends the heartbeats with the given indexes, and writes their results to all. It returns
// the indexes of those whose leases were locked.
func beatSome(
	ctx context.Context, s *storage.Store, workerID string, beats []Beat, indexes []int32, all []HeartbeatResult,
) (skipped []int32, err error) {
	a := dbsqlc.BeatLeasesParams{WorkerID: workerID}
	for _, n := range indexes {
		b := &beats[n]
		a.Append(dbsqlc.BeatLeasesItem{
			Ord: n, Key: b.Token.Key, FencingToken: b.Token.FencingToken, Salt: b.Token.Salt,
			Progress: string(b.Progress), LeaseUs: b.Lease.Microseconds(),
		})
		all[n] = HeartbeatResult{LeaseLost: true}
	}
	rows, err := storage.Query(ctx, s.RunReserved, "heartbeat", dbsqlc.New().BeatLeases, a)
	for _, r := range rows {
		all[r.Ord] = HeartbeatResult{
			Cancelling: r.Cancelling, CancelReason: r.CancelReason, ExpiresTime: r.ExpiresTime,
			Heartbeat: time.Duration(r.BeatUs) * time.Microsecond,
		}
		if r.Skipped {
			skipped = append(skipped, r.Ord)
		}
	}
	return skipped, err
}

// PendingResult is a result that a worker has stored in its lease with the SQL function complete.
type PendingResult struct {
	Token       LeaseToken // token of the lease after the result was stored
	WorkerToken int64      // fencing token that the worker got with the task
	Result      []byte     // JSON of the message Result
}

// PendingResults returns at most limit pending results, the oldest first, except those of leases
// whose fencing tokens are in known.
func PendingResults(ctx context.Context, s *storage.Store, known []int64, limit int) ([]PendingResult, error) {
	if known == nil {
		known = []int64{} // a comparison with NULL would exclude all rows
	}
	rows, err := storage.Query(ctx, s.RunReserved, "list pending results", dbsqlc.New().ListPendingResults,
		dbsqlc.ListPendingResultsParams{KnownTokens: known, Lim: int32(limit)})
	pending := make([]PendingResult, len(rows))
	for n, r := range rows {
		pending[n] = PendingResult{
			Token: LeaseToken{
				Key:          process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID},
				FencingToken: r.FencingToken, Salt: r.Salt,
			},
			WorkerToken: r.WorkerToken, Result: r.PendingResult,
		}
	}
	return pending, err
}

// LeaseAnswered returns the stored result of the attempt that had the ended lease. It returns
// process.ErrFenced if it finds none among the 100 newest ended tasks and the waiting tasks of the
// process.
func LeaseAnswered(ctx context.Context, s *storage.Store, t LeaseToken) (storage.Answered, error) {
	row, err := storage.Query(ctx, s.RunReserved, "read answer of a lease", dbsqlc.New().LeaseAnswered,
		dbsqlc.LeaseAnsweredParams{
			Namespace: t.Key.Namespace, ProcessID: t.Key.ProcessID, FencingToken: t.FencingToken,
		})
	if errors.Is(err, pgx.ErrNoRows) {
		return storage.Answered{}, process.ErrFenced
	}
	return row, err
}
