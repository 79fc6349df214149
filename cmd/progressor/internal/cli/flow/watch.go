package flow

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// flowPoll is how long a request waits for the end of a run. It is also the interval at which
// changes of the steps are shown.
const flowPoll = 500 * time.Millisecond

// followRun waits for the end of a run, shows it, and returns an error for the exit code.
func followRun(a *cli.App, f cli.EndFlags, flags cli.ClientFlags, run flowArgs) error {
	ctx, cancel := f.Waiting(a)
	defer cancel()
	screen := output.NewScreen(a.Stderr, a.Terminal)
	r, err := awaitRun(ctx, flags, run, drawRuns(ctx, flags, screen))
	screen.Clear()
	if err != nil {
		return cli.InterruptedWait(ctx, "run", run.NS, run.ID, f.WaitTimeout, ofRun(run, err))
	}
	if flags.JSON() {
		err = output.PrintMessage(a.Stdout, &progressorv1.GetRunResponse{Run: r})
	} else {
		err = printRun(a, flags, r)
	}
	if err != nil {
		return err
	}
	return runOutcome(r)
}

// awaitRun reads a run until it has ended.
func awaitRun(
	ctx context.Context, flags cli.ClientFlags, run flowArgs, show func(*progressorv1.Run) error,
) (*progressorv1.Run, error) {
	return flags.RetryingClient().AwaitRun(ctx,
		&progressorv1.GetRunRequest{Namespace: run.NS, RunId: run.ID, AwaitEnd: durationpb.New(flowPoll)}, show)
}

type flowWatchCmd struct {
	flowArgs
	cli.ClientFlags
}

func (flowWatchCmd) Help() string {
	return `Watch follows a run to its end. On a terminal, it redraws the steps; otherwise, it prints each
change of a status or progress as a line. With -o json, each line is the run as a JSON document. The
exit code is 5 if the run did not succeed.

    progressor run watch demo task-1
    progressor run watch demo task-1 -o json`
}

func (c *flowWatchCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	var show func(*progressorv1.Run) error
	switch {
	case c.JSON():
		last := ""
		show = func(r *progressorv1.Run) error {
			if text := watchedState(r); text != last {
				last = text
				return output.PrintLine(a.Stdout, r)
			}
			return nil
		}
	case a.Terminal:
		show = drawRuns(ctx, c.ClientFlags, output.NewScreen(a.Stderr, a.Terminal))
	default:
		lines := &runLines{w: a.Stdout, seen: map[string]string{}}
		show = lines.show
	}
	r, err := awaitRun(ctx, c.ClientFlags, c.flowArgs, show)
	if err != nil {
		return cli.InterruptedWait(ctx, "run", c.NS, c.ID, 0, ofRun(c.flowArgs, err))
	}
	return runOutcome(r)
}

// watchedState returns the parts of a run whose changes are printed, as one text.
func watchedState(r *progressorv1.Run) string {
	var b strings.Builder
	fmt.Fprint(&b, r.GetStatus(), r.GetBlockedOn(), r.GetUpdatedTime().AsTime())
	for _, s := range r.GetSteps() {
		fmt.Fprint(&b, "|", stepState(s), showItems(s))
	}
	return b.String()
}

func stepState(s *progressorv1.Step) string {
	return fmt.Sprint(s.GetStatus(), s.GetAttempt(), s.GetProgress().GetPercent(), s.GetProgress().GetSummary(),
		s.GetReason(), s.GetCompensationStatus())
}

// runLines prints the changes of a run, one per line.
type runLines struct {
	w    io.Writer
	seen map[string]string // by step; "" means the run itself
}

func (l *runLines) show(r *progressorv1.Run) error {
	now := output.StyleOf(l.w).Text(output.Time(timestamppb.Now()))
	for _, s := range r.GetSteps() {
		state, before := stepState(s), l.seen[s.GetStepId()]
		l.seen[s.GetStepId()] = state
		if state == before || before == "" && s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_PENDING {
			continue
		}
		line := fmt.Sprintf("%s  %s %-12s  %s", now, stepMarks[s.GetStatus()], s.GetStepId(),
			output.Enum(s.GetStatus()))
		if s.GetAttempt() > 1 {
			line += fmt.Sprintf(", attempt %d", s.GetAttempt())
		}
		if note := output.OneLine(stepNote(s)); note != "" {
			line += "  " + note
		}
		if _, err := fmt.Fprintln(l.w, line); err != nil {
			return err
		}
	}
	state := output.Enum(r.GetStatus())
	if note := output.OneLine(runNote(r)); note != "" && (runEnded(r) || r.GetBlockedOn() != "") {
		state += "  " + note
	}
	if state == l.seen[""] {
		return nil
	}
	l.seen[""] = state
	_, err := fmt.Fprintf(l.w, "%s  run  %s\n", now, state)
	return err
}

// runScreen draws a run for a terminal.
func runScreen(style output.Style, r *progressorv1.Run, t *progressorv1.Template) string {
	head := fmt.Sprintf("%s/%s  %s  %s", r.GetNamespace(), r.GetRunId(), output.Enum(r.GetStatus()), runProgress(r))
	if r.GetAttempt() > 1 {
		head += fmt.Sprintf("  attempt %d", r.GetAttempt())
	}
	if r.GetBlockedOn() != "" {
		head += "  " + r.GetBlockedOn()
	}
	return output.OneLine(head) + "\n" + drawSteps(style, r, t)
}

// drawRuns returns a function that redraws a screen for each new state of a run.
func drawRuns(ctx context.Context, flags cli.ClientFlags, s *output.Screen) func(*progressorv1.Run) error {
	var template *progressorv1.Template
	return func(r *progressorv1.Run) error {
		if !s.Enabled() {
			return nil
		}
		if template == nil {
			template = templateOf(ctx, flags, r)
		}
		s.Show(runScreen(s.Style, r, template))
		return nil
	}
}
