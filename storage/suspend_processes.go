package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// command is the result of an operator's command: its outcome, and the status of the process after
// it.
type command struct {
	outcome PrepareOutcome
	status  process.Status
}

// The outcomes of an operator's command, in addition to NotFound and Refused.
const (
	changed   PrepareOutcome = "changed"
	same      PrepareOutcome = "same" // the process was already in that state
	requested PrepareOutcome = "requested"
	cancelled PrepareOutcome = "cancelled"
)

// refused returns the error of a command that stored nothing, or nil.
func (o command) refused(key process.Key, reason string) error {
	switch o.outcome {
	case NotFound:
		return process.ErrProcessNotFound
	case Refused:
		return &process.WrongStatusError{Key: key, Status: o.status, Reason: reason}
	}
	return nil
}

// suspendItem suspends or resumes a process.
type suspendItem struct {
	item
	command
	reason  string
	resumes bool
}

// SuspendProcess suspends a process in INIT or RUNNING. A running task continues, and waiting tasks
// wait for the operator. If the process is already suspended, nothing changes. The error is
// process.ErrProcessNotFound or a *process.WrongStatusError.
func (s *Store) SuspendProcess(key process.Key, reason string, by ...process.Actor) error {
	it := &suspendItem{item: newItem(key, 100+len(reason), true), reason: reason}
	it.noted("SuspendProcess", reason, by)
	if err := s.submit(it); err != nil {
		return err
	}
	return it.refused(key, "only a process in INIT or RUNNING can be suspended")
}

// ResumeProcess resumes a suspended process in its previous status. Its next task waits for a slot
// or for its time, so the pollers must look. If many tasks wait in the process, they are moved in
// batches first, and the process stays SUSPENDED until then. If the process is RUNNING, nothing
// changes. The error is process.ErrProcessNotFound or a *process.WrongStatusError.
func (s *Store) ResumeProcess(key process.Key, by ...process.Actor) error {
	it, err := s.resume(key, by)
	for err == nil && it.outcome == Unsettled {
		if err = s.prepareResume(key); err == nil {
			it, err = s.resume(key, by)
		}
	}
	if err != nil {
		return err
	}
	if it.repeated && it.status == process.StatusInit {
		return nil // the first try, whose response was lost, may have resumed it
	}
	return it.refused(key, "only a process in SUSPENDED can be resumed")
}

func (s *Store) resume(key process.Key, by []process.Actor) (*suspendItem, error) {
	it := &suspendItem{item: newItem(key, 100, true), resumes: true}
	it.noted("ResumeProcess", "", by)
	return it, s.submit(it)
}

func suspendStages(s *Store, items []*suspendItem) []stage {
	return commandStages(s, items, s.q.SuspendProcesses)
}

func resumeStages(s *Store, items []*suspendItem) []stage {
	return commandStages(s, items,
		func(ctx context.Context, db DB, arg dbsqlc.SuspendProcessesParams) ([]dbsqlc.ResumeProcessesRow, error) {
			return s.q.ResumeProcesses(ctx, db, dbsqlc.ResumeProcessesParams{
				Ords: arg.Ords, Namespaces: arg.Namespaces, ProcessIds: arg.ProcessIds, Actors: arg.Actors,
				Modes: arg.Modes, Lim: arg.Lim,
			})
		})
}

type commandRow interface {
	~struct {
		Ord     int32
		Status  process.Status
		Outcome string
	}
}

func commandStages[Row commandRow](
	s *Store, items []*suspendItem, run func(context.Context, DB, dbsqlc.SuspendProcessesParams) ([]Row, error),
) []stage {
	if len(items) == 0 {
		return nil
	}
	arg := dbsqlc.SuspendProcessesParams{Lim: queueLimit(len(items))}
	for n, it := range items {
		arg.Append(dbsqlc.SuspendProcessesItem{
			Ord: int32(n), Key: it.key, Reason: it.reason, Actor: it.actor(),
			Mode: s.EventModeOf(it.key.Namespace),
		})
	}
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := run(ctx, db, arg)
		for _, row := range rows {
			r := dbsqlc.SuspendProcessesRow(row)
			items[r.Ord].command = command{outcome: PrepareOutcome(r.Outcome), status: r.Status}
		}
		return err
	}}
}
