package jobs

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// PauseName pauses the jobs of one name. by is the caller, if known.
func (q *Jobs) PauseName(
	ctx context.Context, namespace, name, reason string, by ...process.Actor,
) (*progressorv1.PausedJobs, error) {
	row, err := jobs.PauseName(ctx, q.store, namespace, name, reason, by)
	if err != nil {
		return nil, err
	}
	q.engine.SetNamePaused(namespace, name, true)
	q.admission.checkAll(namespace) // jobs of other names get the keys of constraints that the paused jobs hold
	return pausedMessage(&row), nil
}

// ResumeName resumes the jobs of one name, and wakes the workers that poll. It reports whether the
// name was paused.
func (q *Jobs) ResumeName(ctx context.Context, namespace, name string, by ...process.Actor) (bool, error) {
	if _, err := q.engine.GetNamespace(ctx, namespace); err != nil {
		return false, err
	}
	paused, err := jobs.ResumeName(ctx, q.store, namespace, name, by)
	if err != nil {
		return false, err
	}
	q.engine.SetNamePaused(namespace, name, false)
	q.admission.checkAll(namespace)
	return paused, nil
}

// ListPausedNames returns the paused job names of a namespace, by name.
func (q *Jobs) ListPausedNames(ctx context.Context, namespace string) ([]*progressorv1.PausedJobs, error) {
	if _, err := q.engine.GetNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	rows, err := jobs.ListPausedNames(ctx, q.store, namespace)
	list := make([]*progressorv1.PausedJobs, len(rows))
	for n := range rows {
		list[n] = pausedMessage(&rows[n])
	}
	return list, err
}

func pausedMessage(r *jobs.PausedName) *progressorv1.PausedJobs {
	return &progressorv1.PausedJobs{
		Namespace: r.Namespace, Name: r.Name, Reason: r.Reason, Actor: r.Actor,
		PausedTime: timestamppb.New(r.PausedTime),
	}
}

// pausedName returns the pause of a job name, or nil if it is not paused.
func (q *Jobs) pausedName(ctx context.Context, namespace, name string) (*jobs.PausedName, error) {
	if !q.engine.IsNamePaused(namespace, name) {
		return nil, nil
	}
	rows, err := jobs.ListPausedNames(ctx, q.store, namespace)
	for n := range rows {
		if rows[n].Name == name {
			return &rows[n], err
		}
	}
	return nil, err
}

// explainPause returns the pause of a job's name for the explanation of the job, or nil if the name
// is not paused.
func (q *Jobs) explainPause(ctx context.Context, r *jobs.Row) (*explain.Pause, error) {
	p, err := q.pausedName(ctx, r.Namespace, r.Name)
	if err != nil || p == nil {
		return nil, err
	}
	return &explain.Pause{Reason: p.Reason, By: p.Actor, Since: p.PausedTime}, nil
}
