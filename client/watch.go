package client

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Watch calls update with the events of a process behind req.after_event_id, each once and in order, and with the process as it
// is at first and whenever its status has changed. Where the stream breaks, as when the node stops that serves it, Watch goes on
// behind the last event, with the tries of Retry anew for each break. It returns nil when the process is at its end or was removed, and what
// update returns where that is an error.
func (c *Client) Watch(ctx context.Context, req *progressorv1.WatchProcessRequest, update func(*progressorv1.WatchProcessResponse) error) error {
	w := &watch{client: c, req: proto.CloneOf(req), update: update}
	return c.stream(ctx, func() (progress, ended bool, err error) {
		progress, err = w.stream(ctx)
		switch {
		case err == nil || w.failed != nil:
			return progress, true, w.failed
		case w.seen != nil && ctx.Err() == nil && Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
			return progress, true, nil // it was removed meanwhile
		}
		return progress, false, err
	})
}

// stream reads one stream after the other, each where the one before broke off, with the tries of Retry anew whenever one has brought something. It
// returns the error of the one that ended it.
func (c *Client) stream(ctx context.Context, read func() (progress, ended bool, err error)) error {
	for attempt := 1; ; attempt++ {
		progress, ended, err := read()
		switch {
		case ended:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if progress {
			attempt = 1
		}
		if attempt >= c.retry.MaxAttempts || err != nil && !repeatable(err, true) && !broken(err) {
			return err
		}
		timer := time.NewTimer(c.retry.interval(attempt, rand.Float64()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// broken tells whether a stream ended in the middle: Connect has several codes for that.
func broken(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeInvalidArgument:
		return Detail(err) == nil // the engine's own errors have one
	default:
		return false
	}
}

// watch is one Watch, over all its streams.
type watch struct {
	client *Client
	req    *progressorv1.WatchProcessRequest
	update func(*progressorv1.WatchProcessResponse) error
	seen   *progressorv1.Process // as it was handed out last
	failed error                 // of update
}

// stream reads one stream to its end. progress: it has brought something.
func (w *watch) stream(ctx context.Context) (progress bool, err error) {
	stream, err := w.client.Process.WatchProcess(ctx, w.req)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }() // what it would tell Err has told
	for stream.Receive() {
		progress = true
		u := stream.Msg()
		if e := u.GetEvent(); e != nil {
			w.req.AfterEventId = e.GetEventId()
		} else if again := w.seen; again != nil && proto.Equal(again.GetStatusChangedTime(), u.GetProcess().GetStatusChangedTime()) {
			continue // every stream begins with the process as it is
		}
		if p := u.GetProcess(); p != nil {
			if w.seen != nil && !proto.Equal(w.seen.GetCreatedTime(), p.GetCreatedTime()) {
				return true, nil // it was removed meanwhile, and another one was started under its id
			}
			w.seen = p
		}
		if w.failed = w.update(u); w.failed != nil {
			return true, nil
		}
	}
	return progress, stream.Err()
}

// WatchJobEvents calls update with the events of jobs, runs and steps of a namespace that match req.filter, from req.cursor on (none: from now on), each
// once and in the order of their transactions, until ctx ends or update returns an error, which it returns. Where the stream breaks, as when the node
// stops that serves it, it goes on behind the last event, with the tries of Retry anew for each break.
func (c *Client) WatchJobEvents(ctx context.Context, req *progressorv1.WatchJobEventsRequest, update func(*progressorv1.WatchJobEventsResponse) error) error {
	req = proto.CloneOf(req)
	return c.stream(ctx, func() (progress, ended bool, err error) {
		stream, err := c.JobEvent.WatchJobEvents(ctx, req)
		if err != nil {
			return false, false, err
		}
		defer func() { _ = stream.Close() }() // what it would tell Err has told
		for stream.Receive() {
			progress = true
			u := stream.Msg()
			req.Cursor = u.GetCursor()
			if u.GetEvent() == nil {
				continue
			}
			if err := update(u); err != nil {
				return true, true, err
			}
		}
		return progress, false, stream.Err()
	})
}
