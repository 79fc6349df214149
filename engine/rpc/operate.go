package rpc

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CancelProcess requests the end of a process and returns when the request is stored.
func (s *processes) CancelProcess(
	ctx context.Context, r *progressorv1.CancelProcessRequest,
) (*progressorv1.CancelProcessResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	p := engine.CancelParams{Key: key, Reason: r.GetReason(), Actor: actorOf(ctx)}
	if r.GetGrace() != nil {
		grace := r.GetGrace().AsDuration()
		p.Grace = &grace
	}
	cancelled, err := s.engine.CancelProcess(ctx, p)
	return &progressorv1.CancelProcessResponse{Process: cancelled}, err
}

// SuspendProcess suspends a process until ResumeProcess.
func (s *processes) SuspendProcess(
	ctx context.Context, r *progressorv1.SuspendProcessRequest,
) (*progressorv1.SuspendProcessResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.SuspendProcess(ctx, key, r.GetReason(), actorOf(ctx))
	return &progressorv1.SuspendProcessResponse{Process: p}, err
}

// RestartHistory starts a new history of a process.
func (s *processes) RestartHistory(
	ctx context.Context, r *progressorv1.RestartHistoryRequest,
) (*progressorv1.RestartHistoryResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.RestartHistory(ctx, key, actorOf(ctx))
	return &progressorv1.RestartHistoryResponse{Process: p}, err
}

// ResumeProcess resumes a suspended process.
func (s *processes) ResumeProcess(
	ctx context.Context, r *progressorv1.ResumeProcessRequest,
) (*progressorv1.ResumeProcessResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.ResumeProcess(ctx, key, actorOf(ctx))
	return &progressorv1.ResumeProcessResponse{Process: p}, err
}
