package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// resultsNamespace is a pull namespace without retries. Only processLease and timerLease take its
// tasks.
const resultsNamespace = "results"

// listRequests returns requests with long lists, and answers of workers.
func (l *limits) listRequests() []request {
	const payload, metadata = 1 << 20, 64 << 10
	l.cli.OK(l.t, "namespace", "put", resultsNamespace, "--pull", "--max-attempts", "1")
	return []request{
		{"UpdateJob", sends(l.api.Job.UpdateJob), func() proto.Message {
			r, err := l.api.Job.Enqueue(l.ctx,
				&progressorv1.EnqueueRequest{Namespace: limitsNamespace, Name: "later",
					Delay: durationpb.New(time.Hour)})
			if err != nil {
				l.t.Fatal(err)
			}
			return &progressorv1.UpdateJobRequest{
				Namespace: limitsNamespace, JobId: r.GetJob().GetJobId(), Options: &progressorv1.JobOptions{},
				Args:       structpb.NewNullValue(),
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"tags", "metadata", "backoff", "args"}},
			}
		}, []bound{
			{field: "args", most: payload}, {field: "options.metadata", most: metadata},
			{field: "options.tags", most: 100},
			{field: "options.backoff.steps", most: 1000},
		}},
		{"EnqueueBatch", sends(l.api.Job.EnqueueBatch),
			func() proto.Message { return &progressorv1.EnqueueBatchRequest{} }, []bound{
				{field: "jobs", most: 10_000, fill: func(m proto.Message, n int) {
					for range n {
						m := m.(*progressorv1.EnqueueBatchRequest)
						m.Jobs = append(m.Jobs, &progressorv1.EnqueueRequest{Namespace: limitsNamespace, Name: "batch"})
					}
				}},
			}},
		{"CancelJob", sends(l.api.Job.CancelJob), func() proto.Message {
			return &progressorv1.CancelJobRequest{Namespace: limitsNamespace, JobId: l.lease().GetJob().GetJobId()}
		}, []bound{{field: "reason", most: 4096}}},
		{"StopWorker", sends(l.api.Worker.StopWorker), func() proto.Message {
			l.lease()
			return &progressorv1.StopWorkerRequest{Namespace: limitsNamespace, WorkerId: "w",
				Directive: progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE}
		}, []bound{{field: "reason", most: 4096}}},
		{"Heartbeat with leases", sends(l.api.Worker.Heartbeat), func() proto.Message {
			return &progressorv1.HeartbeatRequest{WorkerId: "w"}
		}, []bound{{field: "beats", most: 10_000, fill: func(m proto.Message, n int) {
			for i := range n {
				m := m.(*progressorv1.HeartbeatRequest)
				m.Beats = append(m.Beats, &progressorv1.LeaseBeat{LeaseToken: lostToken(i)})
			}
		}}}},
		{"Release", sends(l.api.Worker.Release), func() proto.Message {
			return &progressorv1.ReleaseRequest{WorkerId: "w"}
		}, []bound{{field: "lease_tokens", most: 10_000, fill: func(m proto.Message, n int) {
			for i := range n {
				m := m.(*progressorv1.ReleaseRequest)
				m.LeaseTokens = append(m.LeaseTokens, lostToken(i))
			}
		}}}},
		{"CompleteBatch", sends(l.api.Worker.CompleteBatch), func() proto.Message {
			return &progressorv1.CompleteBatchRequest{}
		}, []bound{{field: "answers", most: 1000, fill: func(m proto.Message, n int) {
			for i := range n {
				m := m.(*progressorv1.CompleteBatchRequest)
				m.Answers = append(m.Answers, &progressorv1.LeaseAnswer{
					LeaseToken: lostToken(i),
					Answer:     &progressorv1.LeaseAnswer_JobResult{JobResult: &progressorv1.JobResult{}},
				})
			}
		}}}},
		{"Complete after a cancel", sends(l.api.Worker.Complete), func() proto.Message {
			lease := l.lease()
			if _, err := l.api.Job.CancelJob(l.ctx,
				&progressorv1.CancelJobRequest{Namespace: limitsNamespace,
					JobId: lease.GetJob().GetJobId()}); err != nil {
				l.t.Fatal(err)
			}
			return &progressorv1.CompleteRequest{LeaseToken: lease.GetLeaseToken(),
				Answer: &progressorv1.CompleteRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}}}
		}, []bound{{field: "cancelled.message", most: 64 << 10}}},
		{"Complete", sends(l.api.Worker.Complete), func() proto.Message {
			return &progressorv1.CompleteRequest{LeaseToken: l.processLease().GetLeaseToken(),
				Answer: &progressorv1.CompleteRequest_Response{
					Response: &progressorv1.ProcessResponse{
						Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}}},
				}}
		}, []bound{
			{field: "response.result.events", most: 1000}, {field: "response.result.events[0].payload", most: payload},
			{field: "response.result.aux_state", most: payload}, {field: "response.result.response", most: payload},
			{field: "response.result.commands", most: 100, fill: fillCommands},
			{field: "response.result.named_timers", most: 100, fill: fillNamedTimers},
			{field: "response.result.unset_named_timers", most: 100},
			{field: "response.result.unset_named_timers[0]", most: 256},
			{field: "response.result.metadata", most: 100, deep: true},
		}},
		{"Checkpoint", sends(l.api.Worker.Checkpoint), func() proto.Message {
			return &progressorv1.CheckpointRequest{
				LeaseToken: l.timerLease().GetLeaseToken(), Events: []*progressorv1.NewEvent{{}}}
		}, []bound{
			{field: "events", most: 1000}, {field: "events[0].payload", most: payload},
			{field: "aux_state", most: payload}, {field: "metadata", most: 100, deep: true},
		}},
	}
}

