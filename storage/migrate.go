package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/progressor-engine/progressor/migrations"
)

// MigrationState is one migration and whether it was applied.
type MigrationState struct {
	Version     int64      `json:"version"`
	Name        string     `json:"name"`
	AppliedTime *time.Time `json:"applied_time"` // nil: pending
}

// Migrate brings the schema up to the version of this program. Engines may run meanwhile; two migrations at once wait for
// each other, and none waits longer than 10 s for a lock on a table.
func Migrate(ctx context.Context, dsn string) error {
	return withProvider(ctx, dsn, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// MigrateDown takes the newest migration back.
func MigrateDown(ctx context.Context, dsn string) error {
	return withProvider(ctx, dsn, func(p *goose.Provider) error {
		_, err := p.Down(ctx)
		return err
	})
}

// MigrationStatus lists all migrations. It only reads, so any role that may read the tables can ask.
func MigrationStatus(ctx context.Context, dsn string) ([]MigrationState, error) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	applied, err := appliedMigrations(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	states := make([]MigrationState, 0, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		state := MigrationState{Version: version, Name: name}
		if at, ok := applied[version]; ok {
			state.AppliedTime = &at
		}
		states = append(states, state)
	}
	return states, nil
}

// appliedMigrations gives the time of each migration that was applied; none where there is no schema yet.
func appliedMigrations(ctx context.Context, dsn string) (map[int64]time.Time, error) {
	cfg, err := connConfig(dsn, calmSettings, "progressor migrate")
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, redact(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))                                                                      //nolint:errcheck // what it was opened for is done
	rows, _ := conn.Query(ctx, "SELECT version_id, tstamp AT TIME ZONE 'UTC' FROM goose_db_version WHERE is_applied") // its error comes with the rows
	applied := map[int64]time.Time{}
	var (
		version int64
		at      time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		applied[version] = at
		return nil
	})
	if sqlState(err) == stateUndefinedTable {
		return nil, nil
	}
	return applied, err
}

func withProvider(ctx context.Context, dsn string, use func(*goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("dsn: %w", redact(err))
	}
	tune(&cfg.Config, map[string]string{"lock_timeout": "10000"}, "progressor migrate")
	delete(cfg.RuntimeParams, "idle_in_transaction_session_timeout")
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }()
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := use(provider); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// createSchema makes the schema where it is missing. One that the owner of the database has made is taken as it is: to make it
// "if not exists" would need a right that it takes to make it.
func createSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	err := db.QueryRowContext(ctx, "SELECT to_regnamespace('progressor') IS NOT NULL").Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS progressor")
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "42P06") {
		return nil // another migration made it at the same moment
	}
	return err
}

// SchemaError says that the schema of the database is not the one that this program was built for.
type SchemaError struct{ Have, Want int64 }

func (e *SchemaError) Error() string {
	if e.Have > e.Want {
		return fmt.Sprintf("the database has schema version %d, newer than this program's %d: run a newer progressor", e.Have, e.Want)
	}
	return fmt.Sprintf("the database has schema version %d, this program needs %d: run `progressor migrate up`", e.Have, e.Want)
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

func checkSchema(ctx context.Context, db DB) error {
	have := int64(0)
	err := db.QueryRow(ctx, "SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM goose_db_version").Scan(&have)
	if sqlState(err) == stateUndefinedTable {
		err = nil
	}
	if err != nil {
		return mapped("read the schema version", err)
	}
	if want := SchemaVersion(); have != want {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}
