package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type bulkCmd struct {
	Start  bulkStartCmd  `cmd:"" help:"Apply an action to all processes that match a filter."`
	Get    bulkGetCmd    `cmd:"" help:"Show the progress of a bulk and its newest failures."`
	List   bulkListCmd   `cmd:"" help:"List bulks."`
	Cancel bulkCancelCmd `cmd:"" help:"Stop a bulk; its changes are kept."`
}

// bulkVerbs maps actions to verbs. An action has the name of the command for a single process.
var bulkVerbs = map[string]progressorv1.BulkVerb{
	"repair":  progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR,
	"suspend": progressorv1.BulkVerb_BULK_VERB_SUSPEND,
	"resume":  progressorv1.BulkVerb_BULK_VERB_RESUME,
	"cancel":  progressorv1.BulkVerb_BULK_VERB_CANCEL,
	"remove":  progressorv1.BulkVerb_BULK_VERB_REMOVE,
	"retry":   progressorv1.BulkVerb_BULK_VERB_RETRY,
}

// bulkKinds maps the values of --kind to kinds.
var bulkKinds = map[string]string{"process": "", "job": "job", "run": "flow"}

type bulkStartCmd struct {
	Action string `arg:"" enum:"repair,suspend,resume,cancel,remove,retry" help:"repair (simple, unless there are args or steps), suspend, resume, cancel or remove; with --kind: retry, cancel or remove."`
	NS     string `arg:"" name:"ns" help:"Namespace."`
	Match  string `arg:"" name:"filter" help:"Filter, such as 'status = ERROR'. For all processes: 'process_id = \"*\"'. See docs/api.md."`

	cli.ClientFlags
	stepRepairFlags
	Args           *string `placeholder:"TEXT|@FILE|@-" help:"Let the processor of each process repair it, with these args: text, @FILE, or @- for standard input. Write @@ for a text that begins with @."`
	Kind           string  `enum:"process,job,run" default:"process" placeholder:"KIND" help:"What the filter selects: process, job or run. Default: ${default}."`
	DryRun         bool    `help:"Count the matching processes, show the oldest, and change nothing."`
	Rate           float64 `placeholder:"N" help:"Processes per second, 0.001 to 10000. Default: 100."`
	Reason         string  `placeholder:"TEXT" help:"Reason, stored with the bulk and with each suspended or cancelled process."`
	Wait           bool    `help:"Wait for the end. On a terminal, show a progress bar. Ctrl-C ends the wait, not the bulk."`
	IdempotencyKey string  `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key does not start a second bulk. Default: one random key for all attempts of this command."`
}

func (bulkStartCmd) Help() string {
	return `Start applies an action to all processes of a namespace that match a filter. The command
with the name of the action does the same for one process. The engine runs the bulk on any live
node, from the oldest process to the newest one that existed at the start. Processes whose status
does not allow the action are skipped.

With --args, --skip-step, --set-step or --rewind, the processor of each process repairs it, as with
progressor repair. A repair that is rejected or fails is a failure of the bulk.

With --kind job or run, the filter has the syntax of progressor job list or run list. The actions
are retry, cancel and remove. Only ended jobs and runs can be removed. Without --kind, jobs, runs,
crons and bulks are never included.

    progressor bulk start repair demo 'status = ERROR AND detail = "no book*"' --dry-run
    progressor bulk start repair demo 'status = ERROR AND detail = "no book*"' --reason 'the books are back' --wait
    progressor bulk start repair demo 'status = ERROR AND detail = "step mail*"' --skip-step mail --dry-run
    progressor bulk start cancel demo 'metadata.tenant = acme AND status != COMPLETED' --rate 20
    progressor bulk start remove demo 'status = COMPLETED AND created_time < "2026-01-01T00:00:00Z"' --rate 1000
    progressor bulk start retry echo --kind job 'state = FAILED AND name = send' --dry-run
    progressor bulk start remove echo --kind job 'state = SUCCEEDED AND created_time < "2026-01-01T00:00:00Z"'
    progressor bulk start cancel demo --kind run 'template_type = order AND status = QUEUED' --wait`
}