// processLease returns the lease of the INIT task of a new process in resultsNamespace.
func (l *limits) processLease() *progressorv1.Lease {
	l.t.Helper()
	if _, err := l.api.Start(l.ctx,
		&progressorv1.StartRequest{Namespace: resultsNamespace, ProcessId: l.id(),
			Wait: progressorv1.Wait_WAIT_ACCEPTED}); err != nil {
		l.t.Fatal(err)
	}
	r, err := l.api.Worker.Poll(l.ctx, resultsPoll())
	if err != nil || len(r.GetLeases()) != 1 {
		l.t.Fatalf("%d leases, %v", len(r.GetLeases()), err)
	}
	return r.GetLeases()[0]
}

func resultsPoll() *progressorv1.PollRequest {
	return &progressorv1.PollRequest{Namespaces: []string{resultsNamespace}, WorkerId: "w", MaxLeases: 1,
		Wait: durationpb.New(clitest.DaemonWait)}
}

// timerLease returns the lease of the timer of a new process in resultsNamespace.
func (l *limits) timerLease() *progressorv1.Lease {
	l.t.Helper()
	r, err := l.api.Worker.Complete(l.ctx, &progressorv1.CompleteRequest{
		LeaseToken: l.processLease().GetLeaseToken(), Next: resultsPoll(),
		Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
				Action: &progressorv1.Result_SetTimer{SetTimer: &progressorv1.SetTimer{
					When: &progressorv1.SetTimer_After{After: durationpb.New(0)}}}}}}},
	})
	if err != nil || len(r.GetNext()) != 1 {
		l.t.Fatalf("%d leases, %v", len(r.GetNext()), err)
	}
	return r.GetNext()[0]
}

// lostToken returns the token of a lease that does not exist.
func lostToken(i int) string {
	token := append([]byte{byte(len(limitsNamespace))}, limitsNamespace...)
	token = binary.BigEndian.AppendUint64(token, uint64(i+1)) // the fencing token
	token = append(token, make([]byte, 16)...)                // the salt
	return base64.RawURLEncoding.EncodeToString(append(token, "none"...))
}

func fillExpressions(m proto.Message, n int) {
	spec := m.(*progressorv1.CreateCronRequest).GetCron().GetSpec()
	spec.Expressions = nil
	for i := range n {
		spec.Expressions = append(spec.Expressions, fmt.Sprintf("%d %d * * *", i%60, i/60))
	}
}

