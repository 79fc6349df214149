package changes

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

const (
	// shownDeadLetters is the maximum number of dead letters that DeadLetters returns.
	shownDeadLetters = 100
	// keptDeadLetters is the maximum number of dead letters that a sink keeps, and that
	// SelectDeadLetters and RetryDeadLetters select.
	keptDeadLetters = 1000
)

// DeadLetter is a change that the target of a sink has rejected permanently.
type DeadLetter = dbsqlc.ListSinkDeadLettersRow

// DeadLetters returns the newest dead letters of a sink.
func DeadLetters(ctx context.Context, s *storage.Store, k SinkKey) (rows []DeadLetter, err error) {
	err = s.ReadOne(ctx, "list dead letters of a sink", func(ctx context.Context, db storage.DB) (err error) {
		a := dbsqlc.ListSinkDeadLettersParams{Namespace: k.Namespace, SinkID: k.SinkID, Lim: shownDeadLetters}
		rows, err = dbsqlc.New().ListSinkDeadLetters(ctx, db, a)
		return err
	})
	return rows, err
}

// Rejection is a change that the target has rejected permanently, with the reason.
type Rejection struct {
	Change *Change
	Reason string
}

// RejectChanges stores dead letters for the rejected changes and moves the cursor of the sink to
// the given one. It returns process.ErrFenced if the node no longer holds the lease.
func RejectChanges(
	ctx context.Context, s *storage.Store, l SinkLease, to Cursor, delivered int, rejected []Rejection,
) error {
	return s.RunLocked(ctx, "store dead letters of a sink", nil, func(ctx context.Context, db storage.DB) error {
		counts := dbsqlc.AdvanceSinkParams{Delivered: int64(delivered), Rejected: int64(len(rejected))}
		if err := advance(ctx, db, l, to, counts); err != nil {
			return err
		}
		for _, r := range rejected {
			err := dbsqlc.New().AddSinkDeadLetter(ctx, db, dbsqlc.AddSinkDeadLetterParams{
				Namespace: l.Namespace, SinkID: l.SinkID, ChangeID: r.Change.ChangeID, Kind: r.Change.Kind,
				Type: r.Change.Type, ProcessID: r.Change.ProcessID, ChangeTime: r.Change.Time, Error: r.Reason,
				Lane: r.Change.Lane, Seq: r.Change.Seq, Kept: keptDeadLetters,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Selection selects the dead letters of a sink that match all of its conditions.
type Selection struct {
	ChangeIDs    []int64   // empty selects all changes
	ProcessID    string    // "" for all processes
	Error        string    // a part of the error, ignoring case; "" selects all
	Since, Until time.Time // failed at or after Since and before Until; zero means no bound
}

// SelectDeadLetters returns the first 1,000 selected dead letters of a sink, sorted by the ID of
// the change.
func SelectDeadLetters(ctx context.Context, s *storage.Store, k SinkKey, w Selection) (found []DeadLetter, err error) {
	err = s.ReadOne(ctx, "select dead letters of a sink", func(ctx context.Context, db storage.DB) (err error) {
		found, err = w.read(ctx, db, k)
		return err
	})
	return found, err
}

// RetryDeadLetters is like SelectDeadLetters, and also marks the selected dead letters to be
// delivered again, except those whose change was deleted. The error is process.ErrSinkNotFound if
// the sink does not exist.
func RetryDeadLetters(
	ctx context.Context, s *storage.Store, k SinkKey, w Selection, by ...process.Actor,
) (found []DeadLetter, err error) {
	const method = "RetrySinkDeadLetters"
	err = s.RunLocked(ctx, method, nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		_, err := q.LockSink(ctx, db, dbsqlc.LockSinkParams(k)) // waits for a delivery that is storing its result
		if errors.Is(err, pgx.ErrNoRows) {
			err = process.ErrSinkNotFound
		}
		if err != nil {
			return err
		}
		if found, err = w.read(ctx, db, k); err != nil {
			return err
		}
		a := dbsqlc.MarkSinkRetriesParams{Namespace: k.Namespace, SinkID: k.SinkID, ChangeIds: []int64{}}
		for n := range found {
			if d := &found[n]; d.RetryTime == nil && !d.ChangeDeleted {
				a.ChangeIds = append(a.ChangeIds, d.ChangeID)
			}
		}
		if len(a.ChangeIds) == 0 {
			return nil
		}
		if err := q.MarkSinkRetries(ctx, db, a); err != nil {
			return err
		}
		if found, err = w.read(ctx, db, k); err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, method, k.Namespace, k.SinkID, by)
	})
	return found, err
}

// read returns the selected dead letters of a sink.
func (w Selection) read(ctx context.Context, db storage.DB, k SinkKey) ([]DeadLetter, error) {
	a := dbsqlc.SelectSinkDeadLettersParams{
		Namespace: k.Namespace, SinkID: k.SinkID, ChangeIds: append([]int64{}, w.ChangeIDs...), ProcessID: w.ProcessID,
		Error: w.Error, Since: time.Unix(0, 0), Until: last, Lim: keptDeadLetters,
	}
	if !w.Since.IsZero() {
		a.Since = w.Since
	}
	if !w.Until.IsZero() {
		a.Until = w.Until
	}
	rows, err := dbsqlc.New().SelectSinkDeadLetters(ctx, db, a)
	var found []DeadLetter
	for _, r := range rows {
		found = append(found, DeadLetter(r))
	}
	return found, err
}

// Retry is a dead letter that waits to be delivered again.
type Retry struct {
	Change  Change // its lane is not set; if the change was deleted, only the columns of the dead letter are set
	Deleted bool   // the change was deleted after its retention
}

// NextRetry returns the first dead letter of a sink that waits to be delivered again, or nil.
func NextRetry(ctx context.Context, s *storage.Store, k SinkKey) (*Retry, error) {
	var rows []dbsqlc.NextSinkRetryRow
	err := s.RunReserved(ctx, "read a dead letter of a sink", func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().NextSinkRetry(ctx, db, dbsqlc.NextSinkRetryParams(k))
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	r := &rows[0]
	return &Retry{Deleted: !r.Stored, Change: Change{
		ChangeID: r.ChangeID, Time: r.Time, Kind: r.Kind, Type: r.Type, ProcessID: r.ProcessID, EventID: r.EventID,
		FromStatus: r.FromStatus, ToStatus: r.ToStatus, Reason: r.Reason, Metadata: r.Metadata, Payload: r.Payload,
		Details: r.Details,
	}}, nil
}

// EndRetry deletes a dead letter that was delivered again.
func EndRetry(ctx context.Context, s *storage.Store, l SinkLease, changeID int64) error {
	return underLease(ctx, s, "delete a dead letter of a sink",
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) (int64, error) {
			return q.CountSinkRetry(ctx, db, dbsqlc.CountSinkRetryParams{
				Namespace: l.Namespace, SinkID: l.SinkID, NodeID: l.NodeID, Token: l.Token,
			})
		},
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) error {
			return q.DeleteSinkDeadLetter(ctx, db, dbsqlc.DeleteSinkDeadLetterParams{
				Namespace: l.Namespace, SinkID: l.SinkID, ChangeID: changeID,
			})
		})
}

// FailRetry stores the error of a dead letter that could not be delivered again.
func FailRetry(ctx context.Context, s *storage.Store, l SinkLease, changeID int64, reason string) error {
	return underLease(ctx, s, "store the error of a dead letter",
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) (int64, error) {
			return q.NoteSinkError(ctx, db, dbsqlc.NoteSinkErrorParams{
				Error: reason, Namespace: l.Namespace, SinkID: l.SinkID, NodeID: l.NodeID, Token: l.Token,
			})
		},
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) error {
			return q.KeepSinkDeadLetter(ctx, db, dbsqlc.KeepSinkDeadLetterParams{
				Error: reason, Namespace: l.Namespace, SinkID: l.SinkID, ChangeID: changeID,
			})
		})
}

// underLease updates the row of the sink under its lease and then runs a statement. If the lease
// was lost, the error is process.ErrFenced.
func underLease(
	ctx context.Context, s *storage.Store, op string,
	hold func(*dbsqlc.Queries, context.Context, storage.DB) (int64, error),
	write func(*dbsqlc.Queries, context.Context, storage.DB) error,
) error {
	return s.RunLocked(ctx, op, nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		n, err := hold(q, ctx, db)
		if err == nil && n == 0 {
			err = process.ErrFenced
		}
		if err != nil {
			return err
		}
		return write(q, ctx, db)
	})
}
