package pull

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

// defaultShownLeases is the maximum number of leases that GetWorker returns by default.
const defaultShownLeases = 100

// GetWorker returns a worker of a namespace and its leases there. It returns
// process.ErrWorkerNotFound if the worker was not seen there within a day.
func (s *Server) GetWorker(
	ctx context.Context, r *progressorv1.GetWorkerRequest,
) (*progressorv1.GetWorkerResponse, error) {
	w, err := s.Worker(ctx, r.GetNamespace(), r.GetWorkerId())
	if err != nil {
		return nil, err
	}
	limit := defaultShownLeases
	if r.GetMaxLeases() > 0 {
		limit = int(r.GetMaxLeases())
	}
	rows, err := pull.WorkerLeases(ctx, s.store, pull.WorkerKey{
		Namespace: r.GetNamespace(), WorkerID: r.GetWorkerId(),
	}, limit+1)
	if err != nil {
		return nil, err
	}
	resp := &progressorv1.GetWorkerResponse{Worker: w, MoreLeases: len(rows) > limit}
	for n := range rows[:min(len(rows), limit)] {
		resp.Leases = append(resp.Leases, leaseMessage(&rows[n]))
	}
	return resp, nil
}

func leaseMessage(l *pull.WorkerLease) *progressorv1.HeldLease {
	m := &progressorv1.HeldLease{
		ProcessId: l.ProcessID, TaskId: l.TaskID, TaskType: wire.TaskType(l.TaskType), JobName: l.JobName,
		Attempt: l.Attempt, LeasedTime: timestamppb.New(l.LeasedTime), HeartbeatTime: wire.Timestamp(l.BeatTime),
		ExpiresTime: timestamppb.New(l.ExpiresTime), Deadline: timestamppb.New(l.Deadline),
	}
	if l.Reported {
		m.Progress = &progressorv1.Progress{Percent: l.Percent, Summary: l.Summary}
	}
	return m
}
