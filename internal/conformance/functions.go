package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Functions returns new functions of the kit, by name. docs/journal.md describes them, and each SDK
// has to implement them in the same way.
func Functions() map[string]processor.Processor {
	return map[string]processor.Processor{
		"order": order(), "names": names(), "retries": retries(), "family": family(), "sum": sum(), "misuse": misuse(),
	}
}

type orderInput struct {
	Item    string   `json:"item"`
	Price   int      `json:"price"`
	Parcels []string `json:"parcels"`
}

type pay struct {
	Card   string `json:"card"`
	Amount int    `json:"amount"`
}

type view struct {
	State string `json:"state"`
}

type receipt struct {
	Charge string   `json:"charge"`
	Labels []string `json:"labels"`
}

// says returns the body of a step that returns a text.
func says(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

// undone is an undo that has no effect.
func undone(context.Context, string) error { return nil }

func charge(card string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		switch card {
		case "declined":
			return "", processor.Reject("declined", "the bank declined the card")
		case "broken":
			return "", errors.New("the bank is down")
		}
		return "charge " + card, nil
	}
}

// order has steps with undos, calls with Accept, a timer, First, Each and a sleep.
func order() processor.Processor {
	return durable.Func("order", func(ctx durable.Ctx, in orderInput) (receipt, error) {
		if in.Price <= 0 {
			return receipt{}, processor.Reject("bad_price", "the price must be positive")
		}
		pays := durable.Calls(ctx, "pay", durable.Accept(func(p pay) (view, error) {
			if p.Amount != in.Price {
				return view{}, processor.Reject("wrong_amount", "the price is %d", in.Price)
			}
			return view{"paying"}, nil
		}))
		if _, err := durable.Step(ctx, "reserve", says("reserve "+in.Item), durable.Undo(undone)); err != nil {
			return receipt{}, err
		}
		durable.Publish(ctx, view{"reserved"})
		late := durable.After(ctx, "pay-within", 24*time.Hour)
		if durable.First(ctx, "paid-or-late", pays, late) == late {
			durable.Publish(ctx, view{"expired"})
			return receipt{}, processor.Reject("not_paid", "not paid within a day")
		}
		late.Stop()
		charged, err := durable.Step(ctx, "charge", charge(pays.Next().Card), durable.Retry(2, time.Second),
			durable.Undo(undone))
		if err != nil {
			return receipt{}, err
		}
		labels, err := durable.Each(ctx, "parcel", in.Parcels, func(ctx durable.Ctx, parcel string) (string, error) {
			return durable.Step(ctx, "label", says("label "+parcel))
		}, durable.Limit(2))
		if err != nil {
			return receipt{}, err
		}
		durable.Sleep(ctx, "return-period", 14*24*time.Hour)
		durable.Publish(ctx, view{"done"})
		return receipt{charged, labels}, nil
	})
}

type namesInput struct {
	Rounds int `json:"rounds"`
}

type namesOutput struct {
	Texts  []string   `json:"texts"`
	Nested [][]string `json:"nested"`
	Random int        `json:"random"`
}

// names uses the same names repeatedly, in nested scopes.
func names() processor.Processor {
	return durable.Func("names", func(ctx durable.Ctx, in namesInput) (namesOutput, error) {
		var out namesOutput
		durable.Now(ctx, "value")
		durable.UUID(ctx, "value")
		out.Random = durable.Rand(ctx, "value", 1)
		for i := range in.Rounds {
			text, err := durable.Step(ctx, "text", says(fmt.Sprintf("text %d", i)))
			if err != nil {
				return out, err
			}
			out.Texts = append(out.Texts, text)
			nested, err := durable.Each(ctx, "outer", []int{i, i + 1}, func(ctx durable.Ctx, n int) (string, error) {
				parts, err := durable.Each(ctx, "inner", []int{n, n * n}, func(ctx durable.Ctx, m int) (string, error) {
					durable.Rand(ctx, "value", 1)
					durable.Sleep(ctx, "pause", time.Duration(m)*time.Second)
					return durable.Step(ctx, "text", says(fmt.Sprint(m)))
				})
				return strings.Join(parts, " "), err
			})
			if err != nil {
				return out, err
			}
			out.Nested = append(out.Nested, nested)
		}
		return out, nil
	})
}

type retriesInput struct {
	Failures int  `json:"failures"`
	Tries    int  `json:"tries"`
	Reject   bool `json:"reject"`
}

// retries has a step whose body fails several times in each process.
func retries() processor.Processor {
	var mu sync.Mutex
	failed := map[string]int{}
	return durable.Func("retries", func(ctx durable.Ctx, in retriesInput) (string, error) {
		body := func(c context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			key := durable.StepKey(c)
			if failed[key]++; failed[key] <= in.Failures {
				return "", processor.Fail("busy", "try again later")
			}
			return key[strings.LastIndex(key, "/")+1:], nil
		}
		key, err := durable.Step(ctx, "a", body, durable.Retry(in.Tries, time.Second), durable.Undo(undone))
		if err != nil {
			return "", err
		}
		if in.Reject {
			return "", processor.Reject("as_asked", "no")
		}
		_, err = durable.Each(ctx, "e", []string{"x", "y"}, func(ctx durable.Ctx, item string) (string, error) {
			return "", errors.New(item + " is broken")
		})
		return key, err
	})
}

// family has children, whose ends the scripts report.
func family() processor.Processor {
	return durable.Func("family", func(ctx durable.Ctx, in orderInput) (receipt, error) {
		invoice := durable.Child[string](ctx, "invoice", in, durable.In("invoices"))
		late := durable.After(ctx, "late", 24*time.Hour)
		labels, err := durable.Each(ctx, "parcel", in.Parcels, func(ctx durable.Ctx, parcel string) (string, error) {
			label, err := durable.Child[string](ctx, "label", parcel).Get()
			if failed, ok := errors.AsType[*durable.StepError](err); ok && failed.Rejected {
				return failed.Reason, nil
			}
			return label, err
		}, durable.Limit(2))
		if err != nil {
			return receipt{}, err
		}
		if durable.First(ctx, "invoice-or-late", invoice, late) == late {
			invoice.Cancel("too late")
			return receipt{Labels: labels}, nil
		}
		number, err := invoice.Get()
		return receipt{number, labels}, err
	})
}

type sumInput struct {
	Sum    int `json:"sum"`
	Rounds int `json:"rounds"`
}

// sum restarts after three calls. It has a version, metadata and a timer that a restart stops.
func sum() processor.Processor {
	return durable.Func("sum", func(ctx durable.Ctx, in sumInput) (int, error) {
		adds := durable.Calls(ctx, "add", durable.Accept(func(n int) (int, error) { return in.Sum + n, nil }))
		durable.SetMetadata(ctx, map[string]any{"rounds": in.Rounds, "version": durable.Version(ctx, "sums")})
		durable.After(ctx, "unused", 30*24*time.Hour)
		for range 3 {
			in.Sum += adds.Next()
			durable.Sleep(ctx, "pause", time.Minute)
		}
		durable.Publish(ctx, in)
		if in.Rounds++; in.Rounds < 2 {
			return 0, durable.Restart(in)
		}
		return in.Sum, nil
	}, durable.Versions{"sums": 2})
}

// misuse calls an operation in the body of a step.
func misuse() processor.Processor {
	return durable.Func("misuse", func(ctx durable.Ctx, _ struct{}) (string, error) {
		if _, err := durable.Step(ctx, "good", says("good")); err != nil {
			return "", err
		}
		return durable.Step(ctx, "bad", func(context.Context) (string, error) { return durable.UUID(ctx, "id"), nil })
	})
}
