package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// faults makes every insert into events fail with the SQLSTATE in public.fault, and counts the
// tries.
func (b *bench) faults() {
	b.t.Helper()
	for _, sql := range []string{
		`CREATE TABLE public.fault (state text)`, `CREATE SEQUENCE public.tries`,
		`CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN
		   SELECT state INTO s FROM public.fault;
		   IF s IS NOT NULL THEN
		     PERFORM nextval('public.tries');
		     RAISE EXCEPTION 'a fault' USING ERRCODE = s;
		   END IF;
		   RETURN NULL; END $$`,
		`CREATE TRIGGER fail AFTER INSERT ON progressor.events FOR EACH ROW EXECUTE FUNCTION public.fail()`,
	} {
		must(b.t, 0, exec(b, sql))
	}
}

// A result is retried until the server stores it, after any of these faults of the server. Only an
// error in the data of the result is returned.
func TestResultSurvivesFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.faults()
	for _, state := range []string{"42501", "42P01", "XX000", "58030", "0A000", "53100", "P0001"} {
		b.process(state)
		claim := b.claim(state)
		must(t, 0, exec(b, "INSERT INTO public.fault VALUES ($1)", state))
		must(t, 0, exec(b, "ALTER SEQUENCE public.tries RESTART"))
		saved := later(func() (storage.Saved, error) { return b.SaveResult(end(claim, storage.Finished, events("a"))) })
		b.until("the result is retried after "+state, func() bool {
			return ask[int](b, "SELECT last_value::int FROM public.tries") > 2
		})
		must(t, 0, exec(b, "DELETE FROM public.fault"))
		_, err := saved()
		must(t, 0, err)
		b.is(state, "RUNNING e1: INIT FINISHED, CALL FINISHED")
	}
	for _, state := range []string{"22003", "23514", "54000"} {
		b.process(state)
		must(t, 0, exec(b, "INSERT INTO public.fault VALUES ($1)", state))
		_, err := b.SaveResult(end(b.claim(state), storage.Finished, events("a")))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != state {
			t.Errorf("a result that violates %s: %v", state, err)
		}
		must(t, 0, exec(b, "DELETE FROM public.fault"))
	}
}

// An event keeps the timestamp that its processor chose, even if it is the beginning of Unix time.
func TestEventsKeepTheirTimestamps(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	epoch := time.Unix(0, 0).UTC()
	at := func(c *storage.Completion) {
		c.Events = []storage.NewEvent{{Timestamp: epoch, Payload: []byte("a")}, {Payload: []byte("b")}}
	}
	b.process("finished")
	_, err := b.SaveResult(end(b.claim("finished"), storage.Finished, at))
	must(t, 0, err)
	b.process("timer")
	_, err = b.SaveResult(end(b.claim("timer"), storage.Finished, at, timer(time.Hour)))
	must(t, 0, err)
	b.process("completed")
	_, err = b.SaveResult(end(b.claim("completed"), storage.Completed, at))
	must(t, 0, err)
	in := storage.Import{Key: key("imported"), Status: process.StatusRunning}
	in.Events = []storage.NewEvent{{Timestamp: epoch, Payload: []byte("a")}, {Payload: []byte("b")}}
	_, err = b.PutProcess(t.Context(), in)
	must(t, 0, err)
	got := ask[string](b, `SELECT string_agg(process_id || ' ' || event_id || CASE WHEN timestamp = 'epoch' THEN ' 1970'
		WHEN timestamp > statement_timestamp() - interval '1 hour' THEN ' now' ELSE ' ' || timestamp::text END, ', '
		  ORDER BY process_id, event_id) FROM events`)
	equal(t, "timestamps", got, "completed 1 1970, completed 2 now, finished 1 1970, finished 2 now, imported 1 "+
		"1970, imported 2 now, timer 1 1970, timer 2 now")
}
