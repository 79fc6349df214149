package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func cronOf(t *testing.T, p clitest.Program, id string) *progressorv1.Cron {
	t.Helper()
	resp := &progressorv1.GetCronResponse{}
	if err := protojson.Unmarshal([]byte(p.OK(t, "cron", "get", "play", id, "-o", "json")), resp); err != nil {
		t.Fatal(err)
	}
	return resp.GetCron()
}

func awaitFires(t *testing.T, p clitest.Program, id string, enough func([]*progressorv1.Fire) bool) {
	t.Helper()
	for end := time.Now().Add(clitest.DaemonWait); ; {
		resp := &progressorv1.ListFiresResponse{}
		if err := protojson.Unmarshal([]byte(p.OK(t, "cron", "fires", "play", id, "-o", "json")), resp); err != nil {
			t.Fatal(err)
		}
		if enough(resp.GetFires()) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the ledger of %s:\n%s", id, p.OK(t, "cron", "fires", "play", id))
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

// Crons in the configuration file are created at startup, updated if they differ, and otherwise not
// changed. A cron that was paused stays paused, and crons that are not in the file do not change.
func TestServePutsCrons(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1000)
	target := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Progressor-Cron-Id") }))
	defer target.Close()
	text := strings.ReplaceAll(`
namespaces: [{namespace: play, processor: {builtin: {name: echo}}}]
crons:
  - {namespace: play, cron_id: tick, spec: {expressions: ['* * * * * *']},
     policy: {overlap_action: skip}, target: {http: {url: URL}}}
  - {namespace: play, cron_id: nightly, spec: {expressions: ['0 3 * * *'], jitter: 5m},
     metadata: {team: billing}, target: {http: {url: URL}}}
`, "URL", target.URL)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t), "-c"}
	d := background(t, nil, append(args, clitest.WriteConfig(t, text))...)
	awaitFires(t, d.Client, "tick", succeeded)
	if id := <-asked; id != "tick" {
		t.Errorf("the first request is from cron %q", id)
	}
	d.Client.OK(t, "cron", "pause", "play", "tick", "--reason", "enough")
	d.Client.OK(t, "cron", "create", "play", "by-hand", "@daily", "--http", target.URL)
	before := cronOf(t, d.Client, "nightly").GetEtag()
	d.Stop(t)

	d = background(t, nil, append(args,
		clitest.WriteConfig(t, strings.Replace(text, "['* * * * * *']", "['*/2 * * * * *']", 1)))...)
	tick, nightly := cronOf(t, d.Client, "tick"), cronOf(t, d.Client, "nightly")
	if tick.GetSpec().GetExpressions()[0] != "*/2 * * * * *" || !tick.GetPaused() || tick.GetPauseNote() != "enough" ||
		nightly.GetEtag() != before {
		t.Errorf("%v\n%v, etag before %s", tick, nightly, before)
	}
	clitest.WantLines(t, d.Client.OK(t, "cron", "list", "play", `metadata.team = "billing"`), "nightly active",
		"at 03:00 every day, UTC")
	clitest.WantLines(t, d.Client.OK(t, "cron", "list", "play"), "by-hand active", "nightly active", "tick paused")
	clitest.WantLines(t, d.Client.OK(t, "cron", "trigger", "play", "tick"), "FIRED yes 1 RUNNING")
	clitest.WantLines(t, d.Client.OK(t, "audit", "play"), "UpdateCron", "configuration file")
	if r := d.Client.Run(t, "cron", "update", "play", "nightly", "--etag", "77", "--timeout", "3s"); r.Code !=
		cli.ExitConflict || !strings.Contains(r.Stderr, "Next: progressor cron get play nightly") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
	d.Client.OK(t, "cron", "delete", "play", "nightly")
	if r := d.Client.Run(t, "cron", "get", "play", "nightly"); r.Code != cli.ExitNotFound ||
		!strings.Contains(r.Stderr, "Next: progressor cron list play") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
	d.Stop(t)
}

