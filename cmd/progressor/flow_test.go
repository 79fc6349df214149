package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// fakeFlows answers by a script and keeps the last request, as fakeEngine does.
type fakeFlows struct {
	progressorv1connect.UnimplementedFlowServiceHandler

	fakeEngine
	runs     []*progressorv1.Run // the states of a run, one after the other
	template *progressorv1.Template
	refuse   error
	put      []string
}

func (f *fakeFlows) next() *progressorv1.Run {
	r := f.runs[0]
	if len(f.runs) > 1 {
		f.runs = f.runs[1:]
	}
	return r
}

func (f *fakeFlows) PutTemplate(_ context.Context, r *progressorv1.PutTemplateRequest) (*progressorv1.PutTemplateResponse, error) {
	t := proto.CloneOf(r.GetTemplate())
	t.Version = 2
	f.put = append(f.put, t.GetNamespace()+"/"+t.GetType())
	return answer(&f.fakeEngine, r, &progressorv1.PutTemplateResponse{Template: t, Created: t.GetType() != "same"})
}

func (f *fakeFlows) GetTemplate(_ context.Context, r *progressorv1.GetTemplateRequest) (*progressorv1.GetTemplateResponse, error) {
	if f.template == nil {
		return nil, engineError(connect.CodeNotFound, "template not found", &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND})
	}
	f.template.Version = max(r.GetVersion(), 1)
	return &progressorv1.GetTemplateResponse{Template: f.template, Versions: []int32{1, 2}}, nil
}

func (f *fakeFlows) StartRun(_ context.Context, r *progressorv1.StartRunRequest) (*progressorv1.StartRunResponse, error) {
	f.last = r
	if f.refuse != nil {
		return nil, f.refuse
	}
	return &progressorv1.StartRunResponse{Run: f.next(), Started: !r.GetValidateOnly()}, nil
}

func (f *fakeFlows) GetRun(_ context.Context, _ *progressorv1.GetRunRequest) (*progressorv1.GetRunResponse, error) {
	return &progressorv1.GetRunResponse{Run: f.next()}, f.refuse
}

func (f *fakeFlows) ListRuns(_ context.Context, r *progressorv1.ListRunsRequest) (*progressorv1.ListRunsResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.ListRunsResponse{Runs: f.runs, NextPageToken: "next"})
}

func (f *fakeFlows) ListOpenWaits(_ context.Context, r *progressorv1.ListOpenWaitsRequest) (*progressorv1.ListOpenWaitsResponse, error) {
	index := int32(3)
	return answer(&f.fakeEngine, r, &progressorv1.ListOpenWaitsResponse{Waits: []*progressorv1.OpenWait{
		{RunId: "o-1", StepId: "ask", Index: &index, Kind: progressorv1.WaitAction_KIND_HUMAN, Title: "go\non?", Assignees: []string{"ann", "bob"}, Token: "SECRET"},
		{RunId: "x-1", StepId: "ext", Kind: progressorv1.WaitAction_KIND_EXTERNAL, Token: "TOKEN", CancelRequested: true},
	}})
}

func (f *fakeFlows) CompleteStep(_ context.Context, r *progressorv1.CompleteStepRequest) (*progressorv1.CompleteStepResponse, error) {
	f.last = r
	return &progressorv1.CompleteStepResponse{Run: f.runs[0]}, f.refuse
}

func (f *fakeFlows) ReportStep(_ context.Context, r *progressorv1.ReportStepRequest) (*progressorv1.ReportStepResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.ReportStepResponse{Directive: &progressorv1.LeaseDirective{Directive: progressorv1.LeaseDirective_DIRECTIVE_CANCEL, CancelReason: "enough"}})
}

func (f *fakeFlows) SkipStep(_ context.Context, r *progressorv1.SkipStepRequest) (*progressorv1.SkipStepResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.SkipStepResponse{Run: f.runs[0]})
}

func (f *fakeFlows) CancelRun(_ context.Context, r *progressorv1.CancelRunRequest) (*progressorv1.CancelRunResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.CancelRunResponse{Run: f.runs[0]})
}

func (f *fakeFlows) RetryRun(_ context.Context, r *progressorv1.RetryRunRequest) (*progressorv1.RetryRunResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.RetryRunResponse{Run: f.runs[0]})
}

func (f *fakeFlows) RepeatRun(_ context.Context, r *progressorv1.RepeatRunRequest) (*progressorv1.RepeatRunResponse, error) {
	return answer(&f.fakeEngine, r, &progressorv1.RepeatRunResponse{Run: f.runs[0]})
}

