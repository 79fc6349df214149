package rpc

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobService serves JobService.
type jobService struct {
	jobs *jobs.Jobs
}

func jobKey(r interface {
	GetNamespace() string
	GetJobId() string
}) process.Key {
	return process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetJobId()}
}

// refuseOwnJob rejects commands for the engine's own jobs, except for the jobs of steps.
func refuseOwnJob(id string) error {
	if _, ok := process.StepJob(id); ok {
		return nil
	}
	return refuseOwn("job_id", id)
}

// refuseRetry rejects a retry of the engine's own jobs. However, the next attempt of a step's job
// can be started early.
func refuseRetry(id string) error {
	if name, ok := process.StepJob(id); ok {
		return &process.InvalidError{Field: "job_id", Message: fmt.Sprintf(
			"is the job of a step (%s), whose run continued without it: retry the run (RetryRun, progressor run retry)",
			name)}
	}
	return refuseOwn("job_id", id)
}

// Enqueue creates a job.
func (s *jobService) Enqueue(
	ctx context.Context, r *progressorv1.EnqueueRequest,
) (*progressorv1.EnqueueResponse, error) {
	if err := refuseOwn("job_id", r.GetJobId()); err != nil {
		return nil, err
	}
	return s.jobs.Enqueue(ctx, r, actorOf(ctx))
}

// EnqueueBatch creates either all jobs or none.
func (s *jobService) EnqueueBatch(
	ctx context.Context, r *progressorv1.EnqueueBatchRequest,
) (*progressorv1.EnqueueBatchResponse, error) {
	for n, j := range r.GetJobs() {
		if err := refuseOwn("jobs["+strconv.Itoa(n)+"].job_id", j.GetJobId()); err != nil {
			return nil, err
		}
	}
	return s.jobs.EnqueueBatch(ctx, r, actorOf(ctx))
}

// GetJob returns a job. It can wait for its end.
func (s *jobService) GetJob(ctx context.Context, r *progressorv1.GetJobRequest) (*progressorv1.GetJobResponse, error) {
	job, err := s.jobs.Get(ctx, jobKey(r), r.GetAwaitEnd().AsDuration())
	return &progressorv1.GetJobResponse{Job: job}, err
}

// ListJobs lists jobs that match a filter.
func (s *jobService) ListJobs(
	ctx context.Context, r *progressorv1.ListJobsRequest,
) (*progressorv1.ListJobsResponse, error) {
	list, next, err := s.jobs.List(ctx, r)
	return &progressorv1.ListJobsResponse{Jobs: list, NextPageToken: next}, err
}

// FetchResult returns the stored result of a job and deletes it.
func (s *jobService) FetchResult(
	ctx context.Context, r *progressorv1.FetchResultRequest,
) (*progressorv1.FetchResultResponse, error) {
	return s.jobs.FetchResult(ctx, jobKey(r), r.GetAwaitEnd().AsDuration())
}

// UpdateJob changes options of a job.
func (s *jobService) UpdateJob(
	ctx context.Context, r *progressorv1.UpdateJobRequest,
) (*progressorv1.UpdateJobResponse, error) {
	if err := refuseOwnJob(r.GetJobId()); err != nil {
		return nil, err
	}
	job, err := s.jobs.Update(ctx, r, actorOf(ctx))
	return &progressorv1.UpdateJobResponse{Job: job}, err
}

// RemoveJob deletes a job that has ended.
func (s *jobService) RemoveJob(
	ctx context.Context, r *progressorv1.RemoveJobRequest,
) (*progressorv1.RemoveJobResponse, error) {
	if name, ok := process.StepJob(r.GetJobId()); ok {
		return nil, &process.InvalidError{Field: "job_id", Message: fmt.Sprintf(
			"is the job of a step (%s): it is removed with its run", name)}
	}
	if err := refuseOwn("job_id", r.GetJobId()); err != nil {
		return nil, err
	}
	return &progressorv1.RemoveJobResponse{}, s.jobs.Remove(ctx, jobKey(r), actorOf(ctx))
}

