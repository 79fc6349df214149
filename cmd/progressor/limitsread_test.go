package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// otherRequests returns the requests about jobs, constraints, crons and flows.
func (l *limits) otherRequests() []request {
	const payload, metadata = 1 << 20, 64 << 10
	unique := func(n int) string { return xs(l.id(), n) }
	http := &progressorv1.CronTarget{Target: &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{Url: "http://127.0.0.1:1"}}}
	newCron := func(target *progressorv1.CronTarget) func() proto.Message {
		return func() proto.Message {
			return &progressorv1.CreateCronRequest{Cron: &progressorv1.Cron{
				Namespace: limitsNamespace, CronId: l.id(), Target: target, Paused: true,
				Spec: &progressorv1.CronSpec{Expressions: []string{"@yearly"}},
			}}
		}
	}
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	return []request{
		{"Enqueue", sends(l.api.Job.Enqueue), func() proto.Message {
			return &progressorv1.EnqueueRequest{Namespace: limitsNamespace, Name: "job", JobId: l.id(),
				Options: &progressorv1.JobOptions{}}
		}, []bound{
			{field: "job_id", most: 256, text: unique}, {field: "name", most: 256}, {field: "args", most: payload},
			{field: "idempotency_key", most: 256, text: unique}, {field: "options.metadata", most: metadata},
			{field: "options.tags", most: 100}, {field: "options.tags[0]", most: 256},
			{field: "options.unique.key", most: 256},
			{field: "options.backoff.steps", most: 1000},
			{field: "options.workers.worker_ids", most: 1000}, {field: "options.workers.worker_ids[0]", most: 256},
			{field: "args", most: 100, deep: true}, {field: "options.metadata", most: 100, deep: true},
		}},
		{"PutConstraint", sends(l.api.Job.PutConstraint), func() proto.Message {
			return &progressorv1.PutConstraintRequest{Constraint: &progressorv1.Constraint{
				Namespace: limitsNamespace, Name: "c", Match: `job.name == "none"`, MaxRunning: 1,
			}}
		}, []bound{
			{field: "constraint.name", most: 256},
			{field: "constraint.match", most: 16 << 10,
				text: func(n int) string { return `job.name == "` + xs("", n-14) + `"` }},
			{field: "constraint.key", most: 16 << 10, text: func(n int) string { return `"` + xs("", n-2) + `"` }},
		}},
		{"CreateCron", sends(l.api.Cron.CreateCron), newCron(http), []bound{
			{field: "cron.cron_id", most: 200, text: unique}, {field: "cron.pause_note", most: 4096},
			{field: "cron.metadata", most: metadata},
			{field: "cron.metadata", most: 100, deep: true},
			{field: "cron.spec.expressions[0]", most: 256, text: minutes},
			{field: "cron.spec.expressions", most: 100, fill: fillExpressions},
			{field: "cron.policy.retry_backoff.steps", most: 1000},
			{field: "cron.target.http.url", most: 2048, text: func(n int) string { return xs("http://127.0.0.1:1/", n) }},
		}},
		{"StartRun", sends(l.api.Flow.StartRun), func() proto.Message {
			return &progressorv1.StartRunRequest{Namespace: limitsNamespace, Type: "wait", RunId: l.id()}
		}, []bound{
			{field: "run_id", most: 160, text: unique}, {field: "payload", most: payload},
			{field: "metadata", most: metadata},
			{field: "scope", most: 256}, {field: "scope_id", most: 256},
			{field: "idempotency_key", most: 256, text: unique},
			{field: "payload", most: 100, deep: true}, {field: "metadata", most: 100, deep: true},
		}},
		{"CompleteStep", sends(l.api.Flow.CompleteStep), func() proto.Message {
			return &progressorv1.CompleteStepRequest{
				Namespace: limitsNamespace, RunId: l.waitingRun(), StepId: "ask",
				Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewNullValue()},
			}
		}, []bound{
			{field: "result", most: payload}, {field: "worker_id", most: 256}, {field: "result", most: 100, deep: true},
			{field: "failure", most: 1 << 20, fill: fillFailure},
		}},
		{"ReportStep", sends(l.api.Flow.ReportStep), func() proto.Message {
			return &progressorv1.ReportStepRequest{Namespace: limitsNamespace, RunId: l.waitingRun(), StepId: "ask"}
		}, []bound{{field: "progress.summary", most: 64<<10 - len(`{"summary":""}`),
			want: fmt.Sprintf("progress: must have at most %d bytes of JSON (got %d)", 64<<10, 64<<10+1)}}},
		{"SkipStep", sends(l.api.Flow.SkipStep), func() proto.Message {
			return &progressorv1.SkipStepRequest{Namespace: limitsNamespace, RunId: l.waitingRun(), StepId: "ask"}
		}, []bound{{field: "result", most: payload}, {field: "reason", most: 4096}}},
		{"CancelRun", sends(l.api.Flow.CancelRun), func() proto.Message {
			return &progressorv1.CancelRunRequest{Namespace: limitsNamespace, RunId: l.waitingRun()}
		}, []bound{{field: "reason", most: 4096}}},
		{"PutTemplate", sends(l.api.Flow.PutTemplate), func() proto.Message {
			return &progressorv1.PutTemplateRequest{Template: &progressorv1.Template{
				Namespace: limitsNamespace, Type: l.id(), Steps: []*progressorv1.StepTemplate{waitStep()},
			}}
		}, []bound{
			{field: "template.name", most: 1024}, {field: "template.description", most: 16 << 10},
			{field: "template.steps[0].name", most: 1024}, {field: "template.steps[0].wait.title", most: 16 << 10},
			{field: "template.steps[0].wait.assignees", most: 1000},
			{field: "template.steps[0].wait.assignees[0]", most: 16 << 10},
			{field: "template.steps[0].condition", most: 16 << 10,
				text: func(n int) string { return `scope != "` + xs("", n-11) + `"` }},
			{field: "template.steps", most: 1000, fill: fillSteps}, {field: "template.dedupe_keys", most: 100},
			{field: "template.dedupe_keys[0]", most: 256},
			{field: "template.result", most: 100, deep: true}, {field: "template", most: 4 << 20, fill: fillTemplate},
		}},
		{"Poll", sends(l.api.Worker.Poll), func() proto.Message {
			return &progressorv1.PollRequest{Namespaces: []string{limitsNamespace}, WorkerId: "w",
				JobNames: []string{"none"}}
		}, []bound{
			{field: "worker_id", most: 256}, {field: "job_names[0]", most: 256}, {field: "job_names", most: 1000},
			{field: "namespaces", most: 1000, fill: fillNamespaces},
		}},
		{"Heartbeat", sends(l.api.Worker.Heartbeat), func() proto.Message {
			return &progressorv1.HeartbeatRequest{WorkerId: "w",
				Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.lease().GetLeaseToken()}}}
		}, []bound{{field: "beats[0].progress.summary", most: 64<<10 - len(`{"summary":""}`),
			want: fmt.Sprintf("beats[0].progress: must have at most %d bytes of JSON (got %d)", 64<<10, 64<<10+1)}}},
	}
}

