package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// callQueueWait is how long a call waits in memory for the results before it until it is stored
	// in schedule. Twelve clients that call one process wait 30 ms. The wait is short because a
	// crash loses the calls in memory.
	callQueueWait = 100 * time.Millisecond
	// callQueueCheck is how often a queued call checks whether it may still wait, because it holds
	// a slot that others may need.
	callQueueCheck = 20 * time.Millisecond
)

// callQueues lets calls of a process that this node runs wait in memory, to be stored in the same
// flush as the result of the process. If the call were stored first, it would need a row of
// schedule, and its flush and that of the result would use the general statements for all of their
// items. With 512 clients that call 10,000 processes at random, 5 of 100 calls meet a busy process,
// which affected nearly every flush. A client whose call waits in memory has no guarantee: the call
// is not yet stored.
//
// (These queues are not the key queues of constraints, which are rows of schedule.)
//
// A queue relies on a guess about the state of the database. If it is wrong, a call is stored after
// callQueueWait at the latest.
type callQueues struct {
	wait    time.Duration // callQueueWait, except in tests
	mu      sync.Mutex
	windows map[process.Key]*runWindow
}

// runWindow is the time during which a process runs here: from a call that will be captured to a
// result after which no task runs.
type runWindow struct {
	queue   []*callItem // in order of arrival
	leaving int         // calls that have left the queue to be stored
	stored  []int64     // tasks of this node's calls that wait in schedule; they run first
	ran     int64       // the newest task that ran after a result
	others  int         // number of tasks that ran but came from elsewhere, minus those that came from here
}

// maxOthers is the number of tasks from elsewhere after which the queue lets calls pass. Others
// then call the process as well, and calls are stored behind theirs. Otherwise each would wait for
// callQueueWait.
const maxOthers = 64

// commitGroup is a result and the call that is stored with it, if any. When both are answered, the
// queue knows the state of the process.
type commitGroup struct {
	open int   // how many of them are not answered
	next bool  // the call was captured
	kept int64 // the task of the call if it waits in schedule
	on   int64 // the stored task that runs next here; 0 if there is none
}

// callPath is how a call is handled.
type callPath int

const (
	leads  callPath = iota // the process is not known to run here: try to capture the call
	waits                  // it waits in the queue
	passes                 // it is stored at once
)

// enter returns the path of a call.
func (l *callQueues) enter(it *callItem) callPath {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.windows[it.key]
	if !runs {
		l.windows[it.key] = &runWindow{}
		return leads
	}
	if v.others > maxOthers || v.leaving+len(v.stored)+len(v.queue) >= int(it.call.MaxWaiting) {
		return passes
	}
	it.turn = make(chan struct{})
	v.queue = append(v.queue, it)
	return waits
}

// join adds the first queued call to a result, unless stored tasks must run before it.
func (l *callQueues) join(save *saveItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	save.group = &commitGroup{open: 1}
	if v, runs := l.windows[save.key]; runs && v.leaving+len(v.stored) == 0 && v.others == 0 && len(v.queue) > 0 {
		save.next = v.take()
		save.next.group = save.group
		save.group.open = 2
	}
}

func (v *runWindow) take() *callItem {
	first := v.queue[0]
	v.queue = v.queue[1:]
	return first
}

// leave removes a call from its queue to store it. It returns false if the call is already being
// stored.
func (l *callQueues) leave(it *callItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.windows[it.key]
	if !runs {
		return false
	}
	n := slices.Index(v.queue, it)
	if n < 0 {
		return false
	}
	v.queue = slices.Delete(v.queue, n, n+1)
	v.leaving++
	return true
}

// answered records an answer in a commit group. When all are there, the queue updates the state of
// its process.
func (l *callQueues) answered(key process.Key, j *commitGroup, says commitGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.open--
	j.next, j.kept, j.on = j.next || says.next, max(j.kept, says.kept), max(j.on, says.on)
	v, runs := l.windows[key]
	switch {
	case j.open > 0 || j.next || !runs:
	case j.on == 0:
		l.over(key, v)
	default:
		v.runs(j.on)
		v.keep(j.kept)
	}
}

