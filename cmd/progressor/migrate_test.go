package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

func TestMigrate(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	p := program{env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	status := func() (applied int) {
		var states []migration
		if err := json.Unmarshal([]byte(p.ok(t, "migrate", "status", "-o", "json")), &states); err != nil {
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
	if out := p.ok(t, "migrate", "up"); out != fmt.Sprintf("the schema is up to date: version %d\n", all) {
		t.Errorf("output = %q", out)
	}
	if r := p.run(t, "migrate", "down"); r.code != exitUsage || !strings.Contains(r.stderr, "--yes") {
		t.Errorf("%+v", r)
	}
	p.ok(t, "migrate", "down", "--yes")
	if n := status(); n != all-1 {
		t.Errorf("%d migrations are applied after a step down from %d", n, all)
	}
	wantLines(t, p.ok(t, "migrate", "status"), "VERSION NAME APPLIED", "not yet")
	r := p.run(t, "doctor")
	if r.code != exitFailed || !strings.Contains(r.stdout, "Next: progressor migrate up") {
		t.Errorf("%+v", r)
	}
	p.ok(t, "migrate", "up")
	if n := status(); n != all {
		t.Errorf("%d migrations are applied, want %d", n, all)
	}
}

func TestMigrateWantsADatabase(t *testing.T) {
	for _, args := range [][]string{{"up"}, {"status", "--db.dsn", "postgres://db:port/x"}} {
		if r := (program{}).run(t, append([]string{"migrate"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	r := program{}.run(t, "migrate", "up", "--db.dsn", "postgres://me:hunter2@127.0.0.1:1/x")
	if r.code != exitUnavailable || strings.Contains(r.stderr, "hunter2") {
		t.Errorf("%+v", r)
	}
}
