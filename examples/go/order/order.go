package main

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Order is the input of the function.
type Order struct {
	Item    string   `json:"item"`
	Price   int      `json:"price"`
	Parcels []string `json:"parcels"`
}

// Pay is a call of the customer.
type Pay struct {
	Card   string `json:"card"`
	Amount int    `json:"amount"`
}

// View is the state that clients read.
type View struct {
	State string `json:"state"`
}

// Receipt is what the function returns.
type Receipt struct {
	Charge string   `json:"charge"`
	Labels []string `json:"labels"`
}

func newOrders(s *shop) processor.Processor {
	return durable.Func("order", func(ctx durable.Ctx, in Order) (Receipt, error) {
		if in.Price <= 0 {
			return Receipt{}, processor.Reject("bad_price", "the price must be positive")
		}
		pays := durable.Calls(ctx, "pay", durable.Accept(func(p Pay) (View, error) {
			if p.Amount != in.Price {
				return View{}, processor.Reject("wrong_amount", "the price is %d", in.Price)
			}
			return View{"paying"}, nil
		}))
		_, err := durable.Step(ctx, "reserve", func(c context.Context) (string, error) {
			return s.do(c, "reserve "+in.Item)
		}, durable.Retry(5, time.Second), durable.Undo(s.undo))
		if err != nil {
			return Receipt{}, err
		}
		durable.Publish(ctx, View{"reserved"})

		late := durable.After(ctx, "pay-within", 24*time.Hour)
		if durable.First(ctx, "paid-or-late", pays, late) == late {
			durable.Publish(ctx, View{"expired"})
			return Receipt{}, processor.Reject("not_paid", "not paid within a day")
		}
		pay := pays.Next()
		charge, err := durable.Step(ctx, "charge", func(c context.Context) (string, error) {
			return s.do(c, "charge "+pay.Card)
		}, durable.Retry(5, time.Second), durable.Undo(s.undo))
		if err != nil {
			durable.Publish(ctx, View{"declined"})
			return Receipt{}, err
		}
		durable.Publish(ctx, View{"paid"})

		labels, err := durable.Each(ctx, "parcel", in.Parcels, func(ctx durable.Ctx, parcel string) (string, error) {
			return durable.Step(ctx, "label", func(c context.Context) (string, error) {
				return s.do(c, "label "+parcel)
			}, durable.Retry(5, time.Second))
		}, durable.Limit(4))
		if err != nil {
			return Receipt{}, err
		}
		durable.Sleep(ctx, "return-period", 14*24*time.Hour)
		durable.Publish(ctx, View{"done"})
		return Receipt{Charge: charge, Labels: labels}, nil
	})
}
