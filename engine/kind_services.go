package engine

import (
	"context"

	"github.com/progressor-engine/progressor/process"
)

// The methods in this file are for kinds.

// CanHandOut reports whether this node may hand out tasks of a namespace: the namespace exists and
// is neither paused nor being deleted, and the node is connected.
func (e *Engine) CanHandOut(namespace string) bool {
	ns, ok := e.registry.all()[namespace]
	return ok && !ns.paused && !ns.deletion.requested() && e.isConnected()
}

// WakeByName wakes the pollers and workers that may run tasks that now wait for a slot. byName is
// the number of these tasks by the name of their process (see Kind.Describe).
func (e *Engine) WakeByName(namespace string, byName map[string]int) {
	ns, ok := e.registry.all()[namespace]
	switch {
	case !ok || len(byName) == 0:
	case ns.pulled():
		for name, n := range byName {
			e.workers.Offer(namespace, name, n)
		}
	default:
		e.calls.wake()
	}
}

// ReportScanError counts and logs a failed scan of a kind.
func (e *Engine) ReportScanError(ctx context.Context, what string, err error) {
	e.scanFailed(ctx, what, err)
}

// IsPulled reports whether workers take the tasks of a namespace. A pause does not change this. It
// returns true if the namespace cannot be read.
func (e *Engine) IsPulled(ctx context.Context, namespace string) bool {
	ns, err := e.namespace(ctx, namespace)
	return err != nil || ns.lease > 0
}

// AnnounceEnds cancels the attempts of processes that have ended, and notifies their waiters and
// watchers. It also delivers the messages that were stored for the processes in notified.
func (e *Engine) AnnounceEnds(ended, notified []process.Key) {
	for _, k := range ended {
		e.afterCancel(k)
	}
	for _, k := range notified {
		e.workers.ExpectGroups(k.Namespace)
	}
	e.messages.deliver(notified)
}

// KeepTrace returns the trace context to store with a new process of a kind. It is the span of the
// request if process.KeepsTrace returns true for the process, and otherwise nil.
func (e *Engine) KeepTrace(ctx context.Context, processID string) []byte {
	return e.traces.keep(ctx, processID, nil)
}

// AlarmTimers makes the timer poller scan a namespace now. The scan also reads when the next timer
// is due.
func (e *Engine) AlarmTimers(namespace string) { e.timers.alarm(namespace, 0) }

// WakePollers wakes all pollers. It is called after tasks were released.
func (e *Engine) WakePollers() { e.wakeAll() }
