package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// lineWait is how long a call waits in memory for the results before it, until it is stored, to wait in schedule. Twelve clients that
	// call one process wait 30 ms; nobody is to wait for long for an answer that a crash would lose.
	lineWait = 100 * time.Millisecond
	// lineLook is how often a call in line asks whether it may still wait: it holds a place that others may want.
	lineLook = 20 * time.Millisecond
)

// lines let a call of a process that this node runs wait in memory, to go into the very flush that stores the result. Stored first, it
// makes a row of schedule, and its flush, and the one of that result, take the large statements for all of their items: 512 clients that
// call 10,000 processes at random meet a busy one in 5 of 100 calls, which made nearly every flush one of that kind. Nothing is promised
// to a client that waits in a line: what it asks for is not stored yet.
//
// (The lines of constraints are others: rows of schedule that wait for a key.)
//
// A line goes by a guess at what the database knows. Where that is wrong, a call is stored after lineWait at the most.
type lines struct {
	wait   time.Duration // lineWait, or what a test wants
	mu     sync.Mutex
	visits map[process.Key]*visit
}

// visit is the time in which a process runs here: from a call that is about to be captured to a result after which nothing runs.
type visit struct {
	line    []*callItem // in the order in which they came
	leaving int         // calls that have left the line to be stored
	stored  []int64     // the tasks of this node's calls that wait in schedule: they go first
	ran     int64       // the newest task that ran behind a result
	others  int         // how many tasks ran that came another way, less those that came from here
}

// maxOthers is how many more tasks that came another way than from here a line lets go first. Then others call the process as well: what comes
// is stored behind theirs, or it would wait for lineWait each time.
const maxOthers = 64

// joint is a result and the call that goes with it, if any. The last of both to be answered says what becomes of the line.
type joint struct {
	open int   // how many of them are not answered
	next bool  // the call was captured
	kept int64 // the task of the call, where it waits in schedule
	on   int64 // the task that was stored and runs next here; 0: none
}

// The ways of a call.
type way int

const (
	leads  way = iota // the process is not known to run here: it tries to be captured
	waits             // it stands in line
	passes            // it is stored at once
)

// enter tells the way of a call.
func (l *lines) enter(it *callItem) way {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[it.key]
	if !runs {
		l.visits[it.key] = &visit{}
		return leads
	}
	if v.others > maxOthers || v.leaving+len(v.stored)+len(v.line) >= int(it.call.MaxWaiting) {
		return passes
	}
	it.turn = make(chan struct{})
	v.line = append(v.line, it)
	return waits
}

// join has the first of a line go with a result, if nothing that was stored goes before it.
func (l *lines) join(save *saveItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	save.joint = &joint{open: 1}
	if v, runs := l.visits[save.key]; runs && v.leaving+len(v.stored) == 0 && v.others == 0 && len(v.line) > 0 {
		save.next = v.take()
		save.next.joint = save.joint
		save.joint.open = 2
	}
}

func (v *visit) take() *callItem {
	first := v.line[0]
	v.line = v.line[1:]
	return first
}

// leave takes a call out of its line, to be stored; false: it has gone already.
func (l *lines) leave(it *callItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[it.key]
	if !runs {
		return false
	}
	n := slices.Index(v.line, it)
	if n < 0 {
		return false
	}
	v.line = slices.Delete(v.line, n, n+1)
	v.leaving++
	return true
}

// answered notes an answer of a joint, and what it says. When all are there, the line knows what becomes of its process.
func (l *lines) answered(key process.Key, j *joint, says joint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.open--
	j.next, j.kept, j.on = j.next || says.next, max(j.kept, says.kept), max(j.on, says.on)
	v, runs := l.visits[key]
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
func (v *visit) runs(id int64) {
	if slices.Contains(v.stored, id) {
		v.others = max(0, v.others-1)
	} else {
		v.others++
	}
	v.ran = max(v.ran, id) // a call that was stored before it has run, though its answer may come later
	v.stored = slices.DeleteFunc(v.stored, func(of int64) bool { return of <= id })
}

// keep notes a call of this node that waits in schedule, if it does still. 0: none.
func (v *visit) keep(id int64) {
	if id > v.ran {
		v.stored = append(v.stored, id)
	}
}

// over passes the turn on where nothing of a process is known to run here.
func (l *lines) over(key process.Key, v *visit) {
	v.stored, v.others = nil, 0
	if len(v.line) == 0 {
		delete(l.visits, key)
		return
	}
	close(v.take().turn)
}

// lost lets a whole line go: its process runs elsewhere, or takes no calls. The caller holds the lock.
func (l *lines) lost(key process.Key) {
	v, runs := l.visits[key]
	if !runs {
		return
	}
	delete(l.visits, key)
	for _, it := range v.line {
		close(it.turn)
	}
}

// reset releases all calls that wait: the database has failed over, and what is known of it is out of date.
func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.visits {
		l.lost(key)
	}
}

// gone lets a line go whose process is removed.
func (l *lines) gone(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost(key)
}

// settled notes what became of a call that went by itself. here: its process runs here.
func (l *lines) settled(it *callItem, err error, how way, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[it.key]
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

// inLine captures a call, or stores it, where it may wait in memory for its turn.
func (s *Store) inLine(it *callItem) error {
	how := s.lines.enter(it)
	if how != waits {
		return s.goes(it, how)
	}
	look := time.NewTicker(min(lineLook, s.lines.wait))
	defer look.Stop()
	for until := time.Now().Add(s.lines.wait); ; {
		select {
		case <-it.done: // it has gone with a result
			says := joint{next: it.err == nil && it.prepared.Outcome == Captured}
			if it.err == nil && it.prepared.Outcome == Postponed {
				says.kept = it.prepared.TaskID
			}
			s.lines.answered(it.key, it.joint, says)
			return it.err
		case <-it.turn:
			return s.goes(it, leads)
		case now := <-look.C:
			if (now.Before(until) && it.call.Patient()) || !s.lines.leave(it) {
				continue
			}
			return s.goes(it, waits)
		}
	}
}

// goes stores a call by itself: it leads, and its process is thought to be free, or it has waited, or passes its line, and goes behind what is stored.
func (s *Store) goes(it *callItem, how way) error {
	it.whole = how != leads
	here := it.call.runsHere()
	err := s.submit(it)
	// (Between two tasks of a process there is a moment in which none is known to run.)
	s.lines.settled(it, err, how, here || it.call.runsHere())
	return err
}
