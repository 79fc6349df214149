package clitest

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func (f *Engine) jobResponse(request any) connect.AnyResponse {
	switch r := request.(type) {
	case *progressorv1.EnqueueRequest:
		job := &progressorv1.Job{Namespace: r.GetNamespace(), JobId: r.GetJobId(), Name: r.GetName(),
			State: progressorv1.JobState_JOB_STATE_AVAILABLE}
		return connect.NewResponse(&progressorv1.EnqueueResponse{Job: job, Enqueued: true})
	case *progressorv1.GetJobRequest:
		return connect.NewResponse(&progressorv1.GetJobResponse{Job: next(&f.Jobs)})
	case *progressorv1.ListJobsRequest:
		return connect.NewResponse(&progressorv1.ListJobsResponse{Jobs: f.Jobs, NextPageToken: "next"})
	case *progressorv1.FetchResultRequest:
		return connect.NewResponse(
			&progressorv1.FetchResultResponse{State: progressorv1.JobState_JOB_STATE_RUNNING})
	case *progressorv1.UpdateJobRequest:
		return connect.NewResponse(&progressorv1.UpdateJobResponse{Job: &progressorv1.Job{}})
	case *progressorv1.CancelJobRequest:
		return connect.NewResponse(&progressorv1.CancelJobResponse{Job: &progressorv1.Job{}})
	case *progressorv1.StopWorkerRequest:
		w := &progressorv1.Worker{WorkerId: r.GetWorkerId(), Namespaces: []string{"mail", "media"}, Leases: 3,
			Directive: r.GetDirective(), Owner: "keys:mailer"}
		return connect.NewResponse(&progressorv1.StopWorkerResponse{Worker: w})
	case *progressorv1.GetWorkerRequest:
		at := timestamppb.New(time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC))
		return connect.NewResponse(&progressorv1.GetWorkerResponse{
			Worker: &progressorv1.Worker{WorkerId: r.GetWorkerId(), Namespaces: []string{"mail"}, Leases: 2},
			Leases: []*progressorv1.HeldLease{
				{ProcessId: "mail-1", JobName: "send", Attempt: 2, LeasedTime: at, ExpiresTime: at,
					Progress: &progressorv1.Progress{Percent: 42, Summary: "page 4"}},
				{ProcessId: "order-7", TaskType: progressorv1.TaskType_TASK_TYPE_CALL, Attempt: 1, LeasedTime: at,
					ExpiresTime: at},
			},
			MoreLeases: true,
		})
	case *progressorv1.GetQueueStatsRequest:
		counts := map[string]int64{"available": 7, "cancel_requested": 1, "failed": 2}
		return connect.NewResponse(&progressorv1.GetQueueStatsResponse{
			CountByState: counts, Names: []*progressorv1.JobNameStats{{Name: "send", CountByState: counts}},
			OldestAvailableAge: durationpb.New(90 * time.Second),
		})
	case *progressorv1.ListJobEventsRequest:
		return connect.NewResponse(&progressorv1.ListJobEventsResponse{Events: jobEvents, NextPageToken: "next"})
	}
	return nil
}

// EnqueueBatch accepts all jobs, except those of the batch with the number RejectBatch.
func (f *Engine) EnqueueBatch(
	_ context.Context, r *progressorv1.EnqueueBatchRequest,
) (*progressorv1.EnqueueBatchResponse, error) {
	f.Batches = append(f.Batches, len(r.GetJobs()))
	if len(f.Batches) == f.RejectBatch {
		return nil, EngineError(connect.CodeInvalidArgument, "jobs[3].options.timeout: must be at most 365 days",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID,
				Field: "jobs[3].options.timeout"})
	}
	resp := &progressorv1.EnqueueBatchResponse{}
	for range r.GetJobs() {
		resp.Jobs = append(resp.Jobs, &progressorv1.EnqueueResponse{Enqueued: true})
	}
	return Answer(f, r, resp)
}

// jobEvents are the events of jobs that Engine returns.
var jobEvents = []*progressorv1.JobEvent{
	{EventId: 2, JobId: "m-1", Type: "lease_lost", From: "running", To: "available", Attempt: 1, WorkerId: "host-1",
		Message: "silent"},
	{EventId: 1, JobId: "run-1", StepId: "pay", Index: new(int32), Type: "progress", Actor: "kim"},
}

// WatchJobEvents sends one event per stream, so that the client must continue from its cursor.
func (f *Engine) WatchJobEvents(
	_ context.Context, r *progressorv1.WatchJobEventsRequest,
	s *connect.ServerStream[progressorv1.WatchJobEventsResponse],
) error {
	f.Last = r
	switch r.GetCursor() {
	case "":
		return s.Send(&progressorv1.WatchJobEventsResponse{Cursor: "1.0"})
	case "1.0":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: jobEvents[1], Cursor: "1.1"})
	case "1.1":
		return s.Send(&progressorv1.WatchJobEventsResponse{Event: jobEvents[0], Cursor: "1.2"})
	}
	return EngineError(connect.CodeInvalidArgument, "cursor: must be a cursor of a previous response",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "cursor"})
}
