package flows

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Kind is the kind of processes that are runs.
const Kind = process.FlowKind

// Status is the status of a run as stored in flow_runs.
type Status = dbsqlc.FlowStatus

// The statuses of runs.
const (
	Pending         = dbsqlc.FlowStatusPending
	Active          = dbsqlc.FlowStatusActive
	CancelRequested = dbsqlc.FlowStatusCancelRequested
	Compensating    = dbsqlc.FlowStatusCompensating
	Succeeded       = dbsqlc.FlowStatusSucceeded
	Failed          = dbsqlc.FlowStatusFailed
	Cancelled       = dbsqlc.FlowStatusCancelled
	Expired         = dbsqlc.FlowStatusExpired
)

// StepStatus is the status of a step.
type StepStatus = dbsqlc.StepStatus

// The statuses of steps.
const (
	StepPending   = dbsqlc.StepStatusPending
	StepRunning   = dbsqlc.StepStatusRunning
	StepSucceeded = dbsqlc.StepStatusSucceeded
	StepFailed    = dbsqlc.StepStatusFailed
	StepSkipped   = dbsqlc.StepStatusSkipped
	StepCancelled = dbsqlc.StepStatusCancelled
)

// Run is a row of flow_runs with columns of its process.
type Run = dbsqlc.GetRunRow

// Step is a row of flow_steps with its job.
type Step = dbsqlc.ListStepsRow

// NewRun is the effect with which the first result of a run stores the run.
type NewRun struct {
	Change
	TemplateType   string
	RunTime        time.Time
	FireTime       time.Time
	Scope, ScopeID string
	DedupeKey      string
	CronID         string
	ParentRunID    string
	RepeatOf       string
	Payload        []byte // JSON, or nil
}

// Bytes implements storage.Effect.
func (r *NewRun) Bytes() int {
	return 400 + r.Change.Bytes() + len(r.Payload) + len(r.DedupeKey) + len(r.ScopeID)
}

// Batch implements storage.Effect.
func (*NewRun) Batch() string { return "InsertRuns" }

// Write implements storage.Effect.
func (*NewRun) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.InsertRunsParams
	for _, bound := range all {
		r := bound.Effect.(*NewRun)
		a.Append(dbsqlc.InsertRunsItem{
			Key: bound.Key, TaskID: bound.TaskID, FencingToken: bound.FencingToken,
			RunID: r.RunID, TemplateType: r.TemplateType, TemplateVersion: r.TemplateVersion,
			Status: string(r.Status), Attempt: r.Attempt, StartedTime: r.Started,
			BlockedOn: r.BlockedOn, RunTime: r.RunTime, FireTime: r.FireTime, Scope: r.Scope,
			ScopeID: r.ScopeID, DedupeKey: r.DedupeKey, CronID: r.CronID,
			ParentRunID: r.ParentRunID, RepeatOfRunID: r.RepeatOf, Payload: string(r.Payload),
			Result: string(r.Result), Failure: string(r.Failure),
		})
	}
	return dbsqlc.New().InsertRuns(ctx, db, a)
}

// Change is an effect that changes a run.
type Change struct {
	RunID           string
	TemplateVersion int32 // 0 if unchanged
	Status          Status
	Attempt         int32
	Started         time.Time // when its first step began; zero if that is not known
	BlockedOn       string
	Cancels         bool // a cancel was requested
	CancelReason    string
	Result          []byte // JSON, or nil
	Failure         []byte // JSON, or nil
}

// Bytes implements storage.Effect.
func (c *Change) Bytes() int { return 200 + len(c.Result) + len(c.Failure) + len(c.CancelReason) }

// Batch implements storage.Effect.
func (*Change) Batch() string { return "UpdateRuns" }

// Write implements storage.Effect.
func (*Change) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.UpdateRunsParams
	for _, bound := range all {
		c := bound.Effect.(*Change)
		a.Append(dbsqlc.UpdateRunsItem{
			Key: bound.Key, TaskID: bound.TaskID, FencingToken: bound.FencingToken,
			RunID: c.RunID, Status: string(c.Status), Attempt: c.Attempt, StartedTime: c.Started,
			BlockedOn: c.BlockedOn, TemplateVersion: c.TemplateVersion,
			CancelReason: c.CancelReason, Cancels: c.Cancels, Result: string(c.Result),
			Failure: string(c.Failure),
		})
	}
	return dbsqlc.New().UpdateRuns(ctx, db, a)
}

