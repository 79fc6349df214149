//go:build unix

package pgembed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
)

const childDir = "PGEMBED_TEST_DIR"

// TestMain lets the test binary be a process that owns a server, for a test that kills it.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	server, err := pgembed.Start(context.Background(), small(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(server.PID())
	fmt.Println(server.DSN())
	// Threads start and end while this process runs. The server must not end with one of them.
	for range 20 {
		go func() { runtime.LockOSThread() }()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func small(dir string) pgembed.Config {
	return pgembed.Config{Dir: dir, Settings: map[string]string{"shared_buffers": "16MB"}}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, config pgembed.Config) *pgembed.Server {
	t.Helper()
	server, err := pgembed.Start(testContext(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(values, " ")
}

func TestServerKeepsItsRowsBetweenRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept", "postgres")
	server := start(t, small(dir))
	dsn := server.DSN()
	query(t, dsn, "create table kept (word text)")
	query(t, dsn, "insert into kept values ('first')")
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Dead():
	default:
		t.Error("Dead is open after Stop")
	}
	if err := server.Stop(testContext(t)); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := server.Restart(testContext(t), "fast"); err == nil {
		t.Error("Restart after Stop succeeds")
	}

	server = start(t, small(dir))
	if server.DSN() != dsn {
		t.Errorf("DSN %q became %q", dsn, server.DSN())
	}
	if got := query(t, dsn, "select word from kept"); got != "first" {
		t.Errorf("the second run found %q", got)
	}
}

func TestRestart(t *testing.T) {
	server := start(t, small(filepath.Join(t.TempDir(), "pg")))
	dead := server.Dead()
	query(t, server.DSN(), "create table kept (word text)")
	for _, mode := range []string{"fast", "immediate"} {
		before := server.PID()
		query(t, server.DSN(), "insert into kept values ('"+mode+"')")
		if err := server.Restart(testContext(t), mode); err != nil {
			t.Fatal(err)
		}
		if server.PID() == before {
			t.Errorf("%s: still process %d", mode, before)
		}
	}
	if got := query(t, server.DSN(), "select word from kept order by word"); got != "fast immediate" {
		t.Errorf("after two restarts: %q", got)
	}
	if err := server.Restart(testContext(t), "gentle"); err == nil {
		t.Error("mode gentle is accepted")
	}
	select {
	case <-dead:
		t.Error("Dead was closed by a restart")
	default:
	}
}

func TestDeadIsClosedWhenTheServerEndsByItself(t *testing.T) {
	server := start(t, small(filepath.Join(t.TempDir(), "pg")))
	dead := server.Dead()
	if err := syscall.Kill(server.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-dead:
	case <-testContext(t).Done():
		t.Fatal("Dead stays open")
	}
	if err := server.Restart(testContext(t), "fast"); err != nil {
		t.Fatal(err)
	}
	query(t, server.DSN(), "select 'back'")
	select {
	case <-server.Dead():
		t.Error("Dead is closed while the server runs again")
	default:
	}
}

func TestDefaultsAreDurable(t *testing.T) {
	dsn := start(t, small(filepath.Join(t.TempDir(), "pg"))).DSN()
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_init_zero": "off",
		"shared_buffers":   "16MB",
		"listen_addresses": "", "server_encoding": "UTF8", "TimeZone": "UTC", "max_wal_size": "4GB",
	} {
		if got := query(t, dsn, "show "+name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := query(t, dsn, "select datcollate from pg_database where datname = 'postgres'"); got != "C" {
		t.Errorf("the collation is %q", got)
	}
}

func TestEphemeralServerIsRemoved(t *testing.T) {
	server := start(t, pgembed.Config{Ephemeral: true, Unsafe: true,
		Settings: map[string]string{"shared_buffers": "16MB"}})
	if got := query(t, server.DSN(), "show fsync"); got != "off" {
		t.Errorf("fsync is %q", got)
	}
	query(t, server.DSN(), `create database "it's \ odd"`)
	if got := query(t, server.DSNFor(`it's \ odd`), "select current_database()"); got != `it's \ odd` {
		t.Errorf("connected to %q", got)
	}
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still exists: %v", server.Dir(), err)
	}
}

// The server does not listen on TCP, so that other users of the machine cannot connect with TCP.
func TestNoTCP(t *testing.T) {
	server := start(t, small(filepath.Join(t.TempDir(), "pg")))
	if got := query(t, server.DSN(), "SHOW listen_addresses"); got != "" {
		t.Errorf("the server listens on %s", got)
	}
}

func TestDirectoryInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pg")
	server := start(t, small(dir))
	_, err := pgembed.Start(testContext(t), small(dir))
	if !errors.Is(err, pgembed.ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(server.PID())) {
		t.Errorf("error %v does not name process %d", err, server.PID())
	}
	query(t, server.DSN(), "select 'unharmed'")
}

