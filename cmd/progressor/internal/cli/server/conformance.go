package server

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/conformance"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type conformanceCmd struct {
	Run conformanceRunCmd `cmd:"" help:"Check that an SDK runs durable functions as docs/journal.md says."`
}

type conformanceRunCmd struct {
	cli.OutputFlag
	Cmd          string        `required:"" placeholder:"COMMAND" help:"Command that serves the functions of the kit, for /bin/sh."`
	StartTimeout time.Duration `default:"30s" placeholder:"DURATION" help:"How long the command may take to listen. Default: ${default}."`
	TaskTimeout  time.Duration `default:"10s" placeholder:"DURATION" help:"How long each task may take. Default: ${default}."`
}

func (conformanceRunCmd) Help() string {
	return `Run starts a command that serves the functions of the kit, which docs/journal.md describes. The
command must listen on 127.0.0.1, on the port in the environment variable PORT, and serve each
function as a processor with JSON at the path /NAME. Run needs no engine and no database.

The kit sends the tasks of scripted processes, as an engine would, and compares the entries, timers,
commands and responses with those of the functions in Go. Then it repeats each script once for each
result with entries: it loses this result and sends the same history again, as after a crash. The
outcome must be the same. The exit code is 1 if anything differs. Run ends at once if a task has no
answer in time.

    progressor conformance run --cmd 'node sdk/typescript/test/conformance.mjs'
    progressor conformance run --cmd './functions' -o json`
}

func (c *conformanceRunCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	program, err := cli.StartProgram(ctx, c.Cmd, a.Stderr)
	if err != nil {
		return err
	}
	defer program.Stop()
	if err := program.Await(ctx, c.StartTimeout); err != nil {
		return err
	}
	function := func(name string) processor.Processor { return functionOf(program, name) }
	report := conformanceReport{Scenarios: []conformance.Result{}}
	if err := conformance.Run(ctx, c.TaskTimeout, function, func(r conformance.Result) {
		report.add(r)
		if !c.JSON() {
			printScenario(a.Stdout, r)
		}
	}); err != nil {
		return err
	}
	if c.JSON() {
		err = output.PrintJSON(a.Stdout, report)
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%s, %s, %d of them differ\n", output.Counted(len(report.Scenarios), "scenario"),
			output.Counted(report.Runs, "run"), report.Different)
	}
	if err == nil && report.Different > 0 {
		err = &cli.CodedError{Code: cli.ExitFailed, Err: fmt.Errorf("the functions differ in %s",
			output.Counted(report.Different, "run"))}
	}
	return err
}

type conformanceReport struct {
	Runs      int                  `json:"runs"`
	Different int                  `json:"different"`
	Scenarios []conformance.Result `json:"scenarios"`
}

func (r *conformanceReport) add(s conformance.Result) {
	r.Runs += s.Runs
	r.Different += len(s.Differences)
	r.Scenarios = append(r.Scenarios, s)
}

func printScenario(w io.Writer, r conformance.Result) {
	if len(r.Differences) == 0 {
		fmt.Fprintf(w, "ok         %s (%s): %s\n", r.Scenario, r.Function, output.Counted(r.Runs, "run"))
		return
	}
	fmt.Fprintf(w, "DIFFERENT  %s (%s)\n", r.Scenario, r.Function)
	for _, d := range r.Differences {
		if d.Killed != "" {
			fmt.Fprintf(w, "  after the loss of the result with: %s\n", d.Killed)
		}
		fmt.Fprintf(w, "  %s\n    expected  %s\n    got       %s\n", d.Where, d.Expected, d.Got)
	}
}

// functionOf returns the function of a program with this name, as a processor.
func functionOf(p *cli.Program, name string) processor.Processor {
	dialed, err := remote.Dial("conformance", &progressorv1.ConnectProcessor{
		Url: "http://" + p.Address + "/" + name, Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
	}, 1, nil)
	if err == nil {
		return dialed
	}
	return processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return nil, err
	})
}