// StepChange is an effect that changes a step or an item. A result has at most one StepChange for
// each step or item.
type StepChange struct {
	RunID        string
	StepID       string
	Index        int32 // -1 for the step itself
	Ord          int32
	Status       StepStatus
	Compensation StepStatus // if set, the status of its compensation, and nothing else is written
	Begins       bool       // it begins, for the first time or again
	Untaken      bool       // its job ended, and no worker had taken it
	ItemHash     int64      // only for an item that begins
	Due          time.Time
	Started      time.Time // when a worker took its job; zero means unchanged
	ProcessID    string    // the process that executes it
	ProcessIn    string    // namespace of that process; "" means that of the run
	Token        string    // token of an open wait
	WorkerID     string
	Reason       string
	Input        []byte // JSON; nil means the payload
	Result       []byte
	Failure      []byte
	Wait         []byte
}

// Bytes implements storage.Effect.
func (s *StepChange) Bytes() int {
	return 300 + len(s.Input) + len(s.Result) + len(s.Failure) + len(s.Wait) + len(s.Reason)
}

// Batch implements storage.Effect.
func (*StepChange) Batch() string { return "WriteSteps" }

// Write implements storage.Effect.
func (*StepChange) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteStepsParams
	attempts, ords := storage.AttemptsOf(all)
	for n, r := range attempts {
		a.AppendAttempt(dbsqlc.WriteStepsAttempt{
			Ord: int32(n), Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
		})
	}
	for n, bound := range all {
		s := bound.Effect.(*StepChange)
		a.Append(dbsqlc.WriteStepsItem{
			AttemptOrd: ords[n], Namespace: bound.Key.Namespace, RunID: s.RunID, StepID: s.StepID, Index: s.Index,
			Ord: s.Ord, Status: string(s.Status), CompensationStatus: string(s.Compensation),
			Begins: s.Begins, Untaken: s.Untaken, DueTime: s.Due, StartedTime: s.Started,
			Does: s.ProcessID, DoesIn: s.ProcessIn, Token: s.Token, WorkerID: s.WorkerID,
			Reason: s.Reason, Input: string(s.Input), Result: string(s.Result),
			Failure: string(s.Failure), Wait: string(s.Wait), ItemHash: s.ItemHash,
		})
	}
	return dbsqlc.New().WriteSteps(ctx, db, a)
}

// DropItems is an effect that removes the stored items of a step from a previous round.
type DropItems struct {
	RunID, StepID string
	Kept          map[int]int // new indexes of the items to keep, by old index
}

// Bytes implements storage.Effect.
func (d *DropItems) Bytes() int { return 200 + 12*len(d.Kept) }

// Early implements storage.EarlyEffect. The deletion runs first, because the same result may also
// begin items.
func (*DropItems) Early() {}

// Batch implements storage.Effect.
func (*DropItems) Batch() string { return "DropItems" }

// Write implements storage.Effect.
func (*DropItems) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.DropItemsParams
	for _, bound := range all {
		d := bound.Effect.(*DropItems)
		a.Append(dbsqlc.DropItemsItem{
			Key: bound.Key, TaskID: bound.TaskID, FencingToken: bound.FencingToken,
			RunID: d.RunID, StepID: d.StepID,
		})
		for before, now := range d.Kept {
			a.AppendKept(dbsqlc.DropItemsKept{
				Namespace: bound.Key.Namespace, RunID: d.RunID, StepID: d.StepID,
				OldIndex: int32(before), NewIndex: int32(now),
			})
		}
	}
	return dbsqlc.New().DropItems(ctx, db, a)
}

// Report is an effect that updates an open wait.
type Report struct {
	RunID    string
	StepID   string
	Index    int32
	Progress []byte    // JSON; nil if unchanged
	Due      time.Time // zero if unchanged
	Claims   bool      // Worker replaces the worker of the wait
	Worker   string    // "" if it is unknown
}

// Bytes implements storage.Effect.
func (r *Report) Bytes() int { return 100 + len(r.Progress) + len(r.Worker) }

// Batch implements storage.Effect.
func (*Report) Batch() string { return "ReportSteps" }

