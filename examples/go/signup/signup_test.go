package main

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
)

// No matter where the function is killed, it opens one account, and either welcomes its owner or
// deletes it.
func TestSignup(t *testing.T) {
	for name, test := range map[string]struct {
		event durabletest.Action
		want  []string
	}{
		"confirmed": {durabletest.Call("confirm", "ada"), []string{"open ada", "welcome ada"}},
		"too late":  {durabletest.Advance(time.Hour), []string{"delete ada", "open ada"}},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(t *testing.T) processor.Processor {
				done := map[string]string{} // a service that does the work for each key only once
				t.Cleanup(func() {
					if got := slices.Sorted(maps.Values(done)); !slices.Equal(got, test.want) {
						t.Errorf("done: %q, want %q", got, test.want)
					}
				})
				return newSignup(func(c context.Context, what string) error {
					done[durable.StepKey(c)] = what
					return nil
				})
			}, Signup{Mail: "ada", Seconds: 3600}, test.event)
		})
	}
}
