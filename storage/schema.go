package storage

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/progressor-engine/progressor/migrations"
)

// SchemaError says that this program cannot work with the schema of the database.
type SchemaError struct {
	Have   int64 // the version of the database's schema
	Want   int64 // the version that this program was built for
	Oldest int64 // of a newer schema: for which version a program has to be built at least; 0: the schema does not tell
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have < e.Want:
		return fmt.Sprintf("the database has schema version %d, this program needs %d: run `progressor migrate up`", e.Have, e.Want)
	case e.Oldest == 0:
		return fmt.Sprintf("the database has schema version %d, newer than this program's %d: run a newer progressor", e.Have, e.Want)
	}
	return fmt.Sprintf("the database has schema version %d, which needs a program of version %d or newer, and this one is of %d: run a newer progressor",
		e.Have, e.Oldest, e.Want)
}

// SchemaVersion is the version of the schema that this program was built for.
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

// CheckSchema gives the version of the database's schema. The error is a *SchemaError where this program cannot work with it: it is
// older, or newer and says (oldest_engine) that it has changed what this program needs.
func CheckSchema(ctx context.Context, db DB) (have int64, err error) {
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM progressor.goose_db_version").Scan(&have)
	if sqlState(err) == stateUndefinedTable {
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
	if err != nil && sqlState(err) != stateUndefinedFunction {
		return 0, mapped("read which engines the schema is for", err)
	}
	if err != nil || oldest > want {
		return have, &SchemaError{Have: have, Want: want, Oldest: oldest}
	}
	return have, nil
}
