// Package order contains the mistakes that docs/functions.md describes.
package order

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor/durable"
)

type cart struct {
	Customer string
	Items    map[string]int
}

func order(ctx durable.Ctx, in cart) (time.Duration, error) {
	began := time.Now()
	var hold string
	err := durable.Run(ctx, "reserve", func(c context.Context) (err error) {
		hold, err = reserve(c, in.Customer)
		return err
	})
	if err != nil {
		return 0, err
	}
	for item, n := range in.Items {
		err := durable.Run(ctx, "pack", func(c context.Context) error { return pack(c, hold, item, n) })
		if err != nil {
			return 0, err
		}
	}
	return durable.Now(ctx, "packed").Sub(began), nil
}

func reserve(context.Context, string) (string, error)        { return "R7", nil }
func pack(_ context.Context, hold, item string, n int) error { return nil }
