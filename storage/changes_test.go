package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// record makes the namespace record changes of some kinds, with payloads.
func (b *bench) record(kinds ...string) {
	b.t.Helper()
	b.recordIn(ns, "", kinds...)
}

// recordIn is like record, for any namespace. more contains further members of the JSON object
// changes, each after a comma.
func (b *bench) recordIn(namespace, more string, kinds ...string) {
	b.t.Helper()
	list := `"CHANGE_KIND_` + strings.Join(kinds, `", "CHANGE_KIND_`) + `"`
	config := `{"changes": {"payloads": true, "kinds": [` + list + `]` + more + `}}`
	_, err := changes.PutNamespace(b.t.Context(), b.Store, namespace, always(config))
	must(b.t, 0, err)
}

// always returns a function for PutNamespace that ignores the stored configuration and returns
// config.
func always(config string) func(json.RawMessage) (json.RawMessage, error) {
	return func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(config), nil }
}

// recorded returns the changes of all processes in the order of their numbers: process ID, type,
// number and payload of an event, and reason.
func (b *bench) recorded() string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(concat_ws(' ', process_id, type, event_id, convert_from(payload,
		'UTF8'), '(' || reason || ')'), ', '
		ORDER BY change_id), '') FROM changes`)
}

// Every event is recorded, and every command and result that changes the status of a process. The
// changes of a process are recorded in the order in which they happen.
func TestChangesOfProcesses(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"fast path", "general"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.record("EVENT", "LIFECYCLE")
			if way == "general" {
				b.Store = open(t, b.dsn, storage.Config{}).WithGeneralStatements()
			}
			expect := func(what, want string) {
				t.Helper()
				equal(t, what, b.recorded(), want)
				b.exec("TRUNCATE changes, change_heads")
			}
			b.process("p", events("a", "b"))
			expect("start", "p created, p stored 1 a, p stored 2 b")
			b.save(end(b.claim("p"), storage.Finished, events("c")))
			expect("call", "p stored 3 c")
			b.save(end(b.claim("p"), storage.Finished))
			expect("call without events", "")
			b.suspend("p")
			b.resume("p")
			expect("suspend and resume", "p suspended (a reason), p resumed")
			b.save(end(b.claim("p"), storage.Failed, broken("out of stock")))
			expect("failure", "p failed (out of stock)")
			b.simpleRepair("p")
			expect("simple repair", "p repaired")
			b.save(end(b.claim("p"), storage.Failed, broken("out of stock")))
			b.save(end(b.repair("p").Claim, storage.Finished, events("d")))
			expect("repair by the processor", "p failed (out of stock), p repaired, p stored 4 d")
			fenced := end(b.claim("p"), storage.Completed, events("e"))
			fenced.FencingToken++
			if _, err := b.SaveResult(fenced); !errors.Is(err, process.ErrFenced) {
				t.Errorf("a late result: %v", err)
			}
			expect("late result", "")
			fenced.FencingToken--
			b.save(fenced)
			expect("completion", "p stored 5 e, p completed")
			b.remove("p")
			expect("removal", "p removed")
			b.process("c")
			b.cancelFor("c", 0)
			must(t, true, second(b.EndOverdueCancel(key("c"))))
			expect("cancel", "c created, c cancelled (no more)")
			b.save(end(b.start("r"), storage.Removed))
			expect("rejected start", "r created, r removed")
		})
	}
}

// One statement may change processes of several namespaces. Only the kinds that each namespace
// records are recorded for it.
func TestChangesOfSeveralNamespaces(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants()) // the statements below do not update status_counts
	b.recordIn("a", "", "EVENT")
	b.recordIn("b", "", "EVENT", "LIFECYCLE")
	b.exec("INSERT INTO processes (namespace, process_id) VALUES ('a', 'p'), ('b', 'p'), ('silent', 'p')")
	b.exec("DELETE FROM changes")
	for n, status := range []string{"RUNNING", "RUNNING", "SUSPENDED"} {
		b.exec(`WITH stored AS (
			INSERT INTO events (namespace, process_id, event_id, task_id, "timestamp", payload)
			SELECT namespace, 'p', $1, 0, now(), '' FROM unnest(ARRAY['a', 'b', 'silent']) namespace)
			UPDATE processes SET last_event_id = $1, status = $2::text::process_status`, n+1, status)
	}
	for namespace, want := range map[string]string{
		"a": "stored 1, stored 2, stored 3", "b": "stored 1, stored 2, stored 3, suspended", "silent": "",
	} {
		equal(t, "changes of "+namespace, ask[string](b,
			`SELECT coalesce(string_agg(concat_ws(' ', type, event_id), ', ' ORDER BY change_id), '')
			FROM changes WHERE namespace = $1`, namespace), want)
	}
}

// Changes that neither a result nor a command causes are also recorded: starts by messages,
// imports, events of jobs, and removals after the retention.
func TestChangesOfOtherWriters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.record("EVENT", "LIFECYCLE", "JOB")
	b.process("parent")
	b.save(end(b.claim("parent"), storage.Finished, withMessages(startOf("child"))))
	b.deliver("child")
	equal(t, "started by a message", b.recorded(), "parent created, child created")
	b.exec("TRUNCATE changes, change_heads")
	_, err := b.PutProcess(t.Context(), storage.Import{
		Key: key("old"), Status: process.StatusRunning,
		Events: []storage.NewEvent{{Payload: []byte("a")}, {Payload: []byte("b")}},
	})
	must(t, 0, err)
	equal(t, "imported", b.recorded(), "old created, old stored 1 a, old stored 2 b")
	b.exec("TRUNCATE changes, change_heads")
	b.enqueue("j")
	b.leased("j")
	equal(t, "job", b.recorded(), "j enqueued, j started")
	b.exec("TRUNCATE changes, change_heads")
	b.process("done")
	b.save(end(b.claim("done"), storage.Completed))
	b.exec("TRUNCATE changes, change_heads")
	b.exec(`UPDATE processes SET attention_time = now() - interval '2 hours',
		status_changed_time = now() - interval '2 hours' WHERE process_id = 'done'`)
	equal(t, "expired", must(t, map[string]int{},
		second(b.Expire(t.Context(), map[string]storage.Retention{ns: {Completed: time.Hour}}))) != nil, true)
	equal(t, "expired", b.recorded(), "done removed")
}

// Changes of a kind are recorded only in namespaces that record this kind, and payloads only in
// namespaces that record payloads.
func TestChangesOfKinds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recordIn("shop", "", "RUN")
	b.recordIn("other", "", "STEP", "FIRE")
	for _, namespace := range []string{"shop", "other", "silent"} {
		b.exec(`INSERT INTO job_events (namespace, job_id, of_run, step_id, index, type, from_status, to_status,
			attempt, message)
			VALUES ($1, 'r', true, 'pay', 2, 'step_status_changed', 'pending', 'running', 1, 'go'),
			       ($1, 'r', true, NULL, NULL, 'status_changed', 'running', 'succeeded', 0, NULL),
			       ($1, 'r', NULL, 'pay', NULL, 'step_queued', NULL, NULL, 1, NULL), -- by an older engine
			       ($1, 'r', NULL, NULL, NULL, 'enqueued', NULL, 'available', 0, NULL)`, namespace)
		b.exec(`INSERT INTO cron_fires (namespace, cron_id, fire_time, decision, attempt, status, decided_time,
			started_time, process_id)
			VALUES ($1, 'c', '2026-01-01Z', 'FIRED', 1, 'RUNNING', now(), now(), 'x')`, namespace)
		b.exec("UPDATE cron_fires SET status = 'FAILED', ended_time = now(), detail = 'boom' WHERE namespace = $1",
			namespace)
	}
	equal(t, "changes", ask[string](b,
		`SELECT string_agg(concat_ws(' ', namespace, kind, process_id, type, from_status, to_status, reason, details),
		'; ' ORDER BY change_id)
		FROM changes`), `shop run ~flow/r status_changed running succeeded; `+
		`other step ~flow/r step_status_changed pending running go {"index": 2, "attempt": 1, "step_id": "pay"}; `+
		`other step ~flow/r step_queued {"attempt": 1, "step_id": "pay"}; `+
		`other fire ~cron/c fired RUNNING {"run_id": "x", "attempt": 1, "fire_time": "2026-01-01T00:00:00+00:00"}; `+
		`other fire ~cron/c fired FAILED boom {"run_id": "x", "attempt": 1, "fire_time": "2026-01-01T00:00:00+00:00"}`)
	must(t, storage.Namespace{}, second(changes.PutNamespace(t.Context(), b.Store, "shop",
		always(`{"changes": {"kinds": ["CHANGE_KIND_EVENT"]}}`))))
	b.process("p", events("secret"))
	equal(t, "without payloads", b.recorded()[len(b.recorded())-len("p stored 1"):], "p stored 1")
}

// The triggers exist only while at least one namespace records, so recording costs nothing in other
// databases.
func TestNoTriggersWithoutRecording(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const triggers = `SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgname <> 'job_events_lane'
		AND tgrelid IN ('processes'::regclass, 'events'::regclass, 'job_events'::regclass, 'cron_fires'::regclass)`
	equal(t, "before", ask[int](b, triggers), 0)
	b.recordIn("a", "", "EVENT")
	b.recordIn("b", "", "LIFECYCLE")
	equal(t, "while two namespaces record", ask[int](b, triggers), 5)
	b.namespace("a")
	must(t, 0, changes.Maintain(t.Context(), b.Store))
	equal(t, "while one namespace records", ask[int](b, triggers), 5)
	b.namespace("b")
	must(t, 0, changes.Maintain(t.Context(), b.Store))
	equal(t, "after", ask[int](b, triggers), 0)
	_, err := b.PutNamespace(t.Context(), "b", []byte(`{"changes": {"kinds": ["CHANGE_KIND_EVENT"]}}`))
	if err == nil || !strings.Contains(err.Error(), "before start_recording") {
		t.Errorf("a namespace that records without triggers: %v", err)
	}
}

// If a namespace starts to record while another node drops the triggers, the missing triggers are
// created again. The test drops one trigger to create this situation.
func TestRecordingStartsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.record("EVENT")
	b.namespace(ns)
	b.exec("DROP TRIGGER job_events_change ON job_events")
	b.record("EVENT", "JOB")
	b.enqueue("j")
	equal(t, "changes", b.recorded(), "j enqueued")
}

// A long transaction that does not write to the engine's tables does not delay recording. If a
// transaction has locked a lane, other transactions use another lane. If a transaction has locked a
// table whose triggers are missing, PutNamespace waits for the transaction.
func TestChangesWithLongTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.foreign("SELECT pg_current_xact_id()")
	release := b.foreign("LOCK TABLE cron_fires IN ROW EXCLUSIVE MODE")
	started := make(chan error, 1)
	go func() {
		_, err := changes.PutNamespace(context.Background(), b.Store, ns,
			always(`{"changes": {"kinds": ["CHANGE_KIND_LIFECYCLE"]}}`))
		started <- err
	}()
	b.until("start_recording has waited", func() bool {
		return ask[bool](b, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
			AND relation = 'cron_fires'::regclass)`)
	})
	release()
	must(t, 0, <-started)
	b.process("p")
	b.foreign("SELECT take_change_lane('shop')")
	b.process("q")
	equal(t, "lanes", ask[string](b,
		`SELECT string_agg(concat_ws(' ', process_id, type, lane, seq), ', ' ORDER BY change_id) FROM changes`),
		"p created 1 1, q created 2 1")
}