func waitStep() *progressorv1.StepTemplate {
	return &progressorv1.StepTemplate{StepId: "ask",
		Action: &progressorv1.StepTemplate_Wait{
			Wait: &progressorv1.WaitAction{Kind: progressorv1.WaitAction_KIND_HUMAN}}}
}

// minutes returns a cron expression of n bytes that lists minutes.
func minutes(n int) string {
	const rest = " * * * *"
	first := "0"
	if (n-len(rest))%2 == 0 {
		first = "10"
	}
	return first + strings.Repeat(",0", (n-len(rest)-len(first))/2) + rest
}

func (l *limits) putTemplate(m *progressorv1.Template) {
	l.t.Helper()
	m.Namespace = limitsNamespace
	if _, err := l.api.Flow.PutTemplate(l.ctx, &progressorv1.PutTemplateRequest{Template: m}); err != nil {
		l.t.Fatal(err)
	}
}

// waitingRun returns the ID of a new run that waits for a person.
func (l *limits) waitingRun() string {
	l.t.Helper()
	id := l.id()
	if _, err := l.api.Flow.StartRun(l.ctx,
		&progressorv1.StartRunRequest{Namespace: limitsNamespace, Type: "wait", RunId: id}); err != nil {
		l.t.Fatal(err)
	}
	clitest.Eventually(l.t, "the run waits", func() error {
		r, err := l.api.Flow.GetRun(l.ctx, &progressorv1.GetRunRequest{Namespace: limitsNamespace, RunId: id})
		if err == nil && r.GetRun().GetStatus() != progressorv1.RunStatus_RUN_STATUS_WAITING_WORKER {
			err = fmt.Errorf("it is %s", r.GetRun().GetStatus())
		}
		return err
	})
	return id
}

