package job

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// nameArgs identify the jobs of one name.
type nameArgs struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Name string `arg:"" name:"name" help:"Name of the jobs."`
}

type jobPauseCmd struct {
	nameArgs
	cli.ClientFlags
	Reason string `placeholder:"TEXT" help:"Reason, shown with the waiting jobs; at most 1 KiB."`
}

func (jobPauseCmd) Help() string {
	return `Pause pauses the jobs of one name: no worker and no processor gets them until they are resumed.
Running attempts continue, and jobs can still be enqueued. If the name is already paused, its reason
changes.

    progressor job pause demo send_mail --reason 'the mail server is down'
    progressor job paused demo
    progressor job resume demo send_mail`
}

func (c *jobPauseCmd) Run(a *cli.App) error {
	req := &progressorv1.PauseJobsRequest{Namespace: c.NS, Name: c.Name, Reason: c.Reason}
	return cli.Ask(a, c.OutputFlag, c.Client().Job.PauseJobs, req, func(resp *progressorv1.PauseJobsResponse) error {
		p := resp.GetPaused()
		fields := []output.Field{
			{"name", output.OneLine(p.GetName())}, {"state", "paused"}, {"since", output.Time(p.GetPausedTime())},
		}
		if p.GetReason() != "" {
			fields = append(fields, output.Field{"reason", output.OneLine(p.GetReason())})
		}
		return output.PrintFields(a.Stdout, fields...)
	})
}

type jobResumeCmd struct {
	nameArgs
	cli.ClientFlags
}

func (jobResumeCmd) Help() string {
	return `Resume resumes the jobs of one name, and wakes the workers that poll.

    progressor job resume demo send_mail`
}

func (c *jobResumeCmd) Run(a *cli.App) error {
	req := &progressorv1.ResumeJobsRequest{Namespace: c.NS, Name: c.Name}
	return cli.Ask(a, c.OutputFlag, c.Client().Job.ResumeJobs, req, func(resp *progressorv1.ResumeJobsResponse) error {
		state := "resumed"
		if !resp.GetWasPaused() {
			state = "was not paused"
		}
		return output.PrintFields(a.Stdout, output.Field{"name", output.OneLine(c.Name)}, output.Field{"state", state})
	})
}

type jobPausedCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (jobPausedCmd) Help() string {
	return `Paused lists the paused job names of a namespace, each with the time, the operator and the reason.

    progressor job paused demo
    progressor job paused demo -o json`
}

func (c *jobPausedCmd) Run(a *cli.App) error {
	req := &progressorv1.ListPausedJobsRequest{Namespace: c.NS}
	show := func(resp *progressorv1.ListPausedJobsResponse) error {
		var rows []table.Row
		for _, p := range resp.GetPaused() {
			rows = append(rows, table.Row{
				output.OneLine(p.GetName()), output.Time(p.GetPausedTime()), output.OneLine(p.GetActor()),
				output.OneLine(p.GetReason()),
			})
		}
		none := cli.None("paused job names", c.NS, false,
			fmt.Sprintf("pause one with progressor job pause %s NAME", output.ShellWord(c.NS)))
		return output.PrintList(a.Stdout, none, table.Row{"name", "paused", "by", "reason"}, rows)
	}
	return cli.Ask(a, c.OutputFlag, c.Client().Job.ListPausedJobs, req, show)
}
