package insight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// MaxExplainedTasks is the maximum number of ended tasks, and of waiting tasks, that an explanation
// reads.
const MaxExplainedTasks = 1000

// never is the time that queries return for columns without a value.
var never = time.Unix(0, 0).UTC()

// Explained is the input of an explanation, read in one snapshot. It does not contain the
// configuration of the namespace.
type Explained struct {
	Process storage.Process
	Timers  []storage.Timer
	State   explain.State
}

// ExplainedRequest selects what ReadExplained reads.
type ExplainedRequest struct {
	Key         process.Key
	ZombieAfter time.Duration        // a node without a heartbeat for this long is dead
	Policy      process.ZombiePolicy // the policy of the namespace
	Journal     bool                 // also read the journal of a durable function
}

// ReadExplained reads a process and its tasks. It returns process.ErrProcessNotFound if there is
// none.
func ReadExplained(ctx context.Context, s *storage.Store, r ExplainedRequest) (Explained, error) {
	var e Explained
	key := r.Key
	err := s.Read(ctx, "explain "+key.String(), func(ctx context.Context, tx pgx.Tx) (err error) {
		e = Explained{}
		if e.Process, err = dbsqlc.New().GetProcess(ctx, tx, dbsqlc.GetProcessParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID,
		}); err != nil {
			return err
		}
		if e.Timers, err = dbsqlc.New().GetTimers(ctx, tx, dbsqlc.GetTimersParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID,
		}); err != nil {
			return err
		}
		if e.Process.Kind == process.JobKind {
			if e.State.Job, err = readJob(ctx, tx, key, r.Policy); err != nil {
				return err
			}
		}
		if e.Process.Kind == process.FlowKind {
			if e.State.Run, err = readRun(ctx, tx, key); err != nil {
				return err
			}
		}
		if r.Journal && e.Process.Kind == "" {
			if e.State.Function, err = readFunction(ctx, tx, &e.Process); err != nil {
				return err
			}
		}
		if e.State.Suspended, err = readSuspended(ctx, tx, &e.Process); err != nil {
			return err
		}
		return readTasks(ctx, tx, key, r.ZombieAfter, &e.State)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return e, process.ErrProcessNotFound
	}
	if err != nil {
		return e, err
	}
	p := &e.Process
	e.State.Process.Key, e.State.Process.Status, e.State.Process.CreatedTime, e.State.Process.StatusChanged = key,
		p.Status, p.CreatedTime, p.StatusChangedTime
	if p.CancelReason != nil {
		e.State.Process.Cancel.Reason = *p.CancelReason
	}
	if p.Detail != nil {
		e.State.Process.Detail = *p.Detail
	}
	if p.CorruptedBy != nil {
		e.State.Process.CorruptedBy = *p.CorruptedBy
	}
	return e, nil
}

// maxSuspensions is the maximum number of commands that an explanation reads to find out when a
// process was suspended.
const maxSuspensions = 100

// readSuspended returns when a process was suspended until it was resumed or ended. It omits older
// suspensions whose end is not known.
func readSuspended(ctx context.Context, tx pgx.Tx, p *storage.Process) (list []explain.Suspended, err error) {
	rows, err := dbsqlc.New().ExplainSuspensions(ctx, tx, dbsqlc.ExplainSuspensionsParams{
		Namespace: p.Namespace, ProcessID: p.ProcessID, Since: p.CreatedTime, Lim: maxSuspensions,
	})
	end := time.Time{}
	if p.Status.Ended() {
		end = p.StatusChangedTime
	}
	for _, r := range rows { // newest first
		switch {
		case !r.Suspended:
			end = r.Time
		case !end.IsZero():
			list = append(list, explain.Suspended{From: r.Time, To: end, Reason: r.Reason})
			end = time.Time{}
		}
	}
	slices.Reverse(list)
	return list, err
}

