package flow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// fakeFlows returns scripted responses and records the last request, like Engine.
type fakeFlows struct {
	progressorv1connect.UnimplementedFlowServiceHandler

	clitest.Engine
	runs     []*progressorv1.Run // the states that a run goes through
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

func (f *fakeFlows) PutTemplate(
	_ context.Context, r *progressorv1.PutTemplateRequest,
) (*progressorv1.PutTemplateResponse, error) {
	t := proto.CloneOf(r.GetTemplate())
	t.Version = 2
	f.put = append(f.put, t.GetNamespace()+"/"+t.GetType())
	return clitest.Answer(&f.Engine, r, &progressorv1.PutTemplateResponse{Template: t, Created: t.GetType() != "same"})
}

func (f *fakeFlows) GetTemplate(
	_ context.Context, r *progressorv1.GetTemplateRequest,
) (*progressorv1.GetTemplateResponse, error) {
	if f.template == nil {
		return nil, clitest.EngineError(connect.CodeNotFound, "template not found",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND})
	}
	f.template.Version = max(r.GetVersion(), 1)
	return &progressorv1.GetTemplateResponse{Template: f.template, Versions: []int32{1, 2}}, nil
}

func (f *fakeFlows) StartRun(
	_ context.Context, r *progressorv1.StartRunRequest,
) (*progressorv1.StartRunResponse, error) {
	f.Last = r
	if f.refuse != nil {
		return nil, f.refuse
	}
	return &progressorv1.StartRunResponse{Run: f.next(), Started: !r.GetValidateOnly()}, nil
}

func (f *fakeFlows) GetRun(_ context.Context, _ *progressorv1.GetRunRequest) (*progressorv1.GetRunResponse, error) {
	return &progressorv1.GetRunResponse{Run: f.next()}, f.refuse
}

func (f *fakeFlows) ListRuns(
	_ context.Context, r *progressorv1.ListRunsRequest,
) (*progressorv1.ListRunsResponse, error) {
	return clitest.Answer(&f.Engine, r, &progressorv1.ListRunsResponse{Runs: f.runs, NextPageToken: "next"})
}

func (f *fakeFlows) ListOpenWaits(
	_ context.Context, r *progressorv1.ListOpenWaitsRequest,
) (*progressorv1.ListOpenWaitsResponse, error) {
	index := int32(3)
	return clitest.Answer(&f.Engine, r, &progressorv1.ListOpenWaitsResponse{Waits: []*progressorv1.OpenWait{
		{RunId: "o-1", StepId: "ask", Index: &index, Kind: progressorv1.WaitAction_KIND_HUMAN, Title: "go\non?",
			Assignees: []string{"ann", "bob"}, Token: "SECRET"},
		{RunId: "x-1", StepId: "ext", Kind: progressorv1.WaitAction_KIND_EXTERNAL, Token: "TOKEN",
			CancelRequested: true},
	}})
}

func (f *fakeFlows) CompleteStep(
	_ context.Context, r *progressorv1.CompleteStepRequest,
) (*progressorv1.CompleteStepResponse, error) {
	f.Last = r
	return &progressorv1.CompleteStepResponse{Run: f.runs[0]}, f.refuse
}

func (f *fakeFlows) ReportStep(
	_ context.Context, r *progressorv1.ReportStepRequest,
) (*progressorv1.ReportStepResponse, error) {
	return clitest.Answer(&f.Engine, r,
		&progressorv1.ReportStepResponse{
			Directive: &progressorv1.LeaseDirective{Directive: progressorv1.LeaseDirective_DIRECTIVE_CANCEL,
				CancelReason: "enough"}})
}

func (f *fakeFlows) SkipStep(
	_ context.Context, r *progressorv1.SkipStepRequest,
) (*progressorv1.SkipStepResponse, error) {
	return clitest.Answer(&f.Engine, r, &progressorv1.SkipStepResponse{Run: f.runs[0]})
}

func (f *fakeFlows) CancelRun(
	_ context.Context, r *progressorv1.CancelRunRequest,
) (*progressorv1.CancelRunResponse, error) {
	return clitest.Answer(&f.Engine, r, &progressorv1.CancelRunResponse{Run: f.runs[0]})
}

func (f *fakeFlows) RetryRun(
	_ context.Context, r *progressorv1.RetryRunRequest,
) (*progressorv1.RetryRunResponse, error) {
	return clitest.Answer(&f.Engine, r, &progressorv1.RetryRunResponse{Run: f.runs[0]})
}

