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

// JobEvent is a row of job_events: an event of a job, a run or a step. As an effect it belongs to
// the process of its result. In the Effects of a Completion it is stored if the result applies. In
// EffectsOnEnd it is stored for any outcome, except for an attempt that this node repeats at once
// (Retry with Promote and without RetryAfter), because that leaves no row with its token. Events
// that the namespace does not keep are not stored. The events of a Completion are stored in their
// order.
type JobEvent struct {
	JobID    string // "" means the process
	StepID   string // "" for the job or run itself
	Index    *int32 // only for a step that runs once per item
	Type     string // as listed in docs/jobs.md
	From, To string // statuses in lower case, or ""
	Message  string
	Metadata []byte // JSON object, or nil
	Attempt  int32
	WorkerID string
	Actor    string // who requested it; "" for the engine
	EndsJob  bool   // the job or run ends with it, so that EventsEnds keeps it
}

const jobEventBatch = "WriteJobEvents"

// Bytes implements Effect.
func (e *JobEvent) Bytes() int {
	return 300 + len(e.JobID) + len(e.StepID) + len(e.Message) + len(e.Metadata) + len(e.WorkerID) + len(e.Actor)
}

// Batch implements Effect.
func (*JobEvent) Batch() string { return jobEventBatch }

// Write implements Effect.
func (*JobEvent) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.WriteJobEventsParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens, a.Checks, a.Ords = Checks(all)
	for _, r := range all {
		e := r.Effect.(*JobEvent)
		jobID := e.JobID
		if jobID == "" {
			jobID = r.Key.ProcessID
		}
		index := int32(-1)
		if e.Index != nil {
			index = *e.Index
		}
		a.EventNamespaces = append(a.EventNamespaces, r.Key.Namespace)
		a.JobIds = append(a.JobIds, jobID)
		a.StepIds = append(a.StepIds, e.StepID)
		a.Indexes = append(a.Indexes, index)
		a.Types = append(a.Types, e.Type)
		a.FromStatuses = append(a.FromStatuses, e.From)
		a.ToStatuses = append(a.ToStatuses, e.To)
		a.Attempts = append(a.Attempts, e.Attempt)
		a.WorkerIds = append(a.WorkerIds, e.WorkerID)
		a.Actors = append(a.Actors, e.Actor)
		a.Messages = append(a.Messages, e.Message)
		a.Metadatas = append(a.Metadatas, string(e.Metadata))
	}
	return dbsqlc.New().WriteJobEvents(ctx, db, a)
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

// keptEvents returns the events that their namespaces keep.
func keptEvents(all []BoundEffect) []BoundEffect {
	kept := make([]BoundEffect, 0, len(all))
	for _, r := range all {
		if r.Mode == EventsAll || r.Mode == EventsEnds && r.Effect.(*JobEvent).EndsJob {
			kept = append(kept, r)
		}
	}
	return kept
}
