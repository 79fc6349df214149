// Package demo holds the processor that `progressor dev` runs: orders of a small shop. It is written to be read: each
// function below is one of the tasks that the engine can hand to a process.
//
// An order is a process. It begins with what is to be bought, waits for its payment until a timer ends the waiting, ships
// a second after it was paid, and is COMPLETED then:
//
//	           pay            timer, 1 s
//	reserved ──────▶ paid ───────────────▶ shipped
//	   │ timer: pay_within       │
//	   ├──────▶ expired          │
//	   │ {"cancel":true}         │ {"cancel":true}
//	   └──────▶ cancelled ◀──────┘ (what was paid is refunded)
//
// To be tried out:
//
//	start  {"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}],"pay_within":"15m"}
//	call   {"status":true}      the order; nothing is stored
//	call   {"pay":200}          cents; another amount is a rejection
//	call   {"cancel":true}
//
// Three skus go wrong on purpose: "sold-out" makes the start a rejection, "broken" makes the payment a failure, so that the
// process stands in ERROR until a repair, and "flaky" makes the first attempt to ship a failure, so that the retry policy
// tries again.
//
//	repair {"refund":true}      gives the money back and completes the order
//	repair {"replace":true}     puts sound goods in the place of broken ones; then the order waits for its payment again
package demo

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
)

// ShipAfter is how long a paid order waits until it is shipped.
const ShipAfter = time.Second

// The limits of an order.
const (
	DefaultPayWithin = 15 * time.Minute
	DefaultPrice     = 100 // cents, of an item that says none
	maxItems         = 100
	maxQuantity      = 10_000
	maxPrice         = 100_000_000
)

// The skus that go wrong, to show what becomes of it.
const (
	skuSoldOut = "sold-out"
	skuBroken  = "broken"
	skuFlaky   = "flaky"
)

// Order is the state of the process, kept as JSON in its aux_state.
type Order struct {
	Order    string `json:"order"`
	Customer string `json:"customer,omitempty"`
	Items    []Item `json:"items"`
	State    string `json:"state"` // reserved, paid, shipped, expired, cancelled, refunded
	Total    int64  `json:"total"` // cents
	Paid     int64  `json:"paid"`  // cents
}

// Item is one line of an order.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`        // 0: 1
	Price    int64  `json:"price,omitempty"` // of one, in cents; 0: DefaultPrice
}

// Event is what the history of an order is made of.
type Event struct {
	Type   string `json:"type"`             // the state that the order came to; "replaced"
	Amount int64  `json:"amount,omitempty"` // cents that were paid or refunded
	Items  []Item `json:"items,omitempty"`
}

// newOrder is the args of a start.
type newOrder struct {
	Order     string `json:"order"`
	Customer  string `json:"customer"`
	Items     []Item `json:"items"`
	PayWithin string `json:"pay_within"` // as Go writes durations: 90s, 15m, 24h; "": 15m
}

// request is the args of a call: one of them.
type request struct {
	Pay    *int64 `json:"pay"`
	Cancel bool   `json:"cancel"`
	Status bool   `json:"status"`
}

// repair is the args of a repair: one of them.
type repair struct {
	Refund  bool `json:"refund"`
	Replace bool `json:"replace"`
}

// Orders is the demo processor. It keeps nothing itself: all that there is to know about an order is in its process.
func Orders() processor.Processor {
	return &processor.JSON[Order]{
		OnInit:    reserve,
		OnCall:    handle,
		OnTimeout: timeout,
		OnRepair:  mend,
		OnCancel:  windDown,
	}
}

type task = processor.Task[Order]

// reserve is the INIT task: it checks the order, reserves its items and sets the timer that ends the waiting.
func reserve(_ context.Context, t *task) error {
	var wanted newOrder
	if err := t.Args(&wanted); err != nil {
		return err
	}
	within, err := payWithin(wanted.PayWithin)
	if err != nil {
		return err
	}
	t.State = Order{Order: wanted.Order, Customer: wanted.Customer, Items: wanted.Items}
	if err := t.State.check(); err != nil {
		return err
	}
	t.SetTimerAfter(within)
	moveTo(t, "reserved", Event{Items: t.State.Items})
	return nil
}

// handle is the CALL task. Calls of one order come one at a time: there is nothing to lock.
func handle(_ context.Context, t *task) error {
	var r request
	if err := t.Args(&r); err != nil {
		return err
	}
	switch {
	case r.Status:
		t.JSONResponse(t.State) // no event, no action: the state and the timer stay as they are
		return nil
	case r.Cancel:
		cancel(t)
		t.Complete()
		return nil
	case r.Pay != nil:
		return pay(t, *r.Pay)
	default:
		return processor.Reject("bad_request", `a call is {"pay":CENTS}, {"cancel":true} or {"status":true}`)
	}
}

