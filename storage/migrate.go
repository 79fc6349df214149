package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/progressor-engine/progressor/migrations"
)

// MigrationState is a migration and when it was applied.
type MigrationState struct {
	Version     int64      `json:"version"`
	Name        string     `json:"name"`         // "" if only a newer program has this migration
	AppliedTime *time.Time `json:"applied_time"` // nil if pending
}

// While a migration waits for a table lock, all later sessions, including engines, queue behind it.
// Therefore, a migration waits for less time than an engine (lock_timeout in hotSettings), and then
// tries again after increasing pauses.
const (
	migrationLockTimeout = 100 * time.Millisecond
	shortestPause        = 250 * time.Millisecond
	longestPause         = 5 * time.Second
	defaultLockWait      = 10 * time.Minute
)

// Migration configures how the schema is migrated.
type Migration struct {
	DSN string
	// Files are the migrations. The default is the migrations of this program.
	Files fs.FS
	// LockWait is how long to retry if another session holds a table or the migration lock. The
	// default is 10 minutes.
	LockWait time.Duration
	// Waiting is called with a description of the session that holds a table after each failed try,
	// and every second with the session that an index build waits for. It may be nil.
	Waiting func(holder string)
}

// Migrate migrates the schema to the version of this program.
func Migrate(ctx context.Context, dsn string) error { return Migration{DSN: dsn}.Up(ctx) }

