package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Change is a request that changes something. Its key makes repeats safe.
type Change struct {
	Key  string
	lost atomic.Bool // a try was sent and got no response
}

type changeOf struct{} // context key of the Change of a request

// NewChange tracks the tries of a request with this key. If the key is empty and needsKey is true,
// NewChange generates a key. The client could also generate it, but then the error after a lost
// response could not show it. Requests that are idempotent by their ID, or that change nothing,
// need no key.
func NewChange(ctx context.Context, key string, needsKey bool) (context.Context, *Change) {
	c := &Change{Key: key}
	if key == "" && needsKey {
		c.Key = uuid.Must(uuid.NewV7()).String() // see newKey of package client
	}
	return context.WithValue(ctx, changeOf{}, c), c
}

// followTries records in the Change of a request whether a try was lost.
func followTries(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if c, ok := ctx.Value(changeOf{}).(*Change); ok && err != nil && MaybeStored(err) {
			c.lost.Store(true)
		}
		return resp, err
	}
}

// MaybeStored reports whether the request of a failed try may have been stored. It was not stored
// if the engine returned an error other than UNAVAILABLE, or if no connection was opened.
func MaybeStored(err error) bool {
	if d := client.Detail(err); d != nil {
		return d.GetReason() == progressorv1.ErrorDetail_REASON_UNAVAILABLE
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	return isNetworkError(err)
}

// isNetworkError reports whether an error does not show the outcome of the request: it is from the
// network, or the engine was unavailable or overloaded at the last try. It returns false if only
// the wait for a task timed out.
func isNetworkError(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return client.Reason(err) != progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT
	case connect.CodeResourceExhausted:
		// The engine reports OVERLOADED for this try. An earlier try may have been stored.
		return client.Reason(err) == progressorv1.ErrorDetail_REASON_OVERLOADED
	default:
		return false
	}
}

// Explain adds an explanation to an error if a response was lost. It says that the request may have
// been stored. The next step is the command look, unless look is empty, or a repetition of the
// request with the same key.
func (c *Change) Explain(err error, look string) error {
	connected, ok := errors.AsType[*connect.Error](err)
	if !ok || !c.lost.Load() || !isNetworkError(err) {
		return err
	}
	again := ""
	if c.Key != "" {
		again = "the same command with -k " + output.ShellWord(c.Key) + ", which is not executed twice"
	}
	if look != "" && again != "" {
		look += ", or "
	}
	return &Advised{Err: err,
		Message: connected.Message() + "; a response was lost: the request may have been accepted", Next: look + again}
}

// Awaiting returns the command that waits for the task of a change. It returns "" if the process ID
// is unknown because the engine chose it.
func (c *Change) Awaiting(ns, id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("progressor await %s %s --idempotency-key %s", output.ShellWord(ns), output.ShellWord(id),
		output.ShellWord(c.Key))
}

// Named returns a command that shows an object, or "" if the ID is empty.
func Named(command, ns, id string) string {
	if id == "" {
		return ""
	}
	return command + " " + output.ShellWord(ns) + " " + output.ShellWord(id)
}
