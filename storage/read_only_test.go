package storage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// readOnly makes every new session of the test database read-only or writable. If on is true, it
// also terminates the sessions of the store. If on is false, existing sessions stay read-only.
func (b *bench) readOnly(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "on", false: "off"}[on]
	name := ask[string](b, "SELECT current_database()")
	must(b.t, 0, exec(b, fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = %s", name, value)))
	if on {
		must(b.t, 0, exec(b, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'progressor%'`))
	}
}

func exec(b *bench, sql string, args ...any) error {
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	return err
}

// until waits for a condition.
func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.After(waitLimit); !holds(); {
		select {
		case <-deadline:
			b.t.Fatalf("timed out after %s: %s", waitLimit, what)
		case <-time.After(time.Millisecond):
		}
	}
}

// A lane that connects while the server is read-only fails requests, keeps results, and stores them
// when the server is writable again.
func TestServerReadOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	claim := b.claim("p")
	b.readOnly(true)
	saved := later(func() (storage.Saved, error) { return b.SaveResult(end(claim, storage.Finished, events("a"))) })
	b.until("the lane reports the failure", func() bool { return b.Ready() != nil })
	if err := b.Ready(); !strings.Contains(err.Error(), "lane 0 has been unable to write to the database since 2") {
		t.Errorf("readiness: %v", err)
	}
	for _, change := range []func(*storage.Call){func(*storage.Call) {}, keyed("k", "x")} {
		if _, err := b.PrepareCall(call("p", change)); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("a call while the server is read-only: %v", err)
		}
	}
	b.readOnly(false)
	s, err := saved()
	equal(t, "status", must(t, s, err).Status, process.StatusRunning)
	equal(t, "readiness", b.Ready(), nil)
	p, err := b.PrepareCall(call("p"))
	equal(t, "a call afterwards", must(t, p, err).Outcome, storage.Captured)
	b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL runs#1")
}

// If the first connection of a lane leads to a read-only server, the lane closes the connection.
// The lane reports that it cannot write, and works as soon as the server is writable.
func TestFirstConnectionReadOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	claim := b.claim("p")
	b.readOnly(true)
	late, err := storage.Open(t.Context(), storage.Config{DSN: b.dsn, Lanes: 1, Logger: slog.New(slog.DiscardHandler)})
	must(t, late, err)
	t.Cleanup(late.Close)
	for _, change := range []func(*storage.Call){func(*storage.Call) {}, keyed("k", "x")} {
		if _, err := late.PrepareCall(call("p", change)); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("a call while the server is read-only: %v", err)
		}
		if err := late.Ready(); err == nil ||
			!strings.Contains(err.Error(), "lane 0 has been unable to write to the database since 2") {
			t.Errorf("readiness: %v", err)
		}
	}
	saved := later(func() (storage.Saved, error) { return late.SaveResult(end(claim, storage.Finished, events("a"))) })
	b.readOnly(false)
	s, err := saved()
	equal(t, "status", must(t, s, err).Status, process.StatusRunning)
	b.until("the store is ready", func() bool { return late.Ready() == nil })
	p, err := late.PrepareCall(call("p"))
	equal(t, "a call afterwards", must(t, p, err).Outcome, storage.Captured)
	b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL runs#1")
}

// A session that became read-only after it was checked is closed at its first write: a lane stores
// the item on another connection, and a pool opens another one.
func TestReadOnlySessionsAreClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	claim := b.claim("p")
	must(t, 0, exec(b, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('application_name') = 'progressor lane' AND
		   pg_backend_pid() IN (SELECT pid FROM public.bad) THEN
		  RAISE EXCEPTION 'read-only' USING ERRCODE = '25006';
		END IF;
		RETURN NULL; END $$`))
	must(t, 0, exec(b, `CREATE TABLE public.bad AS SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'progressor lane'`))
	must(t, 0, exec(b, `CREATE TRIGGER refuse AFTER INSERT ON progressor.events FOR EACH STATEMENT
		EXECUTE FUNCTION public.refuse()`))
	saved, err := b.SaveResult(end(claim, storage.Finished, events("a")))
	equal(t, "status", must(t, saved, err).Status, process.StatusRunning)
	b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED")

	b.readOnly(true)
	late, err := storage.Open(t.Context(), storage.Config{DSN: b.dsn, Logger: slog.New(slog.DiscardHandler)})
	must(t, late, err)
	t.Cleanup(late.Close)
	b.readOnly(false)
	writes := map[string]func() error{
		"kept": func() error {
			_, err := late.RegisterNode(t.Context(), storage.NodeDescription{Address: "127.0.0.1:1", Version: "test"})
			return err
		},
		"general": func() error { _, err := late.Forget(t.Context(), time.Hour); return err },
	}
	for name, write := range writes {
		if err := write(); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("%s: the first write: %v", name, err)
		}
		if err := write(); err != nil {
			t.Errorf("%s: the second write: %v", name, err)
		}
	}
}

// With several hosts in the DSN, a store opens only if one of the servers is writable, unless the
// DSN sets target_session_attrs.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, err := pgx.ParseConfig(b.dsn)
	must(t, config, err)
	b.readOnly(true)
	defer b.readOnly(false)
	for hosts, want := range map[string]bool{
		fmt.Sprintf("host=%s", config.Host):                                                              true,
		fmt.Sprintf("host=%s,/nowhere port=%d,1", config.Host, config.Port):                              false,
		fmt.Sprintf("host=%s,/nowhere port=%d,1 target_session_attrs=primary", config.Host, config.Port): true,
	} {
		s, err := storage.Open(t.Context(), storage.Config{
			DSN: b.dsn + " " + hosts, Logger: slog.New(slog.DiscardHandler),
		})
		if (err == nil) != want {
			t.Errorf("%s: open: %v", hosts, err)
		}
		if s != nil {
			s.Close()
		}
	}
}