// runs records a stored task that runs now. Tasks run in the order of their IDs.
func (v *runWindow) runs(id int64) {
	if slices.Contains(v.stored, id) {
		v.others = max(0, v.others-1)
	} else {
		v.others++
	}
	v.ran = max(v.ran, id) // a call with a smaller ID has run, although its answer may come later
	v.stored = slices.DeleteFunc(v.stored, func(of int64) bool { return of <= id })
}

// keep records a call of this node that waits in schedule, unless it has already run. 0 means none.
func (v *runWindow) keep(id int64) {
	if id > v.ran {
		v.stored = append(v.stored, id)
	}
}

// over passes the turn to the next call when no task of the process is known to run here.
func (l *callQueues) over(key process.Key, v *runWindow) {
	v.stored, v.others = nil, 0
	if len(v.queue) == 0 {
		delete(l.windows, key)
		return
	}
	close(v.take().turn)
}

// lost releases all calls of a queue, because the process runs elsewhere or takes no calls. The
// caller holds the lock.
func (l *callQueues) lost(key process.Key) {
	v, runs := l.windows[key]
	if !runs {
		return
	}
	delete(l.windows, key)
	for _, it := range v.queue {
		close(it.turn)
	}
}

// reset releases all waiting calls after a database failover, because the known state is out of
// date.
func (l *callQueues) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.windows {
		l.lost(key)
	}
}

// gone releases the queue of a removed process.
func (l *callQueues) gone(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost(key)
}

// recordOutcome records the result of a call that was stored alone. here reports whether its
// process runs here.
func (l *callQueues) recordOutcome(it *callItem, err error, how callPath, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.windows[it.key]
	if !runs {
		return
	}
	if how == waits {
		v.leaving = max(0, v.leaving-1) // the window may be another one
	}
	outcome := it.prepared.Outcome
	switch {
	case err == nil && outcome == Captured:
	case err == nil && outcome == Postponed && here:
		v.keep(it.prepared.TaskID)
	case err == nil && (outcome == Replayed || outcome == Mismatched):
		if how == leads { // its process may still be free
			l.over(it.key, v)
		}
	case err == nil && outcome == Overloaded && how != leads: // the same error as for later calls
	default:
		l.lost(it.key)
	}
}

// queueOrSubmit captures or stores a call that may wait in memory for its turn.
func (s *Store) queueOrSubmit(it *callItem) error {
	how := s.callQueues.enter(it)
	if how != waits {
		return s.submitCall(it, how)
	}
	look := time.NewTicker(min(callQueueCheck, s.callQueues.wait))
	defer look.Stop()
	for until := time.Now().Add(s.callQueues.wait); ; {
		select {
		case <-it.done: // it was stored with a result
			says := commitGroup{next: it.err == nil && it.prepared.Outcome == Captured}
			if it.err == nil && it.prepared.Outcome == Postponed {
				says.kept = it.prepared.TaskID
			}
			s.callQueues.answered(it.key, it.group, says)
			return it.err
		case <-it.turn:
			return s.submitCall(it, leads)
		case now := <-look.C:
			if (now.Before(until) && it.call.MayWait()) || !s.callQueues.leave(it) {
				continue
			}
			return s.submitCall(it, waits)
		}
	}
}

// submitCall stores a call alone. It tries the fast path only if its path is leads, which means
// that the process is assumed to be free.
func (s *Store) submitCall(it *callItem, how callPath) error {
	it.general = how != leads
	here := it.call.runsHere()
	err := s.submit(it)
	// (Between two tasks of a process there is a moment in which none is known to run.)
	s.callQueues.recordOutcome(it, err, how, here || it.call.runsHere())
	return err
}