func serveFlows(t *testing.T, f *fakeFlows) program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewFlowServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return program{env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

// seen returns a run of steps that are written as "id STATUS".
func seen(status progressorv1.RunStatus, steps ...string) *progressorv1.Run {
	r := &progressorv1.Run{Namespace: "demo", RunId: "r-1", TemplateType: "order", TemplateVersion: 1, Status: status, Progress: &progressorv1.Progress{Percent: 40}}
	for _, text := range steps {
		id, status, _ := strings.Cut(text, " ")
		r.Steps = append(r.Steps, &progressorv1.Step{StepId: id, Status: progressorv1.StepStatus(progressorv1.StepStatus_value["STEP_STATUS_"+status])})
	}
	if status >= progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		r.FinishedTime = timestamppb.Now()
	}
	return r
}

// graphOf returns a template of steps that are written as "id after,after".
func graphOf(steps ...string) *progressorv1.Template {
	t := &progressorv1.Template{Namespace: "demo", Type: "order", StepOrder: progressorv1.StepOrder_STEP_ORDER_GRAPH}
	for _, text := range steps {
		id, after, _ := strings.Cut(text, " ")
		s := &progressorv1.StepTemplate{StepId: id, Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{}}}
		if after != "" {
			s.DependsOn = strings.Split(after, ",")
		}
		t.Steps = append(t.Steps, s)
	}
	return t
}

// A graph is drawn as a tree: each step once, below the last of its dependencies, and the step
// names the others.
func TestDrawSteps(t *testing.T) {
	columns := func(r *progressorv1.Run, m *progressorv1.Template) string {
		var lines []string
		for _, line := range strings.Split(drawSteps(r, m), "\n")[1:] {
			lines = append(lines, strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, "   ", " _ "), "   ", " _ ")), " "))
		}
		return strings.Join(lines, "\n")
	}
	r := seen(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a SUCCEEDED", "b FAILED", "c RUNNING", "d PENDING", "e PENDING", "f SKIPPED", "g CANCELLED")
	got := drawSteps(r, graphOf("a", "b a", "c a", "d b,c", "e d", "f a", "g"))
	for _, line := range []string{"✓ a", "├─ ✗ b", "├─ ● c", "│  └─ ○ d", "│     └─ ○ e", "└─ – f", "× g"} {
		if !strings.Contains(got, "\n"+line+" ") {
			t.Errorf("has no line %q:\n%s", line, got)
		}
	}
	if !strings.Contains(got, "after b too; waits for b, c") || !strings.Contains(got, "waits for d") || strings.Count(got, "\n") != 8 {
		t.Errorf("%s", got)
	}
	if got := columns(r, nil); strings.Contains(got, "─") {
		t.Errorf("a line is no tree:\n%s", got)
	}
	// The longest possible chain fits the width of a terminal, and steps without a place are drawn,
	// too.
	var steps, ids []string
	for n := range 1000 {
		id := fmt.Sprintf("s%d", n)
		ids = append(ids, id+" PENDING")
		if n > 0 {
			id += fmt.Sprintf(" s%d", n-1)
		}
		steps = append(steps, id)
	}
	long := drawSteps(seen(progressorv1.RunStatus_RUN_STATUS_PENDING, append(ids, "lost PENDING")...), graphOf(append(steps, "lost gone")...))
	if strings.Count(long, "\n") != 1002 || !strings.Contains(long, "\n○ lost") {
		t.Errorf("%d lines", strings.Count(long, "\n"))
	}
	for _, line := range strings.Split(long, "\n") {
		if len([]rune(line)) > 120 {
			t.Fatalf("%d characters: %s", len([]rune(line)), line)
		}
	}
}

