package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// enqueueBy stores a job by a function, and wakes the pollers and workers that may run it.
func (q *Jobs) enqueueBy(
	ctx context.Context, j *storage.NewJob, store func(*storage.NewJob) (storage.Enqueued, error),
) (storage.Enqueued, error) {
	_, leave, err := q.engine.Enter(ctx, j.Key.Namespace)
	if err != nil {
		return storage.Enqueued{}, err
	}
	defer leave()
	j.Context = q.engine.KeepTrace(ctx, j.Key.ProcessID)
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
	q.wakeFor([]*storage.NewJob{j}, []storage.Enqueued{done})
	return done, nil
}

// enqueueAll stores all jobs or none.
func (q *Jobs) enqueueAll(ctx context.Context, jobs []*storage.NewJob) ([]storage.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	_, leave, err := q.engine.Enter(ctx, jobs[0].Key.Namespace)
	var overloaded *process.OverloadError
	if errors.As(err, &overloaded) || errors.Is(err, process.ErrDraining) {
		return nil, err
	}
	if err != nil {
		return nil, ofItem(0, jobs[0], err)
	}
	defer leave()
	for n, j := range jobs {
		if _, err := q.engine.NamespaceState(ctx, j.Key.Namespace); err != nil {
			return nil, ofItem(n, j, err)
		}
		j.Context = q.engine.KeepTrace(ctx, j.Key.ProcessID)
	}
	done, err := q.store.EnqueueBatch(ctx, jobs)
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
	q.wakeFor(jobs, done)
	return done, nil
}

func ofItem(n int, j *storage.NewJob, err error) error {
	return &process.ItemError{Field: fmt.Sprintf("jobs[%d]", n), Key: j.Key, Err: err}
}

// wakeFor wakes the pollers and workers that may run the stored jobs. For jobs that wait for a key,
// WakeForJobs is called later.
func (q *Jobs) wakeFor(jobs []*storage.NewJob, done []storage.Enqueued) {
	later, ready := map[string]bool{}, map[string]map[string]int{}
	for n, j := range jobs {
		name := j.Key.Namespace
		switch {
		case done[n].Outcome != storage.JobEnqueued || len(j.Constraints.Keys) > 0:
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
		q.engine.WakeForJobs(name, byName)
	}
	for name := range later {
		q.engine.AlarmTimers(name) // the next scan gets the delay by the database clock
	}
}