func readJob(ctx context.Context, tx pgx.Tx, key process.Key, policy process.ZombiePolicy) (*explain.Job, error) {
	r, err := dbsqlc.New().ExplainJob(ctx, tx, dbsqlc.ExplainJobParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, ZombieError: policy == process.ZombieError,
	})
	if err != nil {
		return nil, err
	}
	j := &explain.Job{
		Name: r.Name, MaxRetry: r.MaxRetry, Failed: r.Failed, Takeovers: r.Takeovers, MaxTakeovers: r.MaxTakeovers,
		RunStatus: r.RunStatus,
	}
	return j, nil
}

func readRun(ctx context.Context, tx pgx.Tx, key process.Key) (*explain.Run, error) {
	runID := strings.TrimPrefix(key.ProcessID, process.FlowPrefix)
	row, err := dbsqlc.New().ExplainRun(ctx, tx, dbsqlc.ExplainRunParams{Namespace: key.Namespace, RunID: runID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r := &explain.Run{
		Status: string(row.Status), Attempt: row.Attempt, BlockedOn: row.BlockedOn, CancelReason: row.CancelReason,
		Failure: row.Failure,
	}
	steps, err := dbsqlc.New().ExplainSteps(ctx, tx, dbsqlc.ExplainStepsParams{
		Namespace: key.Namespace, RunID: runID, Lim: explain.OpenSteps + 1,
	})
	for _, f := range steps {
		p := explain.Step{
			ID: f.StepID, Index: f.Index, Undoing: f.Undoing, Wait: f.Wait, Title: f.Title, Assignees: f.Assignees,
			Status:   process.Status(f.Status),
			Process:  process.Key{Namespace: f.ProcessNamespace, ProcessID: f.ProcessID},
			WaitsFor: process.WaitsFor(f.WaitsFor), Scheduled: f.ScheduledTime, Attempt: f.Attempt, Failure: f.Failure,
			WorkerID: f.WorkerID,
		}
		if f.DueTime != nil {
			p.Due = *f.DueTime
		}
		r.Steps = append(r.Steps, p)
	}
	if r.More = len(r.Steps) > explain.OpenSteps; r.More {
		r.Steps = r.Steps[:explain.OpenSteps]
	}
	return r, err
}

// readFunction reads the journal of a durable function. It returns nil for any other process.
func readFunction(ctx context.Context, tx pgx.Tx, p *storage.Process) (*explain.Function, error) {
	first, err := storage.ReadRange(ctx, tx, p, storage.HistoryRange{Limit: 1}, explain.MaxEventBytes)
	if err != nil || len(first) == 0 || !explain.IsFunction(first[0].Payload) {
		return nil, err
	}
	newest, err := storage.ReadRange(ctx, tx, p, storage.HistoryRange{Limit: explain.MaxEvents, Backward: true},
		explain.MaxEventBytes)
	events := []explain.Event{{ID: p.FirstEventID, Payload: first[0].Payload}}
	for _, event := range slices.Backward(newest) {
		if event.EventID > p.FirstEventID {
			events = append(events, explain.Event{ID: event.EventID, Payload: event.Payload})
		}
	}
	return explain.ReadJournal(events), err
}

func readTasks(ctx context.Context, tx pgx.Tx, key process.Key, zombieAfter time.Duration, state *explain.State) error {
	nodes, err := dbsqlc.New().ExplainNodes(ctx, tx, dbsqlc.ExplainNodesParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, Lim: explain.RunningLimit,
		ZombieAfterUs: zombieAfter.Microseconds(),
	})
	if err != nil {
		return err
	}
	state.Now = nodes.Now
	if !nodes.CancelDeadline.Equal(never) {
		state.Process.Cancel.Deadline = nodes.CancelDeadline
	}
	state.Namespace = explain.Namespace{
		Running: int(nodes.Running), Nodes: int(nodes.Nodes), Takers: int(nodes.Takers), ZombieAfter: zombieAfter,
	}
	ended, err := dbsqlc.New().ExplainEnded(ctx, tx, dbsqlc.ExplainEndedParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, Lim: MaxExplainedTasks,
	})
	if err != nil {
		return err
	}
	for _, r := range ended {
		t := explain.Task{
			ID: r.TaskID, Type: r.TaskType, Status: r.Status, Attempt: r.Attempt, Scheduled: r.ScheduledTime,
			Finished:      r.FinishedTime,
			RetryInterval: r.RetryInterval, TimerName: r.TimerName, Reason: r.Reason, Message: r.Message,
		}
		if !r.RunningTime.Equal(never) {
			t.Running = r.RunningTime
		}
		state.Ended = append(state.Ended, t)
	}
	state.Truncated = len(ended) == MaxExplainedTasks
	waiting, err := dbsqlc.New().ExplainWaiting(ctx, tx, dbsqlc.ExplainWaitingParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, Lim: MaxExplainedTasks,
	})
	if err != nil {
		return err
	}
	for _, r := range waiting {
		t := explain.Task{
			ID: r.TaskID, Type: r.TaskType, Status: process.TaskStatusWaiting, WaitsFor: r.WaitsFor, Attempt: r.Attempt,
			Scheduled:     r.ScheduledTime,
			RetryInterval: r.RetryInterval, TimerName: r.TimerName, Reason: r.Reason, Message: r.Message,
		}
		if !r.RunningTime.Equal(never) {
			t.Running = r.RunningTime
		}
		state.Waiting = append(state.Waiting, t)
	}
	if err := readRunning(ctx, tx, key, zombieAfter, state); err != nil {
		return err
	}
	return readFailedAttempts(ctx, tx, key, state)
}

