package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// SuspendProcess holds a process in INIT or RUNNING until ResumeProcess: what runs goes on to its end, nothing else is handed out, and
// calls are refused. reason is shown as its detail.
func (e *Engine) SuspendProcess(ctx context.Context, key process.Key, reason string, by process.Actor) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error { return e.store.SuspendProcess(key, reason, by) })
}

// ResumeProcess lets a suspended process go on: with what waits for it, and with the timers that came due meanwhile.
func (e *Engine) ResumeProcess(ctx context.Context, key process.Key, by process.Actor) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error {
		err := e.store.ResumeProcess(key, by)
		if err == nil {
			e.wakeAll()
		}
		return err
	})
}

// RestartHistory begins a new history of a process, in any status. The process keeps its state, and the numbers of its events go on.
func (e *Engine) RestartHistory(ctx context.Context, key process.Key, by process.Actor) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error { return e.store.RestartHistory(key, by) })
}

// runCommand runs an operator's command on a process, and returns the process as it is then, without its history.
func (e *Engine) runCommand(ctx context.Context, key process.Key, give func() error) (*progressorv1.Process, error) {
	share := e.shareOf(key.Namespace)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	if _, err := e.namespace(ctx, key.Namespace); err != nil {
		return nil, err
	}
	if err := give(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	e.watchers.recheck(key)
	view, err := e.store.ViewProcess(ctx, key, storage.HistoryRange{})
	if errors.Is(err, process.ErrProcessNotFound) {
		// It was given, and the process has gone since.
		return &progressorv1.Process{Namespace: key.Namespace, ProcessId: key.ProcessID}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return wire.Process(&view.Process, nil, view.Timers, nil)
}
