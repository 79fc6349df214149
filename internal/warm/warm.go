// Package warm keeps goroutines whose stacks have grown. In a new goroutine the stack grows four times on the way down to a processor: copying
// it was 3 % of what the engine did.
package warm

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// restFor is how long a goroutine waits for more to do before it ends.
	restFor = time.Second
	// maxParked is how many goroutines wait at the most: their stacks are all that they cost, 16 KiB each.
	maxParked = 256
)

// Goroutines do one thing after another. The zero value is not ready; see New.
type Goroutines struct {
	next   chan func()
	parked atomic.Int32
}

// New makes a set of goroutines: none yet.
func New() *Goroutines { return &Goroutines{next: make(chan func())} }

// Go begins do at once, in a goroutine that waits for something to do or else a new one.
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

// Wait begins do like Go, and waits until it is done. A panic of do is one of Wait. It is for what needs a deep stack in goroutines that stay: their
// own never shrinks to less than four times what is in use.
func (g *Goroutines) Wait(do func() error) error {
	e := errands.Get().(*errand)
	e.do = do
	g.Go(e.perform)
	<-e.done
	err, panicked := e.err, e.panicked
	e.do, e.err, e.panicked = nil, nil, nil
	errands.Put(e)
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// errand is something that is waited for.
type errand struct {
	do       func() error
	err      error
	panicked any
	done     chan struct{} // holds one
	perform  func()        // run, made once
}

var errands = sync.Pool{New: func() any {
	e := &errand{done: make(chan struct{}, 1)}
	e.perform = e.run
	return e
}}

func (e *errand) run() {
	defer func() {
		e.panicked = recover()
		e.done <- struct{}{}
	}()
	e.err = e.do()
}
