package clitest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// Queue answers by a script and keeps the last request, as Engine does.
type Queue struct {
	progressorv1connect.UnimplementedJobServiceHandler
	progressorv1connect.UnimplementedWorkerServiceHandler
	progressorv1connect.UnimplementedJobEventServiceHandler

	Engine
	Jobs    []*progressorv1.Job // the states of a job, one after the other
	Batches []int               // sizes
	Refuse  int                 // the batch that is rejected, from 1
}

// Enqueue answers the request.
func (f *Queue) Enqueue(_ context.Context, r *progressorv1.EnqueueRequest) (*progressorv1.EnqueueResponse, error) {
	job := &progressorv1.Job{Namespace: r.GetNamespace(), JobId: r.GetJobId(), Name: r.GetName(),
		State: progressorv1.JobState_JOB_STATE_AVAILABLE}
	return Answer(&f.Engine, r, &progressorv1.EnqueueResponse{Job: job, Enqueued: true})
}

// EnqueueBatch answers the request.
func (f *Queue) EnqueueBatch(
	_ context.Context, r *progressorv1.EnqueueBatchRequest,
) (*progressorv1.EnqueueBatchResponse, error) {
	f.Batches = append(f.Batches, len(r.GetJobs()))
	if len(f.Batches) == f.Refuse {
		return nil, EngineError(connect.CodeInvalidArgument, "jobs[3].options.timeout: must be at most 365 days",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID,
				Field: "jobs[3].options.timeout"})
	}
	resp := &progressorv1.EnqueueBatchResponse{}
	for range r.GetJobs() {
		resp.Jobs = append(resp.Jobs, &progressorv1.EnqueueResponse{Enqueued: true})
	}
	return Answer(&f.Engine, r, resp)
}

// GetJob answers the request.
func (f *Queue) GetJob(_ context.Context, r *progressorv1.GetJobRequest) (*progressorv1.GetJobResponse, error) {
	job := f.Jobs[0]
	if len(f.Jobs) > 1 {
		f.Jobs = f.Jobs[1:]
	}
	return Answer(&f.Engine, r, &progressorv1.GetJobResponse{Job: job})
}

// ListJobs answers the request.
func (f *Queue) ListJobs(_ context.Context, r *progressorv1.ListJobsRequest) (*progressorv1.ListJobsResponse, error) {
	return Answer(&f.Engine, r, &progressorv1.ListJobsResponse{Jobs: f.Jobs, NextPageToken: "next"})
}

// FetchResult answers the request.
func (f *Queue) FetchResult(
	_ context.Context, r *progressorv1.FetchResultRequest,
) (*progressorv1.FetchResultResponse, error) {
	return Answer(&f.Engine, r, &progressorv1.FetchResultResponse{State: progressorv1.JobState_JOB_STATE_RUNNING})
}

// UpdateJob answers the request.
func (f *Queue) UpdateJob(
	_ context.Context, r *progressorv1.UpdateJobRequest,
) (*progressorv1.UpdateJobResponse, error) {
	return Answer(&f.Engine, r, &progressorv1.UpdateJobResponse{Job: &progressorv1.Job{}})
}

// CancelJob answers the request.
func (f *Queue) CancelJob(
	_ context.Context, r *progressorv1.CancelJobRequest,
) (*progressorv1.CancelJobResponse, error) {
	return Answer(&f.Engine, r, &progressorv1.CancelJobResponse{Job: &progressorv1.Job{}})
}

// StopWorker answers the request.
func (f *Queue) StopWorker(
	_ context.Context, r *progressorv1.StopWorkerRequest,
) (*progressorv1.StopWorkerResponse, error) {
	w := &progressorv1.Worker{WorkerId: r.GetWorkerId(), Namespaces: []string{"mail", "media"}, Leases: 3,
		Directive: r.GetDirective()}
	return Answer(&f.Engine, r, &progressorv1.StopWorkerResponse{Worker: w})
}

// GetQueueStats answers the request.
func (f *Queue) GetQueueStats(
	_ context.Context, r *progressorv1.GetQueueStatsRequest,
) (*progressorv1.GetQueueStatsResponse, error) {
	counts := map[string]int64{"available": 7, "cancel_requested": 1, "failed": 2}
	return Answer(&f.Engine, r, &progressorv1.GetQueueStatsResponse{
		CountByState: counts, Names: []*progressorv1.JobNameStats{{Name: "send", CountByState: counts}},
		OldestAvailableAge: durationpb.New(90 * time.Second),
	})
}

// becameOf contains the events that Queue returns.
var becameOf = []*progressorv1.JobEvent{
	{EventId: 2, JobId: "m-1", Type: "lease_lost", From: "running", To: "available", Attempt: 1, WorkerId: "host-1",
		Message: "silent"},
	{EventId: 1, JobId: "run-1", StepId: "pay", Index: new(int32), Type: "progress", Actor: "kim"},
}

// ListJobEvents answers the request.
func (f *Queue) ListJobEvents(
	_ context.Context, r *progressorv1.ListJobEventsRequest,
) (*progressorv1.ListJobEventsResponse, error) {
	return Answer(&f.Engine, r, &progressorv1.ListJobEventsResponse{Events: becameOf, NextPageToken: "next"})
}

// WatchJobEvents sends one event per stream, so that the client must continue from its cursor.
func (f *Queue) WatchJobEvents(
	_ context.Context, r *progressorv1.WatchJobEventsRequest,
	s *connect.ServerStream[progressorv1.WatchJobEventsResponse],
) error {
	f.Last = r
	switch r.GetCursor() {
	case "":
		return s.Send(&progressorv1.WatchJobEventsResponse{Cursor: "1.0"})
	case "1.0":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: becameOf[1], Cursor: "1.1"})
	case "1.1":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: becameOf[0], Cursor: "1.2"})
	}
	return EngineError(connect.CodeInvalidArgument, "cursor: must be a cursor of a previous response",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "cursor"})
}

// ServeQueue returns a program whose engine is f.
func ServeQueue(t *testing.T, commands func() any, f *Queue) Program {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewJobServiceHandler(f))
	mux.Handle(progressorv1connect.NewWorkerServiceHandler(f))
	mux.Handle(progressorv1connect.NewJobEventServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Program{Commands: commands, Env: map[string]string{"PROGRESSOR_ADDRESS": server.URL}}
}
