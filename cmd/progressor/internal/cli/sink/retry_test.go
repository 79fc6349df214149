package sink

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// deadLetter returns a dead letter. waits reports whether it waits to be delivered again.
func deadLetter(id int64, waits bool) *progressorv1.SinkDeadLetter {
	d := &progressorv1.SinkDeadLetter{
		ChangeId: id, ProcessId: "p", Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored",
		Error: "HTTP 413", Attempts: 1,
	}
	if waits {
		d.RetryTime = timestamppb.Now()
	}
	return d
}

// selected returns a response with dead letters of a sink.
func selected(
	state progressorv1.SinkState, letters ...*progressorv1.SinkDeadLetter,
) *progressorv1.RetrySinkDeadLettersResponse {
	m := shown()
	m.Status.State = state
	return &progressorv1.RetrySinkDeadLettersResponse{DeadLetters: letters, Sink: m}
}

const (
	active = progressorv1.SinkState_SINK_STATE_ACTIVE
	paused = progressorv1.SinkState_SINK_STATE_PAUSED
)

// Retry sends the selection of the flags, and prints what happens next.
func TestRetry(t *testing.T) {
	deleted := deadLetter(9, false)
	deleted.ChangeDeleted = true
	f := &clitest.Engine{Retries: []*progressorv1.RetrySinkDeadLettersResponse{
		selected(active, deadLetter(7, true), deadLetter(8, true), deleted),
	}}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "sink", "retry", "orders", "audit", "--letter", "7", "--letter", "8", "--process", "~flow/r",
		"--error", "HTTP 413", "--from", "2026-11-26", "--to", "2026-11-27")
	clitest.WantLines(t, out, "sink orders/audit", "state active", "selected 3", "waiting 2", "change deleted 1",
		"progress: progressor sink get orders audit")
	at := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	clitest.WantRequest(t, f.Last, &progressorv1.RetrySinkDeadLettersRequest{
		Namespace: "orders", SinkId: "audit", ChangeIds: []int64{7, 8}, OfProcessId: "~flow/r", Error: "HTTP 413",
		SinceTime: timestamppb.New(at), UntilTime: timestamppb.New(at.AddDate(0, 0, 1)),
	})
	f.Retries = []*progressorv1.RetrySinkDeadLettersResponse{selected(paused, deadLetter(7, true))}
	clitest.WantLines(t, p.OK(t, "sink", "retry", "orders", "audit", "--all"), "state paused",
		"to deliver them: progressor sink resume orders audit")
	clitest.WantRequest(t, f.Last,
		&progressorv1.RetrySinkDeadLettersRequest{Namespace: "orders", SinkId: "audit", All: true})
	f.Retries = []*progressorv1.RetrySinkDeadLettersResponse{selected(active, deadLetter(7, false))}
	clitest.WantLines(t, p.OK(t, "sink", "retry", "orders", "audit", "--all", "--dry-run"), "selected 1",
		"7 p event stored 1 HTTP 413")
	clitest.WantRequest(t, f.Last,
		&progressorv1.RetrySinkDeadLettersRequest{Namespace: "orders", SinkId: "audit", All: true, DryRun: true})
	if out := p.OK(t, "sink", "retry", "orders", "audit", "--all", "-o", "json"); !strings.Contains(out,
		`"changeId": "7"`) {
		t.Error(out)
	}
	f.Retries = []*progressorv1.RetrySinkDeadLettersResponse{selected(active)}
	r := p.Run(t, "sink", "retry", "orders", "audit", "--letter", "7")
	if r.Code != cli.ExitNotFound || !strings.Contains(r.Stderr, "the sink has no such dead letter") {
		t.Errorf("%+v", r)
	}
	for args, wanted := range map[string]string{
		"":                       "set --all, or select dead letters with --letter",
		"--all --letter 7":       "--all selects all dead letters: omit --letter",
		"--all --dry-run --wait": "use either --dry-run or --wait",
		"--from yesterday":       "--from: must be a time",
	} {
		r := p.Run(t, append([]string{"sink", "retry", "orders", "audit"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, wanted) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// With --wait, retry waits for the selected dead letters, and prints how many were delivered.
func TestRetryWaits(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	retry := func(code int, responses []*progressorv1.RetrySinkDeadLettersResponse, args ...string) clitest.Result {
		t.Helper()
		f.Retries = responses
		r := p.Run(t, append([]string{"sink", "retry", "orders", "audit", "--all", "--wait"}, args...)...)
		if r.Code != code {
			t.Fatalf("%+v", r)
		}
		return r
	}
	some := []*progressorv1.RetrySinkDeadLettersResponse{
		selected(active, deadLetter(7, true), deadLetter(8, true)), selected(active, deadLetter(8, true)),
		selected(active, deadLetter(8, false)),
	}
	r := retry(cli.ExitFailed, some)
	clitest.WantLines(t, r.Stdout, "selected 2", "delivered 1", "failed 1", "8 p event stored 1 HTTP 413")
	if !strings.Contains(r.Stderr, "1 dead letter not delivered") {
		t.Error(r.Stderr)
	}
	clitest.WantRequest(t, f.Last, &progressorv1.RetrySinkDeadLettersRequest{
		Namespace: "orders", SinkId: "audit", ChangeIds: []int64{7, 8}, DryRun: true,
	})
	r = retry(cli.ExitFailed, some, "-o", "json")
	for _, text := range []string{`"selected": 2`, `"delivered": 1`, `"failed": 1`, `"changeId": "8"`} {
		if !strings.Contains(r.Stdout, text) {
			t.Errorf("%s lacks %s", r.Stdout, text)
		}
	}
	all := []*progressorv1.RetrySinkDeadLettersResponse{selected(active, deadLetter(7, true)), selected(active)}
	clitest.WantLines(t, retry(cli.ExitOK, all).Stdout, "selected 1", "delivered 1", "failed 0")
	none := []*progressorv1.RetrySinkDeadLettersResponse{selected(active)}
	clitest.WantLines(t, retry(cli.ExitOK, none).Stdout, "selected 0", "delivered 0")
	stopped := []*progressorv1.RetrySinkDeadLettersResponse{selected(paused, deadLetter(7, true))}
	r = retry(cli.ExitConflict, stopped)
	if !strings.Contains(r.Stderr, "the sink is paused: 1 dead letter waits until it is resumed") ||
		!strings.Contains(r.Stderr, "progressor sink resume orders audit") {
		t.Error(r.Stderr)
	}
}

func TestRetryLine(t *testing.T) {
	if got := retryLine(2000, 500, 20); got != "[##################......] 1,500 of 2,000, 20 failed" {
		t.Error(got)
	}
}
