// Command order is a processor of orders. An order is a durable function: it reserves the goods,
// waits for the payment, charges the card, ships, and undoes everything if something fails.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/progressor-engine/progressor/processor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := processor.Serve(ctx, "127.0.0.1:9104", newOrders(newShop())); err != nil {
		slog.Error("serve", "error", err)
		os.Exit(1)
	}
}
