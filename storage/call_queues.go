package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// callQueueWait is how long a call waits in memory for the results before it, until it is stored, to wait in schedule. Twelve clients that
	// call one process wait 30 ms; nobody is to wait for long for an answer that a crash would lose.
	callQueueWait = 100 * time.Millisecond
	// callQueueCheck is how often a call in line asks whether it may still wait: it holds a place that others may want.
	callQueueCheck = 20 * time.Millisecond
)

// callQueues let a call of a process that this node runs wait in memory, to go into the very flush that stores the result. Stored first, it
// makes a row of schedule, and its flush, and the one of that result, take the large statements for all of their items: 512 clients that
// call 10,000 processes at random meet a busy one in 5 of 100 calls, which made nearly every flush one of that kind. Nothing is promised
// to a client that waits in a line: what it asks for is not stored yet.
//
// (The lines of constraints are others: rows of schedule that wait for a key.)
//
// A line goes by a guess at what the database knows. Where that is wrong, a call is stored after callQueueWait at the most.
type callQueues struct {
	wait    time.Duration // callQueueWait, or what a test wants
	mu      sync.Mutex
	windows map[process.Key]*runWindow
}

// runWindow is the time in which a process runs here: from a call that is about to be captured to a result after which nothing runs.
type runWindow struct {
	queue   []*callItem // in the order in which they came
	leaving int         // calls that have left the line to be stored
	stored  []int64     // the tasks of this node's calls that wait in schedule: they go first
	ran     int64       // the newest task that ran behind a result
	others  int         // how many tasks ran that came another way, less those that came from here
}

// maxOthers is how many more tasks that came another way than from here a line lets go first. Then others call the process as well: what comes
// is stored behind theirs, or it would wait for callQueueWait each time.
const maxOthers = 64

// commitGroup is a result and the call that goes with it, if any. The last of both to be answered says what becomes of the line.
type commitGroup struct {
	open int   // how many of them are not answered
	next bool  // the call was captured
	kept int64 // the task of the call, where it waits in schedule
	on   int64 // the task that was stored and runs next here; 0: none
}

// The ways of a call.
type callPath int

const (
	leads  callPath = iota // the process is not known to run here: it tries to be captured
	waits                  // it stands in line
	passes                 // it is stored at once
)

// enter tells the way of a call.
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

// join has the first of a line go with a result, if nothing that was stored goes before it.
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

// leave takes a call out of its line, to be stored; false: it has gone already.
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

// answered notes an answer of a joint, and what it says. When all are there, the line knows what becomes of its process.
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

// runs notes a task that was stored and runs now. They run in the order of their ids.
func (v *runWindow) runs(id int64) {
	if slices.Contains(v.stored, id) {
		v.others = max(0, v.others-1)
	} else {
		v.others++
	}
	v.ran = max(v.ran, id) // a call that was stored before it has run, though its answer may come later
	v.stored = slices.DeleteFunc(v.stored, func(of int64) bool { return of <= id })
}

// keep notes a call of this node that waits in schedule, if it does still. 0: none.
func (v *runWindow) keep(id int64) {
	if id > v.ran {
		v.stored = append(v.stored, id)
	}
}

// over passes the turn on where nothing of a process is known to run here.
func (l *callQueues) over(key process.Key, v *runWindow) {
	v.stored, v.others = nil, 0
	if len(v.queue) == 0 {
		delete(l.windows, key)
		return
	}
	close(v.take().turn)
}

// lost lets a whole line go: its process runs elsewhere, or takes no calls. The caller holds the lock.
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

// reset releases all calls that wait: the database has failed over, and what is known of it is out of date.
func (l *callQueues) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.windows {
		l.lost(key)
	}
}

// gone lets a line go whose process is removed.
func (l *callQueues) gone(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost(key)
}

// settled notes what became of a call that went by itself. here: its process runs here.
func (l *callQueues) settled(it *callItem, err error, how callPath, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.windows[it.key]
	if !runs {
		return
	}
	if how == waits {
		v.leaving = max(0, v.leaving-1) // the visit may be another one
	}
	outcome := it.prepared.Outcome
	switch {
	case err == nil && outcome == Captured:
	case err == nil && outcome == Postponed && here:
		v.keep(it.prepared.TaskID)
	case err == nil && (outcome == Replayed || outcome == Mismatched):
		if how == leads { // its process may be free all the same
			l.over(it.key, v)
		}
	case err == nil && outcome == Overloaded && how != leads: // as is said to each that comes
	default:
		l.lost(it.key)
	}
}

// queueOrSubmit captures a call, or stores it, where it may wait in memory for its turn.
func (s *Store) queueOrSubmit(it *callItem) error {
	how := s.callQueues.enter(it)
	if how != waits {
		return s.submitCall(it, how)
	}
	look := time.NewTicker(min(callQueueCheck, s.callQueues.wait))
	defer look.Stop()
	for until := time.Now().Add(s.callQueues.wait); ; {
		select {
		case <-it.done: // it has gone with a result
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

// submitCall stores a call by itself: it leads, and its process is thought to be free, or it has waited, or passes its line, and goes behind what is stored.
func (s *Store) submitCall(it *callItem, how callPath) error {
	it.general = how != leads
	here := it.call.runsHere()
	err := s.submit(it)
	// (Between two tasks of a process there is a moment in which none is known to run.)
	s.callQueues.settled(it, err, how, here || it.call.runsHere())
	return err
}