func (f *fakeFlows) RepeatRun(
	_ context.Context, r *progressorv1.RepeatRunRequest,
) (*progressorv1.RepeatRunResponse, error) {
	return clitest.Answer(&f.Engine, r, &progressorv1.RepeatRunResponse{Run: f.runs[0]})
}

func serveFlows(t *testing.T, f *fakeFlows) clitest.Program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewFlowServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

// runWith returns a run with steps that are written as "id STATUS".
func runWith(status progressorv1.RunStatus, steps ...string) *progressorv1.Run {
	r := &progressorv1.Run{Namespace: "demo", RunId: "r-1", TemplateType: "order", TemplateVersion: 1, Status: status,
		Progress: &progressorv1.Progress{Percent: 40}}
	for _, text := range steps {
		id, status, _ := strings.Cut(text, " ")
		r.Steps = append(r.Steps,
			&progressorv1.Step{StepId: id,
				Status: progressorv1.StepStatus(progressorv1.StepStatus_value["STEP_STATUS_"+status])})
	}
	if status >= progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		r.FinishedTime = timestamppb.Now()
	}
	return r
}

// graphOf returns a template with steps that are written as "id after,after".
func graphOf(steps ...string) *progressorv1.Template {
	t := &progressorv1.Template{Namespace: "demo", Type: "order", StepOrder: progressorv1.StepOrder_STEP_ORDER_GRAPH}
	for _, text := range steps {
		id, after, _ := strings.Cut(text, " ")
		s := &progressorv1.StepTemplate{StepId: id,
			Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{}}}
		if after != "" {
			s.DependsOn = strings.Split(after, ",")
		}
		t.Steps = append(t.Steps, s)
	}
	return t
}

// A graph is drawn as a tree. Each step appears once, below the last of its dependencies, and names
// its other dependencies.
func TestDrawSteps(t *testing.T) {
	columns := func(r *progressorv1.Run, m *progressorv1.Template) string {
		var lines []string
		for _, line := range strings.Split(drawSteps(output.Style{}, r, m), "\n")[1:] {
			lines = append(lines,
				strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, "   ", " _ "), "   ", " _ ")),
					" "))
		}
		return strings.Join(lines, "\n")
	}
	r := runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a SUCCEEDED", "b FAILED", "c RUNNING", "d PENDING",
		"e PENDING", "f SKIPPED", "g CANCELLED")
	got := drawSteps(output.Style{}, r, graphOf("a", "b a", "c a", "d b,c", "e d", "f a", "g"))
	for _, line := range []string{"✓ a", "├─ ✗ b", "├─ ● c", "│  └─ ○ d", "│     └─ ○ e", "└─ – f", "× g"} {
		if !strings.Contains(got, "\n"+line+" ") {
			t.Errorf("the output has no line %q:\n%s", line, got)
		}
	}
	if !strings.Contains(got, "also depends on b; waits for b, c") || !strings.Contains(got, "waits for d") ||
		strings.Count(got, "\n") != 8 {
		t.Errorf("%s", got)
	}
	if got := columns(r, nil); strings.Contains(got, "─") {
		t.Errorf("a sequence is drawn as a tree:\n%s", got)
	}
	// The longest possible chain fits the width of a terminal, and steps that have no place in the
	// tree are also drawn.
	var steps, ids []string
	for n := range 1000 {
		id := fmt.Sprintf("s%d", n)
		ids = append(ids, id+" PENDING")
		if n > 0 {
			id += fmt.Sprintf(" s%d", n-1)
		}
		steps = append(steps, id)
	}
	long := drawSteps(output.Style{},
		runWith(progressorv1.RunStatus_RUN_STATUS_PENDING, append(ids, "lost PENDING")...),
		graphOf(append(steps, "lost gone")...))
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
			Status:   progressorv1.StepStatus_STEP_STATUS_RUNNING,
			Progress: &progressorv1.Progress{Percent: 40, Summary: "page 4"}, Reason: "waits for an answer",
		},
		"[##........] 250 of 1,000 items ended: 1 failed, 700 pending, 50 running": {
			Status:        progressorv1.StepStatus_STEP_STATUS_RUNNING,
			ItemsByStatus: map[string]int64{"succeeded": 249, "failed": 1, "pending": 700, "running": 50},
		},
		"3 of 3 items ended; undone": {Status: progressorv1.StepStatus_STEP_STATUS_SUCCEEDED,
			ItemsByStatus: map[string]int64{"succeeded": 3}, CompensationStatus: &undone},
		"exit_3: no": {Status: progressorv1.StepStatus_STEP_STATUS_FAILED,
			Failure:  &progressorv1.Failure{Reason: "exit_3", Message: "no"},
			Progress: &progressorv1.Progress{Percent: 5}},
	} {
		if got := stepNote(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRunStart(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{runWith(progressorv1.RunStatus_RUN_STATUS_QUEUED)}}
	p := serveFlows(t, f)
	out := p.OK(t, "run", "start", "demo", "order", "--id", "r-1", "--payload", `{"n": 1}`, "--scope", "user",
		"--scope-id", "42", "--template-version", "2", "-k", "key",
		"--metadata", `{"team":"a"}`, "--run-time", "2030-01-02T03:04:05Z")
	clitest.WantLines(t, out, "run demo/r-1", "template order, version 1", "status QUEUED")
	payload, _ := structpb.NewValue(map[string]any{"n": 1})
	metadata, _ := structpb.NewStruct(map[string]any{"team": "a"})
	clitest.WantRequest(t, f.Last, &progressorv1.StartRunRequest{
		Namespace: "demo", RunId: "r-1", Type: "order", Version: 2, Scope: "user", ScopeId: "42", Payload: payload,
		IdempotencyKey: "key", Metadata: metadata,
		RunTime: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)),
	})
	clitest.WantLines(t, p.OK(t, "run", "start", "demo", "order", "--dry-run"), "started no (--dry-run)")
	f.runs = []*progressorv1.Run{{Namespace: "demo", TemplateType: "order"}}
	clitest.WantLines(t, p.OK(t, "run", "start", "demo", "order", "--dry-run"), "run a new one in demo")
	f.refuse = clitest.EngineError(connect.CodeInvalidArgument, "step ask names the token of the wait: give it",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "token"})
	if r := p.Run(t, "run", "complete", "demo", "r-1", "ask", "--result", "null"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "Next: --wait-token, which progressor run waits demo --run r-1 shows") {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		reason progressorv1.ErrorDetail_Reason
		text   string
		code   connect.Code
		exit   int
		next   string
	}{
		{progressorv1.ErrorDetail_REASON_SAME_SCOPE, "run demo/r-0 of the same scope", connect.CodeAlreadyExists,
			cli.ExitConflict, "Next: progressor run get demo r-0"},
		{progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED, "template order is disabled",
			connect.CodeFailedPrecondition, cli.ExitConflict, "Next: progressor template enable demo order"},
		{progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND, "not found", connect.CodeNotFound, cli.ExitNotFound,
			"Next: progressor template list demo"},
	} {
		f.refuse = clitest.EngineError(c.code, c.text,
			&progressorv1.ErrorDetail{Reason: c.reason, Namespace: "demo", ProcessId: "r-0"})
		if r := p.Run(t, "run", "start", "demo", "order"); r.Code != c.exit || !strings.Contains(r.Stderr, c.next) {
			t.Errorf("%+v, want %d, %s", r, c.exit, c.next)
		}
	}
}

