package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// callQueueWait is the maximum time that a call waits in memory for earlier results. After that
	// it is stored in schedule. If twelve clients call one process, they wait 30 ms. The wait is
	// short because a crash loses the calls in memory.
	callQueueWait = 100 * time.Millisecond
	// callQueueCheck is how often a queued call checks whether it may still wait, because it holds
	// a slot that others may need.
	callQueueCheck = 20 * time.Millisecond
)

// callQueues lets calls to a process that this node runs wait in memory, so that they are stored in
// the same flush as the result of the process. If the call were stored first, it would need a row
// in schedule, and both its flush and the flush of the result would use the general statements for
// all of their items. With 512 clients that call 10,000 processes at random, 5% of the calls find
// the process busy, which would affect nearly every flush. A call that waits in memory is not
// durable, and its client has no response yet.
//
// (These queues are not the key queues of constraints, which are rows of schedule.)
//
// A queue relies on a guess about the state of the database. If the guess is wrong, a call is
// stored after callQueueWait at the latest.
type callQueues struct {
	wait      time.Duration // callQueueWait, except in tests
	mu        sync.Mutex
	byProcess map[process.Key]*processQueue // the processes that run here
}

// processQueue is the queue of a process that runs here. It is created for a call that tries to
// capture the process. It is deleted when no task of the process is known to run here.
type processQueue struct {
	calls   []*callItem // in order of arrival
	leaving int         // calls that have left the queue to be stored
	stored  []int64     // tasks of this node's calls that wait in schedule; they run first
	ran     int64       // the newest task that a result promoted
	// fromElsewhere is the number of tasks from other nodes that have run, minus the number of
	// tasks from this node that have run.
	fromElsewhere int
}

// maxFromElsewhere is the number of tasks from other nodes after which the queue lets calls pass.
// Clients of other nodes then also call the process, and each call of this node would wait for
// callQueueWait before it is stored behind their calls.
const maxFromElsewhere = 64

// commitGroup is a result and the call, if any, that is stored in the same flush. When both have an
// outcome, the queue knows the state of the process.
type commitGroup struct {
	open int // items without an outcome
	groupOutcome
}

// groupOutcome has the outcomes of the items in a commit group.
type groupOutcome struct {
	captured   bool  // the call runs on this node
	storedTask int64 // the task of the call if it waits in schedule, or 0
	nextTask   int64 // the stored task that runs next here, or 0
}

// callPath is how a call is handled.
type callPath int

const (
	tryCapture callPath = iota // the process is not known to run here
	queued                     // it waits in the queue
	storeNow                   // it is stored at once, without the queue
)

// enter returns the path of a call.
func (q *callQueues) enter(it *callItem) callPath {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, runs := q.byProcess[it.key]
	if !runs {
		q.byProcess[it.key] = &processQueue{}
		return tryCapture
	}
	waiting := p.leaving + len(p.stored) + len(p.calls)
	if p.fromElsewhere > maxFromElsewhere || waiting >= int(it.call.MaxWaiting) {
		return storeNow
	}
	it.turn = make(chan struct{})
	p.calls = append(p.calls, it)
	return queued
}

// join adds the first queued call to a result, unless stored tasks must run before it.
func (q *callQueues) join(save *saveItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	save.group = &commitGroup{open: 1}
	p, runs := q.byProcess[save.key]
	if runs && p.leaving+len(p.stored) == 0 && p.fromElsewhere == 0 && len(p.calls) > 0 {
		save.next = p.take()
		save.next.group = save.group
		save.group.open = 2
	}
}

// take removes the first call.
func (p *processQueue) take() *callItem {
	first := p.calls[0]
	p.calls = p.calls[1:]
	first.left = time.Now()
	return first
}

// leave removes a call from its queue to store it. It returns false if the call has already left
// the queue.
func (q *callQueues) leave(it *callItem) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, runs := q.byProcess[it.key]
	if !runs {
		return false
	}
	n := slices.Index(p.calls, it)
	if n < 0 {
		return false
	}
	p.calls = slices.Delete(p.calls, n, n+1)
	it.left = time.Now()
	p.leaving++
	return true
}