// fillFailure sets the outcome of a CompleteStepRequest to a failure of n bytes.
func fillFailure(m proto.Message, n int) {
	failure := &progressorv1.Failure{Reason: "r"}
	failure.Message = xs("", n-proto.Size(failure)-4) // the tag and the length of the field have four bytes
	m.(*progressorv1.CompleteStepRequest).Outcome = &progressorv1.CompleteStepRequest_Failure{Failure: failure}
}

func fillSteps(m proto.Message, n int) {
	t := m.(*progressorv1.PutTemplateRequest).GetTemplate()
	for len(t.GetSteps()) < n {
		step := waitStep()
		step.StepId = "s" + strconv.Itoa(len(t.GetSteps()))
		t.Steps = append(t.Steps, step)
	}
}

// fillTemplate extends a template to n bytes of JSON.
func fillTemplate(m proto.Message, n int) {
	t := m.(*progressorv1.PutTemplateRequest).GetTemplate()
	t.Steps[0].Input = structpb.NewStringValue("")
	text, _ := protojson.Marshal(t)
	var compact bytes.Buffer
	_ = json.Compact(&compact, text)
	t.Steps[0].Input = structpb.NewStringValue(xs("", n-compact.Len()))
}

func fillNamespaces(m proto.Message, n int) {
	r := m.(*progressorv1.PollRequest)
	for len(r.GetNamespaces()) < n {
		r.Namespaces = append(r.Namespaces, limitsNamespace)
	}
}

func connectOf(m proto.Message) *progressorv1.ConnectProcessor {
	return m.(*progressorv1.PutNamespaceRequest).GetNamespace().GetProcessor().GetConnect()
}

func fillURLs(m proto.Message, n int) {
	for i := range n {
		connectOf(m).MoreUrls = append(connectOf(m).MoreUrls, "http://127.0.0.1:1/"+strconv.Itoa(i))
	}
}

func fillHeaders(m proto.Message, n int) {
	connectOf(m).Headers = map[string]string{}
	for i := range n {
		connectOf(m).Headers["h"+strconv.Itoa(i)] = "v"
	}
}

func fillHeaderName(m proto.Message, n int) {
	connectOf(m).Headers = map[string]string{xs("", n): "v"}
}

func fillHeaderValue(m proto.Message, n int) {
	connectOf(m).Headers = map[string]string{"h": xs("", n)}
}

// fillAllHeaders sets headers whose names and values have n bytes in total.
func fillAllHeaders(m proto.Message, n int) {
	connectOf(m).Headers = map[string]string{}
	for i := range 8 {
		size := n / 8
		if i == 0 {
			size += n % 8
		}
		connectOf(m).Headers["h"+strconv.Itoa(i)] = xs("", size-len("h0"))
	}
}

func fillTimers(m proto.Message, n int) {
	r := m.(*progressorv1.PutProcessRequest)
	r.Status = progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING
	for i := range n {
		r.Timers = append(r.Timers,
			&progressorv1.Timer{Name: "t" + strconv.Itoa(i), FireTime: timestamppb.New(time.Now().Add(time.Hour))})
	}
}

func fillHistory(m proto.Message, n int) {
	r := m.(*progressorv1.PutProcessRequest)
	for i := range n {
		r.History = append(r.History, &progressorv1.Event{EventId: int64(i) + 1})
	}
}

func fillCommands(m proto.Message, n int) {
	result := m.(*progressorv1.CompleteRequest).GetResponse().GetResult()
	for range n {
		result.Commands = append(result.Commands,
			&progressorv1.Command{
				Command: &progressorv1.Command_Notify{Notify: &progressorv1.NotifyCommand{ProcessId: "none"}}})
	}
}

func fillNamedTimers(m proto.Message, n int) {
	result := m.(*progressorv1.CompleteRequest).GetResponse().GetResult()
	for i := range n {
		result.NamedTimers = append(result.NamedTimers, &progressorv1.SetTimer{
			Name: "t" + strconv.Itoa(i), When: &progressorv1.SetTimer_After{After: durationpb.New(time.Hour)},
		})
	}
}

