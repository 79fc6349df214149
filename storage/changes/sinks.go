package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// maxSinks limits the sinks of a namespace.
const maxSinks = 100

// SinkKey identifies a sink.
type SinkKey struct{ Namespace, SinkID string }

// SinkRow is a sink with its lag.
type SinkRow = dbsqlc.ListSinksRow

// SinkSettings are the stored settings of a sink. Config has no secrets.
type SinkSettings struct {
	Config, Secrets json.RawMessage
	MaxLag          time.Duration
}

// arrays returns the lanes of a cursor and their numbers.
func (c Cursor) arrays() (lanes, seqs []int64) {
	lanes, seqs = slices.Sorted(maps.Keys(c.Lanes)), []int64{}
	for _, lane := range lanes {
		seqs = append(seqs, c.Lanes[lane])
	}
	if lanes == nil {
		lanes = []int64{}
	}
	return lanes, seqs
}

// cursorOf returns the cursor of a row.
func cursorOf(lanes, seqs []int64) Cursor {
	c := Cursor{Stored: true, Lanes: make(map[int64]int64, len(lanes))}
	for n, lane := range lanes {
		c.Lanes[lane] = seqs[n]
	}
	return c
}

// SinkCursor returns the cursor of a row for clients.
func SinkCursor(r *SinkRow) string {
	c := cursorOf(r.Lanes, r.Seqs)
	c.Generation = r.Generation
	return c.String()
}

// PutSink creates a sink that begins at a cursor, or replaces the settings of an existing one.
// settings is called with the existing settings, or nil.
func PutSink(
	ctx context.Context, s *storage.Store, k SinkKey, begin Cursor,
	settings func(existing *SinkSettings) (SinkSettings, error), by ...process.Actor,
) error {
	return s.RunLocked(ctx, "put sink", nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		var existing *SinkSettings
		row, err := q.LockSink(ctx, db, dbsqlc.LockSinkParams(k))
		switch {
		case err == nil:
			existing = &SinkSettings{Config: row.Config, Secrets: row.Secrets}
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		default:
			n, err := q.CountSinks(ctx, db, k.Namespace)
			if err != nil {
				return err
			}
			if n >= maxSinks {
				return &process.InvalidError{Field: "sink.sink_id", TooLarge: true,
					Message: "a namespace has at most 100 sinks: delete one first"}
			}
		}
		if err := checkGeneration(ctx, db, begin); err != nil {
			return err
		}
		put, err := settings(existing)
		if err != nil {
			return err
		}
		a := dbsqlc.PutSinkParams{
			Namespace: k.Namespace, SinkID: k.SinkID, Config: put.Config, Secrets: put.Secrets,
			MaxLagUs: put.MaxLag.Microseconds(),
		}
		a.Lanes, a.Seqs = begin.arrays()
		if err := q.PutSink(ctx, db, a); err != nil {
			return err
		}
		change := storage.ConfigChange{After: put.Config}
		if existing != nil {
			change.Before = existing.Config
		}
		return change.Audit(ctx, db, "PutSink", k.Namespace, k.SinkID, by)
	})
}

// commandSink runs a command on an existing sink.
func commandSink(
	ctx context.Context, s *storage.Store, method string, k SinkKey, by []process.Actor,
	run func(*dbsqlc.Queries, context.Context, storage.DB) (int64, error),
) error {
	return s.RunLocked(ctx, method, nil, func(ctx context.Context, db storage.DB) error {
		n, err := run(dbsqlc.New(), ctx, db)
		if err == nil && n == 0 {
			err = process.ErrSinkNotFound
		}
		if err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, method, k.Namespace, k.SinkID, by)
	})
}

// PauseSink makes a sink PAUSED. The error is process.ErrSinkNotFound if it does not exist.
func PauseSink(ctx context.Context, s *storage.Store, k SinkKey, by ...process.Actor) error {
	return commandSink(ctx, s, "PauseSink", k, by,
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) (int64, error) {
			return q.PauseSink(ctx, db, dbsqlc.PauseSinkParams(k))
		})
}

