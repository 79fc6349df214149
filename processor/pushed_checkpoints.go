package processor

import (
	"cmp"
	"context"

	"github.com/progressor-engine/progressor/internal/checkpoints"
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
	c := &checkpoints.Attempt{
		Context: ctx, Token: req.GetCheckpointToken(), LastEventID: req.GetProcess().GetLastEventId(),
		Check: CheckCheckpoint, Encode: p.payloads.Encode, Send: p.engine.SendCheckpoint,
		EncodeError: func(err error) error { return Fail(ReasonError, "encode the checkpoint: %w", err) },
	}
	resp, err := p.processor.Process(WithCheckpointer(ctx, c), req)
	stored, unknown := c.End()
	switch {
	case unknown != nil:
		return nil, Fail(process.ReasonUnavailable, "the attempt cannot end with a result: checkpoint: %w", unknown)
	case err != nil || resp == nil:
		return resp, err
	}
	return &progressorv1.ProcessResponse{Outcome: resp.GetOutcome(), LastEventId: cmp.Or(stored, c.LastEventID)}, nil
}
