package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// aBulk returns a bulk that has matched the given number of 12,000 processes.
func aBulk(status progressorv1.ProcessStatus, matched int64) *progressorv1.Bulk {
	return &progressorv1.Bulk{
		Namespace: "demo", BulkId: "b-1", Filter: "status = ERROR", Verb: progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR,
		Rate: 100, Status: status,
		Matched: matched, Done: matched, Expected: 12_000, Reason: "the books\nare back", Position: "order-7",
		Actor:       "kim",
		CreatedTime: timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
	}
}

const (
	bulkRuns = progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING
	bulkEnds = progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
)

func TestBulkStart(t *testing.T) {
	f := &clitest.Engine{Bulks: []*progressorv1.Bulk{aBulk(bulkRuns, 0)}}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "bulk", "start", "repair", "demo", "status = ERROR", "--rate", "12.5", "--reason", "why", "-k",
		"key")
	clitest.WantRequest(t, f.Last, &progressorv1.StartBulkRequest{
		Namespace: "demo", Filter: "status = ERROR", Verb: progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR, Rate: 12.5,
		Reason: "why", IdempotencyKey: "key",
	})
	p.OK(t, "bulk", "start", "repair", "demo", "status = ERROR", "-k", "key", "--skip-step", "mail")
	clitest.WantRequest(t, f.Last, &progressorv1.StartBulkRequest{
		Namespace: "demo", Filter: "status = ERROR", Verb: progressorv1.BulkVerb_BULK_VERB_REPAIR,
		IdempotencyKey: "key", Args: []byte(`{"durable_repair":{"skip":["mail"]}}`),
	})
	file := filepath.Join(t.TempDir(), "args")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{"": "", "text": "text", "@@text": "@text", "@" + file: "from a file"} {
		p.OK(t, "bulk", "start", "repair", "demo", "status = ERROR", "--args", args)
		r := f.Last.(*progressorv1.StartBulkRequest)
		if r.GetVerb() != progressorv1.BulkVerb_BULK_VERB_REPAIR || string(r.GetArgs()) != want {
			t.Errorf("--args %q: %v", args, r)
		}
	}
	clitest.WantLines(t, out, "bulk demo b-1", "action repair", "filter status = ERROR", `reason the books\nare back`,
		"rate 100/s", "status RUNNING",
		"expected 12,000", "done 0", "last process order-7", "started by kim", "progress: progressor bulk get demo b-1")
	for action, verb := range bulkVerbs {
		kind := "process"
		if action == "retry" {
			kind = "run"
		}
		p.OK(t, "bulk", "start", action, "demo", "status = ERROR", "--kind", kind)
		if r := f.Last.(*progressorv1.StartBulkRequest); r.GetVerb() != verb || r.GetIdempotencyKey() == "" {
			t.Errorf("%s: %v", action, r)
		}
	}
	for args, want := range map[string]string{
		"retry demo x": "<action>: must be one of repair, suspend, resume, cancel, remove with --kind process " +
			"(got retry, which needs --kind job or run)",
		"repair demo x --kind job": "<action>: must be one of retry, cancel, remove with --kind job " +
			"(got repair, which needs --kind process)",
	} {
		r := p.Run(t, append([]string{"bulk", "start"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || r.Stderr != "progressor: "+want+"\n" {
			t.Errorf("%s: code %d: %s", args, r.Code, r.Stderr)
		}
	}
	for _, args := range [][]string{
		{"bulk", "start", "repair", "demo"}, {"bulk", "start", "burn", "demo", "status = ERROR"},
		{"bulk", "start", "repair", "demo", "status = ERROR", "--dry-run", "--wait"},
		{"bulk", "start", "repair", "demo", "status = ERROR", "--args", "", "--skip-step", "mail"},
		{"bulk", "start", "suspend", "demo", "status = ERROR", "--args", ""},
	} {
		if r := p.Run(t, args...); r.Code != cli.ExitUsage {
			t.Errorf("%q: code %d: %s", args, r.Code, r.Stderr)
		}
	}
}

func TestBulkDryRun(t *testing.T) {
	b := &progressorv1.Bulk{DryRun: true, Matched: 1234567, Skipped: 1000, ExpectedMore: true,
		SampleProcessIds: []string{"order-1", "order\n2"}}
	f := &clitest.Engine{Bulks: []*progressorv1.Bulk{b}}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "bulk", "start", "cancel", "demo", "status = ERROR", "--dry-run")
	clitest.WantLines(t, out, "would cancel", "matches more than 1,234,567",
		"would skip 1,000 of them: their status does not allow cancel", "the oldest", "order-1", `order\n2`)
	if out := p.OK(t, "bulk", "start", "cancel", "demo", "status = ERROR", "--dry-run", "-o",
		"json"); !strings.Contains(out, `"dryRun": true`) {
		t.Errorf("%s", out)
	}
	if r, ok := f.Last.(*progressorv1.StartBulkRequest); !ok || !r.GetDryRun() || r.GetIdempotencyKey() != "" {
		t.Errorf("%v", r)
	}
}

// If jobs match the filter, the output reports this and names the command for jobs.
func TestBulkLeavesJobsOut(t *testing.T) {
	f := &clitest.Engine{Bulks: []*progressorv1.Bulk{{DryRun: true}},
		Pages: []*progressorv1.ListProcessesResponse{{Processes: []*progressorv1.Process{{ProcessId: "mail-3"}}}}}
	p := clitest.Serve(t, newCommands, f)
	for action, next := range map[string]string{
		"repair": "; for jobs: progressor bulk start retry mail --kind job FILTER",
		"cancel": "; for jobs: progressor bulk start cancel mail --kind job FILTER", "suspend": "",
	} {
		clitest.WantLines(t, p.OK(t, "bulk", "start", action, "mail", "status = ERROR", "--dry-run"), "matches 0",
			"leaves out jobs, such as mail-3: this bulk does not include jobs"+next)
		clitest.WantRequest(t, f.Last,
			&progressorv1.ListProcessesRequest{Namespace: "mail", Filter: "kind = job AND (status = ERROR)",
				PageSize: 1})
	}
	f.Pages = []*progressorv1.ListProcessesResponse{{}}
	if out := p.OK(t, "bulk", "start", "repair", "mail", "status = ERROR", "--dry-run"); strings.Contains(out,
		"leaves out") {
		t.Errorf("%s", out)
	}
}

func TestBulkWait(t *testing.T) {
	failed := aBulk(bulkEnds, 12_000)
	failed.Failed, failed.Failures = 2, []*progressorv1.BulkFailure{{ProcessId: "order-9", Error: "held\nby another"}}
	for _, tt := range []struct {
		end  *progressorv1.Bulk
		code int
	}{
		{aBulk(bulkEnds, 12_000), cli.ExitOK}, {failed, cli.ExitFailed},
		{aBulk(progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED, 600), cli.ExitTaskFailed},
		{aBulk(progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, 600), cli.ExitTaskFailed},
	} {
		f := &clitest.Engine{Bulks: []*progressorv1.Bulk{aBulk(bulkRuns, 0), aBulk(bulkRuns, 600), tt.end}}
		p := clitest.Serve(t, newCommands, f)
		p.Terminal = true
		r := p.Run(t, "bulk", "start", "repair", "demo", "status = ERROR", "--wait")
		if r.Code != tt.code {
			t.Errorf("%v: code %d: %s", tt.end, r.Code, r.Stderr)
		}
		clitest.WantLines(t, r.Stdout, "status "+output.Enum(tt.end.GetStatus()))
		if !strings.Contains(r.Stderr, "\r\x1b[K[") || !strings.Contains(r.Stderr, "600 of 12,000") {
			t.Errorf("the bar: %q", r.Stderr)
		}
	}
	f := &clitest.Engine{Bulks: []*progressorv1.Bulk{failed}}
	p := clitest.Serve(t, newCommands, f)
	r := p.Run(t, "bulk", "start", "repair", "demo", "status = ERROR", "--wait", "-o", "json")
	if r.Code != cli.ExitFailed || strings.Contains(r.Stderr, "\r") || !strings.Contains(r.Stdout, `"failed": "2"`) {
		t.Errorf("%d %q %s", r.Code, r.Stderr, r.Stdout)
	}
	clitest.WantLines(t, p.OK(t, "bulk", "get", "demo", "b-1"), "failed 2", "newest failures",
		`order-9 held\nby another`, "all of them: progressor get demo '~bulk/b-1'")
}

func TestBulkGetListCancel(t *testing.T) {
	f := &clitest.Engine{Bulks: []*progressorv1.Bulk{aBulk(bulkRuns, 600)}}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "bulk", "get", "demo", "b-1"), "matched 600")
	clitest.WantRequest(t, f.Last, &progressorv1.GetBulkRequest{Namespace: "demo", BulkId: "b-1"})
	clitest.WantLines(t, p.OK(t, "bulk", "cancel", "demo", "b-1"), "status RUNNING")
	clitest.WantRequest(t, f.Last, &progressorv1.CancelBulkRequest{Namespace: "demo", BulkId: "b-1"})
	clitest.WantLines(t, p.OK(t, "bulk", "list", "demo", "--page-size", "7"),
		"NAMESPACE BULK ACTION STATUS STARTED EXPECTED DONE SKIPPED FAILED FILTER REASON",
		`demo b-1 repair RUNNING 2026-11-20T12:00:00.000Z 12,000 600 0 0 status = ERROR the books\nare back`,
		"more: --page-token demo:more, or --all")
	clitest.WantRequest(t, f.Last, &progressorv1.ListBulksRequest{Namespace: "demo", PageSize: 7})
	for _, command := range [][]string{{"get", "demo", "b-1"}, {"cancel", "demo", "b-1"}, {"list"}} {
		if out := p.OK(t, append(append([]string{"bulk"}, command...), "-o", "json")...); !strings.Contains(out,
			`"bulkId": "b-1"`) {
			t.Errorf("%s: %s", command, out)
		}
	}
	f.Err = clitest.EngineError(connect.CodeNotFound, "bulk not found: demo/b-2", &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, Namespace: "demo", ProcessId: "~bulk/b-2",
	})
	if r := p.Run(t, "bulk", "get", "demo", "b-2"); r.Code != cli.ExitNotFound ||
		!strings.Contains(r.Stderr, "progressor bulk list demo") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
}

func TestBarLine(t *testing.T) {
	of := func(status progressorv1.ProcessStatus, matched int64, change func(*progressorv1.Bulk)) *progressorv1.Bulk {
		b := aBulk(status, matched)
		change(b)
		return b
	}
	none := func(*progressorv1.Bulk) {}
	for want, b := range map[string]*progressorv1.Bulk{
		"[........................] 0 of 12,000":                      of(bulkRuns, 0, none),
		"[######..................] 3,000 of 12,000, 300/s, 30s left": of(bulkRuns, 3_000, none),
		"[########################] 12,000":                           of(bulkEnds, 12_000, none),
		"[########################] 0":                                of(bulkEnds, 0, none),
		"[############............] 6,000 of more than 12,000, 2 skipped": of(bulkRuns, 6_000,
			func(b *progressorv1.Bulk) { b.ExpectedMore, b.Skipped = true, 2 }),
		"[########################] 13,000 of 13,000, 1 failed, 1300/s, 0s left": of(bulkRuns, 13_000,
			func(b *progressorv1.Bulk) { b.Failed = 1 }),
	} {
		if got := barLine(b, b.GetMatched(), 10*time.Second); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
