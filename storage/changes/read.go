package changes

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Change is a row of changes.
type Change = dbsqlc.ReadChangesRow

// Cursor is a position in the changes of a namespace: the number of the last change of each lane.
// Lanes that are missing have not been read. A cursor belongs to a generation of the database,
// because a failover or a restore may lose changes and reuse their numbers.
type Cursor struct {
	Generation uuid.UUID
	Lanes      map[int64]int64
	// Stored is set for the cursor of a sink. It is stored in the database and therefore restored
	// with it. In a new generation, the stored cursor is valid, but a copy in memory is not.
	Stored bool
}

// ErrNewGeneration means that a cursor is from before a failover or a restore. Read returns it for
// a copy of a stored cursor. PutSink and RewindSink return an error that wraps it and
// process.ErrUnavailable.
var ErrNewGeneration = errors.New("the database failed over or was restored")

// cursorVersion is the first byte of an encoded cursor.
const cursorVersion = 1

// String encodes the cursor for clients.
func (c Cursor) String() string { return storage.CursorText(cursorVersion, c.Generation, c.Lanes) }

// ParseCursor parses the result of String. field is the field of the request, for errors.
func ParseCursor(field, text string) (c Cursor, err error) {
	c.Generation, c.Lanes, err = storage.ParseCursor(cursorVersion, field, text)
	return c, err
}

// ReadLimit bounds a read.
type ReadLimit struct {
	Changes int
	Bytes   int64
}

// Read returns the changes of a namespace after a cursor, and the cursor after them. The changes of
// a process are in order. more is true if there may be more. If changes after the cursor were
// deleted, or the cursor belongs to another database, the error is a *process.CursorError.
func Read(
	ctx context.Context, s *storage.Store, namespace string, at Cursor, limit ReadLimit,
) (found []Change, next Cursor, more bool, err error) {
	a := dbsqlc.ReadChangesParams{Namespace: namespace, Lim: int32(limit.Changes), MaxBytes: limit.Bytes}
	for lane, seq := range at.Lanes {
		a.Append(dbsqlc.ReadChangesItem{Lane: lane, Seq: seq})
	}
	err = s.RunReserved(ctx, "read changes", func(ctx context.Context, db storage.DB) (err error) {
		found, err = dbsqlc.New().ReadChanges(ctx, db, a)
		return err
	})
	if err == nil && len(found) == 0 {
		err = errors.New("read changes: table database_generation has no row")
	}
	if err != nil {
		return nil, at, false, err
	}
	first := &found[0]
	if at.Stored && first.Generation != at.Generation {
		return nil, at, false, ErrNewGeneration
	}
	if first.Generation != at.Generation || first.Lost || int(first.Known) != len(at.Lanes) {
		return nil, at, false, lost(ctx, s, namespace, at, first)
	}
	if first.ChangeID == 0 {
		return nil, at, false, nil
	}
	next = Cursor{Generation: at.Generation, Stored: at.Stored, Lanes: maps.Clone(at.Lanes)}
	bytes := int64(0)
	for n := range found {
		c := &found[n]
		if c.Seq != next.Lanes[c.Lane]+1 {
			return nil, at, false, lost(ctx, s, namespace, at, first)
		}
		next.Lanes[c.Lane] = c.Seq
		bytes += int64(len(c.Payload)) + int64(len(c.Metadata)) + 200
	}
	return found, next, len(found) == limit.Changes || bytes > limit.Bytes/2, nil
}

// lost returns the error of a cursor from which a reader cannot continue.
func lost(ctx context.Context, s *storage.Store, namespace string, at Cursor, row *Change) error {
	oldest, err := Oldest(ctx, s, namespace)
	if err != nil {
		return err
	}
	reason := "changes after it were deleted, because their retention is over"
	switch {
	case row.Generation != at.Generation:
		reason = "the database failed over or was restored since, which may have lost changes"
	case int(row.Known) != len(at.Lanes):
		reason = "it is not a cursor of this namespace"
	}
	return &process.CursorError{Field: "cursor", Message: reason, Oldest: oldest.String()}
}

// last is later than the time of any change.
var last = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Now returns the cursor after all committed changes of a namespace. records reports whether the
// namespace records changes, or has recorded some.
func Now(ctx context.Context, s *storage.Store, namespace string) (at Cursor, records bool, err error) {
	heads, err := readHeads(ctx, s, namespace, last)
	return heads.cursor, heads.records || len(heads.cursor.Lanes) > 0, err
}

// Oldest returns the cursor before the oldest change that was not deleted.
func Oldest(ctx context.Context, s *storage.Store, namespace string) (Cursor, error) {
	heads, err := readHeads(ctx, s, namespace, time.Unix(0, 0))
	return heads.cursor, err
}

// At returns the cursor before the first change of each lane that was recorded at or after a time.
// If such changes were deleted, the error is a *process.CursorError for the field.
func At(ctx context.Context, s *storage.Store, namespace, field string, from time.Time) (Cursor, error) {
	heads, err := readHeads(ctx, s, namespace, from)
	if err != nil || !heads.lost {
		return heads.cursor, err
	}
	oldest, err := Oldest(ctx, s, namespace)
	if err != nil {
		return oldest, err
	}
	return heads.cursor, &process.CursorError{
		Field: field, Message: "changes since then were deleted, because their retention is over",
		Oldest: oldest.String(),
	}
}

type heads struct {
	cursor        Cursor
	lost, records bool
}

func readHeads(ctx context.Context, s *storage.Store, namespace string, before time.Time) (heads, error) {
	var rows []dbsqlc.ReadChangeHeadsRow
	err := s.RunReserved(ctx, "read the heads of changes", func(ctx context.Context, db storage.DB) (err error) {
		arg := dbsqlc.ReadChangeHeadsParams{Namespace: namespace, Before: before}
		rows, err = dbsqlc.New().ReadChangeHeads(ctx, db, arg)
		return err
	})
	h := heads{cursor: Cursor{Lanes: map[int64]int64{}}}
	for _, r := range rows {
		h.cursor.Generation, h.records, h.lost = r.Generation, r.Records, h.lost || r.Lost
		if r.Lane > 0 {
			h.cursor.Lanes[r.Lane] = r.Seq
		}
	}
	return h, err
}
