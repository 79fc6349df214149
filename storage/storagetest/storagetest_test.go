//go:build unix

package storagetest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprintf("It's number %d", i), func(t *testing.T) {
			t.Parallel()
			pool := storagetest.Pool(t)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine (word text)"); err != nil {
				t.Fatal(err)
			}
			var schema string
			err := pool.QueryRow(t.Context(),
				"SELECT table_schema FROM information_schema.tables WHERE table_name = 'mine'").Scan(&schema)
			if err != nil || schema != "progressor" {
				t.Errorf("the table is in schema %q, %v", schema, err)
			}
			if _, err := pool.Exec(t.Context(), "SELECT process_id FROM processes"); err != nil {
				t.Errorf("the schema is missing: %v", err)
			}
		})
	}
}

func TestDatabaseIsDroppedAtTheEnd(t *testing.T) {
	var inner string
	t.Run("inner", func(t *testing.T) {
		inner = storagetest.DSN(t)
		// An open connection does not prevent the database from being dropped.
		if _, err := pgx.Connect(t.Context(), inner); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := pgx.Connect(t.Context(), inner); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the database still exists: %v", err)
	}
}

// recorder is a testing.TB that records errors instead of reporting them.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, arguments ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, arguments...))
}

func TestInvariantsFailTheTest(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	sound := &recorder{TB: t}
	storagetest.Invariants(sound, dsn)
	if len(sound.errors) > 0 {
		t.Errorf("a new database violates invariants: %q", sound.errors)
	}
	_, err := storagetest.Connect(t, dsn).Exec(t.Context(),
		`INSERT INTO processes (namespace, process_id, status, last_event_id)
		VALUES ('n', 'has five events and has none', 'RUNNING', 5)`)
	if err != nil {
		t.Fatal(err)
	}
	broken := &recorder{TB: t}
	storagetest.Invariants(broken, dsn)
	if len(broken.errors) == 0 || !strings.Contains(broken.errors[0], "has five events and has none") {
		t.Errorf("the broken invariant is reported as %q", broken.errors)
	}
}

// TestCacheFallsBack runs this binary again with empty, filled, corrupt and unusable caches.
func TestCacheFallsBack(t *testing.T) {
	if os.Getenv("STORAGETEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	cache := t.TempDir()
	run := func(t *testing.T, cache string) string {
		cmd := exec.Command(os.Args[0], "-test.run=TestEachTestHasItsOwnDatabase", "-test.count=1")
		cmd.Env = append(os.Environ(), "STORAGETEST_INNER=1", "XDG_CACHE_HOME="+cache, "HOME="+cache)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	entries := func() []string {
		found, err := filepath.Glob(
			filepath.Join(cache, "*", "progressor", "storagetest", "pg*", "cluster", "PG_VERSION"))
		if err != nil {
			t.Fatal(err)
		}
		more, err := filepath.Glob(filepath.Join(cache, "progressor", "storagetest", "pg*", "cluster", "PG_VERSION"))
		if err != nil {
			t.Fatal(err)
		}
		return append(found, more...)
	}
	const fromNothing = "cannot use the cached template, starting a new server"
	for _, name := range []string{"cold", "warm"} {
		if out := run(t, cache); strings.Contains(out, fromNothing) || len(entries()) != 1 {
			t.Fatalf("%s cache: entries %v, output %s", name, entries(), out)
		}
	}
	if err := os.WriteFile(entries()[0], []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(t, cache); !strings.Contains(out, fromNothing) || len(entries()) != 0 {
		t.Errorf("broken cache: entries %v, output %s", entries(), out)
	}
	if out := run(t, filepath.Join(os.Args[0], "no-directory")); !strings.Contains(out, fromNothing) {
		t.Errorf("no cache: output %s", out)
	}
}

func BenchmarkClone(b *testing.B) {
	for b.Loop() {
		storagetest.DSN(b)
	}
}
