//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// additions are migrations that a future version may run while engines of this version run: a
// change of one hot table in a transaction, and slow operations outside of a transaction.
var additions = []string{
	"ALTER TABLE processes ADD COLUMN next text NOT NULL DEFAULT 'n', ADD CONSTRAINT processes_next CHECK (next <> " +
		"'') NOT VALID;",
	"ALTER TABLE tasks ADD COLUMN next int;",
	"ALTER TABLE running ADD COLUMN next int;",
	"ALTER TABLE schedule ADD COLUMN next int NOT NULL DEFAULT 1;",
	"ALTER TABLE events ADD COLUMN next bytea;",
	"CREATE TABLE next (namespace text COLLATE \"C\" PRIMARY KEY, n bigint NOT NULL);",
	storagetest.NoTransaction + `SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS tasks_next;
CREATE INDEX CONCURRENTLY tasks_next ON tasks (namespace, next);
DROP INDEX CONCURRENTLY IF EXISTS processes_by_next;
CREATE INDEX CONCURRENTLY processes_by_next ON processes (namespace, next);
RESET lock_timeout;
ALTER TABLE processes VALIDATE CONSTRAINT processes_next;`,
}

// Migrations that only add objects run under load. An application that holds a table delays them,
// and blocks nothing else. Engines of this version continue to run, and can start, on the new
// schema.
func TestMigrationUnderLoad(t *testing.T) {
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	nodes := []*node{startNode(t, "a0", dsn), startNode(t, "b0", dsn)}
	putChain(t, nodes[0], c, nil)
	f := newFleet(t, nodes...)
	f.start(40)
	l := startLoad(f, plan{clients: 16, processes: 40, seed: 7})
	awaitCalls := func(what string, calls int64) time.Duration {
		before := l.acked.Load()
		return await(t, testTimeout, what, func() bool { return l.acked.Load() >= before+calls })
	}
	awaitCalls("calls are answered", 200)

	application := observe(t, dsn)
	for _, sql := range []string{"BEGIN", "SELECT count(*) FROM processes",
		"SELECT notify('chain', 'p0', 'from an application')"} {
		storagetest.Exec(t, application, sql)
	}
	tries, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		next := storagetest.NextMigrations(t, additions...)
		ended <- storage.Migration{DSN: dsn, Files: next,
			Waiting: func(holder string) { tries <- holder }}.Up(t.Context())
	}()
	for range 3 {
		if holder := <-tries; !strings.Contains(holder, "observer") {
			t.Errorf("the table is %s", holder)
		}
	}
	awaitCalls("calls are answered while an application holds what a migration wants", 200)
	storagetest.Exec(t, application, "ROLLBACK")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if have := count(t, conn, "SELECT max(version_id) FROM goose_db_version"); int64(have) != storage.SchemaVersion()+
		int64(len(additions)) {
		t.Errorf("the schema has version %d", have)
	}
	awaitCalls("calls are answered on the newer schema", 200)
	if code := nodes[0].terminate(); code != 0 {
		t.Errorf("the engine ended with code %d", code)
	}
	f.replace(0, startNode(t, "a1", dsn))
	awaitCalls("calls are answered by an engine that was started on the newer schema", 200)
	endUpgrade(t, l, c, dsn)
}

// endUpgrade ends a load. No operation may have failed or been executed twice.
func endUpgrade(t *testing.T, l *load, c *chain, dsn string) {
	t.Helper()
	entries := l.finish()
	t.Logf("%d calls, the longest took %s; clients saw %v", len(entries), longest(entries).Round(time.Millisecond),
		&l.seen)
	l.seen.only(t)
	if int(l.acked.Load()) != len(entries) {
		t.Errorf("%d of %d calls were answered", l.acked.Load(), len(entries))
	}
	if worst := longest(entries); worst > 5*time.Second {
		t.Errorf("a call took %s", worst)
	}
	settle(t, dsn)
	verify(t, dsn, entries)
	if n := count(t, observe(t, dsn), `SELECT count(*) FROM tasks WHERE attempt <> 1`); n != 0 ||
		c.repeated.Load() != 0 {
		t.Errorf("%d tasks have used up an attempt, %d were sent to the processor again", n, c.repeated.Load())
	}
}

