package storage

import (
	"context"
	"reflect"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// EventMode says which events of its jobs a namespace keeps. The values are those that statements compare.
type EventMode int32

// What a namespace keeps.
const (
	EventsNone EventMode = iota
	EventsEnds           // those with which a job or a run comes to an end
	EventsAll
)

// OnEventMode sets who knows what a namespace keeps; without it all is kept. It must not wait: lanes and scans call it.
func (s *Store) OnEventMode(mode func(namespace string) EventMode) { s.eventMode.Store(&mode) }

func (s *Store) eventModeOf(namespace string) EventMode {
	if mode := s.eventMode.Load(); mode != nil {
		return (*mode)(namespace)
	}
	return EventsAll
}

// EventModeOf is what a namespace keeps, as statements take it.
func (s *Store) EventModeOf(namespace string) int32 { return int32(s.eventModeOf(namespace)) }

// eventModes are those of namespaces, as statements take them.
func (s *Store) eventModes(namespaces []string) []int32 {
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

// JobEvent is a row of job_events: what became of a job, of a run or of a step. As a rider it is of the process whose result it goes with; among
// the Effects of a Completion it is written where the result applies, among its EffectsOnEnd however the attempt ended, but for one that this node makes again
// at once (Retry with Promote and without RetryAfter): that leaves no row by which its token could be checked. What the namespace does not keep
// is not written. The events of one Completion are written in their order.
type JobEvent struct {
	JobID    string // "": that of the process
	StepID   string // "": of the job or run itself
	Index    *int32 // of a step that runs for each of many items
	Type     string // as docs/jobs.md lists them
	From, To string // statuses in lower case; "": none
	Message  string
	Metadata []byte // JSON object; nil: none
	Attempt  int32
	WorkerID string
	Actor    string // who asked; "": the engine itself
	EndsJob  bool   // the job or run is at its end with it: a namespace that keeps ends keeps it
}

var jobEventType = reflect.TypeFor[*JobEvent]()

// Bytes implements Effect.
func (e *JobEvent) Bytes() int {
	return 300 + len(e.JobID) + len(e.StepID) + len(e.Message) + len(e.Metadata) + len(e.WorkerID) + len(e.Actor)
}

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

// JobEnd is what an attempt of a job has to tell of itself: an event, and a count.
type JobEnd struct {
	Name     string // of the job; "": it is not known
	Type     string // of the event, as docs/jobs.md lists them
	WorkerID string // who held it as a lease; "": a node ran it
	Message  string
	Result   []byte // JSON, of one that has succeeded and keeps it: a rider stores it
}

// endJobs are the arguments of EndJobs.
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
	e.arg.Modes = s.eventModes(e.arg.Namespaces)
	return []stage{func(ctx context.Context, db DB) error { return s.q.EndJobs(ctx, db, e.arg) }}
}

// keptEvents are those riders of this type whose namespace keeps them.
func keptEvents(all []BoundEffect) []BoundEffect {
	kept := make([]BoundEffect, 0, len(all))
	for _, r := range all {
		if r.Mode == EventsAll || r.Mode == EventsEnds && r.Effect.(*JobEvent).EndsJob {
			kept = append(kept, r)
		}
	}
	return kept
}
