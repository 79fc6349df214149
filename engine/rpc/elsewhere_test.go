package rpc

import (
	"errors"
	"sync"
	"testing"
)

// What is done elsewhere has its own answer, and its panic is its caller's.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	e := newElsewhere()
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for range 100 {
				want := errors.New("mine")
				if err := e.run(func() error { return want }); !errors.Is(err, want) {
					t.Errorf("error %v, want one's own", err)
				}
				if err := e.run(func() error { return nil }); err != nil {
					t.Errorf("error %v, want none", err)
				}
			}
		})
	}
	callers.Wait()
	defer func() {
		if v := recover(); v != "no" {
			t.Errorf("recovered %v, want the panic of what was done", v)
		}
		if err := e.run(func() error { return nil }); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	}()
	_ = e.run(func() error { panic("no") })
}
