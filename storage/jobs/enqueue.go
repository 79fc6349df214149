package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// NewJob is a job to enqueue.
type NewJob struct {
	Key            process.Key
	Name           string
	Args           []byte // JSON
	Context        []byte // carries the trace, or nil
	Metadata       []byte // JSON object, or nil
	Tags           []byte // JSON array of strings, or nil
	Options        []byte // the JobOptions that differ from the defaults, as JSON, or nil
	Timeout        time.Duration
	Priority       int32
	RunTime        time.Time     // earliest run time; zero means now
	Delay          time.Duration // time until the job may run, instead of RunTime; 0 means that RunTime applies
	Unique         Unique
	IdempotencyKey string
	RequestID      uuid.UUID // process.RequestID of the key; zero if there is none
	Fingerprint    []byte
	Constraints    Constrained
	FairnessKey    *string // nil if the namespace defines no fairness keys
	Actor          string  // who enqueued it, or "" if unknown
	Chosen         bool    // the engine chose the ID, so an existing job with it comes from the same request
	// Grouped is true if several workers run the job. In this case Options contains the number of
	// workers, and the job itself needs no constraint keys.
	Grouped bool
}

// Unique prevents duplicates of a job. At most one job that has not ended holds a given key.
type Unique struct {
	Key     string        // "" if the job is not unique
	TTL     time.Duration // how long the job holds the key after its end
	Waiting bool          // the job holds the key only until it first runs
	Replace bool          // a new job replaces the args and the time of a waiting one, see EnqueueReplacing
}

// Enqueued is the result of enqueuing a job.
type Enqueued struct {
	Outcome   EnqueueOutcome
	ProcessID string         // ID of the job, or of the existing one
	Later     bool           // its run time is in the future
	Claim     *storage.Claim // only for a captured job, which runs on this node now; see EnqueueCaptured
}

// EnqueueOutcome is the outcome of an Enqueue.
type EnqueueOutcome string

// The outcomes of an Enqueue. JobExists, JobReplayed and JobMismatched have the same meaning as
// Exists, Replayed and Mismatched in package storage.
const (
	JobEnqueued   EnqueueOutcome = "enqueued"
	JobDuplicate  EnqueueOutcome = "duplicate" // another job holds the unique key
	JobReplayed   EnqueueOutcome = "replayed"
	JobMismatched EnqueueOutcome = "mismatch"
	JobExists     EnqueueOutcome = "exists"
	jobAgain      EnqueueOutcome = "again" // another item of the same flush has the same unique key
)

type enqueueItem struct {
	storage.InsertItem
	job      *NewJob
	capture  bool // the job runs at once if it is created
	enqueued Enqueued
	reread   bool // it has already been retried to find its duplicate
}

// Again implements storage.Insertion. It retries the item if another item of the flush has the same
// unique key. It also retries an item with an idempotency key once if the job exists, because
// another node may have stored the same request in a transaction that the statement could not see.
func (it *enqueueItem) Again() bool {
	reread := it.enqueued.Outcome == JobExists && it.job.RequestID != uuid.Nil && !it.reread
	it.reread = it.reread || reread
	return reread || it.enqueued.Outcome == jobAgain
}

func (j *NewJob) bytes() int {
	return 400 + len(j.Args) + len(j.Context) + len(j.Metadata) + len(j.Tags) + len(j.Options)
}

// Enqueue creates a job. It returns when the job is durable.
func Enqueue(s *storage.Store, j *NewJob) (Enqueued, error) { return enqueue(s, j, &enqueueItem{}) }

// MayCapture reports whether EnqueueCaptured may create the job.
func (j *NewJob) MayCapture() bool {
	return j.RunTime.IsZero() && j.Delay == 0 && j.Constraints.Version == 0 && j.FairnessKey == nil && !j.Grouped
}

// EnqueueCaptured is like Enqueue, but claims the job in the same transaction: the caller has a
// slot for it. It writes no row of schedule, because the claim would delete this row. The result
// has no claim if the job was not created, if constraints were added to the namespace, or if the
// response of the commit was lost. In the last case, the engine adopts the job.
func EnqueueCaptured(s *storage.Store, j *NewJob) (Enqueued, error) {
	return enqueue(s, j, &enqueueItem{capture: true})
}

func enqueue(s *storage.Store, j *NewJob, it *enqueueItem) (Enqueued, error) {
	it.InsertItem = storage.NewInsertItem(j.Key, j.bytes(), j.RequestID, j.RequestID != uuid.Nil || j.Chosen)
	it.job = j
	err := s.Insert(it)
	if it.Repeated() && j.Chosen && it.enqueued.Outcome == JobExists {
		it.enqueued.Outcome = JobEnqueued // created by the first try, whose response was lost
	}
	return it.enqueued, err
}