// A wait follows the run to its end and reports the outcome by the exit code. On a terminal, the
// steps are drawn and redrawn.
func TestRunWait(t *testing.T) {
	failed := runWith(progressorv1.RunStatus_RUN_STATUS_FAILED, "a SUCCEEDED", "b FAILED")
	failed.Failure = &progressorv1.Failure{Reason: "broken", Message: "it is"}
	f := &fakeFlows{template: graphOf("a", "b a")}
	p := serveFlows(t, f)
	p.Terminal = true
	script := func() {
		f.runs = []*progressorv1.Run{runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING", "b PENDING"),
			runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a SUCCEEDED", "b RUNNING"), failed}
	}
	script()
	r := p.Run(t, "run", "get", "demo", "r-1", "--wait")
	if r.Code != cli.ExitTaskFailed || !strings.Contains(r.Stderr, "● a") || !strings.Contains(r.Stderr, "└─ ● b") ||
		strings.Count(r.Stderr, "\x1b[4A") != 3 ||
		!strings.Contains(r.Stderr, "the run has failed: broken: it is. Next: progressor run retry demo r-1") ||
		!strings.Contains(r.Stdout, "└─ ✗ b") || !strings.Contains(r.Stdout, "  1 of 2 steps succeeded\n") {
		t.Errorf("%+v", r)
	}
	script()
	r = p.Run(t, "run", "watch", "demo", "r-1")
	if r.Code != cli.ExitTaskFailed || r.Stdout != "" || !strings.Contains(r.Stderr, "└─ ✗ b") {
		t.Errorf("%+v", r)
	}
	p.Terminal = false
	script()
	r = p.Run(t, "run", "watch", "demo", "r-1")
	for _, want := range []string{"● a             RUNNING", "run  RUNNING", "✓ a             SUCCEEDED",
		"● b             RUNNING", "✗ b             FAILED", "run  FAILED  broken: it is"} {
		if strings.Count(r.Stdout, want+"\n") != 1 {
			t.Errorf("the output has no line %q:\n%s", want, r.Stdout)
		}
	}
	script()
	r = p.Run(t, "run", "watch", "demo", "r-1", "-o", "json")
	if lines := strings.Split(strings.TrimSpace(r.Stdout), "\n"); len(lines) != 3 ||
		!strings.Contains(lines[2], `"status":"RUN_STATUS_FAILED"`) {
		t.Errorf("%+v", r)
	}
	f.runs = []*progressorv1.Run{runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING")}
	if r := p.Run(t, "run", "get", "demo", "r-1", "--wait", "--wait-timeout", "20ms"); r.Code != cli.ExitTimeout ||
		!strings.Contains(r.Stderr, "it continues. Next: progressor run get demo r-1") {
		t.Errorf("%+v", r)
	}
}

func TestRunListAndWaits(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING)}}
	p := serveFlows(t, f)
	out := p.OK(t, "run", "list", "demo", "--status", "failed", "--type", "order", "--order-by", "updated_time",
		"payload.n = 1")
	clitest.WantLines(t, out, "r-1 order RUNNING 40 %", "more: --page-token next, or --all")
	clitest.WantRequest(t, f.Last,
		&progressorv1.ListRunsRequest{Namespace: "demo",
			Filter: `((status = FAILED) AND (template_type = "order")) AND (payload.n = 1)`, OrderBy: "updated_time"})
	if r := p.Run(t, "run", "list", "demo", "--status", "broken"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "--status") {
		t.Errorf("%+v", r)
	}
	out = p.OK(t, "run", "waits", "demo", "--run", "o*1", "--assignee", "ann", "--kind", "human")
	clitest.WantLines(t, out, `o-1 ask[3] HUMAN ann, bob go\non?`, "x-1 ext EXTERNAL TOKEN cancel requested")
	if strings.Contains(out, "SECRET") {
		t.Error(out)
	}
	clitest.WantRequest(t, f.Last,
		&progressorv1.ListOpenWaitsRequest{Namespace: "demo",
			Filter: `((kind = HUMAN) AND (run_id = "o\*1")) AND (assignees:"ann")`})
}

