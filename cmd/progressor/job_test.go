package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// fakeQueue answers by a script and keeps the last request, as fakeEngine does.
type fakeQueue struct {
	progressorv1connect.UnimplementedJobServiceHandler
	progressorv1connect.UnimplementedWorkerServiceHandler
	progressorv1connect.UnimplementedJobEventServiceHandler

	fakeEngine
	jobs    []*progressorv1.Job // the states of a job, one after the other
	batches []int               // sizes
	refuse  int                 // the batch that is rejected, from 1
}

func (f *fakeQueue) Enqueue(_ context.Context, r *progressorv1.EnqueueRequest) (*progressorv1.EnqueueResponse, error) {
	job := &progressorv1.Job{Namespace: r.GetNamespace(), JobId: r.GetJobId(), Name: r.GetName(), State: progressorv1.JobState_JOB_STATE_AVAILABLE}
	return answer(&f.fakeEngine, r, &progressorv1.EnqueueResponse{Job: job, Enqueued: true})
}

func (f *fakeQueue) EnqueueBatch(_ context.Context, r *progressorv1.EnqueueBatchRequest) (*progressorv1.EnqueueBatchResponse, error) {
	f.batches = append(f.batches, len(r.GetJobs()))
	if len(f.batches) == f.refuse {
		return nil, engineError(connect.CodeInvalidArgument, "jobs[3].options.timeout: must be at most 365 days",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "jobs[3].options.timeout"})
	}
	resp := &progressorv1.EnqueueBatchResponse{}
	for range r.GetJobs() {
		resp.Jobs = append(resp.Jobs, &progressorv1.EnqueueResponse{Enqueued: true})
	}
	return answer(&f.fakeEngine, r, resp)
}

func (f *fakeQueue) GetJob(_ context.Context, r *progressorv1.GetJobRequest) (*progressorv1.GetJobResponse, error) {
	job := f.jobs[0]
	if len(f.jobs) > 1 {
		f.jobs = f.jobs[1:]
	}
	return answer(&f.fakeEngine, r, &progressorv1.GetJobResponse{Job: job})
}

func (f *fakeQueue) ListJobs(_ context.Context, r *progressorv1.ListJobsRequest) (*progressorv1.ListJobsResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.ListJobsResponse{Jobs: f.jobs, NextPageToken: "next"})
}

func (f *fakeQueue) FetchResult(_ context.Context, r *progressorv1.FetchResultRequest) (*progressorv1.FetchResultResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.FetchResultResponse{State: progressorv1.JobState_JOB_STATE_RUNNING})
}

func (f *fakeQueue) UpdateJob(_ context.Context, r *progressorv1.UpdateJobRequest) (*progressorv1.UpdateJobResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.UpdateJobResponse{Job: &progressorv1.Job{}})
}

func (f *fakeQueue) CancelJob(_ context.Context, r *progressorv1.CancelJobRequest) (*progressorv1.CancelJobResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.CancelJobResponse{Job: &progressorv1.Job{}})
}

func (f *fakeQueue) StopWorker(_ context.Context, r *progressorv1.StopWorkerRequest) (*progressorv1.StopWorkerResponse, error) {
	w := &progressorv1.Worker{WorkerId: r.GetWorkerId(), Namespaces: []string{"mail", "media"}, Leases: 3, Directive: r.GetDirective()}
	return answer(&f.fakeEngine, r, &progressorv1.StopWorkerResponse{Worker: w})
}

func (f *fakeQueue) GetQueueStats(_ context.Context, r *progressorv1.GetQueueStatsRequest) (*progressorv1.GetQueueStatsResponse, error) {
	counts := map[string]int64{"available": 7, "cancel_requested": 1, "failed": 2}
	return answer(&f.fakeEngine, r, &progressorv1.GetQueueStatsResponse{
		CountByState: counts, Names: []*progressorv1.JobNameStats{{Name: "send", CountByState: counts}}, OldestAvailableAge: durationpb.New(90 * time.Second),
	})
}

// becameOf are the events that fakeQueue knows.
var becameOf = []*progressorv1.JobEvent{
	{EventId: 2, JobId: "m-1", Type: "lease_lost", From: "running", To: "available", Attempt: 1, WorkerId: "host-1", Message: "silent"},
	{EventId: 1, JobId: "run-1", StepId: "pay", Index: new(int32), Type: "progress", Actor: "kim"},
}

