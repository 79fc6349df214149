package enginetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Adder is a program with a durable function that adds the args of the call add, sleeps for 1 ms
// and publishes the total. It counts the tasks that it gets.
type Adder struct {
	function processor.Processor
	Down     atomic.Bool  // the program is unavailable
	Begun    atomic.Int32 // how often the code of the function has begun
	Parked   atomic.Int32 // requests with a parked_id
	Complete atomic.Int32 // requests with a history
}

// NewAdder returns an Adder without tasks.
func NewAdder() *Adder {
	a := &Adder{}
	a.function = durable.Func("add", func(ctx durable.Ctx, _ struct{}) (int, error) {
		a.Begun.Add(1)
		calls := durable.Calls[int, int](ctx, "add")
		total := 0
		for {
			total += calls.Next()
			durable.Sleep(ctx, "pause", time.Millisecond)
			durable.Publish(ctx, total)
		}
	})
	return a
}

// Process counts the request and runs the function.
func (a *Adder) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if a.Down.Load() {
		return nil, &processor.UnreachableError{Err: errors.New("down")}
	}
	if r.GetParkedId() != "" {
		a.Parked.Add(1)
	}
	if len(r.GetProcess().GetHistory()) > 0 {
		a.Complete.Add(1)
	}
	return a.function.Process(ctx, r)
}

// WantTasks checks how many tasks the program has continued, in memory or with a history, and how
// many histories it needed. One more task may get a history if it runs before the engine knows
// where the process is in memory.
func (a *Adder) WantTasks(t testing.TB, tasks, histories int32) {
	t.Helper()
	parked, complete := a.Parked.Load(), a.Complete.Load()
	if parked+complete != tasks || complete < histories || complete > histories+1 {
		t.Errorf("%d tasks ran in memory and %d with the history, and the function has begun %d times; "+
			"want %d tasks and %d histories", parked, complete, a.Begun.Load(), tasks, histories)
	}
}
