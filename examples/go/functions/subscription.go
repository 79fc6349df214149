package main

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Subscription is the input, and what the function passes on when it restarts.
type Subscription struct {
	Customer string `json:"customer"`
	Plan     string `json:"plan"`
	Months   int    `json:"months"` // number of paid months
}

// Change is a call of the customer. An empty plan ends the subscription at the end of the month.
type Change struct {
	Plan string `json:"plan"`
}

const month = 30 * 24 * time.Hour

// newSubscription returns a function that charges a customer each month, for as many years as the
// customer wants. After each year it restarts, so that its journal stays short. Calls that it has
// not taken yet are kept.
func newSubscription(do send) processor.Processor {
	return durable.Func("subscription", func(ctx durable.Ctx, in Subscription) (Subscription, error) {
		changes := durable.Calls(ctx, "change", durable.Accept(func(c Change) (Change, error) { return c, nil }))
		for range 12 {
			if err := durable.Run(ctx, "charge", func(c context.Context) error {
				_, err := do(c, "charge "+in.Customer+" for "+in.Plan)
				return err
			}, durable.Retry(10, time.Hour)); err != nil {
				return in, err
			}
			in.Months++
			durable.Publish(ctx, in)
			end := durable.After(ctx, "month", month)
			for durable.First(ctx, "changed-or-over", changes, end) != end {
				in.Plan = changes.Next().Plan
				durable.Publish(ctx, in)
			}
			if in.Plan == "" {
				return in, nil
			}
		}
		return in, durable.Restart(in)
	})
}
