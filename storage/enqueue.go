package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// JobKind is the kind of processes that are jobs.
const JobKind = "job"

// NewJob is a job that is to be enqueued.
type NewJob struct {
	Key            process.Key
	Name           string
	Args           []byte // JSON
	Context        []byte // where a trace goes on; nil: nowhere
	Metadata       []byte // JSON object; nil: none
	Tags           []byte // JSON array of strings; nil: none
	Options        []byte // what of JobOptions is not default, as JSON; nil: nothing
	Timeout        time.Duration
	Priority       int32
	RunTime        time.Time // not before; zero: now
	Unique         Unique
	IdempotencyKey string
	RequestID      uuid.UUID // process.RequestID of the key; zero: none
	Fingerprint    []byte
	Constraints    Constrained
	Actor          string // who asked; "": nobody who was named
	Chosen         bool   // the engine has chosen the id: that it exists already can only be the work of the same request
	Grouped        bool   // several workers run it: Options have workers, and it needs no keys of constraints itself
}

// Unique is what keeps twins of a job out: at most one with its key is not at its end.
type Unique struct {
	Key     string        // "": nothing does
	TTL     time.Duration // so long after its end it holds the key, too
	Waiting bool          // the key is only held by a job that has not run yet
}

// Enqueued says what became of a job that was to be enqueued.
type Enqueued struct {
	Outcome   EnqueueOutcome
	ProcessID string // of the job, or of the one that was there
	Later     bool   // its time has not come
}

// EnqueueOutcome is what an Enqueue met.
type EnqueueOutcome string

// The outcomes of an Enqueue. Exists, Replayed and Mismatched are those of a Start.
const (
	JobEnqueued   EnqueueOutcome = "enqueued"
	JobTwin       EnqueueOutcome = "twin" // another job holds the unique key
	JobReplayed   EnqueueOutcome = "replayed"
	JobMismatched EnqueueOutcome = "mismatch"
	JobExists     EnqueueOutcome = "exists"
	jobAgain      EnqueueOutcome = "again" // another item of the same flush has the same unique key
)

type enqueueItem struct {
	item
	job      *NewJob
	enqueued Enqueued
	reread   bool // it has looked for its twin again
}

// again tells whether it is to look again: behind an item that took the same unique key, or, keyed, for a twin of another node that made the
// job in a transaction which the statement did not see yet.
func (it *enqueueItem) again() bool {
	twin := it.enqueued.Outcome == JobExists && it.job.RequestID != uuid.Nil && !it.reread
	it.reread = it.reread || twin
	return twin || it.enqueued.Outcome == jobAgain
}

func (j *NewJob) bytes() int {
	return 400 + len(j.Args) + len(j.Context) + len(j.Metadata) + len(j.Tags) + len(j.Options)
}

// Enqueue makes a job. It returns when it is durable.
func (s *Store) Enqueue(j *NewJob) (Enqueued, error) {
	it := &enqueueItem{item: newItem(j.Key, j.bytes(), j.RequestID != uuid.Nil || j.Chosen), job: j}
	it.requestID = j.RequestID
	err := s.submit(it)
	if it.repeated && j.Chosen && it.enqueued.Outcome == JobExists {
		it.enqueued.Outcome = JobEnqueued // by the first try, whose answer was lost
	}
	return it.enqueued, err
}

type enqueueParams struct {
	keys dbsqlc.EnsureJobKeysParams
	jobs dbsqlc.EnqueueJobsParams
}

func (p *enqueueParams) add(j *NewJob) {
	a := &p.jobs
	a.Ords = append(a.Ords, int32(len(a.Ords)))
	a.Namespaces = append(a.Namespaces, j.Key.Namespace)
	a.ProcessIds = append(a.ProcessIds, j.Key.ProcessID)
	a.Names = append(a.Names, j.Name)
	a.Args = append(a.Args, j.Args)
	a.Contexts = append(a.Contexts, j.Context)
	a.Metadatas = append(a.Metadatas, string(j.Metadata))
	a.Tags = append(a.Tags, string(j.Tags))
	a.Options = append(a.Options, string(j.Options))
	a.IdempotencyKeys = append(a.IdempotencyKeys, j.IdempotencyKey)
	a.RequestIds = append(a.RequestIds, j.RequestID)
	a.Fingerprints = append(a.Fingerprints, j.Fingerprint)
	a.Priorities = append(a.Priorities, j.Priority)
	a.RunTimes = append(a.RunTimes, j.RunTime)
	a.TimeoutsUs = append(a.TimeoutsUs, j.Timeout.Microseconds())
	a.UniqueKeys = append(a.UniqueKeys, j.Unique.Key)
	a.UniqueTtlsUs = append(a.UniqueTtlsUs, j.Unique.TTL.Microseconds())
	a.UniqueWaitings = append(a.UniqueWaitings, j.Unique.Waiting)
	a.ConstraintsVersions = append(a.ConstraintsVersions, j.Constraints.Version)
	a.ConstraintKeys = append(a.ConstraintKeys, j.Constraints.JSON())
	a.Lines = append(a.Lines, j.Constraints.FirstKey())
	a.Actors = append(a.Actors, j.Actor)
	a.Groupeds = append(a.Groupeds, j.Grouped)
	if j.Unique.Key != "" {
		p.keys.Namespaces = append(p.keys.Namespaces, j.Key.Namespace)
		p.keys.UniqueKeys = append(p.keys.UniqueKeys, j.Unique.Key)
	}
}

