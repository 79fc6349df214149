package pull

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Subscription is a namespace that a worker polls, with a job name, or "" for all tasks.
type Subscription struct {
	Namespace   string
	JobName     string
	JobsOnly    bool          // only jobs
	Pauses      bool          // the namespace has paused job names, which a poll without a JobName skips
	StepTimeout time.Duration // timeout of tasks that are not jobs
	Lease       time.Duration // lease duration of jobs that do not set one
	MaxLease    time.Duration
}

// maxLeases is the maximum number of tasks that one statement leases. It is equal to the maximum
// number of items of a flush.
const maxLeases = 256

// Poll leases at most limit tasks to a worker, and at most maxLeases. It takes them in the order of
// priority, then round (the turn of their fairness key), then age. It stops when they exceed
// process.MaxPollBytes. If grouped is true, Poll includes the slots of job groups. It skips
// processes that other transactions have locked.
func Poll(
	ctx context.Context, s *storage.Store, workerID string, lines []Subscription, limit int, grouped bool,
) ([]storage.Lease, error) {
	return lease(pollParams(s, workerID, lines, limit), grouped, func(scan statement) error {
		return s.Scan(ctx, "poll", scan)
	})
}

// PollLocked is like Poll, but first locks the process of the first task of a namespace. It waits
// at most the given time for this lock. If it does not get the lock, it leases nothing.
func PollLocked(
	ctx context.Context, s *storage.Store, workerID string, lines []Subscription, limit int, grouped bool,
	first storage.FirstCall, wait time.Duration,
) ([]storage.Lease, error) {
	return lease(pollParams(s, workerID, lines, limit), grouped, func(scan statement) error {
		return s.ScanLocked(ctx, "poll", first, wait, scan)
	})
}

func pollParams(s *storage.Store, workerID string, lines []Subscription, limit int) dbsqlc.PollParams {
	a := dbsqlc.PollParams{WorkerID: workerID, NodeID: s.NodeID(), Lim: int32(min(limit, maxLeases))}
	for _, l := range lines {
		a.Append(dbsqlc.PollItem{
			Namespace: l.Namespace, JobName: l.JobName, JobsOnly: l.JobsOnly, Pauses: l.Pauses,
			StepTimeoutUs: l.StepTimeout.Microseconds(), LeaseUs: l.Lease.Microseconds(),
			MaxLeaseUs: l.MaxLease.Microseconds(), Mode: s.EventModeOf(l.Namespace),
		})
	}
	return a
}

type statement = func(context.Context, storage.DB) error

// lease passes the statement of a poll to run, and returns the leases.
func lease(a dbsqlc.PollParams, grouped bool, run func(statement) error) ([]storage.Lease, error) {
	var rows []dbsqlc.PollRow
	err := run(func(ctx context.Context, db storage.DB) (err error) {
		rows, err = poll(ctx, db, a, grouped)
		return err
	})
	if err != nil {
		return nil, err
	}
	leases := make([]storage.Lease, len(rows))
	for n := range rows {
		leases[n] = leaseOf(&rows[n])
	}
	return leases, nil
}

func leaseOf(r *dbsqlc.PollRow) storage.Lease {
	return storage.Lease{
		Claim: storage.Claim{
			Namespace: r.Namespace, ProcessID: r.ProcessID, TaskID: r.TaskID, TaskType: r.TaskType, Attempt: r.Attempt,
			Priority:     r.Priority,
			FencingToken: r.FencingToken, ScheduledTime: r.ScheduledTime, RunningTime: r.RunningTime,
			RetryInterval: r.RetryInterval,
			TimerName:     r.TimerName, HistoryRange: r.HistoryRange, IdempotencyKey: r.IdempotencyKey, Args: r.Args,
			Context: r.Context,
			Status:  r.Status, PreviousStatus: r.PreviousStatus, StatusChangedTime: r.StatusChangedTime,
			Detail: r.Detail, CorruptedBy: r.CorruptedBy,
			AuxState: r.AuxState, Metadata: r.Metadata, LastEventID: r.LastEventID, FirstEventID: r.FirstEventID,
			Kind: r.Kind, CreatedTime: r.CreatedTime, Child: r.Child,
			KindName: r.KindName, KindOptions: r.KindOptions,
			KindTimeoutUs: r.KindTimeoutUs, KindTakeovers: r.KindTakeovers, KindTags: r.KindTags,
			KindFailures: r.KindFailures, KindKeysVersion: r.KindKeysVersion, KindKeys: r.KindKeys,
			KindKeysNow: r.KindKeysNow,
		},
		WorkerID: r.WorkerID, Salt: r.Salt, Duration: time.Duration(r.LeaseUs) * time.Microsecond,
		Heartbeat: time.Duration(r.BeatUs) * time.Microsecond, Timeout: time.Duration(r.TimeoutUs) * time.Microsecond,
		Progress: r.Progress,
	}
}

func poll(ctx context.Context, db storage.DB, a dbsqlc.PollParams, grouped bool) ([]dbsqlc.PollRow, error) {
	if !grouped {
		return dbsqlc.New().Poll(ctx, db, a)
	}
	of, err := dbsqlc.New().PollGroups(ctx, db, dbsqlc.PollGroupsParams(a))
	rows := make([]dbsqlc.PollRow, len(of))
	for n := range of {
		rows[n] = dbsqlc.PollRow(of[n])
	}
	return rows, err
}

// CountPollable returns for each subscription how many tasks a Poll would find, at most limit.
func CountPollable(ctx context.Context, s *storage.Store, lines []Subscription, limit int) ([]int, error) {
	a := dbsqlc.CountPollableParams{Lim: int32(limit)}
	for n, l := range lines {
		a.Append(dbsqlc.CountPollableItem{
			Ord: int32(n), Namespace: l.Namespace, JobName: l.JobName, JobsOnly: l.JobsOnly,
			Pauses: l.Pauses,
		})
	}
	counts := make([]int, len(lines))
	err := s.Scan(ctx, "count pollable", func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().CountPollable(ctx, db, a)
		for _, r := range rows {
			counts[r.Ord] = int(r.N)
		}
		return err
	})
	return counts, err
}

// FindMemberWorkers returns the indexes of the waiting workers that could take a slot of a job
// group. The worker and the subscription with the same index belong together.
func FindMemberWorkers(ctx context.Context, s *storage.Store, workerIDs []string, lines []Subscription) ([]int, error) {
	var a dbsqlc.FindMemberWorkersParams
	for n, l := range lines {
		a.Append(dbsqlc.FindMemberWorkersItem{
			Ord: int32(n), Namespace: l.Namespace, JobName: l.JobName, WorkerID: workerIDs[n],
			Pauses: l.Pauses,
		})
	}
	var wanted []int
	err := s.Scan(ctx, "list takers", func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().FindMemberWorkers(ctx, db, a)
		for _, ord := range rows {
			wanted = append(wanted, int(ord))
		}
		return err
	})
	return wanted, err
}
