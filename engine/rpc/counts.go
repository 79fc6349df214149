package rpc

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CountProcesses returns the number of processes in each status.
func (s *insights) CountProcesses(
	ctx context.Context, r *progressorv1.CountProcessesRequest,
) (*progressorv1.CountProcessesResponse, error) {
	if r.GetUsersOnly() {
		return s.insight.CountUserProcesses(ctx, r.GetNamespace())
	}
	counts, err := s.insight.CountProcesses(ctx, r.GetNamespace())
	return &progressorv1.CountProcessesResponse{CountByStatus: counts}, err
}
