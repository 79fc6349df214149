package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CheckpointSender sends checkpoints to an engine. client.Client implements it.
type CheckpointSender interface {
	// SendCheckpoint sends a checkpoint until the engine has stored or refused it, or ctx ends. The
	// error is process.ErrFenced if the attempt has ended, ErrNoCheckpoints if the engine does not
	// know checkpoints, and process.ErrUnavailable if it is unknown whether the checkpoint is
	// stored. After any other error, it is not stored.
	SendCheckpoint(
		ctx context.Context, r *progressorv1.CheckpointRequest,
	) (*progressorv1.CheckpointResponse, error)
}

// WithCheckpoints lets the processor store checkpoints (see Checkpoint) of the tasks that the
// engine pushes to it. engine must be a client of the same engine, with the permission job.work in
// its namespaces. These need the setting connect.checkpoints.
func WithCheckpoints(engine CheckpointSender) Option {
	return func(o *options) { o.checkpoints = engine }
}

// pushed is a processor whose attempts store checkpoints if their requests have a token.
type pushed struct {
	processor Processor
	engine    CheckpointSender
	payloads  *codec.Payloads
}

func (p *pushed) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if req.GetCheckpointToken() == "" {
		return p.processor.Process(ctx, req)
	}
	c := &pushedCheckpoints{
		pushed: p, ctx: ctx, token: req.GetCheckpointToken(), lastEventID: req.GetProcess().GetLastEventId(),
	}
	resp, err := p.processor.Process(WithCheckpointer(ctx, c), req)
	lastEventID, unknown := c.end()
	switch {
	case unknown != nil:
		return nil, Fail(process.ReasonUnavailable, "the attempt cannot end with a result: %w", unknown)
	case err != nil || resp == nil:
		return resp, err
	}
	return &progressorv1.ProcessResponse{Outcome: resp.GetOutcome(), LastEventId: lastEventID}, nil
}

// pushedCheckpoints is the Checkpointer of one pushed attempt.
type pushedCheckpoints struct {
	*pushed
	ctx   context.Context // context of the attempt
	token string

	mu          sync.Mutex
	lastEventID int64 // last event of the process that the attempt knows
	ended       bool
	// unknown is the reason why it is unknown whether the last checkpoint is stored, or nil if that
	// is known.
	unknown error
}

// Checkpoint implements Checkpointer. Even if ctx ends, it sends the checkpoint until the attempt
// ends.
func (c *pushedCheckpoints) Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error) {
	if err := CheckCheckpoint(r); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return false, process.ErrFenced
	case c.unknown != nil:
		return false, c.unknown
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	encoded, err := c.payloads.Encode(ctx, &progressorv1.CheckpointRequest{
		LeaseToken: c.token, LastEventId: c.lastEventID,
		Events: r.GetEvents(), AuxState: r.AuxState, Metadata: r.GetMetadata(),
	})
	if err != nil {
		return false, Fail(ReasonError, "encode the checkpoint: %w", err)
	}
	resp, err := c.engine.SendCheckpoint(c.ctx, encoded.(*progressorv1.CheckpointRequest))
	if err != nil {
		err = fmt.Errorf("checkpoint: %w", err)
		if errors.Is(err, process.ErrUnavailable) {
			c.unknown = err
		}
		return false, err
	}
	c.lastEventID = resp.GetLastEventId()
	return resp.GetYield(), nil
}

// end is called when the processor has returned. It returns the last event of the process after the
// checkpoints. If unknown is not nil, the attempt must not have a result.
func (c *pushedCheckpoints) end() (lastEventID int64, unknown error) {
	c.mu.Lock() // waits for a checkpoint of a goroutine that the processor has left behind
	defer c.mu.Unlock()
	c.ended = true
	return c.lastEventID, c.unknown
}
