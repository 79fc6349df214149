package job

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestJobEventsAndStats(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "job", "stats", "mail"),
		"NAME SCHEDULED AVAILABLE RUNNING RETRYABLE CANCEL REQUESTED SUCCEEDED FAILED CANCELLED",
		"send 0 7 0 0 1 0 2 0", "(all) 0 7 0 0 1 0 2 0",
		"oldest available: 1m30s")
	clitest.WantLines(t, p.OK(t, "job", "events", "mail", "job_id = m-1"), "m-1 lease_lost running available 1 host-1",
		"run-1/pay[0] progress", "kim", "more: --page-token next")
	if got := f.Last.(*progressorv1.ListJobEventsRequest).GetFilter(); got != "job_id = m-1" {
		t.Errorf("filter %s", got)
	}
	r := p.Run(t, "job", "events", "mail", "--watch")
	clitest.WantLines(t, r.Stdout, "run-1/pay[0] progress", "m-1 lease_lost running → available host-1 silent")
	if r.Code == 0 || !strings.Contains(r.Stderr, "--from: must be a cursor of a previous response") {
		t.Errorf("%+v", r)
	}
	if r := p.Run(t, "job", "events", "mail", "--watch", "-o", "json", "--from", "1.1"); !strings.Contains(r.Stdout,
		`"cursor":"1.2"`) || strings.Contains(r.Stdout, "1.1") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--from", "1.1"}, {"--watch", "--all"}} {
		if r := p.Run(t, append([]string{"job", "events", "mail"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestJobEnqueueFlags(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "job", "enqueue", "mail", "send", "--id", "m-1", "--args", `{"to":"ann"}`, "-k", "key",
		"--max-retry", "3", "--backoff-steps", "1s,10s", "--timeout", "5m",
		"--keep-result", "--tag", "a,b", "--tag", "c", "--metadata", `{"tenant":"acme"}`, "--unique-ttl", "1h",
		"--unique-scope", "waiting", "--max-takeovers", "0", "--priority", "-4",
		"--workers", "2", "--worker-id", "h,1", "--worker-id", "h2", "--max-failures", "1")
	clitest.WantLines(t, out, "job mail/m-1", "state AVAILABLE")
	want := &progressorv1.EnqueueRequest{
		Namespace: "mail", JobId: "m-1", Name: "send", IdempotencyKey: "key",
		Args: structpb.NewStructValue(
			&structpb.Struct{Fields: map[string]*structpb.Value{"to": structpb.NewStringValue("ann")}}),
		Options: &progressorv1.JobOptions{
			MaxRetry: 3, Timeout: durationpb.New(5 * time.Minute), KeepResult: true, Tags: []string{"a,b", "c"},
			Priority: -4, MaxTakeovers: new(int32),
			Backoff: &progressorv1.Backoff{
				Steps: []*durationpb.Duration{durationpb.New(time.Second), durationpb.New(10 * time.Second)}},
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"tenant": structpb.NewStringValue("acme")}},
			Workers:  &progressorv1.WorkerGroup{Count: 2, WorkerIds: []string{"h,1", "h2"}, MaxFailures: 1},
			Unique: &progressorv1.Unique{Ttl: durationpb.New(time.Hour),
				Scope: progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING},
		},
	}
	if got := f.Last.(*progressorv1.EnqueueRequest); !proto.Equal(got, want) {
		t.Errorf("got %s\nwant %s", protojson.Format(got), protojson.Format(want))
	}
	p.Stdin = `["from", "stdin"]`
	p.OK(t, "job", "enqueue", "mail", "send", "--args", "@-")
	if got := f.Last.(*progressorv1.EnqueueRequest); len(got.GetArgs().GetListValue().GetValues()) != 2 {
		t.Errorf("got %v", got)
	}
	for want, args := range map[string][]string{
		"set the name of the job":                 {"mail"},
		"--args: must be JSON":                    {"mail", "send", "--args", "{"},
		"'\"text\"': line 1, column 2: ":          {"mail", "send", "--args", "{bad"},
		"--unique-scope: unknown value \"never\"": {"mail", "send", "--unique-scope", "never"},
		"--tag":                               {"mail", "--file", "-", "--tag", "x"},
		"--unique cannot be used with --file": {"mail", "--file", "-", "--unique"},
	} {
		if r := p.Run(t, append([]string{"job", "enqueue"}, args...)...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// Lines are sent in batches of a thousand. An error names the line and the number of jobs that were
// enqueued before it.
func TestJobEnqueueFile(t *testing.T) {
	var lines strings.Builder
	for n := range 2300 {
		fmt.Fprintf(&lines, "{\"name\": \"send\", \"args\": %d, \"options\": {\"timeout\": \"1m\", \"unique\": "+
			"{\"scope\": \"waiting\"}}}\n\n", n)
	}
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	p.Terminal = true
	r := p.Run(t, "job", "enqueue", "mail", "--file", file)
	if r.Code != cli.ExitOK || !slices.Equal(f.Batches, []int{1000, 1000, 300}) ||
		!strings.Contains(r.Stderr, "[########################] 2,300 jobs") {
		t.Errorf("%v, %+v", f.Batches, r)
	}
	clitest.WantLines(t, r.Stdout, "enqueued 2,300")
	last := f.Last.(*progressorv1.EnqueueBatchRequest).GetJobs()[299]
	if last.GetNamespace() != "mail" || last.GetArgs().GetNumberValue() != 2299 ||
		last.GetOptions().GetUnique().GetScope() != progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING {
		t.Errorf("%v", last)
	}
	f.Batches, f.RejectBatch = nil, 2
	r = p.Run(t, "job", "enqueue", "mail", "--file", file)
	if r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr,
			"--file: line 2007: options.timeout: must be at most 365 days; no job of lines 2001 to 3999 was "+
				"enqueued; 1000 jobs before them were") {
		t.Errorf("%+v", r)
	}
	p.Stdin = `{"name": "a"}` + "\n" + `{"nam": "b"}`
	if r := p.Run(t, "job", "enqueue", "mail", "--file", "-"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "--file: line 2: nam: unknown field") {
		t.Errorf("%+v", r)
	}
	p.Stdin = `{"name": "a"}` + "\nxx"
	if r := p.Run(t, "job", "enqueue", "mail", "--file", "-"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr,
			`--file: line 2: must be a JSON object: an EnqueueRequest, such as {"name": "send_mail"}`) {
		t.Errorf("%+v", r)
	}
	p.Stdin = `{"name": "a", "namespace": "other"}`
	if r := p.Run(t, "job", "enqueue", "mail", "--file", "-"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "line 1: namespace: must be that of the command, mail (got other)") {
		t.Errorf("%+v", r)
	}
}

// A wait shows the progress on a terminal, and reports by its exit code how the job ended.
func TestJobWait(t *testing.T) {
	running := &progressorv1.Job{
		Namespace: "mail", JobId: "m-1", State: progressorv1.JobState_JOB_STATE_RUNNING, Attempt: 2,
		Progress: &progressorv1.Progress{Percent: 50, Summary: "half of\x1b[2J the letters"},
	}
	failed := &progressorv1.Job{
		Namespace: "mail", JobId: "m-1", State: progressorv1.JobState_JOB_STATE_FAILED, Attempt: 2,
		Failures: []*progressorv1.Failure{
			{Reason: "lease_lost", Message: "silent", Attempt: 1, WorkerId: "w\n1",
				FailedTime: timestamppb.New(time.Unix(1_800_000_000, 0)), Takeover: true},
			{Reason: "exit_3", Message: "no such mailbox", Attempt: 2, WorkerId: "w2",
				FailedTime: timestamppb.New(time.Unix(1_800_000_001, 0))},
		},
	}
	succeeded := &progressorv1.Job{Namespace: "mail", JobId: "m-1", State: progressorv1.JobState_JOB_STATE_SUCCEEDED,
		Attempt: 1}
	f := &clitest.Engine{Jobs: []*progressorv1.Job{running, failed}}
	p := clitest.Serve(t, newCommands, f)
	p.Terminal = true
	r := p.Run(t, "job", "get", "mail", "m-1", "--wait")
	if r.Code != cli.ExitTaskFailed ||
		!strings.Contains(r.Stderr,
			`[############............]  50 %  RUNNING, attempt 2  half of\u001b[2J the letters`) ||
		!strings.Contains(r.Stderr,
			"the job has failed: exit_3: no such mailbox. Next: progressor job retry mail m-1") {
		t.Errorf("%+v", r)
	}
	clitest.WantLines(t, r.Stdout, "state FAILED", "ATTEMPT FAILED WORKER FAILURE",
		`1 2027-01-15T08:00:00.000Z w\n1 lease_lost: silent (not counted as a retry)`,
		"2 2027-01-15T08:00:01.000Z w2 exit_3: no such mailbox")
	f.Jobs, p.Terminal = []*progressorv1.Job{running, succeeded}, false
	if r := p.Run(t, "job", "get", "mail", "m-1", "--wait", "-o", "json"); r.Code != cli.ExitOK || r.Stderr != "" ||
		!strings.Contains(r.Stdout, "JOB_STATE_SUCCEEDED") {
		t.Errorf("%+v", r)
	}
	f.Jobs = []*progressorv1.Job{running}
	if r := p.Run(t, "job", "get", "mail", "m-1", "--wait", "--wait-timeout", "1ms"); r.Code != cli.ExitTimeout {
		t.Errorf("%+v", r)
	}
}

func TestJobListUpdateAndErrors(t *testing.T) {
	f := &clitest.Engine{Jobs: []*progressorv1.Job{
		{JobId: "m-1", Name: "send", State: progressorv1.JobState_JOB_STATE_SCHEDULED, BlockedOn: "time: tomorrow"}}}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "job", "list", "mail", "--state", "job_state_scheduled", "--name", `a*"b`, "tags:urgent")
	clitest.WantLines(t, out, "m-1 send SCHEDULED 0 0", "time: tomorrow", "more: --page-token next")
	if got := f.Last.(*progressorv1.ListJobsRequest).GetFilter(); got !=
		`((state = SCHEDULED) AND (name = "a\*\"b")) AND (tags:urgent)` {
		t.Errorf("filter %s", got)
	}
	p.OK(t, "job", "update", "mail", "m-1", "--priority", "0", "--no-keep-result", "--clear", "tags,run-time")
	if got := f.Last.(*progressorv1.UpdateJobRequest).GetUpdateMask().GetPaths(); !slices.Equal(got,
		[]string{"priority", "keep_result", "tags", "run_time"}) {
		t.Errorf("mask %v", got)
	}
	for _, args := range [][]string{{}, {"--tag", "x", "--clear", "tags"}} {
		if r := p.Run(t, append([]string{"job", "update", "mail", "m-1"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	f.Err = clitest.EngineError(connect.CodeFailedPrecondition, "job mail/m-1 is FAILED: the job has ended",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail",
			ProcessId: "m-1", ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR})
	if r := p.Run(t, "job", "cancel", "mail", "m-1"); r.Code != cli.ExitConflict ||
		!strings.Contains(r.Stderr,
			"job mail/m-1 is FAILED: the job has ended (process_status). Next: progressor job get mail m-1") {
		t.Errorf("%+v", r)
	}
}
