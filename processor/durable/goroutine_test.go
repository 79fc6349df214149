package durable_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
)

// elsewhere calls f in another goroutine and waits for it.
func elsewhere(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// below calls f with n more frames on the stack.
func below(n int, f func()) {
	if n == 0 {
		f()
		return
	}
	below(n-1, f)
}

// An operation with the Ctx of another goroutine also fails if its entry is in the journal already,
// however deep the stack is.
func TestMisuseInReplay(t *testing.T) {
	now := func(ctx durable.Ctx) { durable.Now(ctx, "a") }
	for name, test := range map[string]struct {
		moved func(ctx durable.Ctx)
		fails bool
	}{
		"in the function": {now, false},
		"deep":            {func(ctx durable.Ctx) { below(100, func() { now(ctx) }) }, false},
		"in a goroutine":  {func(ctx durable.Ctx) { elsewhere(func() { now(ctx) }) }, true},
		"deep in a goroutine": {func(ctx durable.Ctx) {
			elsewhere(func() { below(100, func() { now(ctx) }) })
		}, true},
		"in a branch": {func(ctx durable.Ctx) {
			_, _ = durable.Each(ctx, "b", []int{1}, func(durable.Ctx, int) (int, error) {
				now(ctx)
				return 0, nil
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := now
			p := start(t, function(func(ctx durable.Ctx) (string, error) {
				body(ctx)
				durable.Sleep(ctx, "c", time.Minute)
				return "", nil
			}))
			body = test.moved
			if err := p.Advance(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			fails := p.Status() == process.StatusError &&
				strings.Contains(p.Detail(), "a durable operation outside the goroutine of its Ctx")
			if fails != test.fails || !fails && p.Status() != process.StatusCompleted {
				t.Error(p.Status(), p.Detail())
			}
		})
	}
}

// A function cannot use the Ctx of another process, even while that one runs.
func TestCtxOfAnotherProcess(t *testing.T) {
	lent, end, started := make(chan durable.Ctx), make(chan struct{}), make(chan error)
	var lends atomic.Bool
	lender := processortest.New(function(func(ctx durable.Ctx) (string, error) {
		if lends.CompareAndSwap(false, true) {
			lent <- ctx
			<-end
		}
		return "", nil
	}))
	go func() {
		_, err := lender.Start(t.Context(), []byte(`{}`))
		started <- err
	}()
	borrowed := <-lent
	p := start(t, function(func(durable.Ctx) (string, error) {
		durable.Sleep(borrowed, "a", time.Hour)
		return "", nil
	}))
	close(end)
	if err := <-started; err != nil || p.Status() != process.StatusError {
		t.Error(err, p.Status())
	}
	check(t, "journal", journal(lender), "start:f end:f") // the second attempt has stored nothing else
}
