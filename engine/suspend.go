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

// SuspendProcess suspends a process in INIT or RUNNING until ResumeProcess. A running task
// continues, no other task is handed out, and calls are rejected. The reason is shown as the detail
// of the process.
func (e *Engine) SuspendProcess(
	ctx context.Context, key process.Key, reason string, by process.Actor,
) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error { return e.store.SuspendProcess(key, reason, by) })
}

// ResumeProcess resumes a suspended process. Its waiting tasks run, and timers that came due in the
// meantime fire.
func (e *Engine) ResumeProcess(ctx context.Context, key process.Key, by process.Actor) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error {
		err := e.store.ResumeProcess(key, by)
		if err == nil {
			e.wakeAll()
		}
		return err
	})
}

// RestartHistory starts a new history of a process, in any status. The process keeps its state, and
// event IDs continue.
func (e *Engine) RestartHistory(ctx context.Context, key process.Key, by process.Actor) (*progressorv1.Process, error) {
	return e.runCommand(ctx, key, func() error { return e.store.RestartHistory(key, by) })
}

// runCommand runs an operator's command on a process and returns the resulting process without its
// history.
func (e *Engine) runCommand(ctx context.Context, key process.Key, execute func() error) (*progressorv1.Process, error) {
	share, err := e.enterReserved(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	defer e.leave(share)
	if err := execute(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	e.watchers.recheck(key)
	view, err := e.store.ViewProcess(ctx, key, storage.HistoryRange{})
	if errors.Is(err, process.ErrProcessNotFound) {
		// The command succeeded, but the process has been removed since then.
		return &progressorv1.Process{Namespace: key.Namespace, ProcessId: key.ProcessID}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return wire.Process(&view.Process, nil, view.Timers, nil)
}