// A step shows its progress, what it waits for, and its outcome.
func TestStepNotes(t *testing.T) {
	undone := progressorv1.StepStatus_STEP_STATUS_SUCCEEDED
	for want, s := range map[string]*progressorv1.Step{
		"[####......] 40 % page 4; waits for an answer": {
			Status: progressorv1.StepStatus_STEP_STATUS_RUNNING, Progress: &progressorv1.Progress{Percent: 40, Summary: "page 4"}, Reason: "waits for an answer",
		},
		"[##........] 250 of 1,000 items: 1 failed, 700 pending, 50 running": {
			Status: progressorv1.StepStatus_STEP_STATUS_RUNNING, ItemsByStatus: map[string]int64{"succeeded": 249, "failed": 1, "pending": 700, "running": 50},
		},
		"3 of 3 items; undone": {Status: progressorv1.StepStatus_STEP_STATUS_SUCCEEDED, ItemsByStatus: map[string]int64{"succeeded": 3}, CompensationStatus: &undone},
		"exit_3: no":           {Status: progressorv1.StepStatus_STEP_STATUS_FAILED, Failure: &progressorv1.Failure{Reason: "exit_3", Message: "no"}, Progress: &progressorv1.Progress{Percent: 5}},
	} {
		if got := stepNote(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRunStart(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{seen(progressorv1.RunStatus_RUN_STATUS_QUEUED)}}
	p := serveFlows(t, f)
	out := p.ok(t, "run", "start", "demo", "order", "--id", "r-1", "--payload", `{"n": 1}`, "--scope", "user", "--scope-id", "42", "--version", "2", "-k", "key",
		"--metadata", `{"team":"a"}`, "--run-time", "2030-01-02T03:04:05Z")
	wantLines(t, out, "run demo/r-1", "template order, version 1", "status QUEUED")
	payload, _ := structpb.NewValue(map[string]any{"n": 1})
	metadata, _ := structpb.NewStruct(map[string]any{"team": "a"})
	wantRequest(t, f.last, &progressorv1.StartRunRequest{
		Namespace: "demo", RunId: "r-1", Type: "order", Version: 2, Scope: "user", ScopeId: "42", Payload: payload, IdempotencyKey: "key", Metadata: metadata,
		RunTime: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)),
	})
	wantLines(t, p.ok(t, "run", "start", "demo", "order", "--validate-only"), "started no (--validate-only)")
	f.runs = []*progressorv1.Run{{Namespace: "demo", TemplateType: "order"}}
	wantLines(t, p.ok(t, "run", "start", "demo", "order", "--validate-only"), "run a new one in demo")
	f.refuse = engineError(connect.CodeInvalidArgument, "step ask names the token of the wait: give it", &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "token"})
	if r := p.run(t, "run", "complete", "demo", "r-1", "ask", "--result", "null"); r.code != exitUsage || !strings.Contains(r.stderr, "Next: --token, which progressor run waits demo --run r-1 shows") {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		reason progressorv1.ErrorDetail_Reason
		text   string
		code   connect.Code
		exit   int
		next   string
	}{
		{progressorv1.ErrorDetail_REASON_SAME_SCOPE, "run demo/r-0 of the same scope", connect.CodeAlreadyExists, exitConflict, "Next: progressor run get demo r-0"},
		{progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED, "template order is disabled", connect.CodeFailedPrecondition, exitConflict, "Next: progressor template enable demo order"},
		{progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND, "not found", connect.CodeNotFound, exitNotFound, "Next: progressor template list demo"},
	} {
		f.refuse = engineError(c.code, c.text, &progressorv1.ErrorDetail{Reason: c.reason, Namespace: "demo", ProcessId: "r-0"})
		if r := p.run(t, "run", "start", "demo", "order"); r.code != c.exit || !strings.Contains(r.stderr, c.next) {
			t.Errorf("%+v, want %d, %s", r, c.exit, c.next)
		}
	}
}

