package storage_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Migrations down end at the base. Two concurrent migrations of an empty database wait for each
// other, and the second one has nothing to do.
func TestMigrateDownAndUp(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	pool := storagetest.Connect(t, dsn)
	objects := func() (names string) {
		t.Helper()
		err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(x.name, ', ' ORDER BY x.name), '') FROM (
			SELECT relname AS name FROM pg_class
			 WHERE relnamespace = to_regnamespace('progressor') AND relname NOT LIKE 'goose%' UNION ALL
			SELECT typname FROM pg_type
			 WHERE typnamespace = to_regnamespace('progressor') AND typtype = 'e') x`).Scan(&names)
		return must(t, names, err)
	}
	whole := objects()
	states, err := storage.MigrationStatus(t.Context(), dsn)
	if last := must(t, states, err)[len(states)-1]; last.AppliedTime == nil || last.Version != storage.SchemaVersion() {
		t.Errorf("the newest migration is %+v, want version %d, applied", last, storage.SchemaVersion())
	}
	for range storage.SchemaVersion() - migrations.Base {
		if err := storage.MigrateDown(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
	}
	base := objects()
	if err := storage.MigrateDown(t.Context(), dsn); err == nil ||
		!strings.Contains(err.Error(), "is the oldest that this program can migrate to") {
		t.Errorf("down from the base: %v", err)
	}
	equal(t, "the base after a refused migration down", objects(), base)
	storagetest.Exec(t, pool, "DROP SCHEMA progressor CASCADE")
	states, err = storage.MigrationStatus(t.Context(), dsn)
	if first := must(t, states, err)[0]; first.AppliedTime != nil {
		t.Errorf("the first migration was applied at %v, want pending", first.AppliedTime)
	}
	var schema *storage.SchemaError
	if _, err := storage.Open(t.Context(), storage.Config{DSN: dsn}); !errors.As(err, &schema) || schema.Have != 0 ||
		!strings.Contains(err.Error(), "migrate up") {
		t.Errorf("a store on an empty schema: %v", err)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := storage.Migrate(t.Context(), dsn); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	equal(t, "the schema of a new database", objects(), whole)
}

// A database that the replaced migrations have created is at the base if all of them were applied.
// Otherwise Migrate returns an error that names the versions.
func TestMigrateBeforeBase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	states, err := storage.MigrationStatus(t.Context(), b.dsn)
	first := must(t, states, err)[0].Version
	b.exec(`INSERT INTO goose_db_version (version_id, is_applied) SELECT n, true
		FROM generate_series(1, $1::bigint - 1) n`, first)
	must(t, 0, storage.Migrate(t.Context(), b.dsn))
	states, err = storage.MigrationStatus(t.Context(), b.dsn)
	for _, state := range must(t, states, err) {
		if state.AppliedTime == nil || state.Version < first {
			t.Errorf("status of the carried-over database: %+v", state)
		}
	}
	b.is("p", "RUNNING e0: INIT FINISHED")
	b.exec("DELETE FROM goose_db_version WHERE version_id >= $1", migrations.Base)
	err = storage.Migrate(t.Context(), b.dsn)
	want := fmt.Sprintf("the database has schema version %d, but this program can migrate only version %d",
		migrations.Base-1, migrations.Base)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("migrate a database older than the base: %v, want %q", err, want)
	}
}

// MigrationStatus changes nothing and needs only read access.
func TestMigrationStatusOnlyReads(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	pool := storagetest.Connect(t, dsn)
	var user string
	err := pool.QueryRow(t.Context(), "SELECT 'reader_' || pg_backend_pid()").Scan(&user)
	must(t, user, err)
	for _, statement := range []string{
		"CREATE ROLE " + user + " LOGIN",
		"GRANT USAGE ON SCHEMA progressor TO " + user,
		"GRANT SELECT ON goose_db_version TO " + user,
	} {
		storagetest.Exec(t, pool, statement)
	}
	states, err := storage.MigrationStatus(t.Context(),
		regexp.MustCompile(`user=\S+`).ReplaceAllString(dsn, "user="+user))
	if last := must(t, states, err)[len(states)-1]; last.AppliedTime == nil {
		t.Errorf("%+v was not applied", last)
	}
	for _, statement := range []string{"DROP OWNED BY " + user, "DROP ROLE " + user, "DROP SCHEMA progressor CASCADE"} {
		storagetest.Exec(t, pool, statement)
	}
	states, err = storage.MigrationStatus(t.Context(), dsn)
	if last := must(t, states, err)[len(states)-1]; last.AppliedTime != nil {
		t.Errorf("%+v was applied to an empty database", last)
	}
	var made bool
	if err := pool.QueryRow(t.Context(), "SELECT to_regnamespace('progressor') IS NOT NULL").Scan(&made); err != nil ||
		made {
		t.Errorf("MigrationStatus has created a schema: %v, %v", made, err)
	}
}

// A newer schema declares which programs it supports.
func TestOpenOnANewerSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := storage.SchemaVersion()
	declareOldest := func(oldest int64) string {
		return fmt.Sprintf("CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS "+
			"'SELECT %d::bigint'", oldest)
	}
	b.exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)")
	b.exec(declareOldest(want))
	open(t, b.dsn, storage.Config{}).Close()
	for _, tt := range []struct{ sql, message string }{
		{declareOldest(want + 1),
			fmt.Sprintf("needs a program of schema version %d or newer, but this program has %d: run a newer "+
				"progressor", want+1, want)},
		{"DROP FUNCTION oldest_engine()", fmt.Sprintf("newer than this program's %d: run a newer progressor", want)},
	} {
		b.exec(tt.sql)
		var schema *storage.SchemaError
		_, err := storage.Open(t.Context(), storage.Config{DSN: b.dsn})
		if !errors.As(err, &schema) || schema.Have != 999 || !strings.Contains(err.Error(), tt.message) {
			t.Errorf("a store on a newer schema: %v, want %q", err, tt.message)
		}
	}
	if err := storage.Migrate(t.Context(), b.dsn); err != nil {
		t.Errorf("migrate a newer schema: %v", err)
	}
	if err := storage.MigrateDown(t.Context(), b.dsn); err == nil ||
		!strings.Contains(err.Error(), "run a newer progressor") {
		t.Errorf("down migration of a newer schema: %v", err)
	}
	states, err := storage.MigrationStatus(t.Context(), b.dsn)
	if last := must(t, states, err)[len(states)-1]; last.Version != 999 || last.Name != "" || last.AppliedTime == nil {
		t.Errorf("the newest migration is %+v", last)
	}
}

func TestOpenOnNoServer(t *testing.T) {
	t.Parallel()
	for what, address := range map[string]string{
		"no server": "127.0.0.1:1/x?connect_timeout=1",
		"no port":   "127.0.0.1:99999999/x",
	} {
		_, err := storage.Open(t.Context(), storage.Config{DSN: "postgres://who:secret@" + address})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("a store on %s: %v", what, err)
		}
	}
}

// A migration lets the sessions that wait behind it continue, reports which session holds the
// table, and continues when the transaction of that session ends. If the wait is longer than
// LockWait, the migration returns an error.
func TestMigrationDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	held, err := b.db.Begin(t.Context())
	must(t, held, err)
	_, err = held.Exec(t.Context(), "SELECT FROM processes")
	must(t, 0, err)
	next := storagetest.NextMigrations(t, "ALTER TABLE processes ADD COLUMN next int;",
		storagetest.NoTransaction+"SET lock_timeout = 0;\nCREATE INDEX CONCURRENTLY processes_next ON processes "+
			"(next);\nRESET lock_timeout;",
		"ALTER TABLE processes ADD COLUMN after_next int;")
	err = storage.Migration{DSN: b.dsn, Files: next, LockWait: time.Nanosecond}.Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("held by process %d (", held.Conn().PgConn().PID())) {
		t.Errorf("the table is locked, but the migration returned %v", err)
	}
	tries, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- storage.Migration{
			DSN: b.dsn, Files: next, Waiting: func(holder string) { tries <- holder },
		}.Up(t.Context())
	}()
	for range 2 {
		if holder := <-tries; !strings.Contains(holder, "idle in transaction") {
			t.Errorf("the table is %s", holder)
		}
		b.call("p") // later sessions do not wait for the holder
	}
	must(t, 0, held.Rollback(t.Context()))
	must(t, 0, <-ended)
	// pg_attribute also has the columns of an index.
	equal(t, "columns and indexes that were made",
		ask[int](b, `SELECT (SELECT count(*) FROM pg_attribute WHERE attname IN ('next', 'after_next'))
		+ (SELECT count(*) FROM pg_class WHERE relname = 'processes_next')`), 4)
}

// An index build waits for older transactions without a limit, and reports the transaction for
// which it waits.
func TestMigrationReportsIndexBlockers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	held, err := b.db.Begin(t.Context())
	must(t, held, err)
	t.Cleanup(func() { _ = held.Rollback(context.Background()) })
	_, err = held.Exec(t.Context(), "UPDATE processes SET kind = kind")
	must(t, 0, err)
	next := storagetest.NextMigrations(t,
		storagetest.NoTransaction+"SET lock_timeout = 0;\nCREATE INDEX CONCURRENTLY processes_next ON processes "+
			"(kind);\nRESET lock_timeout;")
	tries, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- storage.Migration{
			DSN: b.dsn, Files: next, Waiting: func(holder string) { tries <- holder },
		}.Up(t.Context())
	}()
	select {
	case holder := <-tries:
		if !strings.HasPrefix(holder, fmt.Sprintf("held by process %d (", held.Conn().PgConn().PID())) {
			t.Errorf("the build is %s", holder)
		}
	case err := <-ended:
		t.Fatalf("the migration has not waited: %v", err)
	case <-time.After(waitLimit):
		t.Fatal("the holder was not reported")
	}
	must(t, 0, held.Rollback(t.Context()))
	must(t, 0, <-ended)
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.Close()
	if _, err := b.PrepareCall(call("p")); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a call after the end: %v", err)
	}
}

// Items that a lane has left for its next flush when the store closes fail like later items.
func TestClosedStoreRefusesQueuedItems(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	for n, err := range b.FlushAsItCloses(call("p"), call("q")) {
		if !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("call %d: %v", n, err)
		}
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := open(t, b.dsn, storage.Config{})
	if b.NodeID() == other.NodeID() || b.NodeID() == 0 {
		t.Errorf("nodes %d and %d", b.NodeID(), other.NodeID())
	}
	if drain, err := b.Beat(t.Context(), storage.NodeReport{Draining: true}); err != nil || drain {
		t.Errorf("%v, %v", drain, err)
	}
	nodes, err := b.ListNodes(t.Context())
	equal(t, "nodes", len(must(t, nodes, err)), 2)
	equal(t, "draining", nodes[0].Draining, true)
	// A dead node is deleted only when it holds no tasks.
	b.start("p")
	b.exec("UPDATE nodes SET beat_time = beat_time - interval '2 hours'")
	must(t, 0, other.DeleteDeadNodes(t.Context()))
	equal(t, "nodes after a step of the clock", ask[int](b, "SELECT count(*) FROM nodes"), 2)
	b.exec(`UPDATE nodes SET beat_time = beat_time - interval '2 hours', dead_beat_time = CASE WHEN node_id = $1
		THEN beat_time - interval '2 hours' END`, other.NodeID())
	if err := other.DeleteDeadNodes(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Beat(t.Context(), storage.NodeReport{TimerLateness: -1}); err != nil {
		t.Errorf("the node that holds a task was deleted: %v", err)
	}
	if _, err := other.Beat(t.Context(), storage.NodeReport{TimerLateness: -1}); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the heartbeat of a deleted node: %v", err)
	}
	if err := b.DeleteNode(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	if _, err := b.GetNamespace(ctx, "a"); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("an unknown namespace: %v", err)
	}
	if _, err := b.SetNamespacePaused(ctx, "a", true); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("pausing an unknown namespace: %v", err)
	}
	first, err := b.PutNamespace(ctx, "a", []byte(`{"stepTimeout": "1s"}`))
	must(t, first, err)
	must(t, first, func() error { _, err := b.SetNamespacePaused(ctx, "a", true); return err }())
	second, err := b.PutNamespace(ctx, "a", []byte(`{}`))
	must(t, second, err)
	if !second.Paused || string(second.Config) != "{}" || !second.CreatedTime.Equal(first.CreatedTime) ||
		!second.UpdatedTime.After(first.UpdatedTime) {
		t.Errorf("put again: %+v after %+v", second, first)
	}
	must(t, second, func() error { _, err := b.PutNamespace(ctx, "A/b", []byte(`{}`)); return err }())
	list, _, err := b.ListNamespaces(ctx, nil, "", 10)
	equal(t, "the list", []string{must(t, list, err)[0].Namespace, list[1].Namespace}, "[A/b a]")
	if _, err := b.PutNamespace(ctx, "not ok", []byte(`{}`)); err == nil {
		t.Error("a name with a space was accepted")
	}
}
