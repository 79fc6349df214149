package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (p program) cron(t *testing.T, id string) *progressorv1.Cron {
	t.Helper()
	resp := &progressorv1.GetCronResponse{}
	if err := protojson.Unmarshal([]byte(p.ok(t, "cron", "get", "play", id, "-o", "json")), resp); err != nil {
		t.Fatal(err)
	}
	return resp.GetCron()
}

func (p program) awaitFires(t *testing.T, id string, enough func([]*progressorv1.Fire) bool) {
	t.Helper()
	for end := time.Now().Add(daemonWait); ; {
		resp := &progressorv1.ListFiresResponse{}
		if err := protojson.Unmarshal([]byte(p.ok(t, "cron", "fires", "play", id, "-o", "json")), resp); err != nil {
			t.Fatal(err)
		}
		if enough(resp.GetFires()) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the ledger of %s:\n%s", id, p.ok(t, "cron", "fires", "play", id))
		}
	}
}

func succeeded(fires []*progressorv1.Fire) bool {
	for _, f := range fires {
		if f.GetStatus() == progressorv1.FireStatus_FIRE_STATUS_SUCCESS {
			return true
		}
	}
	return false
}

// Crons of the configuration file are created at the start, updated if they differ, and otherwise
// not changed. A cron that was paused stays paused, and crons that are not in the file do not
// change.
func TestServePutsCrons(t *testing.T) {
	asked := make(chan string, 1000)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Progressor-Cron-Id") }))
	defer target.Close()
	text := strings.ReplaceAll(`
namespaces: [{namespace: play, processor: {builtin: {name: echo}}}]
crons:
  - {namespace: play, cron_id: tick, spec: {expressions: ['* * * * * *']}, policy: {overlap_action: skip}, target: {http: {url: URL}}}
  - {namespace: play, cron_id: nightly, spec: {expressions: ['0 3 * * *'], jitter: 5m}, metadata: {team: billing}, target: {http: {url: URL}}}
`, "URL", target.URL)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t), "-c"}
	d := background(t, nil, append(args, writeConfig(t, text))...)
	d.client.awaitFires(t, "tick", succeeded)
	if id := <-asked; id != "tick" {
		t.Errorf("asked for %q", id)
	}
	d.client.ok(t, "cron", "pause", "play", "tick", "--note", "enough")
	d.client.ok(t, "cron", "create", "play", "by-hand", "@daily", "--http", target.URL)
	before := d.client.cron(t, "nightly").GetEtag()
	d.stop(t)

	d = background(t, nil, append(args, writeConfig(t, strings.Replace(text, "['* * * * * *']", "['*/2 * * * * *']", 1)))...)
	tick, nightly := d.client.cron(t, "tick"), d.client.cron(t, "nightly")
	if tick.GetSpec().GetExpressions()[0] != "*/2 * * * * *" || !tick.GetPaused() || tick.GetPauseNote() != "enough" || nightly.GetEtag() != before {
		t.Errorf("%v\n%v, etag before %s", tick, nightly, before)
	}
	wantLines(t, d.client.ok(t, "cron", "list", "play", `metadata.team = "billing"`), "nightly active", "at 03:00 every day, UTC")
	wantLines(t, d.client.ok(t, "cron", "list", "play"), "by-hand active", "nightly active", "tick paused")
	wantLines(t, d.client.ok(t, "cron", "trigger", "play", "tick"), "FIRED yes 1 RUNNING")
	wantLines(t, d.client.ok(t, "audit", "play"), "UpdateCron", "configuration file")
	if r := d.client.run(t, "cron", "update", "play", "nightly", "--etag", "77", "--timeout", "3s"); r.code != exitConflict || !strings.Contains(r.stderr, "Next: progressor cron get play nightly") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	d.client.ok(t, "cron", "delete", "play", "nightly")
	if r := d.client.run(t, "cron", "get", "play", "nightly"); r.code != exitNotFound || !strings.Contains(r.stderr, "Next: progressor cron list play") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	d.stop(t)
}

// A resume prints how many fire times wait, as the engine counts them. A cron that was updated from
// a file runs by the new settings.
func TestCronOfAFileRuns(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer target.Close()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	p := d.client
	p.ok(t, "namespace", "put", "play", "--builtin", "echo")
	p.stdin = "spec: {expressions: ['* * * * * *']}\npolicy: {misfire_policy: catch_up_limited, catchup_limit: 1}\ntarget: {http: {url: '" + target.URL + "', success_codes: [418]}}\n"
	p.ok(t, "cron", "create", "play", "tea", "-f", "-", "--paused")
	for end := time.Now().Add(daemonWait); p.cron(t, "tea").GetWaitingFires() < 2; {
		if time.Now().After(end) {
			t.Fatal("nothing waits")
		}
	}
	if r := p.run(t, "cron", "resume", "play", "tea", "--catch-up"); r.code != exitOK || !strings.Contains(r.stderr, " fire times wait: the newest 1 are decided") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	p.awaitFires(t, "tea", func(fires []*progressorv1.Fire) bool {
		return succeeded(fires) && fires[len(fires)-1].GetDecision() == progressorv1.Decision_DECISION_MISSED
	})
	if out := p.ok(t, "cron", "preview", "play", "tea", "--from", "1h", "-o", "json", "--limit", "3"); strings.Count(out, "T") < 4 {
		t.Errorf("%s", out)
	}
	d.stop(t)
}

// Errors that only the database can detect also name the file and the path.
func TestServeRefusesABadCron(t *testing.T) {
	text := "namespaces: [{namespace: play, processor: {builtin: {name: echo}}}]\ncrons:\n" +
		"  - {namespace: play, cron_id: x, spec: {expressions: ['@daily']}, target: {start_process: {namespace: nowhere}}}\n"
	path := writeConfig(t, text)
	r := program{}.run(t, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t), "-c", path)
	if want := "configuration file " + path + ": line 3: crons[0].target.start_process.namespace: "; r.code == exitOK || !strings.Contains(r.stderr, want) {
		t.Errorf("code %d, want %q in:\n%s", r.code, want, r.stderr)
	}
}
