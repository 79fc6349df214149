package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// result is the outcome of a command line.
type result struct {
	code           int
	stdout, stderr string
}

// program runs command lines with its own environment and input.
type program struct {
	env      map[string]string
	stdin    string
	terminal bool
	asks     bool
}

func (p program) run(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	m := Main{
		Stdin:    strings.NewReader(p.stdin),
		Stdout:   &stdout,
		Stderr:   &stderr,
		Signals:  make(chan os.Signal),
		Terminal: p.terminal,
		Asks:     p.asks,
		Getenv: func(name string) (string, bool) {
			v, ok := p.env[name]
			return v, ok
		},
		Environ: func() (all []string) {
			for name, value := range p.env {
				all = append(all, name+"="+value)
			}
			return all
		},
	}
	code := m.Run(t.Context(), args)
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// ok runs a command line that must exit with code 0 and returns its output.
func (p program) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := p.run(t, args...)
	if r.code != exitOK {
		t.Fatalf("progressor %s: code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// fakeEngine answers by a script and keeps the last request, because these tests check the command
// line and its output.
type fakeEngine struct {
	progressorv1connect.UnimplementedProcessServiceHandler
	progressorv1connect.UnimplementedNamespaceServiceHandler
	progressorv1connect.UnimplementedInsightServiceHandler
	progressorv1connect.UnimplementedBulkServiceHandler
	progressorv1connect.UnimplementedCronServiceHandler

	err     error // of the next requests
	last    any
	process *progressorv1.Process
	pages   []*progressorv1.ListProcessesResponse
	tasks   []*progressorv1.Task
	updates []*progressorv1.WatchProcessResponse
	insight any // the response of InsightService
	bulks   []*progressorv1.Bulk
	cron    *progressorv1.Cron
	fires   []*progressorv1.Fire
}

// serveFake returns a program whose engine is f.
func serveFake(t *testing.T, f *fakeEngine) program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewProcessServiceHandler(f))
	mux.Handle(progressorv1connect.NewNamespaceServiceHandler(f))
	mux.Handle(progressorv1connect.NewInsightServiceHandler(f))
	mux.Handle(progressorv1connect.NewBulkServiceHandler(f))
	mux.Handle(progressorv1connect.NewCronServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return program{env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

func answer[T any](f *fakeEngine, req any, resp *T) (*T, error) {
	f.last = req
	if f.err != nil {
		return nil, f.err
	}
	return resp, nil
}

func (f *fakeEngine) Start(_ context.Context, req *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	return answer(f, req, &progressorv1.StartResponse{ProcessId: "p-1", TaskId: 1, Response: req.GetArgs()})
}

func (f *fakeEngine) Call(_ context.Context, req *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	return answer(f, req, &progressorv1.CallResponse{TaskId: 2, Response: req.GetArgs()})
}

func (f *fakeEngine) Repair(_ context.Context, req *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	return answer(f, req, &progressorv1.RepairResponse{TaskId: 3})
}

func (f *fakeEngine) AwaitTask(_ context.Context, req *progressorv1.AwaitTaskRequest) (*progressorv1.AwaitTaskResponse, error) {
	resp := &progressorv1.AwaitTaskResponse{}
	if len(f.tasks) > 0 {
		resp.Task = f.tasks[0]
	}
	return answer(f, req, resp)
}

func (f *fakeEngine) GetProcess(_ context.Context, req *progressorv1.GetProcessRequest) (*progressorv1.GetProcessResponse, error) {
	return answer(f, req, &progressorv1.GetProcessResponse{Process: f.process})
}

func (f *fakeEngine) ListProcesses(_ context.Context, req *progressorv1.ListProcessesRequest) (*progressorv1.ListProcessesResponse, error) {
	page := 0
	if req.GetPageToken() != "" {
		page = 1
	}
	if page >= len(f.pages) {
		return answer(f, req, &progressorv1.ListProcessesResponse{})
	}
	return answer(f, req, f.pages[page])
}

func (f *fakeEngine) TraceProcess(_ context.Context, req *progressorv1.TraceProcessRequest) (*progressorv1.TraceProcessResponse, error) {
	return answer(f, req, &progressorv1.TraceProcessResponse{Tasks: f.tasks})
}

func (f *fakeEngine) WatchProcess(_ context.Context, req *progressorv1.WatchProcessRequest, stream *connect.ServerStream[progressorv1.WatchProcessResponse]) error {
	f.last = req
	for _, u := range f.updates {
		if err := stream.Send(u); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fakeEngine) PutProcess(_ context.Context, req *progressorv1.PutProcessRequest) (*progressorv1.PutProcessResponse, error) {
	return answer(f, req, &progressorv1.PutProcessResponse{Process: f.process})
}

func (f *fakeEngine) RemoveProcess(_ context.Context, req *progressorv1.RemoveProcessRequest) (*progressorv1.RemoveProcessResponse, error) {
	return answer(f, req, &progressorv1.RemoveProcessResponse{})
}

func (f *fakeEngine) PutNamespace(_ context.Context, req *progressorv1.PutNamespaceRequest) (*progressorv1.PutNamespaceResponse, error) {
	return answer(f, req, &progressorv1.PutNamespaceResponse{Namespace: req.GetNamespace()})
}

func (f *fakeEngine) GetNamespaceHealth(
	_ context.Context, req *progressorv1.GetNamespaceHealthRequest,
) (*progressorv1.GetNamespaceHealthResponse, error) {
	health := &progressorv1.NamespaceHealth{
		Namespace: "orders", Status: progressorv1.HealthStatus_HEALTH_STATUS_DEGRADED, Runnable: 1234,
		OldestRunnableAge: durationpb.New(35 * time.Second), ProcessesInError: 2,
		Problems: []*progressorv1.HealthProblem{{
			Kind: progressorv1.HealthProblem_KIND_BEHIND, Status: progressorv1.HealthStatus_HEALTH_STATUS_DEGRADED,
			Detail: "tasks wait", Next: "add nodes",
		}},
	}
	if req.GetNamespace() == "down" {
		health.Namespace, health.Status = "down", progressorv1.HealthStatus_HEALTH_STATUS_DOWN
	}
	return answer(f, req, &progressorv1.GetNamespaceHealthResponse{Namespaces: []*progressorv1.NamespaceHealth{health}})
}

func (f *fakeEngine) PauseNamespace(_ context.Context, req *progressorv1.PauseNamespaceRequest) (*progressorv1.PauseNamespaceResponse, error) {
	ns := &progressorv1.Namespace{Namespace: req.GetNamespace(), Paused: true}
	return answer(f, req, &progressorv1.PauseNamespaceResponse{Namespace: ns})
}

// engineError returns an error as the engine sends it.
func engineError(code connect.Code, message string, detail *progressorv1.ErrorDetail) error {
	err := connect.NewError(code, errors.New(message))
	d, detailErr := connect.NewErrorDetail(detail)
	if detailErr != nil {
		panic(detailErr)
	}
	err.AddDetail(d)
	return err
}

// wantLines looks for texts, with any number of spaces between two columns.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	narrow := regexp.MustCompile(` {2,}`)
	for _, line := range lines {
		if !strings.Contains(narrow.ReplaceAllString(text, " "), narrow.ReplaceAllString(line, " ")) {
			t.Errorf("missing %q in:\n%s", line, text)
		}
	}
}