func pay(t *task, amount int64) error {
	switch {
	case t.State.State != "reserved":
		return processor.Reject("wrong_state", "the order is %s", t.State.State)
	case amount != t.State.Total:
		return processor.Reject("wrong_amount", "the order costs %d, not %d", t.State.Total, amount)
	case t.State.has(skuBroken):
		// A failure, not a "no": the process goes to ERROR, and somebody has to look at it.
		return processor.Fail("broken_goods", "order %s: the goods broke while they were packed", t.State.Order).
			WithDetails(map[string]any{"order": t.State.Order})
	}
	t.State.Paid = amount
	t.SetTimerAfter(ShipAfter) // in the place of the payment's timer
	moveTo(t, "paid", Event{Amount: amount})
	return nil
}

// timeout is the TIMEOUT task. There is one timer; what it means follows from the state.
func timeout(_ context.Context, t *task) error {
	switch t.State.State {
	case "reserved":
		moveTo(t, "expired", Event{Items: t.State.Items}) // they are free again
	case "paid":
		if t.State.has(skuFlaky) && t.Request.GetAttempt() == 1 {
			return processor.Fail("carrier_busy", "order %s: the carrier does not answer", t.State.Order)
		}
		moveTo(t, "shipped", Event{Items: t.State.Items})
	default:
		return processor.Fail("wrong_state", "a timer fired while the order is %s", t.State.State).NonRetryable()
	}
	// The story is over: calls are refused from now on, GetProcess still shows it all.
	t.Complete()
	return nil
}

// mend is the REPAIR task: what an operator says to an order in ERROR.
func mend(_ context.Context, t *task) error {
	var r repair
	if err := t.Args(&r); err != nil {
		return err
	}
	switch {
	case r.Refund:
		amount := t.State.Paid
		t.State.Paid = 0
		moveTo(t, "refunded", Event{Amount: amount})
		t.Complete()
	case r.Replace:
		for i := range t.State.Items {
			if t.State.Items[i].SKU == skuBroken {
				t.State.Items[i].SKU = "replacement"
			}
		}
		// No action: the engine sets the timers again that the error had cancelled.
		t.JSONEvent(Event{Type: "replaced", Items: t.State.Items}).JSONResponse(t.State)
	default:
		return processor.Reject("bad_request", `a repair is {"refund":true} or {"replace":true}`)
	}
	return nil
}

// windDown is the CANCEL task: the last word before the engine makes the process CANCELLED.
func windDown(_ context.Context, t *task) error {
	cancel(t)
	return nil
}

// cancel gives back what was paid.
func cancel(t *task) {
	refund := t.State.Paid
	t.State.Paid = 0
	moveTo(t, "cancelled", Event{Amount: refund})
}

// moveTo takes the order to a state: an event that says so, attributes to search by, and the order as the answer.
func moveTo(t *task, state string, event Event) {
	event.Type, t.State.State = state, state
	t.JSONEvent(event).JSONResponse(t.State).Metadata(map[string]any{
		"order": t.State.Order, "customer": t.State.Customer, "state": state,
	})
}

// check refuses what no shop would take, fills in what was left out, and adds up the total.
func (o *Order) check() error {
	switch {
	case o.Order == "":
		return processor.Reject("bad_request", "order: it needs a name")
	case len(o.Items) == 0 || len(o.Items) > maxItems:
		return processor.Reject("bad_request", "items: 1 to %d", maxItems)
	}
	for i := range o.Items {
		item := &o.Items[i]
		if item.Quantity == 0 {
			item.Quantity = 1
		}
		price := item.Price
		if price == 0 {
			price = DefaultPrice
		}
		switch {
		case item.SKU == "":
			return processor.Reject("bad_request", "items[%d].sku: it is empty", i)
		case item.Quantity < 0 || item.Quantity > maxQuantity:
			return processor.Reject("bad_request", "items[%d].quantity: 1 to %d", i, maxQuantity)
		case price < 0 || price > maxPrice:
			return processor.Reject("bad_request", "items[%d].price: 1 to %d cents", i, maxPrice)
		case item.SKU == skuSoldOut:
			return processor.Reject("sold_out", "items[%d]: there is none left", i)
		}
		o.Total += item.Quantity * price
	}
	return nil
}

func (o *Order) has(sku string) bool {
	for _, item := range o.Items {
		if item.SKU == sku {
			return true
		}
	}
	return false
}

func payWithin(text string) (time.Duration, error) {
	if text == "" {
		return DefaultPayWithin, nil
	}
	within, err := time.ParseDuration(text)
	if err != nil || within <= 0 || within > 365*24*time.Hour {
		return 0, processor.Reject("bad_request", "pay_within: a duration such as 90s or 15m, at most a year")
	}
	return within, nil
}
