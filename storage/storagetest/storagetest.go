//go:build unix

package storagetest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/storage"
)

// schema is the schema of the tables.
const schema = "progressor"

// Timeouts of steps, sized for a busy machine.
const (
	startWait = 2 * time.Minute
	stepWait  = time.Minute
)

// MainOption changes what Main does.
type MainOption func(*mainOptions)

type mainOptions struct {
	everyInvariant bool
	finally        []func()
}

// Finally registers a function that is called after the tests, before the process exits. Deferred
// calls do not run then.
func Finally(f func()) MainOption {
	return func(o *mainOptions) { o.finally = append(o.finally, f) }
}

// EveryInvariantChecked fails a run of all tests of the package if there is an invariant that never
// had a row to check at the end of a test. Such an invariant proves nothing. Runs of some tests
// (-run, -skip, -short, -list) are not checked.
func EveryInvariantChecked() MainOption { return func(o *mainOptions) { o.everyInvariant = true } }

// Main runs the tests of a package, stops the server if one was started, and exits. Without it, the
// server stops with the process, but the next run must clean up.
func Main(m *testing.M, with ...MainOption) {
	var chosen mainOptions
	for _, option := range with {
		option(&chosen)
	}
	code := m.Run()
	if unchecked := allChecked.unchecked(); chosen.everyInvariant && code == 0 && runsAll() && len(unchecked) > 0 {
		fmt.Fprintln(os.Stderr, "storagetest: no test left a row for these invariants to check:",
			strings.Join(unchecked, ", "))
		code = 1
	}
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "storagetest:", err)
		code = max(code, 1)
	}
	for _, f := range chosen.finally {
		f()
	}
	os.Exit(code)
}

// Option changes what DSN and Pool do.
type Option func(*options)

type options struct{ withoutInvariants, portable bool }

// Portable makes the database portable (see docs/scale-out.md): NOTIFY and advisory locks fail.
func Portable() Option { return func(o *options) { o.portable = true } }

// portableVariable is the environment variable that makes the databases of all tests portable. The
// target test-portable of the Makefile sets it. Its name does not begin with PROGRESSOR_, because
// programs that a test starts would warn about an unknown variable.
const portableVariable = "TEST_PORTABLE"

// WithoutInvariants skips the check of invariants, for tests that violate them on purpose.
func WithoutInvariants() Option { return func(o *options) { o.withoutInvariants = true } }

// DSN creates a database with the schema and returns its connection string, for a superuser and
// without a search_path. When the test ends, DSN checks the invariants of the database and drops
// it, even if clients are connected. This happens after the cleanups that the test has registered
// after the call of DSN. DSN fails the test if no server can be started.
func DSN(t testing.TB, with ...Option) string {
	t.Helper()
	chosen := options{portable: AllPortable()}
	for _, option := range with {
		option(&chosen)
	}
	server, err := shared.get()
	if err != nil {
		t.Fatalf("storagetest: %v", err)
	}
	name := databaseName(t)
	// Measured CPU time to create and drop a database: 26 ms if files are copied, 36 ms with a copy
	// through the WAL.
	create := "CREATE DATABASE " + name + " TEMPLATE " + templateName + " STRATEGY file_copy"
	if err := shared.execute(create); err != nil {
		t.Fatalf("storagetest: clone the template: %v", err)
	}
	dsn := server.DSNFor(name)
	if chosen.portable {
		if err := makePortable(name, dsn); err != nil {
			t.Fatalf("storagetest: make the database portable: %v", err)
		}
	}
	t.Cleanup(func() {
		if !chosen.withoutInvariants {
			Invariants(t, dsn)
		}
		if err := shared.execute("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("storagetest: drop the test's database: %v", err)
		}
	})
	return dsn
}

// Pool returns a pool on a new database, which it creates with DSN. See Connect.
func Pool(t testing.TB, with ...Option) *pgxpool.Pool {
	t.Helper()
	return Connect(t, DSN(t, with...))
}

