package checkpoints_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/internal/checkpoints"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// If the context of Checkpoint ends while the checkpoint is being sent, the request is not
// cancelled. Otherwise, the processor would not know whether the checkpoint is stored.
func TestSendOutlivesItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := &checkpoints.Attempt{
		Context: t.Context(), Check: func(*progressorv1.Result) error { return nil },
		Encode: func(_ context.Context, m proto.Message) (proto.Message, error) { return m, nil },
		Send: func(
			sending context.Context, _ *progressorv1.CheckpointRequest,
		) (*progressorv1.CheckpointResponse, error) {
			cancel()
			return &progressorv1.CheckpointResponse{LastEventId: 7}, sending.Err()
		},
	}
	if _, err := a.Checkpoint(ctx, &progressorv1.Result{}); err != nil {
		t.Error(err)
	}
	if last, unknown := a.End(); last != 7 || unknown != nil {
		t.Errorf("the last event is %d, want 7; %v", last, unknown)
	}
}
