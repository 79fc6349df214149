package durable_test

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type Shipment struct {
	Parcels []string `json:"parcels"`
}

type Sent struct {
	Labels  []string `json:"labels"`
	Invoice string   `json:"invoice"`
}

// ship lets workers print a label for each parcel, and another function write the invoice. It does
// not wait for the invoice longer than a day.
func ship(ctx durable.Ctx, in Shipment) (Sent, error) {
	invoice := durable.Child[string](ctx, "invoice", in, durable.In("invoices"))
	late := durable.After(ctx, "late", 24*time.Hour)
	labels, err := durable.Each(ctx, "parcel", in.Parcels, func(ctx durable.Ctx, parcel string) (string, error) {
		return durable.Child[string](ctx, "label", parcel, durable.In("labels")).Get()
	}, durable.Limit(10))
	if err != nil {
		return Sent{}, err // the other children are cancelled
	}
	if durable.First(ctx, "invoice-or-late", invoice, late) == late {
		invoice.Cancel("too late")
		return Sent{Labels: labels}, nil
	}
	number, err := invoice.Get()
	return Sent{labels, number}, err
}

// labels runs in the workers of the namespace labels. It prints the label of one parcel.
var labels = processor.Func(func(
	_ context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	parcel, err := processor.ArgsOf[string](req)
	if err != nil {
		return nil, err
	}
	return processor.Result().JSONResponse("label of " + parcel).Complete().Done()
})

// Wherever the function is killed, its children are started and cancelled once.
func TestShip(t *testing.T) {
	printed := []durabletest.Action{durabletest.EndChild("parcel[1]/label", "L2"),
		durabletest.EndChild("parcel[0]/label", "L1")}
	for name, script := range map[string][]durabletest.Action{
		"sent":    append(printed, durabletest.EndChild("invoice", "R7")),
		"late":    append(printed, durabletest.Advance(24*time.Hour)),
		"no ink":  {durabletest.FailChild("parcel[0]/label", "no ink"), printed[0]},
		"no more": {printed[1], durabletest.Cancel("no more")},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
				return durable.Func("ship", ship)
			}, Shipment{Parcels: []string{"cup", "pot"}}, script...)
		})
	}
}

// docs/functions.md contains the code unchanged.
func TestShipInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	code, errCode := os.ReadFile("example_child_test.go")
	if err := cmp.Or(err, errCode); err != nil {
		t.Fatal(err)
	}
	for begin, end := range map[string]string{"func ship(": "\n}\n", "var labels = ": "\n})\n"} {
		_, text, _ := strings.Cut(string(code), "\n"+begin)
		text, _, found := strings.Cut(text, end)
		if !found || !strings.Contains(string(page), "```go\n"+begin+text+end+"```") {
			t.Errorf("docs/functions.md does not contain %q", begin)
		}
	}
}
