package demo_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/demo"
	"github.com/progressor-engine/progressor/processor/processortest"
)

const order = `{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}],"pay_within":"15m"}`

func ordered(t *testing.T, args string) *processortest.Process {
	t.Helper()
	p := processortest.New(demo.Orders())
	if _, err := p.Start(t.Context(), []byte(args)); err != nil {
		t.Fatal(err)
	}
	return p
}

func call(t *testing.T, p *processortest.Process, args string) demo.Order {
	t.Helper()
	response, err := p.Call(t.Context(), []byte(args))
	if err != nil {
		t.Fatal(err)
	}
	var answered demo.Order
	if err := json.Unmarshal(response, &answered); err != nil {
		t.Fatal(err)
	}
	return answered
}

// expect compares the status of the process, the state of the order as it is stored and as it can
// be searched, and the types of the events.
func expect(t *testing.T, p *processortest.Process, status process.Status, state, events string) {
	t.Helper()
	var kept demo.Order
	if err := json.Unmarshal(p.State(), &kept); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, event := range p.Events() {
		var e demo.Event
		if err := json.Unmarshal(event.GetPayload(), &e); err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	if p.Status() != status || kept.State != state || p.Metadata()["state"] != state ||
		strings.Join(types, " ") != events {
		t.Errorf("%s, %s, %v, %v: want %s, %s, %s", p.Status(), kept.State, p.Metadata(), types, status, state, events)
	}
}

func advance(t *testing.T, p *processortest.Process, d time.Duration) {
	t.Helper()
	if err := p.Advance(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func TestPaidAndShipped(t *testing.T) {
	p := ordered(t, order)
	expect(t, p, process.StatusRunning, "reserved", "reserved")
	if got := p.Timers()[0].GetFireTime().AsTime().Sub(p.Now()); got != 15*time.Minute {
		t.Errorf("the payment's timer: %s", got)
	}
	if got := call(t, p, `{"status":true}`); got.Total != 200 || got.State != "reserved" || len(p.Events()) != 1 {
		t.Errorf("status: %+v", got)
	}
	if got := call(t, p, `{"pay":200}`); got.State != "paid" || got.Paid != 200 {
		t.Errorf("pay: %+v", got)
	}
	expect(t, p, process.StatusRunning, "paid", "reserved paid")
	advance(t, p, demo.ShipAfter)
	expect(t, p, process.StatusCompleted, "shipped", "reserved paid shipped")
}

func TestExpires(t *testing.T) {
	p := ordered(t, strings.Replace(order, "15m", "90s", 1))
	advance(t, p, 90*time.Second-1)
	expect(t, p, process.StatusRunning, "reserved", "reserved")
	advance(t, p, 1)
	expect(t, p, process.StatusCompleted, "expired", "reserved expired")
}

func TestCancel(t *testing.T) {
	p := ordered(t, order)
	call(t, p, `{"pay":200}`)
	if got := call(t, p, `{"cancel":true}`); got.Paid != 0 {
		t.Errorf("not refunded: %+v", got)
	}
	expect(t, p, process.StatusCompleted, "cancelled", "reserved paid cancelled")

	p = ordered(t, order)
	if err := p.Cancel(t.Context(), "closed"); err != nil {
		t.Fatal(err)
	}
	expect(t, p, process.StatusCancelled, "cancelled", "reserved cancelled")
}

func TestRejections(t *testing.T) {
	for name, args := range map[string]string{
		"empty":     ``,
		"field":     `{"order":"A","items":[{"sku":"tea"}],"gift":true}`,
		"no order":  `{"items":[{"sku":"tea"}]}`,
		"no items":  `{"order":"A"}`,
		"no sku":    `{"order":"A","items":[{}]}`,
		"quantity":  `{"order":"A","items":[{"sku":"tea","quantity":-1}]}`,
		"price":     `{"order":"A","items":[{"sku":"tea","price":-1}]}`,
		"sold out":  `{"order":"A","items":[{"sku":"sold-out"}]}`,
		"duration":  `{"order":"A","items":[{"sku":"tea"}],"pay_within":"soon"}`,
		"duration2": `{"order":"A","items":[{"sku":"tea"}],"pay_within":"-1s"}`,
	} {
		p := processortest.New(demo.Orders())
		_, err := p.Start(t.Context(), []byte(args))
		if _, ok := errors.AsType[*processor.RejectionError](err); !ok || p.Status() != "" {
			t.Errorf("%s: %v, %s", name, err, p.Status())
		}
	}
	p := ordered(t, order)
	for _, args := range []string{`{"pay":1}`, `{}`, `{"pay":"200"}`, `{"refund":true}`} {
		if _, err := p.Call(t.Context(), []byte(args)); err == nil || len(p.Events()) != 1 {
			t.Errorf("%s: %v", args, err)
		}
	}
	call(t, p, `{"pay":200}`)
	if _, err := p.Call(t.Context(), []byte(`{"pay":200}`)); err == nil {
		t.Error("paid twice")
	}
}

func TestBroken(t *testing.T) {
	broken := strings.Replace(order, "tea", "broken", 1)
	p := ordered(t, broken)
	_, err := p.Call(t.Context(), []byte(`{"pay":200}`))
	failure, _ := errors.AsType[*processor.FailureError](err)
	if failure == nil || failure.Failure.GetReason() != "broken_goods" {
		t.Fatal(err)
	}
	expect(t, p, process.StatusError, "reserved", "reserved")
	if _, err := p.Repair(t.Context(), []byte(`{}`)); err == nil {
		t.Error("a repair with empty args")
	}
	if _, err := p.Repair(t.Context(), []byte(`{"refund":true}`)); err != nil {
		t.Fatal(err)
	}
	expect(t, p, process.StatusCompleted, "refunded", "reserved refunded")

	p = ordered(t, broken)
	_, _ = p.Call(t.Context(), []byte(`{"pay":200}`))
	if _, err := p.Repair(t.Context(), []byte(`{"replace":true}`)); err != nil {
		t.Fatal(err)
	}
	expect(t, p, process.StatusRunning, "reserved", "reserved replaced")
	if len(p.Timers()) != 1 {
		t.Error("the timer of the payment is missing")
	}
	call(t, p, `{"pay":200}`)
	advance(t, p, demo.ShipAfter)
	expect(t, p, process.StatusCompleted, "shipped", "reserved replaced paid shipped")
}

func TestFlaky(t *testing.T) {
	p := ordered(t, strings.Replace(order, "tea", "flaky", 1))
	call(t, p, `{"pay":200}`)
	advance(t, p, demo.ShipAfter)
	expect(t, p, process.StatusRunning, "paid", "reserved paid")
	advance(t, p, process.DefaultRetryPolicy().Initial)
	expect(t, p, process.StatusCompleted, "shipped", "reserved paid shipped")
}
