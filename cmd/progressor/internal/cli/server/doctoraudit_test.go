package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Doctor verifies the hash chain of the audit, and fails if it is broken.
func TestDoctorVerifiesTheAudit(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	pool := storagetest.Connect(t, dsn)
	run := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	run(`INSERT INTO progressor.audit (actor, source, method, namespace, subject, "time")
		SELECT 'ada', '', 'PutNamespace', 'n' || i, 'n' || i, now() - interval '11 minutes'
		  FROM generate_series(1, 1200) i`)
	clitest.WantLines(t, p.OK(t, "doctor"), "audit        0 commands in the hash chain, 1200 not yet",
		"- 1200 commands not in the hash chain of the audit, the oldest for 11m")
	run("SELECT progressor.seal_audit(5000)")
	out := p.OK(t, "doctor")
	clitest.WantLines(t, out, "audit        1200 commands in the hash chain, 0 not yet; head 1200:")
	_, head, _ := strings.Cut(out, "; head ")
	head, _, _ = strings.Cut(head, "\n")
	p.OK(t, "doctor", "--audit-head", strings.TrimSpace(head))
	other := strings.Repeat("0", 64)
	if r := p.Run(t, "doctor", "--audit-head", "1200:"+other); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Stdout, "audit: entry 1200 (PutNamespace) at position 1200 does not have the known hash") {
		t.Errorf("another head: %+v", r)
	}
	for _, wrong := range []string{"1200", "0:" + other, "x:" + other, "7:abc", "7:" + other[:62]} {
		if r := p.Run(t, "doctor", "--audit-head", wrong); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, "--audit-head: must be POSITION:HASH") {
			t.Errorf("%s: %+v", wrong, r)
		}
	}
	run("UPDATE progressor.audit SET actor = 'bob' WHERE audit_id = 700")
	r := p.Run(t, "doctor", "-o", "json")
	var found examination
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil || r.Code != cli.ExitFailed {
		t.Fatal(err, r.Code)
	}
	if found.Audit.Entries != 699 || len(found.Violations) != 1 || !strings.HasPrefix(found.Violations[0].What,
		"audit: entry 700 (PutNamespace) at position 700 does not match the chain") {
		t.Errorf("%+v, %+v", found.Audit, found.Violations)
	}
}

// Doctor warns about roles of engines that can change the audit or cannot add to its hash chain.
// Both are true of a role with pg_write_all_data, because the migrations revoke only rights on
// tables.
func TestDoctorFindsRolesThatChangeTheAudit(t *testing.T) {
	t.Parallel()
	const (
		changes = "can change the audit"
		all     = ", because it has pg_write_all_data"
		chain   = "cannot add entries to the hash chain"
		add     = "USAGE ON SCHEMA progressor; INSERT (actor, source, method, namespace, subject) ON progressor.audit"
		execute = "; EXECUTE ON FUNCTION progressor.seal_audit, progressor.forget_audit"
	)
	for _, c := range []struct {
		name, rights string
		engine       bool
		want, never  []string
	}{
		{"a role with pg_write_all_data", "pg_write_all_data", true, []string{changes + all, chain}, nil},
		{"the same role, not used by an engine", "pg_write_all_data", false, nil, []string{changes, chain}},
		{"a member that does not inherit", add + execute + "; NOINHERIT; pg_write_all_data", true,
			[]string{changes + all}, []string{chain}},
		{"the documented role", add + execute, true, nil, []string{changes, chain}},
		{"a role without rights to functions", add, true, []string{chain}, []string{changes}},
		{"the role of a command", add, false, nil, []string{changes, chain}},
		{"UPDATE of a column", add + execute + "; UPDATE (actor) ON progressor.audit", true, []string{changes},
			[]string{all, chain}},
		{"UPDATE of the chain", add + execute + "; UPDATE ON progressor.audit_chain", true, []string{changes},
			[]string{all, chain}},
	} {
		dsn := storagetest.DSN(t)
		role := engineRole(t, dsn, c.engine, strings.Split(c.rights, "; ")...)
		p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
		r := p.Run(t, "doctor")
		for _, want := range c.want {
			if !strings.Contains(r.Stdout, want) || !strings.Contains(r.Stdout, role) {
				t.Errorf("%s: no %q: %s", c.name, want, r.Stdout)
			}
		}
		for _, never := range c.never {
			if strings.Contains(r.Stdout, never) {
				t.Errorf("%s: %q: %s", c.name, never, r.Stdout)
			}
		}
	}
}

// engineRole creates a role with rights, or with NOINHERIT, and opens a session that is like the
// session of an engine or like another session.
func engineRole(t *testing.T, dsn string, engine bool, rights ...string) (role string) {
	t.Helper()
	pool := storagetest.Connect(t, dsn)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	role = "engine_" + strings.ToLower(rand.Text())
	exec("CREATE ROLE " + role + " LOGIN")
	for _, right := range rights {
		if right == "NOINHERIT" {
			exec("ALTER ROLE " + role + " NOINHERIT")
		} else {
			exec("GRANT " + right + " TO " + role)
		}
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.User = role
	if cfg.RuntimeParams["application_name"] = "progressor lane"; !engine {
		cfg.RuntimeParams["application_name"] = "psql"
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close(context.Background())
		exec("DROP OWNED BY " + role)
		exec("DROP ROLE " + role)
	})
	return role
}

// The audit records the changes of keys and grants that a command makes, with the role of the
// session.
func TestAccessIsAudited(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	pool := storagetest.Connect(t, dsn)
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	p.OK(t, "key", "create", "--name", "billing", "--role", "client", "--namespaces", "shop/*")
	var id, entries string
	if err := pool.QueryRow(t.Context(), "SELECT key_id FROM progressor.api_keys").Scan(&id); err != nil {
		t.Fatal(err)
	}
	p.OK(t, "grant", "remove", "key:"+id, "client", "shop/*")
	p.OK(t, "key", "revoke", id)
	if err := pool.QueryRow(t.Context(), `
		SELECT string_agg(concat_ws(' ', method, subject, details), E'\n' ORDER BY audit_id)
		  FROM progressor.audit WHERE actor = 'pg:' || session_user`).Scan(&entries); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(`CreateKey ID {"after": {"name": "billing"}}
AddGrant key:ID client shop/* {"after": {"role": "client", "principal": "key:ID", "namespaces": "shop/*"}}
RemoveGrant key:ID client shop/* {"before": {"role": "client", "principal": "key:ID", "namespaces": "shop/*"}}
RevokeKey ID {"before": {"name": "billing"}}`, "ID", id)
	if entries != want {
		t.Errorf("got\n%s\nwant\n%s", entries, want)
	}
}