func TestRunAnswers(t *testing.T) {
	f := &fakeFlows{runs: []*progressorv1.Run{runWith(progressorv1.RunStatus_RUN_STATUS_RUNNING, "a RUNNING")}}
	p := serveFlows(t, f)
	index := int32(2)
	p.OK(t, "run", "complete", "demo", "r-1", "ask", "--index", "2", "--result", "true", "--worker-id", "ann")
	clitest.WantRequest(t, f.Last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Index: &index, WorkerId: "ann",
		Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewBoolValue(true)},
	})
	p.OK(t, "run", "complete", "demo", "r-1", "ask", "--wait-token", "T", "--failure", "no", "--message", "nobody")
	clitest.WantRequest(t, f.Last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Token: "T",
		Outcome: &progressorv1.CompleteStepRequest_Failure{
			Failure: &progressorv1.Failure{Reason: "no", Message: "nobody"}},
	})
	p.OK(t, "run", "complete", "demo", "r-1", "ask", "--cancelled")
	clitest.WantRequest(t, f.Last, &progressorv1.CompleteStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask",
		Outcome: &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}},
	})
	for _, args := range [][]string{{}, {"--result", "1", "--cancelled"}, {"--message", "x", "--cancelled"},
		{"--result", "{"}} {
		if r := p.Run(t,
			append([]string{"run", "complete", "demo", "r-1", "ask"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	out := p.OK(t, "run", "report", "demo", "r-1", "ask", "--wait-token", "T", "--percent", "40", "--summary", "page 4",
		"--due", "1h")
	clitest.WantLines(t, out, "directive CANCEL", "cancel reason enough")
	clitest.WantRequest(t, f.Last, &progressorv1.ReportStepRequest{
		Namespace: "demo", RunId: "r-1", StepId: "ask", Token: "T",
		Progress: &progressorv1.Progress{Percent: 40, Summary: "page 4"}, Due: durationpb.New(time.Hour),
	})
	p.OK(t, "run", "skip", "demo", "r-1", "ask", "--result", "1", "--reason", "no time")
	clitest.WantRequest(t, f.Last,
		&progressorv1.SkipStepRequest{Namespace: "demo", RunId: "r-1", StepId: "ask",
			Result: structpb.NewNumberValue(1), Reason: "no time"})
	p.OK(t, "run", "cancel", "demo", "r-1", "--reason", "enough")
	clitest.WantRequest(t, f.Last, &progressorv1.CancelRunRequest{Namespace: "demo", RunId: "r-1", Reason: "enough"})
	p.OK(t, "run", "retry", "demo", "r-1", "--newest-version")
	clitest.WantRequest(t, f.Last, &progressorv1.RetryRunRequest{Namespace: "demo", RunId: "r-1", NewestVersion: true})
	p.OK(t, "run", "retry", "demo", "r-1", "--input", `pay={"total": 1}`, "--input", "ship=2")
	clitest.WantRequest(t, f.Last, &progressorv1.RetryRunRequest{
		Namespace: "demo", RunId: "r-1", Inputs: []*progressorv1.StepInput{
			{StepId: "pay", Input: structpb.NewStructValue(&structpb.Struct{
				Fields: map[string]*structpb.Value{"total": structpb.NewNumberValue(1)},
			})},
			{StepId: "ship", Input: structpb.NewNumberValue(2)},
		},
	})
	for _, text := range []string{"pay", "=1", "pay="} {
		if r := p.Run(t, "run", "retry", "demo", "r-1", "--input", text); r.Code == 0 ||
			!strings.Contains(r.Stderr, "--input: must be STEP=JSON or STEP=@FILE") {
			t.Errorf("%s: %+v", text, r)
		}
	}
	p.OK(t, "run", "repeat", "demo", "r-1", "-k", "other", "--payload", "3")
	clitest.WantRequest(t, f.Last, &progressorv1.RepeatRunRequest{
		Namespace: "demo", RunId: "r-1", IdempotencyKey: "other", Payload: structpb.NewNumberValue(3),
	})
	p.OK(t, "run", "repeat", "demo", "r-1", "-k", "again")
	clitest.WantRequest(t, f.Last,
		&progressorv1.RepeatRunRequest{Namespace: "demo", RunId: "r-1", IdempotencyKey: "again"})
	f.refuse = clitest.EngineError(connect.CodeFailedPrecondition, "run r-1: the token is not that of the wait",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS})
	if r := p.Run(t, "run", "complete", "demo", "r-1", "ask", "--cancelled"); r.Code != cli.ExitConflict ||
		!strings.Contains(r.Stderr, "Next: progressor run waits demo --run r-1") {
		t.Errorf("%+v", r)
	}
}

// Put reads files with several documents, and the output of get. It stores nothing if one of the
// documents is invalid.
func TestTemplatePut(t *testing.T) {
	f := &fakeFlows{}
	p := serveFlows(t, f)
	two := clitest.TemplateFile(t, "two.yaml",
		"type: a\nsteps: [{step_id: s, job: {}}]\n---\ntype: same\nnamespace: other\n"+
			"steps: [{step_id: s, job: {}}]\n---\n")
	got, err := protojson.Marshal(&progressorv1.GetTemplateResponse{Template: graphOf("x"), Versions: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin = string(got)
	out := p.OK(t, "template", "put", "other", "-f", two, "-f", "-")
	clitest.WantLines(t, out, "other a 2 stored", "other same 2 unchanged", "other order 2 stored")
	f.put = nil
	p.Stdin = "type: b\nsteps: [{step_id: s}]\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"put", "other", "-f", two, "-f", "-"}, "--file -:2: steps[0]"},
		{[]string{"put", "-f", two}, "template a has no namespace"},
		{[]string{"put", "demo", "-f", two}, "template same belongs to namespace other, not demo"},
		{[]string{"put", "other", "-f", two, "--expected-version", "1"},
			"--expected-version requires a single template, and --file contains 2"},
	} {
		if r := p.Run(t, append([]string{"template"}, c.args...)...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, c.want) || len(f.put) > 0 {
			t.Errorf("%q: %+v, put %v", c.args, r, f.put)
		}
	}
	out = p.OK(t, "template", "check", "-f", two)
	clitest.WantLines(t, out, two+": a is valid, 1 step in sequence", two+": same is valid, 1 step in sequence")
	f.template = graphOf("x", "y x")
	clitest.WantLines(t, p.OK(t, "template", "get", "demo", "order", "--version", "2"), "template demo/order",
		"version 2 of 1, 2", "order GRAPH", "y job y x")
	f.template = nil
	if r := p.Run(t, "template", "get", "demo", "order"); r.Code != cli.ExitNotFound ||
		!strings.Contains(r.Stderr, "Next: progressor template list demo") {
		t.Errorf("%+v", r)
	}
}
