package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A large answer waits until memory is free, and holds the memory until the task releases it. A
// small answer does not wait.
func TestLargeAnswersWait(t *testing.T) {
	answers := map[string]processor.Processor{}
	for name, size := range map[string]int{"large": 1 << 20, "small": 1 << 10} {
		answers[name] = processor.Func(
			func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
				return processor.Result().Response(make([]byte, size)).Done()
			})
	}
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		b := budget.New(4 << 20)
		first, second := b.Of("shop"), b.Of("shop")
		if err := first.Take(t.Context(), 2<<20); err != nil {
			t.Fatal(err)
		}
		large := dialed(t, way, serve(t, processor.Handler(answers["large"])).URL)
		small := dialed(t, way, serve(t, processor.Handler(answers["small"])).URL)
		ctx, cancel := context.WithTimeout(budget.In(t.Context(), second), 500*time.Millisecond)
		defer cancel()
		if _, err := small.Process(ctx, request()); err != nil || second.Has() {
			t.Errorf("a small answer: %v", err)
		}
		if _, err := large.Process(ctx, request()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without memory: %v", err)
		}
		first.Release()
		if _, err := large.Process(budget.In(t.Context(), second), request()); err != nil || !second.Has() {
			t.Errorf("with memory: %v", err)
		}
		second.Release()
		if _, err := large.Process(t.Context(), request()); err != nil {
			t.Errorf("without a limit: %v", err)
		}
	})
}
