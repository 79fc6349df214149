package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// jobLook is how long one request waits for the end of a job: on a terminal its progress is shown as often.
	jobLook  = 500 * time.Millisecond
	jobAwait = 10 * time.Second
)

// jobWaitFlags follow a job to its end.
type jobWaitFlags struct {
	Wait        bool          `help:"Wait for the end of the job; on a terminal with a bar that shows its progress. Ctrl-C ends the wait, not the job."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"How long --wait waits at most. Default: until the end."`
}

// follow waits for the end of a job, shows it, and tells by the exit code how it went.
func (f jobWaitFlags) follow(a *app, flags clientFlags, namespace, id string) error {
	ctx, cancel := a.interruptible()
	defer cancel()
	if f.WaitTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.WaitTimeout)
		defer cancel()
	}
	line := newTerminalLine(a)
	job, err := awaitJob(ctx, flags.client(), namespace, id, &line)
	line.end()
	switch {
	case err != nil:
		return interruptedWait(ctx, "job", namespace, id, f.WaitTimeout, err)
	case flags.json():
		err = printMessage(a.Stdout, &progressorv1.GetJobResponse{Job: job})
	default:
		err = printJob(a, job)
	}
	if err != nil {
		return err
	}
	return jobOutcome(job)
}

// interruptedWait is the error of a wait that did not see the end of a job or a run; err where nothing has interrupted it.
func interruptedWait(ctx context.Context, what, namespace, id string, limit time.Duration, err error) error {
	get := fmt.Sprintf("progressor %s get %s %s", what, shellWord(namespace), shellWord(id))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), limit > 0 && connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the engine may look at the clock first
		return &codedError{code: exitTimeout, err: fmt.Errorf("%s %s is not at its end after %s; it goes on", what, id, limit), next: get}
	case errors.Is(ctx.Err(), context.Canceled):
		return &codedError{code: exitInterrupted, err: fmt.Errorf("the wait was interrupted: the %s goes on", what), next: get}
	}
	return err
}

func awaitJob(ctx context.Context, c *client.Client, namespace, id string, line *terminalLine) (*progressorv1.Job, error) {
	wait := jobAwait
	if line.w != nil {
		wait = jobLook
	}
	for {
		resp, err := c.Job.GetJob(ctx, &progressorv1.GetJobRequest{Namespace: namespace, JobId: id, AwaitEnd: durationpb.New(wait)})
		if err != nil {
			return nil, err
		}
		job := resp.GetJob()
		if line.w != nil {
			line.write(jobLine(job))
		}
		switch job.GetState() {
		case progressorv1.JobState_JOB_STATE_SUCCEEDED, progressorv1.JobState_JOB_STATE_FAILED, progressorv1.JobState_JOB_STATE_CANCELLED:
			return job, nil
		default:
		}
	}
}

// maxSummary is how much of a summary a line shows, which has less than 100 characters.
const maxSummary = 40

func jobLine(j *progressorv1.Job) string {
	percent := j.GetProgress().GetPercent()
	if j.GetState() == progressorv1.JobState_JOB_STATE_SUCCEEDED {
		percent = 100
	}
	line := fmt.Sprintf("%s %3.0f %%  %s", bar(min(max(percent, 0), 100)/100, bulkBarWidth), percent, shortEnum(j.GetState()))
	if j.GetAttempt() > 1 {
		line += fmt.Sprintf(", attempt %d", j.GetAttempt())
	}
	note := j.GetProgress().GetSummary()
	if note == "" {
		note = j.GetBlockedOn()
	}
	if note = oneLine(note); note != "" {
		if cut := []rune(note); len(cut) > maxSummary {
			note = string(cut[:maxSummary]) + "…"
		}
		line += "  " + note
	}
	return line
}
