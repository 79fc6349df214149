package tidy

import (
	"slices"
	"testing"
)

func TestPortable(t *testing.T) {
	found, err := usedFeatures(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range portability(found, exceptions) {
		t.Error(violation)
	}
}

// Each exception has a reason and lists statements.
func TestExceptionsHaveReasons(t *testing.T) {
	for _, e := range exceptions {
		if e.reason == "" || len(e.statements) == 0 {
			t.Errorf("%s: an exception needs a reason and statements", e.feature)
		}
	}
}

func TestPortableCatches(t *testing.T) {
	const function = "CREATE FUNCTION f(a text) RETURNS void LANGUAGE plpgsql AS $fn$ BEGIN\n" +
		"  PERFORM pg_notify('a', '');\nEND $fn$;\n"
	for _, tt := range []struct{ name, file, content, want string }{
		{"row version", "sql/a.sql", "-- name: A :one\nSELECT p.xmin FROM processes p;\n", "A uses xmin and xmax"},
		{"second statement", "sql/a.sql", "-- name: A :one\nSELECT 1;\n-- B is next.\n-- name: B :exec\n" +
			"DELETE FROM t WHERE ctid = $1;\n", "B uses ctid"},
		{"upper case", "sql/a.sql", "-- name: A :one\nSELECT T.CTID FROM t;\n", "A uses ctid"},
		{"quoted", "sql/a.sql", "-- name: A :one\nSELECT \"xmax\" FROM t;\n", "A uses xmin and xmax"},
		{"after a string", "sql/a.sql", "-- name: A :one\nSELECT 'it''s', E'\\'', ctid FROM t;\n", "A uses ctid"},
		{"after a comment", "sql/a.sql", "-- name: A :one\nSELECT /* ' */ ctid FROM t;\n", "A uses ctid"},
		{"transaction ID", "sql/a.sql", "-- name: A :one\nSELECT pg_current_xact_id();\n", "A uses transaction IDs"},
		{"cast", "sql/a.sql", "-- name: A :one\nSELECT @a::xid8;\n", "A uses transaction IDs"},
		{"snapshot", "sql/a.sql", "-- name: A :one\nSELECT pg_current_snapshot();\n", "A uses transaction IDs"},
		{"advisory lock", "sql/a.sql", "-- name: A :one\nSELECT pg_try_advisory_lock(1);\n", "A uses advisory locks"},
		{"notice", "sql/a.sql", "-- name: A :exec\nSELECT pg_notify('a', '');\n", "A uses LISTEN and NOTIFY"},
		{"notice of a session", "sql/a.sql", "-- name: A :exec\nNOTIFY a;\n", "A uses LISTEN and NOTIFY"},
		{"function", "migrations/1.sql", function, "function f uses LISTEN and NOTIFY"},
		{"function of a block", "migrations/1.sql", "DO $$ BEGIN\n DROP FUNCTION f;\n " + function + " END $$;\n",
			"function f uses LISTEN and NOTIFY"},
		{"default", "migrations/1.sql", "CREATE TABLE IF NOT EXISTS t (a xid8 DEFAULT 1);\n",
			"table t uses transaction IDs"},
		{"change of a table", "migrations/1.sql", "ALTER TABLE t ADD a xid8;\n",
			"migrations/1.sql uses transaction IDs"},
		{"statement in Go", "engine/a.go", "package a\n\nfunc F() { q(`SELECT xmin FROM t`) }\n",
			"engine/a.go F uses xmin and xmax"},
		{"part of a statement in Go", "engine/a.go", "package a\n\nconst B = \" AND ctid = 1\"\n",
			"engine/a.go B uses ctid"},
		{"LISTEN in Go", "storage/a.go", "package a\n\nvar c = \"LISTEN \" + d\n", "storage/a.go c uses LISTEN"},

		{"comment", "sql/a.sql", "-- name: A :one\n-- xmin\nSELECT 1 /* ctid */;\n", ""},
		{"string", "sql/a.sql", "-- name: A :one\nSELECT 'xmin', 'notify'::message_kind;\n", ""},
		{"similar names", "sql/a.sql", "-- name: A :one\nSELECT t.row_ctid, t.xid, t.notify FROM t;\n", ""},
		{"earlier definition", "migrations/1.sql", function + "CREATE OR REPLACE FUNCTION f(a text) RETURNS void\n" +
			"LANGUAGE sql AS $$ SELECT 1; SELECT 2 $$;\n", ""},
		{"reverted", "migrations/1.sql", "SELECT 1;\n-- +goose Down\n" + function, ""},
		{"text in Go", "engine/a.go", "package a\n\nconst B = \"the oldest xmin\"\n", ""},
		{"test", "engine/a_test.go", "package a\n\nconst B = `SELECT xmin FROM t`\n", ""},
		{"tools", "internal/bench/a.go", "package a\n\nconst B = `SELECT xmin FROM t`\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := used{}
			if err := found.addFile(tt.file, []byte(tt.content)); err != nil {
				t.Fatal(err)
			}
			check(t, portability(found, nil), tt.want)
		})
	}
}

func TestPortabilityCompares(t *testing.T) {
	found := used{"A": {rowAddresses: true}}
	for _, tt := range []struct {
		name       string
		exceptions []exception
		want       string
	}{
		{"exception", []exception{{rowAddresses, "", []string{"A"}}}, ""},
		{"of another feature", []exception{{rowAddresses, "", []string{"A"}}, {rowVersions, "", []string{"A"}}},
			"A does not use xmin and xmax: remove it"},
		{"of another statement", []exception{{rowAddresses, "", []string{"A", "B"}}}, "B does not use ctid: remove it"},
		{"none", nil, "A uses ctid"},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, portability(found, tt.exceptions), tt.want) })
	}
}

func TestSQLStatements(t *testing.T) {
	statements := sqlStatements("SELECT 1; DO $a$ x; $b$ y; $b$ z; $a$;\nSELECT ';'")
	if len(statements) != 3 || !slices.Equal(statements[0], []string{"select", "1"}) ||
		!slices.Equal(statements[2], []string{"select", aString}) {
		t.Errorf("got %q", statements)
	}
}