// readRunning reads the running task of a process.
func readRunning(
	ctx context.Context, tx pgx.Tx, key process.Key, zombieAfter time.Duration, state *explain.State,
) error {
	running, err := dbsqlc.New().ExplainRunning(ctx, tx, dbsqlc.ExplainRunningParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, ZombieAfterUs: zombieAfter.Microseconds(),
	})
	if err != nil {
		return err
	}
	for _, r := range running {
		state.Running = &explain.Running{
			Task: explain.Task{
				ID: r.TaskID, Type: r.TaskType, Status: process.TaskStatusRunning, Attempt: r.Attempt,
				Scheduled: r.ScheduledTime, Running: r.RunningTime,
				RetryInterval: r.RetryInterval, TimerName: r.TimerName,
			},
			NodeID: r.NodeID, Address: r.Address, Alive: r.Alive, Draining: r.Draining, Deadline: r.Deadline,
		}
		if !r.NodeBeatTime.Equal(never) {
			state.Running.Beat = r.NodeBeatTime
		}
		if r.WorkerID != "" {
			state.Running.Lease = &explain.Lease{
				WorkerID: r.WorkerID, Expires: r.ExpiresTime, Ended: r.IsEnded,
			}
			if !r.BeatTime.Equal(never) {
				state.Running.Lease.Beat = r.BeatTime
			}
		}
	}
	return nil
}

// readFailedAttempts adds the failed attempts to the tasks of a process.
func readFailedAttempts(ctx context.Context, tx pgx.Tx, key process.Key, state *explain.State) error {
	tasks := map[int64]*explain.Task{}
	for n := range state.Ended {
		tasks[state.Ended[n].ID] = &state.Ended[n]
	}
	for n := range state.Waiting {
		tasks[state.Waiting[n].ID] = &state.Waiting[n]
	}
	if state.Running != nil {
		tasks[state.Running.ID] = &state.Running.Task
	}
	rows, err := dbsqlc.New().ListFailedAttempts(ctx, tx, dbsqlc.ListFailedAttemptsParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID, TaskIds: slices.Collect(maps.Keys(tasks)),
	})
	for _, r := range rows {
		t := tasks[r.TaskID]
		t.Failures = append(t.Failures, explain.Failure{
			Attempt: r.Attempt, Reason: r.Reason, NodeID: r.NodeID, Running: r.RunningTime, Failed: r.FailedTime,
		})
	}
	return err
}