// Write implements storage.Effect.
func (*Report) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.ReportStepsParams
	for _, bound := range all {
		r := bound.Effect.(*Report)
		a.Append(dbsqlc.ReportStepsItem{
			Key: bound.Key, TaskID: bound.TaskID, FencingToken: bound.FencingToken,
			RunID: r.RunID, StepID: r.StepID, Index: r.Index, Progress: string(r.Progress),
			DueTime: r.Due, Claims: r.Claims, WorkerID: r.Worker,
		})
	}
	return dbsqlc.New().ReportSteps(ctx, db, a)
}

// Get returns a run, or process.ErrRunNotFound.
func Get(ctx context.Context, s *storage.Store, namespace, runID string) (run Run, err error) {
	run, err = storage.Query(ctx, s.ReadOne, "get run", dbsqlc.New().GetRun,
		dbsqlc.GetRunParams{Namespace: namespace, RunID: runID})
	if errors.Is(err, pgx.ErrNoRows) {
		err = process.ErrRunNotFound
	}
	return run, err
}

// Reopen reopens a run that ended without success. It returns false if the run has not ended or has
// succeeded.
func Reopen(ctx context.Context, s *storage.Store, namespace, runID string) (reopened bool, err error) {
	key := process.Key{Namespace: namespace, ProcessID: process.FlowPrefix + runID}
	err = s.RunLocked(ctx, "reopen run", []process.Key{key}, func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().ReopenRuns(ctx, db,
			dbsqlc.ReopenRunsParams{Namespace: namespace, ProcessID: key.ProcessID})
		reopened = len(rows) > 0
		return err
	})
	return reopened, err
}

// StepsQuery selects steps of a run.
type StepsQuery struct {
	Namespace string // namespace of the run
	RunID     string
	StepID    string // "" for all
	OnlySteps bool   // without items
	AfterOrd  int32
	After     int32 // index
	Limit     int
	// MaxBytes limits the values of the steps: inputs, results, failures and progress. The step
	// whose values exceed MaxBytes is the last one with values.
	MaxBytes int64
	// WithoutValues includes the steps after that one, without inputs and results, with short
	// failures, and with only the percentage of the progress.
	WithoutValues bool
}

// Steps reads rows of steps in order, at most Limit and about MaxBytes. more is true if there may
// be further steps.
func Steps(ctx context.Context, s *storage.Store, q StepsQuery) (rows []Step, more bool, err error) {
	rows, err = storage.Query(ctx, s.ReadOne, "list steps", dbsqlc.New().ListSteps, dbsqlc.ListStepsParams{
		Namespace: q.Namespace, RunID: q.RunID, StepID: q.StepID, OnlySteps: q.OnlySteps,
		AfterOrd: q.AfterOrd, AfterIndex: q.After, Lim: int32(q.Limit),
		MaxBytes: q.MaxBytes, AllSteps: q.WithoutValues,
	})
	bytes := int64(0)
	for n := range rows {
		bytes += rows[n].Bytes
	}
	return rows, len(rows) == q.Limit || !q.WithoutValues && bytes >= q.MaxBytes, err
}

// Items counts the items of the steps of a run by status.
func Items(ctx context.Context, s *storage.Store, namespace, runID string) ([]dbsqlc.CountItemsRow, error) {
	return storage.Query(ctx, s.ReadOne, "count items", dbsqlc.New().CountItems,
		dbsqlc.CountItemsParams{Namespace: namespace, RunID: runID})
}

// Value contains the fields of a step that expressions can read.
type Value = dbsqlc.ReadStepsRow

// Values returns the fields of steps that expressions can read.
func Values(
	ctx context.Context, s *storage.Store, namespace, runID string, stepIDs ...string,
) ([]Value, error) {
	return storage.Query(ctx, s.ReadOne, "read steps", dbsqlc.New().ReadSteps,
		dbsqlc.ReadStepsParams{Namespace: namespace, RunID: runID, StepIds: stepIDs})
}

// Item is an item of a step.
type Item = dbsqlc.ReadItemsRow

// ItemsOf returns the items of a step in order.
func ItemsOf(
	ctx context.Context, s *storage.Store, namespace, runID, stepID string, results bool,
) ([]Item, error) {
	return storage.Query(ctx, s.ReadOne, "read items", dbsqlc.New().ReadItems,
		dbsqlc.ReadItemsParams{Namespace: namespace, RunID: runID, StepID: stepID, Results: results})
}

