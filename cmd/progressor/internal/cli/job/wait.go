package job

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// jobPoll is how long a request waits for the end of a job. It is also the interval at which a
	// terminal shows the progress.
	jobPoll  = 500 * time.Millisecond
	jobAwait = 10 * time.Second
)

// awaitEnd waits for the end of a job. On a terminal, it shows the progress.
func awaitEnd(a *cli.App, f cli.EndFlags, flags cli.ClientFlags, job jobArgs) (*progressorv1.Job, error) {
	ctx, cancel := f.Waiting(a)
	defer cancel()
	line := output.NewTerminalLine(a.Stderr, a.Terminal)
	wait := jobAwait
	if line.Enabled() {
		wait = jobPoll
	}
	req := &progressorv1.GetJobRequest{Namespace: job.NS, JobId: job.ID, AwaitEnd: durationpb.New(wait)}
	j, err := flags.RetryingClient().AwaitJob(ctx, req, func(j *progressorv1.Job) error {
		if line.Enabled() {
			line.Write(jobLine(j))
		}
		return nil
	})
	line.End()
	if err != nil {
		return nil, cli.InterruptedWait(ctx, "job", job.NS, job.ID, f.WaitTimeout, err)
	}
	return j, nil
}

// followJob waits for the end of a job, shows it, and returns an error for the exit code.
func followJob(a *cli.App, f cli.EndFlags, flags cli.ClientFlags, job jobArgs) error {
	j, err := awaitEnd(a, f, flags, job)
	switch {
	case err != nil:
		return err
	case flags.JSON():
		err = output.PrintMessage(a.Stdout, &progressorv1.GetJobResponse{Job: j})
	default:
		err = printJob(a, j)
	}
	if err != nil {
		return err
	}
	return jobOutcome(j)
}

// maxSummary limits the summary, so that a line has fewer than 100 characters.
const maxSummary = 40

func jobLine(j *progressorv1.Job) string {
	percent := j.GetProgress().GetPercent()
	if j.GetState() == progressorv1.JobState_JOB_STATE_SUCCEEDED {
		percent = 100
	}
	line := fmt.Sprintf("%s %3.0f %%  %s", output.Bar(min(max(percent, 0), 100)/100, output.ProgressWidth), percent,
		output.Enum(j.GetState()))
	if j.GetAttempt() > 1 {
		line += fmt.Sprintf(", attempt %d", j.GetAttempt())
	}
	note := cmp.Or(j.GetProgress().GetSummary(), j.GetBlockedOn())
	if note = output.OneLine(note); note != "" {
		if cut := []rune(note); len(cut) > maxSummary {
			note = string(cut[:maxSummary]) + "…"
		}
		line += "  " + note
	}
	return line
}
