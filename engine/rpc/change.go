package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/streams"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// changeService serves ChangeService.
type changeService struct {
	streams *streams.Streams
}

// WatchChanges streams the changes of a namespace.
func (s *changeService) WatchChanges(
	ctx context.Context, r *progressorv1.WatchChangesRequest,
	stream *connect.ServerStream[progressorv1.WatchChangesResponse],
) error {
	return s.streams.Watch(ctx, r, stream.Send)
}
