package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// change is a request that changes something: with its key a repeat of it does nothing twice.
type change struct {
	key  string
	lost atomic.Bool // a try was sent, and nobody knows what became of it
}

type changeOf struct{} // where the context of its tries has it

// newChange follows the tries of a request with this key. needsKey: where there is none it is made here, and not by the client, as it is told
// where the answer is lost. A request whose repeat finds what was made by its id, or that changes nothing, needs none.
func newChange(ctx context.Context, key string, needsKey bool) (context.Context, *change) {
	c := &change{key: key}
	if key == "" && needsKey {
		c.key = uuid.NewString()
	}
	return context.WithValue(ctx, changeOf{}, c), c
}

// followTries tells the change of a request of each try that was lost.
func followTries(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if c, ok := ctx.Value(changeOf{}).(*change); ok && err != nil && maybeStored(err) {
			c.lost.Store(true)
		}
		return resp, err
	}
}

// maybeStored tells whether a try may have been stored although it failed. An engine's word is final, unless it lost its database; and where
// no connection came about nothing was sent.
func maybeStored(err error) bool {
	if d := client.Detail(err); d != nil {
		return d.GetReason() == progressorv1.ErrorDetail_REASON_UNAVAILABLE
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	return noWord(err)
}

// noWord tells whether an error is of the way, and not of the request.
func noWord(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return client.Reason(err) != progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT
	case connect.CodeResourceExhausted:
		return client.Reason(err) == progressorv1.ErrorDetail_REASON_OVERLOADED // of this try, and not of one before it
	default:
		return false
	}
}

// explain says of a request whose answer was lost that it may be stored, and how to find out: by look, a command, or "", and by a repeat.
func (c *change) explain(err error, look string) error {
	connected, ok := errors.AsType[*connect.Error](err)
	if !ok || !c.lost.Load() || !noWord(err) {
		return err
	}
	again := ""
	if c.key != "" {
		again = "the same command with -k " + shellWord(c.key) + ", which does nothing twice"
	}
	if look != "" && again != "" {
		look += ", or "
	}
	return &advised{error: err, message: connected.Message() + "; an answer was lost: the request may have been accepted", next: look + again}
}

// awaiting is the command that waits for the task of a change; "" where the engine chose the process's id, which nobody knows.
func (c *change) awaiting(ns, id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("progressor await %s %s --idempotency-key %s", shellWord(ns), shellWord(id), shellWord(c.key))
}

// named is a command that shows what an id names; "" where there is none.
func named(command, ns, id string) string {
	if id == "" {
		return ""
	}
	return command + " " + shellWord(ns) + " " + shellWord(id)
}
