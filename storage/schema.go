package storage

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/progressor-engine/progressor/migrations"
)

// SchemaError reports that this program cannot use the schema of the database.
type SchemaError struct {
	Have int64 // the schema version of the database
	Want int64 // the schema version that this program was built for
	// Oldest is set if the schema is newer than this program. It is the oldest schema version that
	// a program must have been built for to use the schema (oldest_engine), or 0 if the schema does
	// not define it.
	Oldest int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have < e.Want:
		return fmt.Sprintf("the database has schema version %d, this program needs %d: run `progressor migrate up`",
			e.Have, e.Want)
	case e.Oldest == 0:
		return fmt.Sprintf("the database has schema version %d, newer than this program's %d: run a newer progressor",
			e.Have, e.Want)
	}
	return fmt.Sprintf("the database has schema version %d, which needs a program of schema version %d or newer, but "+
		"this program has %d: run a newer progressor",
		e.Have, e.Oldest, e.Want)
}

// SchemaVersion returns the schema version that this program was built for.
func SchemaVersion() int64 {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(names) == 0 {
		return 0
	}
	var last int64
	for _, name := range names {
		if v, err := goose.NumericComponent(name); err == nil {
			last = max(last, v)
		}
	}
	return last
}

// CheckSchema returns the schema version of the database. The error is a *SchemaError if this
// program cannot use the schema: because the schema is older than the program needs, or because it
// is newer and oldest_engine excludes this program.
func CheckSchema(ctx context.Context, db DB) (have int64, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0)
		FROM progressor.goose_db_version`).Scan(&have)
	if SQLState(err) == stateUndefinedTable {
		err = nil
	}
	if err != nil {
		return 0, mapped("read the schema version", err)
	}
	want := SchemaVersion()
	if have <= want {
		if have < want {
			err = &SchemaError{Have: have, Want: want}
		}
		return have, err
	}
	var oldest int64
	err = db.QueryRow(ctx, "SELECT progressor.oldest_engine()").Scan(&oldest)
	if err != nil && SQLState(err) != stateUndefinedFunction {
		return 0, mapped("read which engines support the schema", err)
	}
	if err != nil || oldest > want {
		return have, &SchemaError{Have: have, Want: want, Oldest: oldest}
	}
	return have, nil
}