// lease returns the lease of a new job.
func (l *limits) lease() *progressorv1.Lease {
	l.t.Helper()
	name := l.id()
	if _, err := l.api.Job.Enqueue(l.ctx,
		&progressorv1.EnqueueRequest{Namespace: limitsNamespace, Name: name}); err != nil {
		l.t.Fatal(err)
	}
	return l.poll(name)
}

// poll returns the lease of a job with this name, or of a process if name is "".
func (l *limits) poll(name string) *progressorv1.Lease {
	l.t.Helper()
	q := &progressorv1.PollRequest{Namespaces: []string{limitsNamespace}, WorkerId: "w", MaxLeases: 1,
		Wait: durationpb.New(clitest.DaemonWait)}
	if name != "" {
		q.JobNames = []string{name}
	}
	r, err := l.api.Worker.Poll(l.ctx, q)
	if err != nil || len(r.GetLeases()) != 1 {
		l.t.Fatalf("%d leases, %v", len(r.GetLeases()), err)
	}
	return r.GetLeases()[0]
}

// reader is one way to read an object.
type reader func() (proto.Message, error)

func reads[Q, R any](l *limits, call func(context.Context, *Q) (*R, error), q *Q) reader {
	return func() (proto.Message, error) {
		r, err := call(l.ctx, q)
		if err != nil {
			return nil, err
		}
		return any(r).(proto.Message), nil
	}
}

// prints returns a reader that decodes the JSON output of a command into m.
func (l *limits) prints(m proto.Message, args ...string) reader {
	return func() (proto.Message, error) {
		return m, protojson.Unmarshal([]byte(l.cli.OK(l.t, append(args, "-o", "json")...)), m)
	}
}

// show checks that the output of each reader contains all of the texts.
func (l *limits) show(what string, texts []string, readers ...reader) {
	l.t.Helper()
	for i, read := range readers {
		m, err := read()
		if err != nil {
			l.t.Errorf("%s, reader %d: %v", what, i, err)
			continue
		}
		// The binary form contains the texts unchanged.
		data, err := proto.Marshal(m)
		if err != nil {
			l.t.Fatal(err)
		}
		for n, text := range texts {
			if !bytes.Contains(data, []byte(text)) {
				l.t.Errorf("%s, reader %d (%s): text %d of %d bytes is missing in %d bytes", what, i,
					m.ProtoReflect().Descriptor().Name(), n, len(text), len(data))
			}
		}
	}
}