// CancelJob cancels a job.
func (s *jobService) CancelJob(
	ctx context.Context, r *progressorv1.CancelJobRequest,
) (*progressorv1.CancelJobResponse, error) {
	if err := refuseOwnJob(r.GetJobId()); err != nil {
		return nil, err
	}
	job, err := s.jobs.Cancel(ctx, jobKey(r), r.GetReason(), actorOf(ctx))
	return &progressorv1.CancelJobResponse{Job: job}, err
}

// PutConstraint stores a constraint.
func (s *jobService) PutConstraint(
	ctx context.Context, r *progressorv1.PutConstraintRequest,
) (*progressorv1.PutConstraintResponse, error) {
	c, err := s.jobs.PutConstraint(ctx, r.GetConstraint(), actorOf(ctx))
	return &progressorv1.PutConstraintResponse{Constraint: c}, err
}

// ListConstraints returns the constraints of a namespace with their current use.
func (s *jobService) ListConstraints(
	ctx context.Context, r *progressorv1.ListConstraintsRequest,
) (*progressorv1.ListConstraintsResponse, error) {
	all, err := s.jobs.ListConstraints(ctx, r.GetNamespace())
	return &progressorv1.ListConstraintsResponse{Constraints: all}, err
}

// DeleteConstraint deletes a constraint.
func (s *jobService) DeleteConstraint(
	ctx context.Context, r *progressorv1.DeleteConstraintRequest,
) (*progressorv1.DeleteConstraintResponse, error) {
	return &progressorv1.DeleteConstraintResponse{},
		s.jobs.DeleteConstraint(ctx, r.GetNamespace(), r.GetName(), actorOf(ctx))
}

// GetQueueStats returns the number of jobs of a namespace by name and state.
func (s *jobService) GetQueueStats(
	ctx context.Context, r *progressorv1.GetQueueStatsRequest,
) (*progressorv1.GetQueueStatsResponse, error) {
	return s.jobs.Stats(ctx, r.GetNamespace())
}

// PauseJobs pauses the jobs of one name.
func (s *jobService) PauseJobs(
	ctx context.Context, r *progressorv1.PauseJobsRequest,
) (*progressorv1.PauseJobsResponse, error) {
	paused, err := s.jobs.PauseName(ctx, r.GetNamespace(), r.GetName(), r.GetReason(), actorOf(ctx))
	return &progressorv1.PauseJobsResponse{Paused: paused}, err
}

// ResumeJobs resumes the jobs of one name.
func (s *jobService) ResumeJobs(
	ctx context.Context, r *progressorv1.ResumeJobsRequest,
) (*progressorv1.ResumeJobsResponse, error) {
	was, err := s.jobs.ResumeName(ctx, r.GetNamespace(), r.GetName(), actorOf(ctx))
	return &progressorv1.ResumeJobsResponse{WasPaused: was}, err
}

// ListPausedJobs returns the paused job names of a namespace.
func (s *jobService) ListPausedJobs(
	ctx context.Context, r *progressorv1.ListPausedJobsRequest,
) (*progressorv1.ListPausedJobsResponse, error) {
	list, err := s.jobs.ListPausedNames(ctx, r.GetNamespace())
	return &progressorv1.ListPausedJobsResponse{Paused: list}, err
}

// RetryJob runs an ended job again, or starts the next attempt of a job in backoff now.
func (s *jobService) RetryJob(
	ctx context.Context, r *progressorv1.RetryJobRequest,
) (*progressorv1.RetryJobResponse, error) {
	if refused := refuseRetry(r.GetJobId()); refused != nil {
		if _, step := process.StepJob(r.GetJobId()); !step {
			return nil, refused
		}
		job, err := s.jobs.EndBackoff(ctx, jobKey(r), actorOf(ctx))
		if err != nil || job == nil {
			return nil, cmp.Or(err, refused)
		}
		return &progressorv1.RetryJobResponse{Job: job}, nil
	}
	job, err := s.jobs.Retry(ctx, jobKey(r), r.GetClearSuccesses(), actorOf(ctx))
	return &progressorv1.RetryJobResponse{Job: job}, err
}
