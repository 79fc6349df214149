package rpc

import (
	"sync"
	"time"
)

// restFor is how long a goroutine of elsewhere waits for more to do before it ends.
const restFor = time.Second

// elsewhere does what needs a deep stack in goroutines of its own, a few that stay. A stack never shrinks to less than four times
// what is in use: had each request's rules been checked in the goroutine of its connection, 10,000 clients that wait for an answer would hold
// 16 KiB each instead of 8.
type elsewhere struct{ next chan *errand }

// errand is one thing that is done elsewhere.
type errand struct {
	do       func() error
	err      error
	panicked any
	done     chan struct{} // holds one
}

var errands = sync.Pool{New: func() any { return &errand{done: make(chan struct{}, 1)} }}

func newElsewhere() *elsewhere { return &elsewhere{next: make(chan *errand)} }

// run waits until do is done. A panic of do is one of run.
func (e *elsewhere) run(do func() error) error {
	r := errands.Get().(*errand)
	r.do = do
	select {
	case e.next <- r:
	default:
		go e.loop(r)
	}
	<-r.done
	err, panicked := r.err, r.panicked
	*r = errand{done: r.done}
	errands.Put(r)
	if panicked != nil {
		panic(panicked)
	}
	return err
}

func (e *elsewhere) loop(r *errand) {
	rest := time.NewTimer(restFor)
	defer rest.Stop()
	for {
		r.perform()
		rest.Reset(restFor)
		select {
		case r = <-e.next:
		case <-rest.C:
			return
		}
	}
}

func (r *errand) perform() {
	defer func() {
		r.panicked = recover()
		r.done <- struct{}{}
	}()
	r.err = r.do()
}
