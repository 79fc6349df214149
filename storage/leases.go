package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Job is the row in jobs that belongs to the claim of a job.
type Job struct {
	Name      string          `json:"name"`
	TimeoutUs int64           `json:"timeout_us"`
	Takeovers int32           `json:"takeovers"`
	Tags      []string        `json:"tags"`
	Options   json.RawMessage `json:"options"` // like NewJob.Options
	Failures  json.RawMessage `json:"failures"`

	// ConstraintsVersion is the version of the constraints for ConstraintKeys, or 0 if there were
	// none.
	ConstraintsVersion int64 `json:"constraints_version"`
	// ConstraintsNow is the version at the time of the claim, or 0 if there are none or it is
	// unknown.
	ConstraintsNow int64             `json:"constraints_now"`
	ConstraintKeys map[string]string `json:"constraint_keys"`
}

// JobRow is a job with its current state.
type JobRow = dbsqlc.GetJobsRow

// JobOf returns the job of a claim, or nil if it is not a job. The result is shared and must not be
// modified.
func JobOf(text json.RawMessage) (*Job, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if j := readJobs.get(text); j != nil {
		return j, nil
	}
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("row of jobs: %w", err)
	}
	for _, absent := range []*json.RawMessage{&j.Options, &j.Failures} {
		if string(*absent) == "null" {
			*absent = nil
		}
	}
	readJobs.put(text, &j)
	return &j, nil
}

// readJobs caches parsed rows of jobs. An attempt needs its row four times, and most jobs with one
// name have the same text. Without the cache, parsing took a quarter of the engine's time for an
// empty job.
var readJobs jobCache

// jobCache holds at most cachedJobs rows of at most cachedJobBytes each. When it is full, it is
// cleared.
type jobCache struct {
	mu     sync.RWMutex
	byText map[string]*Job
}

const (
	cachedJobs     = 1024
	cachedJobBytes = 1024
)

func (c *jobCache) get(text []byte) *Job {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byText[string(text)]
}

func (c *jobCache) put(text []byte, j *Job) {
	if len(text) > cachedJobBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil || len(c.byText) >= cachedJobs {
		c.byText = make(map[string]*Job, cachedJobs)
	}
	c.byText[string(text)] = j
}

// Timeout returns the timeout of an attempt.
func (j *Job) Timeout() time.Duration { return microseconds(j.TimeoutUs) }

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

// Lease is a task that a worker holds.
type Lease struct {
	Claim     Claim
	WorkerID  string
	Salt      []byte
	Duration  time.Duration // time until it expires without a heartbeat
	Heartbeat time.Duration
	Timeout   time.Duration // timeout of the attempt
	Progress  []byte        // JSON, of earlier attempts of a job, if this is from Poll; nil if there is none
}

// Poll leases at most limit tasks to a worker, ordered by priority, then age. grouped includes the
// slots of job groups.
func (s *Store) Poll(ctx context.Context, workerID string, lines []Subscription, limit int, grouped bool) ([]Lease, error) {
	a := dbsqlc.PollParams{WorkerID: workerID, NodeID: s.nodeID.Load(), Lim: int32(min(limit, maxFlushItems))}
	for _, l := range lines {
		a.Namespaces = append(a.Namespaces, l.Namespace)
		a.JobNames = append(a.JobNames, l.JobName)
		a.JobsOnly = append(a.JobsOnly, l.JobsOnly)
		a.Pauses = append(a.Pauses, l.Pauses)
		a.StepTimeoutsUs = append(a.StepTimeoutsUs, l.StepTimeout.Microseconds())
		a.LeasesUs = append(a.LeasesUs, l.Lease.Microseconds())
		a.MaxLeasesUs = append(a.MaxLeasesUs, l.MaxLease.Microseconds())
	}
	a.Modes = s.eventModes(a.Namespaces)
	rows, err := s.poll(ctx, a, grouped)
	if err != nil {
		return nil, mapped("poll", err)
	}
	leases := make([]Lease, len(rows))
	for n := range rows {
		leases[n] = leaseOf(&rows[n])
	}
	return leases, nil
}

func leaseOf(r *dbsqlc.PollRow) Lease {
	return Lease{
		Claim: Claim{
			Namespace: r.Namespace, ProcessID: r.ProcessID, TaskID: r.TaskID, TaskType: r.TaskType, Attempt: r.Attempt, Priority: r.Priority,
			FencingToken: r.FencingToken, ScheduledTime: r.ScheduledTime, RunningTime: r.RunningTime, RetryInterval: r.RetryInterval,
			TimerName: r.TimerName, HistoryRange: r.HistoryRange, IdempotencyKey: r.IdempotencyKey, Args: r.Args, Context: r.Context,
			Status: r.Status, PreviousStatus: r.PreviousStatus, StatusChangedTime: r.StatusChangedTime, Detail: r.Detail, CorruptedBy: r.CorruptedBy,
			AuxState: r.AuxState, Metadata: r.Metadata, LastEventID: r.LastEventID, FirstEventID: r.FirstEventID, Kind: r.Kind, CreatedTime: r.CreatedTime, Child: r.Child, Job: r.Job,
		},
		WorkerID: r.WorkerID, Salt: r.Salt, Duration: microseconds(r.LeaseUs), Heartbeat: microseconds(r.BeatUs), Timeout: microseconds(r.TimeoutUs),
		Progress: r.Progress,
	}
}

func (s *Store) poll(ctx context.Context, a dbsqlc.PollParams, grouped bool) ([]dbsqlc.PollRow, error) {
	if !grouped {
		return s.q.Poll(ctx, s.hot, a)
	}
	of, err := s.q.PollGroups(ctx, s.hot, dbsqlc.PollGroupsParams(a))
	rows := make([]dbsqlc.PollRow, len(of))
	for n := range of {
		rows[n] = dbsqlc.PollRow(of[n])
	}
	return rows, err
}

