package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Row is a job with its current state.
type Row = dbsqlc.GetJobsRow

// End is an effect that stores the end of an attempt in its job.
type End struct {
	Attempt  int32
	WorkerID string // "" if there is none, or if it is stored only with the task
	Takeover bool   // the worker was lost, which does not use up a retry
	Failure  []byte // JSON, or nil
	Result   []byte // JSON, kept for TTL
	Kept     bool
	TTL      time.Duration
}

// HasChanges reports whether there is anything to write. It returns false if a processor of the
// engine succeeds and the result is not kept.
func (e *End) HasChanges() bool { return e.WorkerID != "" || e.Takeover || e.Failure != nil || e.Kept }

// Bytes implements storage.Effect.
func (e *End) Bytes() int { return 150 + len(e.WorkerID) + len(e.Failure) + len(e.Result) }

// Batch implements storage.Effect.
func (*End) Batch() string { return "WriteJobs" }

// Write implements storage.Effect.
func (*End) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteJobsParams
	for _, r := range all {
		e := r.Effect.(*End)
		takeovers := int32(0)
		if e.Takeover {
			takeovers = 1
		}
		a.Append(dbsqlc.WriteJobsItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
			Attempt: e.Attempt, WorkerID: e.WorkerID, Takeovers: takeovers,
			Failure: string(e.Failure), Result: e.Result, Kept: e.Kept, TtlUs: e.TTL.Microseconds(),
		})
	}
	return dbsqlc.New().WriteJobs(ctx, db, a)
}

// AttemptRecord is the event and the count of an attempt of a job.
type AttemptRecord struct {
	JobName  string // "" if unknown
	Attempt  int32
	Type     string // type of the event, as listed in docs/jobs.md
	WorkerID string // the worker that held the lease; "" if a node ran the attempt
	Message  string
}

// Name implements storage.Record.
func (r *AttemptRecord) Name() string { return r.JobName }

// Bytes implements storage.Effect.
func (r *AttemptRecord) Bytes() int { return 200 + len(r.Message) }

// Batch implements storage.Effect.
func (*AttemptRecord) Batch() string { return "EndJobs" }

// Write implements storage.Effect.
func (*AttemptRecord) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.EndJobsParams
	for n := range all {
		r := all[n].Effect.(*AttemptRecord)
		a.Append(dbsqlc.EndJobsItem{
			Key: all[n].Key, TaskID: all[n].TaskID, FencingToken: all[n].FencingToken,
			Name: r.JobName, Attempt: r.Attempt, WorkerID: r.WorkerID, Type: r.Type,
			Message: r.Message, Mode: int32(all[n].Mode),
		})
	}
	return dbsqlc.New().EndJobs(ctx, db, a)
}

// EndIfCancelled is an effect of a failed attempt after which the job would be retried. If the job
// was cancelled first, it ends instead.
type EndIfCancelled struct{}

// Bytes implements storage.Effect.
func (EndIfCancelled) Bytes() int { return 100 }

// Batch implements storage.Effect.
func (EndIfCancelled) Batch() string { return "EndIfCancelled" }

// Write implements storage.Effect.
func (EndIfCancelled) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.EndIfCancelledParams
	for _, r := range all {
		a.Append(dbsqlc.EndIfCancelledItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken, Mode: int32(r.Mode),
		})
	}
	return dbsqlc.New().EndIfCancelled(ctx, db, a)
}

// Get returns jobs in the order of keys, with nil for jobs that do not exist.
func Get(ctx context.Context, s *storage.Store, keys ...process.Key) ([]*Row, error) {
	var a dbsqlc.GetJobsParams
	for n, k := range keys {
		a.Append(dbsqlc.GetJobsItem{Ord: int32(n), Key: k})
	}
	all := make([]*Row, len(keys))
	err := s.Read(ctx, "get jobs", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := dbsqlc.New().GetJobs(ctx, tx, a)
		for n := range rows {
			all[rows[n].Ord] = &rows[n]
		}
		return err
	})
	return all, err
}

// FetchResult returns a kept result and deletes it. It returns nil if there is none.
func FetchResult(ctx context.Context, s *storage.Store, key process.Key) (result []byte, err error) {
	result, err = storage.Query(ctx, s.Write, "fetch result", dbsqlc.New().FetchResult,
		dbsqlc.FetchResultParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return result, err
}

// Update contains the fields that UpdateJob stores. Fields that are nil or zero are not changed.
type Update struct {
	Actor    string   // who requested the update, or "" if unknown
	Fields   []string // changed options, for the events
	Timeout  time.Duration
	Tags     []byte
	Options  []byte
	Metadata *[]byte
	Args     *[]byte
	Priority *int32
	RunTime  *time.Time    // zero means now
	Lease    time.Duration // lease duration of the running attempt, from its next heartbeat; 0 if unchanged
}

// forgetBatch is the maximum number of rows that one statement deletes.
const forgetBatch = 1000

// Forget deletes results that were not fetched in time, and unique keys that removed jobs no longer
// hold. more is true if there may be more.
func Forget(ctx context.Context, s *storage.Store) (more bool, err error) {
	err = s.Write(ctx, "delete rows of jobs", func(ctx context.Context, db storage.DB) error {
		results, err := dbsqlc.New().ForgetResults(ctx, db, forgetBatch)
		if err != nil {
			return err
		}
		keys, err := dbsqlc.New().ForgetJobKeys(ctx, db, forgetBatch)
		more = results == forgetBatch || keys == forgetBatch
		return err
	})
	return more, err
}
