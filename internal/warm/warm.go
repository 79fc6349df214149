package warm

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// restFor is how long an idle goroutine waits for work before it ends.
	restFor = time.Second
	// maxParked is the maximum number of idle goroutines. Each costs a stack of 16 KiB.
	maxParked = 256
)

// Goroutines is a pool of goroutines. Create one with New.
type Goroutines struct {
	next   chan func()
	parked atomic.Int32
}

// New returns an empty pool.
func New() *Goroutines { return &Goroutines{next: make(chan func())} }

// Go runs do in an idle goroutine, or in a new one if none is idle. It does not block.
func (g *Goroutines) Go(do func()) {
	select {
	case g.next <- do:
	default:
		go g.loop(do)
	}
}

func (g *Goroutines) loop(do func()) {
	rest := time.NewTimer(restFor)
	defer rest.Stop()
	for {
		do()
		if g.parked.Add(1) > maxParked {
			g.parked.Add(-1)
			return
		}
		rest.Reset(restFor)
		select {
		case do = <-g.next:
			g.parked.Add(-1)
		case <-rest.C:
			g.parked.Add(-1)
			return
		}
	}
}

// Wait runs do like Go and waits for its end. If do panics, Wait panics. Long-lived goroutines use
// it for calls that need a deep stack, so that their own stacks stay small.
func (g *Goroutines) Wait(do func() error) error {
	c := calls.Get().(*call)
	c.do = do
	g.Go(c.perform)
	<-c.done
	err, panicked := c.err, c.panicked
	c.do, c.err, c.panicked = nil, nil, nil
	calls.Put(c)
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// call is a call of Wait.
type call struct {
	do       func() error
	err      error
	panicked any
	done     chan struct{} // capacity 1
	perform  func()        // the method value run, allocated once
}

var calls = sync.Pool{New: func() any {
	c := &call{done: make(chan struct{}, 1)}
	c.perform = c.run
	return c
}}

func (c *call) run() {
	defer func() {
		c.panicked = recover()
		c.done <- struct{}{}
	}()
	c.err = c.do()
}
