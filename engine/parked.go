package engine

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxParked is the maximum number of the parked values of a node.
	maxParked = 10_000
	// maxParkedBytes is their maximum total size. One value may have a sixteenth of it.
	maxParkedBytes = 128 << 20
	// maxParkedTime is how long a value may stay parked. The collector drops older ones.
	maxParkedTime = 15 * time.Minute
)

// parking contains the values that processors in this program keep for the next task of their
// processes, such as durable functions that wait. Those that were parked first are dropped first.
type parking struct {
	mu         sync.Mutex
	max        int // maximum number of values
	parked     map[process.Key]*list.Element
	order      *list.List // of *parkedValue
	bytes      int
	generation int  // number of calls of clear
	closed     bool // the node stops
	dropping   sync.WaitGroup
}

// parkedValue is a parked value, with the state of the process on which it depends.
type parkedValue struct {
	key     process.Key
	kept    *processor.Kept
	since   time.Time
	first   int64     // FirstEventID
	last    int64     // LastEventID
	created time.Time // a removed process may be created again
	config  []byte    // configuration of the namespace: another one may have another processor
}

func newParking(maximum int) *parking {
	return &parking{max: maximum, parked: map[process.Key]*list.Element{}, order: list.New()}
}

// take returns what the processor keeps for a claim. It is empty if nothing is parked, or if what
// is parked does not fit the state of the process.
func (p *parking) take(ns *namespace, c *storage.Claim) *processor.Kept {
	p.mu.Lock()
	at, ok := p.parked[process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}]
	var v *parkedValue
	if ok {
		v = p.remove(at)
	}
	p.mu.Unlock()
	switch {
	case !ok:
		return &processor.Kept{}
	case !usesParked(c) || v.first != c.FirstEventID || v.last != c.LastEventID || !v.created.Equal(c.CreatedTime) ||
		!bytes.Equal(v.config, ns.config):
		v.kept.Drop()
	}
	return v.kept
}

// usesParked reports whether a parked value can serve a claim. For other types of tasks, the
// processor needs the history.
func usesParked(c *storage.Claim) bool {
	return c.TaskType == process.TaskCall || c.TaskType == process.TaskNotify || c.TaskType == process.TaskTimeout
}

// toPark is what the processor keeps during an attempt. It is parked when the result is stored.
type toPark struct {
	kept *processor.Kept // nil if it is parked
	// The state of the parking and of the namespace when the attempt began.
	generation int
	config     []byte
}

// begin sets what the processor keeps for the task of a turn.
func (p *parking) begin(ns *namespace, t *turn) *toPark {
	parked := t.kept.Parked()
	switch {
	case !keepsFor(ns, t.claim):
		t.kept.Drop()
		t.kept = nil
	case t.kept == nil:
		t.kept = p.take(ns, t.claim)
	case parked != nil && (!usesParked(t.claim) || parked.LastEventID != t.claim.LastEventID ||
		!bytes.Equal(t.config, ns.config)):
		t.kept.Drop()
	}
	t.config = ns.config
	return &toPark{t.kept, p.current(), ns.config}
}

// settle parks the value after the result done of the attempt c is stored. If a task of the process
// follows here, that task gets it instead. A value that depends on anything but the stored events
// is dropped.
func (t *toPark) settle(p *parking, c *storage.Claim, done *storage.Completion, saved *storage.Saved) {
	if t == nil || t.kept.Parked() == nil {
		return
	}
	if done.Outcome != storage.Finished || done.RestartHistory || saved.ResponseLost ||
		t.kept.Parked().LastEventID != c.LastEventID+int64(len(done.Events)) {
		t.kept.Drop()
		return
	}
	if saved.Next == nil && p.put(c, t) {
		t.kept = nil
	}
}

// put parks a value. It returns false if it did not.
func (p *parking) put(c *storage.Claim, t *toPark) bool {
	parked := t.kept.Parked()
	v := &parkedValue{
		key: process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, kept: t.kept, since: time.Now(),
		first: c.FirstEventID, last: parked.LastEventID, created: c.CreatedTime, config: t.config,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.generation != t.generation || parked.Bytes > maxParkedBytes/16 {
		return false
	}
	if before, ok := p.parked[v.key]; ok {
		p.drop(before)
	}
	p.parked[v.key] = p.order.PushBack(v)
	p.bytes += parked.Bytes
	for len(p.parked) > p.max || p.bytes > maxParkedBytes {
		p.drop(p.order.Front())
	}
	return true
}

// remove removes a value without dropping it. The caller holds mu.
func (p *parking) remove(at *list.Element) *parkedValue {
	v := valueAt(at)
	p.order.Remove(at)
	delete(p.parked, v.key)
	p.bytes -= v.kept.Parked().Bytes
	return v
}

// current returns the generation.
func (p *parking) current() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

func (p *parking) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.parked)
}

// clear drops all values, because a failover may have lost the results on which they depend.
func (p *parking) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation++
	p.dropAll()
}

// close drops all values, and those that are put later. It waits for them, but not for long.
func (p *parking) close() {
	p.mu.Lock()
	p.closed = true
	p.dropAll()
	p.mu.Unlock()
	dropped := make(chan struct{})
	go func() {
		p.dropping.Wait()
		close(dropped)
	}()
	select {
	case <-dropped:
	case <-time.After(drainGrace):
	}
}

func (p *parking) dropAll() {
	for at := p.order.Front(); at != nil; at = p.order.Front() {
		p.drop(at)
	}
}

// expire drops the values that were parked before a time.
func (p *parking) expire(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := p.order.Front(); at != nil && valueAt(at).since.Before(before); at = p.order.Front() {
		p.drop(at)
	}
}

// drop drops a value. It does not wait for it, because deferred functions of users may block. The
// caller holds mu.
func (p *parking) drop(at *list.Element) { p.dropping.Go(p.remove(at).kept.Drop) }

func valueAt(at *list.Element) *parkedValue {
	v, _ := at.Value.(*parkedValue) // see order
	return v
}
