package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// MaxPausedNames is the maximum number of paused job names of a namespace.
const MaxPausedNames = 100

// PausedName is a job name that is paused.
type PausedName = dbsqlc.ListPausedJobsRow

// PauseName pauses a job name, or changes the reason of a paused one. The error is
// process.ErrNamespaceNotFound if there is no such namespace, process.ErrNamespaceDeleting if it is
// being deleted, and a *process.InvalidError if MaxPausedNames other names are paused.
func PauseName(
	ctx context.Context, s *storage.Store, namespace, name, reason string, by []process.Actor,
) (PausedName, error) {
	var row dbsqlc.PauseJobsRow
	var refused error
	// RunLocked locks no process, because the transaction locks the namespace.
	err := s.RunLocked(ctx, "pause jobs", nil, func(ctx context.Context, db storage.DB) (err error) {
		q := dbsqlc.New()
		deleting, err := q.LockNamespace(ctx, db, namespace)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			refused = fmt.Errorf("namespace %q: %w", namespace, process.ErrNamespaceNotFound)
			return refused
		case err != nil:
			return err
		case deleting:
			refused = fmt.Errorf("namespace %q: %w", namespace, process.ErrNamespaceDeleting)
			return refused
		}
		actor := ""
		if len(by) > 0 {
			actor = by[0].Name
		}
		row, err = q.PauseJobs(ctx, db, dbsqlc.PauseJobsParams{
			Namespace: namespace, Name: name, Reason: reason, Actor: actor, Most: MaxPausedNames,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			refused = &process.InvalidError{
				Field:   "name",
				Message: fmt.Sprintf("a namespace has at most %d paused job names: resume one first", MaxPausedNames),
			}
			return refused
		}
		if err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, "PauseJobs", namespace, name, by)
	})
	if refused != nil {
		return PausedName{}, refused
	}
	return PausedName(row), err
}

// ResumeName resumes a job name. It reports whether the name was paused.
func ResumeName(
	ctx context.Context, s *storage.Store, namespace, name string, by []process.Actor,
) (paused bool, err error) {
	err = s.RunLocked(ctx, "resume jobs", nil, func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().ResumeJobs(ctx, db, dbsqlc.ResumeJobsParams{Namespace: namespace, Name: name})
		if paused = n > 0; err != nil || !paused {
			return err
		}
		return storage.AuditCommand(ctx, db, "ResumeJobs", namespace, name, by)
	})
	return paused, err
}

// ListPausedNames returns the paused job names of a namespace, sorted.
func ListPausedNames(ctx context.Context, s *storage.Store, namespace string) ([]PausedName, error) {
	return storage.Query(ctx, s.ReadOne, "list paused jobs", dbsqlc.New().ListPausedJobs, namespace)
}

// paused returns the paused names of a transaction as an argument of statements, which must not be
// NULL.
func (t *ConstraintTx) paused() []string { return append([]string{}, t.Paused...) }

// returnedJobs is the maximum number of jobs of paused names that one transaction puts back.
const returnedJobs = 1000

// ReturnPaused puts jobs of paused names that have their keys, and that no worker has taken, back
// into their key queues. It returns the key queues whose keys it has freed.
func (t *ConstraintTx) ReturnPaused() ([]string, error) {
	if len(t.Paused) == 0 {
		return nil, nil
	}
	return t.q.ReturnPausedJobs(t.ctx, t.db, dbsqlc.ReturnPausedJobsParams{
		Namespace: t.Namespace, Names: t.Paused, Lim: returnedJobs,
	})
}
