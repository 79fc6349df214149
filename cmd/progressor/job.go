package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

type jobCmd struct {
	Enqueue jobEnqueueCmd `cmd:"" help:"Enqueue a job, or a file of them."`
	Get     jobGetCmd     `cmd:"" help:"Show a job."`
	List    jobListCmd    `cmd:"" help:"List the jobs of a namespace."`
	Cancel  jobCancelCmd  `cmd:"" help:"Cancel a job."`
	Retry   jobRetryCmd   `cmd:"" help:"Run a failed or cancelled job again."`
	Remove  jobRemoveCmd  `cmd:"" help:"Remove a job that has ended."`
	Update  jobUpdateCmd  `cmd:"" help:"Change options of a job."`
	Result  jobResultCmd  `cmd:"" help:"Fetch the kept result of a job, once."`
	Events  jobEventsCmd  `cmd:"" help:"List or follow events of jobs."`
	Stats   jobStatsCmd   `cmd:"" help:"Count the jobs of a namespace by name and state."`
}

// jobArgs identify a job.
type jobArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" help:"Job id."`
}

type jobGetCmd struct {
	jobArgs
	clientFlags
	endFlags `set:"what=job"`
}

func (jobGetCmd) Help() string {
	return `Get shows a job: its state and what it waits for, its options, failed attempts, progress, and the
result if it was kept (get does not consume it). With --wait, the command follows the job to its
end, on a terminal with a bar. The exit code is then 5 if the job failed or was cancelled, and 7 if
--wait-timeout has passed.

    progressor job get echo mail-1
    progressor job get echo mail-1 --wait --wait-timeout 10m`
}

func (c *jobGetCmd) Run(a *app) error {
	if c.Wait {
		return c.followJob(a, c.clientFlags, c.jobArgs)
	}
	return ask(a, c.outputFlag, c.client().Job.GetJob, &progressorv1.GetJobRequest{Namespace: c.NS, JobId: c.ID}, func(resp *progressorv1.GetJobResponse) error {
		return printJob(a, resp.GetJob())
	})
}

type jobListCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only jobs that match, such as 'state = FAILED'. See docs/jobs.md."`

	clientFlags
	Filter    string `placeholder:"FILTER" help:"The filter as a flag."`
	State     string `placeholder:"STATE" help:"Only jobs in this state: scheduled, available, running, retryable, cancel_requested, succeeded, failed or cancelled."`
	Name      string `placeholder:"NAME" help:"Only jobs of this name."`
	OrderBy   string `placeholder:"ORDER" help:"created_time desc, created_time, job_id, job_id desc or, with a state such as failed, finished_time desc. Default: created_time desc."`
	pageFlags `set:"rows=Jobs"`
}

func (jobListCmd) Help() string {
	return `List shows the jobs of a namespace, newest first, a page at a time. A filter compares job_id, state,
name, priority, created_time, metadata.KEY and args.KEY with = != < <= > >=; tags:TAG matches a tag.
A * at the end of a job_id or name matches any suffix.

    progressor job list echo
    progressor job list echo --state failed --order-by 'finished_time desc'
    progressor job list echo 'name = "mail_*" AND tags:urgent AND priority < 10'
    progressor job list echo 'state = RETRYABLE AND args.region = "eu"' --all -o json`
}

func (c *jobListCmd) Run(a *app) error {
	filter := ""
	if err := setEnum("--state", c.State, func(s progressorv1.JobState) { filter = "state = " + shortEnum(s) }); err != nil {
		return err
	}
	if c.Name != "" {
		filter = both(filter, "name = "+search.Quote(c.Name, false))
	}
	filter = both(both(filter, c.Filter), c.Match)
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListJobsResponse, error) {
		return c.client().Job.ListJobs(ctx, &progressorv1.ListJobsRequest{
			Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy, PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.ListJobsResponse) error {
		var rows []table.Row
		for _, j := range all.GetJobs() {
			rows = append(rows, table.Row{
				oneLine(j.GetJobId()), oneLine(j.GetName()), shortEnum(j.GetState()), j.GetOptions().GetPriority(), j.GetAttempt(), showTime(j.GetCreatedTime()),
				oneLine(j.GetWorkerId()), oneLine(jobNote(j)),
			})
		}
		return printRows(a.Stdout, table.Row{"job", "name", "state", "priority", "attempt", "created", "worker", "note"}, rows)
	})
}

