package processor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
)

type Counter struct {
	Count int `json:"count"`
}

// NewCounter counts what is added, up to 100, and starts again after a minute without a call.
func NewCounter() processor.Processor {
	return &processor.JSON[Counter]{
		OnInit: func(_ context.Context, t *processor.Task[Counter]) error {
			t.JSONResponse(t.State)
			return nil
		},
		OnCall: func(_ context.Context, t *processor.Task[Counter]) error {
			var args struct {
				Add int `json:"add"`
			}
			if err := t.Args(&args); err != nil {
				return err
			}
			if t.State.Count+args.Add > 100 {
				return processor.Reject("too_many", "there is room for %d", 100-t.State.Count)
			}
			t.State.Count += args.Add
			t.JSONEvent(map[string]int{"added": args.Add}).JSONResponse(t.State).SetTimerAfter(time.Minute)
			return nil
		},
		OnTimeout: func(_ context.Context, t *processor.Task[Counter]) error {
			t.JSONEvent(map[string]int{"reset": t.State.Count})
			t.State.Count = 0
			return nil
		},
	}
}

// A processor is tested with a process in memory, whose clock the test controls.
func ExampleJSON() {
	ctx := context.Background()
	p := processortest.New(NewCounter())
	_, _ = p.Start(ctx, nil)
	response, _ := p.Call(ctx, []byte(`{"add":7}`))
	fmt.Printf("%s\n", response)
	_, err := p.Call(ctx, []byte(`{"add":94}`))
	fmt.Println(err)
	_ = p.Advance(ctx, time.Minute)
	fmt.Printf("%s after %d events\n", p.State(), len(p.Events()))
	// Output:
	// {"count":7}
	// rejected: too_many: there is room for 93
	// {"count":0} after 2 events
}
