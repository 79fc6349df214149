package job

import (
	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type jobRemoveCmd struct {
	jobArgs
	cli.ClientFlags
}

func (jobRemoveCmd) Help() string {
	return `Remove deletes a job that has ended, with its result and failures. Its events stay. A job that has
not ended cannot be removed: cancel it first.

    progressor job remove echo mail-1
    progressor job cancel echo mail-2
    progressor job remove echo mail-2`
}

func (c *jobRemoveCmd) Run(a *cli.App) error {
	req := &progressorv1.RemoveJobRequest{Namespace: c.NS, JobId: c.ID}
	err := cli.Ask(a, c.OutputFlag, c.Client().Job.RemoveJob, req, func(*progressorv1.RemoveJobResponse) error {
		return output.PrintFields(a.Stdout, output.Field{"job", output.OneLine(c.NS + "/" + c.ID)},
			output.Field{"state", "removed"})
	})
	if client.Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_STATUS {
		return &cli.Advised{Err: err,
			Next: "progressor job cancel " + output.ShellWord(c.NS) + " " + output.ShellWord(c.ID)}
	}
	return ofJob(c.jobArgs, err)
}
