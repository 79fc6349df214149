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
	// jobLook is how long a request waits for the end of a job. A terminal shows the progress at
	// the same interval.
	jobLook  = 500 * time.Millisecond
	jobAwait = 10 * time.Second
)

// endFlags are the flags to wait for the end of a job or a run. The command sets what.
type endFlags struct {
	Wait        bool          `help:"Wait for the end of the ${what}, on a terminal with its progress. Ctrl-C ends the wait, not the ${what}."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"Maximum duration of --wait. Default: until the end."`
}

// Validate checks the limit of the wait.
func (f endFlags) Validate() error {
	switch {
	case f.WaitTimeout < 0:
		return fmt.Errorf("--wait-timeout: must be more than 0s (got %s)", f.WaitTimeout)
	case f.WaitTimeout > 0 && !f.Wait:
		return errors.New("--wait-timeout requires --wait")
	}
	return nil
}

// waiting returns the context of the wait.
func (f endFlags) waiting(a *app) (context.Context, context.CancelFunc) {
	ctx, cancel := a.interruptible()
	if f.WaitTimeout == 0 {
		return ctx, cancel
	}
	limited, cancelLimit := context.WithTimeout(ctx, f.WaitTimeout)
	return limited, func() { cancelLimit(); cancel() }
}

// followJob waits for the end of a job, shows it, and returns an error for the exit code.
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

// interruptedWait returns the error of a wait that ended before the job or run. It returns err if
// the wait was not interrupted.
func interruptedWait(ctx context.Context, what, namespace, id string, limit time.Duration, err error) error {
	get := fmt.Sprintf("progressor %s get %s %s", what, shellWord(namespace), shellWord(id))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), limit > 0 && connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the engine's timeout may be first
		return &codedError{code: exitTimeout, err: fmt.Errorf("%s %s has not ended after %s; it continues", what, id, limit), next: get}
	case errors.Is(ctx.Err(), context.Canceled):
		return &codedError{code: exitInterrupted, err: fmt.Errorf("the wait was interrupted; the %s continues", what), next: get}
	}
	return err
}

// maxSummary limits the summary in a line, which has less than 100 characters.
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