func (f *fakeQueue) ListJobEvents(_ context.Context, r *progressorv1.ListJobEventsRequest) (*progressorv1.ListJobEventsResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.ListJobEventsResponse{Events: becameOf, NextPageToken: "next"})
}

// WatchJobEvents sends one event per stream, so that the client must continue from its cursor.
func (f *fakeQueue) WatchJobEvents(_ context.Context, r *progressorv1.WatchJobEventsRequest, s *connect.ServerStream[progressorv1.WatchJobEventsResponse]) error {
	f.last = r
	switch r.GetCursor() {
	case "":
		return s.Send(&progressorv1.WatchJobEventsResponse{Cursor: "1.0"})
	case "1.0":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: becameOf[1], Cursor: "1.1"})
	case "1.1":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: becameOf[0], Cursor: "1.2"})
	}
	return engineError(connect.CodeInvalidArgument, "cursor: must be a cursor of a previous response", &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "cursor"})
}

func TestJobEventsAndStats(t *testing.T) {
	f := &fakeQueue{}
	p := serveQueue(t, f)
	wantLines(t, p.ok(t, "job", "stats", "mail"), "NAME SCHEDULED AVAILABLE RUNNING RETRYABLE CANCEL REQUESTED SUCCEEDED FAILED CANCELLED", "send 0 7 0 0 1 0 2 0", "(all) 0 7 0 0 1 0 2 0",
		"oldest available: 1m30s")
	wantLines(t, p.ok(t, "job", "events", "mail", "job_id = m-1"), "m-1 lease_lost running available 1 host-1", "run-1/pay[0] progress", "kim", "more: --page-token next")
	if got := f.last.(*progressorv1.ListJobEventsRequest).GetFilter(); got != "job_id = m-1" {
		t.Errorf("filter %s", got)
	}
	r := p.run(t, "job", "events", "mail", "--watch")
	wantLines(t, r.stdout, "run-1/pay[0] progress", "m-1 lease_lost running → available host-1 silent")
	if r.code == 0 || !strings.Contains(r.stderr, "cursor: must be a cursor of a previous response") {
		t.Errorf("%+v", r)
	}
	if r := p.run(t, "job", "events", "mail", "--watch", "-o", "json", "--cursor", "1.1"); !strings.Contains(r.stdout, `"cursor":"1.2"`) || strings.Contains(r.stdout, "1.1") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--cursor", "1.1"}, {"--watch", "--all"}} {
		if r := p.run(t, append([]string{"job", "events", "mail"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func serveQueue(t *testing.T, f *fakeQueue) program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewJobServiceHandler(f))
	mux.Handle(progressorv1connect.NewWorkerServiceHandler(f))
	mux.Handle(progressorv1connect.NewJobEventServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return program{env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

func TestJobEnqueueFlags(t *testing.T) {
	f := &fakeQueue{}
	p := serveQueue(t, f)
	out := p.ok(t, "job", "enqueue", "mail", "send", "--id", "m-1", "--args", `{"to":"ann"}`, "-k", "key", "--max-retry", "3", "--backoff-steps", "1s,10s", "--timeout", "5m",
		"--keep-result", "--tag", "a,b", "--tag", "c", "--metadata", `{"tenant":"acme"}`, "--unique-ttl", "1h", "--unique-scope", "waiting", "--max-takeovers", "0", "--priority", "-4",
		"--workers", "2", "--worker-id", "h,1", "--worker-id", "h2", "--max-failures", "1")
	wantLines(t, out, "job mail/m-1", "state AVAILABLE")
	want := &progressorv1.EnqueueRequest{
		Namespace: "mail", JobId: "m-1", Name: "send", IdempotencyKey: "key",
		Args: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"to": structpb.NewStringValue("ann")}}),
		Options: &progressorv1.JobOptions{
			MaxRetry: 3, Timeout: durationpb.New(5 * time.Minute), KeepResult: true, Tags: []string{"a,b", "c"}, Priority: -4, MaxTakeovers: new(int32),
			Backoff:  &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Second), durationpb.New(10 * time.Second)}},
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"tenant": structpb.NewStringValue("acme")}},
			Workers:  &progressorv1.WorkerGroup{Count: 2, WorkerIds: []string{"h,1", "h2"}, MaxFailures: 1},
			Unique:   &progressorv1.Unique{Ttl: durationpb.New(time.Hour), Scope: progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING},
		},
	}
	if got := f.last.(*progressorv1.EnqueueRequest); !proto.Equal(got, want) {
		t.Errorf("got %s\nwant %s", protojson.Format(got), protojson.Format(want))
	}
	p.stdin = `["from", "stdin"]`
	p.ok(t, "job", "enqueue", "mail", "send", "--args", "@-")
	if got := f.last.(*progressorv1.EnqueueRequest); len(got.GetArgs().GetListValue().GetValues()) != 2 {
		t.Errorf("got %v", got)
	}
	for says, args := range map[string][]string{
		"set the name of the job":                 {"mail"},
		"--args: must be JSON":                    {"mail", "send", "--args", "{"},
		"'\"text\"': line 1, column 2: ":          {"mail", "send", "--args", "{bad"},
		"--unique-scope: unknown value \"never\"": {"mail", "send", "--unique-scope", "never"},
		"--tag":                               {"mail", "--file", "-", "--tag", "x"},
		"--unique cannot be used with --file": {"mail", "--file", "-", "--unique"},
	} {
		if r := p.run(t, append([]string{"job", "enqueue"}, args...)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// Lines are sent in batches of a thousand. An error names its line and what was enqueued before.
func TestJobEnqueueFile(t *testing.T) {
	var lines strings.Builder
	for n := range 2300 {
		fmt.Fprintf(&lines, "{\"name\": \"send\", \"args\": %d, \"options\": {\"timeout\": \"1m\", \"unique\": {\"scope\": \"waiting\"}}}\n\n", n)
	}
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fakeQueue{}
	p := serveQueue(t, f)
	p.terminal = true
	r := p.run(t, "job", "enqueue", "mail", "--file", file)
	if r.code != exitOK || !slices.Equal(f.batches, []int{1000, 1000, 300}) || !strings.Contains(r.stderr, "[########################] 2,300 jobs") {
		t.Errorf("%v, %+v", f.batches, r)
	}
	wantLines(t, r.stdout, "enqueued 2,300")
	last := f.last.(*progressorv1.EnqueueBatchRequest).GetJobs()[299]
	if last.GetNamespace() != "mail" || last.GetArgs().GetNumberValue() != 2299 || last.GetOptions().GetUnique().GetScope() != progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING {
		t.Errorf("%v", last)
	}
	f.batches, f.refuse = nil, 2
	r = p.run(t, "job", "enqueue", "mail", "--file", file)
	if r.code != exitUsage || !strings.Contains(r.stderr, "--file: line 2007: options.timeout: must be at most 365 days; no job of lines 2001 to 3999 was enqueued; 1000 jobs before them were") {
		t.Errorf("%+v", r)
	}
	p.stdin = `{"name": "a"}` + "\n" + `{"nam": "b"}`
	if r := p.run(t, "job", "enqueue", "mail", "--file", "-"); r.code != exitUsage || !strings.Contains(r.stderr, "--file: line 2: nam: unknown field") {
		t.Errorf("%+v", r)
	}
	p.stdin = `{"name": "a"}` + "\nxx"
	if r := p.run(t, "job", "enqueue", "mail", "--file", "-"); r.code != exitUsage || !strings.Contains(r.stderr, `--file: line 2: must be a JSON object: an EnqueueRequest, such as {"name": "send_mail"}`) {
		t.Errorf("%+v", r)
	}
	p.stdin = `{"name": "a", "namespace": "other"}`
	if r := p.run(t, "job", "enqueue", "mail", "--file", "-"); r.code != exitUsage || !strings.Contains(r.stderr, "line 1: namespace: must be that of the command, mail (got other)") {
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
			{Reason: "lease_lost", Message: "silent", Attempt: 1, WorkerId: "w\n1", FailedTime: timestamppb.New(time.Unix(1_800_000_000, 0)), Takeover: true},
			{Reason: "exit_3", Message: "no such mailbox", Attempt: 2, WorkerId: "w2", FailedTime: timestamppb.New(time.Unix(1_800_000_001, 0))},
		},
	}
	succeeded := &progressorv1.Job{Namespace: "mail", JobId: "m-1", State: progressorv1.JobState_JOB_STATE_SUCCEEDED, Attempt: 1}
	f := &fakeQueue{jobs: []*progressorv1.Job{running, failed}}
	p := serveQueue(t, f)
	p.terminal = true
	r := p.run(t, "job", "get", "mail", "m-1", "--wait")
	if r.code != exitTaskFailed || !strings.Contains(r.stderr, `[############............]  50 %  RUNNING, attempt 2  half of\u001b[2J the letters`) ||
		!strings.Contains(r.stderr, "the job has failed: exit_3: no such mailbox. Next: progressor job retry mail m-1") {
		t.Errorf("%+v", r)
	}
	wantLines(t, r.stdout, "state FAILED", "ATTEMPT FAILED WORKER FAILURE", `1 2027-01-15T08:00:00.000Z w\n1 lease_lost: silent (not counted as a retry)`,
		"2 2027-01-15T08:00:01.000Z w2 exit_3: no such mailbox")
	f.jobs, p.terminal = []*progressorv1.Job{running, succeeded}, false
	if r := p.run(t, "job", "get", "mail", "m-1", "--wait", "-o", "json"); r.code != exitOK || r.stderr != "" || !strings.Contains(r.stdout, "JOB_STATE_SUCCEEDED") {
		t.Errorf("%+v", r)
	}
	f.jobs = []*progressorv1.Job{running}
	if r := p.run(t, "job", "get", "mail", "m-1", "--wait", "--wait-timeout", "1ms"); r.code != exitTimeout {
		t.Errorf("%+v", r)
	}
}

func TestJobListUpdateAndErrors(t *testing.T) {
	f := &fakeQueue{jobs: []*progressorv1.Job{{JobId: "m-1", Name: "send", State: progressorv1.JobState_JOB_STATE_SCHEDULED, BlockedOn: "time: tomorrow"}}}
	p := serveQueue(t, f)
	out := p.ok(t, "job", "list", "mail", "--state", "job_state_scheduled", "--name", `a*"b`, "tags:urgent")
	wantLines(t, out, "m-1 send SCHEDULED 0 0", "time: tomorrow", "more: --page-token next")
	if got := f.last.(*progressorv1.ListJobsRequest).GetFilter(); got != `((state = SCHEDULED) AND (name = "a\*\"b")) AND (tags:urgent)` {
		t.Errorf("filter %s", got)
	}
	p.ok(t, "job", "update", "mail", "m-1", "--priority", "0", "--no-keep-result", "--clear", "tags,run-time")
	if got := f.last.(*progressorv1.UpdateJobRequest).GetUpdateMask().GetPaths(); !slices.Equal(got, []string{"priority", "keep_result", "tags", "run_time"}) {
		t.Errorf("mask %v", got)
	}
	for _, args := range [][]string{{}, {"--tag", "x", "--clear", "tags"}} {
		if r := p.run(t, append([]string{"job", "update", "mail", "m-1"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	f.err = engineError(connect.CodeFailedPrecondition, "job mail/m-1 is FAILED: the job has ended",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail", ProcessId: "m-1", ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR})
	if r := p.run(t, "job", "cancel", "mail", "m-1"); r.code != exitConflict || !strings.Contains(r.stderr, "job mail/m-1 is FAILED: the job has ended (process_status). Next: progressor job get mail m-1") {
		t.Errorf("%+v", r)
	}
}

func TestWorkerStop(t *testing.T) {
	f := &fakeQueue{}
	p := serveQueue(t, f)
	wantLines(t, p.ok(t, "worker", "stop", "mail", "host-1", "--grace", "1m", "--reason", "deploy"), "host-1 3 STOP mail, media")
	if got := f.last.(*progressorv1.StopWorkerRequest); got.GetGrace().AsDuration() != time.Minute || got.GetReason() != "deploy" {
		t.Errorf("%v", got)
	}
	wantLines(t, p.ok(t, "worker", "stop", "mail", "host-1", "--quiet"), "QUIET")
	wantLines(t, p.ok(t, "worker", "stop", "mail", "host-1", "--continue"), "CONTINUE")
	if r := p.run(t, "worker", "stop", "mail", "host-1", "--quiet", "--continue"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
}