// recordGroup records the outcome of an item in a commit group. When all outcomes are known, it
// updates the state of the process.
func (q *callQueues) recordGroup(key process.Key, group *commitGroup, item groupOutcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	group.open--
	group.captured = group.captured || item.captured
	group.storedTask = max(group.storedTask, item.storedTask)
	group.nextTask = max(group.nextTask, item.nextTask)
	p, runs := q.byProcess[key]
	switch {
	case group.open > 0 || group.captured || !runs:
	case group.nextTask == 0:
		q.passTurn(key, p)
	default:
		p.taskRuns(group.nextTask)
		p.taskWaits(group.storedTask)
	}
}

// taskRuns records a stored task that runs now. Tasks run in the order of their IDs.
func (p *processQueue) taskRuns(id int64) {
	if slices.Contains(p.stored, id) {
		p.fromElsewhere = max(0, p.fromElsewhere-1)
	} else {
		p.fromElsewhere++
	}
	p.ran = max(p.ran, id) // calls with smaller IDs have run, even if their outcomes arrive later
	p.stored = slices.DeleteFunc(p.stored, func(of int64) bool { return of <= id })
}

// taskWaits records a call of this node that waits in schedule, unless it has already run. It
// ignores an ID of 0.
func (p *processQueue) taskWaits(id int64) {
	if id > p.ran {
		p.stored = append(p.stored, id)
	}
}

// passTurn passes the turn to the next call when no task of the process is known to run here.
func (q *callQueues) passTurn(key process.Key, p *processQueue) {
	p.stored, p.fromElsewhere = nil, 0
	if len(p.calls) == 0 {
		delete(q.byProcess, key)
		return
	}
	close(p.take().turn)
}

// releaseAll releases all calls of a queue, because the process runs on another node or accepts no
// calls. The caller holds the lock.
func (q *callQueues) releaseAll(key process.Key) {
	p, runs := q.byProcess[key]
	if !runs {
		return
	}
	delete(q.byProcess, key)
	for _, it := range p.calls {
		it.left = time.Now()
		close(it.turn)
	}
}

// reset releases all waiting calls after a database failover, because the known state is out of
// date.
func (q *callQueues) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.byProcess {
		q.releaseAll(key)
	}
}

// removed releases the queue of a removed process.
func (q *callQueues) removed(key process.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseAll(key)
}

// recordCall records the outcome of a call that was stored alone. here reports whether its process
// runs here.
func (q *callQueues) recordCall(it *callItem, err error, path callPath, here bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, runs := q.byProcess[it.key]
	if !runs {
		return
	}
	if path == queued {
		p.leaving = max(0, p.leaving-1) // the queue may be newer than the call
	}
	outcome := it.prepared.Outcome
	switch {
	case err == nil && outcome == Captured:
	case err == nil && outcome == Postponed && here:
		p.taskWaits(it.prepared.TaskID)
	case err == nil && (outcome == Replayed || outcome == Mismatched):
		if path == tryCapture { // its process may still be free
			q.passTurn(it.key, p)
		}
	case err == nil && outcome == Overloaded && path != tryCapture: // later calls get the same error
	default:
		q.releaseAll(it.key)
	}
}

// queueOrSubmit captures or stores a call that may wait in memory for its turn.
func (s *Store) queueOrSubmit(it *callItem) error {
	path := s.callQueues.enter(it)
	if path != queued {
		return s.submitCall(it, path)
	}
	began := time.Now()
	defer func() { it.prepared.Waited = it.left.Sub(began) }()
	check := time.NewTicker(min(callQueueCheck, s.callQueues.wait))
	defer check.Stop()
	for until := time.Now().Add(s.callQueues.wait); ; {
		select {
		case <-it.done: // it was stored with a result
			outcome := groupOutcome{captured: it.err == nil && it.prepared.Outcome == Captured}
			if it.err == nil && it.prepared.Outcome == Postponed {
				outcome.storedTask = it.prepared.TaskID
			}
			s.callQueues.recordGroup(it.key, it.group, outcome)
			return it.err
		case <-it.turn:
			return s.submitCall(it, tryCapture)
		case now := <-check.C:
			if (now.Before(until) && it.call.MayWait()) || !s.callQueues.leave(it) {
				continue
			}
			return s.submitCall(it, queued)
		}
	}
}

// submitCall stores a call alone. It tries the fast path only if path is tryCapture, because the
// process is then assumed to be free.
func (s *Store) submitCall(it *callItem, path callPath) error {
	it.general = path != tryCapture
	here := it.call.runsHere()
	err := s.submit(it)
	// Between two tasks of a process, there is a moment when this node knows of no running task.
	s.callQueues.recordCall(it, err, path, here || it.call.runsHere())
	return err
}
