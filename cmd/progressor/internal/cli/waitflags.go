package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// EndFlags are the flags to wait for the end of a job or a run. Each command sets the variable
// ${what} to "job" or "run".
type EndFlags struct {
	Wait        bool          `help:"Wait for the end of the ${what}. On a terminal, show its progress. Ctrl-C ends the wait, not the ${what}."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"Maximum duration of --wait. Default: until the end."`
}

// Validate checks the limit of the wait.
func (f EndFlags) Validate() error {
	switch {
	case f.WaitTimeout < 0:
		return fmt.Errorf("--wait-timeout: must be more than 0s (got %s)", f.WaitTimeout)
	case f.WaitTimeout > 0 && !f.Wait:
		return errors.New("--wait-timeout requires --wait")
	}
	return nil
}

// Waiting returns the context of the wait.
func (f EndFlags) Waiting(a *App) (context.Context, context.CancelFunc) {
	ctx, cancel := a.Interruptible()
	if f.WaitTimeout == 0 {
		return ctx, cancel
	}
	limited, cancelLimit := context.WithTimeout(ctx, f.WaitTimeout)
	return limited, func() { cancelLimit(); cancel() }
}

// InterruptedWait returns the error of a wait that ended before the job or run. It returns err if
// the wait was not interrupted.
func InterruptedWait(ctx context.Context, what, namespace, id string, limit time.Duration, err error) error {
	get := fmt.Sprintf("progressor %s get %s %s", what, output.ShellWord(namespace), output.ShellWord(id))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded),
		limit > 0 && connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the timeout of the engine may come first
		return &CodedError{Code: ExitTimeout,
			Err: fmt.Errorf("%s %s has not ended after %s; it continues", what, id, limit), Next: get}
	case errors.Is(ctx.Err(), context.Canceled):
		return &CodedError{Code: ExitInterrupted, Err: fmt.Errorf("the wait was interrupted; the %s continues", what),
			Next: get}
	}
	return err
}

// WaitFlags are the flags of requests that run a task.
type WaitFlags struct {
	IdempotencyKey string        `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key returns the first response. Default: one random key for all attempts of this command."`
	Accepted       bool          `help:"Return when the task is stored, without waiting for its response."`
	Timeout        time.Duration `name:"wait-timeout" aliases:"timeout" field:"timeout" placeholder:"DURATION" help:"How long to wait for the response; the task continues after that. Default: the step timeout of the namespace."`
	Context        string        `placeholder:"TEXT|@FILE" help:"Context that the processor receives with this task and with the timers that it sets."`
}

// Wait returns the value of the field wait of the request.
func (f WaitFlags) Wait() progressorv1.Wait {
	if f.Accepted {
		return progressorv1.Wait_WAIT_ACCEPTED
	}
	return progressorv1.Wait_WAIT_COMPLETED
}

// RequestTimeout returns the timeout of the wait, or nil for the default of the namespace.
func (f WaitFlags) RequestTimeout() *durationpb.Duration {
	if f.Timeout == 0 {
		return nil
	}
	return durationpb.New(f.Timeout)
}

// ReadContext returns the context of the task, or nil if there is none.
func (f WaitFlags) ReadContext(a *App) ([]byte, error) {
	if f.Context == "" {
		return nil, nil
	}
	return a.Payload("--context", f.Context)
}

// Print shows the result of a request.
func (f WaitFlags) Print(a *App, ns, id string, task int64, response []byte) error {
	accepted := ""
	if f.Accepted {
		accepted = "accepted"
	}
	return output.PrintFields(a.Stdout,
		output.Field{"process", output.OneLine(ns + "/" + id)},
		output.Field{"task", output.ID(task)},
		output.Field{"status", accepted},
		output.Field{"response", output.Payload(response, 0)},
	)
}