// Up applies the missing migrations. Engines may run in the meantime, because no locks that they
// need are held for a long time. Concurrent migrations wait for each other.
func (m Migration) Up(ctx context.Context) error {
	if m.LockWait <= 0 {
		m.LockWait = defaultLockWait
	}
	if m.Files == nil {
		m.Files = migrations.FS
	}
	if err := m.checkBase(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return m.withProvider(ctx, func(p *goose.Provider) error {
		end := time.Now().Add(m.LockWait)
		for pause := shortestPause; ; pause = min(2*pause, longestPause) {
			done := m.reportBlockers(ctx)
			_, err := p.Up(ctx)
			done()
			state := SQLState(err)
			if state != stateLockNotAvailable && state != stateDeadlock {
				return err
			}
			holder := m.holder(ctx)
			if time.Now().Add(pause).After(end) {
				return fmt.Errorf("a table could not be locked in %s, %s: %w", m.LockWait, holder, err)
			}
			if m.Waiting != nil {
				m.Waiting(holder)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	})
}

// checkBase returns an error if the database has only some of the migrations that the base has
// replaced.
func (m Migration) checkBase(ctx context.Context) error {
	applied, err := appliedMigrations(ctx, m.DSN)
	if err != nil {
		return err
	}
	delete(applied, 0) // goose's own row
	versions := slices.Sorted(maps.Keys(applied))
	if len(versions) == 0 || versions[0] >= migrations.First {
		return nil
	}
	newest := versions[len(versions)-1]
	if newest >= migrations.Base {
		return nil
	}
	return fmt.Errorf("the database has schema version %d, but this program can migrate only version %d and newer: "+
		"first run `progressor migrate up` with a program of version %[2]d", newest, migrations.Base)
}

// blockedInterval is the interval at which to look for the session that an index build waits for.
// An index build waits without lock_timeout for all older transactions.
const blockedInterval = time.Second

// reportBlockers calls Waiting with the session that an index build waits for, every second until
// done is called.
func (m Migration) reportBlockers(ctx context.Context) (done func()) {
	if m.Waiting == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(blockedInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if blocker, ok := m.describe(ctx, findBlocker, migrateName); ok {
					m.Waiting(blocker)
				}
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

const (
	described = `
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), coalesce(a.usename, ''),
  coalesce(a.state, 'active'),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8
  FROM pg_stat_activity a`
	findHolder = described + `
 WHERE a.pid <> pg_backend_pid() AND EXISTS (
   SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.pid = a.pid AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND c.relnamespace = to_regnamespace('progressor'))
 ORDER BY a.xact_start LIMIT 1`
	findBlocker = described + `
 WHERE a.pid IN (SELECT unnest(pg_blocking_pids(w.pid)) FROM pg_stat_activity w
                  WHERE w.datname = current_database() AND w.application_name = $1 AND w.wait_event_type = 'Lock')
 ORDER BY a.xact_start LIMIT 1`
)

// holder describes the oldest transaction that holds a lock in the schema, which is most likely the
// one that a migration waits for.
func (m Migration) holder(ctx context.Context) string {
	if holder, ok := m.describe(ctx, findHolder); ok {
		return holder
	}
	return "the session that holds it is unknown"
}

// describe returns a description of the session that a query finds.
func (m Migration) describe(ctx context.Context, query string, args ...any) (string, bool) {
	cfg, err := connConfig(m.DSN, backgroundSettings, migrateName)
	if err != nil {
		return "", false
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", false
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // read only
	var (
		pid               int32
		name, user, state string
		age               float64
	)
	if err := conn.QueryRow(ctx, query, args...).Scan(&pid, &name, &user, &state, &age); err != nil {
		return "", false
	}
	return fmt.Sprintf("held by process %d (%s, user %s, %s), whose transaction has been open for %.1f s",
		pid, name, user, state, age), true
}

// MigrateDown reverts the newest migration, but not those of the base.
func MigrateDown(ctx context.Context, dsn string) error {
	return Migration{DSN: dsn, Files: migrations.FS, LockWait: defaultLockWait}.withProvider(ctx,
		func(p *goose.Provider) error {
			newest, err := p.GetDBVersion(ctx)
			if err != nil {
				return err
			}
			if want := SchemaVersion(); newest > want {
				return fmt.Errorf("the newest migration is %d, which this program (schema version %d) does not have: "+
					"run a newer progressor", newest, want)
			}
			if newest <= migrations.Base {
				return fmt.Errorf("schema version %d is the oldest that this program can migrate to", newest)
			}
			_, err = p.Down(ctx)
			return err
		})
}

// MigrationStatus lists all migrations, including those that only a newer program has. It works for
// every role that may read the tables.
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
		delete(applied, version)
	}
	for _, version := range slices.Sorted(maps.Keys(applied)) {
		if at := applied[version]; version > SchemaVersion() {
			states = append(states, MigrationState{Version: version, AppliedTime: &at})
		}
	}
	return states, nil
}

// appliedMigrations returns when each migration was applied. It returns none if there is no schema.
func appliedMigrations(ctx context.Context, dsn string) (map[int64]time.Time, error) {
	cfg, err := connConfig(dsn, backgroundSettings, migrateName)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, redact(err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the connection is no longer needed
	// CollectRows returns the error.
	rows, _ := conn.Query(ctx, "SELECT version_id, tstamp AT TIME ZONE 'UTC' FROM goose_db_version WHERE is_applied")
	applied := map[int64]time.Time{}
	var (
		version int64
		at      time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		applied[version] = at
		return nil
	})
	if SQLState(err) == stateUndefinedTable {
		return nil, nil
	}
	return applied, err
}

// migrateName is the application_name of migrations.
const migrateName = "progressor migrate"

func (m Migration) withProvider(ctx context.Context, use func(*goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(m.DSN)
	if err != nil {
		return fmt.Errorf("dsn: %w", redact(err))
	}
	applySettings(&cfg.Config, map[string]string{
		// There is no statement_timeout, because an index on many rows takes a long time.
		"lock_timeout": strconv.FormatInt(migrationLockTimeout.Milliseconds(), 10), "statement_timeout": "0",
	}, migrateName)
	delete(cfg.RuntimeParams, "idle_in_transaction_session_timeout")
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }()
	db.SetMaxIdleConns(0) // settings of a failed migration must not survive
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	locking, err := m.locking(ctx, db)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, m.Files, locking)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := use(provider); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// locking returns the option by which concurrent migrations wait for each other: with an advisory
// lock or, in a portable database, with a row of the table goose_lock.
func (m Migration) locking(ctx context.Context, db *sql.DB) (goose.ProviderOption, error) {
	var portable bool
	// The function is_portable does not exist before the first migration.
	err := db.QueryRowContext(ctx,
		"SELECT coalesce(NULLIF(current_setting('progressor.portable', true), '')::boolean, false)").Scan(&portable)
	if err != nil {
		return nil, fmt.Errorf("setting progressor.portable: must be on or off: %w", err)
	}
	tries := uint64(max(m.LockWait/time.Second, 1))
	if portable {
		locker, err := lock.NewPostgresTableLocker(lock.WithTableLockTimeout(time.Second, tries))
		return goose.WithLocker(locker), err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, tries))
	return goose.WithSessionLocker(locker), err
}

// createSchema creates the schema if it is missing. It checks this first, because CREATE SCHEMA IF
// NOT EXISTS requires the CREATE privilege even if the owner of the database has already created
// the schema.
func createSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	err := db.QueryRowContext(ctx, "SELECT to_regnamespace('progressor') IS NOT NULL").Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS progressor")
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "42P06") {
		return nil // another migration created it at the same time
	}
	return err
}
