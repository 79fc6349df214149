package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Erase removes the ID and the payload of a process from every table. After a restore, it repeats
// the erasures that a file records.
func TestErase(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": dsn}, "serve", "--listen", "127.0.0.1:0")
	p := d.Client
	pool := storagetest.Connect(t, dsn)
	const id, secret = "person-4711", "s3cretpayload"
	tables := func(text string) (found []string) {
		t.Helper()
		rows, err := pool.Query(t.Context(), `
			SELECT c.oid::regclass::text FROM pg_class c
			 WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind = 'r' ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		for _, name := range names {
			var n int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+
				" x WHERE strpos(x::text, $1) > 0 OR strpos(x::text, $2) > 0", text,
				hex.EncodeToString([]byte(text))).Scan(&n); err != nil {
				t.Fatal(name, err)
			}
			if n > 0 {
				found = append(found, name)
			}
		}
		return found
	}
	p.OK(t, "namespace", "put", "echo", "--builtin", "echo", "--changes", "event,lifecycle", "--change-payloads")
	invalid := filepath.Join(t.TempDir(), "invalid")
	if err := os.WriteFile(invalid, []byte("echo p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func() {
		t.Helper()
		p.OK(t, "start", "echo", id, "--args", `"`+secret+`"`, "--idempotency-key", "k1")
		p.OK(t, "call", "echo", id, "--args", `"`+secret+`"`, "--idempotency-key", "k2")
	}
	begin()
	record := filepath.Join(t.TempDir(), "erasures.jsonl")
	if r := p.Run(t, "erase", "echo", id, "--record", record); r.Code == 0 || !strings.Contains(r.Stderr,
		"is RUNNING: only a process that has ended or is suspended can be erased: cancel or suspend it first") {
		t.Errorf("a running process: %+v", r)
	}
	execute := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	execute(`INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, process_id)
		VALUES ('echo', 'boss', 'ask', -1, 0, 'succeeded', $1)`, id)
	if r := p.Run(t, "erase", "echo", "~flow/boss", "--children", "--record", record); r.Code == 0 ||
		!strings.Contains(r.Stderr, id+" is RUNNING") {
		t.Errorf("a run with a running child: %+v", r)
	}
	execute("DELETE FROM flow_steps")
	if _, err := os.Stat(record); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an erasure that was rejected is recorded: %v", err)
	}
	p.OK(t, "cancel", "echo", id, "--grace", "0s", "--reason", secret)
	found := strings.Join(tables(id), " ")
	for _, table := range []string{"changes", "requests", "audit"} {
		if !strings.Contains(found, table) {
			t.Fatalf("table %s does not have the ID, only %s", table, found)
		}
	}
	before := tables(secret)
	dry := p.OK(t, "erase", "echo", id, "--dry-run", "-o", "json")
	if after := tables(secret); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("a dry run: %v, then %v", before, after)
	}
	var counted struct{ Rows map[string]string }
	if err := json.Unmarshal([]byte(dry), &counted); err != nil || counted.Rows["processes"] != "1" ||
		counted.Rows["requests"] != "2" {
		t.Errorf("%v: %s", err, dry)
	}
	clitest.WantLines(t, p.OK(t, "erase", "echo", id, "--record", record), "TABLE ERASED", "processes 1", "requests 2")
	for _, text := range []string{id, secret} {
		if found := tables(text); len(found) > 0 {
			t.Errorf("%v still have %s", found, text)
		}
	}
	clitest.WantLines(t, p.OK(t, "audit", "echo"), "EraseProcess", "CancelProcess echo erased:")
	begin()
	p.OK(t, "cancel", "echo", id, "--grace", "0s")
	if r := p.Run(t, "erase", "--replay", record); r.Code == 0 || !strings.Contains(r.Stderr, "it was created at ") {
		t.Errorf("a new process with the ID of an erased one: %+v", r)
	}
	p.OK(t, "remove", "echo", id) // as if a backup was restored
	clitest.WantLines(t, p.OK(t, "erase", "--replay", record), "requests 2")
	for _, text := range []string{id, secret} {
		if found := tables(text); len(found) > 0 {
			t.Errorf("after the replay, %v still have %s", found, text)
		}
	}
	clitest.WantLines(t, p.OK(t, "erase", "echo", "never-there"), "none")
	for _, args := range [][]string{
		{"erase", "echo"}, {"erase", "echo", "x", "--replay", record}, {"erase", "--replay", invalid},
		{"erase", "echo", "~cron/x"}, {"erase", "echo", "erased:" + strings.Repeat("0", 64)},
		{"erase", "echo", "x", "--dry-run", "--record", record},
	} {
		if r := p.Run(t, args...); r.Code != cli.ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	d.Stop(t)
}
