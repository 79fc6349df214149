package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Purchase is what an employee wants to buy.
type Purchase struct {
	Item  string `json:"item"`
	Price int    `json:"price"`
}

// newPurchase returns a function that buys something. If the item is expensive, a member of the
// group buyers must release the purchase in the inbox within two days.
func newPurchase(do send) processor.Processor {
	return durable.Func("purchase", func(ctx durable.Ctx, in Purchase) (string, error) {
		if in.Price < 500 {
			return "bought", tell(ctx, do, "buy", in.Item)
		}
		released, err := durable.Human[bool](ctx, "release", durable.Due(48*time.Hour), durable.About(in),
			durable.Assignees("buyers"), durable.Title(fmt.Sprintf("Buy %s for %d?", in.Item, in.Price)))
		if late, ok := errors.AsType[*durable.StepError](err); ok && late.Reason == durable.ReasonTimeout {
			return "late", nil
		}
		if err != nil || !released {
			return "refused", err
		}
		return "bought", tell(ctx, do, "buy", in.Item)
	})
}
