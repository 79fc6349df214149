package processor_test

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type Shipment struct {
	Open int      `json:"open"`
	Lost []string `json:"lost,omitempty"`
}

// NewShipment sends every parcel as a separate process, and ends when all of them have ended.
func NewShipment() processor.Processor {
	return &processor.JSON[Shipment]{
		OnInit: func(_ context.Context, t *processor.Task[Shipment]) error {
			var parcels []string
			if err := t.Args(&parcels); err != nil {
				return err
			}
			for _, parcel := range parcels {
				id := t.Request.GetProcess().GetProcessId() + "/" + parcel
				t.StartChild("parcels", id, []byte(`{}`), []byte(parcel))
			}
			t.State.Open = len(parcels)
			return nil
		},
		OnNotify: func(_ context.Context, t *processor.Task[Shipment]) error {
			t.State.Open--
			if t.Request.GetChild().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED {
				t.State.Lost = append(t.State.Lost, string(t.Request.GetArgs()))
			}
			if t.State.Open == 0 {
				t.JSONEvent(t.State).Complete()
			}
			return nil
		},
	}
}

// A parent starts children and is notified of their ends. In a test, messages are not delivered:
// the test reports the ends.
func ExampleResultBuilder_StartChild() {
	ctx := context.Background()
	p := processortest.New(NewShipment())
	_, _ = p.Start(ctx, []byte(`["cup","pot"]`))
	for _, c := range p.Commands() {
		fmt.Println("starts", c.GetStart().GetNamespace(), c.GetStart().GetProcessId())
	}
	_ = p.ChildEnded(ctx, &progressorv1.ChildEnd{Status: progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED},
		[]byte("cup"))
	_ = p.ChildEnded(ctx, &progressorv1.ChildEnd{Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR},
		[]byte("pot"))
	fmt.Printf("%s %s\n", p.Status(), p.State())
	// Output:
	// starts parcels process/cup
	// starts parcels process/pot
	// COMPLETED {"open":0,"lost":["pot"]}
}