// CountPollable returns for each subscription how many tasks a Poll would find, at most limit.
func (s *Store) CountPollable(ctx context.Context, lines []Subscription, limit int) ([]int, error) {
	a := dbsqlc.CountPollableParams{Lim: int32(limit)}
	for n, l := range lines {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, l.Namespace)
		a.JobNames = append(a.JobNames, l.JobName)
		a.JobsOnly = append(a.JobsOnly, l.JobsOnly)
		a.Pauses = append(a.Pauses, l.Pauses)
	}
	counts := make([]int, len(lines))
	rows, err := s.q.CountPollable(ctx, s.hot, a)
	for _, r := range rows {
		counts[r.Ord] = int(r.N)
	}
	return counts, mapped("count pollable", err)
}

// FindMemberWorkers returns which of the waiting workers, each with one subscription, could take a
// slot of a job group.
func (s *Store) FindMemberWorkers(ctx context.Context, workerIDs []string, lines []Subscription) ([]int, error) {
	var a dbsqlc.FindMemberWorkersParams
	for n, l := range lines {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, l.Namespace)
		a.JobNames = append(a.JobNames, l.JobName)
		a.WorkerIds = append(a.WorkerIds, workerIDs[n])
		a.Pauses = append(a.Pauses, l.Pauses)
	}
	rows, err := s.q.FindMemberWorkers(ctx, s.hot, a)
	wanted := make([]int, len(rows))
	for n, ord := range rows {
		wanted[n] = int(ord)
	}
	return wanted, mapped("list takers", err)
}

// ReleaseTimers moves due tasks of these namespaces to the wait queue of the workers. It returns
// their number by namespace.
func (s *Store) ReleaseTimers(ctx context.Context, namespaces []string) (map[string]int, error) {
	rows, err := s.q.ReleaseTimers(ctx, s.hot, dbsqlc.ReleaseTimersParams{
		Namespaces: namespaces, Modes: s.eventModes(namespaces), Lim: maxFlushItems,
	})
	released := map[string]int{}
	for _, namespace := range rows {
		released[namespace]++
	}
	return released, mapped("release timers", err)
}

// ReadLease returns the task of a lease, as returned by Poll. It returns process.ErrFenced if the
// worker has lost the lease.
func (s *Store) ReadLease(ctx context.Context, t LeaseToken) (Lease, error) {
	r, err := s.q.ReadLease(ctx, s.kept, dbsqlc.ReadLeaseParams{
		Namespace: t.Key.Namespace, ProcessID: t.Key.ProcessID, FencingToken: t.FencingToken, Salt: t.Salt,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Lease{}, process.ErrFenced
	}
	if err != nil {
		return Lease{}, mapped("read lease", err)
	}
	row := dbsqlc.PollRow(r)
	return leaseOf(&row), nil
}

// LeaseToken identifies a lease: an attempt, and a random salt that cannot be guessed.
type LeaseToken struct {
	Key          process.Key
	FencingToken int64
	Salt         []byte
}

// Beat is a heartbeat for one lease.
type Beat struct {
	Token    LeaseToken
	Progress []byte        // JSON; nil if unchanged
	Lease    time.Duration // new duration from now; 0 if unchanged
}

// HeartbeatResult is the result of a heartbeat.
type HeartbeatResult struct {
	Lost         bool // the lease was lost: answers are no longer accepted
	Cancelling   bool
	CancelReason string
	ExpiresTime  time.Time
	Heartbeat    time.Duration
}

// BeatLeases extends leases of a worker. Beats must be sorted by key, so that concurrent calls lock
// rows in the same order.
func (s *Store) BeatLeases(ctx context.Context, workerID string, beats []Beat) ([]HeartbeatResult, error) {
	a := dbsqlc.BeatLeasesParams{WorkerID: workerID}
	for n, b := range beats {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, b.Token.Key.Namespace)
		a.ProcessIds = append(a.ProcessIds, b.Token.Key.ProcessID)
		a.FencingTokens = append(a.FencingTokens, b.Token.FencingToken)
		a.Salts = append(a.Salts, b.Token.Salt)
		a.Progresses = append(a.Progresses, string(b.Progress))
		a.LeasesUs = append(a.LeasesUs, b.Lease.Microseconds())
	}
	all := make([]HeartbeatResult, len(beats))
	for n := range all {
		all[n].Lost = true
	}
	rows, err := s.q.BeatLeases(ctx, s.kept, a)
	for _, r := range rows {
		all[r.Ord] = HeartbeatResult{Cancelling: r.Cancelling, CancelReason: r.CancelReason, ExpiresTime: r.ExpiresTime, Heartbeat: microseconds(r.BeatUs)}
	}
	return all, mapped("heartbeat", err)
}

// ForgetLeases deletes leases of attempts that have ended otherwise.
func (s *Store) ForgetLeases(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetLeases(ctx, s.kept)
	return n >= 1000, mapped("delete old leases", err)
}

// Answered is the stored result of an ended attempt.
type Answered = dbsqlc.LeaseAnsweredRow

// LeaseAnswered returns the stored result of the attempt of an ended lease. It returns
// process.ErrFenced if there is none.
func (s *Store) LeaseAnswered(ctx context.Context, t LeaseToken) (Answered, error) {
	r, err := s.q.LeaseAnswered(ctx, s.kept, dbsqlc.LeaseAnsweredParams{
		Namespace: t.Key.Namespace, ProcessID: t.Key.ProcessID, FencingToken: t.FencingToken,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Answered{}, process.ErrFenced
	}
	return r, mapped("read answer of a lease", err)
}
