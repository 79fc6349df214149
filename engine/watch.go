package engine

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// WatchProcess sends the events of a process after the event `after`, each once and in order. It
// also sends the process, without history and timers. It does so once at the beginning, and again
// after each change of the status, following the events that were stored with the change. It
// returns nil when the process has ended or was removed, process.ErrProcessNotFound if the process
// does not exist at the beginning, and process.ErrUnavailable when the node drains.
func (e *Engine) WatchProcess(
	ctx context.Context, key process.Key, after int64, send func(*progressorv1.WatchProcessResponse) error,
) error {
	share, err := e.enterWaiting(ctx, key.Namespace)
	if err != nil {
		return err
	}
	defer e.leave(share)
	wt := e.watchers.register(key, after)
	defer e.watchers.forget(wt)
	for first := true; ; first = false {
		var n news
		select {
		case n = <-wt.news:
		case <-ctx.Done():
			return fmt.Errorf("watch %s: %w", key, ctx.Err())
		case <-e.drained:
			return errDraining
		}
		if n.gone && first {
			return fmt.Errorf("%s: %w", key, process.ErrProcessNotFound)
		}
		if ended, err := pass(n, send); ended || err != nil {
			return err
		}
		e.watchers.markReady(wt)
	}
}

// pass sends n. ended is true if no further news can follow.
func pass(n news, send func(*progressorv1.WatchProcessResponse) error) (ended bool, err error) {
	for _, event := range wire.Events(n.events) {
		if err := send(&progressorv1.WatchProcessResponse{
			Update: &progressorv1.WatchProcessResponse_Event{Event: event},
		}); err != nil {
			return false, err
		}
	}
	if n.process == nil {
		return n.gone, nil
	}
	p, err := wire.Process(n.process, nil, nil, nil)
	if err == nil {
		err = send(&progressorv1.WatchProcessResponse{Update: &progressorv1.WatchProcessResponse_Process{Process: p}})
	}
	return n.process.Status.Ended(), err
}
