package jobs

import (
	"errors"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// sweptKeys is the number of keys that one call of Tidy reads. 2,858 keys took 65 ms (by EXPLAIN
// ANALYZE), and other jobs of the namespace cannot be enqueued during the transaction.
const sweptKeys = 1000

// HeldKeys identifies a key that a job holds. Tidy continues after this key.
type HeldKeys struct{ processID, line string }

// Tidy frees keys of jobs that neither run nor wait for a slot, starting after a key. It returns
// the freed keys and where to continue. It also deletes full buckets, buckets of constraints
// without a rate, and reservations that no longer have an effect.
func (t *ConstraintTx) Tidy(after HeldKeys) (freed []string, next HeldKeys, err error) {
	unreserve := dbsqlc.ForgetReservationsParams{Namespace: t.Namespace, PausedNames: t.paused()}
	if err := errors.Join(t.q.ForgetBuckets(t.ctx, t.db, t.Namespace),
		t.q.ForgetReservations(t.ctx, t.db, unreserve)); err != nil {
		return nil, after, err
	}
	row, err := t.q.SweepHolds(t.ctx, t.db, dbsqlc.SweepHoldsParams{
		Namespace: t.Namespace, AfterProcess: after.processID, AfterLine: after.line, Lim: sweptKeys,
	})
	if row.Checked == sweptKeys {
		next = HeldKeys{row.LastProcess, row.LastLine}
	}
	return row.Freed, next, err
}

// Keys returns at most limit key queues with waiting jobs, beginning with the queue from.
func (t *ConstraintTx) Keys(from string, limit int32) ([]string, error) {
	return t.q.ListLines(t.ctx, t.db, dbsqlc.ListLinesParams{Namespace: t.Namespace, FromLine: from, Lim: limit})
}

// Unheld returns the running jobs that were claimed under an older version of the constraints, by
// process ID.
func (t *ConstraintTx) Unheld() (map[string]Subject, error) {
	rows, err := t.q.RunningUnheld(t.ctx, t.db, dbsqlc.RunningUnheldParams{Namespace: t.Namespace, Version: t.Version})
	all := make(map[string]Subject, len(rows))
	for _, r := range rows {
		all[r.ProcessID] = Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority}
	}
	return all, err
}

// sweepSpan is the number of waiting tasks that one part of a sweep reads.
const sweepSpan = 500

// Sweep continues the sweep over all waiting tasks by one span. It locks and returns the jobs in
// this span that were evaluated under an older version of the constraints. over is true if the
// sweep is complete.
func (t *ConstraintTx) Sweep() (stale []QueuedJob, over bool, err error) {
	span, err := t.q.SpanOfJobs(t.ctx, t.db, dbsqlc.SpanOfJobsParams{
		Namespace: t.Namespace, Version: t.Version, After: *t.Cursor, Lim: sweepSpan,
	})
	if err != nil {
		return nil, false, err
	}
	lock := dbsqlc.LockProcessesParams{}
	for _, r := range span {
		if r.Stale {
			lock.Append(dbsqlc.LockProcessesItem{
				Key: process.Key{Namespace: t.Namespace, ProcessID: r.ProcessID},
			})
		}
	}
	cursor := ""
	if over = len(span) < sweepSpan; !over {
		cursor = span[len(span)-1].ProcessID
	}
	if len(lock.ProcessIds) > 0 {
		if err := t.q.LockProcesses(t.ctx, t.db, lock); err != nil {
			return nil, false, err
		}
		rows, err := t.q.StaleJobs(t.ctx, t.db, dbsqlc.StaleJobsParams{
			Namespaces: lock.Namespaces, Version: t.Version, ProcessIds: lock.ProcessIds,
		})
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			stale = append(stale, QueuedJob{
				ProcessID: r.ProcessID, TaskID: r.TaskID, Stale: true, WaitsFor: r.WaitsFor,
				Subject: Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority},
			})
		}
		drop := dbsqlc.DropHoldsParams{}
		for n := range stale { // the job waits, so none of its keys is in use
			drop.Append(dbsqlc.DropHoldsItem{
				Key: process.Key{Namespace: t.Namespace, ProcessID: stale[n].ProcessID},
			})
		}
		if err := t.q.DropHolds(t.ctx, t.db, drop); err != nil {
			return nil, false, err
		}
	}
	return stale, over, t.q.MoveSweep(t.ctx, t.db, dbsqlc.MoveSweepParams{Namespace: t.Namespace, Cursor: cursor})
}

// SweepAgain starts another sweep.
func (t *ConstraintTx) SweepAgain() error {
	cursor := ""
	t.Cursor = &cursor
	return t.q.BeginSweep(t.ctx, t.db, t.Namespace)
}
