package storage_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/storage/erasure"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const erasedPerson = "person-4711"

// eraseRows erases the rows of a set in all tables, and returns the number of rows of each table.
func (b *bench) eraseRows(e erasure.Set) map[string]int64 {
	b.t.Helper()
	rows := map[string]int64{}
	var progress erasure.Progress
	for ended := false; !ended; {
		batch, err := erasure.EraseRows(b.t.Context(), b.Store, e, &progress, erasure.PageRows)
		must(b.t, batch, err)
		rows[batch.Table] += batch.Rows
		ended = batch.LastOfTables
	}
	return rows
}

// tablesWith returns TABLE:ROWS for each table that has rows with a text, including bytea columns.
func (b *bench) tablesWith(text string) (tables []string) {
	b.t.Helper()
	rows, _ := b.db.Query(b.t.Context(), `
		SELECT c.oid::regclass::text FROM pg_class c
		 WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind IN ('r', 'm') ORDER BY 1`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if must(b.t, names, err); len(names) < 40 {
		b.t.Fatal(names)
	}
	for _, name := range names {
		if n := ask[int](b, "SELECT count(*) FROM "+name+" x WHERE strpos(x::text, $1) > 0 OR strpos(x::text, $2) > 0",
			text, hex.EncodeToString([]byte(text))); n > 0 {
			tables = append(tables, fmt.Sprint(name, ":", n))
		}
	}
	return tables
}

// idColumns returns the columns of a table that have IDs of processes, jobs or runs.
func (b *bench) idColumns(table string) []string {
	b.t.Helper()
	rows, _ := b.db.Query(b.t.Context(), `
		SELECT c.column_name FROM information_schema.columns c
		 WHERE c.table_schema = 'progressor' AND c.table_name = $1
		   AND (c.column_name ~ '(^|_)(process_id|job_id|run_id|subject)$' OR c.column_name IN ('blocked_on', 'child'))
		   AND c.table_name || '.' || c.column_name NOT IN ('messages.sender_process_id', 'messages.child',
		         'schedule.child', 'running.child') -- these rows belong to another process
		 ORDER BY 1`, table)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return must(b.t, columns, err)
}

// After an erasure, no column of any table contains the ID of the process. A new table with such a
// column fails this test until EraseRows knows it.
func TestEraseLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	for _, constraint := range strings.Fields(ask[string](b, `
		SELECT string_agg(format('%s:%s', conrelid::regclass, conname), ' ') FROM pg_constraint
		 WHERE connamespace = 'progressor'::regnamespace AND contype IN ('c', 'f')`)) {
		table, name, _ := strings.Cut(constraint, ":")
		b.exec("ALTER TABLE " + table + " DROP CONSTRAINT IF EXISTS " + name)
	}
	other := map[string]string{}
	sum := func(table string) string {
		return ask[string](b, "SELECT coalesce(md5(string_agg(x::text, ',' ORDER BY x::text)), '') FROM "+table+
			" x WHERE namespace = 'b'")
	}
	tables := append(namespaceTables(b), "audit")
	filled := 0
	for _, table := range tables {
		fillTable(b, table, 2100) // more than a batch
		for n, column := range b.idColumns(table) {
			set, value := column+" = $1", erasedPerson
			if at := slices.Index([]string{"answers", "running", "schedule", "tasks"}, table); at >= 0 {
				set += ", task_id = task_id + " + fmt.Sprint(10_000*(at+1)) // IDs must differ: all become answers
			}
			switch column {
			case "subject":
				set += ", method = 'CancelProcess'"
			case "sender_process_id":
				set += ", sender_namespace = 'a'"
			case "parent_process_id":
				set += ", parent_namespace = 'a'"
			case "child":
				value = `{"namespace": "a", "processId": "` + erasedPerson + `", "response": "c2VjcmV0", "detail": "x"}`
			}
			b.exec(strings.NewReplacer("{table}", table, "{set}", set).Replace(`UPDATE {table} SET {set} WHERE ctid = (
				SELECT ctid FROM {table} WHERE namespace = 'a' ORDER BY ctid DESC OFFSET $2 LIMIT 1)`), value, n)
			filled++
		}
		other[table] = sum(table)
	}
	if filled < 32 {
		t.Fatalf("only %d columns have IDs", filled)
	}
	b.exec(`UPDATE changes SET details = jsonb_build_object('run_id', $1::text)
		WHERE ctid = (SELECT min(ctid) FROM changes_default WHERE namespace = 'a')`, erasedPerson)
	b.exec(`UPDATE audit SET method = 'CancelProcess', details = jsonb_build_object('via', $1::text)
		WHERE audit_id = (SELECT min(audit_id) FROM audit WHERE namespace = 'a')`, erasedPerson)
	ids := []string{erasedPerson, process.FlowPrefix + erasedPerson}
	set := erasure.Set{Namespace: "a", IDs: ids}
	var keys []process.Key
	for _, id := range append(ids, "~job/"+erasedPerson+"/step", "~job/~/"+erasedPerson+"/1") {
		b.exec(`INSERT INTO processes (namespace, process_id, status) VALUES ('a', $1, 'COMPLETED')`, id)
		keys = append(keys, process.Key{Namespace: "a", ProcessID: id})
	}
	found, err := erasure.Processes(t.Context(), b.Store, set)
	equal(t, "processes", len(must(t, found, err)), len(keys))
	must(t, 0, b.RemoveProcesses(t.Context(), keys))
	before := b.tablesWith(erasedPerson)
	dry := b.eraseRows(erasure.Set{Namespace: "a", IDs: ids, DryRun: true})
	equal(t, "tables after a dry run", b.tablesWith(erasedPerson), before)
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	erased := b.eraseRows(set)
	// The removal has sent these messages. In an engine, their delivery would delete them.
	b.exec("DELETE FROM messages WHERE sender_process_id = ANY ($1)", ids)
	equal(t, "tables with the ID", b.tablesWith(erasedPerson), "[]")
	if erased["changes"] != 2 || erased["audit"] != 2 || erased["answers"] == 0 || erased["requests"] != 1 {
		t.Errorf("erased %v", erased)
	}
	equal(t, "the dry run", dry, erased)
	for table, want := range other {
		if sum(table) != want {
			t.Errorf("%s: rows of another namespace have changed", table)
		}
	}
	for table, n := range b.eraseRows(set) {
		if n > 0 {
			t.Errorf("a second erasure finds %d rows of %s", n, table)
		}
	}
}

