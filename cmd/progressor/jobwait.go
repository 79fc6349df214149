package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// jobLook is how long one request waits for the end of a job: on a terminal its progress is shown as often.
	jobLook  = 500 * time.Millisecond
	jobAwait = 10 * time.Second
)

// endFlags follow a job or a run, which the command names, to its end.
type endFlags struct {
	Wait        bool          `help:"Wait for the end of the ${what}; on a terminal its progress is shown. Ctrl-C ends the wait, not the ${what}."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"How long --wait waits at most. Default: until the end."`
}

// Validate refuses a limit of nothing.
func (f endFlags) Validate() error {
	switch {
	case f.WaitTimeout < 0:
		return fmt.Errorf("--wait-timeout is %s: want more than 0s", f.WaitTimeout)
	case f.WaitTimeout > 0 && !f.Wait:
		return errors.New("--wait-timeout goes with --wait")
	}
	return nil
}

// waiting is the context of the wait.
func (f endFlags) waiting(a *app) (context.Context, context.CancelFunc) {
	ctx, cancel := a.interruptible()
	if f.WaitTimeout == 0 {
		return ctx, cancel
	}
	limited, cancelLimit := context.WithTimeout(ctx, f.WaitTimeout)
	return limited, func() { cancelLimit(); cancel() }
}

// followJob waits for the end of a job, shows it, and tells by the exit code how it went.
func (f endFlags) followJob(a *app, flags clientFlags, job jobArgs) error {
	ctx, cancel := f.waiting(a)
	defer cancel()
	line := newTerminalLine(a)
	wait := jobAwait
	if line.w != nil {
		wait = jobLook
	}
	req := &progressorv1.GetJobRequest{Namespace: job.NS, JobId: job.ID, AwaitEnd: durationpb.New(wait)}
	j, err := flags.retryingClient().AwaitJob(ctx, req, func(j *progressorv1.Job) error {
		if line.w != nil {
			line.write(jobLine(j))
		}
		return nil
	})
	line.end()
	switch {
	case err != nil:
		return interruptedWait(ctx, "job", job.NS, job.ID, f.WaitTimeout, err)
	case flags.json():
		err = printMessage(a.Stdout, &progressorv1.GetJobResponse{Job: j})
	default:
		err = printJob(a, j)
	}
	if err != nil {
		return err
	}
	return jobOutcome(j)
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