// jobNote returns the most important fact about a job, for a list.
func jobNote(j *progressorv1.Job) string {
	failures := j.GetFailures()
	switch {
	case j.GetBlockedOn() != "":
		return j.GetBlockedOn()
	case j.GetState() == progressorv1.JobState_JOB_STATE_RUNNING && j.GetProgress() != nil:
		return showProgress(j.GetProgress())
	case j.GetCancelReason() != "":
		return j.GetCancelReason()
	case j.GetState() == progressorv1.JobState_JOB_STATE_FAILED && len(failures) > 0:
		return showFailure(failures[len(failures)-1])
	}
	return ""
}

func showProgress(p *progressorv1.Progress) string {
	if p == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %% %s", p.GetPercent(), p.GetSummary()))
}

func showFailure(f *progressorv1.Failure) string {
	if f.GetMessage() == "" || f.GetReason() == "" {
		return cmp.Or(f.GetReason(), f.GetMessage())
	}
	return f.GetReason() + ": " + f.GetMessage()
}

type jobCancelCmd struct {
	jobArgs
	clientFlags
	Reason string `placeholder:"TEXT" help:"Reason, stored with the job and sent to its worker."`
}

func (jobCancelCmd) Help() string {
	return `Cancel cancels a waiting job at once. The worker of a running job is told with its next heartbeat;
after the job's cancel_grace (default 30s), the engine ends the job. If the worker succeeds before,
the job has succeeded.

    progressor job cancel echo mail-2 --reason 'the customer went away'`
}

func (c *jobCancelCmd) Run(a *app) error {
	return ofJob(c.jobArgs, ask(a, c.outputFlag, c.client().Job.CancelJob, &progressorv1.CancelJobRequest{Namespace: c.NS, JobId: c.ID, Reason: c.Reason}, func(resp *progressorv1.CancelJobResponse) error {
		return printJob(a, resp.GetJob())
	}))
}

type jobRetryCmd struct {
	jobArgs
	clientFlags
	ClearSuccesses bool `help:"Also run a SUCCEEDED job again."`
}

func (jobRetryCmd) Help() string {
	return `Retry runs a FAILED or CANCELLED job again, with all its attempts and the same args. The next attempt
of a RETRYABLE job begins now, and its attempts before count.

    progressor job retry echo mail-2
    progressor job retry echo mail-1 --clear-successes`
}

func (c *jobRetryCmd) Run(a *app) error {
	return ofJob(c.jobArgs, ask(a, c.outputFlag, c.client().Job.RetryJob, &progressorv1.RetryJobRequest{Namespace: c.NS, JobId: c.ID, ClearSuccesses: c.ClearSuccesses}, func(resp *progressorv1.RetryJobResponse) error {
		return printJob(a, resp.GetJob())
	}))
}

type jobResultCmd struct {
	jobArgs
	clientFlags
	Wait time.Duration `placeholder:"DURATION" help:"Wait for the end of the job, up to this long."`
}

func (jobResultCmd) Help() string {
	return `Result fetches the result of a job that was enqueued with --keep-result. It can be fetched once; job
get shows it without consuming it.

    progressor job result echo mail-1
    progressor job result echo mail-1 --wait 1m -o json`
}

func (c *jobResultCmd) Run(a *app) error {
	req := &progressorv1.FetchResultRequest{Namespace: c.NS, JobId: c.ID}
	bounded := a.request
	if c.Wait != 0 {
		bounded = a.interruptible
		req.AwaitEnd = durationpb.New(c.Wait)
	}
	ctx, cancel := bounded()
	defer cancel()
	resp, err := c.client().Job.FetchResult(ctx, req)
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	result := showMessage(resp.GetResult(), 0)
	switch resp.GetState() {
	case progressorv1.JobState_JOB_STATE_SUCCEEDED, progressorv1.JobState_JOB_STATE_FAILED, progressorv1.JobState_JOB_STATE_CANCELLED:
	default:
		return c.notYet(resp.GetState())
	}
	if resp.GetDropped() {
		result = "(no result: already fetched, expired, or not kept)"
	}
	failure := ""
	if resp.GetFailure() != nil {
		failure = oneLine(showFailure(resp.GetFailure()))
	}
	return printFields(a.Stdout,
		field{"job", oneLine(c.NS + "/" + c.ID)},
		field{"state", shortEnum(resp.GetState())},
		field{"finished", showTime(resp.GetFinishedTime())},
		field{"failure", failure},
		field{"result", result},
	)
}

// notYet returns the error of a job that has no result because it has not ended.
func (c *jobResultCmd) notYet(state progressorv1.JobState) error {
	job := shellWord(c.NS) + " " + shellWord(c.ID)
	err := &codedError{code: exitConflict, err: fmt.Errorf("job %s/%s is %s: it has no result before it ends", c.NS, c.ID, shortEnum(state)),
		next: "progressor job result " + job + " --wait 1m"}
	if c.Wait > 0 {
		err.code, err.err = exitTimeout, fmt.Errorf("job %s/%s is %s after %s; it continues", c.NS, c.ID, shortEnum(state), c.Wait)
		err.next = "progressor explain " + job
	}
	return err
}

