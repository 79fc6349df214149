package storage

import (
	"context"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// EventMode is which events of its jobs a namespace keeps. Statements compare these values.
type EventMode int32

// The event modes.
const (
	EventsNone EventMode = iota
	EventsEnds           // events with which a job or a run ends
	EventsAll
)

// OnEventMode sets the function that returns the event mode of a namespace. Without it, all events
// are kept. It must not block.
func (s *Store) OnEventMode(mode func(namespace string) EventMode) { s.eventMode.Store(&mode) }

func (s *Store) eventModeOf(namespace string) EventMode {
	if mode := s.eventMode.Load(); mode != nil {
		return (*mode)(namespace)
	}
	return EventsAll
}

// EventModeOf returns the event mode of a namespace as statements take it.
func (s *Store) EventModeOf(namespace string) int32 { return int32(s.eventModeOf(namespace)) }

// EventModes returns the event modes of namespaces as statements take them.
func (s *Store) EventModes(namespaces []string) []int32 {
	modes := make([]int32, len(namespaces))
	for n, ns := range namespaces {
		if n > 0 && namespaces[n-1] == ns {
			modes[n] = modes[n-1]
			continue
		}
		modes[n] = int32(s.eventModeOf(ns))
	}
	return modes
}

// JobEnd is the event and the count of an attempt of a job.
type JobEnd struct {
	Name     string // name of the job; "" if unknown
	Type     string // type of the event, as listed in docs/jobs.md
	WorkerID string // the worker that held the lease; "" if a node ran the attempt
	Message  string
	Result   []byte // JSON of a succeeded job that keeps its result; an effect stores it
}

// endJobs collects the arguments of EndJobs.
type endJobs struct{ arg dbsqlc.EndJobsParams }

func (e *endJobs) add(c *Completion) {
	a := &e.arg
	a.Namespaces = append(a.Namespaces, c.Key.Namespace)
	a.ProcessIds = append(a.ProcessIds, c.Key.ProcessID)
	a.TaskIds = append(a.TaskIds, c.TaskID)
	a.FencingTokens = append(a.FencingTokens, c.FencingToken)
	a.Names = append(a.Names, c.Job.Name)
	a.Attempts = append(a.Attempts, c.Attempt)
	a.WorkerIds = append(a.WorkerIds, c.Job.WorkerID)
	a.Types = append(a.Types, c.Job.Type)
	a.Messages = append(a.Messages, c.Job.Message)
}

func (e *endJobs) stages(s *Store) []stage {
	if len(e.arg.Namespaces) == 0 {
		return nil
	}
	e.arg.Modes = s.EventModes(e.arg.Namespaces)
	return []stage{func(ctx context.Context, db DB) error { return s.q.EndJobs(ctx, db, e.arg) }}
}
