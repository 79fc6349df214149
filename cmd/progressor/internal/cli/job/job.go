package job

import (
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// Commands are the commands that enqueue and change jobs.
type Commands struct {
	Job jobCmd `cmd:"" group:"job" help:"Enqueue, list, change and cancel jobs."`
}

type jobCmd struct {
	Enqueue jobEnqueueCmd `cmd:"" help:"Enqueue a job, or the jobs in a file."`
	Get     jobGetCmd     `cmd:"" help:"Show a job."`
	List    jobListCmd    `cmd:"" help:"List the jobs of a namespace."`
	Cancel  jobCancelCmd  `cmd:"" help:"Cancel a job."`
	Retry   jobRetryCmd   `cmd:"" help:"Run a failed or cancelled job again, or end the backoff of a job."`
	Remove  jobRemoveCmd  `cmd:"" help:"Remove a job that has ended."`
	Update  jobUpdateCmd  `cmd:"" help:"Change options of a job."`
	Result  jobResultCmd  `cmd:"" help:"Fetch the kept result of a job, once."`
	Events  jobEventsCmd  `cmd:"" help:"List or follow events of jobs."`
	Stats   jobStatsCmd   `cmd:"" help:"Count the jobs of a namespace by name and state."`
	Pause   jobPauseCmd   `cmd:"" help:"Pause the jobs of one name."`
	Resume  jobResumeCmd  `cmd:"" help:"Resume the jobs of one name."`
	Paused  jobPausedCmd  `cmd:"" help:"List the paused job names of a namespace."`
}

// jobArgs identify a job.
type jobArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"job" help:"Job id."`
}

type jobGetCmd struct {
	jobArgs
	cli.ClientFlags
	cli.EndFlags `set:"what=job"`
}

func (jobGetCmd) Help() string {
	return `Get shows a job: its state and what it waits for, its options, failed attempts, progress, and the
result if it was kept (get does not consume it). With --wait, the command follows the job to its
end, with a progress bar on a terminal. The exit code is then 5 if the job failed or was cancelled,
and 7 if --wait-timeout has passed.

    progressor job get echo mail-1
    progressor job get echo mail-1 --wait --wait-timeout 10m`
}

func (c *jobGetCmd) Run(a *cli.App) error {
	if c.Wait {
		return followJob(a, c.EndFlags, c.ClientFlags, c.jobArgs)
	}
	return cli.Show(a, c, c.Client().Job.GetJob, &progressorv1.GetJobRequest{Namespace: c.NS, JobId: c.ID}, showJob)
}

type jobListCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only jobs that match, such as 'state = FAILED'. See docs/jobs.md."`

	cli.ClientFlags
	Filter        string `placeholder:"FILTER" help:"The filter as a flag."`
	State         string `placeholder:"STATE" complete:"JobState" help:"Only jobs in this state: scheduled, available, running, retryable, cancel_requested, succeeded, failed or cancelled."`
	Name          string `placeholder:"NAME" help:"Only jobs of this name."`
	OrderBy       string `placeholder:"ORDER" help:"created_time desc, created_time, job_id, job_id desc or, with a state such as failed, finished_time desc. Default: created_time desc."`
	cli.PageFlags `set:"rows=jobs"`
}

func (jobListCmd) Help() string {
	return `List shows the jobs of a namespace, newest first, a page at a time. A filter compares job_id, state,
name, priority, worker_id, created_time, reason, fingerprint, metadata.KEY and args.KEY with
= != < <= > >=; tags:TAG matches a tag. A * at the end of a text matches any suffix.

    progressor job list echo
    progressor job list echo --state failed --order-by 'finished_time desc'
    progressor job list echo 'name = "mail_*" AND tags:urgent AND priority < 10'
    progressor job list echo 'state = RUNNING AND worker_id = "host-7"'
    progressor job list echo 'state = RETRYABLE AND args.region = "eu"' --all -o json`
}

func (c *jobListCmd) Run(a *cli.App) error {
	filter := ""
	if err := cli.SetEnum("--state", c.State,
		func(s progressorv1.JobState) { filter = "state = " + output.Enum(s) }); err != nil {
		return err
	}
	if c.Name != "" {
		filter = cli.Both(filter, "name = "+search.Quote(c.Name, false))
	}
	filter = cli.Both(cli.Both(filter, c.Filter), c.Match)
	return cli.PrintPages(a, c, c.Client().Job.ListJobs,
		&progressorv1.ListJobsRequest{Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy},
		func(all *progressorv1.ListJobsResponse) error {
			var rows []table.Row
			for _, j := range all.GetJobs() {
				rows = append(rows, table.Row{
					output.OneLine(j.GetJobId()), output.OneLine(j.GetName()), output.Enum(j.GetState()),
					j.GetOptions().GetPriority(), j.GetAttempt(), output.Time(j.GetCreatedTime()),
					output.OneLine(j.GetWorkerId()), output.Note(jobNote(j)),
				})
			}
			none := cli.None("jobs", c.NS, filter != "",
				fmt.Sprintf("enqueue one with progressor job enqueue %s NAME", output.ShellWord(c.NS)))
			return output.PrintList(a.Stdout, none, table.Row{"job", "name", "state", output.Minor("priority"),
				"attempt", output.Minor("created"), "worker", "note"}, rows)
		})
}

