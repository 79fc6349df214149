// Package checkpoints implements the checkpoints of attempts that run outside the engine.
package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Attempt is the processor.Checkpointer of one attempt. It sends the checkpoints to an engine. Some
// of its parts are functions, because package processor imports this package.
type Attempt struct {
	Context     context.Context // context of the attempt
	Token       string          // token of the lease or of the pushed attempt
	LastEventID int64           // last event of the process when the attempt began
	Check       func(*progressorv1.Result) error
	Encode      func(context.Context, proto.Message) (proto.Message, error)
	EncodeError func(error) error // returns the error of Checkpoint for an error of Encode
	// Send is described at processor.CheckpointSender.
	Send func(context.Context, *progressorv1.CheckpointRequest) (*progressorv1.CheckpointResponse, error)

	mu     sync.Mutex
	stored int64 // last event of the last checkpoint; 0 if there is none
	ended  bool
	// unknown is the reason why it is unknown whether the last checkpoint is stored, or nil if that
	// is known.
	unknown error
}

// Checkpoint implements processor.Checkpointer. It sends the checkpoint until the engine has stored
// or refused it, even if ctx ends in the meantime, but no longer than the attempt lasts.
func (a *Attempt) Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error) {
	if err := a.Check(r); err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return false, process.ErrFenced
	case a.unknown != nil:
		return false, fmt.Errorf("checkpoint: %w", a.unknown)
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	encoded, err := a.Encode(ctx, &progressorv1.CheckpointRequest{
		LeaseToken: a.Token, LastEventId: cmp.Or(a.stored, a.LastEventID),
		Events: r.GetEvents(), AuxState: r.AuxState, Metadata: r.GetMetadata(),
	})
	if err != nil {
		return false, a.EncodeError(err)
	}
	resp, err := a.Send(a.Context, encoded.(*progressorv1.CheckpointRequest))
	if errors.Is(err, process.ErrUnavailable) {
		a.unknown = err
	}
	if err != nil {
		return false, fmt.Errorf("checkpoint: %w", err)
	}
	a.stored = resp.GetLastEventId()
	return resp.GetYield(), nil
}

// End is called when the processor has returned. It returns the last event of the process after the
// checkpoints, or 0 if there are none. If unknown is not nil, the attempt must not have a result,
// because it is unknown whether its last checkpoint is stored.
func (a *Attempt) End() (lastEventID int64, unknown error) {
	a.mu.Lock() // waits for a checkpoint of a goroutine that the processor has left behind
	defer a.mu.Unlock()
	a.ended = true
	return a.stored, a.unknown
}
