package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Commands are the commands about new builds.
type Commands struct {
	Deploy deployCmd `cmd:"" group:"process" help:"Check a new build of a durable function before a deploy."`
}

type deployCmd struct {
	Check checkCmd `cmd:"" help:"Show what a new build would change for the open processes."`
}

type checkCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only processes that match. See progressor list. Default: those in RUNNING or SUSPENDED."`

	cli.ClientFlags
	Cmd          string            `placeholder:"COMMAND" help:"Command that serves the new build, for /bin/sh. It is ended after the check."`
	URL          string            `name:"url" placeholder:"URL" help:"URL of a new build that you have started."`
	Path         string            `placeholder:"PATH" help:"With --cmd: path of the processor. Default: that of the namespace's URL."`
	Header       map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"Header of the requests to the new build, such as Authorization. Repeatable."`
	FailOn       []string          `default:"error,orphan" placeholder:"CLASS" help:"Classes of findings for which the exit code is 1: error, orphan, changed, new, or none. Default: ${default}."`
	Ignore       []string          `sep:"none" placeholder:"NAME" help:"Do not report operations with this name, because their change is intended. KIND:NAME is only one kind, as in step:reserve. * stands for any index, as in 'parcel[*]/label'. Repeatable."`
	Concurrency  int               `default:"8" placeholder:"N" help:"Processes that are checked at a time. Default: ${default}."`
	StartTimeout time.Duration     `default:"30s" placeholder:"DURATION" help:"How long the command may take to listen. Default: ${default}."`
	RunTimeout   time.Duration     `default:"30s" placeholder:"DURATION" help:"How long the check of each process may take. Default: ${default}."`
	All          bool              `help:"Print all affected processes. Default: the first 20."`
}

func (checkCmd) Help() string {
	return `Check asks a new build of a durable function in Go what it would do with each open process. The
build replays the journals. It runs no step, and nothing is stored. Findings have these classes:

    error    the process would stop: its next task fails, or the function returns an error
    orphan   the function no longer asks for an entry of the journal: it was removed or renamed
    changed  an operation was recorded with another input, such as the duration of a timer
    new      the process has passed an operation that it has not done: its next task does it

The exit code is 1 if a process has a finding of a class in --fail-on, and otherwise 5 if a process
could not be checked, for example because its history is too large to be read.

With --cmd, the program gets a port in the environment variable PORT, and the address in
PROGRESSOR_CHECK_ADDRESS. Because of the latter, processor.Serve and client.Worker.Run serve only
checks: a worker does not poll. A program with its own HTTP server must listen on PORT.

    progressor deploy check orders --cmd ./orders-new
    progressor deploy check orders --url http://127.0.0.1:9105/order
    progressor deploy check orders 'metadata.tenant = "acme"' --cmd ./orders-new -o json
    progressor deploy check orders --cmd ./orders-new --fail-on error,orphan,changed
    progressor deploy check orders --cmd ./orders-new --ignore step:reserve --ignore 'parcel[*]/label'
    progressor deploy check orders 'status = ERROR' --cmd ./orders-new`
}

// check returns an error if the flags are contradictory.
func (c *checkCmd) check() error {
	switch {
	case (c.Cmd == "") == (c.URL == ""):
		return errors.New("--cmd, --url: set one of them, to say where the new build is")
	case c.Path != "" && c.URL != "":
		return errors.New("--path: can only be used with --cmd: --url contains the path")
	case c.Concurrency < 1 || c.Concurrency > 100:
		return fmt.Errorf("--concurrency: must be from 1 to 100 (got %d)", c.Concurrency)
	case c.RunTimeout <= 0:
		return errors.New("--run-timeout: must be more than 0")
	}
	for _, class := range c.FailOn {
		if class != "none" && !slices.Contains(durablecheck.Classes, durablecheck.Class(class)) {
			return fmt.Errorf("--fail-on: must be error, orphan, changed, new or none (got %s)", class)
		}
	}
	return nil
}

// Run checks the open processes.
func (c *checkCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	target, err := c.target(ctx)
	if err != nil {
		return err
	}
	if c.Cmd != "" {
		program, err := cli.StartProgram(ctx, c.Cmd, a.Stderr, durablecheck.AddressVariable)
		if err != nil {
			return err
		}
		defer program.Stop()
		if err := program.Await(ctx, c.StartTimeout); err != nil {
			return err
		}
		target.Url = "http://" + program.Address + target.GetUrl()
	}
	build, err := remote.Dial(c.NS, target, c.Concurrency, nil)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--url: %w", err))
	}
	found, err := c.checkAll(ctx, a, build)
	if err != nil {
		return c.explain(err)
	}
	return c.print(a, found)
}

// target returns how to reach the new build: the settings of the namespace's processor, with
// another URL. With --cmd, the URL is only the path.
func (c *checkCmd) target(ctx context.Context) (*progressorv1.ConnectProcessor, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.ReadTimeout)
	defer cancel()
	resp, err := c.Client().Namespace.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: c.NS})
	if err != nil && connect.CodeOf(err) != connect.CodePermissionDenied { // the user may still read processes
		return nil, err
	}
	current := resp.GetNamespace().GetProcessor().GetConnect()
	target := &progressorv1.ConnectProcessor{Url: c.URL, Encoding: current.GetEncoding(),
		Protocol: current.GetProtocol(), Headers: c.Header}
	if c.Cmd == "" {
		return target, nil
	}
	target.Url = c.Path
	if old, err := url.Parse(current.GetUrl()); target.GetUrl() == "" && err == nil {
		target.Url = old.Path
	}
	if !strings.HasPrefix(target.GetUrl(), "/") {
		target.Url = "/" + target.GetUrl()
	}
	return target, nil
}

// explain adds the next step to an error of the new build.
func (c *checkCmd) explain(err error) error {
	where := "--url"
	if c.Cmd != "" {
		where = "--cmd and --path"
	}
	switch {
	case errors.Is(err, durablecheck.ErrUnsupported):
		return &cli.CodedError{Code: cli.ExitFailed, Err: err,
			Next: "check that " + where + " name the processor of this namespace; see docs/functions.md"}
	case processor.Unreachable(err), processor.BadResponse(err):
		return &cli.CodedError{Code: cli.ExitFailed, Err: fmt.Errorf("the new build did not answer a check: %w", err),
			Next: "check " + where + "; --header sets headers that the processor requires"}
	default:
		return err
	}
}
