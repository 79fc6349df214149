package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// WatchChanges calls update with the changes of a namespace. It delivers each change at least once
// and without gaps. The changes of a process arrive in order. Every response has a cursor from
// which a later call can continue. Some responses contain only the cursor. WatchChanges returns
// when ctx ends, when req.stop is set and the end is reached, or when update returns an error. In
// the last case, it returns that error. If the stream breaks, WatchChanges continues after the last
// response, as Watch does.
func (c *Client) WatchChanges(
	ctx context.Context, req *progressorv1.WatchChangesRequest,
	update func(*progressorv1.WatchChangesResponse) error,
) error {
	req = proto.CloneOf(req)
	return c.stream(ctx, func() (progress, ended bool, err error) {
		stream, err := c.Change.WatchChanges(ctx, req)
		if err != nil {
			return false, false, err
		}
		defer func() { _ = stream.Close() }() // Err has reported any error
		for stream.Receive() {
			progress = true
			if err := update(stream.Msg()); err != nil {
				return true, true, err
			}
			req.Cursor, req.FromTime = stream.Msg().GetCursor(), nil
		}
		return progress, req.GetStop() && stream.Err() == nil, stream.Err()
	})
}

// AwaitSinkRetries polls the dead letters that req selects at the given interval. When none of them
// waits to be delivered again, it returns those that the sink still has. It changes nothing,
// because req is sent as a dry run. req should select by change_ids, because a failed attempt
// changes the error and the time of a dead letter. It calls seen with every response. If seen
// returns an error, or if ctx ends first, AwaitSinkRetries returns that error.
func (c *Client) AwaitSinkRetries(
	ctx context.Context, req *progressorv1.RetrySinkDeadLettersRequest, every time.Duration,
	seen func(*progressorv1.RetrySinkDeadLettersResponse) error,
) (*progressorv1.RetrySinkDeadLettersResponse, error) {
	req = proto.CloneOf(req)
	req.DryRun = true
	for {
		resp, err := repeat(ctx, c.retry, true, func() (*progressorv1.RetrySinkDeadLettersResponse, error) {
			return c.Change.RetrySinkDeadLetters(ctx, req)
		})
		if err == nil {
			err = seen(resp)
		}
		if err != nil {
			return nil, err
		}
		waits := false
		for _, d := range resp.GetDeadLetters() {
			waits = waits || d.GetRetryTime() != nil
		}
		if !waits {
			return resp, nil
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