// printJob prints a job for people.
func printJob(a *app, j *progressorv1.Job) error {
	lease := ""
	if j.GetLeaseExpiresTime() != nil {
		lease = "until " + showTime(j.GetLeaseExpiresTime())
	}
	err := printFields(a.Stdout,
		field{"job", oneLine(j.GetNamespace() + "/" + j.GetJobId())},
		field{"name", oneLine(j.GetName())},
		field{"state", shortEnum(j.GetState())},
		field{"blocked on", oneLine(j.GetBlockedOn())},
		field{"attempt", showID(int64(j.GetAttempt()))},
		field{"worker", oneLine(j.GetWorkerId())},
		field{"lease", lease},
		field{"progress", oneLine(showProgress(j.GetProgress()))},
		field{"args", showMessage(j.GetArgs(), cellLimit)},
		field{"options", showMessage(j.GetOptions(), 0)},
		field{"result", showMessage(j.GetResult(), 0)},
		field{"created", showTime(j.GetCreatedTime())},
		field{"not before", showTime(j.GetRunTime())},
		field{"running since", showTime(j.GetRunningTime())},
		field{"finished", showTime(j.GetFinishedTime())},
		field{"cancel requested", showTime(j.GetCancelRequestedTime())},
		field{"cancel reason", oneLine(j.GetCancelReason())},
	)
	if err == nil {
		err = printWorkerRuns(a, j.GetWorkerRuns())
	}
	if err != nil || len(j.GetFailures()) == 0 {
		return err
	}
	var rows []table.Row
	for _, f := range j.GetFailures() {
		why := showFailure(f)
		if f.GetTakeover() {
			why += " (not counted as a retry)"
		}
		rows = append(rows, table.Row{showID(int64(f.GetAttempt())), showTime(f.GetFailedTime()), oneLine(f.GetWorkerId()), oneLine(why)})
	}
	fmt.Fprintln(a.Stdout)
	return printRows(a.Stdout, table.Row{"attempt", "failed", "worker", "failure"}, rows)
}

// printWorkerRuns prints the workers of a job that several workers run.
func printWorkerRuns(a *app, runs []*progressorv1.WorkerRun) error {
	if len(runs) == 0 {
		return nil
	}
	rows := make([]table.Row, len(runs))
	for n, r := range runs {
		note := showMessage(r.GetResult(), cellLimit)
		if r.GetFailure() != nil && r.GetState() != progressorv1.JobState_JOB_STATE_SUCCEEDED {
			note = showFailure(r.GetFailure())
		}
		rows[n] = table.Row{oneLine(r.GetWorkerId()), shortEnum(r.GetState()), r.GetAttempts(), showTime(r.GetRunningTime()), showTime(r.GetFinishedTime()), oneLine(note)}
	}
	fmt.Fprintln(a.Stdout)
	return printRows(a.Stdout, table.Row{"worker", "state", "attempts", "running since", "finished", "result"}, rows)
}

// advised is an error with a next step, which replaces that of the engine.
type advised struct {
	error
	message string // "" for that of the engine
	named   bool   // the message names the flag instead of the field
	next    string
}

func (e *advised) Error() string { return cmp.Or(e.message, e.error.Error()) }

func (e *advised) Unwrap() error { return e.error }

// ofJob returns the next step for an error about a job rather than its process.
func ofJob(job jobArgs, err error) error {
	err = jobFlagOf(err)
	switch client.Detail(err).GetReason() {
	case progressorv1.ErrorDetail_REASON_PROCESS_STATUS, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS:
		return &advised{error: err, next: "progressor job get " + shellWord(job.NS) + " " + shellWord(job.ID)}
	default:
		return err
	}
}

// jobOutcome returns an error for the exit code of an ended job.
func jobOutcome(j *progressorv1.Job) error {
	switch j.GetState() {
	case progressorv1.JobState_JOB_STATE_FAILED:
		text := "the job has failed"
		if failures := j.GetFailures(); len(failures) > 0 {
			text += ": " + showFailure(failures[len(failures)-1])
		}
		return &codedError{code: exitTaskFailed, err: errors.New(text), next: fmt.Sprintf("progressor job retry %s %s", shellWord(j.GetNamespace()), shellWord(j.GetJobId()))}
	case progressorv1.JobState_JOB_STATE_CANCELLED:
		return &codedError{code: exitTaskFailed, err: errors.New("the job was cancelled")}
	default:
		return nil
	}
}
