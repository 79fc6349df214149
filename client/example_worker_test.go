package client_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
)

type Mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

type Receipt struct {
	MessageID string `json:"messageId"`
}

func deliver(context.Context, Mail) (string, error) { return "", nil }

func ExampleHandle() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w := client.NewWorker(client.New("http://127.0.0.1:8080"), []string{"mail"}, client.WithConcurrency(20))
	client.Handle(w, "send", func(ctx context.Context, m Mail) (Receipt, error) {
		if m.To == "" {
			return Receipt{}, processor.Reject("no_address", "to is empty") // a retry cannot succeed
		}
		client.Report(ctx, 50, "half of the letters sent")
		id, err := deliver(ctx, m) // an error fails the attempt; the job may be retried
		return Receipt{MessageID: id}, err
	})
	if err := w.Run(ctx); err != nil {
		log.Print(err)
	}
}