// A cron that was created from a file runs with the settings of the file. A resume prints the
// number of waiting fire times.
func TestCronOfAFileRuns(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer target.Close()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	p := d.Client
	p.OK(t, "namespace", "put", "play", "--builtin", "echo")
	p.Stdin = "spec: {expressions: ['* * * * * *']}\npolicy: {misfire_policy: catch_up_limited, catchup_limit: 1}\n" +
		"target: {http: {url: '" + target.URL + "', success_codes: [418]}}\n"
	p.OK(t, "cron", "create", "play", "tea", "-f", "-", "--paused")
	for end := time.Now().Add(clitest.DaemonWait); cronOf(t, p, "tea").GetWaitingFires() < 2; {
		if time.Now().After(end) {
			t.Fatal("no fire time waits")
		}
	}
	if r := p.Run(t, "cron", "resume", "play", "tea", "--catch-up"); r.Code != cli.ExitOK ||
		!strings.Contains(r.Stderr, " fire times wait: only the newest is decided") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
	awaitFires(t, p, "tea", func(fires []*progressorv1.Fire) bool {
		return succeeded(fires) && fires[len(fires)-1].GetDecision() == progressorv1.Decision_DECISION_MISSED
	})
	if out := p.OK(t, "cron", "preview", "play", "tea", "--from", "1h", "-o", "json", "--limit",
		"3"); strings.Count(out, "T") < 4 {
		t.Errorf("%s", out)
	}
	d.Stop(t)
}

// The polling example in docs/crons.md runs with the settings that the page shows. The same file
// with lower-case or full names of the values changes nothing.
func TestServePutsTheExampleOfAPoll(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	_, text, _ := strings.Cut(readPage(t, "docs/crons.md"), "The cron in the next file sends a request")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	text = strings.Replace(text, "http://127.0.0.1:9001/poll", target.URL, 1)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t), "-c"}
	d := background(t, nil, append(args, clitest.WriteConfig(t, text))...)
	awaitFires(t, d.Client, "poll", succeeded)
	poll := cronOf(t, d.Client, "poll")
	want := &progressorv1.CronPolicy{
		MaxConcurrency: 1, ConcurrencyPolicy: progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_SKIP,
		OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV,
		FailureAction: progressorv1.FailureAction_FAILURE_ACTION_RETRY,
		MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED, CatchupLimit: 3,
		Timeout: durationpb.New(8 * time.Second),
	}
	if !proto.Equal(poll.GetPolicy(), want) || poll.GetSpec().GetExpressions()[0] != "*/5 * * * * *" {
		t.Errorf("%v\nwant the policy %v", poll, want)
	}
	d.Stop(t)
	for short, long := range map[string]string{
		"SKIP": "skip", "CANCEL_PREV": "OVERLAP_ACTION_CANCEL_PREV", "RETRY": "retry",
		"CATCH_UP_LIMITED": "MISFIRE_POLICY_CATCH_UP_LIMITED",
	} {
		text = strings.Replace(text, ": "+short+"\n", ": "+long+"\n", 1)
	}
	d = background(t, nil, append(args, clitest.WriteConfig(t, text))...)
	if got := cronOf(t, d.Client, "poll"); got.GetEtag() != poll.GetEtag() {
		t.Errorf("other names of the same values changed the cron: %v", got)
	}
	d.Stop(t)
}

// Errors that only the database can detect also name the file and the path of the field.
func TestServeRefusesABadCron(t *testing.T) {
	t.Parallel()
	text := "namespaces: [{namespace: play, processor: {builtin: {name: echo}}}]\ncrons:\n" +
		"  - {namespace: play, cron_id: x, spec: {expressions: ['@daily']}, target: {start_process: {namespace: " +
		"nowhere}}}\n"
	path := clitest.WriteConfig(t, text)
	r := clitest.Program{Commands: newCommands}.Run(t, "serve", "--listen", "127.0.0.1:0", "--db.dsn",
		storagetest.DSN(t), "-c", path)
	if want := "configuration file " + path +
		": line 3: crons[0].target.start_process.namespace: "; r.Code == cli.ExitOK ||
		!strings.Contains(r.Stderr, want) {
		t.Errorf("code %d, want %q in:\n%s", r.Code, want, r.Stderr)
	}
}
