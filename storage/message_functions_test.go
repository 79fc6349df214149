package storage_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// role creates a login role with the given rights, and connects as this role.
func (b *bench) role(rights ...string) *pgx.Conn {
	b.t.Helper()
	name := ask[string](b, "SELECT 'app_' || replace(gen_random_uuid()::text, '-', '')")
	b.exec("CREATE ROLE " + name + " LOGIN")
	for _, right := range rights {
		b.exec("GRANT " + right + " TO " + name)
	}
	conn, err := pgx.Connect(b.t.Context(), regexp.MustCompile(`user=\S+`).ReplaceAllString(b.dsn, "user="+name))
	must(b.t, conn, err)
	b.t.Cleanup(func() {
		// Roles are shared by all databases of the server.
		ctx := context.Background()
		_ = conn.Close(ctx)
		own := storagetest.Connect(b.t, b.dsn)
		for _, sql := range []string{"DROP OWNED BY " + name, "DROP ROLE " + name} {
			if _, err := own.Exec(ctx, sql); err != nil {
				b.t.Error(err)
			}
		}
	})
	return conn
}

// forApplications are the rights that docs/sql.md grants to the role of an application.
var forApplications = []string{
	"USAGE ON SCHEMA progressor",
	"EXECUTE ON FUNCTION progressor.start, progressor.notify, progressor.cancel, progressor.enqueue",
}

// The role of an application can send messages in its transactions. It cannot use the tables,
// sequences and internal functions of the engine.
func TestFunctionsSend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("p")
	app := b.role(forApplications...)
	send := func(commit bool) {
		t.Helper()
		tx, err := app.Begin(t.Context())
		must(t, tx, err)
		var first, second int64
		err = tx.QueryRow(t.Context(),
			`SELECT progressor.start('shop', 'new', args => 'x', metadata => '{"a": 1}', start_time => now()
				+ interval '1 hour'), progressor.notify('shop', 'p', 'y')`).Scan(&first, &second)
		if must(t, 0, err); second <= first {
			t.Errorf("messages %d and %d", first, second)
		}
		equal(t, "seen before the commit", b.undelivered(), 0)
		if commit {
			must(t, 0, tx.Commit(t.Context()))
		} else {
			must(t, 0, tx.Rollback(t.Context()))
		}
	}
	send(false)
	equal(t, "found after the rollback", b.found(0), "[]")
	send(true)
	equal(t, "found after the commit", b.found(time.Hour), "[new p]")
	equal(t, "the start", b.deliver("new"), "start delivered later")
	equal(t, "the notify", b.deliver("p"), "notify delivered")
	equal(t, "metadata", ask[string](b, "SELECT metadata::text FROM processes WHERE process_id = 'new'"), `{"a": 1}`)
	equal(t, "args", b.waiting("new")+b.waiting("p"), "xy")
	must(t, 0, second(app.Exec(t.Context(), "SELECT progressor.enqueue('shop', 'work', job_id => 'j')")))
	equal(t, "the job", b.deliver("j"), "start delivered")
	must(t, 0, second(app.Exec(t.Context(), "SELECT progressor.cancel('shop', 'p', 'no more')")))
	equal(t, "the cancel", b.deliver("p"), "cancel delivered")
	var user string
	must(t, 0, app.QueryRow(t.Context(), "SELECT session_user").Scan(&user))
	equal(t, "the audit",
		ask[string](b, "SELECT concat_ws(' ', actor, method, namespace, subject, details) FROM audit"),
		"pg:"+user+` CancelProcess shop p {"reason": "no more"}`)
	equal(t, "why", ask[string](b, "SELECT cancel_reason FROM processes WHERE process_id = 'p'"), "no more")
	for _, sql := range []string{
		"SELECT * FROM progressor.messages", "SELECT * FROM progressor.processes",
		"SELECT nextval('progressor.message_ids')",
		"SELECT progressor.send_message('notify', 'shop', 'p', NULL, NULL, NULL, NULL)",
		"INSERT INTO progressor.messages (namespace, process_id, kind) VALUES ('shop', 'p', 'notify')",
	} {
		_, err := app.Exec(t.Context(), sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	stranger := b.role("USAGE ON SCHEMA progressor")
	for _, call := range []string{"notify('shop', 'p')", "enqueue('shop', 'work')"} {
		if _, err := stranger.Exec(t.Context(), "SELECT progressor."+call); err == nil {
			t.Errorf("a role without EXECUTE calls %s", call)
		}
	}
}

// Invalid messages are rejected at once, with the name of the parameter.
func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	for call, want := range map[string]string{
		"start('nowhere', 'p')": `there is no namespace "nowhere"`, "start(NULL, 'p')": "there is no namespace",
		"notify('shop', NULL)":             "process_id has 0 bytes",
		"notify('shop', '')":               "process_id has 0 bytes",
		"notify('shop', repeat('ü', 129))": "process_id has 258 bytes, 1 to 256",
		"notify('shop', '~cron/x')":        "begins with ~",
		"notify('shop', 'p', convert_to(repeat('x', 1048577), 'UTF8'))": "args has 1048577 bytes, at most " +
			"1048576",
		"start('shop', 'p', NULL, '[1]')": "metadata is a JSON array, not an " +
			"object",
		"start('shop', 'p', NULL, jsonb_build_object('a', repeat('x', 65536)))": "metadata has",
		"start('shop', 'p', start_time => '1969-12-31 23:59:59Z')":              "not between 1970 and 9999",
		"start('shop', 'p', start_time => 'infinity')":                          "not between 1970 and 9999",
		"start('shop', 'p', start_time => '10000-01-01 00:00:00Z')":             "not between 1970 and 9999",
	} {
		_, err := b.db.Exec(t.Context(), "SELECT progressor."+call)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != "22023" || !strings.Contains(pg.Message, "progressor: ") ||
			!strings.Contains(pg.Message, want) {
			t.Errorf("%s: %v, want %q", call, err, want)
		}
	}
	if _, err := b.db.Exec(t.Context(), "SELECT progressor.cancel('shop', 'p', repeat('x', 4097))"); err == nil ||
		!strings.Contains(err.Error(), "reason has 4097 bytes") {
		t.Errorf("a long reason: %v", err)
	}
	equal(t, "stored", b.undelivered(), 0)
}

