package crons

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// DefaultRetention is the default retention of ledger rows and of cron tasks. The retention of a
// row starts at the time when its fire was decided. Rows of runs that have not ended are kept
// longer.
const DefaultRetention = 30 * 24 * time.Hour

// Row is a row of the ledger.
type Row = dbsqlc.ListFiresRow

// Change says how the row of a fire changes.
type Change string

// The changes. A result has at most one change for each fire.
const (
	Decided Change = "decide" // a new row
	Started Change = "start"  // a waiting run starts
	Ended   Change = "end"    // a run ends, or is removed from the queue; only the first end is stored
	Refused Change = "refuse" // the run could not be started
	Rerun   Change = "rerun"  // a fire that has ended gets another run
)

// Fire is an effect that writes a fire to the ledger.
type Fire struct {
	cron.Fire
	CronID string
	Change Change
	RunID  string // the process of the run, or ""
	Detail string
}

// Bytes implements storage.Effect.
func (f *Fire) Bytes() int {
	return 200 + len(f.CronID) + len(f.Reason) + len(f.RunID) + len(f.Detail)
}

// Batch implements storage.Effect.
func (*Fire) Batch() string { return "WriteFires" }

// Write implements storage.Effect.
func (f *Fire) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteFiresParams
	for _, r := range all {
		f := r.Effect.(*Fire)
		a.Append(dbsqlc.WriteFiresItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
			CronID: f.CronID, FireTime: f.Time, Change: string(f.Change),
			Decision: strings.ToUpper(f.Decision.String()), Reason: f.Reason, Attempt: f.Attempt,
			Status: strings.ToUpper(f.Status.String()), RunID: f.RunID, Detail: f.Detail,
			Manual: f.Manual, Count: f.Count,
		})
	}
	return dbsqlc.New().WriteFires(ctx, db, a)
}

// List returns at most limit ledger rows of a cron with fire times before a time, newest first.
// since is the time at which the cron was created; older rows belong to a deleted cron with the
// same ID.
func List(
	ctx context.Context, s *storage.Store, namespace, cronID string, before, since time.Time, limit int,
) ([]Row, error) {
	return storage.Query(ctx, s.ReadOne, "list fires", dbsqlc.New().ListFires, dbsqlc.ListFiresParams{
		Namespace: namespace, CronID: cronID, Before: before, Since: since, Lim: int32(limit),
	})
}

// Get returns the row of a fire time, or process.ErrTaskNotFound if there is none.
func Get(ctx context.Context, s *storage.Store, namespace, cronID string, fire time.Time) (Row, error) {
	r, err := storage.Query(ctx, s.ReadOne, "get fire", dbsqlc.New().GetFire,
		dbsqlc.GetFireParams{Namespace: namespace, CronID: cronID, FireTime: fire})
	if errors.Is(err, pgx.ErrNoRows) {
		err = process.ErrTaskNotFound
	}
	return Row(r), err
}

// Times returns the fire times with rows in [from, to).
func Times(
	ctx context.Context, s *storage.Store, namespace, cronID string, from, to time.Time,
) ([]time.Time, error) {
	return storage.Query(ctx, s.ReadOne, "list fire times", dbsqlc.New().ListFireTimes,
		dbsqlc.ListFireTimesParams{Namespace: namespace, CronID: cronID, FromTime: from, ToTime: to})
}

// NextCron is a cron with its state.
type NextCron = dbsqlc.ListNextCronsRow

// maxNextTimers is the maximum number of timers that are read to find the crons that fire next.
const maxNextTimers = 200

// ListNext returns the crons of namespaces that fire next, soonest first, at most limit. Their
// states have at most maxBytes bytes in total.
func ListNext(
	ctx context.Context, s *storage.Store, namespaces []string, limit, maxBytes int,
) ([]NextCron, error) {
	return storage.Query(ctx, s.ReadOne, "list the next crons", dbsqlc.New().ListNextCrons, dbsqlc.ListNextCronsParams{
		Namespaces: namespaces, Candidates: maxNextTimers, Lim: int32(limit), MaxBytes: int64(maxBytes),
	})
}

// forgetBatch is the maximum number of rows that one statement deletes.
const forgetBatch = 2000

// Delete deletes ledger rows of a deleted cron whose fires were decided before a time. It reports
// whether more such rows may remain.
func Delete(ctx context.Context, s *storage.Store, namespace, cronID string, before time.Time) (more bool, err error) {
	return forget(ctx, s, "delete fires", func(ctx context.Context, db storage.DB) (int64, error) {
		return dbsqlc.New().DeleteFires(ctx, db,
			dbsqlc.DeleteFiresParams{Namespace: namespace, CronID: cronID, Before: before, Lim: forgetBatch})
	})
}

// Forget deletes rows whose retention is over. more is true if there may be more.
func Forget(ctx context.Context, s *storage.Store, retention time.Duration) (more bool, err error) {
	return forget(ctx, s, "delete old fires", func(ctx context.Context, db storage.DB) (int64, error) {
		return dbsqlc.New().ForgetFires(ctx, db,
			dbsqlc.ForgetFiresParams{RetentionUs: retention.Microseconds(), Lim: forgetBatch})
	})
}

// forgetTasksBatch is the maximum number of tasks of one cron that one statement deletes.
const forgetTasksBatch = 200

// ForgetTasks deletes ended tasks of crons when their retention is over. Nothing else deletes the
// tasks of a cron while the cron exists. more is true if there may be more.
func ForgetTasks(ctx context.Context, s *storage.Store, retention time.Duration) (more bool, err error) {
	err = s.Write(ctx, "delete old tasks of crons", func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().ForgetCronTasks(ctx, db,
			dbsqlc.ForgetCronTasksParams{RetentionUs: retention.Microseconds(), Lim: forgetTasksBatch})
		more = n >= forgetTasksBatch
		return err
	})
	return more, err
}

func forget(
	ctx context.Context, s *storage.Store, op string, run func(context.Context, storage.DB) (int64, error),
) (more bool, err error) {
	err = s.Write(ctx, op, func(ctx context.Context, db storage.DB) error {
		n, err := run(ctx, db)
		more = n == forgetBatch
		return err
	})
	return more, err
}
