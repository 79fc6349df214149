package clitest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// Engine is a fake. It returns preset responses and records the last request.
type Engine struct {
	progressorv1connect.UnimplementedProcessServiceHandler
	progressorv1connect.UnimplementedNamespaceServiceHandler
	progressorv1connect.UnimplementedInsightServiceHandler
	progressorv1connect.UnimplementedBulkServiceHandler
	progressorv1connect.UnimplementedCronServiceHandler
	progressorv1connect.UnimplementedChangeServiceHandler

	Err     error // error of the next requests
	Last    any
	Process *progressorv1.Process
	Pages   []*progressorv1.ListProcessesResponse
	Tasks   []*progressorv1.Task
	Updates []*progressorv1.WatchProcessResponse
	Insight any // the response of InsightService
	Bulks   []*progressorv1.Bulk
	Cron    *progressorv1.Cron
	Fires   []*progressorv1.Fire
	Changes []*progressorv1.WatchChangesResponse
	Sink    *progressorv1.Sink
}

// Serve returns a program whose engine is f.
func Serve(t *testing.T, commands func() any, f *Engine) Program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewProcessServiceHandler(f))
	mux.Handle(progressorv1connect.NewNamespaceServiceHandler(f))
	mux.Handle(progressorv1connect.NewInsightServiceHandler(f))
	mux.Handle(progressorv1connect.NewBulkServiceHandler(f))
	mux.Handle(progressorv1connect.NewCronServiceHandler(f))
	mux.Handle(progressorv1connect.NewChangeServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Program{Commands: commands, Env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

// Answer records a request and returns its response, or the error of f.
func Answer[T any](f *Engine, req any, resp *T) (*T, error) {
	f.Last = req
	if f.Err != nil {
		return nil, f.Err
	}
	return resp, nil
}

// Start answers the request.
func (f *Engine) Start(_ context.Context, req *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	return Answer(f, req, &progressorv1.StartResponse{ProcessId: "p-1", TaskId: 1, Response: req.GetArgs()})
}

// Call answers the request.
func (f *Engine) Call(_ context.Context, req *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	return Answer(f, req, &progressorv1.CallResponse{TaskId: 2, Response: req.GetArgs()})
}

// Repair answers the request.
func (f *Engine) Repair(_ context.Context, req *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	return Answer(f, req, &progressorv1.RepairResponse{TaskId: 3})
}

// AwaitTask answers the request.
func (f *Engine) AwaitTask(
	_ context.Context, req *progressorv1.AwaitTaskRequest,
) (*progressorv1.AwaitTaskResponse, error) {
	resp := &progressorv1.AwaitTaskResponse{}
	if len(f.Tasks) > 0 {
		resp.Task = f.Tasks[0]
	}
	return Answer(f, req, resp)
}

// GetProcess answers the request.
func (f *Engine) GetProcess(
	_ context.Context, req *progressorv1.GetProcessRequest,
) (*progressorv1.GetProcessResponse, error) {
	return Answer(f, req, &progressorv1.GetProcessResponse{Process: f.Process})
}

// ListProcesses answers the request.
func (f *Engine) ListProcesses(
	_ context.Context, req *progressorv1.ListProcessesRequest,
) (*progressorv1.ListProcessesResponse, error) {
	page := 0
	if req.GetPageToken() != "" {
		page = 1
	}
	if page >= len(f.Pages) {
		return Answer(f, req, &progressorv1.ListProcessesResponse{})
	}
	return Answer(f, req, f.Pages[page])
}

// TraceProcess answers the request.
func (f *Engine) TraceProcess(
	_ context.Context, req *progressorv1.TraceProcessRequest,
) (*progressorv1.TraceProcessResponse, error) {
	return Answer(f, req, &progressorv1.TraceProcessResponse{Tasks: f.Tasks})
}

// WatchProcess answers the request.
func (f *Engine) WatchProcess(
	_ context.Context, req *progressorv1.WatchProcessRequest,
	stream *connect.ServerStream[progressorv1.WatchProcessResponse],
) error {
	f.Last = req
	for _, u := range f.Updates {
		if err := stream.Send(u); err != nil {
			return err
		}
	}
	return f.Err
}

// PutProcess answers the request.
func (f *Engine) PutProcess(
	_ context.Context, req *progressorv1.PutProcessRequest,
) (*progressorv1.PutProcessResponse, error) {
	return Answer(f, req, &progressorv1.PutProcessResponse{Process: f.Process})
}

// RemoveProcess answers the request.
func (f *Engine) RemoveProcess(
	_ context.Context, req *progressorv1.RemoveProcessRequest,
) (*progressorv1.RemoveProcessResponse, error) {
	return Answer(f, req, &progressorv1.RemoveProcessResponse{})
}

// PutNamespace answers the request.
func (f *Engine) PutNamespace(
	_ context.Context, req *progressorv1.PutNamespaceRequest,
) (*progressorv1.PutNamespaceResponse, error) {
	return Answer(f, req, &progressorv1.PutNamespaceResponse{Namespace: req.GetNamespace()})
}

// DeleteNamespace answers the request.
func (f *Engine) DeleteNamespace(
	_ context.Context, req *progressorv1.DeleteNamespaceRequest,
) (*progressorv1.DeleteNamespaceResponse, error) {
	resp := &progressorv1.DeleteNamespaceResponse{
		Namespace: &progressorv1.Namespace{Namespace: req.GetNamespace()},
		Counts: []*progressorv1.DataCount{
			{Kind: "processes", Status: "RUNNING", Count: 1234},
			{Kind: "waiting_tasks", Count: 1_000_000, OrMore: true},
		},
	}
	return Answer(f, req, resp)
}

// PauseNamespace answers the request.
func (f *Engine) PauseNamespace(
	_ context.Context, req *progressorv1.PauseNamespaceRequest,
) (*progressorv1.PauseNamespaceResponse, error) {
	ns := &progressorv1.Namespace{Namespace: req.GetNamespace(), Paused: true}
	return Answer(f, req, &progressorv1.PauseNamespaceResponse{Namespace: ns})
}

// EngineError returns an error as the engine sends it.
func EngineError(code connect.Code, message string, detail *progressorv1.ErrorDetail) error {
	err := connect.NewError(code, errors.New(message))
	d, detailErr := connect.NewErrorDetail(detail)
	if detailErr != nil {
		panic(detailErr)
	}
	err.AddDetail(d)
	return err
}

// StartBulk answers the request.
func (f *Engine) StartBulk(
	_ context.Context, req *progressorv1.StartBulkRequest,
) (*progressorv1.StartBulkResponse, error) {
	return Answer(f, req, &progressorv1.StartBulkResponse{Bulk: f.Bulks[0]})
}

// GetBulk returns one response after the other, and repeats the last one.
func (f *Engine) GetBulk(_ context.Context, req *progressorv1.GetBulkRequest) (*progressorv1.GetBulkResponse, error) {
	b := f.Bulks[0]
	if len(f.Bulks) > 1 {
		f.Bulks = f.Bulks[1:]
	}
	return Answer(f, req, &progressorv1.GetBulkResponse{Bulk: b})
}

// ListBulks answers the request.
func (f *Engine) ListBulks(
	_ context.Context, req *progressorv1.ListBulksRequest,
) (*progressorv1.ListBulksResponse, error) {
	return Answer(f, req, &progressorv1.ListBulksResponse{Bulks: f.Bulks, NextPageToken: "demo:more"})
}

// CancelBulk answers the request.
func (f *Engine) CancelBulk(
	_ context.Context, req *progressorv1.CancelBulkRequest,
) (*progressorv1.CancelBulkResponse, error) {
	return Answer(f, req, &progressorv1.CancelBulkResponse{Bulk: f.Bulks[0]})
}

// CreateCron answers the request.
func (f *Engine) CreateCron(
	_ context.Context, req *progressorv1.CreateCronRequest,
) (*progressorv1.CreateCronResponse, error) {
	return Answer(f, req, &progressorv1.CreateCronResponse{Cron: req.GetCron()})
}

// UpdateCron answers the request.
func (f *Engine) UpdateCron(
	_ context.Context, req *progressorv1.UpdateCronRequest,
) (*progressorv1.UpdateCronResponse, error) {
	return Answer(f, req, &progressorv1.UpdateCronResponse{Cron: req.GetCron()})
}

// GetCron answers the request.
func (f *Engine) GetCron(_ context.Context, req *progressorv1.GetCronRequest) (*progressorv1.GetCronResponse, error) {
	return Answer(f, req, &progressorv1.GetCronResponse{Cron: f.Cron})
}

// ListCrons answers the request.
func (f *Engine) ListCrons(
	_ context.Context, req *progressorv1.ListCronsRequest,
) (*progressorv1.ListCronsResponse, error) {
	return Answer(f, req, &progressorv1.ListCronsResponse{Crons: []*progressorv1.Cron{f.Cron}, NextPageToken: "next"})
}

// ResumeCron answers the request.
func (f *Engine) ResumeCron(
	_ context.Context, req *progressorv1.ResumeCronRequest,
) (*progressorv1.ResumeCronResponse, error) {
	return Answer(f, req, &progressorv1.ResumeCronResponse{Cron: f.Cron})
}

// TriggerCron answers the request.
func (f *Engine) TriggerCron(
	_ context.Context, req *progressorv1.TriggerCronRequest,
) (*progressorv1.TriggerCronResponse, error) {
	return Answer(f, req, &progressorv1.TriggerCronResponse{Fire: f.Fires[0]})
}

// CancelFire answers the request.
func (f *Engine) CancelFire(
	_ context.Context, req *progressorv1.CancelFireRequest,
) (*progressorv1.CancelFireResponse, error) {
	return Answer(f, req, &progressorv1.CancelFireResponse{Fire: f.Fires[0]})
}

// RerunFire answers the request.
func (f *Engine) RerunFire(
	_ context.Context, req *progressorv1.RerunFireRequest,
) (*progressorv1.RerunFireResponse, error) {
	return Answer(f, req, &progressorv1.RerunFireResponse{Fire: f.Fires[0]})
}

// StopBackfills answers the request.
func (f *Engine) StopBackfills(
	_ context.Context, req *progressorv1.StopBackfillsRequest,
) (*progressorv1.StopBackfillsResponse, error) {
	return Answer(f, req, &progressorv1.StopBackfillsResponse{Backfills: 2})
}

// BackfillCron answers the request.
func (f *Engine) BackfillCron(
	_ context.Context, req *progressorv1.BackfillCronRequest,
) (*progressorv1.BackfillCronResponse, error) {
	return Answer(f, req, &progressorv1.BackfillCronResponse{Fires: 1234})
}

// PreviewCron returns a fire time each minute.
func (f *Engine) PreviewCron(
	_ context.Context, req *progressorv1.PreviewCronRequest,
) (*progressorv1.PreviewCronResponse, error) {
	resp := &progressorv1.PreviewCronResponse{}
	for t := req.GetFromTime().AsTime(); t.Before(req.GetToTime().AsTime()) &&
		len(resp.GetFireTimes()) < int(req.GetLimit()); t = t.Add(time.Minute) {
		resp.FireTimes = append(resp.FireTimes, timestamppb.New(t))
	}
	return Answer(f, req, resp)
}

// ListFires answers the request.
func (f *Engine) ListFires(
	_ context.Context, req *progressorv1.ListFiresRequest,
) (*progressorv1.ListFiresResponse, error) {
	return Answer(f, req, &progressorv1.ListFiresResponse{Fires: f.Fires})
}

// ExplainProcess answers the request.
func (f *Engine) ExplainProcess(
	_ context.Context, req *progressorv1.ExplainProcessRequest,
) (*progressorv1.ExplainProcessResponse, error) {
	resp, _ := f.Insight.(*progressorv1.ExplainProcessResponse)
	return Answer(f, req, resp)
}

// CancelProcess answers the request.
func (f *Engine) CancelProcess(
	_ context.Context, req *progressorv1.CancelProcessRequest,
) (*progressorv1.CancelProcessResponse, error) {
	return Answer(f, req, &progressorv1.CancelProcessResponse{Process: f.Process})
}

// SuspendProcess answers the request.
func (f *Engine) SuspendProcess(
	_ context.Context, req *progressorv1.SuspendProcessRequest,
) (*progressorv1.SuspendProcessResponse, error) {
	return Answer(f, req, &progressorv1.SuspendProcessResponse{Process: f.Process})
}

// ResumeProcess answers the request.
func (f *Engine) ResumeProcess(
	_ context.Context, req *progressorv1.ResumeProcessRequest,
) (*progressorv1.ResumeProcessResponse, error) {
	return Answer(f, req, &progressorv1.ResumeProcessResponse{Process: f.Process})
}

// CountProcesses answers the request.
func (f *Engine) CountProcesses(
	_ context.Context, req *progressorv1.CountProcessesRequest,
) (*progressorv1.CountProcessesResponse, error) {
	resp, _ := f.Insight.(*progressorv1.CountProcessesResponse)
	return Answer(f, req, resp)
}

// GetNamespaceHealth answers the request.
func (f *Engine) GetNamespaceHealth(
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
	return Answer(f, req, &progressorv1.GetNamespaceHealthResponse{Namespaces: []*progressorv1.NamespaceHealth{health}})
}

// WatchChanges sends one response per stream, so that the client must continue from its cursor.
// After the last one, it rejects the cursor of a stream that does not stop.
func (f *Engine) WatchChanges(
	_ context.Context, req *progressorv1.WatchChangesRequest,
	s *connect.ServerStream[progressorv1.WatchChangesResponse],
) error {
	f.Last = req
	if len(f.Changes) == 0 && !req.GetStop() {
		return EngineError(connect.CodeInvalidArgument, "cursor: must be the cursor of a previous response",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "cursor"})
	}
	if len(f.Changes) == 0 {
		return nil
	}
	next := f.Changes[0]
	f.Changes = f.Changes[1:]
	if err := s.Send(next); err != nil || len(f.Changes) == 0 {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("the node is stopping"))
}

// PutSink answers the request.
func (f *Engine) PutSink(
	_ context.Context, req *progressorv1.PutSinkRequest,
) (*progressorv1.PutSinkResponse, error) {
	return Answer(f, req, &progressorv1.PutSinkResponse{Sink: f.Sink})
}

// GetSink answers the request.
func (f *Engine) GetSink(
	_ context.Context, req *progressorv1.GetSinkRequest,
) (*progressorv1.GetSinkResponse, error) {
	return Answer(f, req, &progressorv1.GetSinkResponse{Sink: f.Sink})
}

// PauseSink answers the request.
func (f *Engine) PauseSink(
	_ context.Context, req *progressorv1.PauseSinkRequest,
) (*progressorv1.PauseSinkResponse, error) {
	return Answer(f, req, &progressorv1.PauseSinkResponse{Sink: f.Sink})
}

// ResumeSink answers the request.
func (f *Engine) ResumeSink(
	_ context.Context, req *progressorv1.ResumeSinkRequest,
) (*progressorv1.ResumeSinkResponse, error) {
	return Answer(f, req, &progressorv1.ResumeSinkResponse{Sink: f.Sink})
}

// RewindSink answers the request.
func (f *Engine) RewindSink(
	_ context.Context, req *progressorv1.RewindSinkRequest,
) (*progressorv1.RewindSinkResponse, error) {
	return Answer(f, req, &progressorv1.RewindSinkResponse{Sink: f.Sink})
}

// ListSinks answers the request.
func (f *Engine) ListSinks(
	_ context.Context, req *progressorv1.ListSinksRequest,
) (*progressorv1.ListSinksResponse, error) {
	return Answer(f, req, &progressorv1.ListSinksResponse{Sinks: []*progressorv1.Sink{f.Sink}, NextPageToken: "next"})
}

// DeleteSink answers the request.
func (f *Engine) DeleteSink(
	_ context.Context, req *progressorv1.DeleteSinkRequest,
) (*progressorv1.DeleteSinkResponse, error) {
	return Answer(f, req, &progressorv1.DeleteSinkResponse{})
}
