package durabletest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// If an outcome depends on the number of attempts, a kill changes the outcome.
func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		body func(ctx durable.Ctx, runs *int) (string, error)
		same bool
	}{
		"a value": {func(ctx durable.Ctx, _ *int) (string, error) {
			id := durable.UUID(ctx, "id")
			return id, durable.Run(ctx, "a", func(context.Context) error { return nil })
		}, true},
		"a counter": {func(ctx durable.Ctx, runs *int) (string, error) {
			return durable.Step(ctx, "a", func(context.Context) (string, error) {
				*runs++
				return fmt.Sprint(*runs), nil
			})
		}, false},
		"a child": {func(ctx durable.Ctx, runs *int) (string, error) {
			*runs++
			durable.Child[int](ctx, "c", *runs)
			return "", durable.Run(ctx, "a", func(context.Context) error { return nil })
		}, false},
		"the clock": {func(ctx durable.Ctx, _ *int) (string, error) {
			begun := time.Now()
			durable.Sleep(ctx, "a", time.Hour)
			if time.Since(begun) > time.Minute {
				return "long", nil
			}
			return "short", durable.Run(ctx, "b", func(context.Context) error { return nil })
		}, true}, // each task replays, so it is always short
	} {
		t.Run(name, func(t *testing.T) {
			function := func(*testing.T) processor.Processor {
				runs := 0
				return durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) {
					return test.body(ctx, &runs)
				})
			}
			script := []Action{Advance(2 * time.Hour)}
			first := repeat(t, places[0], function, struct{}{}, script, 0)
			same := true
			for _, at := range places {
				for i := range repeat(t, at, function, struct{}{}, script, 0).results {
					same = same && repeat(t, at, function, struct{}{}, script, i+1).outcome == first.outcome
				}
			}
			if same != test.same {
				t.Errorf("the outcomes are the same: %t\n%s", same, first.outcome)
			}
		})
	}
}
