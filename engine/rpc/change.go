package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/streams"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// changeService serves ChangeService.
type changeService struct {
	streams *streams.Streams
	sinks   *sinks.Sinks
}

// WatchChanges streams the changes of a namespace.
func (s *changeService) WatchChanges(
	ctx context.Context, r *progressorv1.WatchChangesRequest,
	stream *connect.ServerStream[progressorv1.WatchChangesResponse],
) error {
	return s.streams.Watch(ctx, r, stream.Send)
}

// PutSink creates a sink or replaces its settings.
func (s *changeService) PutSink(
	ctx context.Context, r *progressorv1.PutSinkRequest,
) (*progressorv1.PutSinkResponse, error) {
	m, err := s.sinks.Put(ctx, r, actorOf(ctx))
	return &progressorv1.PutSinkResponse{Sink: m}, err
}

// GetSink returns a sink with its newest dead letters.
func (s *changeService) GetSink(
	ctx context.Context, r *progressorv1.GetSinkRequest,
) (*progressorv1.GetSinkResponse, error) {
	m, err := s.sinks.Get(ctx, r)
	return &progressorv1.GetSinkResponse{Sink: m}, err
}

// ExplainSink reports why a sink does not deliver, and what would unblock it.
func (s *changeService) ExplainSink(
	ctx context.Context, r *progressorv1.ExplainSinkRequest,
) (*progressorv1.ExplainSinkResponse, error) {
	return s.sinks.Explain(ctx, r)
}

// PauseSink stops the deliveries of a sink.
func (s *changeService) PauseSink(
	ctx context.Context, r *progressorv1.PauseSinkRequest,
) (*progressorv1.PauseSinkResponse, error) {
	m, err := s.sinks.Pause(ctx, r, actorOf(ctx))
	return &progressorv1.PauseSinkResponse{Sink: m}, err
}

// ResumeSink makes a sink ACTIVE.
func (s *changeService) ResumeSink(
	ctx context.Context, r *progressorv1.ResumeSinkRequest,
) (*progressorv1.ResumeSinkResponse, error) {
	m, err := s.sinks.Resume(ctx, r, actorOf(ctx))
	return &progressorv1.ResumeSinkResponse{Sink: m}, err
}

// RewindSink moves the cursor of a sink to a time.
func (s *changeService) RewindSink(
	ctx context.Context, r *progressorv1.RewindSinkRequest,
) (*progressorv1.RewindSinkResponse, error) {
	m, err := s.sinks.Rewind(ctx, r, actorOf(ctx))
	return &progressorv1.RewindSinkResponse{Sink: m}, err
}

// RetrySinkDeadLetters marks dead letters of a sink to be delivered again.
func (s *changeService) RetrySinkDeadLetters(
	ctx context.Context, r *progressorv1.RetrySinkDeadLettersRequest,
) (*progressorv1.RetrySinkDeadLettersResponse, error) {
	return s.sinks.Retry(ctx, r, actorOf(ctx))
}

// ListSinks returns a page of the sinks of a namespace, or of all namespaces.
func (s *changeService) ListSinks(
	ctx context.Context, r *progressorv1.ListSinksRequest,
) (*progressorv1.ListSinksResponse, error) {
	list, next, err := s.sinks.List(ctx, r)
	return &progressorv1.ListSinksResponse{Sinks: list, NextPageToken: next}, err
}

// DeleteSink deletes a sink.
func (s *changeService) DeleteSink(
	ctx context.Context, r *progressorv1.DeleteSinkRequest,
) (*progressorv1.DeleteSinkResponse, error) {
	return &progressorv1.DeleteSinkResponse{}, s.sinks.Delete(ctx, r, actorOf(ctx))
}
