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
			return Receipt{}, processor.Reject("no_address", "to is empty") // a retry would be useless
		}
		client.Report(ctx, 50, "half of the letters")
		id, err := deliver(ctx, m) // any error fails the attempt, and the job is retried by its options
		return Receipt{MessageID: id}, err
	})
	if err := w.Run(ctx); err != nil {
		log.Print(err)
	}
}