func TestStalePostmasterPIDIsIgnored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pg")
	server := start(t, small(dir))
	pidFile := filepath.Join(dir, "cluster", "postmaster.pid")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	// A power cut leaves a file like this behind. No process has this number.
	stale := strings.Replace(string(text), strconv.Itoa(server.PID()), "4194000", 1)
	if err := os.WriteFile(pidFile, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(filepath.Dir(pidFile)); err != nil {
		t.Fatal(err)
	} else if err := os.Chown(pidFile, int(stat.Sys().(*syscall.Stat_t).Uid), -1); err != nil {
		t.Fatal(err)
	}
	query(t, start(t, small(dir)).DSN(), "select 'started'")
}

func TestOtherMajorVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pg")
	server := start(t, small(dir))
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgembed.Start(testContext(t), small(dir))
	if !errors.Is(err, pgembed.ErrVersion) || !strings.Contains(err.Error(), "created by PostgreSQL 9") ||
		!strings.Contains(err.Error(), "are PostgreSQL "+strconv.Itoa(server.Version())) {
		t.Errorf("the error does not name both versions: %v", err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	config := small(filepath.Join(t.TempDir(), "pg"))
	config.Settings["shared_buffers"] = "lots"
	_, err := pgembed.Start(testContext(t), config)
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("the error does not contain the log: %v", err)
	}
}

func TestLongPathGetsAShortSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "it's, odd")
	server := start(t, small(dir))
	query(t, server.DSN(), "select 'reached'")
	config, err := pgx.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(config.Host)
	if err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v, %v", stat, err)
	}
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(config.Host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", config.Host, err)
	}
}

func TestServerEndsWithItsKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux notifies a child when its parent is killed")
	}
	dir := filepath.Join(t.TempDir(), "pg")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childDir+"="+dir)
	parent.Stderr = os.Stderr
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	pid := lines.Text()
	lines.Scan()
	conn, err := pgx.Connect(testContext(t), lines.Text())
	if err != nil {
		t.Fatalf("connect to the child's server %s: %v", pid, err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(testContext(t), "create table kept (word text)"); err != nil {
		t.Fatal(err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	ctx := testContext(t)
	_, err = conn.WaitForNotification(ctx) // returns an error, because the connection breaks
	if ctx.Err() != nil {
		t.Fatalf("server %s continues without its parent: %v", pid, err)
	}
	// The server may still be stopping. A start right after a crash waits for that.
	query(t, start(t, small(dir)).DSN(), "select word from kept")
}

func TestRootDropsToAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	private, err := os.MkdirTemp("", "private")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(private) })
	server := start(t, small(private)) // root owns it with mode 0700, so it is given to the server's user
	stat, err := os.Stat(filepath.Join("/proc", strconv.Itoa(server.PID())))
	if err == nil && stat.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Error("the server runs as root")
	}

	// This is not inside the temporary directory, so only root may open it.
	barred, err := os.MkdirTemp("", "barred")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(barred) })
	t.Setenv("TMPDIR", t.TempDir())
	_, err = pgembed.Start(testContext(t), small(filepath.Join(barred, "below", "pg")))
	if err == nil || !strings.Contains(err.Error(), "may not enter "+barred) {
		t.Errorf("error does not name %s: %v", barred, err)
	}
}

func TestFindBinDir(t *testing.T) {
	found, err := pgembed.FindBinDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PG_BINDIR", found)
	if got, err := pgembed.FindBinDir(); got != found || err != nil {
		t.Errorf("PG_BINDIR=%s finds %s, %v", found, got, err)
	}
	t.Setenv("PG_BINDIR", t.TempDir())
	if _, err := pgembed.FindBinDir(); !errors.Is(err, pgembed.ErrNoBinaries) {
		t.Errorf("with an empty PG_BINDIR: %v", err)
	}
}
