// Package parked contains the values that processors keep in memory between two tasks of their
// processes, such as durable functions that wait.
package parked

import (
	"container/list"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// MaxValues is the maximum number of the parked values of a program.
	MaxValues = 10_000
	// MaxBytes is the maximum total size of the parked values. A single value may have at most 1/16
	// of MaxBytes.
	MaxBytes = 128 << 20
	// MaxTime is how long a value may stay parked.
	MaxTime = 15 * time.Minute
)

// Value is a value that can be parked.
type Value interface {
	// Size returns the approximate size of the value in bytes. It does not change while the value
	// is parked.
	Size() int
	// Drop frees the value. It may block, because it may run deferred functions of users.
	Drop()
}

// Values contains the parked values of processes. Those that were parked first are dropped first.
type Values[V Value] struct {
	mu         sync.Mutex
	max        int
	parked     map[process.Key]*list.Element
	order      *list.List // of *item[V]
	bytes      int
	generation int // number of calls of Clear
	closed     bool

	// A WaitGroup is not possible, because values are also dropped while Close waits.
	dropMu   sync.Mutex
	dropping int           // number of values that are being dropped
	dropped  chan struct{} // closed when dropping becomes 0
}

// item is a parked value.
type item[V Value] struct {
	key   process.Key
	value V
	since time.Time
}

// New returns Values for at most maximum values.
func New[V Value](maximum int) *Values[V] {
	dropped := make(chan struct{})
	close(dropped)
	return &Values[V]{max: maximum, parked: map[process.Key]*list.Element{}, order: list.New(), dropped: dropped}
}

// Take removes the value of a process and returns it, if there is one. The caller must drop it.
func (p *Values[V]) Take(key process.Key) (v V, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.parked[key]; ok {
		return p.remove(at), true
	}
	return v, false
}

// Peek returns the value of a process without removing it, if there is one. Another goroutine may
// take it.
func (p *Values[V]) Peek(key process.Key) (v V, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.parked[key]; ok {
		return itemAt[V](at).value, true
	}
	return v, false
}

// Put parks a value for the next task of its process. It drops the previous value of the process,
// and the oldest values if there are too many. It returns false and does not park the value if
// Clear was called since generation was read, after Close, or if the value is too large.
func (p *Values[V]) Put(key process.Key, v V, generation int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.generation != generation || v.Size() > MaxBytes/16 {
		return false
	}
	if before, ok := p.parked[key]; ok {
		p.drop(before)
	}
	p.parked[key] = p.order.PushBack(&item[V]{key, v, time.Now()})
	p.bytes += v.Size()
	for len(p.parked) > p.max || p.bytes > MaxBytes {
		p.drop(p.order.Front())
	}
	return true
}

// remove removes a value without dropping it. The caller holds mu.
func (p *Values[V]) remove(at *list.Element) V {
	i := itemAt[V](at)
	p.order.Remove(at)
	delete(p.parked, i.key)
	p.bytes -= i.value.Size()
	return i.value
}

// Generation returns the number of calls of Clear so far.
func (p *Values[V]) Generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// Usage returns the number of parked values and their total size in bytes.
func (p *Values[V]) Usage() (values, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.parked), p.bytes
}

// Clear drops all values.
func (p *Values[V]) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation++
	p.dropAll()
}

// Close drops all values. Afterwards, Put parks no values. Close waits at most for grace until the
// values are dropped.
func (p *Values[V]) Close(grace time.Duration) {
	p.mu.Lock()
	p.closed = true
	p.dropAll()
	p.mu.Unlock()
	p.AwaitDrops(grace)
}

// AwaitDrops waits until all removed values are dropped, at most for grace.
func (p *Values[V]) AwaitDrops(grace time.Duration) {
	p.dropMu.Lock()
	dropped := p.dropped
	p.dropMu.Unlock()
	select {
	case <-dropped:
	case <-time.After(grace):
	}
}

func (p *Values[V]) dropAll() {
	for at := p.order.Front(); at != nil; at = p.order.Front() {
		p.drop(at)
	}
}

// Expire drops the values that were parked before a time.
func (p *Values[V]) Expire(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := p.order.Front(); at != nil && itemAt[V](at).since.Before(before); at = p.order.Front() {
		p.drop(at)
	}
}

// Drop drops a value that is not parked. It does not wait until the value is dropped.
func (p *Values[V]) Drop(v V) {
	p.dropMu.Lock()
	defer p.dropMu.Unlock()
	if p.dropping == 0 {
		p.dropped = make(chan struct{})
	}
	p.dropping++
	go func() {
		v.Drop()
		p.dropMu.Lock()
		defer p.dropMu.Unlock()
		p.dropping--
		if p.dropping == 0 {
			close(p.dropped)
		}
	}()
}

// drop removes and drops a value. The caller holds mu.
func (p *Values[V]) drop(at *list.Element) { p.Drop(p.remove(at)) }

func itemAt[V Value](at *list.Element) *item[V] {
	i, _ := at.Value.(*item[V]) // see order
	return i
}