// TestResultsHaveLimits sends the largest results of processors, and results with one more byte,
// which become the failure bad_response of their task.
func TestResultsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.cli.OK(t, "namespace", "put", resultsNamespace, "--pull", "--max-attempts", "1")
	ended := func(m *progressorv1.Result) *progressorv1.ProcessResponse {
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: m}}
	}
	for name, c := range map[string]struct {
		most     int
		response func(n int) *progressorv1.ProcessResponse
		reason   string // reason of the failure after the largest response
	}{
		"result": {8 << 20, func(n int) *progressorv1.ProcessResponse {
			m := &progressorv1.Result{}
			for range 8 {
				m.Events = append(m.Events, &progressorv1.NewEvent{Payload: make([]byte, 1<<20-100)})
			}
			m.Response = make([]byte, n-proto.Size(m)-len("tag"))
			return ended(m)
		}, ""},
		"result.metadata": {64 << 10, func(n int) *progressorv1.ProcessResponse {
			return ended(&progressorv1.Result{Metadata: attributesOf(n)})
		}, ""},
		"result.events[0].metadata": {64 << 10, func(n int) *progressorv1.ProcessResponse {
			return ended(&progressorv1.Result{Events: []*progressorv1.NewEvent{{Metadata: attributesOf(n)}}})
		}, ""},
		"failure": {1 << 20, func(n int) *progressorv1.ProcessResponse {
			m := &progressorv1.CompleteStepRequest{}
			fillFailure(m, n)
			return &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Failure{Failure: m.GetFailure()}}
		}, "r"},
		"rejection": {1 << 20, func(n int) *progressorv1.ProcessResponse {
			rejection := &progressorv1.Rejection{Reason: "r"}
			rejection.Message = xs("", n-proto.Size(rejection)-4) // the tag and the length of the field have four bytes
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{Rejection: rejection}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			failure := func(n int) *progressorv1.Failure {
				lease := l.processLease()
				if _, err := l.api.Worker.Complete(t.Context(), &progressorv1.CompleteRequest{
					LeaseToken: lease.GetLeaseToken(),
					Answer:     &progressorv1.CompleteRequest_Response{Response: c.response(n)},
				}); err != nil {
					t.Fatal(err)
				}
				r, err := l.api.Process.AwaitTask(t.Context(), &progressorv1.AwaitTaskRequest{
					Namespace: resultsNamespace, ProcessId: lease.GetRequest().GetProcess().GetProcessId(),
					Timeout: durationpb.New(clitest.DaemonWait),
					Key:     &progressorv1.AwaitTaskRequest_TaskId{TaskId: lease.GetRequest().GetTaskId()},
				})
				if err != nil {
					t.Fatal(err)
				}
				return r.GetTask().GetFailure()
			}
			if f := failure(c.most); f.GetReason() != c.reason {
				t.Errorf("%d bytes: %.200v", c.most, f)
			}
			want := fmt.Sprintf("%s: must have at most %d bytes (got %d)", name, c.most, c.most+1)
			if f := failure(c.most + 1); f.GetReason() != "bad_response" || !strings.Contains(f.GetMessage(), want) {
				t.Errorf("%d bytes: %.200v", c.most+1, f)
			}
		})
	}
}

