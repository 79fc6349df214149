package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// newReplicatedBench returns a bench with one lane on a server with a standby.
func newReplicatedBench(t *testing.T) (*bench, *storagetest.Replicated) {
	r := storagetest.NewReplicated(t)
	return &bench{Store: open(t, r.DSN, storage.Config{Lanes: 1}), t: t, dsn: r.DSN, db: storagetest.Connect(t, r.DSN)},
		r
}

const waitsForStandby = `SELECT EXISTS (SELECT FROM pg_stat_activity
	WHERE application_name = 'progressor %s' AND wait_event = 'SyncRep' AND query LIKE '%%%s%%')`

// A result is acknowledged only after the synchronous standby has it, even if the wait of its
// commit was cancelled or its backend was terminated. PostgreSQL keeps such a commit only on the
// primary.
func TestResultIsOnTheStandbyBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, r := newReplicatedBench(t)
			b.process("p")
			claim := b.claim("p")
			r.Synchronous()
			b.process("warm") // commits wait for the standby from now on
			r.CatchUp()
			r.Detach()
			acknowledged := make(chan error, 1)
			go func() {
				_, err := b.SaveResult(end(claim, storage.Finished, events("a")))
				acknowledged <- err
			}()
			r.Await(fmt.Sprintf(waitsForStandby, "lane", ""))
			r.Do("SELECT " + how + `(pid) FROM pg_stat_activity WHERE application_name = 'progressor lane'
				AND wait_event = 'SyncRep'`)
			r.Await(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'progressor lane'
				AND query LIKE '%UPDATE database_generation%' AND wait_event = 'SyncRep')`)
			if len(acknowledged) > 0 {
				t.Fatalf("acknowledged (%v), but the standby does not have it", <-acknowledged)
			}
			r.FailOver()
			select {
			case err := <-acknowledged:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(3 * waitLimit):
				t.Fatal("not acknowledged after the failover")
			}
			b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED")
		})
	}
}

// A write outside the lanes whose wait for the standby is cancelled fails with ErrUnavailable.
func TestWriteThatIsNotReplicatedIsUnavailable(t *testing.T) {
	t.Parallel()
	b, r := newReplicatedBench(t)
	r.Synchronous()
	r.Detach()
	written := later(func() (storage.Namespace, error) {
		return b.PutNamespace(t.Context(), "unreplicated", []byte("{}"))
	})
	r.Await(fmt.Sprintf(waitsForStandby, "general", "namespaces"))
	r.Do(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'progressor general'
		AND wait_event = 'SyncRep'`)
	if _, err := written(); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a namespace that the standby does not have: %v", err)
	}
}

// Sequences that moved backwards, as after a restore of the files, are set beyond the numbers that
// an engine has seen.
func TestNumbersAreNotIssuedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	first := b.claim("p")
	b.RecordNumbers(first.TaskID, first.FencingToken)
	changed := make(chan struct{}, 100)
	b.OnNewGeneration(func() { changed <- struct{}{} })
	ask[int64](b, "SELECT setval('task_ids', 1) + setval('fencing_tokens', 1)")
	ask[int](b, `SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
		WHERE application_name LIKE 'progressor %' AND datname = current_database()`)
	var next storage.Prepared
	for { // the first calls find broken connections
		var err error
		if next, err = b.PrepareInit(newInit("q")); !errors.Is(err, process.ErrUnavailable) {
			must(t, next, err)
			break
		}
	}
	const step = 1_000_000_000_000
	if next.TaskID <= step || next.TaskID > step+100 || next.Claim.FencingToken <= step {
		t.Errorf("task %d and token %d after a jump", next.TaskID, next.Claim.FencingToken)
	}
	if len(changed) == 0 {
		t.Error("OnNewGeneration was not called")
	}
	for _, sequence := range []string{"message_ids", "nodes_node_id_seq", "audit_audit_id_seq"} {
		if last := ask[int64](b, "SELECT pg_sequence_last_value($1::regclass)", sequence); last < step {
			t.Errorf("sequence %s is at %d", sequence, last)
		}
	}
	// The same server with the same numbers has the same generation.
	generation := ask[string](b, "SELECT generation::text FROM database_generation")
	other := open(t, b.dsn, storage.Config{})
	other.RecordNumbers(next.TaskID, next.Claim.FencingToken)
	must(t, 0, other.Ping(t.Context()))
	equal(t, "generation", ask[string](b, "SELECT generation::text FROM database_generation"), generation)
	b.save(end(first, storage.Finished))
	b.save(end(next.Claim, storage.Finished))
}

// A role without write access to the engine's tables can neither move the engine's sequences nor
// merge the index of metadata.
func TestFunctionsForEngines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const role = "reader_of_generations"
	_, err := b.db.Exec(t.Context(), "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA progressor TO "+role)
	must(t, 0, err)
	defer func() {
		_, err := b.db.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		must(t, 0, err)
	}()
	conn, err := pgx.Connect(t.Context(), b.dsn)
	must(t, 0, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SET SESSION AUTHORIZATION "+role)
	must(t, 0, err)
	for _, call := range []string{"confirm_generation(1000000, 1000000)", "merge_metadata_index()"} {
		_, err = conn.Exec(t.Context(), "SELECT progressor."+call)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" || !strings.Contains(pg.Message, "is for roles that") {
			t.Errorf("%s as a role without rights: %v", call, err)
		}
	}
}
