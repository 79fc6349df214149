package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
)

func pay(card string) durabletest.Action {
	return durabletest.Call("pay", Pay{Card: card, Amount: 200})
}

// No matter where the order is killed, its effects and its outcome are the same.
func TestOrder(t *testing.T) {
	const day = 24 * time.Hour
	input := Order{Item: "tea", Price: 200, Parcels: []string{"cup", "pot"}}
	for name, test := range map[string]struct {
		script []durabletest.Action
		down   int
		want   string
	}{
		"paid": {
			[]durabletest.Action{pay("visa"), durabletest.Advance(15 * day)}, 0,
			"charge visa, label cup, label pot, reserve tea"},
		"paid while the services are down": {
			[]durabletest.Action{pay("visa"), durabletest.Advance(15 * day)}, 3,
			"charge visa, label cup, label pot, reserve tea"},
		"not paid": {[]durabletest.Action{durabletest.Advance(day)}, 0, "reserve tea, undo reserve tea"},
		"declined": {
			[]durabletest.Action{pay("declined"), durabletest.Advance(day)}, 0,
			"reserve tea, undo reserve tea"},
		"cancelled": {
			[]durabletest.Action{pay("visa"), durabletest.Cancel("no more")}, 0,
			"charge visa, label cup, label pot, reserve tea, undo charge visa, undo reserve tea"},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(t *testing.T) processor.Processor {
				services := newShop()
				services.down = test.down
				t.Cleanup(func() {
					if got := services.done(); got != test.want {
						t.Errorf("effects: %s\nwant: %s", got, test.want)
					}
				})
				return newOrders(services)
			}, input, test.script...)
		})
	}
}

// docs/functions.md contains the function unchanged.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("order.go")
	if err != nil {
		t.Fatal(err)
	}
	_, function, found := strings.Cut(string(code), "func newOrders")
	if !found || !strings.Contains(string(page), "func newOrders"+function+"```") {
		t.Error("docs/functions.md does not contain newOrders of order.go")
	}
}
