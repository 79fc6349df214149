package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/checkpoints"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// newCheckpoints returns the processor.Checkpointer of the attempt.
func (h *heldLease) newCheckpoints() *checkpoints.Attempt {
	return &checkpoints.Attempt{
		Context: h.ctx, Token: h.lease.GetLeaseToken(),
		LastEventID: h.lease.GetRequest().GetProcess().GetLastEventId(),
		Check:       processor.CheckCheckpoint, Encode: h.run.client.payloads.Encode, Send: h.sendCheckpoint,
		EncodeError: func(err error) error {
			return processor.Fail(processor.ReasonError, "encode the checkpoint: %w", err)
		},
	}
}

// sendCheckpoint sends a checkpoint until the engine has stored or refused it, or the attempt has
// ended.
func (h *heldLease) sendCheckpoint(
	ctx context.Context, req *progressorv1.CheckpointRequest,
) (*progressorv1.CheckpointResponse, error) {
	over := h.localTime(h.lease.GetRequest().GetDeadline())
	resp, err := h.run.client.sendCheckpoint(ctx, req, func() bool {
		return h.isLost() || h.isExpired() || time.Now().After(over)
	})
	switch {
	case err == nil:
		resp.Yield = resp.GetYield() || h.run.polling.Err() != nil
	case h.isLost() && errors.Is(err, process.ErrUnavailable): // a heartbeat has reported the loss
		return nil, fmt.Errorf("%w: %w", process.ErrFenced, ErrLeaseLost)
	case errors.Is(err, ErrLeaseLost):
		h.lose()
	}
	return resp, err
}

// SendCheckpoint implements processor.CheckpointSender.
func (c *Client) SendCheckpoint(
	ctx context.Context, req *progressorv1.CheckpointRequest,
) (*progressorv1.CheckpointResponse, error) {
	return c.sendCheckpoint(ctx, req, func() bool { return false })
}

// sendCheckpoint sends a checkpoint until the engine has stored or refused it, ctx ends, or isOver
// returns true. If a request is sent again, the engine stores it once. The error is
// process.ErrFenced if the engine has ended the attempt, and process.ErrUnavailable if it is
// unknown whether the checkpoint is stored.
func (c *Client) sendCheckpoint(
	ctx context.Context, req *progressorv1.CheckpointRequest, isOver func() bool,
) (*progressorv1.CheckpointResponse, error) {
	uncertain := false // true if an earlier request may be stored
	for attempt := 1; ; attempt++ {
		limit, cancel := context.WithTimeout(ctx, requestTimeout)
		resp, err := c.Worker.Checkpoint(limit, req)
		cancel()
		switch {
		case err == nil:
			return resp, nil
		case Reason(err) == progressorv1.ErrorDetail_REASON_LEASE_LOST:
			return nil, fmt.Errorf("%w: %w", process.ErrFenced, ErrLeaseLost)
		case connect.CodeOf(err) == connect.CodeUnimplemented && !uncertain: // an older engine
			return nil, processor.ErrNoCheckpoints
		case isFinal(err):
			if uncertain {
				return nil, fmt.Errorf("%w: %w", process.ErrUnavailable, err)
			}
			return nil, err
		default:
			uncertain = uncertain || Reason(err) != progressorv1.ErrorDetail_REASON_OVERLOADED
		}
		if !isOver() {
			sleep(ctx, answerRetry.interval(attempt, rand.Float64()))
		}
		if ctx.Err() != nil || isOver() {
			return nil, fmt.Errorf("%w: %w", process.ErrUnavailable, err)
		}
	}
}

// isFinal reports whether err means that the engine has refused a checkpoint. The request then
// stored nothing.
func isFinal(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return false
	default:
		return isRefused(err) || Detail(err) != nil && Reason(err) != progressorv1.ErrorDetail_REASON_OVERLOADED
	}
}

// lose records that the engine has ended the attempt, and cancels the handler.
func (h *heldLease) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
	h.cancel(ErrLeaseLost)
}

func (h *heldLease) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

func (h *heldLease) isExpired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().After(h.expires)
}
