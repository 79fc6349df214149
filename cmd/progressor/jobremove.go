package main

import (
	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type jobRemoveCmd struct {
	jobArgs
	clientFlags
}

func (jobRemoveCmd) Help() string {
	return `Remove deletes a job that has ended, with its result and failures. Its events stay. A job that has
not ended is refused: cancel it first.

    progressor job remove echo mail-1
    progressor job cancel echo mail-2
    progressor job remove echo mail-2`
}

func (c *jobRemoveCmd) Run(a *app) error {
	req := &progressorv1.RemoveJobRequest{Namespace: c.NS, JobId: c.ID}
	err := ask(a, c.outputFlag, c.client().Job.RemoveJob, req, func(*progressorv1.RemoveJobResponse) error {
		return printFields(a.Stdout, field{"job", oneLine(c.NS + "/" + c.ID)}, field{"state", "removed"})
	})
	if client.Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_STATUS {
		return &advised{error: err, next: "progressor job cancel " + shellWord(c.NS) + " " + shellWord(c.ID)}
	}
	return ofJob(c.jobArgs, err)
}
