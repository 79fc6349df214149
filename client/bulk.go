package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// StartBulk starts a bulk. It sets an idempotency key as Start does, except for a dry run.
func (c *Client) StartBulk(
	ctx context.Context, req *progressorv1.StartBulkRequest,
) (*progressorv1.StartBulkResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" && !req.GetDryRun() {
		req = proto.CloneOf(req)
		req.IdempotencyKey = newKey()
	}
	safe := req.GetIdempotencyKey() != "" || req.GetDryRun()
	return repeat(ctx, c.retry, safe, func() (*progressorv1.StartBulkResponse, error) {
		return c.Bulk.StartBulk(ctx, req)
	})
}

// AwaitBulk polls a bulk at the given interval until it has ended or is in ERROR, and returns it.
// It calls seen with every response. If ctx ends first, AwaitBulk returns an error.
func (c *Client) AwaitBulk(
	ctx context.Context, req *progressorv1.GetBulkRequest, every time.Duration, seen func(*progressorv1.Bulk),
) (*progressorv1.Bulk, error) {
	for {
		resp, err := repeat(ctx, c.retry, true, func() (*progressorv1.GetBulkResponse, error) {
			return c.Bulk.GetBulk(ctx, req)
		})
		if err != nil {
			return nil, err
		}
		seen(resp.GetBulk())
		switch resp.GetBulk().GetStatus() {
		case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED, progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED,
			progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
			return resp.GetBulk(), nil
		default:
		}
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}