type enqueueParams struct {
	store *storage.Store
	keys  dbsqlc.EnsureJobKeysParams
	jobs  dbsqlc.EnqueueJobsParams
}

func newEnqueueParams(s *storage.Store, n int) *enqueueParams {
	p := &enqueueParams{store: s}
	p.jobs.NodeID = s.NodeID()
	p.jobs.Grow(n)
	return p
}

func (p *enqueueParams) add(j *NewJob) {
	p.jobs.Append(dbsqlc.EnqueueJobsItem{
		Ord: int32(len(p.jobs.Ords)), Key: j.Key, Name: j.Name, Args: j.Args, Context: j.Context,
		Metadata: string(j.Metadata), Tags: string(j.Tags), Options: string(j.Options),
		IdempotencyKey: j.IdempotencyKey, RequestID: j.RequestID, Fingerprint: j.Fingerprint,
		Priority: j.Priority, StartTime: j.RunTime, TimeoutUs: j.Timeout.Microseconds(),
		UniqueKey: j.Unique.Key, UniqueTtlUs: j.Unique.TTL.Microseconds(),
		UniqueWaiting: j.Unique.Waiting, ConstraintsVersion: j.Constraints.Version,
		ConstraintKeys: j.Constraints.JSON(), Line: j.Constraints.FirstKey(), Actor: j.Actor,
		Mode: p.store.EventModeOf(j.Key.Namespace), Grouped: j.Grouped,
		DelayUs: j.Delay.Microseconds(), FairnessKey: fairnessParam(j.FairnessKey),
	})
	if j.Unique.Key != "" {
		p.keys.Append(dbsqlc.EnsureJobKeysItem{Namespace: j.Key.Namespace, UniqueKey: j.Unique.Key})
	}
}

// fairnessParam encodes a fairness key for EnqueueJobs: "=" and the key, or "" for no key.
func fairnessParam(key *string) string {
	if key == nil {
		return ""
	}
	return "=" + *key
}

// keyStages returns the stages that create and lock the unique keys. Each stage needs its own
// snapshot, see LockJobKeys.
func (p *enqueueParams) keyStages() []func(context.Context, storage.DB) error {
	if len(p.keys.Namespaces) == 0 {
		return nil
	}
	return []func(context.Context, storage.DB) error{
		func(ctx context.Context, db storage.DB) error { return dbsqlc.New().EnsureJobKeys(ctx, db, p.keys) },
		func(ctx context.Context, db storage.DB) error {
			return dbsqlc.New().LockJobKeys(ctx, db, dbsqlc.LockJobKeysParams(p.keys))
		},
	}
}

func (p *enqueueParams) run(ctx context.Context, db storage.DB, take func(r *dbsqlc.EnqueueJobsRow, e Enqueued)) error {
	rows, err := dbsqlc.New().EnqueueJobs(ctx, db, p.jobs)
	for n := range rows {
		r := &rows[n]
		take(r, Enqueued{Outcome: EnqueueOutcome(r.Outcome), ProcessID: r.ProcessID, Later: r.Later})
	}
	return err
}

// claim returns the claim of a captured job.
func (j *NewJob) claim(r *dbsqlc.EnqueueJobsRow) *storage.Claim {
	return &storage.Claim{
		Namespace: j.Key.Namespace, ProcessID: j.Key.ProcessID, TaskID: r.TaskID, TaskType: process.TaskInit,
		Attempt: 1, Priority: j.Priority, FencingToken: r.FencingToken, ScheduledTime: r.Now, RunningTime: r.Now,
		IdempotencyKey: j.IdempotencyKey, Args: j.Args, Context: j.Context, Status: process.StatusInit,
		StatusChangedTime: r.Now, Metadata: j.Metadata, FirstEventID: 1, Kind: process.JobKind, CreatedTime: r.Now,
		KindName: j.Name, KindOptions: j.Options, KindTimeoutUs: j.Timeout.Microseconds(), KindTags: j.Tags,
	}
}

// enqueueIn enqueues a job in a transaction that has already locked its process, such as one of
// RunLocked.
func enqueueIn(ctx context.Context, s *storage.Store, db storage.DB, j *NewJob) (done Enqueued, err error) {
	p := newEnqueueParams(s, 1)
	p.add(j)
	for _, lock := range p.keyStages() {
		if err := lock(ctx, db); err != nil {
			return done, err
		}
	}
	return done, p.run(ctx, db, func(_ *dbsqlc.EnqueueJobsRow, e Enqueued) { done = e })
}