// Connect opens a pool on a database of DSN, with search_path progressor. The pool is closed when
// the test ends. Closing it waits until the test has released its connections.
func Connect(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("storagetest: connection string: %v", err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("storagetest: open a pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec runs a statement, and ends the test if the statement fails.
func Exec(t testing.TB, db storage.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// Begin opens a transaction and runs a statement in it, such as one that locks a row. If the test
// does not end the transaction, it is rolled back at the end of the test.
func Begin(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	Exec(t, tx, sql, args...)
	return tx
}

// Invariants fails the test for each violated invariant. DSN calls it at the end of a test. A test
// may call it whenever nothing runs.
func Invariants(t testing.TB, dsn string) {
	t.Helper()
	// The context of the test is cancelled before cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	conn, err := connect(ctx, dsn)
	if err != nil {
		t.Errorf("storagetest: check invariants: %v", err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	report, err := storage.CheckInvariants(ctx, conn)
	if err != nil {
		t.Errorf("storagetest: check invariants: %v", err)
	}
	allChecked.add(report.Checked)
	for _, violation := range report.Violations {
		t.Errorf("invariant broken: %v", violation)
	}
}

// Recount counts the processes of the database again, for tests that create, change or delete
// processes by SQL. No engine may be running.
func Recount(t testing.TB, db storage.DB) {
	t.Helper()
	for _, sql := range []string{
		`DELETE FROM status_counts`,
		`INSERT INTO status_counts (namespace, status, n) SELECT namespace, coalesce(attention, 'RUNNING'), ` +
			`count(*) FROM processes WHERE removed_time IS NULL GROUP BY 1, 2`,
		`DELETE FROM job_counts`,
		`INSERT INTO job_counts (namespace, name, state, n)
		 SELECT j.namespace, j.name,
		     CASE p.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'ERROR' THEN 'failed'
		       WHEN 'CANCELLED' THEN 'cancelled'
		       ELSE CASE WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable'
		         WHEN s.waits_for = 'time' THEN 'scheduled' ELSE 'available' END END, count(*)
		   FROM jobs j JOIN processes p ON p.namespace = j.namespace AND p.process_id = j.process_id
		     AND p.removed_time IS NULL AND p.kind = 'job'
		   LEFT JOIN schedule s ON s.namespace = j.namespace AND s.process_id = j.process_id
		   WHERE NOT starts_with(j.process_id, '~job/~/') GROUP BY 1, 2, 3`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("storagetest: count the processes: %v", err)
		}
	}
}

func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["search_path"] = schema
	return pgx.ConnectConfig(ctx, config)
}

// execute runs one statement on its own connection. A pool that stays open would look like a leak
// in the test.
func execute(dsn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// maxNameSize is the size in bytes to which PostgreSQL truncates identifiers.
const maxNameSize = 63

var (
	databases atomic.Int64
	notPlain  = regexp.MustCompile(`[^a-z0-9]+`)
)

// databaseName returns a name that is unique on the server, needs no quotes, and shows in
// pg_stat_activity which test is running.
func databaseName(t testing.TB) string {
	name := fmt.Sprintf("t%d_%s", databases.Add(1), notPlain.ReplaceAllString(strings.ToLower(t.Name()), "_"))
	return name[:min(len(name), maxNameSize)]
}

// sharedServer is the server of this test binary. It is global, because tests share no caller that
// could pass it.
type sharedServer struct {
	mutex  sync.Mutex
	server *pgembed.Server
	home   *home
	err    error // why there is no server; returned to every test

	admin     sync.Mutex // one statement at a time uses adminConn
	adminConn *pgx.Conn
}

var shared sharedServer

// get starts the server on first use.
func (s *sharedServer) get() (*pgembed.Server, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.server == nil && s.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startWait)
		defer cancel()
		s.home, s.server, s.err = startServer(ctx)
	}
	return s.server, s.err
}

// execute runs a statement on a connection that is kept for all tests.
func (s *sharedServer) execute(sql string) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	if s.adminConn == nil || s.adminConn.Ping(ctx) != nil {
		conn, err := pgx.Connect(ctx, s.server.DSN())
		if err != nil {
			return err
		}
		s.adminConn = conn
	}
	_, err := s.adminConn.Exec(ctx, sql)
	return err
}

func (s *sharedServer) stop() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	if s.adminConn != nil {
		_ = s.adminConn.Close(ctx)
	}
	if err := s.server.Stop(ctx); err != nil {
		return err
	}
	return s.home.remove()
}
