package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type eraseCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace."`
	ID string `arg:"" optional:"" name:"id" complete:"process" help:"ID of a process or job, or ~flow/ and the ID of a run."`

	cli.ClientFlags
	Children bool   `help:"For a run: also erase the processes and runs that its steps started."`
	DryRun   bool   `help:"Only count what would be erased."`
	Record   string `placeholder:"FILE" help:"Append the erasure to this file, for --replay."`
	Replay   string `placeholder:"FILE" help:"Repeat the erasures in this file, after a restore of a backup."`
}

func (eraseCmd) Help() string {
	return `Erase removes a process that has ended or is suspended, or that was removed before, and all data
about it in other tables: results, idempotency keys, dead letters, messages, events of jobs, and the
content of changes. In the audit, a hash replaces its ID. It cannot be undone.

It reads all rows of these tables in the namespace, in short transactions, and shows the progress on
a terminal. After an interruption, run it again.

A backup still contains data that was erased later. With --record, erase appends the ID to a file.
After a restore, --replay repeats all erasures in the file. If a process with the same ID was
created after the erasure, --replay does not erase it, but reports it and exits with an error.

    progressor erase demo order-1 --dry-run
    progressor erase demo order-1 --record erasures.jsonl
    progressor erase --replay erasures.jsonl`
}

// erasure is a line in the file of --record.
type erasure struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	ProcessID string    `json:"processId"`
	Children  bool      `json:"children,omitempty"`
}

func (c *eraseCmd) check() error {
	switch {
	case c.Replay == "" && (c.NS == "" || c.ID == ""):
		return cli.UsageError(errors.New("set a namespace and an ID, or --replay"))
	case c.Replay != "" && (c.NS != "" || c.Record != "" || c.Children):
		return cli.UsageError(errors.New("--replay: cannot be used with a namespace, --record or --children"))
	case c.DryRun && c.Record != "":
		return cli.UsageError(errors.New("--record: cannot be used with --dry-run"))
	}
	return nil
}

func (c *eraseCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return err
	}
	erased := &progressorv1.EraseProcessResponse{Rows: map[string]int64{}}
	if c.Replay != "" {
		if err := c.replay(a, erased); err != nil {
			return err
		}
		return c.print(a, erased)
	}
	e := erasure{Time: time.Now().UTC(), Namespace: c.NS, ProcessID: c.ID, Children: c.Children}
	if c.Record != "" {
		if err := c.record(a, e); err != nil {
			return err
		}
	}
	if err := c.erase(a, e, erased); err != nil {
		return err
	}
	return c.print(a, erased)
}

// record appends the erasure to the file of --record. It does so before the erasure begins, because
// an erasure may be interrupted. If the process cannot be erased, it returns an error and appends
// nothing, because --replay repeats everything in the file.
func (c *eraseCmd) record(a *cli.App, e erasure) error {
	ctx, cancel := a.Request()
	defer cancel()
	if _, err := c.Client().Process.EraseProcess(ctx, &progressorv1.EraseProcessRequest{
		Namespace: e.Namespace, ProcessId: e.ProcessID, Children: e.Children, DryRun: true,
	}); err != nil {
		return err
	}
	if err := e.appendTo(c.Record); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	return nil
}

// erase sends requests until everything is erased, and adds up their results.
func (c *eraseCmd) erase(a *cli.App, e erasure, sum *progressorv1.EraseProcessResponse) error {
	line := output.NewTerminalLine(a.Stderr, a.Terminal)
	defer line.End()
	req := &progressorv1.EraseProcessRequest{
		Namespace: e.Namespace, ProcessId: e.ProcessID, Children: e.Children, DryRun: c.DryRun,
	}
	if c.Replay != "" {
		req.CreatedBefore = timestamppb.New(e.Time)
	}
	for {
		ctx, cancel := a.Request()
		resp, err := c.Client().Process.EraseProcess(ctx, req)
		cancel()
		if err != nil {
			return err
		}
		sum.Read += resp.GetRead()
		for name, rows := range resp.GetRows() {
			sum.Rows[name] += rows
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
		line.Write("read " + output.Thousands(sum.GetRead()) + " rows")
	}
}

// replay erases all processes in a file. It continues after an error.
func (c *eraseCmd) replay(a *cli.App, sum *progressorv1.EraseProcessResponse) error {
	f, err := os.Open(c.Replay)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--replay: %w", err))
	}
	defer f.Close()
	var all []erasure
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var e erasure
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Namespace == "" || e.ProcessID == "" {
			return cli.UsageError(
				fmt.Errorf("--replay: line %d of %s must be a line that --record has written", n, c.Replay))
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	failed := 0
	var first error
	for _, e := range all {
		if err := c.erase(a, e, sum); err != nil {
			if failed++; first == nil {
				first = err
			}
			fmt.Fprintf(a.Stderr, "%s/%s: %v\n", output.OneLine(e.Namespace), output.OneLine(e.ProcessID), err)
		}
	}
	if first != nil {
		return fmt.Errorf("%d of %s failed, the first: %w", failed, output.Counted(len(all), "erasure"), first)
	}
	return nil
}

// appendTo appends a line to a file, and syncs the file to disk.
func (e erasure) appendTo(name string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

func (c *eraseCmd) print(a *cli.App, erased *progressorv1.EraseProcessResponse) error {
	if c.JSON() {
		return output.PrintMessage(a.Stdout, erased)
	}
	var rows []table.Row
	for _, name := range slices.Sorted(maps.Keys(erased.GetRows())) {
		rows = append(rows, table.Row{name, erased.GetRows()[name]})
	}
	title := "erased"
	if c.DryRun {
		title = "to erase"
	}
	return output.PrintRows(a.Stdout, table.Row{"table", title}, rows)
}
