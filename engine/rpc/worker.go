package rpc

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// workerService serves WorkerService.
type workerService struct {
	progressorv1connect.UnimplementedWorkerServiceHandler
	engine *engine.Engine
}

// Poll leases tasks to a worker.
func (s *workerService) Poll(ctx context.Context, r *progressorv1.PollRequest) (*progressorv1.PollResponse, error) {
	leases, err := s.poll(ctx, r, r.GetWait().AsDuration())
	if err != nil {
		return nil, err
	}
	return &progressorv1.PollResponse{Leases: leases, Worker: progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE}, nil
}

func (s *workerService) poll(ctx context.Context, r *progressorv1.PollRequest, wait time.Duration) ([]*progressorv1.Lease, error) {
	return s.engine.Poll(ctx, engine.PollParams{
		Namespaces: r.GetNamespaces(), WorkerID: r.GetWorkerId(), JobNames: r.GetJobNames(), Max: int(max(r.GetMaxLeases(), 1)),
		Wait: wait, Lease: r.GetLeaseDuration().AsDuration(),
	})
}

// Heartbeat extends leases and tells what to do with each.
func (s *workerService) Heartbeat(ctx context.Context, r *progressorv1.HeartbeatRequest) (*progressorv1.HeartbeatResponse, error) {
	directives, err := s.engine.BeatLeases(ctx, r)
	if err != nil {
		return nil, err
	}
	return &progressorv1.HeartbeatResponse{Directives: directives, Worker: progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE}, nil
}

// Complete answers a lease.
func (s *workerService) Complete(ctx context.Context, r *progressorv1.CompleteRequest) (*progressorv1.CompleteResponse, error) {
	var a engine.LeaseAnswer
	switch answer := r.GetAnswer().(type) {
	case *progressorv1.CompleteRequest_Response:
		a.Response = answer.Response
	case *progressorv1.CompleteRequest_JobResult:
		a.Response = &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
			JobResult: answer.JobResult.GetResult(), Action: &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}},
		}}}
	case *progressorv1.CompleteRequest_Cancelled:
		message := answer.Cancelled.GetMessage()
		a.Acknowledged = &message
	default:
		return nil, &process.InvalidError{Field: "answer", Message: "one of response, job_result and cancelled is required"}
	}
	if err := s.engine.CompleteLease(ctx, r.GetLeaseToken(), a); err != nil || r.GetNext() == nil {
		return &progressorv1.CompleteResponse{}, err
	}
	leases, err := s.poll(ctx, r.GetNext(), r.GetNext().GetWait().AsDuration())
	if err != nil {
		return nil, err
	}
	return &progressorv1.CompleteResponse{Next: leases}, nil
}

// Release gives leases back unanswered.
func (s *workerService) Release(ctx context.Context, r *progressorv1.ReleaseRequest) (*progressorv1.ReleaseResponse, error) {
	if err := s.engine.ReleaseLeases(ctx, r.GetLeaseTokens()); err != nil {
		return nil, err
	}
	return &progressorv1.ReleaseResponse{}, nil
}
