package storage_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A portable database has neither NOTIFY nor advisory locks. Calls and results use the general
// statements, and no session listens. Notices, merges of the index and the SQL functions return no
// error.
func TestPortable(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.Portable())
	if err := exec(b, "SELECT pg_advisory_xact_lock(1)"); err == nil || !strings.Contains(err.Error(), "not portable") {
		t.Fatalf("an advisory lock: %v, want an error of the test database", err)
	}
	b.namespace(ns)
	b.process("p")
	prepared, err := b.PrepareCall(call("p"))
	if err != nil || prepared.Outcome != storage.Captured {
		t.Fatalf("call: %+v, %v", prepared, err)
	}
	if _, err := b.SaveResult(end(prepared.Claim, storage.Finished, events("e"))); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"CaptureCall", "SaveFinished", "SaveContinued", "SaveEnded", "SaveCompleted"} {
		equal(t, "uses of the fast path by "+statement, ask[int](b, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%-- name: '||$1||' %'`,
			statement), 0)
	}
	if err := b.SendNotice(t.Context(), "progressor_tasks"); err != nil {
		t.Errorf("notice: %v", err)
	}
	if err := b.MergeMetadataIndex(t.Context()); err != nil {
		t.Errorf("merge of the index: %v", err)
	}
	if _, err := b.db.Exec(t.Context(), "SELECT progressor.start('shop', 'q')"); err != nil {
		t.Errorf("start by a SQL function: %v", err)
	}
	if _, err := b.db.Exec(t.Context(), "SELECT progressor.enqueue('shop', 'name', '{}')"); err != nil {
		t.Errorf("enqueue by a SQL function: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	up := make(chan bool, 10)
	var listener sync.WaitGroup
	listener.Go(func() { b.Listen(ctx, nil, func(is bool) { up <- is }) })
	equal(t, "it listens", <-up, false)
	cancel()
	listener.Wait()
}

// A locked key makes the transactions of that key wait, in both kinds of databases.
func TestLockKey(t *testing.T) {
	t.Parallel()
	for name, with := range map[string][]storagetest.Option{"default": nil, "portable": {storagetest.Portable()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storagetest.Pool(t, with...)
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			lock := func(hash int64) string {
				other, err := db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer other.Rollback(context.Background())
				storagetest.Exec(t, other, "SET LOCAL lock_timeout = '1ms'")
				_, err = other.Exec(t.Context(), "SELECT lock_key($1)", hash)
				return storage.SQLState(err)
			}
			storagetest.Exec(t, tx, "SELECT lock_key(-7)")
			equal(t, "SQL state of the same key", lock(-7), "55P03")
			equal(t, "SQL state of another key", lock(8), "")
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			equal(t, "SQL state after the transaction", lock(-7), "")
		})
	}
}

// Concurrent migrations of a portable database lock a row. The setting progressor.portable must be
// on or off.
func TestMigratePortable(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t, storagetest.Portable())
	pool := storagetest.Connect(t, dsn)
	next := storagetest.NextMigrations(t, "ALTER TABLE nodes ADD COLUMN next int;")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := (storage.Migration{DSN: dsn, Files: next, LockWait: time.Minute}).Up(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	var locks int
	err := pool.QueryRow(t.Context(), "SELECT count(*) FROM goose_lock WHERE NOT locked").Scan(&locks)
	equal(t, "released locks of migrations", must(t, locks, err), 1)

	broken := dsn + " progressor.portable=maybe"
	const want = "setting progressor.portable: must be on or off"
	if err := storage.Migrate(t.Context(), broken); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("migrate with a wrong setting: %v", err)
	}
	_, err = storage.Open(t.Context(), storage.Config{DSN: broken})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("open with a wrong setting: %v", err)
	}
}
