//go:build linux

package chaos

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

var (
	chaosDuration = flag.Duration("chaos.duration", 3*time.Second, "how long TestChaos injects faults")
	chaosSeed     = flag.Uint64("chaos.seed", 0, "repeats the run of TestChaos with this seed; 0: a new seed, printed")
	chaosFault    = flag.String("chaos.fault", "", "injects only the faults whose name contains this text")
)

func TestMain(m *testing.M) {
	flag.Parse()
	storagetest.Main(m, storagetest.Finally(program.remove), storagetest.Finally(durable.stop))
}

// testTimeout limits most waits. It is long enough for a machine that is busy with other tests.
const testTimeout = 30 * time.Second

// await waits until a condition holds and returns how long that took.
func await(t testing.TB, limit time.Duration, what string, met func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !met() {
		if time.Since(begin) > limit {
			t.Fatalf("timed out after %s: %s", limit, what)
		}
		<-ticker.C
	}
	return time.Since(begin)
}

// executable is the program, built once by the first test that needs it.
type executable struct {
	once sync.Once
	dir  string
	err  error
}

var program executable

func (b *executable) path(t testing.TB) string {
	t.Helper()
	b.once.Do(func() {
		sweep()
		if b.dir, b.err = os.MkdirTemp("", "progressor-chaos-"); b.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", b.dir, "github.com/progressor-engine/progressor/cmd/progressor")
		if out, err := build.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("build the program: %w: %s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "progressor")
}

// sweep removes the files of test runs that were killed more than an hour ago.
func sweep() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "progressor-chaos-*"))
	for _, dir := range left {
		if found, statErr := os.Stat(dir); err == nil && statErr == nil && time.Since(found.ModTime()) > time.Hour {
			os.RemoveAll(dir)
		}
	}
}

func (b *executable) remove() {
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// doctor runs `progressor doctor`, which checks all invariants of the database.
func doctor(t testing.TB, dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout+*chaosDuration)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.path(t), "doctor", "--db.dsn", dsn)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("violations: 0")) {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

// postgres is a PostgreSQL server that syncs to disk, as in production, and that tests may crash.
// The first test that needs it starts it. Tests that use it do not run in parallel.
type postgres struct {
	once   sync.Once
	server *pgembed.Server
	err    error
}

var durable postgres

func (p *postgres) get(t testing.TB) *pgembed.Server {
	t.Helper()
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		p.server, p.err = pgembed.Start(ctx, pgembed.Config{Ephemeral: true, Settings: map[string]string{
			"shared_buffers": "64MB", "max_connections": "200",
			"min_wal_size": "64MB", "max_wal_size": "256MB", // so that the recovery after a crash is short
		}})
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.server
}

// stop ends the server and removes its files. After an error, they remain until this process ends.
func (p *postgres) stop() {
	if p.server != nil {
		_ = p.server.Stop(context.Background())
	}
}

// database creates a database with the schema on a server. At the end of the test, it checks the
// invariants of the database and drops it.
func database(t testing.TB, server *pgembed.Server) string {
	t.Helper()
	name := "chaos_" + strings.ToLower(strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()))
	conn := observe(t, server.DSN())
	storagetest.Exec(t, conn, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	conn.Close(t.Context())
	dsn := server.DSNFor(name)
	if err := storage.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		storagetest.Invariants(t, dsn)
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, server.DSN())
		if err == nil {
			_, err = conn.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
			conn.Close(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// observe opens a connection for the test itself.
func observe(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["search_path"] = "progressor"
	config.RuntimeParams["application_name"] = "observer"
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// count returns the number that a query returns.
func count(t testing.TB, conn *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// terminateBackends cuts every connection of the engines to the database and returns their number.
func terminateBackends(t testing.TB, conn *pgx.Conn) int {
	t.Helper()
	return count(t, conn, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name LIKE 'progressor %' AND datname = current_database()`)
}
