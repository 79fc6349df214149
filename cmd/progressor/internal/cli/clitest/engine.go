package clitest

import (
	"cmp"
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

// Engine is a fake engine. It records the last request and returns preset responses, which contain
// the fields below.
type Engine struct {
	services

	Err       error // error of the next requests
	Last      any   // the last request
	Process   *progressorv1.Process
	Namespace *progressorv1.Namespace
	Pages     []*progressorv1.ListProcessesResponse
	Tasks     []*progressorv1.Task
	Updates   []*progressorv1.WatchProcessResponse
	Insight   any // the response of InsightService
	Bulks     []*progressorv1.Bulk
	Cron      *progressorv1.Cron
	Fires     []*progressorv1.Fire
	Changes   []*progressorv1.WatchChangesResponse
	Sink      *progressorv1.Sink
	// Retries are the responses to successive retries of dead letters. The last one is repeated.
	Retries     []*progressorv1.RetrySinkDeadLettersResponse
	Jobs        []*progressorv1.Job // the states that a job goes through
	Batches     []int               // sizes of the batches that were enqueued
	RejectBatch int                 // number of the batch that is rejected, counted from 1
}

// services implements all methods of the API. Engine answers most requests in intercept, before
// they reach a method.
type services struct {
	progressorv1connect.UnimplementedProcessServiceHandler
	progressorv1connect.UnimplementedNamespaceServiceHandler
	progressorv1connect.UnimplementedInsightServiceHandler
	progressorv1connect.UnimplementedBulkServiceHandler
	progressorv1connect.UnimplementedCronServiceHandler
	progressorv1connect.UnimplementedChangeServiceHandler
	progressorv1connect.UnimplementedAccessServiceHandler
	progressorv1connect.UnimplementedJobServiceHandler
	progressorv1connect.UnimplementedJobEventServiceHandler
	progressorv1connect.UnimplementedWorkerServiceHandler
}

// Serve returns a program whose engine is f.
func Serve(t *testing.T, commands func(string) any, f *Engine) Program {
	t.Helper()
	mux := http.NewServeMux()
	intercept := connect.WithInterceptors(connect.UnaryInterceptorFunc(f.intercept))
	mux.Handle(progressorv1connect.NewProcessServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewNamespaceServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewInsightServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewBulkServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewCronServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewChangeServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewAccessServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewJobServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewJobEventServiceHandler(f, intercept))
	mux.Handle(progressorv1connect.NewWorkerServiceHandler(f, intercept))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Program{Commands: commands, Env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}

// intercept records a request and returns its preset response, or the error of f. A request
// without a preset response is passed on to its method.
func (f *Engine) intercept(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		m := request.Any()
		response := cmp.Or(f.processResponse(m), f.commandResponse(m), f.cronResponse(m), f.sinkResponse(m),
			f.jobResponse(m))
		if response == nil {
			return next(ctx, request)
		}
		f.Last = m
		if f.Err != nil {
			return nil, f.Err
		}
		return response, nil
	}
}

// Answer records a request and returns its response, or the error of f.
func Answer[T any](f *Engine, req any, resp *T) (*T, error) {
	f.Last = req
	if f.Err != nil {
		return nil, f.Err
	}
	return resp, nil
}

// EngineError returns an error in the form in which the engine sends it.
func EngineError(code connect.Code, message string, detail *progressorv1.ErrorDetail) error {
	err := connect.NewError(code, errors.New(message))
	d, detailErr := connect.NewErrorDetail(detail)
	if detailErr != nil {
		panic(detailErr)
	}
	err.AddDetail(d)
	return err
}

func (f *Engine) processResponse(request any) connect.AnyResponse {
	switch r := request.(type) {
	case *progressorv1.StartRequest:
		return connect.NewResponse(&progressorv1.StartResponse{ProcessId: "p-1", TaskId: 1, Response: r.GetArgs()})
	case *progressorv1.CallRequest:
		return connect.NewResponse(&progressorv1.CallResponse{TaskId: 2, Response: r.GetArgs()})
	case *progressorv1.RepairRequest:
		return connect.NewResponse(&progressorv1.RepairResponse{TaskId: 3})
	case *progressorv1.AwaitTaskRequest:
		resp := &progressorv1.AwaitTaskResponse{}
		if len(f.Tasks) > 0 {
			resp.Task = f.Tasks[0]
		}
		return connect.NewResponse(resp)
	case *progressorv1.GetProcessRequest:
		return connect.NewResponse(&progressorv1.GetProcessResponse{Process: f.Process})
	case *progressorv1.ListProcessesRequest:
		page := 0
		if r.GetPageToken() != "" {
			page = 1
		}
		if page >= len(f.Pages) {
			return connect.NewResponse(&progressorv1.ListProcessesResponse{})
		}
		return connect.NewResponse(f.Pages[page])
	case *progressorv1.TraceProcessRequest:
		return connect.NewResponse(&progressorv1.TraceProcessResponse{Tasks: f.Tasks})
	case *progressorv1.PutProcessRequest:
		return connect.NewResponse(&progressorv1.PutProcessResponse{Process: f.Process})
	case *progressorv1.ExplainProcessRequest:
		resp, _ := f.Insight.(*progressorv1.ExplainProcessResponse)
		return connect.NewResponse(resp)
	case *progressorv1.CountProcessesRequest:
		resp, _ := f.Insight.(*progressorv1.CountProcessesResponse)
		return connect.NewResponse(resp)
	case *progressorv1.ListErrorsRequest:
		resp, _ := f.Insight.(*progressorv1.ListErrorsResponse)
		return connect.NewResponse(resp)
	}
	return nil
}

// commandResponse returns the response of a command for processes, bulks or a namespace.
func (f *Engine) commandResponse(request any) connect.AnyResponse {
	switch r := request.(type) {
	case *progressorv1.GetNamespaceRequest:
		if f.Namespace != nil {
			return connect.NewResponse(&progressorv1.GetNamespaceResponse{Namespace: f.Namespace})
		}
	case *progressorv1.CancelProcessRequest:
		return connect.NewResponse(&progressorv1.CancelProcessResponse{Process: f.Process})
	case *progressorv1.SuspendProcessRequest:
		return connect.NewResponse(&progressorv1.SuspendProcessResponse{Process: f.Process})
	case *progressorv1.ResumeProcessRequest:
		return connect.NewResponse(&progressorv1.ResumeProcessResponse{Process: f.Process})
	case *progressorv1.RemoveProcessRequest:
		return connect.NewResponse(&progressorv1.RemoveProcessResponse{})
	case *progressorv1.EraseProcessRequest:
		return connect.NewResponse(&progressorv1.EraseProcessResponse{Rows: map[string]int64{"answers": 2}, Read: 7})
	case *progressorv1.StartBulkRequest:
		return connect.NewResponse(&progressorv1.StartBulkResponse{Bulk: f.Bulks[0]})
	case *progressorv1.GetBulkRequest:
		return connect.NewResponse(&progressorv1.GetBulkResponse{Bulk: next(&f.Bulks)})
	case *progressorv1.ListBulksRequest:
		return connect.NewResponse(&progressorv1.ListBulksResponse{Bulks: f.Bulks, NextPageToken: "demo:more"})
	case *progressorv1.CancelBulkRequest:
		return connect.NewResponse(&progressorv1.CancelBulkResponse{Bulk: f.Bulks[0]})
	case *progressorv1.PutNamespaceRequest:
		return connect.NewResponse(&progressorv1.PutNamespaceResponse{Namespace: r.GetNamespace()})
	case *progressorv1.PauseNamespaceRequest:
		ns := &progressorv1.Namespace{Namespace: r.GetNamespace(), Paused: true}
		return connect.NewResponse(&progressorv1.PauseNamespaceResponse{Namespace: ns})
	case *progressorv1.DeleteNamespaceRequest:
		return connect.NewResponse(&progressorv1.DeleteNamespaceResponse{
			Namespace: &progressorv1.Namespace{Namespace: r.GetNamespace()},
			Counts: []*progressorv1.DataCount{
				{Kind: "processes", Status: "RUNNING", Count: 1234},
				{Kind: "waiting_tasks", Count: 1_000_000, OrMore: true},
			},
		})
	}
	return nil
}

// next returns the first value, and removes it unless it is the last one.
func next[T any](values *[]T) T {
	first := (*values)[0]
	if len(*values) > 1 {
		*values = (*values)[1:]
	}
	return first
}

func (f *Engine) cronResponse(request any) connect.AnyResponse {
	switch r := request.(type) {
	case *progressorv1.CreateCronRequest:
		return connect.NewResponse(&progressorv1.CreateCronResponse{Cron: r.GetCron()})
	case *progressorv1.UpdateCronRequest:
		return connect.NewResponse(&progressorv1.UpdateCronResponse{Cron: r.GetCron()})
	case *progressorv1.GetCronRequest:
		return connect.NewResponse(&progressorv1.GetCronResponse{Cron: f.Cron})
	case *progressorv1.ListCronsRequest:
		return connect.NewResponse(
			&progressorv1.ListCronsResponse{Crons: []*progressorv1.Cron{f.Cron}, NextPageToken: "next"})
	case *progressorv1.ListNextCronsRequest:
		return connect.NewResponse(&progressorv1.ListNextCronsResponse{Crons: []*progressorv1.Cron{f.Cron}})
	case *progressorv1.ResumeCronRequest:
		return connect.NewResponse(&progressorv1.ResumeCronResponse{Cron: f.Cron})
	case *progressorv1.TriggerCronRequest:
		return connect.NewResponse(&progressorv1.TriggerCronResponse{Fire: f.Fires[0]})
	case *progressorv1.CancelFireRequest:
		return connect.NewResponse(&progressorv1.CancelFireResponse{Fire: f.Fires[0]})
	case *progressorv1.RerunFireRequest:
		return connect.NewResponse(&progressorv1.RerunFireResponse{Fire: f.Fires[0]})
	case *progressorv1.StopBackfillsRequest:
		return connect.NewResponse(&progressorv1.StopBackfillsResponse{Backfills: 2})
	case *progressorv1.BackfillCronRequest:
		return connect.NewResponse(&progressorv1.BackfillCronResponse{Fires: 1234})
	case *progressorv1.PreviewCronRequest: // a fire time each minute
		resp := &progressorv1.PreviewCronResponse{}
		for t := r.GetFromTime().AsTime(); t.Before(r.GetToTime().AsTime()) &&
			len(resp.GetFireTimes()) < int(r.GetLimit()); t = t.Add(time.Minute) {
			resp.FireTimes = append(resp.FireTimes, timestamppb.New(t))
		}
		return connect.NewResponse(resp)
	case *progressorv1.ListFiresRequest:
		return connect.NewResponse(&progressorv1.ListFiresResponse{Fires: f.Fires})
	}
	return nil
}

func (f *Engine) sinkResponse(request any) connect.AnyResponse {
	switch request.(type) {
	case *progressorv1.PutSinkRequest:
		return connect.NewResponse(&progressorv1.PutSinkResponse{Sink: f.Sink})
	case *progressorv1.GetSinkRequest:
		return connect.NewResponse(&progressorv1.GetSinkResponse{Sink: f.Sink})
	case *progressorv1.ExplainSinkRequest:
		resp, _ := f.Insight.(*progressorv1.ExplainSinkResponse)
		return connect.NewResponse(resp)
	case *progressorv1.PauseSinkRequest:
		return connect.NewResponse(&progressorv1.PauseSinkResponse{Sink: f.Sink})
	case *progressorv1.ResumeSinkRequest:
		return connect.NewResponse(&progressorv1.ResumeSinkResponse{Sink: f.Sink})
	case *progressorv1.RewindSinkRequest:
		return connect.NewResponse(&progressorv1.RewindSinkResponse{Sink: f.Sink})
	case *progressorv1.RetrySinkDeadLettersRequest:
		resp := f.Retries[0]
		f.Retries = f.Retries[min(1, len(f.Retries)-1):]
		return connect.NewResponse(resp)
	case *progressorv1.ListSinksRequest:
		return connect.NewResponse(
			&progressorv1.ListSinksResponse{Sinks: []*progressorv1.Sink{f.Sink}, NextPageToken: "next"})
	case *progressorv1.DeleteSinkRequest:
		return connect.NewResponse(&progressorv1.DeleteSinkResponse{})
	}
	return nil
}

// WatchProcess sends Updates. Then it ends the stream, with Err if it is set.
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

// GetNamespaceHealth returns a namespace that is DOWN if its name is down, or DEGRADED otherwise.
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
// After the last response, it rejects the cursor of a stream that does not stop.
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