// jobNote returns the most important fact about a job, for a list.
func jobNote(j *progressorv1.Job) string {
	failures := j.GetFailures()
	switch {
	case j.GetBlockedOn() != "":
		return j.GetBlockedOn()
	case j.GetState() == progressorv1.JobState_JOB_STATE_RUNNING && j.GetProgress() != nil:
		return output.ShowProgress(j.GetProgress())
	case j.GetCancelReason() != "":
		return j.GetCancelReason()
	case j.GetState() != progressorv1.JobState_JOB_STATE_SUCCEEDED && len(failures) > 0:
		return output.ShowFailure(failures[len(failures)-1])
	}
	return ""
}

type jobCancelCmd struct {
	jobArgs
	cli.ClientFlags
	Reason string `placeholder:"TEXT" help:"Reason, stored with the job and sent to its worker."`
}

func (jobCancelCmd) Help() string {
	return `Cancel cancels a waiting job at once. The worker of a running job gets the cancel with its next
heartbeat. After the job's cancel_grace (default 30s), the engine ends the job. If the worker
succeeds before that, the job has succeeded.

    progressor job cancel echo mail-2 --reason 'the customer went away'`
}

func (c *jobCancelCmd) Run(a *cli.App) error {
	return ofJob(c.jobArgs, cli.Show(a, c, c.Client().Job.CancelJob,
		&progressorv1.CancelJobRequest{Namespace: c.NS, JobId: c.ID, Reason: c.Reason}, showJob))
}

type jobRetryCmd struct {
	jobArgs
	cli.ClientFlags
	ClearSuccesses bool `help:"Also run a SUCCEEDED job again."`
}

func (jobRetryCmd) Help() string {
	return `Retry runs a FAILED or CANCELLED job again, with the same args and a new count of
attempts. The next attempt of a RETRYABLE job begins now, and its earlier attempts count.

    progressor job retry echo mail-2
    progressor job retry echo mail-1 --clear-successes`
}

func (c *jobRetryCmd) Run(a *cli.App) error {
	return ofJob(c.jobArgs, cli.Show(a, c, c.Client().Job.RetryJob,
		&progressorv1.RetryJobRequest{Namespace: c.NS, JobId: c.ID, ClearSuccesses: c.ClearSuccesses}, showJob))
}

type jobResultCmd struct {
	jobArgs
	cli.ClientFlags
	cli.EndFlags `set:"what=job"`
}

func (jobResultCmd) Help() string {
	return `Result fetches the result of a job that was enqueued with --keep-result. It can be fetched once; job
get shows it without consuming it.

    progressor job result echo mail-1
    progressor job result echo mail-1 --wait --wait-timeout 1m -o json`
}

