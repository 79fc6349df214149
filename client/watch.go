package client

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Watch calls update with the events of a process after req.after_event_id, exactly once and in
// order. It also calls update with the process itself, at the beginning and after each change of
// its status. If the stream breaks, for example because its node stops, Watch resumes after the
// last event. Each response resets the retry count. Watch returns nil when the process has ended or
// was removed. If update returns an error, Watch returns that error.
func (c *Client) Watch(
	ctx context.Context, req *progressorv1.WatchProcessRequest,
	update func(*progressorv1.WatchProcessResponse) error,
) error {
	w := &watch{client: c, req: proto.CloneOf(req), update: update}
	return c.stream(ctx, func() (progress, ended bool, err error) {
		progress, err = w.stream(ctx)
		switch {
		case err == nil || w.failed != nil:
			return progress, true, w.failed
		case w.seen != nil && ctx.Err() == nil && Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
			return progress, true, nil // removed in the meantime
		}
		return progress, false, err
	})
}

// stream calls read until it reports the end of the watch, until its error must not be retried, or
// until no retries are left. Each call of read opens a stream that continues where the previous one
// broke off. The count of retries is reset whenever a stream makes progress. stream returns the
// error of the last call, or that of ctx if ctx has ended.
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

// broken reports whether err may mean that the connection of a stream broke. Connect reports that
// with one of several codes.
func broken(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeInvalidArgument:
		return Detail(err) == nil // errors of the engine itself have a detail
	default:
		return false
	}
}

// watch is one call of Watch, across all its streams.
type watch struct {
	client *Client
	req    *progressorv1.WatchProcessRequest
	update func(*progressorv1.WatchProcessResponse) error
	seen   *progressorv1.Process // state that was last passed to update
	failed error                 // returned by update
}

// stream reads one stream to its end. progress is true if it received at least one message.
func (w *watch) stream(ctx context.Context) (progress bool, err error) {
	stream, err := w.client.Process.WatchProcess(ctx, w.req)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }() // Err has reported any error
	for stream.Receive() {
		progress = true
		u := stream.Msg()
		if e := u.GetEvent(); e != nil {
			w.req.AfterEventId = e.GetEventId()
		} else if w.seen != nil &&
			proto.Equal(w.seen.GetStatusChangedTime(), u.GetProcess().GetStatusChangedTime()) {
			continue // every stream begins with the current process
		}
		if p := u.GetProcess(); p != nil {
			if w.seen != nil && !proto.Equal(w.seen.GetCreatedTime(), p.GetCreatedTime()) {
				return true, nil // removed, and started again with the same ID
			}
			w.seen = p
		}
		if w.failed = w.update(u); w.failed != nil {
			return true, nil
		}
	}
	return progress, stream.Err()
}

// WatchJobEvents calls update with the events of jobs, runs and steps of a namespace that match
// req.filter, each exactly once. The events of a job arrive in order. The first event is the one
// after req.cursor, or the next one that is written if the cursor is empty. If the stream breaks,
// WatchJobEvents resumes after the last event, as Watch does. If update returns an error,
// WatchJobEvents returns that error. Otherwise, it returns when ctx ends, when an error cannot be
// retried, or when no retries are left.
func (c *Client) WatchJobEvents(
	ctx context.Context, req *progressorv1.WatchJobEventsRequest,
	update func(*progressorv1.WatchJobEventsResponse) error,
) error {
	req = proto.CloneOf(req)
	return c.stream(ctx, func() (progress, ended bool, err error) {
		stream, err := c.JobEvent.WatchJobEvents(ctx, req)
		if err != nil {
			return false, false, err
		}
		defer func() { _ = stream.Close() }() // Err has reported any error
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