func (c *bulkStartCmd) Run(a *cli.App) error {
	if c.DryRun && c.Wait {
		return cli.UsageError(errors.New("use either --dry-run or --wait: a dry run does not start a bulk"))
	}
	if err := c.checkAction(); err != nil {
		return err
	}
	verb, args, err := c.verb(a)
	if err != nil {
		return err
	}
	ctx, cancel := a.Request()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, !c.DryRun)
	resp, err := c.Client().StartBulk(ctx, &progressorv1.StartBulkRequest{
		Namespace: c.NS, Filter: c.Match, Kind: bulkKinds[c.Kind], Verb: verb, Args: args, Rate: c.Rate,
		DryRun: c.DryRun, Reason: c.Reason, IdempotencyKey: sent.Key,
	})
	if err != nil {
		return sent.Explain(err, "")
	}
	b := resp.GetBulk()
	switch {
	case c.Wait:
		return c.wait(a, b)
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	case c.DryRun:
		return printDryRun(a, c.Action, b, c.leftOut(ctx))
	}
	if err := printBulk(a, b); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "\nprogress: progressor bulk get %s %s\n", output.ShellWord(b.GetNamespace()),
		b.GetBulkId())
	return err
}

// verb returns the verb of the action, and the args of a repair by the processors. Args may be
// empty.
func (c *bulkStartCmd) verb(a *cli.App) (progressorv1.BulkVerb, []byte, error) {
	args, err := c.stepArgs()
	switch {
	case err != nil:
		return 0, nil, cli.UsageError(err)
	case args != nil && c.Args != nil:
		return 0, nil, cli.UsageError(errors.New("--skip-step, --set-step and --rewind cannot be used with --args"))
	case args == nil && c.Args == nil:
		return bulkVerbs[c.Action], nil, nil
	case c.Action != "repair":
		return 0, nil, cli.UsageError(fmt.Errorf("%s has no args and no steps: only repair has", c.Action))
	case args == nil:
		args, err = a.Payload("--args", *c.Args)
	}
	return progressorv1.BulkVerb_BULK_VERB_REPAIR, args, err
}

// checkAction rejects an action that the kind does not have.
func (c *bulkStartCmd) checkAction() error {
	actions := []string{"repair", "suspend", "resume", "cancel", "remove"}
	if c.Kind != "process" {
		actions = []string{"retry", "cancel", "remove"}
	}
	if slices.Contains(actions, c.Action) {
		return nil
	}
	other := "--kind process"
	if c.Kind == "process" {
		other = "--kind job or run"
	}
	return cli.UsageError(fmt.Errorf("<action>: must be one of %s with --kind %s (got %s, which needs %s)",
		strings.Join(actions, ", "), c.Kind, c.Action, other))
}

// wait follows a bulk until it ends, and returns an error for the exit code.
func (c *bulkStartCmd) wait(a *cli.App, b *progressorv1.Bulk) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	progress := &bulkBar{TerminalLine: output.NewTerminalLine(a.Stderr, a.Terminal)}
	end, err := c.RetryingClient().AwaitBulk(ctx,
		&progressorv1.GetBulkRequest{Namespace: b.GetNamespace(), BulkId: b.GetBulkId()}, bulkPoll, progress.show)
	progress.End()
	if errors.Is(err, context.Canceled) {
		return &cli.CodedError{
			Code: cli.ExitInterrupted, Err: errors.New("the wait was interrupted; the bulk continues"),
			Next: fmt.Sprintf("progressor bulk get (or cancel) %s %s", output.ShellWord(b.GetNamespace()),
				b.GetBulkId()),
		}
	}
	if err != nil {
		return err
	}
	if c.JSON() {
		err = output.PrintMessage(a.Stdout, &progressorv1.GetBulkResponse{Bulk: end})
	} else {
		err = printBulk(a, end)
	}
	switch {
	case err != nil:
		return err
	case end.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		return &cli.CodedError{Code: cli.ExitTaskFailed,
			Err: fmt.Errorf("the bulk is %s, and did not process all matching processes", output.Enum(end.GetStatus()))}
	case end.GetFailed() > 0:
		return &cli.CodedError{Code: cli.ExitFailed,
			Err: fmt.Errorf("%s processes failed", output.Thousands(end.GetFailed()))}
	}
	return nil
}