// TestLargestProcess starts a process with the largest values, lets a worker store the largest
// result, and reads both in every way.
func TestLargestProcess(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	id, key := xs("p", 256), xs("k", 256)
	args, taskContext, metadata := xs("args", 1<<20), xs("context", 1<<20), attributesOf(64<<10)
	if _, err := l.api.Start(t.Context(), &progressorv1.StartRequest{
		Namespace: limitsNamespace, ProcessId: id, Args: []byte(args), Context: []byte(taskContext), Metadata: metadata,
		IdempotencyKey: key,
		Wait:           progressorv1.Wait_WAIT_ACCEPTED,
	}); err != nil {
		t.Fatal(err)
	}
	lease := l.poll("")
	l.show("the lease", []string{id, key, args, taskContext, metadata.GetFields()["k"].GetStringValue()},
		func() (proto.Message, error) { return lease, nil })
	state, response, payload, timer := xs("state", 1<<20), xs("response", 1<<20), xs("payload", 1<<20), xs("timer", 256)
	result := &progressorv1.Result{
		AuxState: []byte(state), Response: []byte(response), Metadata: metadata,
		NamedTimers: []*progressorv1.SetTimer{
			{Name: timer, When: &progressorv1.SetTimer_After{After: durationpb.New(clitest.DaemonWait)}}},
	}
	for range 5 {
		result.Events = append(result.Events, &progressorv1.NewEvent{Payload: []byte(payload), Metadata: metadata})
	}
	if _, err := l.api.Worker.Complete(t.Context(), &progressorv1.CompleteRequest{
		LeaseToken: lease.GetLeaseToken(),
		Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: result},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	attribute := metadata.GetFields()["k"].GetStringValue()
	get := &progressorv1.GetProcessRequest{Namespace: limitsNamespace, ProcessId: id}
	l.show("the process", []string{id, state, attribute, payload, timer},
		reads(l, l.api.Process.GetProcess, get), reads(l, l.console.Process.GetProcess, get),
		l.prints(&progressorv1.GetProcessResponse{}, "get", limitsNamespace, id))
	list := &progressorv1.ListProcessesRequest{Namespace: limitsNamespace}
	l.show("the list of processes", []string{id, attribute},
		reads(l, l.api.Process.ListProcesses, list), reads(l, l.console.Process.ListProcesses, list),
		l.prints(&progressorv1.ListProcessesResponse{}, "list", limitsNamespace))
	trace := &progressorv1.TraceProcessRequest{Namespace: limitsNamespace, ProcessId: id}
	l.show("the trace", []string{args, taskContext, response, key},
		reads(l, l.api.Process.TraceProcess, trace), reads(l, l.console.Process.TraceProcess, trace),
		l.prints(&progressorv1.TraceProcessResponse{}, "trace", limitsNamespace, id))
	await := &progressorv1.AwaitTaskRequest{Namespace: limitsNamespace, ProcessId: id,
		Key: &progressorv1.AwaitTaskRequest_IdempotencyKey{IdempotencyKey: key}}
	l.show("the task", []string{args, response},
		reads(l, l.api.Process.AwaitTask, await), reads(l, l.console.Process.AwaitTask, await),
		l.prints(&progressorv1.AwaitTaskResponse{}, "await", limitsNamespace, id, "-k", key))
}

// TestLargestJob does the same as TestLargestProcess with jobs whose first attempt fails, created
// with the API, SQL and the command line.
func TestLargestJob(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	name, args := xs("name", 256), xs("args", 1<<20-2)
	tag, attribute := xs("tag", 256), xs("", 64<<10-len(`{"k": ""}`))
	file := filepath.Join(t.TempDir(), "metadata.json")
	if err := os.WriteFile(file, []byte(`{"k": "`+attribute+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := []string{xs("api", 256), xs("sql", 256), xs("cli", 256)}
	options := &progressorv1.JobOptions{
		KeepResult: true, MaxRetry: 1, Tags: []string{tag},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(attribute)}},
		Backoff:  &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}},
	}
	if _, err := l.api.Job.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
		Namespace: limitsNamespace, JobId: ids[0], Name: name, Args: structpb.NewStringValue(args), Options: options,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(t.Context(),
		`SELECT progressor.enqueue($1, $2, to_jsonb($3::text), job_id => $4, tags => ARRAY[$5],
		  metadata => jsonb_build_object('k', $6::text),
		keep_result => true, max_retry => 1, backoff => ARRAY['1 ms'::interval])`, limitsNamespace, name, args, ids[1],
		tag, attribute); err != nil {
		t.Fatal(err)
	}
	cli := l.cli
	cli.Stdin = `"` + args + `"`
	cli.OK(t, "job", "enqueue", limitsNamespace, name, "--id", ids[2], "--args", "@-", "--tag", tag, "--metadata",
		"@"+file, "--keep-result", "--max-retry", "1", "--backoff-steps", "1ms")
	progress, message, answer := xs("progress", 64<<10-len(`{"summary":""}`)), xs("message", 4096),
		xs("result", 1<<20-2)
	complete := func(lease *progressorv1.Lease, outcome *progressorv1.CompleteRequest) {
		outcome.LeaseToken = lease.GetLeaseToken()
		if _, err := l.api.Worker.Complete(t.Context(), outcome); err != nil {
			t.Fatal(err)
		}
	}
	var leases []*progressorv1.Lease
	for range ids {
		lease := l.poll(name)
		l.show("the lease", []string{name, args, tag, attribute}, func() (proto.Message, error) { return lease, nil })
		leases = append(leases, lease)
	}
	for _, lease := range leases {
		complete(lease, &progressorv1.CompleteRequest{
			Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Failure{
					Failure: &progressorv1.Failure{Reason: "r", Message: message}},
			}}})
	}
	for range ids {
		lease := l.poll(name)
		if _, err := l.api.Worker.Heartbeat(t.Context(), &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{
				{LeaseToken: lease.GetLeaseToken(), Progress: &progressorv1.Progress{Summary: progress}}},
		}); err != nil {
			t.Fatal(err)
		}
		complete(lease, &progressorv1.CompleteRequest{
			Answer: &progressorv1.CompleteRequest_JobResult{
				JobResult: &progressorv1.JobResult{Result: structpb.NewStringValue(answer)}}})
	}
	if _, err := l.api.Job.Enqueue(t.Context(),
		&progressorv1.EnqueueRequest{Namespace: limitsNamespace, Name: "larger",
			Options: &progressorv1.JobOptions{KeepResult: true}}); err != nil {
		t.Fatal(err)
	}
	larger := l.poll("larger")
	complete(larger, &progressorv1.CompleteRequest{
		Answer: &progressorv1.CompleteRequest_JobResult{
			JobResult: &progressorv1.JobResult{Result: structpb.NewStringValue(answer + "x")}}})
	l.show("a job with a larger result",
		[]string{"bad_response", "job_result: must have at most 1048576 bytes of JSON (got 1048577)"},
		reads(l, l.api.Job.GetJob,
			&progressorv1.GetJobRequest{Namespace: limitsNamespace, JobId: larger.GetJob().GetJobId()}))
	all := []string{name, args, tag, attribute, message, progress, answer}
	for _, id := range ids {
		get := &progressorv1.GetJobRequest{Namespace: limitsNamespace, JobId: id}
		l.show("the job "+id[:3], all, reads(l, l.api.Job.GetJob, get), reads(l, l.console.Job.GetJob, get),
			l.prints(&progressorv1.GetJobResponse{}, "job", "get", limitsNamespace, id))
	}
	list := &progressorv1.ListJobsRequest{Namespace: limitsNamespace}
	l.show("the list of jobs", append(ids, name, tag), reads(l, l.api.Job.ListJobs, list),
		reads(l, l.console.Job.ListJobs, list),
		l.prints(&progressorv1.ListJobsResponse{}, "job", "list", limitsNamespace))
	l.show("the result", []string{answer},
		l.prints(&progressorv1.FetchResultResponse{}, "job", "result", limitsNamespace, ids[0]))
}

