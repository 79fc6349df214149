package cli

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// Show sends a request that does not wait for a task, and prints the response as JSON or with show.
// It is for commands whose different responses contain the same message. show gets the message from
// any of these responses. c is the command, which embeds OutputFlag.
func Show[Q, P proto.Message](
	a *App, c interface{ JSON() bool }, call func(context.Context, Q) (P, error), req Q, show func(*App, P) error,
) error {
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := call(ctx, req)
	switch {
	case err != nil:
		return err
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	}
	return show(a, resp)
}
