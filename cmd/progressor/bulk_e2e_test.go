package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// wantBulk starts a bulk in namespace mail. It checks the fields of the bulk in the output that
// want names, such as done=5. An empty value means that the field is absent.
func wantBulk(t *testing.T, d *clitest.Daemon, want, verb, filter string, args ...string) {
	t.Helper()
	var got struct{ Bulk map[string]any }
	text := d.Client.OK(t, append([]string{"bulk", "start", verb, "mail", filter, "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(want) {
		name, value, _ := strings.Cut(field, "=")
		if found, _ := got.Bulk[name].(string); found != value {
			t.Errorf("%s %s: %s, want %s", verb, filter, text, want)
		}
	}
}

// jobsOf counts the jobs of namespace mail that match a filter.
func jobsOf(t *testing.T, d *clitest.Daemon, filter string) int {
	t.Helper()
	out := d.Client.OK(t, "job", "list", "mail", filter, "--all", "-o", "json")
	return strings.Count(out, `"jobId"`)
}

// A bulk of jobs cancels, retries and removes the jobs that match the filter of ListJobs, over
// several pages. It skips jobs whose state does not allow the verb, and does not change other jobs.
func TestBulkOfJobs(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "mail", "--pull")
	var lines strings.Builder
	for n := range 700 { // more than a page
		fmt.Fprintf(&lines, `{"name": "send", "jobId": "a-%d", "options": {"tags": ["old"]}}`+"\n", n)
	}
	for n := range 3 {
		fmt.Fprintf(&lines, `{"name": "send", "jobId": "b-%d"}`+"\n", n)
	}
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Client.OK(t, "job", "enqueue", "mail", "--file", file)
	d.Client.OK(t, "job", "cancel", "mail", "a-0")
	wantBulk(t, d, "matched=700 skipped=1 kind=job", "cancel", "tags:old", "--kind", "job", "--dry-run")
	if k := jobsOf(t, d, "state = CANCELLED"); k != 1 {
		t.Fatalf("a dry run cancelled %d jobs", k)
	}
	fast := []string{"--kind", "job", "--rate", "10000", "--wait"}
	wantBulk(t, d, "matched=700 done=699 skipped=1 failed=", "cancel", "tags:old", fast...)
	if k := jobsOf(t, d, "state = AVAILABLE"); k != 3 {
		t.Errorf("%d jobs are left", k)
	}
	wantBulk(t, d, "done=111", "retry", `state = CANCELLED AND job_id = "a-1*"`, fast...)
	if k := jobsOf(t, d, `state = AVAILABLE AND job_id = "a-*"`); k != 111 {
		t.Errorf("%d jobs run again", k)
	}
	wantBulk(t, d, "done=589 skipped=111", "remove", `job_id = "a-*"`, fast...)
	if k := jobsOf(t, d, `job_id = "*"`); k != 114 {
		t.Errorf("%d jobs are left", k)
	}
}

// A bulk of runs cancels, retries and removes the runs that match a filter, and skips runs whose
// status does not allow the verb.
func TestBulkOfRuns(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "mail", "--pull")
	file := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(file,
		[]byte(`{"type": "ask", "steps": [{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Client.OK(t, "template", "put", "mail", "-f", file)
	for n := range 5 {
		d.Client.OK(t, "run", "start", "mail", "ask", "-k", fmt.Sprint(n))
	}
	runs := []string{"--kind", "run", "--wait"}
	wantBulk(t, d, "done=5 kind=flow", "cancel", "template_type = ask", runs...)
	wantBulk(t, d, "skipped=5", "cancel", "template_type = ask", runs...)
	wantBulk(t, d, "matched=5", "remove", `run_id = "*"`, "--kind", "run", "--dry-run")
	wantBulk(t, d, "done=5", "retry", "status = CANCELLED", runs...)
	wantBulk(t, d, "skipped=5", "remove", `run_id = "*"`, runs...)
	if out := d.Client.OK(t, "run", "list", "mail", "status = WAITING_WORKER", "-o", "json"); strings.Count(out,
		`"runId"`) != 5 {
		t.Errorf("%s", out)
	}
	wantBulk(t, d, "done=5", "cancel", "template_type = ask", runs...)
	wantBulk(t, d, "done=5", "remove", "status = CANCELLED", runs...)
	if out := d.Client.OK(t, "run", "list", "mail", "-o", "json"); strings.Contains(out, `"runId"`) {
		t.Errorf("%s", out)
	}
}

// If a bulk has a verb or a filter that its kind does not allow, it is rejected. The error names
// the argument and the valid verbs, or the unknown field of the filter.
func TestBulkOfKindsRefuses(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "mail", "--pull")
	for _, tt := range []struct{ action, kind, filter, want string }{
		{"suspend", "job", "state = FAILED", "<action>: must be one of retry, cancel, remove with --kind job"},
		{"suspend", "run", "status = FAILED", "<action>: must be one of retry, cancel, remove with --kind run"},
		{"retry", "process", "status = ERROR", "<action>: must be one of repair, suspend, resume, cancel, remove"},
		{"retry", "job", "", `must not be empty: use job_id = "*" for all jobs of the namespace`},
		{"retry", "job", "status = ERROR", "status"},
		{"retry", "run", "state = FAILED", "state"},
	} {
		r := d.Client.Run(t, "bulk", "start", tt.action, "mail", tt.filter, "--kind", tt.kind)
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, tt.want) {
			t.Errorf("%+v: code %d: %s", tt, r.Code, r.Stderr)
		}
	}
	for kind, filter := range map[string]string{"job": `job_id = "x"`, "flow": `run_id = "x"`} {
		_, err := client.New(d.URL).Bulk.StartBulk(t.Context(), &progressorv1.StartBulkRequest{
			Namespace: "mail", Kind: kind, Verb: progressorv1.BulkVerb_BULK_VERB_SUSPEND, Filter: filter,
		})
		if err == nil || !strings.Contains(err.Error(), "verb: must be one of CANCEL, REMOVE, RETRY") {
			t.Errorf("suspend of kind %s: %v", kind, err)
		}
	}
}