// leftOut returns a hint that jobs also match the filter, with the command that starts a bulk for
// jobs. It returns "" if no job matches or if the query fails.
func (c *bulkStartCmd) leftOut(ctx context.Context) string {
	if bulkKinds[c.Kind] != "" {
		return ""
	}
	resp, err := c.Client().Process.ListProcesses(ctx,
		&progressorv1.ListProcessesRequest{Namespace: c.NS, Filter: "kind = job AND (" + c.Match + ")", PageSize: 1})
	if err != nil || len(resp.GetProcesses()) == 0 {
		return ""
	}
	id := resp.GetProcesses()[0].GetProcessId()
	text := "jobs, such as " + output.OneLine(id) + ": this bulk does not include jobs"
	verb := map[string]string{"repair": "retry", "cancel": "cancel", "remove": "remove"}[c.Action]
	if verb == "" || process.Own(id) {
		return text
	}
	return text + "; for jobs: progressor bulk start " + verb + " " + output.ShellWord(c.NS) + " --kind job FILTER"
}

func printDryRun(a *cli.App, action string, b *progressorv1.Bulk, leftOut string) error {
	matches := output.Thousands(b.GetMatched())
	if b.GetExpectedMore() {
		matches = "more than " + matches
	}
	refused := ""
	if b.GetSkipped() > 0 {
		refused = fmt.Sprintf("%s of them: their status does not allow %s", output.Thousands(b.GetSkipped()), action)
	}
	if err := output.PrintFields(a.Stdout, output.Field{"would", action}, output.Field{"matches", matches},
		output.Field{"would skip", refused}, output.Field{"leaves out", leftOut}); err != nil {
		return err
	}
	if len(b.GetSampleProcessIds()) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout, "\nthe oldest")
	for _, id := range b.GetSampleProcessIds() {
		fmt.Fprintln(a.Stdout, output.OneLine(id))
	}
	return nil
}

// showBulk prints the bulk of a response.
func showBulk[P interface{ GetBulk() *progressorv1.Bulk }](a *cli.App, resp P) error {
	return printBulk(a, resp.GetBulk())
}

func printBulk(a *cli.App, b *progressorv1.Bulk) error {
	err := output.PrintFields(a.Stdout,
		output.Field{"bulk", output.OneLine(b.GetNamespace() + " " + b.GetBulkId())},
		output.Field{"action", bulkAction(b.GetVerb())},
		output.Field{"args", output.OneLine(string(b.GetArgs()))},
		output.Field{"kind", strings.ReplaceAll(b.GetKind(), "flow", "run")},
		output.Field{"filter", output.OneLine(b.GetFilter())},
		output.Field{"reason", output.OneLine(b.GetReason())},
		output.Field{"rate", strconv.FormatFloat(b.GetRate(), 'g', -1, 64) + "/s"},
		output.Field{"status", output.Enum(b.GetStatus())},
		output.Field{"detail", output.OneLine(b.GetDetail())},
		output.Field{"expected", expected(b)},
		output.Field{"matched", output.Thousands(b.GetMatched())},
		output.Field{"done", output.Thousands(b.GetDone())},
		output.Field{"skipped", output.Thousands(b.GetSkipped())},
		output.Field{"failed", output.Thousands(b.GetFailed())},
		output.Field{"last process", output.OneLine(b.GetPosition())},
		output.Field{"started", output.Time(b.GetCreatedTime())},
		output.Field{"started by", output.OneLine(b.GetActor())},
		output.Field{"ended", output.Time(b.GetFinishedTime())},
	)
	if err != nil || len(b.GetFailures()) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nnewest failures")
	var rows []table.Row
	for _, f := range b.GetFailures() {
		rows = append(rows, table.Row{output.OneLine(f.GetProcessId()), output.OneLine(f.GetError())})
	}
	if err := output.PrintRows(a.Stdout, table.Row{"process", "error"}, rows); err != nil {
		return err
	}
	if b.GetFailed() > int64(len(b.GetFailures())) {
		_, err = fmt.Fprintf(a.Stdout, "\nall of them: progressor get %s %s\n", output.ShellWord(b.GetNamespace()),
			output.ShellWord(process.BulkPrefix+b.GetBulkId()))
	}
	return err
}