// TestLargestItems runs a for_each whose results have exactly 8 MiB, the maximum for a run, and
// reads the result in every way. With one more byte, the step fails.
func TestLargestItems(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "items", Steps: []*progressorv1.StepTemplate{{
		StepId: "s", ForEach: &progressorv1.ForEach{Items: "payload"},
		Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{Name: "item"}},
	}}})
	answer := xs("answer", 1<<20-2)
	run := func(id string, small int) *progressorv1.GetRunRequest {
		payload := &structpb.ListValue{}
		for range 8 + small {
			payload.Values = append(payload.Values, structpb.NewNullValue())
		}
		if _, err := l.api.Flow.StartRun(t.Context(), &progressorv1.StartRunRequest{
			Namespace: limitsNamespace, Type: "items", RunId: id, Payload: structpb.NewListValue(payload),
		}); err != nil {
			t.Fatal(err)
		}
		for n := range 8 + small {
			result := structpb.NewStringValue(answer)
			if n == 8 {
				result = structpb.NewNumberValue(1)
			}
			if _, err := l.api.Worker.Complete(t.Context(), &progressorv1.CompleteRequest{
				LeaseToken: l.poll("item").GetLeaseToken(),
				Answer:     &progressorv1.CompleteRequest_JobResult{JobResult: &progressorv1.JobResult{Result: result}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		return &progressorv1.GetRunRequest{Namespace: limitsNamespace, RunId: id,
			AwaitEnd: durationpb.New(clitest.DaemonWait)}
	}
	get := run("largest", 0)
	list := &progressorv1.ListRunsRequest{Namespace: limitsNamespace}
	l.show("the run", []string{"largest", answer}, reads(l, l.api.Flow.GetRun, get),
		reads(l, l.console.Flow.GetRun, get),
		l.prints(&progressorv1.GetRunResponse{}, "run", "get", limitsNamespace, "largest"),
		reads(l, l.api.Flow.ListRuns, list), reads(l, l.console.Flow.ListRuns, list),
		l.prints(&progressorv1.ListRunsResponse{}, "run", "list", limitsNamespace))
	r, err := l.api.Flow.GetRun(t.Context(), get)
	if got := r.GetRun(); err != nil || got.GetStatus() != progressorv1.RunStatus_RUN_STATUS_SUCCEEDED ||
		len(got.GetResult().GetListValue().GetValues()) != 8 {
		t.Errorf("%s with %d results, %v", got.GetStatus(), len(got.GetResult().GetListValue().GetValues()), err)
	}
	r, err = l.api.Flow.GetRun(t.Context(), run("larger", 1))
	if f := r.GetRun().GetFailure(); err != nil || f.GetReason() != "result_too_large" ||
		!strings.Contains(f.GetMessage(), "at most 8388608 bytes of JSON (got 8388609)") {
		t.Errorf("a larger result: %v, %v", f, err)
	}
}

// TestLargestPush sends the largest request to a processor in each encoding, and receives the
// largest values from it.
func TestLargestPush(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	args, taskContext, state, response := xs("args", 1<<20), xs("context", 1<<20), xs("state", 1<<20),
		xs("response", 1<<20)
	metadata := attributesOf(64 << 10)
	server := httptest.NewUnstartedServer(processor.Handler(processor.Func(
		func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) != args || string(r.GetContext()) != taskContext ||
				!proto.Equal(r.GetProcess().GetMetadata(), metadata) {
				return nil, processor.Fail("broken", "the request has %d bytes", proto.Size(r)).NonRetryable()
			}
			return processor.Result().Event([]byte(args)).AuxState([]byte(state)).Response([]byte(response)).Done()
		})))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	server.Start()
	t.Cleanup(server.Close)
	for name, flags := range map[string][]string{
		"proto": {"--encoding", "proto"}, "grpc": {"--protocol", "grpc"}, "json": {"--encoding", "json"},
		"msgpack": {"--encoding", "msgpack"},
	} {
		l.cli.OK(t, append([]string{"namespace", "put", name, "--connect-url", server.URL}, flags...)...)
		r, err := l.api.Start(t.Context(), &progressorv1.StartRequest{
			Namespace: name, ProcessId: "p", Args: []byte(args), Context: []byte(taskContext), Metadata: metadata,
			Timeout: durationpb.New(clitest.DaemonWait),
		})
		if err != nil || string(r.GetResponse()) != response {
			t.Errorf("%s: a response of %d bytes, %v", name, len(r.GetResponse()), err)
			continue
		}
		l.show(name, []string{state, args, metadata.GetFields()["k"].GetStringValue()},
			reads(l, l.api.Process.GetProcess, &progressorv1.GetProcessRequest{Namespace: name, ProcessId: "p"}))
	}
}
