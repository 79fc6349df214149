package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// enqueueBy stores a job by calling store, and wakes the pollers and workers that may run it.
func (q *Jobs) enqueueBy(
	ctx context.Context, j *jobs.NewJob, store func(*jobs.NewJob) (jobs.Enqueued, error),
) (jobs.Enqueued, error) {
	_, leave, err := q.engine.Enter(ctx, j.Key.Namespace)
	if err != nil {
		return jobs.Enqueued{}, err
	}
	defer leave()
	j.Context = q.engine.KeepTrace(ctx, j.Key.ProcessID)
	done, err := store(j)
	if err != nil {
		return done, err
	}
	switch done.Outcome {
	case jobs.JobExists:
		return done, fmt.Errorf("%s: %w", j.Key, process.ErrProcessExists)
	case jobs.JobMismatched:
		return done, fmt.Errorf("key %q: %w", j.IdempotencyKey, process.ErrIdempotencyMismatch)
	}
	q.wakeFor([]*jobs.NewJob{j}, []jobs.Enqueued{done})
	return done, nil
}

// enqueueOne stores a job. The job runs at once if this node may run it and has an idle slot.
func (q *Jobs) enqueueOne(ctx context.Context, j *jobs.NewJob) (done jobs.Enqueued, err error) {
	if !j.MayCapture() {
		return jobs.Enqueue(q.store, j)
	}
	captured, err := q.engine.CaptureNew(ctx, j.Key.Namespace, func() (*storage.Claim, error) {
		done, err = jobs.EnqueueCaptured(q.store, j)
		return done.Claim, err
	})
	if !captured {
		return jobs.Enqueue(q.store, j)
	}
	return done, err
}

// enqueueAll stores either all jobs or none.
func (q *Jobs) enqueueAll(ctx context.Context, all []*jobs.NewJob) ([]jobs.Enqueued, error) {
	if len(all) == 0 {
		return nil, nil
	}
	_, leave, err := q.engine.Enter(ctx, all[0].Key.Namespace)
	var overloaded *process.OverloadError
	if errors.As(err, &overloaded) || errors.Is(err, process.ErrDraining) {
		return nil, err
	}
	if err != nil {
		return nil, ofItem(0, all[0], err)
	}
	defer leave()
	for n, j := range all {
		if _, err := q.engine.NamespaceState(ctx, j.Key.Namespace); err != nil {
			return nil, ofItem(n, j, err)
		}
		j.Context = q.engine.KeepTrace(ctx, j.Key.ProcessID)
	}
	done, err := jobs.EnqueueBatch(ctx, q.store, all)
	var refused *jobs.EnqueueRefusedError
	if errors.As(err, &refused) {
		j := all[refused.Index]
		if refused.Outcome == jobs.JobMismatched {
			return nil, ofItem(refused.Index, j, process.ErrIdempotencyMismatch)
		}
		return nil, ofItem(refused.Index, j, process.ErrProcessExists)
	}
	if err != nil {
		return nil, err
	}
	q.wakeFor(all, done)
	return done, nil
}

func ofItem(n int, j *jobs.NewJob, err error) error {
	return &process.ItemError{Field: fmt.Sprintf("jobs[%d]", n), Key: j.Key, Err: err}
}

// wakeFor wakes the pollers and workers that may run the stored jobs. It skips jobs that wait for
// keys of constraints. WakeByName is called when such jobs get their keys.
func (q *Jobs) wakeFor(all []*jobs.NewJob, done []jobs.Enqueued) {
	later, ready := map[string]bool{}, map[string]map[string]int{}
	for n, j := range all {
		name := j.Key.Namespace
		switch {
		case done[n].Outcome != jobs.JobEnqueued || done[n].Claim != nil || len(j.Constraints.Keys) > 0:
		case done[n].Later:
			later[name] = true
		default:
			if ready[name] == nil {
				ready[name] = map[string]int{}
			}
			ready[name][j.Name]++
		}
	}
	for name, byName := range ready {
		q.engine.WakeByName(name, byName)
	}
	for name := range later {
		q.engine.AlarmTimers(name) // the next scan reads the delays, which depend on the clock of the database
	}
}
