package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// ProgressJSON returns p as it is stored, without spaces, or nil if p is nil.
func ProgressJSON(p *progressorv1.Progress) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	p = proto.CloneOf(p)
	p.Summary = Plain(p.GetSummary())
	if p.Details != nil {
		cleanStruct(p.GetDetails())
	}
	return MessageJSON(p)
}

// MessageJSON returns a message as JSON without spaces. protojson writes spaces in some builds, and
// sizes are limited.
func MessageJSON(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// JobOptions reads the stored options of a job. Fields that are not set have their defaults.
func JobOptions(text []byte) (*progressorv1.JobOptions, error) {
	o := &progressorv1.JobOptions{}
	if len(text) > 0 {
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, o); err != nil {
			return nil, fmt.Errorf("options of a job: %w", err)
		}
	}
	return o, nil
}

// JobFailure is a failed attempt as it is stored.
type JobFailure struct {
	Attempt  int32           `json:"attempt"`
	WorkerID string          `json:"workerId"`
	Time     time.Time       `json:"time"`
	Takeover bool            `json:"takeover"` // the worker was lost; no retry was used up
	Failure  json.RawMessage `json:"failure"`

	// Only in the oldest stored failure: how many failures came before it, and how many of those
	// were takeovers.
	Omitted          int32 `json:"omitted"`
	OmittedTakeovers int32 `json:"omittedTakeovers"`
}

// JobFailures reads the failed attempts of a job, oldest first.
func JobFailures(text []byte) ([]JobFailure, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var all []JobFailure
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("failures of a job: %w", err)
	}
	return all, nil
}

func failures(text []byte) ([]*progressorv1.Failure, error) {
	all, err := JobFailures(text)
	list := make([]*progressorv1.Failure, 0, len(all))
	for _, f := range all {
		failure, err := Failure(f.Failure)
		if err != nil {
			return nil, err
		}
		failure = cmp.Or(failure, &progressorv1.Failure{})
		failure.Attempt, failure.WorkerId, failure.FailedTime, failure.Takeover = f.Attempt, f.WorkerID,
			timestamppb.New(f.Time), f.Takeover
		list = append(list, failure)
	}
	return list, err
}

// LeasedJob returns the job of a lease as its worker receives it, with the progress of its earlier
// attempts, or nil if the process is not a job.
func LeasedJob(l *storage.Lease) (*progressorv1.Job, error) {
	c := &l.Claim
	row, ok := jobs.JobOf(c)
	if !ok {
		return nil, nil
	}
	m := &progressorv1.Job{
		Namespace: c.Namespace, JobId: c.ProcessID, Name: row.Name, State: progressorv1.JobState_JOB_STATE_RUNNING,
		Attempt: c.Attempt, WorkerId: l.WorkerID,
		CreatedTime: timestamppb.New(c.CreatedTime), RunTime: timestamppb.New(c.ScheduledTime),
		RunningTime: timestamppb.New(c.RunningTime),
	}
	var err error
	if m.Args, err = Value(c.Args); err != nil {
		return nil, err
	}
	if m.Failures, err = failures(row.Failures); err != nil {
		return nil, err
	}
	if m.Options, err = JobOptions(row.Options); err != nil {
		return nil, err
	}
	m.Options.Priority, m.Options.Timeout = c.Priority, durationpb.New(row.Timeout)
	if m.Options.Tags, err = tags(row.Tags); err != nil {
		return nil, err
	}
	if m.Options.Metadata, err = Struct(c.Metadata); err != nil {
		return m, err
	}
	m.Progress, err = read[progressorv1.Progress]("progress of a job", l.Progress)
	return m, err
}

// Job returns a job as clients see it.
func Job(r *jobs.Row) (*progressorv1.Job, error) {
	m := &progressorv1.Job{
		Namespace: r.Namespace, JobId: r.ProcessID, Name: r.Name, State: JobState(r), Attempt: r.Attempt,
		WorkerId:    r.WorkerID,
		CreatedTime: timestamppb.New(r.CreatedTime), RunTime: timestamppb.New(r.ScheduledTime),
		UpdatedTime: timestamppb.New(r.UpdatedTime),
		RunningTime: timestampOf(cmp.Or(r.RunningTime, r.GroupRunningTime)), FinishedTime: timestampOf(r.FinishedTime),
		CancelRequestedTime: timestampOf(r.CancelRequestedTime),
		CancelReason:        r.CancelReason, BlockedOn: blockedOn(r), FairnessKey: r.FairnessKey,
	}
	if r.StatusChangedTime.After(r.UpdatedTime) {
		m.UpdatedTime = timestamppb.New(r.StatusChangedTime)
	}
	if r.LeaseExpiresTime.Unix() > 0 {
		m.LeaseExpiresTime = timestamppb.New(r.LeaseExpiresTime)
	}
	if err := jobJSON(m, r); err != nil {
		return m, err
	}
	if err := workerRuns(m, r); err != nil {
		return m, err
	}
	if r.Begun && !r.Cancelling && m.GetBlockedOn() == "" {
		m.BlockedOn = noWorkerRuns(m.GetWorkerRuns())
	}
	return m, nil
}

// noWorkerRuns describes a job for several workers that no worker runs at the moment. It returns ""
// if a worker runs it.
func noWorkerRuns(runs []*progressorv1.WorkerRun) string {
	waiting := 0
	for _, r := range runs {
		switch r.GetState() {
		case progressorv1.JobState_JOB_STATE_RUNNING:
			return ""
		case progressorv1.JobState_JOB_STATE_AVAILABLE, progressorv1.JobState_JOB_STATE_RETRYABLE:
			waiting++
		}
	}
	return fmt.Sprintf("workers: no worker runs the job; %d of %d places wait for a worker", waiting, len(runs))
}

