package client

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// AwaitJob waits until a job has ended and returns it. It calls seen with every response. The first
// response arrives at once, each of the others after at most req.await_end (default: 30 s). If seen
// returns an error, AwaitJob returns that error. Requests are retried as Retry describes. The
// attempts are counted separately for each request. If ctx ends first, AwaitJob returns an error.
func (c *Client) AwaitJob(
	ctx context.Context, req *progressorv1.GetJobRequest, seen func(*progressorv1.Job) error,
) (*progressorv1.Job, error) {
	req = proto.CloneOf(req)
	wait := waitOf(req.GetAwaitEnd())
	req.AwaitEnd = nil
	return awaitEnd(ctx, c.retry, func() (*progressorv1.Job, error) {
		resp, err := c.Job.GetJob(ctx, req)
		return resp.GetJob(), err
	}, func(job *progressorv1.Job) (ended bool, err error) {
		req.AwaitEnd = wait
		switch job.GetState() {
		case progressorv1.JobState_JOB_STATE_SUCCEEDED,
			progressorv1.JobState_JOB_STATE_FAILED,
			progressorv1.JobState_JOB_STATE_CANCELLED:
			ended = true
		default:
		}
		return ended, seen(job)
	})
}

// AwaitRun is like AwaitJob, for a run of a flow.
func (c *Client) AwaitRun(
	ctx context.Context, req *progressorv1.GetRunRequest, seen func(*progressorv1.Run) error,
) (*progressorv1.Run, error) {
	req = proto.CloneOf(req)
	wait := waitOf(req.GetAwaitEnd())
	req.AwaitEnd = nil
	return awaitEnd(ctx, c.retry, func() (*progressorv1.Run, error) {
		resp, err := c.Flow.GetRun(ctx, req)
		return resp.GetRun(), err
	}, func(run *progressorv1.Run) (ended bool, err error) {
		req.AwaitEnd = wait
		return run.GetFinishedTime() != nil, seen(run)
	})
}

func waitOf(d *durationpb.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(awaitStep)
	}
	return d
}

// awaitEnd calls ask until look reports the end or an error.
func awaitEnd[T any](
	ctx context.Context, r Retry, ask func() (T, error), look func(T) (ended bool, err error),
) (T, error) {
	for {
		now, err := repeat(ctx, r, true, ask)
		if err != nil {
			return now, err
		}
		if ended, err := look(now); ended || err != nil {
			return now, err
		}
	}
}
