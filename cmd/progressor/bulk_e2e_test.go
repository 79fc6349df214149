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

// bulkJSON runs a bulk to its end and returns it.
func bulkJSON(
	t *testing.T, d *clitest.Daemon, args ...string,
) (b struct{ Matched, Done, Skipped, Failed, Expected, Kind string }) {
	t.Helper()
	var resp struct{ Bulk json.RawMessage }
	text := d.Client.OK(t, append([]string{"bulk", "start"}, append(args, "-o", "json")...)...)
	if err := json.Unmarshal([]byte(text), &resp); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(resp.Bulk, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// jobs counts the jobs of namespace mail that match a filter.
func jobsOf(t *testing.T, d *clitest.Daemon, filter string) int {
	t.Helper()
	out := d.Client.OK(t, "job", "list", "mail", filter, "--all", "-o", "json")
	return strings.Count(out, `"jobId"`)
}

// A bulk of jobs cancels, retries and removes the jobs that match the filter of ListJobs, over
// several pages, and skips jobs whose state does not allow the verb. It leaves other jobs and
// processes alone.
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
	if b := bulkJSON(t, d, "cancel", "mail", "tags:old", "--kind", "job", "--dry-run"); b.Matched != "700" ||
		b.Skipped != "1" || b.Kind != "job" {
		t.Errorf("%+v", b)
	}
	if k := jobsOf(t, d, "state = CANCELLED"); k != 1 {
		t.Fatalf("a dry run cancelled %d", k)
	}
	fast := []string{"--kind", "job", "--rate", "10000", "--wait"}
	if b := bulkJSON(t, d, append([]string{"cancel", "mail", "tags:old"}, fast...)...); b.Matched != "700" ||
		b.Done != "699" || b.Skipped != "1" || b.Failed != "" {
		t.Errorf("%+v", b)
	}
	if k := jobsOf(t, d, "state = AVAILABLE"); k != 3 {
		t.Errorf("%d jobs are left", k)
	}
	if b := bulkJSON(t, d, append([]string{"retry", "mail", `state = CANCELLED AND job_id = "a-1*"`},
		fast...)...); b.Done != "111" {
		t.Errorf("%+v", b)
	}
	if k := jobsOf(t, d, `state = AVAILABLE AND job_id = "a-*"`); k != 111 {
		t.Errorf("%d jobs run again", k)
	}
	if b := bulkJSON(t, d, append([]string{"remove", "mail", `job_id = "a-*"`}, fast...)...); b.Done != "589" ||
		b.Skipped != "111" {
		t.Errorf("%+v", b)
	}
	if k := jobsOf(t, d, `job_id = "*"`); k != 114 {
		t.Errorf("%d jobs are left", k)
	}
}

// A bulk of runs cancels and retries them.
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
	if b := bulkJSON(t, d, append([]string{"cancel", "mail", "template_type = ask"}, runs...)...); b.Done != "5" ||
		b.Kind != "flow" {
		t.Errorf("%+v", b)
	}
	if b := bulkJSON(t, d, append([]string{"cancel", "mail", "template_type = ask"}, runs...)...); b.Skipped != "5" {
		t.Errorf("%+v", b)
	}
	if b := bulkJSON(t, d, append([]string{"remove", "mail", `run_id = "*"`, "--dry-run"}, "--kind",
		"run")...); b.Matched != "5" {
		t.Errorf("%+v", b)
	}
	if b := bulkJSON(t, d, append([]string{"retry", "mail", "status = CANCELLED"}, runs...)...); b.Done != "5" {
		t.Errorf("%+v", b)
	}
	if b := bulkJSON(t, d, append([]string{"remove", "mail", `run_id = "*"`}, runs...)...); b.Skipped != "5" {
		t.Errorf("%+v", b)
	}
	if out := d.Client.OK(t, "run", "list", "mail", "status = WAITING_WORKER", "-o", "json"); strings.Count(out,
		`"runId"`) != 5 {
		t.Errorf("%s", out)
	}
	bulkJSON(t, d, append([]string{"cancel", "mail", "template_type = ask"}, runs...)...)
	if b := bulkJSON(t, d, append([]string{"remove", "mail", "status = CANCELLED"}, runs...)...); b.Done != "5" {
		t.Errorf("%+v", b)
	}
	if out := d.Client.OK(t, "run", "list", "mail", "-o", "json"); strings.Contains(out, `"runId"`) {
		t.Errorf("%s", out)
	}
}

// An invalid bulk of jobs or runs is rejected with the field and the valid values.
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
