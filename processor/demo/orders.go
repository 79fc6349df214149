package demo

import (
	"cmp"
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
)

// ShipAfter is the time between the payment and the shipping of an order.
const ShipAfter = time.Second

// The limits of an order.
const (
	DefaultPayWithin = 15 * time.Minute
	DefaultPrice     = 100 // cents, for an item without a price
	maxItems         = 100
	maxQuantity      = 10_000
	maxPrice         = 100_000_000
)

// SKUs that fail on purpose.
const (
	skuSoldOut = "sold-out"
	skuBroken  = "broken"
	skuFlaky   = "flaky"
)

// Order is the state of the process, stored as JSON in its aux_state.
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
	Quantity int64  `json:"quantity"`        // 0 means 1
	Price    int64  `json:"price,omitempty"` // cents per piece; 0 means DefaultPrice
}

// Event is an event in the history of an order.
type Event struct {
	Type   string `json:"type"`             // the new state of the order, or "replaced"
	Amount int64  `json:"amount,omitempty"` // cents paid or refunded
	Items  []Item `json:"items,omitempty"`
}

// newOrder is the args of a start.
type newOrder struct {
	Order     string `json:"order"`
	Customer  string `json:"customer"`
	Items     []Item `json:"items"`
	PayWithin string `json:"pay_within"` // a Go duration such as 90s or 15m; "" means 15m
}

// request is the args of a call. One field must be set.
type request struct {
	Pay    *int64 `json:"pay"`
	Cancel bool   `json:"cancel"`
	Status bool   `json:"status"`
}

// repair is the args of a repair. One field must be set.
type repair struct {
	Refund  bool `json:"refund"`
	Replace bool `json:"replace"`
}

// Orders returns the demo processor. The processor has no state: all data of an order is in its
// process.
//
//	           pay            timer, 1 s
//	reserved ──────▶ paid ───────────────▶ shipped
//	   │ timer: pay_within       │
//	   ├──────▶ expired          │
//	   │ {"cancel":true}         │ {"cancel":true}
//	   └──────▶ cancelled ◀──────┘ (the payment is refunded)
//
// Try:
//
//	start  {"order":"A-7","items":[{"sku":"tea","quantity":2}],"pay_within":"15m"}
//	call   {"status":true}      the order; nothing is stored
//	call   {"pay":200}          cents; another amount is rejected
//	call   {"cancel":true}
//
// Three SKUs fail on purpose. "sold-out" makes the start a rejection. "broken" makes the payment a
// failure, so that the process is in ERROR until a repair. "flaky" makes the first attempt to ship
// a failure, which the retry policy retries.
//
//	repair {"refund":true}      refunds the payment and completes the order
//	repair {"replace":true}     replaces broken items; the order waits for its payment again
func Orders() processor.Processor {
	return &processor.JSON[Order]{
		OnInit:    reserve,
		OnCall:    handle,
		OnTimeout: timeout,
		OnRepair:  repairOrder,
		OnCancel:  cancelOrder,
	}
}

type task = processor.Task[Order]

// reserve handles the INIT task: it checks the order, reserves its items and sets the payment
// timer.
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

// handle handles the CALL task. Calls of one order run one at a time, so there is nothing to lock.
func handle(_ context.Context, t *task) error {
	var r request
	if err := t.Args(&r); err != nil {
		return err
	}
	switch {
	case r.Status:
		t.JSONResponse(t.State) // no event and no action: the state and the timer do not change
		return nil
	case r.Cancel:
		cancel(t)
		t.Complete()
		return nil
	case r.Pay != nil:
		return pay(t, *r.Pay)
	default:
		return processor.Reject("bad_request", `must be {"pay":CENTS}, {"cancel":true} or {"status":true}`)
	}
}

func pay(t *task, amount int64) error {
	switch {
	case t.State.State != "reserved":
		return processor.Reject("wrong_state", "the order is %s", t.State.State)
	case amount != t.State.Total:
		return processor.Reject("wrong_amount", "the order costs %d, not %d", t.State.Total, amount)
	case t.State.has(skuBroken):
		// A failure, not a rejection: the process goes to ERROR and needs an operator.
		return processor.Fail("broken_goods", "order %s: the goods broke while they were packed", t.State.Order).
			WithDetails(map[string]any{"order": t.State.Order})
	}
	t.State.Paid = amount
	t.SetTimerAfter(ShipAfter) // replaces the payment timer
	moveTo(t, "paid", Event{Amount: amount})
	return nil
}

// timeout handles the TIMEOUT task. There is one timer. Its meaning depends on the state.
func timeout(_ context.Context, t *task) error {
	switch t.State.State {
	case "reserved":
		moveTo(t, "expired", Event{Items: t.State.Items}) // the items are available again
	case "paid":
		if t.State.has(skuFlaky) && t.Request.GetAttempt() == 1 {
			return processor.Fail("carrier_busy", "order %s: the carrier does not answer", t.State.Order)
		}
		moveTo(t, "shipped", Event{Items: t.State.Items})
	default:
		return processor.Fail("wrong_state", "a timer fired while the order is %s", t.State.State).NonRetryable()
	}
	// Further calls are refused. GetProcess still returns the process.
	t.Complete()
	return nil
}

// repairOrder handles the REPAIR task: an operator's decision about an order in ERROR.
func repairOrder(_ context.Context, t *task) error {
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
		// There is no action, so the engine restores the timers that the error cancelled.
		t.JSONEvent(Event{Type: "replaced", Items: t.State.Items}).JSONResponse(t.State)
	default:
		return processor.Reject("bad_request", `must be {"refund":true} or {"replace":true}`)
	}
	return nil
}

// cancelOrder handles the CANCEL task, the last one before the process is CANCELLED.
func cancelOrder(_ context.Context, t *task) error {
	cancel(t)
	return nil
}

// cancel refunds the payment.
func cancel(t *task) {
	refund := t.State.Paid
	t.State.Paid = 0
	moveTo(t, "cancelled", Event{Amount: refund})
}

// moveTo sets the state of the order. It adds an event, updates the searchable attributes and
// responds with the order.
func moveTo(t *task, state string, event Event) {
	event.Type, t.State.State = state, state
	t.JSONEvent(event).JSONResponse(t.State).Metadata(map[string]any{
		"order": t.State.Order, "customer": t.State.Customer, "state": state,
	})
}

// check validates the order, fills in defaults and computes the total.
func (o *Order) check() error {
	switch {
	case o.Order == "":
		return processor.Reject("bad_request", "order: must not be empty")
	case len(o.Items) == 0 || len(o.Items) > maxItems:
		return processor.Reject("bad_request", "items: must have 1 to %d items", maxItems)
	}
	for i := range o.Items {
		item := &o.Items[i]
		item.Quantity = cmp.Or(item.Quantity, 1)
		price := cmp.Or(item.Price, DefaultPrice)
		switch {
		case item.SKU == "":
			return processor.Reject("bad_request", "items[%d].sku: must not be empty", i)
		case item.Quantity < 0 || item.Quantity > maxQuantity:
			return processor.Reject("bad_request", "items[%d].quantity: must be 1 to %d", i, maxQuantity)
		case price < 0 || price > maxPrice:
			return processor.Reject("bad_request", "items[%d].price: must be 1 to %d cents", i, maxPrice)
		case item.SKU == skuSoldOut:
			return processor.Reject("sold_out", "items[%d]: sold out", i)
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
		return 0, processor.Reject("bad_request", "pay_within: must be a duration such as 90s or 15m, at most 365 days")
	}
	return within, nil
}
