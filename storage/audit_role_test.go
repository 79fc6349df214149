package storage_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// audited returns the method and the details of the newest audit entry.
func (b *bench) audited() string {
	return ask[string](b, `SELECT method || ' ' || coalesce(details::text, '') FROM audit
		ORDER BY audit_id DESC LIMIT 1`)
}

// An engine with the documented role cannot change or delete its audit entries. It can still delete
// them after their retention.
func TestEngineRoleOnlyAddsAudit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	page, err := os.ReadFile("../docs/operations.md")
	must(t, page, err)
	rights := regexp.MustCompile(`(?m)^((?:GRANT|REVOKE) .* (?:TO|FROM)) progressor;`).
		FindAllStringSubmatch(string(page), -1)
	if len(rights) != 7 {
		t.Fatalf("docs/operations.md has the rights %q", rights)
	}
	role := b.role()
	var name string
	must(t, 0, role.QueryRow(t.Context(), "SELECT current_user").Scan(&name))
	for _, right := range rights {
		b.exec(right[1] + " " + name)
	}
	s := open(t, regexp.MustCompile(`user=\S+`).ReplaceAllString(b.dsn, "user="+name), storage.Config{})
	must(t, 0, second(role.Exec(t.Context(), "SELECT progressor.merge_metadata_index()")))
	ada := process.Actor{Name: "ada", Source: "10.0.0.1"}
	for range 2 {
		_, err := s.PutNamespace(t.Context(), "other", json.RawMessage(`{"maxWaiting": 5}`), ada)
		must(t, 0, err)
	}
	for _, sql := range []string{
		"UPDATE progressor.audit SET actor = 'bob'", "DELETE FROM progressor.audit", "TRUNCATE progressor.audit",
		"ALTER TABLE progressor.audit DISABLE TRIGGER ALL", "DROP TABLE progressor.audit",
		"SELECT FROM progressor.audit FOR UPDATE",
		"INSERT INTO progressor.audit (chain_position) VALUES (1)",
		"INSERT INTO progressor.audit (time) VALUES (now())",
		"UPDATE progressor.audit_chain SET retention = '1 day'", "DELETE FROM progressor.audit_chain",
		"INSERT INTO progressor.audit_chain DEFAULT VALUES",
	} {
		if _, err := role.Exec(t.Context(), sql); storage.SQLState(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	must(t, 0, second(s.SealAudit(t.Context())))
	must(t, 0, s.ForgetAudit(t.Context()))
	equal(t, "entries", ask[int](b, "SELECT count(*)::int FROM audit WHERE actor = 'ada'"), 2)
	b.exec(`UPDATE audit SET time = time - CASE audit_id WHEN (SELECT min(audit_id) FROM audit)
		THEN interval '91 days' ELSE interval '89 days' END`)
	must(t, 0, s.ForgetAudit(t.Context()))
	equal(t, "entries after the retention", ask[int](b, "SELECT count(*)::int FROM audit"), 1)
}

// A migration revokes the rights with which a role could change the audit.
func TestMigrationRevokesAuditRights(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	role := b.role("SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON audit, audit_chain", "USAGE ON SCHEMA progressor")
	text, err := migrations.FS.ReadFile("00126_audit_chain.sql")
	must(t, 0, err)
	block := regexp.MustCompile(`(?s)\nDO \$\$\n.*?\nEND \$\$;\n`).FindString(string(text))
	b.exec(block)
	const insert = "INSERT INTO progressor.audit (actor, source, method, namespace, subject) SELECT '', '', '', '', ''"
	for sql, allowed := range map[string]bool{
		"SELECT FROM progressor.audit": true, "SELECT FROM progressor.audit_chain": true, insert: true,
		"UPDATE progressor.audit SET actor = 'bob'": false, "DELETE FROM progressor.audit": false,
		"TRUNCATE progressor.audit": false, "UPDATE progressor.audit_chain SET last_position = 0": false,
		"DELETE FROM progressor.audit_chain": false, "TRUNCATE progressor.audit_chain": false,
	} {
		_, err := role.Exec(t.Context(), sql)
		if denied := storage.SQLState(err) == "42501"; denied == allowed || allowed && err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// A later migration also revokes the rights to change the audit from PUBLIC. Roles that may add
// entries keep INSERT only on the columns of an entry, and may execute the functions that seal,
// erase and delete entries.
func TestMigrationRevokesChainRights(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	text, err := migrations.FS.ReadFile("00136_erase_audit_ids.sql")
	must(t, 0, err)
	rights := regexp.MustCompile(`(?ms)^(?:REVOKE .*?;|DO \$\$\n.*?\nEND \$\$;)$`).FindAllString(string(text), -1)
	if len(rights) != 3 {
		t.Fatalf("%q", rights)
	}
	const schema, sequences = "USAGE ON SCHEMA progressor", "USAGE ON ALL SEQUENCES IN SCHEMA progressor"
	all := b.role("ALL ON audit, audit_chain", schema, sequences)
	columns := b.role(
		"INSERT (actor, source, method, namespace, subject, chain_position), SELECT, UPDATE (actor) ON audit",
		schema, sequences)
	reader := b.role("SELECT ON audit", schema, sequences)
	b.exec("GRANT INSERT, UPDATE, DELETE ON audit, audit_chain TO PUBLIC")
	b.exec("GRANT EXECUTE ON FUNCTION erase_audit, seal_audit, forget_audit TO PUBLIC")
	for _, right := range rights {
		b.exec(right)
	}
	const trigger = "CREATE TRIGGER t BEFORE INSERT ON progressor.audit " +
		"EXECUTE FUNCTION progressor.check_sql_message()"
	const into = "INSERT INTO progressor.audit (actor, source, method, namespace, subject"
	for _, role := range []struct {
		name  string
		conn  *pgx.Conn
		adder bool
	}{{"all", all, true}, {"columns", columns, true}, {"reader", reader, false}} {
		for sql, allowed := range map[string]bool{
			"SELECT FROM progressor.audit":                                  true,
			into + ") SELECT '', '', '', '', ''":                            role.adder,
			into + ", chain_position) SELECT '', '', '', '', '', 0":         false,
			"UPDATE progressor.audit SET actor = 'bob'":                     false,
			"DELETE FROM progressor.audit":                                  false,
			"UPDATE progressor.audit_chain SET last_position = 0":           false,
			"SELECT progressor.seal_audit(10)":                              role.adder,
			"SELECT progressor.forget_audit(10)":                            role.adder,
			"SELECT progressor.erase_audit('shop', '{p}', '', 0, 10, true)": role.adder,
			trigger: false,
		} {
			_, err := role.conn.Exec(t.Context(), sql)
			if denied := storage.SQLState(err) == "42501"; denied == allowed || allowed && err != nil {
				t.Errorf("%s: %s: %v", role.name, sql, err)
			}
		}
	}
}

// The audit contains a configuration before and after its change, without secrets. A large
// configuration is replaced by its size.
func TestAuditHasTheChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ada := process.Actor{Name: "ada"}
	put := func(config string) {
		_, err := b.PutNamespace(t.Context(), "other", json.RawMessage(config), ada)
		must(t, 0, err)
	}
	put(`{"maxWaiting": 5}`)
	equal(t, "created", b.audited(), `PutNamespace {"after": {"maxWaiting": 5}}`)
	put(`{"maxWaiting": 6, "processor": {"connect": {"headers": {"authorization": "Bearer secret"}}}}`)
	equal(t, "changed", b.audited(), `PutNamespace {"after": {"processor": {"connect": {"headers": `+
		`{"authorization": "REDACTED"}}}, "maxWaiting": 6}, "before": {"maxWaiting": 5}}`)
	put(`{"filter": "` + strings.Repeat("x", 64<<10) + `"}`)
	if got := b.audited(); !strings.Contains(got, `"after": "65550 bytes"`) || strings.Contains(got, "secret") {
		t.Errorf("a large configuration: %.200s", got)
	}
	_, err := b.RequestDeletion(t.Context(), "other", storage.DeletesEmpty, ada)
	must(t, 0, err)
	if got := b.audited(); !strings.HasPrefix(got, `DeleteNamespace {"before": "`) {
		t.Errorf("%.200s", got)
	}
}
