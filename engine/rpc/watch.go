package rpc

import (
	"context"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// WatchProcess streams the events and the changes of status of a process.
func (s *processes) WatchProcess(
	ctx context.Context, r *progressorv1.WatchProcessRequest,
	stream *connect.ServerStream[progressorv1.WatchProcessResponse],
) error {
	return s.engine.WatchProcess(ctx, keyOf(r), r.GetAfterEventId(), stream.Send)
}
