// Command remind is a worker: it takes jobs named remind.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/progressor-engine/progressor/client"
)

// Reminder contains the args of a job.
type Reminder struct {
	To string `json:"to"`
}

// Sent is the result of a job.
type Sent struct {
	Text string `json:"text"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w := client.NewWorker(client.New("http://127.0.0.1:8080"), []string{"mails-go"})
	client.Handle(w, "remind", func(_ context.Context, r Reminder) (Sent, error) {
		return Sent{Text: "Dear " + r.To + ", your cart waits."}, nil // an error causes a retry
	})
	if err := w.Run(ctx); err != nil {
		slog.Error("worker", "error", err)
		os.Exit(1)
	}
}