// Stages implements storage.Insertion.
func (*enqueueItem) Stages(s *storage.Store, all []storage.Insertion) []func(context.Context, storage.DB) error {
	p := newEnqueueParams(s, len(all))
	for n, it := range all {
		p.add(it.(*enqueueItem).job)
		p.jobs.Captures[n] = it.(*enqueueItem).capture
	}
	return append(p.keyStages(), func(ctx context.Context, db storage.DB) error {
		return p.run(ctx, db, func(r *dbsqlc.EnqueueJobsRow, e Enqueued) {
			it := all[r.Ord].(*enqueueItem)
			if it.enqueued = e; r.Captured {
				it.enqueued.Claim = it.job.claim(r)
			}
		})
	})
}

// messageJob is the part of a start message that makes the process a job. It is stored in
// messages.job.
type messageJob struct {
	Name          string          `json:"name"`
	Priority      int32           `json:"priority"`
	TimeoutUs     int64           `json:"timeoutUs"`
	Tags          json.RawMessage `json:"tags,omitempty"`
	Options       json.RawMessage `json:"options,omitempty"`
	UniqueKey     string          `json:"uniqueKey,omitempty"`
	UniqueTTLUs   int64           `json:"uniqueTtlUs,omitempty"`
	UniqueWaiting bool            `json:"uniqueWaiting,omitempty"`

	// ConstraintsVersion may be outdated or missing. The keys are then evaluated after the
	// delivery.
	ConstraintsVersion int64             `json:"constraintsVersion,omitempty"`
	ConstraintKeys     map[string]string `json:"constraintKeys,omitempty"`
	Line               string            `json:"line,omitempty"`

	FairnessKey *string `json:"fairnessKey,omitempty"`
}

// Message returns a start message that enqueues the job. It has no idempotency key, because a
// message is delivered once.
func (j *NewJob) Message() (storage.Message, error) {
	job, err := json.Marshal(messageJob{
		Name: j.Name, Priority: j.Priority, TimeoutUs: j.Timeout.Microseconds(), Tags: j.Tags, Options: j.Options,
		UniqueKey: j.Unique.Key, UniqueTTLUs: j.Unique.TTL.Microseconds(), UniqueWaiting: j.Unique.Waiting,
		ConstraintsVersion: j.Constraints.Version, ConstraintKeys: j.Constraints.Keys, Line: j.Constraints.FirstKey(),
		FairnessKey: j.FairnessKey,
	})
	return storage.Message{
		Kind: storage.MessageStart, Target: j.Key, Args: j.Args, Metadata: j.Metadata, StartTime: j.RunTime,
		StartedKind: process.JobKind, KindRow: job,
		Plain: j.Unique.Key == "" && j.RunTime.IsZero() && j.Constraints.Version == 0 && j.FairnessKey == nil &&
			!j.Grouped,
	}, err
}

// EnqueueRefusedError reports the first job of a batch that was not accepted. In this case no job
// was stored.
type EnqueueRefusedError struct {
	Index   int
	Outcome EnqueueOutcome
}

func (e *EnqueueRefusedError) Error() string { return fmt.Sprintf("job %d: %s", e.Index, e.Outcome) }

// enqueueChunk is the maximum number of jobs that one statement stores.
const enqueueChunk = 1000

// EnqueueBatch creates all jobs or none, in one transaction. An *EnqueueRefusedError identifies the
// first job that was not accepted. Jobs whose unique key belongs to an earlier job of the batch get
// the outcome JobDuplicate.
func EnqueueBatch(ctx context.Context, s *storage.Store, jobs []*NewJob) ([]Enqueued, error) {
	all := make([]Enqueued, len(jobs))
	keys := make([]process.Key, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	var refused *EnqueueRefusedError
	err := s.InsertLocked(ctx, "enqueue batch", keys, func(ctx context.Context, tx storage.DB) error {
		todo := make([]int, len(jobs))
		for n := range todo {
			todo[n] = n
		}
		for len(todo) > 0 {
			var again []int
			for some := range slices.Chunk(todo, enqueueChunk) {
				more, err := enqueueSome(ctx, s, tx, jobs, all, some)
				if err != nil {
					errors.As(err, &refused)
					return err
				}
				again = append(again, more...)
			}
			todo = again
		}
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	return all, err
}

// enqueueSome enqueues some jobs of a batch and returns those that must be retried.
func enqueueSome(
	ctx context.Context, s *storage.Store, db storage.DB, jobs []*NewJob, all []Enqueued, some []int,
) (again []int, err error) {
	p := newEnqueueParams(s, len(some))
	for _, n := range some {
		p.add(jobs[n])
	}
	for _, st := range p.keyStages() {
		if err := st(ctx, db); err != nil {
			return nil, err
		}
	}
	err = p.run(ctx, db, func(r *dbsqlc.EnqueueJobsRow, e Enqueued) { all[some[r.Ord]] = e })
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