func (c *jobResultCmd) Run(a *cli.App) error {
	if c.Wait {
		if _, err := awaitEnd(a, c.EndFlags, c.ClientFlags, c.jobArgs); err != nil {
			return err
		}
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Job.FetchResult(ctx,
		&progressorv1.FetchResultRequest{Namespace: c.NS, JobId: c.ID})
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	result := output.Message(resp.GetResult(), 0)
	switch resp.GetState() {
	case progressorv1.JobState_JOB_STATE_SUCCEEDED, progressorv1.JobState_JOB_STATE_FAILED,
		progressorv1.JobState_JOB_STATE_CANCELLED:
	default:
		return c.notYet(resp.GetState())
	}
	if resp.GetDropped() {
		result = "(no result: already fetched, expired, or not kept)"
	}
	failure := ""
	if resp.GetFailure() != nil {
		failure = output.OneLine(output.ShowFailure(resp.GetFailure()))
	}
	return output.PrintFields(a.Stdout,
		output.Field{"job", output.OneLine(c.NS + "/" + c.ID)},
		output.Field{"state", output.Enum(resp.GetState())},
		output.Field{"finished", output.Time(resp.GetFinishedTime())},
		output.Field{"failure", failure},
		output.Field{"result", result},
	)
}

// notYet returns the error of a job that has no result because it has not ended.
func (c *jobResultCmd) notYet(state progressorv1.JobState) error {
	job := output.ShellWord(c.NS) + " " + output.ShellWord(c.ID)
	return &cli.CodedError{Code: cli.ExitConflict,
		Err:  fmt.Errorf("job %s/%s is %s: it has no result before it ends", c.NS, c.ID, output.Enum(state)),
		Next: "progressor job result " + job + " --wait"}
}

// showJob prints the job of a response.
func showJob[P interface{ GetJob() *progressorv1.Job }](a *cli.App, resp P) error {
	return printJob(a, resp.GetJob())
}

// printJob prints a job for people.
func printJob(a *cli.App, j *progressorv1.Job) error {
	var lease output.Phrase
	if j.GetLeaseExpiresTime() != nil {
		lease = output.Phrase{"until ", output.Time(j.GetLeaseExpiresTime())}
	}
	err := output.PrintFields(a.Stdout,
		output.Field{"job", output.OneLine(j.GetNamespace() + "/" + j.GetJobId())},
		output.Field{"name", output.OneLine(j.GetName())},
		output.Field{"state", output.Enum(j.GetState())},
		output.Field{"blocked on", output.Note(j.GetBlockedOn())},
		output.Field{"attempt", output.ID(int64(j.GetAttempt()))},
		output.Field{"worker", output.OneLine(j.GetWorkerId())},
		output.Field{"lease", lease},
		output.Field{"progress", output.OneLine(output.ShowProgress(j.GetProgress()))},
		output.Field{"args", output.Message(j.GetArgs(), output.CellLimit)},
		output.Field{"options", output.Message(j.GetOptions(), 0)},
		output.Field{"fairness key", output.OneLine(j.GetFairnessKey())},
		output.Field{"result", output.Message(j.GetResult(), 0)},
		output.Field{"created", output.Time(j.GetCreatedTime())},
		output.Field{"not before", output.Time(j.GetRunTime())},
		output.Field{"running since", output.Time(j.GetRunningTime())},
		output.Field{"finished", output.Time(j.GetFinishedTime())},
		output.Field{"cancel requested", output.Time(j.GetCancelRequestedTime())},
		output.Field{"cancel reason", output.OneLine(j.GetCancelReason())},
	)
	if err == nil {
		err = printWorkerRuns(a, j.GetWorkerRuns())
	}
	if err != nil || len(j.GetFailures()) == 0 {
		return err
	}
	var rows []table.Row
	for _, f := range j.GetFailures() {
		why := output.ShowFailure(f)
		if f.GetTakeover() {
			why += " (not counted as a retry)"
		}
		rows = append(rows, table.Row{output.ID(int64(f.GetAttempt())), output.Time(f.GetFailedTime()),
			output.OneLine(f.GetWorkerId()), output.OneLine(why)})
	}
	fmt.Fprintln(a.Stdout)
	return output.PrintRows(a.Stdout, table.Row{"attempt", "failed", "worker", "failure"}, rows)
}

// printWorkerRuns prints the workers of a job that several workers run.
func printWorkerRuns(a *cli.App, runs []*progressorv1.WorkerRun) error {
	if len(runs) == 0 {
		return nil
	}
	rows := make([]table.Row, len(runs))
	for n, r := range runs {
		note := output.Message(r.GetResult(), output.CellLimit)
		if r.GetFailure() != nil && r.GetState() != progressorv1.JobState_JOB_STATE_SUCCEEDED {
			note = output.ShowFailure(r.GetFailure())
		}
		rows[n] = table.Row{output.OneLine(r.GetWorkerId()), output.Enum(r.GetState()), r.GetAttempts(),
			output.Time(r.GetRunningTime()), output.Time(r.GetFinishedTime()), output.OneLine(note)}
	}
	fmt.Fprintln(a.Stdout)
	return output.PrintRows(a.Stdout, table.Row{"worker", "state", "attempts", "running since", "finished", "result"},
		rows)
}

// ofJob adds advice to an error. The advice names commands for jobs, because to the engine a job is
// a process.
func ofJob(job jobArgs, err error) error {
	err = jobFlagOf(err)
	switch client.Detail(err).GetReason() {
	case progressorv1.ErrorDetail_REASON_PROCESS_STATUS, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS:
		return &cli.Advised{Err: err,
			Next: "progressor job get " + output.ShellWord(job.NS) + " " + output.ShellWord(job.ID)}
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
			text += ": " + output.ShowFailure(failures[len(failures)-1])
		}
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New(text),
			Next: fmt.Sprintf("progressor job retry %s %s", output.ShellWord(j.GetNamespace()),
				output.ShellWord(j.GetJobId()))}
	case progressorv1.JobState_JOB_STATE_CANCELLED:
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New("the job was cancelled")}
	default:
		return nil
	}
}
