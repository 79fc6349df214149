package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/jobs"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobEventService serves JobEventService.
type jobEventService struct {
	jobs *jobs.Jobs
}

// ListJobEvents lists events of jobs, runs and steps.
func (s *jobEventService) ListJobEvents(
	ctx context.Context, r *progressorv1.ListJobEventsRequest,
) (*progressorv1.ListJobEventsResponse, error) {
	events, next, err := s.jobs.ListEvents(ctx, r)
	return &progressorv1.ListJobEventsResponse{Events: events, NextPageToken: next}, err
}

// WatchJobEvents streams the events of a namespace.
func (s *jobEventService) WatchJobEvents(
	ctx context.Context, r *progressorv1.WatchJobEventsRequest,
	stream *connect.ServerStream[progressorv1.WatchJobEventsResponse],
) error {
	return s.jobs.WatchEvents(ctx, r, stream.Send)
}