// Metadata and args from SQL must not have numbers beyond 2^53 or more than 100 levels, as in
// requests. Otherwise reads would fail or lose digits.
func TestFunctionsCheckJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	nested := func(depth int) string {
		return fmt.Sprintf(`(repeat('{"a":', %d) || '1' || repeat('}', %[1]d))::jsonb`, depth)
	}
	for value, want := range map[string]string{
		`'{"a": 1e400}'`:                        "has a number beyond 2^53",
		`'{"a": [1, {"b": 9007199254740993}]}'`: "has a number beyond 2^53",
		`'{"a": -9007199254740993}'`:            "has a number beyond 2^53",
		nested(101):                             "is nested deeper than 100 objects and lists",
		nested(9000):                            "is nested deeper than 100 objects and lists",
		nested(100):                             "", `'{"a": 9007199254740992, "b": -9007199254740992, "c": 1e-7}'`: "",
		`'{}'`: "",
	} {
		for field, call := range map[string]string{
			"metadata of a process": "start('shop', 'p' || gen_random_uuid(), metadata => %s)",
			"metadata of a job":     "enqueue('shop', 'work', metadata => %s)",
			"args":                  "enqueue('shop', 'work', %s)",
		} {
			call = fmt.Sprintf(call, value)
			_, err := b.db.Exec(t.Context(), "SELECT progressor."+call)
			pg, refused := errors.AsType[*pgconn.PgError](err)
			name, _, _ := strings.Cut(field, " ")
			switch {
			case want == "" && err != nil, want != "" && !refused:
				t.Errorf("%s %s: %v, want %q", field, value, err, want)
			case refused && (pg.Code != "22023" || !strings.HasPrefix(pg.Message, "progressor: "+name+" "+want)):
				t.Errorf("%s %s: %s %s, want %q", field, value, pg.Code, pg.Message, want)
			}
		}
	}
	equal(t, "stored", b.undelivered(), 9)
}

// An application that keeps its transaction open after sending a message blocks neither the
// targets, nor the scan, nor the removal of processes.
func TestOpenTransactionBlocksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1})
	b.namespace(ns)
	b.process("p")
	b.process("q")
	b.foreign(`SELECT progressor.notify('shop', 'p'), progressor.start('shop', 'p'), progressor.start('shop', 'new'),
		progressor.notify('shop', 'q')`)
	b.send(notifyOf("p", "a"))
	equal(t, "found", b.found(0), "[p]")
	equal(t, "delivered", b.deliver("p"), "notify delivered")
	in, err := s.PrepareInit(newInit("new"))
	equal(t, "a concurrent start", must(t, in, err).Outcome, storage.Captured)
	called, err := s.PrepareCall(call("q"))
	equal(t, "a call", must(t, called, err).Outcome, storage.Captured)
	saved, err := s.SaveResult(end(called.Claim, storage.Finished))
	must(t, saved, err)
	must(t, 0, s.RemoveProcess(t.Context(), key("q")))
}

// Listen reports commits, but not rollbacks. A broken connection is replaced.
func TestListen(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	b := newBench(t)
	b.namespace(ns)
	heard, up := make(chan struct{}, 100), make(chan bool, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		hear := func(string) { heard <- struct{}{} }
		b.Listen(ctx, map[string]func(string){"progressor_messages": hear}, func(is bool) {
			up <- is
		})
	}()
	equal(t, "it listens", <-up, true)
	b.foreign("SELECT progressor.notify('shop', 'p')")()
	b.exec("SELECT progressor.notify('shop', 'p') FROM generate_series(1, 10)")
	<-heard
	b.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'progressor listen'`)
	equal(t, "the connection broke", <-up, false)
	equal(t, "it listens again", <-up, true)
	b.exec("SELECT progressor.notify('shop', 'p')")
	<-heard
	stop()
	<-done
	equal(t, "at the end", <-up, false)
	equal(t, "other notices", len(heard), 0)
}
