package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// starting is a running serve that may not be ready yet.
type starting struct {
	url     string
	log     clitest.LockedBuffer
	signals chan os.Signal
	code    chan int
	systemd *net.UnixConn
}

// beginServe starts serve for a database, as systemd does with Type=notify.
func beginServe(t *testing.T, dsn string, args ...string) *starting {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	dir, err := os.MkdirTemp("", "systemd") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	s := &starting{url: "http://" + address, signals: make(chan os.Signal, 1), code: make(chan int, 1)}
	if s.systemd, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.systemd.Close() })
	m := cli.Main{
		Commands: newCommands, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &s.log, Signals: s.signals,
		Getenv: func(name string) (string, bool) {
			if name == "NOTIFY_SOCKET" {
				return socket, true
			}
			return "", false
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { s.code <- m.Run(ctx, append([]string{"serve", "--listen", address, "--db.dsn", dsn}, args...)) }()
	t.Cleanup(func() {
		cancel()
		s.await(t)
	})
	return s
}

// await waits for the end and returns the exit code.
func (s *starting) await(t *testing.T) int {
	t.Helper()
	code := <-s.code
	s.code <- code
	return code
}

// notices returns the states that systemd has received, up to one that contains last.
func (s *starting) notices(t *testing.T, last string) (all []string) {
	t.Helper()
	buffer := make([]byte, 1000)
	if err := s.systemd.SetReadDeadline(time.Now().Add(clitest.DaemonWait)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := s.systemd.Read(buffer)
		if err != nil {
			t.Fatalf("systemd got %q: %v\n%s", all, err, s.log.String())
		}
		all = append(all, string(buffer[:n]))
		if strings.Contains(all[len(all)-1], last) {
			return all
		}
	}
}

// fetch waits until the program listens, and returns the status and the body of a page.
func (s *starting) fetch(t *testing.T, path string) (status int, body string) {
	t.Helper()
	clitest.Eventually(t, path, func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		status, body = response.StatusCode, string(text)
		return err
	})
	return status, body
}

// absentServer returns a connection string for a server that does not run yet, and a function that
// starts the server.
func absentServer(t *testing.T, dsn string) (absent string, run func()) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := fmt.Sprintf(".s.PGSQL.%d", config.Port)
	return dsn + " password=hunter2 host=" + dir, func() {
		if err := os.Symlink(filepath.Join(config.Host, socket), filepath.Join(dir, socket)); err != nil {
			t.Fatal(err)
		}
	}
}

// An engine waits for a database that does not run yet. It is alive in the meantime, and becomes
// ready when the database runs. systemd is notified of this.
func TestServeWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	dsn, run := absentServer(t, storagetest.DSN(t))
	s := beginServe(t, dsn, "--log.format", "json")
	if got := s.notices(t, "waiting"); len(got) != 1 || got[0] != "STATUS=waiting for the database" {
		t.Errorf("systemd got %q", got)
	}
	if status, body := s.fetch(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d %s", status, body)
	}
	if status, body := s.fetch(t, "/readyz"); status != http.StatusServiceUnavailable ||
		body != "not ready: waiting for the database\n" {
		t.Errorf("/readyz: %d %s", status, body)
	}
	log := s.log.String()
	for _, want := range []string{`"msg":"waiting for the database"`, `"host":"`, "no such file or directory"} {
		if !strings.Contains(log, want) || strings.Contains(log, "hunter2") {
			t.Errorf("the log has no %s, or has the password:\n%s", want, log)
		}
	}
	run()
	for _, notice := range s.notices(t, "READY=1") {
		if strings.Contains(notice, "READY=1") {
			if status, body := s.fetch(t, "/readyz"); status != http.StatusOK {
				t.Errorf("systemd was notified too early: %d %s", status, body)
			}
		}
	}
	s.signals <- syscall.SIGTERM
	if code := s.await(t); code != cli.ExitOK {
		t.Errorf("code %d after SIGTERM", code)
	}
	s.notices(t, "STOPPING=1")
}

// An engine that waits for its database ends at once and without an error on SIGTERM, and with an
// error after db.wait.
func TestServeStopsWaiting(t *testing.T) {
	t.Parallel()
	dsn, _ := absentServer(t, storagetest.DSN(t))
	s := beginServe(t, dsn, "--db.wait", "24h")
	s.notices(t, "waiting")
	s.signals <- syscall.SIGTERM
	if code := s.await(t); code != cli.ExitOK {
		t.Errorf("code %d after SIGTERM:\n%s", code, s.log.String())
	}
	s = beginServe(t, dsn, "--db.wait", "1s")
	if code := s.await(t); code != cli.ExitUnavailable || !strings.Contains(s.log.String(),
		"--db.wait: the database could not be reached within 1s") {
		t.Errorf("code %d:\n%s", code, s.log.String())
	}
}

// An engine does not wait for its database after an error that waiting cannot resolve.
func TestServeReportsPermanentErrors(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	for with, want := range map[string]string{
		" dbname=absent": `database "absent" does not exist`,
		" user=absent":   `role "absent" does not exist`,
	} {
		s := beginServe(t, dsn+with, "--db.wait", "24h")
		if code := s.await(t); code != cli.ExitUnavailable || !strings.Contains(s.log.String(), want) ||
			strings.Contains(s.log.String(), "waiting for the database") {
			t.Errorf("%s: code %d:\n%s", with, code, s.log.String())
		}
	}
	r := clitest.Program{Commands: newCommands}.Run(t, "serve", "--db.dsn", dsn, "--db.wait=-1s")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "--db.wait: must be 0s to 24h0m0s (got -1s)") {
		t.Errorf("%+v", r)
	}
}

// errNotYet is returned while a condition does not hold.
var errNotYet = errors.New("not yet")

// An engine is alive while it migrates, so that Kubernetes does not restart it.
func TestServeLivesDuringMigration(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	program := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	program.OK(t, "migrate", "down", "--yes")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Migrations record their versions in this table.
	if _, err := tx.Exec(t.Context(), "LOCK TABLE progressor.goose_db_version"); err != nil {
		t.Fatal(err)
	}
	s := beginServe(t, dsn, "--db.migrate")
	clitest.Eventually(t, "the migration", func() error {
		if _, body := s.fetch(t, "/readyz"); body != "not ready: migrating the schema\n" {
			return errNotYet
		}
		return nil
	})
	if status, body := s.fetch(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d %s", status, body)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.notices(t, "READY=1")
}
