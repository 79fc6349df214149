package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMigrate(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	status := func() (applied int) {
		var states []migration
		if err := json.Unmarshal([]byte(p.OK(t, "migrate", "status", "-o", "json")), &states); err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			if s.AppliedTime != nil {
				applied++
			}
		}
		return applied
	}
	all := status()
	if out := p.OK(t, "migrate", "up"); out !=
		fmt.Sprintf("the schema is up to date: version %d\n", storage.SchemaVersion()) {
		t.Errorf("output = %q", out)
	}
	if r := p.Run(t, "migrate", "down"); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "--yes") {
		t.Errorf("%+v", r)
	}
	if storage.SchemaVersion() > migrations.Base {
		p.OK(t, "migrate", "down", "--yes")
		if n := status(); n != all-1 {
			t.Errorf("%d migrations are applied after a step down from %d", n, all)
		}
	}
	if _, err := storagetest.Connect(t, dsn).Exec(t.Context(), "DROP SCHEMA progressor CASCADE"); err != nil {
		t.Fatal(err)
	}
	if n := status(); n != 0 {
		t.Errorf("%d migrations are applied to an empty database", n)
	}
	clitest.WantLines(t, p.OK(t, "migrate", "status"), "VERSION NAME APPLIED", "not yet")
	r := p.Run(t, "doctor")
	if r.Code != cli.ExitFailed || !strings.Contains(r.Stdout, "Next: progressor migrate up") {
		t.Errorf("%+v", r)
	}
	p.OK(t, "migrate", "up")
	if n := status(); n != all {
		t.Errorf("%d migrations are applied, want %d", n, all)
	}
}

// On the schema of another version, doctor and migrate describe the next step, regardless of what
// the schema contains.
func TestOtherSchemas(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	pool := storagetest.Connect(t, dsn)
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	own := storage.SchemaVersion()
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)")
	clitest.WantLines(t, p.OK(t, "doctor"), "schema version 999 of",
		"but compatible: the invariants were not checked. Next: run the doctor of a newer progressor", "violations: 0")
	if out := p.OK(t, "migrate", "up"); out !=
		fmt.Sprintf("nothing to do: the schema has version 999, newer than this program's %d\n", own) {
		t.Errorf("output = %q", out)
	}
	clitest.WantLines(t, p.OK(t, "migrate", "status"), "999 of a newer progressor")

	exec("CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql AS 'SELECT 998::bigint'")
	exec("ALTER TABLE nodes RENAME COLUMN draining TO stopping")
	for _, tt := range []struct{ args, want string }{
		{"doctor", "cannot work with the schema, which has version 999: the invariants were not checked. Next: run a " +
			"newer progressor"},
		{"doctor", "cannot check the nodes"},
		{"migrate down --yes", "run a newer progressor"},
		{"serve --listen 127.0.0.1:0", "needs a program of schema version 998 or newer"},
	} {
		if r := p.Run(t, strings.Fields(tt.args)...); r.Code != cli.ExitFailed ||
			!strings.Contains(r.Stdout+r.Stderr, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.args, r, tt.want)
		}
	}

	exec("ALTER TABLE nodes RENAME COLUMN stopping TO draining")
	exec("DELETE FROM goose_db_version WHERE version_id = 999")
	for version := own; version > migrations.Base; version = schemaVersionOf(t, p) {
		p.OK(t, "migrate", "down", "--yes")
		older := schemaVersionOf(t, p)
		r := p.Run(t, "doctor")
		if r.Code != cli.ExitFailed ||
			!strings.Contains(r.Stdout,
				fmt.Sprintf(
					"the schema has version %d, this binary needs %d: the invariants were not checked. Next: "+
						"progressor migrate up", older, own)) {
			t.Errorf("doctor on schema %d: %+v", older, r)
		}
	}
	if r := p.Run(t, "migrate", "down", "--yes"); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Stderr, "is the oldest that this program can migrate to") {
		t.Errorf("migrate down from the base: %+v", r)
	}
}

func schemaVersionOf(t *testing.T, p clitest.Program) (version int64) {
	t.Helper()
	var states []migration
	if err := json.Unmarshal([]byte(p.OK(t, "migrate", "status", "-o", "json")), &states); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.AppliedTime != nil {
			version = max(version, s.Version)
		}
	}
	return version
}

func TestMigrateWantsADatabase(t *testing.T) {
	for _, args := range [][]string{{"up"}, {"status", "--db.dsn", "postgres://db:port/x"}} {
		if r := (clitest.Program{Commands: newCommands}).Run(t,
			append([]string{"migrate"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	r := clitest.Program{Commands: newCommands}.Run(t, "migrate", "up", "--db.dsn", "postgres://me:hunter2@127.0.0.1:1/x")
	if r.Code != cli.ExitUnavailable || strings.Contains(r.Stderr, "hunter2") || strings.Contains(r.Stderr, `\n`) {
		t.Errorf("%+v", r)
	}
}
