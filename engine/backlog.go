package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// backlogPauseFactor is the pause between two counts of the backlog, as a multiple of the duration
// of the last count. Counting takes at most 5% of the time.
const backlogPauseFactor = 20

// backlog limits how many tasks of a namespace wait in the database for a slot, so that clients do
// not wait long for a response. While requests get no slot, it counts the tasks in the database
// periodically. Between counts, it adds the tasks that this node stores. Several nodes together may
// exceed the limit by the tasks that they store between two counts.
type backlog struct {
	counting sync.Mutex // held during a count
	mu       sync.Mutex
	waiting  int
	next     time.Time // time of the next count
}

// add counts a request that is about to be stored. It returns false if limit tasks are already
// waiting.
func (b *backlog) add(limit int, now time.Time, count func() (int, error)) (bool, error) {
	if b.isDue(now) && b.counting.TryLock() { // while one request counts, the others use the known number
		defer b.counting.Unlock()
		n, err := count()
		if err != nil {
			return false, err
		}
		b.counted(n, now, time.Now())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting >= limit {
		return false, nil
	}
	b.waiting++
	return true, nil
}

func (b *backlog) isDue(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.next)
}

func (b *backlog) counted(n int, began, ended time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = n
	b.next = ended.Add(backlogPauseFactor * ended.Sub(began))
}

// addToBacklog counts a request that got no slot and is about to be stored. It rejects the request
// if the backlog of its namespace is full, or if the database is the bottleneck rather than the
// processors. A request that is stored first costs the database more than twice as much as one that
// runs immediately. (With twice the peak load, the engine reached 44% of the peak throughput when
// it stored all requests, instead of 65%.)
func (e *Engine) addToBacklog(ctx context.Context, ns *namespace) error {
	if ns.waitsForDatabase() {
		e.metrics.refused.WithLabelValues("place").Inc()
		return &process.OverloadError{
			Bound: fmt.Sprintf("no slot of namespace %q became free within %s (max_running, engine.max_running), and "+
				"storing results takes longer than processing", ns.name, slotWait),
		}
	}
	return e.countInBacklog(ctx, ns, fmt.Sprintf("no slot became free within %s, and ", slotWait))
}

// boundBacklog counts a request whose client waits for the response, on a node that accepts
// requests but runs no tasks. It rejects the request if the backlog of its namespace is full. As on
// other nodes, the tasks of paused namespaces and of workers are not limited.
func (e *Engine) boundBacklog(ctx context.Context, r *request) error {
	if r.accepted || r.ns.paused || r.ns.pulled() {
		return nil
	}
	return e.countInBacklog(ctx, r.ns, "")
}

// countInBacklog counts a request that is about to be stored. It rejects the request if the backlog
// of its namespace is full. why begins the message of the error.
func (e *Engine) countInBacklog(ctx context.Context, ns *namespace, why string) error {
	ok, err := ns.backlog.add(ns.maxBacklog, time.Now(), func() (int, error) {
		return e.store.CountBacklog(ctx, ns.name, ns.maxBacklog)
	})
	if ok || err != nil {
		return err
	}
	e.metrics.refused.WithLabelValues("backlog").Inc()
	return &process.OverloadError{
		Bound: fmt.Sprintf("%sthe tasks of namespace %q that wait for a slot have reached its max_backlog, %d", why,
			ns.name, ns.maxBacklog),
	}
}
