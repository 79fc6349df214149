package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// checkpoints is the processor.Checkpointer of one lease.
type checkpoints struct {
	held *heldLease

	mu          sync.Mutex
	lastEventID int64 // last event of the last checkpoint; 0 if there is none
	ended       bool
	// unknown is the reason why it is unknown whether the last checkpoint is stored, or nil if that
	// is known.
	unknown error
}

// Checkpoint implements processor.Checkpointer. It sends the checkpoint until the engine has stored
// or refused it, even if ctx ends in the meantime, but no longer than the lease lasts.
func (c *checkpoints) Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error) {
	if err := processor.CheckCheckpoint(r); err != nil {
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
	encoded, err := c.held.run.client.payloads.Encode(ctx, c.request(r))
	if err != nil {
		return false, processor.Fail(processor.ReasonError, "encode the checkpoint: %w", err)
	}
	resp, err := c.send(encoded.(*progressorv1.CheckpointRequest))
	if err != nil {
		return false, fmt.Errorf("checkpoint: %w", err)
	}
	c.lastEventID = resp.GetLastEventId()
	return resp.GetYield() || c.held.run.polling.Err() != nil, nil
}

func (c *checkpoints) request(r *progressorv1.Result) *progressorv1.CheckpointRequest {
	after := c.lastEventID
	if after == 0 {
		after = c.held.lease.GetRequest().GetProcess().GetLastEventId()
	}
	return &progressorv1.CheckpointRequest{
		LeaseToken: c.held.lease.GetLeaseToken(), LastEventId: after,
		Events: r.GetEvents(), AuxState: r.AuxState, Metadata: r.GetMetadata(),
	}
}

// send sends a checkpoint until the engine has stored or refused it, or the attempt has ended.
func (c *checkpoints) send(req *progressorv1.CheckpointRequest) (*progressorv1.CheckpointResponse, error) {
	h := c.held
	over := h.localTime(h.lease.GetRequest().GetDeadline())
	resp, err := h.run.client.sendCheckpoint(h.ctx, req, func() bool {
		return h.isLost() || h.isExpired() || time.Now().After(over)
	})
	switch {
	case errors.Is(err, ErrLeaseLost):
		h.lose()
	case h.isLost() && errors.Is(err, process.ErrUnavailable): // a heartbeat has reported it
		return nil, fmt.Errorf("%w: %w", process.ErrFenced, ErrLeaseLost)
	case errors.Is(err, process.ErrUnavailable):
		c.unknown = err
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

// end is called when the handler has returned. It returns the last event of the process after the
// checkpoints, or 0 if there are none. If unknown is not nil, the attempt cannot be answered,
// because it is unknown whether its last checkpoint is stored.
func (c *checkpoints) end() (lastEventID int64, unknown error) {
	c.mu.Lock() // waits for a checkpoint of a goroutine that the handler has left behind
	defer c.mu.Unlock()
	c.ended = true
	return c.lastEventID, c.unknown
}