// TestLargestRun does the same as TestLargestProcess with a run that a person completes.
func TestLargestRun(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	title, description, name := xs("title", 16<<10), xs("description", 16<<10), xs("name", 1024)
	step := waitStep()
	step.Name, step.GetWait().Title = name, title
	l.putTemplate(&progressorv1.Template{Type: xs("t", 128), Name: name, Description: description,
		Steps: []*progressorv1.StepTemplate{step}})
	id, scope, scopeID := xs("r", 160), xs("scope", 256), xs("scope_id", 256)
	payload, answer, attribute := xs("payload", 1<<20-2), xs("answer", 1<<20-2), xs("attribute", 64<<10-len(`{"k":""}`))
	if _, err := l.api.Flow.StartRun(t.Context(), &progressorv1.StartRunRequest{
		Namespace: limitsNamespace, Type: xs("t", 128), RunId: id, Scope: scope, ScopeId: scopeID,
		Payload:  structpb.NewStringValue(payload),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(attribute)}},
	}); err != nil {
		t.Fatal(err)
	}
	waits := &progressorv1.ListOpenWaitsRequest{Namespace: limitsNamespace}
	clitest.Eventually(t, "the step waits", func() error {
		r, err := l.api.Flow.ListOpenWaits(t.Context(), waits)
		if err == nil && len(r.GetWaits()) == 0 {
			err = errors.New("there is no wait")
		}
		return err
	})
	l.show("the wait", []string{id, title, payload}, reads(l, l.api.Flow.ListOpenWaits, waits),
		reads(l, l.console.Flow.ListOpenWaits, waits),
		l.prints(&progressorv1.ListOpenWaitsResponse{}, "run", "waits", limitsNamespace))
	cli := l.cli
	cli.Stdin = `"` + answer + `"`
	cli.OK(t, "run", "complete", limitsNamespace, id, "ask", "--result", "@-")
	get := &progressorv1.GetRunRequest{Namespace: limitsNamespace, RunId: id,
		AwaitEnd: durationpb.New(clitest.DaemonWait)}
	l.show("the run", []string{id, scope, scopeID, payload, answer, attribute, name}, reads(l, l.api.Flow.GetRun, get),
		reads(l, l.console.Flow.GetRun, get),
		l.prints(&progressorv1.GetRunResponse{}, "run", "get", limitsNamespace, id))
	list := &progressorv1.ListRunsRequest{Namespace: limitsNamespace}
	l.show("the list of runs", []string{id, scope, scopeID, attribute}, reads(l, l.api.Flow.ListRuns, list),
		reads(l, l.console.Flow.ListRuns, list),
		l.prints(&progressorv1.ListRunsResponse{}, "run", "list", limitsNamespace))
	steps := &progressorv1.ListStepsRequest{Namespace: limitsNamespace, RunId: id}
	l.show("the steps", []string{answer}, reads(l, l.api.Flow.ListSteps, steps),
		reads(l, l.console.Flow.ListSteps, steps),
		l.prints(&progressorv1.ListStepsResponse{}, "run", "steps", limitsNamespace, id))
	template := &progressorv1.GetTemplateRequest{Namespace: limitsNamespace, Type: xs("t", 128)}
	l.show("the template", []string{name, description, title}, reads(l, l.api.Flow.GetTemplate, template),
		reads(l, l.console.Flow.GetTemplate, template),
		l.prints(&progressorv1.GetTemplateResponse{}, "template", "get", limitsNamespace, xs("t", 128)))
}