// A wait follows the run to its end and reports the outcome by the exit code. On a terminal, the
// steps are drawn and redrawn.
func TestRunWait(t *testing.T) {
	failed := seen(progressorv1.RunStatus_RUN_STATUS_FAILED, "a SUCCEEDED", "b FAILED")
	failed.Failure = &progressorv1.Failure{Reason: "broken", Message: "it is"}
	f := &fakeFlows{template: graphOf("a", "b a")}
	p := serveFlows(t, f)
	p.terminal = true
	script := func() {
		f.runs = []*progressorv1.Run{seen(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING", "b PENDING"), seen(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a SUCCEEDED", "b RUNNING"), failed}
	}
	script()
	r := p.run(t, "run", "get", "demo", "r-1", "--wait")
	if r.code != exitTaskFailed || !strings.Contains(r.stderr, "● a") || !strings.Contains(r.stderr, "└─ ● b") || strings.Count(r.stderr, "\x1b[4A") != 3 ||
		!strings.Contains(r.stderr, "the run has failed: broken: it is. Next: progressor run retry demo r-1") || !strings.Contains(r.stdout, "└─ ✗ b") || !strings.Contains(r.stdout, "  1 of 2 steps succeeded\n") {
		t.Errorf("%+v", r)
	}
	script()
	r = p.run(t, "run", "watch", "demo", "r-1")
	if r.code != exitTaskFailed || r.stdout != "" || !strings.Contains(r.stderr, "└─ ✗ b") {
		t.Errorf("%+v", r)
	}
	p.terminal = false
	script()
	r = p.run(t, "run", "watch", "demo", "r-1")
	for _, want := range []string{"● a             RUNNING", "run  RUNNING", "✓ a             SUCCEEDED", "● b             RUNNING", "✗ b             FAILED", "run  FAILED  broken: it is"} {
		if strings.Count(r.stdout, want+"\n") != 1 {
			t.Errorf("has no line %q:\n%s", want, r.stdout)
		}
	}
	script()
	r = p.run(t, "run", "watch", "demo", "r-1", "-o", "json")
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); len(lines) != 3 || !strings.Contains(lines[2], `"status":"RUN_STATUS_FAILED"`) {
		t.Errorf("%+v", r)
	}
	f.runs = []*progressorv1.Run{seen(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING")}
	if r := p.run(t, "run", "get", "demo", "r-1", "--wait", "--wait-timeout", "20ms"); r.code != exitTimeout || !strings.Contains(r.stderr, "it continues. Next: progressor run get demo r-1") {
		t.Errorf("%+v", r)
	}
}

func TestRunListAndWaits(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{seen(progressorv1.RunStatus_RUN_STATUS_RUNNING)}}
	p := serveFlows(t, f)
	out := p.ok(t, "run", "list", "demo", "--status", "failed", "--type", "order", "--order-by", "updated_time", "payload.n = 1")
	wantLines(t, out, "r-1 order RUNNING 40 %", "more: --page-token next, or --all")
	wantRequest(t, f.last, &progressorv1.ListRunsRequest{Namespace: "demo", Filter: `((status = FAILED) AND (template_type = "order")) AND (payload.n = 1)`, OrderBy: "updated_time"})
	if r := p.run(t, "run", "list", "demo", "--status", "broken"); r.code != exitUsage || !strings.Contains(r.stderr, "--status") {
		t.Errorf("%+v", r)
	}
	out = p.ok(t, "run", "waits", "demo", "--run", "o*1", "--assignee", "ann", "--kind", "human")
	wantLines(t, out, `o-1 ask[3] HUMAN ann, bob go\non?`, "x-1 ext EXTERNAL TOKEN cancel requested")
	if strings.Contains(out, "SECRET") {
		t.Error(out)
	}
	wantRequest(t, f.last, &progressorv1.ListOpenWaitsRequest{Namespace: "demo", Filter: `((kind = HUMAN) AND (run_id = "o\*1")) AND (assignees:"ann")`})
}

