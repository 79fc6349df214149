// Command functions serves five durable functions, each at its own path. They show how durable
// functions do common things: a batch, an approval by people, an agent that uses tools, and a
// subscription that lives for years.
package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// send has an effect in another service, such as a mail or a charge, and returns its answer. It is
// called in the bodies of steps. A service that gets the same durable.StepKey again must repeat its
// answer and not the effect.
type send func(c context.Context, what string) (string, error)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	functions := http.NewServeMux()
	functions.Handle("/import/", http.StripPrefix("/import", processor.Handler(newImport(log))))
	functions.Handle("/expense/", http.StripPrefix("/expense", processor.Handler(newExpense(log))))
	functions.Handle("/agent/", http.StripPrefix("/agent", processor.Handler(newAgent(answerByRule, log))))
	functions.Handle("/subscription/", http.StripPrefix("/subscription", processor.Handler(newSubscription(log))))
	functions.Handle("/purchase/", http.StripPrefix("/purchase", processor.Handler(newPurchase(log))))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: "127.0.0.1:9105", Handler: functions, Protocols: &protocols}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		slog.Error("serve", "error", err)
		os.Exit(1)
	}
}

// log prints what a service would do.
func log(c context.Context, what string) (string, error) {
	slog.Info(what, "key", durable.StepKey(c))
	return "done: " + what, nil
}
