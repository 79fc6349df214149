package admin

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type namespaceDeleteCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	cli.ClientFlags
	WithData bool `help:"Also delete its processes, jobs, runs, crons, templates and all other data."`
	DryRun   bool `help:"Only count what would be deleted."`
	NoWait   bool `help:"Return when the deletion is accepted."`
	Yes      bool `short:"y" help:"With --with-data: do not ask for confirmation."`
}

func (namespaceDeleteCmd) Help() string {
	return `Delete deletes a namespace, and waits until it is gone. Without --with-data, the namespace must not
have processes, tasks, templates or paused job names. With --with-data, delete shows the data of the
namespace and asks for confirmation. Without a terminal, it needs --yes.

The engines delete the data in the background. If the command is interrupted, they continue, and
namespace get shows the remaining data. Meanwhile the namespace accepts no requests.

    progressor namespace delete play
    progressor namespace delete play --with-data --dry-run
    progressor namespace delete play --with-data --yes`
}

func (c *namespaceDeleteCmd) Run(a *cli.App) error {
	if c.DryRun {
		show := func(resp *progressorv1.DeleteNamespaceResponse) error { return printCounts(a, resp.GetCounts()) }
		return cli.Ask(a, c.OutputFlag, c.Client().Namespace.DeleteNamespace, c.request(true), show)
	}
	if err := c.confirm(a); err != nil {
		return err
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Namespace.DeleteNamespace(ctx, c.request(false))
	if err != nil {
		return flagOf(err)
	}
	if !c.NoWait {
		if err := c.wait(a); err != nil {
			return err
		}
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	what := "deleted"
	if c.NoWait {
		what = "is being deleted"
	}
	fmt.Fprintf(a.Stdout, "namespace %s %s\n", output.OneLine(c.NS), what)
	return nil
}

// flagOf replaces the name of the field with_data in an error of the engine with the flag.
func flagOf(err error) error {
	connected, ok := errors.AsType[*connect.Error](err)
	if !ok || client.Detail(err).GetReason() != progressorv1.ErrorDetail_REASON_NAMESPACE_IN_USE {
		return err
	}
	return &cli.Advised{Err: err, Message: strings.ReplaceAll(connected.Message(), "(with_data)", "(--with-data)")}
}

func (c *namespaceDeleteCmd) request(dryRun bool) *progressorv1.DeleteNamespaceRequest {
	return &progressorv1.DeleteNamespaceRequest{Namespace: c.NS, WithData: c.WithData, DryRun: dryRun}
}

// confirm shows the data that would be deleted with the namespace, and asks whether to delete it.
func (c *namespaceDeleteCmd) confirm(a *cli.App) error {
	if c.Yes || !c.WithData {
		return nil
	}
	if !a.Interactive {
		return cli.UsageError(errors.New(
			"--with-data deletes all data of the namespace: confirm with --yes, or count it with --dry-run"))
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Namespace.DeleteNamespace(ctx, c.request(true))
	if err != nil {
		return err
	}
	for _, count := range resp.GetCounts() {
		fmt.Fprintln(a.Stderr, showCount(count))
	}
	fmt.Fprintf(a.Stderr, "delete namespace %s with all this? [y/N] ", output.OneLine(c.NS))
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &cli.CodedError{Code: cli.ExitInterrupted, Err: errors.New("not deleted")}
	}
	return nil
}

// deletionPoll is the interval at which the progress is read.
const deletionPoll = time.Second

// wait waits until the namespace is deleted. It prints the remaining data whenever it has changed.
func (c *namespaceDeleteCmd) wait(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	ticker := time.NewTicker(deletionPoll)
	defer ticker.Stop()
	shown := ""
	for {
		resp, err := c.Client().Namespace.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: c.NS})
		deletion := resp.GetNamespace().GetDeletion()
		switch {
		case client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND:
			return nil
		case err != nil:
			return err
		case deletion == nil:
			return &cli.CodedError{
				Err:  fmt.Errorf("namespace %s was not deleted: requests stored data in the meantime", c.NS),
				Code: cli.ExitConflict, Next: "progressor namespace delete " + output.ShellWord(c.NS) + " --with-data",
			}
		}
		if now := showDeletion(deletion); now != shown {
			fmt.Fprintln(a.Stderr, now)
			shown = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// showDeletion returns the progress of a deletion in one line.
func showDeletion(d *progressorv1.NamespaceDeletion) string {
	if d == nil {
		return ""
	}
	if n := d.GetWaitingForNodes(); n > 0 {
		return "waits for " + output.Counted(int(n), "node") + " to stop taking requests"
	}
	var parts []string
	for _, c := range d.GetLeft() {
		parts = append(parts, showCount(c))
	}
	if len(parts) == 0 {
		return "almost nothing is left"
	}
	return "left: " + strings.Join(parts, ", ")
}

func showCount(c *progressorv1.DataCount) string {
	return strings.TrimSpace(showNumber(c) + " " + showKind(c) + " " + output.OneLine(c.GetStatus()))
}

func showNumber(c *progressorv1.DataCount) string {
	if c.GetOrMore() {
		return output.Thousands(c.GetCount()) + "+"
	}
	return output.Thousands(c.GetCount())
}

func showKind(c *progressorv1.DataCount) string {
	return strings.ReplaceAll(output.OneLine(c.GetKind()), "_", " ")
}

func printCounts(a *cli.App, counts []*progressorv1.DataCount) error {
	var rows []table.Row
	for _, c := range counts {
		rows = append(rows, table.Row{showKind(c), output.OneLine(c.GetStatus()), showNumber(c)})
	}
	return output.PrintRows(a.Stdout, table.Row{"data", "status", "count"}, rows)
}