// TestLargestCron creates the largest cron and reads it in every way, including SQL.
func TestLargestCron(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	id, note, args := xs("c", 200), xs("note", 4096), xs("args", 180<<10)
	attribute := xs("attribute", 64<<10-len(`{"k":""}`))
	c := &progressorv1.Cron{
		Namespace: limitsNamespace, CronId: id, Paused: true, PauseNote: note,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(attribute)}},
		Spec:     &progressorv1.CronSpec{Expressions: []string{minutes(256)}},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_StartProcess{
				StartProcess: &progressorv1.StartProcessTarget{Args: []byte(args)}}},
	}
	if _, err := l.api.Cron.CreateCron(t.Context(), &progressorv1.CreateCronRequest{Cron: c}); err != nil {
		t.Fatal(err)
	}
	get, list := &progressorv1.GetCronRequest{Namespace: limitsNamespace, CronId: id},
		&progressorv1.ListCronsRequest{Namespace: limitsNamespace}
	l.show("the cron", []string{id, note, args, attribute, minutes(256)}, reads(l, l.api.Cron.GetCron, get),
		reads(l, l.console.Cron.GetCron, get),
		l.prints(&progressorv1.GetCronResponse{}, "cron", "get", limitsNamespace, id),
		reads(l, l.api.Cron.ListCrons, list), reads(l, l.console.Cron.ListCrons, list),
		l.prints(&progressorv1.ListCronsResponse{}, "cron", "list", limitsNamespace))
	var expression string
	if err := l.db.QueryRow(t.Context(), "SELECT expressions[1] FROM progressor.cron_list WHERE cron_id = $1",
		id).Scan(&expression); err != nil || expression != minutes(256) {
		t.Errorf("in SQL the expression is %q, %v", expression, err)
	}
	c.CronId, c.GetTarget().GetStartProcess().Args = "larger", make([]byte, 256<<10)
	_, err := l.api.Cron.CreateCron(t.Context(), &progressorv1.CreateCronRequest{Cron: c})
	if err == nil || !strings.Contains(err.Error(), "cron.target: ") || !strings.Contains(err.Error(), "262144") {
		t.Errorf("a larger cron: %v", err)
	}
}