func TestRunAnswers(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{seen(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING")}}
	p := serveFlows(t, f)
	index := int32(2)
	p.ok(t, "run", "complete", "demo", "r-1", "ask", "--index", "2", "--result", "true", "--worker-id", "ann")
	wantRequest(t, f.last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Index: &index, WorkerId: "ann", Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewBoolValue(true)},
	})
	p.ok(t, "run", "complete", "demo", "r-1", "ask", "--token", "T", "--failure", "no", "--message", "nobody")
	wantRequest(t, f.last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Token: "T", Outcome: &progressorv1.CompleteStepRequest_Failure{Failure: &progressorv1.Failure{Reason: "no", Message: "nobody"}},
	})
	p.ok(t, "run", "complete", "demo", "r-1", "ask", "--cancelled")
	wantRequest(t, f.last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Outcome: &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}},
	})
	for _, args := range [][]string{{}, {"--result", "1", "--cancelled"}, {"--message", "x", "--cancelled"}, {"--result", "{"}} {
		if r := p.run(t, append([]string{"run", "complete", "demo", "r-1", "ask"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	out := p.ok(t, "run", "report", "demo", "r-1", "ask", "--token", "T", "--percent", "40", "--summary", "page 4", "--due", "1h")
	wantLines(t, out, "directive CANCEL", "cancel reason enough")
	wantRequest(t, f.last, &progressorv1.ReportStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Token: "T", Progress: &progressorv1.Progress{Percent: 40, Summary: "page 4"}, Due: durationpb.New(time.Hour),
	})
	p.ok(t, "run", "skip", "demo", "r-1", "ask", "--result", "1", "--reason", "no time")
	wantRequest(t, f.last, &progressorv1.SkipStepRequest{Namespace: "demo", RunId: "r-1", StepId: "ask", Result: structpb.NewNumberValue(1), Reason: "no time"})
	p.ok(t, "run", "cancel", "demo", "r-1", "--reason", "enough")
	wantRequest(t, f.last, &progressorv1.CancelRunRequest{Namespace: "demo", RunId: "r-1", Reason: "enough"})
	p.ok(t, "run", "retry", "demo", "r-1", "--newest-version")
	wantRequest(t, f.last, &progressorv1.RetryRunRequest{Namespace: "demo", RunId: "r-1", NewestVersion: true})
	p.ok(t, "run", "repeat", "demo", "r-1", "-k", "again")
	wantRequest(t, f.last, &progressorv1.RepeatRunRequest{Namespace: "demo", RunId: "r-1", IdempotencyKey: "again"})
	f.refuse = engineError(connect.CodeFailedPrecondition, "run r-1: the token is not that of the wait", &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS})
	if r := p.run(t, "run", "complete", "demo", "r-1", "ask", "--cancelled"); r.code != exitConflict || !strings.Contains(r.stderr, "Next: progressor run waits demo --run r-1") {
		t.Errorf("%+v", r)
	}
}

// Put reads files of several documents, and the output of get. It stores nothing if one of them is
// wrong.
func TestTemplatePut(t *testing.T) {
	f := &fakeFlows{}
	p := serveFlows(t, f)
	two := templateFile(t, "two.yaml", "type: a\nsteps: [{step_id: s, job: {}}]\n---\ntype: same\nnamespace: other\nsteps: [{step_id: s, job: {}}]\n---\n")
	got, err := protojson.Marshal(&progressorv1.GetTemplateResponse{Template: graphOf("x"), Versions: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = string(got)
	out := p.ok(t, "template", "put", "other", "-f", two, "-f", "-")
	wantLines(t, out, "other a 2 stored", "other same 2 unchanged", "other order 2 stored")
	f.put = nil
	p.stdin = "type: b\nsteps: [{step_id: s}]\n"
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"put", "other", "-f", two, "-f", "-"}, "--file -:2: steps[0]"},
		{[]string{"put", "-f", two}, "template a has no namespace"},
		{[]string{"put", "demo", "-f", two}, "template same belongs to namespace other, not demo"},
		{[]string{"put", "other", "-f", two, "--expected-version", "1"}, "--expected-version requires a single template, and --file contains 2"},
	} {
		if r := p.run(t, append([]string{"template"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.stderr, c.says) || len(f.put) > 0 {
			t.Errorf("%q: %+v, put %v", c.args, r, f.put)
		}
	}
	out = p.ok(t, "template", "check", "-f", two)
	wantLines(t, out, two+": a is valid, 1 step in sequence", two+": same is valid, 1 step in sequence")
	f.template = graphOf("x", "y x")
	wantLines(t, p.ok(t, "template", "get", "demo", "order", "--version", "2"), "template demo/order", "version 2 of 1, 2", "order GRAPH", "y job y x")
	f.template = nil
	if r := p.run(t, "template", "get", "demo", "order"); r.code != exitNotFound || !strings.Contains(r.stderr, "Next: progressor template list demo") {
		t.Errorf("%+v", r)
	}
}

// Templates of the configuration file are put at the start, once.
func TestTemplatesOfTheConfigurationFile(t *testing.T) {
	text := "namespaces: [{namespace: play, processor: {pull: {}}}]\ntemplates:\n  - namespace: play\n    type: order\n    steps: [{step_id: a, job: {}}]\n"
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "progressor.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	for _, want := range []string{"order 1 enabled 1", "order 1 enabled 1", "order 2 enabled 1"} {
		if strings.HasPrefix(want, "order 2") {
			text = strings.ReplaceAll(text, "step_id: a", "step_id: b")
		}
		d := background(t, nil, "serve", "-c", write(text), "--listen", "127.0.0.1:0", "--db.dsn", dsn)
		wantLines(t, d.client.ok(t, "template", "list", "play"), want)
		d.signals <- os.Interrupt
		d.await(t)
	}
	for _, c := range []struct{ from, to, says string }{
		{"step_id: b", "stepid: b", "line 5: templates[0].steps[0].stepid: unknown field"},
		{"job: {}", "job: {}, depends_on: [x]", "line 5: templates[0].steps[0].depends_on"},
		{"type: order", "name: order", "line 3: templates[0].type is missing"},
	} {
		file := write(strings.ReplaceAll(text, c.from, c.to))
		if r := (program{}).run(t, "config", "check", "-c", file, "--db.dsn", dsn); r.code != exitUsage || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%+v, want %s", r, c.says)
		}
	}
	out := program{}.ok(t, "config", "print", "-c", write(text), "--db.dsn", dsn)
	if !strings.Contains(out, "templates:") || !strings.Contains(out, "type: order") {
		t.Error(out)
	}
}
