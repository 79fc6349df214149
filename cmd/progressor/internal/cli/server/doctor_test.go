package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestDoctorOnAHealthyDatabase(t *testing.T) {
	dsn := storagetest.DSN(t)
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	out := p.OK(t, "doctor")
	clitest.WantLines(t, out, "PostgreSQL", fmt.Sprintf("schema version %[1]d of %[1]d", storage.SchemaVersion()),
		"INVARIANT", "processes", "violations: 0")
	var found examination
	if err := json.Unmarshal([]byte(p.OK(t, "doctor", "-o", "json")), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Invariants) == 0 || len(found.Tables) == 0 || found.Schema.Version != found.Schema.Newest {
		t.Errorf("examination = %+v", found)
	}
	// The server of the tests does not sync to disk, and doctor reports this.
	if !slices.ContainsFunc(found.Warnings, func(f finding) bool { return strings.HasPrefix(f.What, "fsync is off") }) {
		t.Errorf("warnings = %+v", found.Warnings)
	}
}

func TestDoctorFindsProblems(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	pool := storagetest.Connect(t, dsn)
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context())
	for _, sql := range []string{
		`DROP INDEX progressor.schedule_time`,
		`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'progressor.schedule_rounds'::regclass`,
		`INSERT INTO progressor.processes (namespace, process_id, status, last_event_id) VALUES ('n', 'p', ` +
			`'RUNNING', 3)`,
		`INSERT INTO progressor.nodes (address, version) VALUES ('here:1', 'v1')`,
		`INSERT INTO progressor.nodes (address, version, max_connections) VALUES ('there:1', 'v2', 100000)`,
		`INSERT INTO progressor.schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		 SELECT 'n', 'p', nextval('progressor.task_ids'), 'NOTIFY', 'process', now() FROM generate_series(1, 10001)`,
		`INSERT INTO progressor.messages (namespace, process_id, kind, created_time) VALUES ('n', 'q', 'notify', ` +
			`now() - interval '5 minutes')`,
		`INSERT INTO progressor.requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
		 VALUES (gen_random_uuid(), 'n', 'p', 0, '\x00', now() - interval '27 hours')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if _, err := held.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	r := p.Run(t, "doctor", "--long-transaction", "0s")
	if r.Code != cli.ExitFailed || !strings.HasPrefix(r.Stderr, "progressor: doctor found ") {
		t.Fatalf("code %d: %s", r.Code, r.Stderr)
	}
	clitest.WantLines(t, r.Stdout, "index schedule_time is missing", "index schedule_rounds is invalid. Next: REINDEX",
		": n/p: ",
		" s: it holds back vacuum", "held by backend", "here:1 v1",
		"2 nodes may open 100019 connections together, but PostgreSQL accepts ", "lower --db.scan-conns",
		"10001 tasks wait in process n/p. Next: progressor explain n p",
		"process n/q has 1 message waiting for delivery; the oldest has waited for 30",
		"the oldest idempotency key has been kept for 3 h beyond its retention")
}

func TestExpectedIndexes(t *testing.T) {
	names, err := expectedIndexes(migrations.Base)
	if err != nil || !slices.Contains(names, "processes_created") || slices.Contains(names, "processes") {
		t.Errorf("indexes = %q, %v", names, err)
	}
}

func TestFrozenLate(t *testing.T) {
	for f, late := range map[frozen]bool{
		{Age: 200_000_000, MaxAge: 200_000_000}:     false,
		{Age: 250_000_001, MaxAge: 200_000_000}:     true,
		{Age: 1_500_000_000, MaxAge: 1_900_000_000}: false,
		{Age: 1_600_000_001, MaxAge: 1_900_000_000}: true,
	} {
		if f.late() != late {
			t.Errorf("%+v: late is %t", f, f.late())
		}
	}
}

func TestDoctorFindsFailingRuns(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	pool := storagetest.Connect(t, dsn)
	for _, sql := range []string{
		`INSERT INTO progressor.namespaces (namespace, config) VALUES ('n', '{}')`,
		`INSERT INTO progressor.schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, attempt)
		 SELECT 'n', id, 7, 'NOTIFY', 'time', now(), 8
		   FROM unnest(ARRAY['~flow/r 1', '~cron/nightly', '~bulk/b', '~run/x']) id`,
		`INSERT INTO progressor.failed_attempts (namespace, process_id, task_id, attempt, reason, message,
		  node_id, running_time,
		   failed_time, first_scheduled_time)
		 SELECT namespace, process_id, 7, 8, 'exception', 'no such table', 1, now(), now() - interval '125 s',
		   now() FROM progressor.schedule`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	// The report comes up to a minute after the rows were written.
	out := regexp.MustCompile(`for 1[2-8]\d s`).ReplaceAllString(p.Run(t, "doctor").Stdout, "for 125 s")
	for object, id := range map[string]string{
		"run n/r 1": "'~flow/r 1'", "cron n/nightly": "'~cron/nightly'", "bulk operation n/b": "'~bulk/b'",
		"run of a cron n/x": "'~run/x'",
	} {
		clitest.WantLines(t, out,
			"- "+object+" has made no progress for 125 s: attempt 8 of its task 7 (NOTIFY) failed: exception: no "+
				"such table. Next: progressor explain n "+id+"; look for the error")
	}
}

// The age of the oldest xmin is printed in the singular or the plural.
func TestXminHolder(t *testing.T) {
	for want, holder := range map[string]*xminHolder{
		"not held": nil,
		"1 transaction old, held by backend pid 7": {Age: 1, Kind: "backend", Who: "pid 7"},
		"2 transactions old, held by slot s":       {Age: 2, Kind: "slot", Who: "s"},
	} {
		if got := holder.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