// FirstFailed returns the index and the failure (JSON) of the first failed item of a step, in
// order. The failure is nil if there is none.
func FirstFailed(
	ctx context.Context, s *storage.Store, namespace, runID, stepID string,
) (index int32, failure []byte, err error) {
	row, err := storage.Query(ctx, s.ReadOne, "read the first item that failed", dbsqlc.New().ReadFirstFailed,
		dbsqlc.ReadFirstFailedParams{Namespace: namespace, RunID: runID, StepID: stepID})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, nil
	}
	return row.Index, row.Failure, err
}

// FailedJob is a failed job with its step.
type FailedJob = dbsqlc.ReadFailedJobsRow

// FailedJobs returns the jobs in ERROR of the failed steps and items of a run.
func FailedJobs(ctx context.Context, s *storage.Store, namespace, runID string) ([]FailedJob, error) {
	return storage.Query(ctx, s.ReadOne, "read failed jobs", dbsqlc.New().ReadFailedJobs,
		dbsqlc.ReadFailedJobsParams{Namespace: namespace, RunID: runID})
}

// CancelOutcome returns how the cancel of a job or process ended: cancel_acknowledged with the
// worker, cancel_grace_expired, or "" if it is not known.
func CancelOutcome(ctx context.Context, s *storage.Store, key process.Key) (kind, worker string, err error) {
	row, err := storage.Query(ctx, s.ReadOne, "read how a cancel ended", dbsqlc.New().ReadCancelOutcome,
		dbsqlc.ReadCancelOutcomeParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", nil
	}
	return row.Type, row.WorkerID, err
}

// FirstStart returns when the first step of a run began, at or after since. A step with a job
// begins when a worker takes the job. The result is zero if no step has begun.
func FirstStart(
	ctx context.Context, s *storage.Store, namespace, runID string, since time.Time,
) (time.Time, error) {
	first, err := storage.Query(ctx, s.ReadOne, "read the first start", dbsqlc.New().ReadFirstStart,
		dbsqlc.ReadFirstStartParams{Namespace: namespace, RunID: runID, Since: since})
	if first.Unix() <= 0 {
		return time.Time{}, err
	}
	return first, err
}

// DueItem is an open item of a step, with the time at which it is due.
type DueItem = dbsqlc.ReadDueItemsRow

// DueItems reads the open items of a step that have a due time, earliest first, at most limit.
// timeout is the timeout of the step if its items are processes or runs.
func DueItems(
	ctx context.Context, s *storage.Store, namespace, runID, stepID string, timeout time.Duration, limit int,
) ([]DueItem, error) {
	return storage.Query(ctx, s.ReadOne, "read due items", dbsqlc.New().ReadDueItems, dbsqlc.ReadDueItemsParams{
		Namespace: namespace, RunID: runID, StepID: stepID, TimeoutUs: timeout.Microseconds(), Lim: int32(limit),
	})
}

// maxJobs limits the jobs that Jobs reads in the namespace of the run, and those that it reads in
// other namespaces.
const maxJobs = 500

// Jobs reads the jobs of a run that were not removed.
func Jobs(ctx context.Context, s *storage.Store, namespace, runID string) (keys []process.Key, err error) {
	rows, err := storage.Query(ctx, s.ReadOne, "read jobs of a run", dbsqlc.New().ReadRunJobs,
		dbsqlc.ReadRunJobsParams{Namespace: namespace, RunID: runID, Lim: maxJobs})
	for _, row := range rows {
		keys = append(keys, process.Key(row))
	}
	return keys, err
}

// maxSuspended limits the processes that SuspendedProcesses returns.
const maxSuspended = 100

// SuspendedProcesses returns the first SUSPENDED processes of open steps and of their items.
func SuspendedProcesses(
	ctx context.Context, s *storage.Store, namespace, runID string, stepIDs []string,
) (keys []process.Key, err error) {
	rows, err := storage.Query(ctx, s.ReadOne, "read suspended processes", dbsqlc.New().ReadSuspended,
		dbsqlc.ReadSuspendedParams{Namespace: namespace, RunID: runID, StepIds: stepIDs, Lim: maxSuspended})
	for _, row := range rows {
		keys = append(keys, process.Key(row))
	}
	return keys, err
}
