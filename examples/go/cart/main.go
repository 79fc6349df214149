// Command cart is a processor of shopping carts. A cart accepts items, and is abandoned if no item
// is added for some time.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/progressor-engine/progressor/processor"
)

// Cart is the state of a process, stored as JSON.
type Cart struct {
	Keep  string   `json:"keep"`
	Items []string `json:"items"`
}

func newCart() processor.Processor {
	return &processor.JSON[Cart]{
		OnInit: func(_ context.Context, t *processor.Task[Cart]) error {
			t.State = Cart{Keep: "1m", Items: []string{}}
			if len(t.Request.GetArgs()) > 0 {
				if err := t.Args(&t.State); err != nil {
					return err
				}
			}
			t.JSONResponse(t.State)
			return nil
		},
		OnCall: func(_ context.Context, t *processor.Task[Cart]) error {
			var args struct {
				Add string `json:"add"`
			}
			if err := t.Args(&args); err != nil {
				return err
			}
			if args.Add == "" {
				return processor.Reject("nothing_to_add", "add is empty")
			}
			keep, err := time.ParseDuration(t.State.Keep)
			if err != nil {
				return err
			}
			t.State.Items = append(t.State.Items, args.Add)
			t.JSONEvent(map[string]string{"added": args.Add}).JSONResponse(t.State).SetTimerAfter(keep)
			return nil
		},
		OnTimeout: func(_ context.Context, t *processor.Task[Cart]) error {
			t.JSONEvent(map[string][]string{"abandoned": t.State.Items}).Complete()
			return nil
		},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := processor.Serve(ctx, "127.0.0.1:9101", newCart()); err != nil {
		slog.Error("serve", "error", err)
		os.Exit(1)
	}
}