// When the longest retention of all namespaces is over, Maintain deletes changes in whole days,
// from the beginning of each lane. The numbers of later changes continue after those that were
// deleted.
func TestOldChangesAreDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recordIn("shop", `, "retention": "86400s"`, "LIFECYCLE")
	b.recordIn("other", `, "retention": "259200s"`, "LIFECYCLE")
	b.process("p")
	b.exec("SELECT add_change_partition((now() AT TIME ZONE 'UTC')::date - n) FROM (VALUES (10), (4), (2)) d(n)")
	b.exec("DELETE FROM changes")
	b.exec(`INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id)
		SELECT 'shop', h.lane, row_number() OVER (ORDER BY d.n DESC), -d.n, now() - d.n * interval '1 day', 'lifecycle',
		  'created', 'p'
		  FROM change_heads h, (VALUES (10), (7), (4), (2)) d(n) WHERE h.namespace = 'shop'`) // 7 is in changes_default
	must(t, 0, changes.Maintain(t.Context(), b.Store))
	equal(t, "kept", ask[string](b, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM changes"), "4")
	equal(t, "deleted", ask[string](b, "SELECT string_agg(concat_ws(' ', namespace, seq), ', ') FROM change_drops"),
		"shop 3")
	b.recordIn("other", `, "retention": "3600s"`, "LIFECYCLE")
	must(t, 0, changes.Maintain(t.Context(), b.Store))
	// There are partitions for three days, and changes_default.
	equal(t, "partitions", ask[int](b, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'changes'::regclass"), 4)
	b.process("q")
	equal(t, "numbers", ask[string](b, "SELECT string_agg(concat_ws(' ', process_id, seq), ', ') FROM changes"), "q 5")
}

// Under load from several nodes, each event is recorded once, the changes of each lane are numbered
// without gaps (an invariant), and the changes of a process are in order.
func TestChangesUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.record("EVENT", "LIFECYCLE")
	b.foreign("SELECT pg_current_xact_id()")
	stores := []*storage.Store{b.Store, open(t, b.dsn, storage.Config{}), open(t, b.dsn, storage.Config{})}
	const processes, calls = 12, 20
	for n := range processes {
		b.process(fmt.Sprintf("p%d", n))
	}
	all(processes, func(n int) {
		for i := range calls {
			s, id := stores[(n+i)%len(stores)], fmt.Sprintf("p%d", n)
			p, err := s.PrepareCall(call(id))
			if err != nil || p.Claim == nil {
				t.Error(p, err)
				return
			}
			outcome := storage.Finished
			if i == calls-1 {
				outcome = storage.Completed
			}
			if _, err := s.SaveResult(end(p.Claim, outcome, events("e"))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	equal(t, "changes", ask[int](b, "SELECT count(*) FROM changes"), processes*(calls+2))
	equal(t, "processes whose changes are not in order", ask[int](b, `SELECT count(*) FROM (
		SELECT string_agg(coalesce(event_id::text, type), ' ' ORDER BY change_id) AS got FROM changes
		  GROUP BY process_id) p
		WHERE got <> (SELECT 'created ' || string_agg(n::text, ' ' ORDER BY n) || ' completed'
		FROM generate_series(1, $1) n)`, calls), 0)
	// Each flush may use two lanes of changes.
	if lanes := ask[int](b, "SELECT count(*) FROM change_heads"); lanes > 3*2*2 {
		t.Errorf("%d lanes for 3 stores", lanes)
	}
}

// Recording fails in a transaction that does not use READ COMMITTED, because the transaction could
// assign a number of a lane twice.
func TestChangesNeedReadCommitted(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	b.record("LIFECYCLE")
	err := pgx.BeginTxFunc(t.Context(), b.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO processes (namespace, process_id) VALUES ('shop', 'p')")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "READ COMMITTED") {
		t.Errorf("a REPEATABLE READ transaction: %v", err)
	}
}