// Rows of a process that was started again stay, because they may belong to the new process.
func TestEraseLeavesAnExistingProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("parent")
	b.process(erasedPerson)
	b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
		VALUES ($1, $2, $1, 'parent', '')`, ns, erasedPerson)
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson}}
	for n := range 21 { // all tables
		progress := erasure.Progress{Table: n}
		_, err := erasure.EraseRows(t.Context(), b.Store, set, &progress, erasure.PageRows)
		if !errors.Is(err, erasure.ErrExists) || progress.Table != n {
			t.Errorf("table %d: %v", n, err)
		}
	}
	equal(t, "rows of parents", ask[int](b, "SELECT count(*) FROM parents"), 1)
	b.exec("DELETE FROM parents")
	must(t, 0, b.RemoveProcess(t.Context(), key(erasedPerson)))
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	if rows := b.eraseRows(set); rows["answers"] == 0 {
		t.Errorf("erased %v", rows)
	}
}

// A row that another transaction changes during its erasure stays: it may have a new owner.
func TestEraseLeavesChangedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.exec("INSERT INTO job_keys (namespace, unique_key, process_id) VALUES ($1, 'k', $2)", ns, erasedPerson)
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // if the test fails
	_, err = tx.Exec(t.Context(), "UPDATE job_keys SET process_id = 'other'")
	must(t, 0, err)
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	equal(t, "erased rows of job_keys", b.eraseDuring(tx, set)["job_keys"], 0)
	equal(t, "the owner of the key", ask[string](b, "SELECT process_id FROM job_keys"), "other")
}

// eraseDuring commits a transaction when the erasure of a set waits for it, and returns the number
// of erased rows of each table.
func (b *bench) eraseDuring(tx pgx.Tx, set erasure.Set) map[string]int64 {
	b.t.Helper()
	erased := make(chan map[string]int64, 1)
	go func() { erased <- b.eraseRows(set) }()
	b.commitAwaited(tx)
	return <-erased
}

// commitAwaited commits a transaction when another one waits for it.
func (b *bench) commitAwaited(tx pgx.Tx) {
	b.t.Helper()
	for waits, deadline := false, time.Now().Add(waitLimit); !waits; {
		waits = ask[bool](b, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
		if time.Now().After(deadline) {
			b.t.Fatal("no session waits for the transaction")
		}
	}
	must(b.t, 0, tx.Commit(b.t.Context()))
}

// Rows that move to another table during an erasure are also erased: messages that cannot be
// delivered, and changes that a sink has read and that its target rejects.
func TestEraseFollowsMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin, _, err := changes.Now(t.Context(), b.Store, ns)
	must(t, 0, err)
	b.recordIn(ns, "", "LIFECYCLE")
	b.sink("s", begin)
	claimed, err := changes.ClaimSinks(t.Context(), b.Store, time.Minute, 1)
	must(t, 0, err)
	b.process(erasedPerson)
	must(t, 0, b.RemoveProcess(t.Context(), key(erasedPerson)))
	rejected := changes.Change{Kind: "lifecycle", ProcessID: erasedPerson}
	must(t, 0, b.db.QueryRow(t.Context(), `SELECT lane, seq, change_id, "time" FROM changes ORDER BY seq LIMIT 1`).
		Scan(&rejected.Lane, &rejected.Seq, &rejected.ChangeID, &rejected.Time))
	reject := func() error {
		return changes.RejectChanges(t.Context(), b.Store, claimed[0].SinkLease, claimed[0].Cursor, 0,
			[]changes.Rejection{{Change: &rejected, Reason: "HTTP 422"}})
	}
	b.exec("INSERT INTO messages (namespace, process_id, kind, created_time) VALUES ($1, $2, 'cancel', now())",
		ns, erasedPerson)
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	var progress erasure.Progress
	var messageMoved, changeMoved bool
	for ended := false; !ended; {
		batch, err := erasure.EraseRows(t.Context(), b.Store, set, &progress, erasure.PageRows)
		must(t, batch, err)
		ended = batch.LastOfTables
		switch batch.Table { // the rows move after the first of the two tables was erased
		case "messages", "dead_letters":
			if !messageMoved {
				messageMoved = true
				b.deliver(erasedPerson)
			}
		case "changes", "sink_dead_letters":
			if !changeMoved {
				changeMoved = true
				must(t, 0, reject())
			}
		}
	}
	equal(t, "tables with the ID", b.tablesWith(erasedPerson), "[]")
	must(t, 0, reject())
	equal(t, "tables with the ID after a later rejection", b.tablesWith(erasedPerson), "[]")
	equal(t, "dead letters", ask[int](b, "SELECT count(*) FROM sink_dead_letters"), 0)

	tx, err := b.db.Begin(t.Context()) // a rejection during the erasure of the change
	must(t, tx, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // if the test fails
	hash := ask[string](b, "SELECT process_id FROM changes LIMIT 1")
	b.exec("UPDATE changes SET process_id = $1", erasedPerson)
	_, err = tx.Exec(t.Context(), "UPDATE changes SET process_id = $1", hash)
	must(t, 0, err)
	done := make(chan error, 1)
	go func() { done <- reject() }()
	b.commitAwaited(tx)
	must(t, 0, <-done)
	equal(t, "dead letters", ask[int](b, "SELECT count(*) FROM sink_dead_letters"), 0)
}

// Two erasures of an ID at the same time store the same hash in the audit.
func TestConcurrentErasuresKeepTheChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	ada := process.Actor{Name: "ada"}
	for n, id := range []string{erasedPerson, "late"} {
		b.process(id)
		must(t, 0, b.RemoveProcess(t.Context(), key(id), ada))
		if n == 0 {
			b.seal() // the entry of the other ID is erased before it is in the chain
		}
	}
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson, "late"}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, ada, 0))
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // if the test fails
	_, err = tx.Exec(t.Context(), "SELECT erase_audit($1, $2, '', 0, 100, false)", ns, set.IDs)
	must(t, 0, err)
	b.eraseDuring(tx, set)
	b.seal()
	chain := b.verify()
	equal(t, "the chain", fmt.Sprint(chain.Entries, chain.Erased, chain.Waiting, chain.Fault), "4 2 0")
	equal(t, "entries of the IDs", ask[int](b, `SELECT count(*) FROM audit WHERE method = 'RemoveProcess'
		AND subject IN (erased_id('shop', $1), erased_id('shop', 'late'))`, erasedPerson), 2)
}

// The chain remains valid when the IDs of an EraseProcess entry are erased from the audit.
func TestErasedAuditKeepsTheChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	ada := process.Actor{Name: "ada", Source: "10.0.0.1"}
	for _, id := range []string{erasedPerson, "other"} {
		b.process(id)
		must(t, 0, b.RemoveProcess(t.Context(), key(id), ada))
	}
	b.seal()
	b.process("late")
	must(t, 0, b.RemoveProcess(t.Context(), key("late"), ada)) // erased before it is in the chain
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson, "late"}}
	var progress erasure.Progress
	for {
		if _, err := erasure.EraseRows(t.Context(), b.Store, set, &progress, erasure.PageRows); err != nil {
			if !strings.Contains(err.Error(), "the audit has no EraseProcess of these IDs") {
				t.Errorf("without an entry: %v", err)
			}
			break
		}
		if progress.Table == 0 {
			t.Fatal("the audit is erased without an entry")
		}
	}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, ada, 0))
	equal(t, "rows", b.eraseRows(set)["audit"], 2)
	b.seal()
	chain := b.verify()
	equal(t, "the chain", fmt.Sprint(chain.Entries, chain.Erased, chain.Waiting, chain.Fault), "5 2 0")
	equal(t, "the entries", ask[string](b, `SELECT string_agg(concat_ws(' ', actor, source, method,
		CASE WHEN subject ~ '^erased:[0-9a-f]{64}$' THEN 'hash' ELSE subject END), ', ' ORDER BY chain_position)
		FROM audit`),
		"ada 10.0.0.1 RemoveProcess hash, ada 10.0.0.1 RemoveProcess other, ada 10.0.0.1 RemoveProcess hash, "+
			"ada 10.0.0.1 EraseProcess hash, ada 10.0.0.1 EraseProcess hash")
	equal(t, "entries of one ID", ask[int](b, `SELECT count(*) FROM audit
		WHERE subject = erased_id('shop', $1)`, erasedPerson), 2)
	b.exec("UPDATE audit SET subject = 'erased:00' WHERE chain_position = 1")
	if got := b.verify().Fault; !strings.Contains(got, "at position 1 does not match the chain") {
		t.Error(got)
	}
}

// Only a role that may add entries to the audit may erase IDs in it, seal it and delete entries.
func TestEraseAuditNeedsRights(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reader := b.role("USAGE ON SCHEMA progressor", "SELECT ON audit, audit_chain")
	for name, sql := range map[string]string{
		"erase_audit": "SELECT progressor.erase_audit('shop', '{p}', '', 0, 10, true)",
		"seal_audit":  "SELECT progressor.seal_audit(10)", "forget_audit": "SELECT progressor.forget_audit(10)",
	} {
		b.exec(sql) // the owner may
		_, err := reader.Exec(t.Context(), sql)
		if storage.SQLState(err) != "42501" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A caller of erase_audit cannot erase more than the IDs that the audit names.
func TestEraseAuditErasesOnlyTheIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hash := "erased:" + strings.Repeat("0", 64)
	for _, ids := range []string{"{}", "{NULL}", `{""}`, "{p,NULL}", "{" + hash + "}"} {
		_, err := b.db.Exec(t.Context(), "SELECT erase_audit('shop', $1::text::text[], '.*', 0, 10, false)", ids)
		if storage.SQLState(err) != "22023" {
			t.Errorf("%s: %v", ids, err)
		}
	}
	_, err := b.db.Exec(t.Context(), "SELECT erase_audit('shop', NULL, '.*', 0, 10, false)")
	equal(t, "NULL", storage.SQLState(err), "22023")
	for subject, details := range map[string]string{
		"a.b":            `{"reason": "x"}`,
		"axb":            `{"reason": "its owner asked"}`,
		"~job/~/a.b/1":   `{}`,
		"~job/~/axb/1":   `{}`,
		"~job/~/a.b/c/1": `{}`,
		"lists it":       `{"before": {"ids": ["a.b"]}}`,
		"lists a part":   `{"before": {"ids": ["~job/~/a.b/2"]}}`,
		"has a key":      `{"before": {"a.b": 1}}`,
		"mentions it":    `{"reason": "for \"a.b\""}`,
	} {
		b.exec(`INSERT INTO audit (actor, source, method, namespace, subject, details)
			VALUES ('', '', 'CancelProcess', 'shop', $1, $2)`, subject, details)
	}
	must(t, 0, erasure.Record(t.Context(), b.Store, erasure.Set{Namespace: "shop", IDs: []string{"a.b"}},
		process.Actor{Name: "ada"}, 0))
	b.exec("SELECT erase_audit('shop', '{a.b}', '.*', 0, 100, false)")
	equal(t, "the entries that stay", ask[string](b, `SELECT string_agg(subject, ', ' ORDER BY subject) FROM audit
		WHERE details IS NOT NULL AND erased_time IS NULL AND method = 'CancelProcess'`),
		"axb, has a key, mentions it, ~job/~/a.b/c/1, ~job/~/axb/1")
	equal(t, "parts", ask[string](b, "SELECT erased_parts($1)", []string{`~flow/[(a|b)].*+?^$\{1}`, "é-1"}),
		`^(~job/~/~flow/\[\(a\|b\)\]\.\*\+\?\^\$\\\{1\}/[^/]+|~job/\[\(a\|b\)\]\.\*\+\?\^\$\\\{1\}/[^/]+|`+
			`~job/~/~job/\[\(a\|b\)\]\.\*\+\?\^\$\\\{1\}/[^/]+/[^/]+|~job/~/é-1/[^/]+)$`)
}

// The erasure of a job keeps the events and changes of a run with the same ID, and vice versa.
func TestEraseDistinguishesJobsFromRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	b.recordIn(ns, "", "JOB", "RUN", "STEP")
	for _, test := range []struct {
		erased  string
		job     bool // exists
		events  string
		changes string
	}{
		{"~flow/r", true, "enqueued", "job r"},
		{"~flow/r", false, "", ""}, // the event without of_run belongs to a run of an older engine
		{"r", false, "status_changed step_queued step_status_changed",
			"run ~flow/r, step r, step ~flow/r, step ~flow/r"},
	} {
		b.exec("TRUNCATE job_events, changes")
		b.exec(`INSERT INTO job_events (namespace, job_id, of_run, step_id, type)
			VALUES ($1, 'r', true, 'pay', 'step_status_changed'), ($1, 'r', true, NULL, 'status_changed'),
			       ($1, 'r', NULL, 'pay', 'step_queued'), ($1, 'r', NULL, NULL, 'enqueued')`, ns)
		b.exec(`INSERT INTO changes SELECT (jsonb_populate_record(c, jsonb_build_object('process_id', 'r',
			'seq', c.seq + 1000))).* FROM changes c WHERE kind = 'step' LIMIT 1`) // as an older trigger wrote it
		if test.job {
			b.exec("INSERT INTO processes (namespace, process_id, kind, status) VALUES ($1, 'r', 'job', 'RUNNING')", ns)
		}
		set := erasure.Set{Namespace: ns, IDs: []string{test.erased}}
		must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
		b.eraseRows(set)
		equal(t, "events after the erasure of "+test.erased, ask[string](b,
			"SELECT coalesce(string_agg(type, ' ' ORDER BY type), '') FROM job_events"), test.events)
		equal(t, "changes after the erasure of "+test.erased, ask[string](b,
			`SELECT coalesce(string_agg(kind || ' ' || process_id, ', ' ORDER BY kind, process_id), '') FROM changes
			WHERE process_id !~ '^erased:'`), test.changes)
		b.exec("DELETE FROM processes")
	}
}

// An erasure does not change entries about settings, whose subjects and details may contain the
// same text as an ID. So it cannot hide a change of settings.
func TestEraseAuditErasesOnlyProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	statements, err := os.ReadFile("../sql/audit.sql")
	must(t, statements, err)
	processes := []string{"Repair", "PutProcess"}
	for _, method := range regexp.MustCompile(`WHEN '(\w+)'`).FindAllSubmatch(statements, -1) {
		if name := string(method[1]); name != "StartBulk" { // has the filter of a bulk, but no ID
			processes = append(processes, name)
		}
	}
	settings := []string{
		"PutNamespace", "DeleteNamespace", "PutSink", "PutTemplate", "PutConstraint", "PauseJobs", "StopWorker",
		"CreateCron", "StartBulk", "EraseProcess", "AddedLater",
	}
	for _, method := range slices.Concat(processes, settings) {
		b.exec(`INSERT INTO audit (actor, source, method, namespace, subject, details)
			VALUES ('', '', $1, 'shop', 'shop', '{}'), ('', '', $1, 'shop', 'x', '{"before": {"url": "shop"}}')`,
			method)
	}
	set := erasure.Set{Namespace: "shop", IDs: []string{"shop"}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	set.DryRun = true
	equal(t, "counted", b.eraseRows(set)["audit"], 2*len(processes))
	set.DryRun = false
	equal(t, "erased", b.eraseRows(set)["audit"], 2*len(processes))
	for _, method := range slices.Concat(processes, settings) {
		want := 2
		if slices.Contains(settings, method) {
			want = 0
		}
		equal(t, "erased entries of "+method,
			ask[int](b, "SELECT count(*) FROM audit WHERE method = $1 AND erased_time IS NOT NULL", method), want)
	}
}

// Erasing the ID of a run in a fire does not record another change of the fire, so sinks do not
// deliver it again.
func TestEraseRecordsNoFire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recordIn(ns, "", "FIRE")
	b.exec(`INSERT INTO cron_fires (namespace, cron_id, fire_time, decision, attempt, status, decided_time,
		started_time, process_id) VALUES ($1, 'c', '2026-01-01Z', 'FIRED', 1, 'RUNNING', now(), now(), $2)`,
		ns, erasedPerson)
	b.exec("UPDATE cron_fires SET status = 'FAILED', ended_time = now()")
	equal(t, "changes", ask[int](b, "SELECT count(*) FROM changes"), 2)
	set := erasure.Set{Namespace: ns, IDs: []string{erasedPerson}}
	must(t, 0, erasure.Record(t.Context(), b.Store, set, process.Actor{Name: "ada"}, 0))
	equal(t, "erased fires", b.eraseRows(set)["cron_fires"], 1)
	equal(t, "changes", ask[int](b, "SELECT count(*) FROM changes"), 2)
}