// Writes wait until they are durable, even if synchronous_commit is off in the database.
func TestWritesAreDurable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	name := ask[string](b, "SELECT current_database()")
	must(t, 0, exec(b, fmt.Sprintf("ALTER DATABASE %q SET synchronous_commit = off", name)))
	s := open(t, b.dsn, storage.Config{Lanes: 1})
	setting := ""
	err := s.Write(t.Context(), "show", func(ctx context.Context, db storage.DB) error {
		return db.QueryRow(ctx, "SHOW synchronous_commit").Scan(&setting)
	})
	if err != nil || setting != "on" {
		t.Errorf("synchronous_commit = %s, %v", setting, err)
	}
}

// If a host accepts connections and does not answer, lanes use the next host.
func TestHostThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	config, err := pgx.ParseConfig(b.dsn)
	must(t, config, err)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, silent, err)
	defer silent.Close()
	s := open(t, fmt.Sprintf("%s sslmode=disable host=127.0.0.1,%s port=%d,%d", b.dsn, config.Host,
		silent.Addr().(*net.TCPAddr).Port, config.Port), storage.Config{Lanes: 1})
	task, err := s.PrepareCall(call("p", keyed("k", "x")))
	must(t, task, err)
}

// The password is read for each new connection. While it cannot be read, the store is not ready.
func TestPasswordIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	var read atomic.Int64
	var failing atomic.Bool
	s := open(t, b.dsn, storage.Config{Lanes: 1, Password: func(ctx context.Context) (string, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("reading the password has no timeout")
		}
		read.Add(1)
		if failing.Load() {
			return "", errors.New("the vault is closed")
		}
		return "secret", nil
	}})
	terminate := func() {
		must(t, 0, exec(b, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'progressor lane'`))
	}
	claim := func() error { _, err := s.PrepareCall(call("p", keyed("k", "x"))); return err }
	must(t, 0, claim())
	before := read.Load()
	failing.Store(true)
	terminate()
	if err := claim(); !errors.Is(err, process.ErrUnavailable) ||
		!strings.Contains(err.Error(), "the vault is closed") {
		t.Errorf("a call without a password: %v", err)
	}
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "the vault is closed") {
		t.Errorf("readiness: %v", err)
	}
	if read.Load() == before {
		t.Error("the password was not read again")
	}
	failing.Store(false)
	b.until("the store is ready", func() bool { return s.Ready() == nil })
	must(t, 0, claim())
}
