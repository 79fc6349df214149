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

// Row is a job with where it stands.
type Row = storage.JobRow

// End is what the end of an attempt writes of its job: a rider.
type End struct {
	Attempt  int32
	WorkerID string // "": nobody, or it stands with the task alone
	Takeover bool   // the worker was lost, and no retry is used up
	Failure  []byte // JSON; nil: none
	Result   []byte // JSON, kept for TTL
	Kept     bool
	TTL      time.Duration
}

// Says tells whether there is anything to write: of a job that succeeds in a processor of the engine, and whose result is not kept, there is not.
func (e *End) Says() bool { return e.WorkerID != "" || e.Takeover || e.Failure != nil || e.Kept }

// Bytes implements storage.Rider.
func (e *End) Bytes() int { return 150 + len(e.WorkerID) + len(e.Failure) + len(e.Result) }

// Write implements storage.Rider.
func (*End) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteJobsParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = storage.Attempts(all)
	for _, r := range all {
		e := r.Effect.(*End)
		takeovers := int32(0)
		if e.Takeover {
			takeovers = 1
		}
		a.Attempts = append(a.Attempts, e.Attempt)
		a.WorkerIds = append(a.WorkerIds, e.WorkerID)
		a.Takeovers = append(a.Takeovers, takeovers)
		a.Failures = append(a.Failures, string(e.Failure))
		a.Results = append(a.Results, e.Result)
		a.Kepts = append(a.Kepts, e.Kept)
		a.TtlsUs = append(a.TtlsUs, e.TTL.Microseconds())
	}
	return dbsqlc.New().WriteJobs(ctx, db, a)
}

// Again goes with an attempt that is to be made again: a job whose cancel came first ends instead. A rider.
type Again struct{}

// Bytes implements storage.Rider.
func (Again) Bytes() int { return 100 }

// Write implements storage.Rider.
func (Again) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.CancelRetriedParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = storage.Attempts(all)
	for _, r := range all {
		a.Modes = append(a.Modes, int32(r.Mode))
	}
	return dbsqlc.New().CancelRetried(ctx, db, a)
}

// Get reads jobs, in the order of their keys; one that does not exist is nil.
func Get(ctx context.Context, s *storage.Store, keys ...process.Key) ([]*Row, error) {
	var a dbsqlc.GetJobsParams
	for n, k := range keys {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, k.Namespace)
		a.ProcessIds = append(a.ProcessIds, k.ProcessID)
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

// FetchResult hands a kept result out and drops it; nil: there is none any more.
func FetchResult(ctx context.Context, s *storage.Store, key process.Key) (result []byte, err error) {
	err = s.Write(ctx, "fetch result", func(ctx context.Context, db storage.DB) error {
		result, err = dbsqlc.New().FetchResult(ctx, db, dbsqlc.FetchResultParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return result, err
}

// Update is what UpdateJob stores. What is nil or zero of the things that wait with the job stays.
type Update struct {
	Actor    string   // who asked; "": nobody who was named
	Fields   []string // of its options that change, for its events
	Timeout  time.Duration
	Tags     []byte
	Options  []byte
	Metadata *[]byte
	Priority *int32
	RunTime  *time.Time    // zero: now
	Lease    time.Duration // of the attempt that runs, from its next heartbeat on; 0: unchanged
}

// forgetBatch bounds what one statement forgets.
const forgetBatch = 1000

// Forget drops results that nobody fetched in time, unique keys whose job is gone, and workers that nobody has heard of for a day. more: there
// are more of them.
func Forget(ctx context.Context, s *storage.Store) (more bool, err error) {
	err = s.Write(ctx, "forget of jobs", func(ctx context.Context, db storage.DB) error {
		results, err := dbsqlc.New().ForgetResults(ctx, db, forgetBatch)
		if err != nil {
			return err
		}
		keys, err := dbsqlc.New().ForgetJobKeys(ctx, db, forgetBatch)
		more = results == forgetBatch || keys == forgetBatch
		return err
	})
	if err != nil {
		return more, err
	}
	workers, err := s.ForgetWorkers(ctx)
	return more || workers, err
}
