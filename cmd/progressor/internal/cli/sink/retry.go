package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// retryPoll is the interval at which the progress of a retry is read.
const retryPoll = 500 * time.Millisecond

type sinkRetryCmd struct {
	sinkArgs
	cli.ClientFlags
	All     bool    `help:"All dead letters."`
	Letter  []int64 `field:"change_ids" placeholder:"CHANGE" help:"The dead letter of this change; can be repeated."`
	Process string  `field:"of_process_id" placeholder:"ID" complete:"process" help:"Only those of this process, job, run (~flow/ID) or cron (~cron/ID)."`
	Error   string  `placeholder:"TEXT" help:"Only those whose error contains this text, such as 'HTTP 413', in upper or lower case."`
	From    string  `field:"since_time" placeholder:"TIME|DURATION" help:"Only those that failed since this time, such as 2026-11-26T10:00:00Z or -2h."`
	To      string  `field:"until_time" placeholder:"TIME|DURATION" help:"Only those that failed before this time."`
	DryRun  bool    `help:"Show the selected dead letters, and change nothing."`
	Wait    bool    `help:"Wait until each was delivered or has failed. On a terminal, show a progress bar. Ctrl-C ends the wait, not the retry."`
}

func (sinkRetryCmd) Help() string {
	return `Retry lets a sink deliver dead letters again, after its target was corrected: all, or
those that match all of the flags, at most 1,000 at a time. A dead letter that is delivered is
deleted. A dead letter that fails remains, with its new error. A change is delivered after newer
changes of its process: see docs/changes.md.

    progressor sink retry orders audit --all --dry-run
    progressor sink retry orders audit --all --wait
    progressor sink retry orders audit --letter 4711
    progressor sink retry orders audit --process order-7
    progressor sink retry orders audit --error 'HTTP 413' --from -24h`
}

// Validate returns an error if the flags are contradictory.
func (c *sinkRetryCmd) Validate() error {
	some := len(c.Letter) > 0 || c.Process != "" || c.Error != "" || c.From != "" || c.To != ""
	switch {
	case c.All && some:
		return errors.New("--all selects all dead letters: omit --letter, --process, --error, --from and --to")
	case !c.All && !some:
		return errors.New("set --all, or select dead letters with --letter, --process, --error, --from or --to")
	case c.DryRun && c.Wait:
		return errors.New("use either --dry-run or --wait: a dry run delivers nothing")
	}
	return c.ClientFlags.Validate()
}

func (c *sinkRetryCmd) Run(a *cli.App) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Change.RetrySinkDeadLetters(ctx, req)
	switch {
	case err != nil:
		return err
	case len(c.Letter) > 0 && len(resp.GetDeadLetters()) == 0:
		return &cli.CodedError{
			Code: cli.ExitNotFound, Err: errors.New("the sink has no such dead letter"),
			Next: "progressor sink retry " + c.words() + " --all --dry-run",
		}
	case c.Wait:
		return c.wait(a, resp)
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	}
	n, waiting, deleted := counts(resp)
	fields := []output.Field{
		{"sink", c.NS + "/" + c.ID},
		{"state", stateName(resp.GetSink().GetStatus())},
		{"selected", output.Thousands(n)},
		{"waiting", output.ID(waiting)},
		{"change deleted", output.ID(deleted)},
	}
	if err := output.PrintFields(a.Stdout, fields...); err != nil {
		return err
	}
	switch {
	case c.DryRun && n > 0:
		fmt.Fprintln(a.Stdout)
		return printDeadLetters(a, resp.GetDeadLetters())
	case waiting > 0:
		what := "progress"
		if stopped(resp.GetSink()) {
			what = "to deliver them"
		}
		_, err = fmt.Fprintf(a.Stdout, "\n%s: %s\n", what, c.next(resp.GetSink()))
	}
	return err
}

// request returns the request that the flags describe.
func (c *sinkRetryCmd) request() (*progressorv1.RetrySinkDeadLettersRequest, error) {
	req := &progressorv1.RetrySinkDeadLettersRequest{
		Namespace: c.NS, SinkId: c.ID, All: c.All, ChangeIds: c.Letter, OfProcessId: c.Process, Error: c.Error,
		DryRun: c.DryRun,
	}
	var err error
	if req.SinceTime, err = cli.TimeFrom("--from", c.From); err != nil {
		return nil, err
	}
	req.UntilTime, err = cli.TimeFrom("--to", c.To)
	return req, err
}

// next returns the next step for the operator while dead letters wait.
func (c *sinkRetryCmd) next(m *progressorv1.Sink) string {
	if stopped(m) {
		return "progressor sink resume " + c.words()
	}
	return "progressor sink get " + c.words()
}

// words returns the arguments that name the sink in commands.
func (c *sinkRetryCmd) words() string { return output.ShellWord(c.NS) + " " + output.ShellWord(c.ID) }

// stopped reports whether a sink delivers nothing until an operator resumes it.
func stopped(m *progressorv1.Sink) bool {
	switch m.GetStatus().GetState() {
	case progressorv1.SinkState_SINK_STATE_PAUSED, progressorv1.SinkState_SINK_STATE_BROKEN,
		progressorv1.SinkState_SINK_STATE_DISABLED:
		return true
	default:
		return false
	}
}

// counts returns the number of dead letters in a response, how many of them wait to be delivered
// again, and how many cannot be delivered because their change was deleted.
func counts(resp *progressorv1.RetrySinkDeadLettersResponse) (n, waiting, deleted int64) {
	for _, d := range resp.GetDeadLetters() {
		n++
		if d.GetRetryTime() != nil {
			waiting++
		} else if d.GetChangeDeleted() {
			deleted++
		}
	}
	return n, waiting, deleted
}

