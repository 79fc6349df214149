package durable_test

import (
	"context"
	"errors"
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

// An operation with the Ctx of another goroutine fails even if its entry is already in the journal,
// at any depth of the stack.
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

// lender is a function that lends its Ctx to other processes while it runs.
type lender struct {
	lends    atomic.Bool
	lent     chan durable.Ctx
	returned chan struct{}
}

func newLender() *lender {
	return &lender{lent: make(chan durable.Ctx), returned: make(chan struct{})}
}

// lend lends the Ctx once. While the Ctx is lent, it calls during.
func (l *lender) lend(ctx durable.Ctx, during func()) {
	if l.lends.CompareAndSwap(true, false) {
		l.lent <- ctx
		during()
		<-l.returned
	}
}

// borrow calls use in another process, with the Ctx that the lender lends. run must run a task of
// the lender.
func (l *lender) borrow(t *testing.T, run func() error, use func(ctx durable.Ctx)) *processortest.Process {
	t.Helper()
	l.lends.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	borrowed := <-l.lent
	p := processortest.New(function(func(durable.Ctx) (string, error) {
		use(borrowed)
		return "", nil
	}))
	_, err := p.Start(t.Context(), []byte(`{}`))
	close(l.returned)
	if err = errors.Join(err, <-ended); err != nil {
		t.Error(err)
	}
	return p
}

// A function cannot change anything with the Ctx of another process, even while that process runs.
func TestCtxOfAnotherProcess(t *testing.T) {
	for name, use := range map[string]func(ctx durable.Ctx){
		"Sleep":       func(ctx durable.Ctx) { durable.Sleep(ctx, "a", time.Hour) },
		"Publish":     func(ctx durable.Ctx) { durable.Publish(ctx, "a") },
		"SetMetadata": func(ctx durable.Ctx) { durable.SetMetadata(ctx, map[string]any{"a": 1}) },
		"Calls":       func(ctx durable.Ctx) { durable.Calls[int, int](ctx, "a") },
		"Each": func(ctx durable.Ctx) {
			_, _ = durable.Each(ctx, "a", []int{1}, func(durable.Ctx, int) (int, error) { return 0, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLender()
			owner := processortest.New(function(func(ctx durable.Ctx) (string, error) {
				l.lend(ctx, func() {})
				return "", nil
			}))
			p := l.borrow(t, func() error {
				_, err := owner.Start(t.Context(), []byte(`{}`))
				return err
			}, func(ctx durable.Ctx) {
				use(ctx)
				t.Error("the operation has returned")
			})
			if p.Status() != process.StatusError {
				t.Error(p.Status())
			}
			// The second attempt has stored nothing else.
			check(t, "journal", journal(owner), "start:f end:f")
			if len(owner.State()) > 0 || len(owner.Metadata()) > 0 {
				t.Errorf("%q %v", owner.State(), owner.Metadata())
			}
		})
	}
}

// A lookup with the Ctx of another process does not crash the program, although the function of
// that process looks up and adds entries at the same time.
func TestLookupsInAnotherProcess(t *testing.T) {
	const entries = 400
	undone := durable.Undo(func(context.Context, struct{}) error { return nil })
	use := func(ctx durable.Ctx, name string) {
		for range entries {
			durable.Now(ctx, name)
		}
		for range 5 {
			_ = durable.Run(ctx, name, func(context.Context) error { return nil }, undone)
		}
	}
	l := newLender()
	owner := start(t, function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls[int, int](ctx, "next")
		if l.lends.Load() { // the entries of a are for the borrower
			l.lend(ctx, func() {
				for range entries {
					durable.Now(ctx, "b")
				}
			})
		} else {
			use(ctx, "a")
		}
		calls.Next()
		return "", nil
	}))
	if err := owner.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	p := l.borrow(t, func() error {
		_, err := owner.Call(t.Context(), []byte(`{}`))
		return err
	}, func(ctx durable.Ctx) { use(ctx, "a") })
	if p.Status() != process.StatusCompleted || owner.Status() == process.StatusError {
		t.Error(p.Status(), p.Detail(), owner.Status(), owner.Detail())
	}
}