// keyStages make and lock the unique keys, in snapshots of their own: see LockJobKeys.
func (p *enqueueParams) keyStages(s *Store) []stage {
	if len(p.keys.Namespaces) == 0 {
		return nil
	}
	return []stage{
		func(ctx context.Context, db DB) error { return s.q.EnsureJobKeys(ctx, db, p.keys) },
		func(ctx context.Context, db DB) error {
			return s.q.LockJobKeys(ctx, db, dbsqlc.LockJobKeysParams(p.keys))
		},
	}
}

func (p *enqueueParams) run(ctx context.Context, s *Store, db DB, take func(ord int32, e Enqueued)) error {
	p.jobs.Modes = s.eventModes(p.jobs.Namespaces)
	rows, err := s.q.EnqueueJobs(ctx, db, p.jobs)
	for _, r := range rows {
		take(r.Ord, Enqueued{Outcome: EnqueueOutcome(r.Outcome), ProcessID: r.ProcessID, Later: r.Later})
	}
	return err
}

func enqueueStages(s *Store, items []*enqueueItem) []stage {
	if len(items) == 0 {
		return nil
	}
	var p enqueueParams
	for _, it := range items {
		p.add(it.job)
	}
	return append(p.keyStages(s), func(ctx context.Context, db DB) error {
		return p.run(ctx, s, db, func(ord int32, e Enqueued) { items[ord].enqueued = e })
	})
}

// EnqueueRefusedError tells which job of a batch was not accepted: then none was.
type EnqueueRefusedError struct {
	Index   int
	Outcome EnqueueOutcome
}

func (e *EnqueueRefusedError) Error() string { return fmt.Sprintf("job %d: %s", e.Index, e.Outcome) }

// enqueueChunk is how many jobs of a batch one statement takes.
const enqueueChunk = 1000

// EnqueueBatch makes jobs, all of them or none, in one transaction. An error of the type *EnqueueRefusedError names the first that was not
// accepted. Jobs that have their unique key from an earlier one of the batch are answered as twins.
func (s *Store) EnqueueBatch(ctx context.Context, jobs []*NewJob) ([]Enqueued, error) {
	all := make([]Enqueued, len(jobs))
	keys := make([]process.Key, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	conn, err := s.hot.Acquire(ctx)
	if err != nil {
		return nil, mapped("enqueue batch", err)
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn.Conn(), func(tx pgx.Tx) error {
		if err := s.lockStage(keys)(ctx, tx); err != nil {
			return err
		}
		todo := make([]int, len(jobs))
		for n := range todo {
			todo[n] = n
		}
		for len(todo) > 0 {
			var again []int
			for len(todo) > 0 {
				n := min(len(todo), enqueueChunk)
				more, err := s.enqueueChunk(ctx, tx, jobs, all, todo[:n])
				if err != nil {
					return err
				}
				again, todo = append(again, more...), todo[n:]
			}
			todo = again
		}
		return nil
	})
	var refused *EnqueueRefusedError
	if errors.As(err, &refused) {
		return nil, refused
	}
	if err == nil {
		err = s.replicated(conn.Conn())
	}
	return all, mapped("enqueue batch", err)
}

// enqueueChunk enqueues some jobs of a batch and gives those that are to come again.
func (s *Store) enqueueChunk(ctx context.Context, db DB, jobs []*NewJob, all []Enqueued, some []int) (again []int, err error) {
	var p enqueueParams
	for _, n := range some {
		p.add(jobs[n])
	}
	for _, st := range p.keyStages(s) {
		if err := st(ctx, db); err != nil {
			return nil, err
		}
	}
	err = p.run(ctx, s, db, func(ord int32, e Enqueued) { all[some[ord]] = e })
	if err != nil {
		return nil, err
	}
	for _, n := range some {
		switch all[n].Outcome {
		case jobAgain:
			again = append(again, n)
		case JobExists, JobMismatched:
			return nil, &EnqueueRefusedError{Index: n, Outcome: all[n].Outcome}
		}
	}
	return again, nil
}