// jobJSON sets the fields that are stored as JSON.
func jobJSON(m *progressorv1.Job, r *jobs.Row) (err error) {
	if m.Args, err = Value(r.Args); err != nil {
		return err
	}
	if m.Result, err = Value(r.Result); err != nil {
		return err
	}
	if m.Failures, err = failures(r.Failures); err != nil {
		return err
	}
	if m.Options, err = JobOptions(r.Options); err != nil {
		return err
	}
	m.Options.Priority, m.Options.Timeout = r.Priority, durationpb.New(r.Timeout)
	if m.Options.Metadata, err = Struct(r.Metadata); err != nil {
		return err
	}
	if m.Options.Tags, err = tags(r.Tags); err != nil {
		return err
	}
	m.Progress, err = read[progressorv1.Progress]("progress of a job", r.Progress)
	return err
}

// tags reads the column tags of a job.
func tags(text []byte) (list []string, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("tags of a job: %w", err)
	}
	return list, nil
}

// workerRun is one worker's run of a job, as GetJobs returns it.
type workerRun struct {
	WorkerID     string          `json:"workerId"`
	State        string          `json:"state"`
	Attempts     int32           `json:"attempts"`
	RunningTime  *time.Time      `json:"runningTime"`
	FinishedTime *time.Time      `json:"finishedTime"`
	Failure      json.RawMessage `json:"failure"`
	Result       *string         `json:"result"` // JSON; nil once the job has all results
}

// workerRuns sets the worker runs of a job that several workers run. After the job has ended, its
// running_time is the earliest start of these runs, and its result contains their results.
func workerRuns(m *progressorv1.Job, row *jobs.Row) error {
	if len(row.Runs) == 0 {
		return nil
	}
	var all []workerRun
	if err := json.Unmarshal(row.Runs, &all); err != nil {
		return fmt.Errorf("worker runs of a job: %w", err)
	}
	for _, r := range all {
		run := &progressorv1.WorkerRun{
			WorkerId:    r.WorkerID,
			State:       progressorv1.JobState(progressorv1.JobState_value["JOB_STATE_"+strings.ToUpper(r.State)]),
			Attempts:    r.Attempts,
			RunningTime: timestampOf(r.RunningTime), FinishedTime: timestampOf(r.FinishedTime),
			Result: m.GetResult().GetStructValue().GetFields()[r.WorkerID],
		}
		first := m.RunningTime == nil || r.RunningTime != nil && r.RunningTime.Before(m.GetRunningTime().AsTime())
		if r.RunningTime != nil && !row.Grouped && first {
			m.RunningTime = run.GetRunningTime()
		}
		var err error
		if string(r.Failure) != "null" {
			if run.Failure, err = Failure(r.Failure); err != nil {
				return err
			}
		}
		if r.Result != nil {
			if run.Result, err = Value([]byte(*r.Result)); err != nil {
				return err
			}
		}
		m.WorkerRuns = append(m.WorkerRuns, run)
	}
	return nil
}

// JobState derives the state of a job from the status of the process, from the table that contains
// its task, and from what the task waits for.
func JobState(r *jobs.Row) progressorv1.JobState {
	switch r.Status {
	case process.StatusCompleted:
		return progressorv1.JobState_JOB_STATE_SUCCEEDED
	case process.StatusError:
		return progressorv1.JobState_JOB_STATE_FAILED
	case process.StatusCancelled:
		return progressorv1.JobState_JOB_STATE_CANCELLED
	}
	switch {
	case r.StoredIn == "running" && r.Cancelling:
		return progressorv1.JobState_JOB_STATE_CANCEL_REQUESTED
	case r.StoredIn == "running":
		return progressorv1.JobState_JOB_STATE_RUNNING
	case r.Begun && r.Cancelling: // several workers run it, and its members exist
		return progressorv1.JobState_JOB_STATE_CANCEL_REQUESTED
	case r.GroupRunningTime != nil:
		return progressorv1.JobState_JOB_STATE_RUNNING
	case process.WaitsFor(r.WaitsFor) == process.WaitsForTime && r.Attempt > 0:
		return progressorv1.JobState_JOB_STATE_RETRYABLE
	case process.WaitsFor(r.WaitsFor) == process.WaitsForTime:
		return progressorv1.JobState_JOB_STATE_SCHEDULED
	}
	return progressorv1.JobState_JOB_STATE_AVAILABLE
}

// blockedOn returns why a waiting job does not run. It is "" if the job only waits for its turn.
func blockedOn(r *jobs.Row) string {
	if r.StoredIn != "schedule" {
		return ""
	}
	switch process.WaitsFor(r.WaitsFor) {
	case process.WaitsForTime:
		at := r.ScheduledTime.UTC().Format(time.RFC3339Nano)
		if tries := Unreached(r); tries != "" {
			return "processor: not reached " + tries + ", next try at " + at
		}
		return "time: " + at
	case process.WaitsForOperator:
		return "operator: suspended"
	case process.WaitsForConstraint:
		name, key, _ := strings.Cut(r.Line, "=")
		return strings.TrimSpace("constraint " + name + " " + key)
	}
	return ""
}

// Unreached returns how often the processor of a waiting job was not reached, and the reason. It
// returns "" if the job does not wait for its processor.
func Unreached(r *jobs.Row) string {
	u, err := jobs.UnreachedOf(r.Unreached)
	switch {
	case err != nil || u.Attempt != r.Attempt+1:
		return ""
	case u.Tries == 1:
		return "once (" + u.Cause + ")"
	}
	return fmt.Sprintf("%d times (%s)", u.Tries, u.Cause)
}
