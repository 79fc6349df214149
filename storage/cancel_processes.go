package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Cancel is a request to cancel a process.
type Cancel struct {
	Key    process.Key
	Reason string
	// Context is stored with the CANCEL task and carries the trace. It may be nil.
	Context []byte
	Grace   time.Duration // how long the process may take, from now, before EndOverdueCancel ends it
}

// CancelState is the state of a process after a cancel.
type CancelState struct {
	Ended bool // the process is CANCELLED: its running task is fenced, and its waiting tasks are cancelled
	Busy  bool // the process has not ended, and one of its tasks runs, so no poller needs to look for the CANCEL task
}

// graceExpired is the failure of a CANCEL task whose grace period is over.
const graceExpired = `{"reason": "` + process.ReasonGraceExpired + `", "message": "` + process.GraceExpiredMessage +
	`"}`

type cancelItem struct {
	item
	command
	reason  string
	context []byte
	grace   time.Duration
	overdue bool
	busy    bool
}

// CancelProcess requests the end of a process. A process in INIT or RUNNING gets a CANCEL task,
// which runs next. A process in ERROR or SUSPENDED ends at once. A job gets no CANCEL task: it ends
// at once if it waits. If it runs, the request is recorded for its worker. A second request does
// nothing while the first is in progress. The error is process.ErrProcessNotFound, or a
// *process.WrongStatusError if the process has already ended or is a FAILED job.
func (s *Store) CancelProcess(c Cancel, by ...process.Actor) (CancelState, error) {
	it := &cancelItem{
		item: newItem(c.Key, 200+len(c.Reason), true), reason: c.Reason, context: c.Context, grace: c.Grace,
	}
	it.noted("CancelProcess", c.Reason, by)
	if err := s.submit(it); err != nil {
		return CancelState{}, err
	}
	return CancelState{Ended: it.ended(), Busy: it.busy}, it.refused(c.Key, "it has already ended")
}

// ended reports whether this item cancelled the process, possibly with an earlier try whose
// response was lost.
func (it *cancelItem) ended() bool {
	if it.repeated && it.status == process.StatusCancelled {
		it.outcome = cancelled
	}
	return it.outcome == cancelled
}

// EndOverdueCancel cancels a process if its grace period is over by the database clock, and reports
// whether it did.
func (s *Store) EndOverdueCancel(key process.Key) (bool, error) {
	it := &cancelItem{item: newItem(key, 200, true), overdue: true}
	if err := s.submit(it); err != nil {
		return false, err
	}
	return it.ended(), nil
}

// ListOverdueCancels returns at most limit processes whose grace period is over, longest overdue
// first.
func (s *Store) ListOverdueCancels(ctx context.Context, limit int) ([]process.Key, error) {
	rows, err := s.q.ListOverdueCancels(ctx, s.kept, int32(limit))
	return keysOf(rows), mapped("list overdue cancels", err)
}

// CancelGrace returns the remaining grace period of a cancel, or 0 if the process is not being
// cancelled.
func (s *Store) CancelGrace(ctx context.Context, key process.Key) (time.Duration, error) {
	left, err := s.q.CancelGrace(ctx, s.general, dbsqlc.CancelGraceParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return max(microseconds(left), 0), mapped("cancel grace of "+key.String(), err)
}

func cancelStages(s *Store, items []*cancelItem) []stage {
	if len(items) == 0 {
		return nil
	}
	arg := dbsqlc.CancelProcessesParams{GraceExpired: []byte(graceExpired), Lim: queueLimit(len(items))}
	for n, it := range items {
		arg.Append(dbsqlc.CancelProcessesItem{
			Ord: int32(n), Key: it.key, Reason: it.reason, Context: it.context,
			GraceUs: it.grace.Microseconds(), Overdue: it.overdue, Actor: it.actor(),
			Mode: s.EventModeOf(it.key.Namespace),
		})
	}
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := s.q.CancelProcesses(ctx, db, arg)
		for _, r := range rows {
			it := items[r.Ord]
			it.command, it.busy = command{outcome: PrepareOutcome(r.Outcome), status: r.Status}, r.Busy
		}
		return err
	}}
}