// bulkAction returns the name of a verb on the command line.
func bulkAction(v progressorv1.BulkVerb) string {
	for name, verb := range bulkVerbs {
		if verb == v {
			return name
		}
	}
	return strings.ToLower(output.Enum(v))
}

func expected(b *progressorv1.Bulk) string {
	if b.GetExpectedMore() {
		return "more than " + output.Thousands(b.GetExpected())
	}
	return output.Thousands(b.GetExpected())
}

// bulkArgs identify a bulk.
type bulkArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"bulk" complete:"bulk" help:"Id of the bulk; bulk start and bulk list show it."`
}

type bulkGetCmd struct {
	bulkArgs
	cli.ClientFlags
}

func (bulkGetCmd) Help() string {
	return `Get shows the request of a bulk, its progress, and its newest 100 failures. More failures are in the
events of its process, ~bulk/ID.

    progressor bulk get demo 019aa6f2-7f3c-7c11-8d2e-0b9a4f6f2a10
    progressor get demo '~bulk/019aa6f2-7f3c-7c11-8d2e-0b9a4f6f2a10' --offset 100 --limit 100`
}

func (c *bulkGetCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Bulk.GetBulk,
		&progressorv1.GetBulkRequest{Namespace: c.NS, BulkId: c.ID}, showBulk)
}

type bulkCancelCmd struct {
	bulkArgs
	cli.ClientFlags
}

func (bulkCancelCmd) Help() string {
	return `Cancel stops a bulk after its current page, within about a second. Changes that it made are kept.

    progressor bulk cancel demo 019aa6f2-7f3c-7c11-8d2e-0b9a4f6f2a10`
}

func (c *bulkCancelCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Bulk.CancelBulk,
		&progressorv1.CancelBulkRequest{Namespace: c.NS, BulkId: c.ID}, showBulk)
}

type bulkListCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`

	cli.ClientFlags
	cli.PageFlags `set:"rows=bulks"`
}

func (bulkListCmd) Help() string {
	return `List shows bulks, newest first within each namespace.

    progressor bulk list
    progressor bulk list demo --all -o json`
}

func (c *bulkListCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Bulk.ListBulks,
		&progressorv1.ListBulksRequest{Namespace: c.NS},
		func(all *progressorv1.ListBulksResponse) error {
			var rows []table.Row
			for _, b := range all.GetBulks() {
				rows = append(rows, table.Row{
					b.GetNamespace(), b.GetBulkId(), bulkAction(b.GetVerb()), output.Enum(b.GetStatus()),
					output.Time(b.GetCreatedTime()), expected(b),
					output.Thousands(b.GetDone()), output.Thousands(b.GetSkipped()), output.Thousands(b.GetFailed()),
					output.OneLine(b.GetFilter()), output.OneLine(b.GetReason()),
				})
			}
			header := table.Row{output.MinorIf(c.NS != "", "namespace"), "bulk", "action", "status",
				output.Minor("started"), output.Minor("expected"), "done", output.Minor("skipped"), "failed", "filter",
				output.Minor("reason")}
			none := cli.None("bulks", c.NS, false, "start one with progressor bulk start ACTION NS FILTER")
			return output.PrintList(a.Stdout, none, header, rows, "expected", "done", "skipped", "failed")
		})
}