// wait waits until the selected dead letters were delivered or have failed.
func (c *sinkRetryCmd) wait(a *cli.App, begun *progressorv1.RetrySinkDeadLettersResponse) error {
	selected := int64(len(begun.GetDeadLetters()))
	end := begun
	if selected > 0 {
		var err error
		if end, err = c.await(a, begun, selected); err != nil {
			return err
		}
	}
	failed := int64(len(end.GetDeadLetters()))
	if err := c.printEnd(a, end, selected, failed); err != nil {
		return err
	}
	if failed > 0 {
		return &cli.CodedError{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s not delivered", output.Counted(int(failed), "dead letter")),
		}
	}
	return nil
}

// await waits until none of the dead letters of a response waits to be delivered again. On a
// terminal, it shows the progress. It returns an error if the sink is stopped.
func (c *sinkRetryCmd) await(
	a *cli.App, begun *progressorv1.RetrySinkDeadLettersResponse, selected int64,
) (*progressorv1.RetrySinkDeadLettersResponse, error) {
	req := &progressorv1.RetrySinkDeadLettersRequest{Namespace: c.NS, SinkId: c.ID}
	for _, d := range begun.GetDeadLetters() {
		req.ChangeIds = append(req.ChangeIds, d.GetChangeId())
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	line := output.NewTerminalLine(a.Stderr, a.Terminal)
	end, err := c.RetryingClient().AwaitSinkRetries(ctx, req, retryPoll,
		func(resp *progressorv1.RetrySinkDeadLettersResponse) error {
			left, waiting, _ := counts(resp)
			if line.Enabled() {
				line.Write(retryLine(selected, waiting, left-waiting))
			}
			if waiting > 0 && stopped(resp.GetSink()) {
				return &cli.CodedError{
					Code: cli.ExitConflict, Next: c.next(resp.GetSink()),
					Err: fmt.Errorf("the sink is %s: %s until it is resumed", stateName(resp.GetSink().GetStatus()),
						waits(waiting)),
				}
			}
			return nil
		})
	line.End()
	if errors.Is(err, context.Canceled) {
		err = &cli.CodedError{
			Code: cli.ExitInterrupted, Err: errors.New("the wait was interrupted; the retry continues"),
			Next: c.next(begun.GetSink()),
		}
	}
	return end, err
}

// waits returns the number of waiting dead letters with a noun and a verb.
func waits(n int64) string {
	if n == 1 {
		return "1 dead letter waits"
	}
	return output.Thousands(n) + " dead letters wait"
}

// retryLine returns the progress bar of a retry.
func retryLine(selected, waiting, failed int64) string {
	done := selected - waiting
	text := output.Bar(float64(done)/float64(selected), output.ProgressWidth) + " " + output.Thousands(done) + " of " +
		output.Thousands(selected)
	if failed > 0 {
		text += ", " + output.Thousands(failed) + " failed"
	}
	return text
}

// printEnd prints the result of a retry.
func (c *sinkRetryCmd) printEnd(
	a *cli.App, end *progressorv1.RetrySinkDeadLettersResponse, selected, failed int64,
) error {
	if c.JSON() {
		return printRetryJSON(a, end, selected, failed)
	}
	err := output.PrintFields(a.Stdout,
		output.Field{"sink", c.NS + "/" + c.ID},
		output.Field{"selected", output.Thousands(selected)},
		output.Field{"delivered", output.Thousands(selected - failed)},
		output.Field{"failed", output.Thousands(failed)},
	)
	if err != nil || failed == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	return printDeadLetters(a, end.GetDeadLetters())
}

// printRetryJSON prints the result of a retry for programs.
func printRetryJSON(
	a *cli.App, end *progressorv1.RetrySinkDeadLettersResponse, selected, failed int64,
) error {
	list := []json.RawMessage{}
	for _, d := range end.GetDeadLetters() {
		text, err := protojson.Marshal(d)
		if err != nil {
			return fmt.Errorf("write a dead letter as JSON: %w", err)
		}
		list = append(list, text)
	}
	return output.PrintJSON(a.Stdout, map[string]any{
		"selected": selected, "delivered": selected - failed, "failed": failed, "deadLetters": list,
	})
}

// showDeadLetters describes how many changes of a sink became dead letters, and how many dead
// letters the sink still has.
func showDeadLetters(s *progressorv1.SinkStatus) string {
	text := output.ID(s.GetDeadLetters())
	if s.GetStoredDeadLetters() != s.GetDeadLetters() {
		text += fmt.Sprintf(", %s left", output.Thousands(s.GetStoredDeadLetters()))
	}
	if s.GetRetries() > 0 {
		text += fmt.Sprintf(", %s to be delivered again", output.Thousands(s.GetRetries()))
	}
	return text
}

// printDeadLetters prints a table of dead letters.
func printDeadLetters(a *cli.App, list []*progressorv1.SinkDeadLetter) error {
	var rows []table.Row
	for _, d := range list {
		state := ""
		switch {
		case d.GetRetryTime() != nil:
			state = "waits"
		case d.GetChangeDeleted():
			state = "change deleted"
		}
		rows = append(rows, table.Row{
			d.GetChangeId(), output.OneLine(d.GetProcessId()), strings.ToLower(output.Enum(d.GetKind())), d.GetType(),
			output.Time(d.GetTime()), d.GetAttempts(), state, output.OneLine(d.GetError()),
		})
	}
	return output.PrintRows(a.Stdout, table.Row{"dead letter", "process", output.Minor("kind"), output.Minor("type"),
		"failed", "attempts", "retry", "error"}, rows)
}
