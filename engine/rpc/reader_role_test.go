package rpc

import (
	"context"
	"encoding/hex"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// secret is in the headers, signing keys and args of the objects below.
const secret = "hunter2hunter2hunter2hunter2hunter2="

var secretObjects = [][2]string{
	{"NamespaceService/PutNamespace", `{"namespace":{"namespace":"secret","changes":{"kinds":["CHANGE_KIND_EVENT"]},` +
		`"processor":{"connect":{"url":"http://192.0.2.1/","headers":{"authorization":"` + secret + `"}}}}}`},
	{"NamespaceService/PutNamespace", `{"namespace":{"namespace":"w","processor":{"pull":{}}}}`},
	{"CronService/CreateCron", `{"cron":{"namespace":"w","cronId":"c","spec":{"expressions":["0 0 1 1 *"]},` +
		`"target":{"http":{"url":"http://192.0.2.1/","headers":{"authorization":"` + secret + `"}}}}}`},
	{"CronService/UpdateCron", `{"cron":{"namespace":"w","cronId":"c","spec":{"expressions":["0 0 1 2 *"]},` +
		`"target":{"http":{"url":"http://192.0.2.1/","headers":{"authorization":"` + secret + `2"}}}}}`},
	{"CronService/TriggerCron", `{"namespace":"w","cronId":"c"}`},
	{"ChangeService/PutSink", `{"sink":{"namespace":"secret","sinkId":"s","webhook":{"url":"http://192.0.2.1/",` +
		`"secrets":["whsec_` + secret + `"]}}}`},
	{"FlowService/PutTemplate", `{"template":{"namespace":"w","type":"t","steps":[{"stepId":"a","wait":{}}]}}`},
	{"FlowService/StartRun", `{"namespace":"w","type":"t","runId":"r"}`},
	{"JobService/Enqueue", `{"namespace":"w","jobId":"j","name":"x"}`},
	{"WorkerService/Poll", `{"namespaces":["w"],"workerId":"a","wait":"30s"}`},
}

// TestReaderRoleSeesNoSecrets reads all data that the role reader of docs/sql.md may read. The data
// must not contain headers, signing keys of sinks, salts of leases or tokens of waits.
func TestReaderRoleSeesNoSecrets(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	for _, o := range secretObjects {
		if status, body := post(t, w.url+"/progressor.v1."+o[0], "application/json", o[1]); status != http.StatusOK {
			t.Fatalf("%s: %d %s", o[0], status, body)
		}
	}
	ctx := t.Context()
	owner, err := pgx.Connect(ctx, w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Close(context.Background()) })
	texts := func(conn *pgx.Conn, sql string, args ...any) []string {
		t.Helper()
		rows, _ := conn.Query(ctx, sql, args...)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return list
	}
	hidden := texts(owner, `SELECT encode(salt, 'hex') FROM progressor.leases
		UNION ALL SELECT token FROM progressor.flow_steps WHERE token IS NOT NULL`)
	if len(hidden) < 2 {
		t.Fatalf("found %d salts and tokens, want at least 2", len(hidden))
	}
	hidden = append(hidden, secret[:20], hex.EncodeToString([]byte(secret[:20])))
	role := readerRole(t, owner)
	reader, err := pgx.Connect(ctx, regexp.MustCompile(`user=\S+`).ReplaceAllString(w.dsn, "user="+role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close(context.Background()) })
	relations := texts(owner, `SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm')
		  AND has_any_column_privilege($1, c.oid, 'SELECT') ORDER BY 1`, role)
	for _, table := range []string{"secrets", "seal_keys"} {
		_, err := reader.Exec(ctx, "SELECT FROM progressor."+table)
		if storage.SQLState(err) != "42501" {
			t.Errorf("reading %s: %v, want permission denied", table, err)
		}
	}
	rows := 0
	for _, relation := range relations {
		columns := texts(owner, `SELECT quote_ident(a.attname) || '::text' FROM pg_attribute a
			WHERE a.attrelid = ('progressor.' || quote_ident($2))::regclass AND a.attnum > 0 AND NOT a.attisdropped
			  AND has_column_privilege($1, a.attrelid, a.attnum, 'SELECT')`, role, relation)
		sql := strings.NewReplacer("COLUMNS", strings.Join(columns, ", "), "RELATION", relation).
			Replace("SELECT concat_ws(' ', COLUMNS) FROM progressor.RELATION")
		for _, row := range texts(reader, sql) {
			rows++
			for _, h := range hidden {
				if strings.Contains(row, h) {
					t.Errorf("%s contains a secret: %.300s", relation, row)
				}
			}
		}
	}
	for _, wanted := range []string{"process_list", "task_list", "cron_list", "job_list", "run_list", "waiting_list"} {
		if !strings.Contains(strings.Join(relations, " "), wanted) {
			t.Errorf("the role cannot read %s", wanted)
		}
	}
	if rows < 10 {
		t.Errorf("the role can read only %d rows", rows)
	}
}

// readerRole creates the role reader with the statements in docs/sql.md, but with another name,
// which it returns.
func readerRole(t *testing.T, owner *pgx.Conn) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := owner.QueryRow(t.Context(), "SELECT 'reader_' || replace(gen_random_uuid()::text, '-', '')").
		Scan(&name); err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile(`(?m)^(?:CREATE ROLE reader|GRANT [^;]* TO reader)\b[^;]*;`).
		FindAllString(string(page), -1)
	if len(statements) < 3 {
		t.Fatalf("docs/sql.md contains only these statements for the role: %q", statements)
	}
	for _, statement := range statements {
		statement = regexp.MustCompile(`\breader\b`).ReplaceAllString(statement, name)
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY " + name, "DROP ROLE " + name} {
			if _, err := owner.Exec(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}