// TestUpgrade runs a real upgrade. Engines built from the commit before the newest migration run
// under load. The command of this program migrates the schema. The engines are then replaced one
// after the other.
func TestUpgrade(t *testing.T) {
	old := previous(t)
	dsn := storagetest.DSN(t)
	before := downTo(t, dsn, old)
	// This program rejects an older schema with an error that names the next step. The commit that
	// replaced migrations with the base has the same version as the one before it.
	refuses := func(path, want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path, append(args, "--db.dsn", dsn)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%v: %v\n%s\nwant code 1 and %q", args, err, out, want)
		}
	}
	if int64(before) < storage.SchemaVersion() {
		refuses(program.path(t),
			fmt.Sprintf("the database has schema version %d, this program needs %d: run `progressor migrate up`",
				before, storage.SchemaVersion()), "serve", "--listen", "127.0.0.1:0")
		refuses(program.path(t), "Next: progressor migrate up", "doctor")
	}

	c := newChain(t)
	nodes := []*node{startProgram(t, old, "a0", dsn), startProgram(t, old, "b0", dsn)}
	putChain(t, nodes[0], c, nil)
	f := newFleet(t, nodes...)
	f.start(40)
	l := startLoad(f, plan{clients: 16, processes: 40, seed: 8})
	awaitCalls := func(what string) {
		start := l.acked.Load()
		await(t, testTimeout, what, func() bool { return l.acked.Load() >= start+200 })
	}
	awaitCalls("calls are answered by the old engines")
	if out, err := exec.CommandContext(t.Context(), program.path(t), "migrate", "up", "--db.dsn",
		dsn).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	awaitCalls("calls are answered by the old engines on the new schema")
	for i, n := range nodes {
		if code := n.terminate(); code != 0 {
			t.Errorf("engine %s ended with code %d", n.name, code)
		}
		f.replace(i, startNode(t, n.name[:1]+"1", dsn))
		awaitCalls("calls are answered by an old and a new engine, and then by new ones")
	}
	endUpgrade(t, l, c, dsn)
	doctor(t, dsn)
}

// downTo reverts migrations until the program at path knows the newest remaining one, and returns
// the version of that migration.
func downTo(t *testing.T, dsn, path string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "src", "migrations", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the migrations of the previous program: %q, %v", files, err)
	}
	newest, err := goose.NumericComponent(filepath.Base(slices.Max(files)))
	if err != nil {
		t.Fatal(err)
	}
	conn := observe(t, dsn)
	for {
		have := count(t, conn, "SELECT max(version_id) FROM goose_db_version")
		if int64(have) <= newest {
			return have
		}
		if err := storage.MigrateDown(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
	}
}

// previous builds the program of the newest commit with an older schema, from the history of the
// repository. A commit may have a newer schema than this one, if a migration was renumbered.
// Without that history, the test is skipped.
func previous(t *testing.T) string {
	t.Helper()
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(names) < 2 {
		t.Fatalf("there are migrations %q, %v", names, err)
	}
	dir := t.TempDir()
	script := `set -e
root=$(git rev-parse --show-toplevel)
cd "$root"
for before in HEAD $(git log --format=%H^ -- migrations); do
	git cat-file -e "$before^{commit}"
	newest=$(git ls-tree --name-only "$before" migrations/ | grep '\.sql$' | tail -n 1)
	newest=${newest#migrations/}
	[[ ${newest%%_*} < ${1%%_*} ]] && break
	git cat-file -e "$before:migrations/$3" 2>/dev/null || break # replaced by the base
done
mkdir "$2/src"
git archive "$before" | tar -x -C "$2/src"`
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", script, "bash", names[len(names)-1],
		dir, names[0]).CombinedOutput(); err != nil {
		t.Skipf("needs the repository's history back to the commit before %s: %v\n%s", names[len(names)-1], err, out)
	}
	path := filepath.Join(dir, "progressor")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/progressor")
	build.Dir = filepath.Join(dir, "src")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the previous program: %v\n%s", err, out)
	}
	return path
}