// ResumeSink makes a sink ACTIVE. The error is process.ErrSinkNotFound if it does not exist.
func ResumeSink(ctx context.Context, s *storage.Store, k SinkKey, by ...process.Actor) error {
	return commandSink(ctx, s, "ResumeSink", k, by,
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) (int64, error) {
			return q.ResumeSink(ctx, db, dbsqlc.ResumeSinkParams(k))
		})
}

// RewindSink moves the cursor of a sink, and ends the lease of the node that delivers for the sink.
// The error is process.ErrSinkNotFound if the sink does not exist.
func RewindSink(ctx context.Context, s *storage.Store, k SinkKey, to Cursor, by ...process.Actor) error {
	a := dbsqlc.RewindSinkParams{Namespace: k.Namespace, SinkID: k.SinkID}
	a.Lanes, a.Seqs = to.arrays()
	return commandSink(ctx, s, "RewindSink", k, by,
		func(q *dbsqlc.Queries, ctx context.Context, db storage.DB) (int64, error) {
			if err := checkGeneration(ctx, db, to); err != nil {
				return 0, err
			}
			return q.RewindSink(ctx, db, a)
		})
}

// checkGeneration fails if a cursor was read before a failover that may have lost its changes.
func checkGeneration(ctx context.Context, db storage.DB, c Cursor) error {
	current, err := dbsqlc.New().IsGeneration(ctx, db, c.Generation)
	if err == nil && !current {
		err = fmt.Errorf("%w (%w)", process.ErrUnavailable, ErrNewGeneration)
	}
	return err
}

// DeleteSink deletes a sink with its dead letters. It locks the sink first, so that the deletion
// sees the dead letters of a delivery that has just ended.
func DeleteSink(ctx context.Context, s *storage.Store, k SinkKey, by ...process.Actor) error {
	return s.RunLocked(ctx, "DeleteSink", nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		row, err := q.LockSink(ctx, db, dbsqlc.LockSinkParams(k))
		if errors.Is(err, pgx.ErrNoRows) {
			return process.ErrSinkNotFound
		}
		if err != nil {
			return err
		}
		if _, err := q.DeleteSink(ctx, db, dbsqlc.DeleteSinkParams(k)); err != nil {
			return err
		}
		change := storage.ConfigChange{Before: row.Config}
		return change.Audit(ctx, db, "DeleteSink", k.Namespace, k.SinkID, by)
	})
}

// ListSinks returns at most limit sinks after a key: those of a namespace, or of all selected
// namespaces if namespace is "".
func ListSinks(
	ctx context.Context, s *storage.Store, selected process.Patterns, namespace string, after SinkKey, limit int,
) (rows []SinkRow, err error) {
	return listSinks(ctx, s, dbsqlc.ListSinksParams{
		Namespace: namespace, Visible: selected.Like(),
		AfterNamespace: after.Namespace, AfterID: after.SinkID, Lim: int32(limit),
	})
}

// GetSink returns a sink. The error is process.ErrSinkNotFound if it does not exist.
func GetSink(ctx context.Context, s *storage.Store, k SinkKey) (*SinkRow, error) {
	rows, err := listSinks(ctx, s, dbsqlc.ListSinksParams{Namespace: k.Namespace, OnlyID: k.SinkID, Lim: 1})
	if err == nil && len(rows) == 0 {
		err = process.ErrSinkNotFound
	}
	if err != nil {
		return nil, err
	}
	return &rows[0], nil
}

func listSinks(ctx context.Context, s *storage.Store, a dbsqlc.ListSinksParams) (rows []SinkRow, err error) {
	err = s.ReadOne(ctx, "list sinks", func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().ListSinks(ctx, db, a)
		return err
	})
	return rows, err
}

// breakLagging sets sinks whose lag exceeds their limit to BROKEN.
func breakLagging(ctx context.Context, s *storage.Store) error {
	return s.Write(ctx, "set lagging sinks to BROKEN", func(ctx context.Context, db storage.DB) error {
		_, err := dbsqlc.New().BreakLaggingSinks(ctx, db)
		return err
	})
}
