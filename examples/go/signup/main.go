// Command signup is a durable function: it opens an account, waits until its owner confirms the
// address, and deletes the account if the owner is too late.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Signup is the input of the function.
type Signup struct {
	Mail    string `json:"mail"`
	Seconds int    `json:"seconds"` // the time in which the owner must confirm
}

func newSignup(do func(c context.Context, what string) error) processor.Processor {
	return durable.Func("signup", func(ctx durable.Ctx, in Signup) (string, error) {
		confirmed := durable.Calls(ctx, "confirm", durable.Accept(func(name string) (string, error) {
			return "thank you, " + name, nil
		}))
		step := func(name string) error {
			return durable.Run(ctx, name, func(c context.Context) error {
				return do(c, name+" "+in.Mail)
			}, durable.Retry(2, time.Second))
		}
		if err := step("open"); err != nil {
			return "", err
		}
		late := durable.After(ctx, "confirm-within", time.Duration(in.Seconds)*time.Second)
		if durable.First(ctx, "confirmed-or-late", confirmed, late) == late {
			return "too late", step("delete")
		}
		return "welcome, " + confirmed.Next(), step("welcome")
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("the program starts")
	err := processor.Serve(ctx, "127.0.0.1:9106", newSignup(func(_ context.Context, what string) error {
		if _, err := os.Stat(".progressor/down"); err == nil {
			return errors.New("the service is down")
		}
		_, err := fmt.Println(what)
		return err
	}))
	if err != nil {
		fmt.Println(err)
	}
}
