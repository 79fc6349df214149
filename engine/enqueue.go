package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Enqueue stores a job and wakes the pollers and workers that may run it.
func (e *Engine) Enqueue(ctx context.Context, j *storage.NewJob) (storage.Enqueued, error) {
	return e.EnqueueBy(ctx, j, e.store.Enqueue)
}

// EnqueueBy is Enqueue with another way to store the job.
func (e *Engine) EnqueueBy(
	ctx context.Context, j *storage.NewJob, store func(*storage.NewJob) (storage.Enqueued, error),
) (storage.Enqueued, error) {
	share, err := e.enter(ctx, j.Key.Namespace)
	if err != nil {
		return storage.Enqueued{}, err
	}
	defer e.leave(share)
	j.Context = e.traces.keep(ctx, j.Key.ProcessID, nil)
	done, err := store(j)
	if err != nil {
		return done, err
	}
	switch done.Outcome {
	case storage.JobExists:
		return done, fmt.Errorf("%s: %w", j.Key, process.ErrProcessExists)
	case storage.JobMismatched:
		return done, fmt.Errorf("key %q: %w", j.IdempotencyKey, process.ErrIdempotencyMismatch)
	}
	e.enqueued([]*storage.NewJob{j}, []storage.Enqueued{done})
	return done, nil
}

// EnqueueBatch stores all jobs or none.
func (e *Engine) EnqueueBatch(ctx context.Context, jobs []*storage.NewJob) ([]storage.Enqueued, error) {
	share := e.shareOf(firstNamespace(jobs))
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	for n, j := range jobs {
		if _, err := e.namespace(ctx, j.Key.Namespace); err != nil {
			return nil, ofItem(n, j, err)
		}
		j.Context = e.traces.keep(ctx, j.Key.ProcessID, nil)
	}
	done, err := e.store.EnqueueBatch(ctx, jobs)
	var refused *storage.EnqueueRefusedError
	if errors.As(err, &refused) {
		j := jobs[refused.Index]
		if refused.Outcome == storage.JobMismatched {
			return nil, ofItem(refused.Index, j, process.ErrIdempotencyMismatch)
		}
		return nil, ofItem(refused.Index, j, process.ErrProcessExists)
	}
	if err != nil {
		return nil, err
	}
	e.enqueued(jobs, done)
	return done, nil
}

func ofItem(n int, j *storage.NewJob, err error) error {
	return &process.ItemError{Field: fmt.Sprintf("jobs[%d]", n), Key: j.Key, Err: err}
}

// enqueued wakes the pollers and workers that may run the stored jobs.
func (e *Engine) enqueued(jobs []*storage.NewJob, done []storage.Enqueued) {
	all := e.registry.all()
	places, later := false, map[string]bool{}
	offers := map[subscription]int{}
	for n, j := range jobs {
		ns, ok := all[j.Key.Namespace]
		switch {
		// for jobs that wait for a key, WakeForJobs is called later
		case done[n].Outcome != storage.JobEnqueued || !ok || len(j.Constraints.Keys) > 0:
		case done[n].Later:
			later[j.Key.Namespace] = true
		case ns.pulled():
			offers[subscription{namespace: j.Key.Namespace, jobName: j.Name}]++
		default:
			places = true
		}
	}
	for l, n := range offers {
		e.pulls.offer(l.namespace, l.jobName, n)
	}
	if places {
		e.calls.wake()
	}
	for namespace := range later {
		e.timers.alarm(namespace, 0) // the next scan gets the delay by the database clock
	}
}

// CanHandOut reports whether this node may hand out tasks of a namespace: the namespace exists and
// is not paused, and the node is connected.
func (e *Engine) CanHandOut(namespace string) bool {
	ns, ok := e.registry.all()[namespace]
	return ok && !ns.paused && e.isConnected()
}

// WakeForJobs wakes the pollers and workers that may run jobs that now wait for a slot. byName maps
// job names to counts.
func (e *Engine) WakeForJobs(namespace string, byName map[string]int) {
	ns, ok := e.registry.all()[namespace]
	switch {
	case !ok || len(byName) == 0:
	case ns.pulled():
		for name, n := range byName {
			e.pulls.offer(namespace, name, n)
		}
	default:
		e.calls.wake()
	}
}

// ReportScanError counts and logs a failed scan of a kind.
func (e *Engine) ReportScanError(ctx context.Context, what string, err error) {
	e.scanFailed(ctx, what, err)
}

// IsPulled reports whether workers take the tasks of a namespace, even if it is paused. It returns
// true if the namespace cannot be read.
func (e *Engine) IsPulled(ctx context.Context, namespace string) bool {
	ns, err := e.namespace(ctx, namespace)
	return err != nil || ns.lease > 0
}

// AnnounceEnds notifies the waiters and watchers of processes that have ended, and delivers the
// messages that were stored for the processes in notified.
func (e *Engine) AnnounceEnds(ended, notified []process.Key) {
	for _, k := range ended {
		e.cancelled(k)
	}
	for _, k := range notified {
		e.pulls.believe(k.Namespace)
	}
	e.messages.deliver(notified)
}

// Retried wakes the pollers for jobs that wait again.
func (e *Engine) Retried() { e.wakeAll() }
