package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// command is what an operator's item brings back: what it met, and the status of the process after it.
type command struct {
	outcome PrepareOutcome
	status  process.Status
}

// The outcomes of an operator's order, beside NotFound and Refused.
const (
	changed   PrepareOutcome = "changed"
	same      PrepareOutcome = "same" // it was as it was to be already
	requested PrepareOutcome = "requested"
	cancelled PrepareOutcome = "cancelled"
)

// refused is the error of an order of which nothing was stored.
func (o command) refused(key process.Key, reason string) error {
	switch o.outcome {
	case NotFound:
		return process.ErrProcessNotFound
	case Refused:
		return &process.WrongStatusError{Key: key, Status: o.status, Reason: reason}
	}
	return nil
}

// suspendItem suspends a process, or resumes it.
type suspendItem struct {
	item
	command
	reason  string
	resumes bool
}

// SuspendProcess holds a process in INIT or RUNNING: what runs goes on to its end, what waits waits for the operator. One that is
// held already stays as it is. The error is process.ErrProcessNotFound or a *process.WrongStatusError.
func (s *Store) SuspendProcess(key process.Key, reason string, by ...process.Actor) error {
	it := &suspendItem{item: newItem(key, 100+len(reason), true), reason: reason}
	it.noted("SuspendProcess", reason, by)
	if err := s.submit(it); err != nil {
		return err
	}
	return it.refused(key, "only a process in INIT or RUNNING can be suspended")
}

// ResumeProcess lets a suspended process go on in the status that it had. What is next waits for a place, or for its time: the
// pollers must look. Of a process with many waiting tasks it moves these in batches first; until then the process stays
// SUSPENDED. The error is process.ErrProcessNotFound or a *process.WrongStatusError.
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
		return nil // the first try, whose answer was lost, may have brought it there
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
	return commandStages(s, items, func(ctx context.Context, db DB, arg dbsqlc.SuspendProcessesParams) ([]dbsqlc.ResumeProcessesRow, error) {
		return s.q.ResumeProcesses(ctx, db, dbsqlc.ResumeProcessesParams{
			Ords: arg.Ords, Namespaces: arg.Namespaces, ProcessIds: arg.ProcessIds, Actors: arg.Actors, Modes: arg.Modes, Lim: arg.Lim,
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

func commandStages[Row commandRow](s *Store, items []*suspendItem, run func(context.Context, DB, dbsqlc.SuspendProcessesParams) ([]Row, error)) []stage {
	if len(items) == 0 {
		return nil
	}
	var arg dbsqlc.SuspendProcessesParams
	for n, it := range items {
		arg.Ords = append(arg.Ords, int32(n))
		arg.Namespaces = append(arg.Namespaces, it.key.Namespace)
		arg.ProcessIds = append(arg.ProcessIds, it.key.ProcessID)
		arg.Reasons = append(arg.Reasons, it.reason)
		arg.Actors = append(arg.Actors, it.actor())
	}
	arg.Modes, arg.Lim = s.eventModes(arg.Namespaces), queueLimit(len(items))
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := run(ctx, db, arg)
		for _, row := range rows {
			r := dbsqlc.SuspendProcessesRow(row)
			items[r.Ord].command = command{outcome: PrepareOutcome(r.Outcome), status: r.Status}
		}
		return err
	}}
}
