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
	line      []*callItem // in the order in which they came
	stored    int         // calls of this node that were stored, and wait in schedule: they go first
	strangers int         // tasks that ran since, and came another way
}

// maxStrangers is how many tasks in a row that came another way a line lets go first. Then others call the process as well: what comes is
// stored behind theirs, or it would wait for lineWait each time.
const maxStrangers = 64

// joint is a result and the call that goes with it, if any. The last of both to be answered says what becomes of the line.
type joint struct {
	open   int  // how many of them are not answered
	next   bool // the call was captured
	stored bool // the call waits in schedule
	on     bool // a task that was stored runs next here
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
	if v.strangers > maxStrangers || v.stored+len(v.line) >= int(it.call.MaxWaiting) {
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
	if v, runs := l.visits[save.key]; runs && v.stored == 0 && v.strangers == 0 && len(v.line) > 0 {
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
	v.stored++
	return true
}

// answered notes an answer of a joint, and what it says. When all are there, the line knows what becomes of its process.
func (l *lines) answered(key process.Key, j *joint, says joint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.open--
	j.next, j.stored, j.on = j.next || says.next, j.stored || says.stored, j.on || says.on
	v, runs := l.visits[key]
	if j.open > 0 || j.next || !runs {
		return
	}
	if !j.on {
		l.over(key, v)
		return
	}
	if v.stored > 0 {
		v.stored--
	} else {
		v.strangers++
	}
	if j.stored {
		v.stored++
	}
}

// over passes the turn on where nothing of a process is known to run here.
func (l *lines) over(key process.Key, v *visit) {
	v.stored, v.strangers = 0, 0
	if len(v.line) == 0 {
		delete(l.visits, key)
		return
	}
	close(v.take().turn)
}

// kept notes a call that waits in schedule, for a process that runs here.
func (l *lines) kept(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, runs := l.visits[key]; runs {
		v.stored++
	}
}

// lost lets a whole line go: its process runs elsewhere, or takes no calls.
func (l *lines) lost(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[key]
	if !runs {
		return
	}
	delete(l.visits, key)
	for _, it := range v.line {
		close(it.turn)
	}
}

// inLine captures a call, or stores it, where it may wait in memory for its turn.
func (s *Store) inLine(it *callItem) error {
	switch s.lines.enter(it) {
	case leads:
		return s.lead(it)
	case passes:
		it.whole = true
		return s.follow(it, true)
	}
	look := time.NewTicker(min(lineLook, s.lines.wait))
	defer look.Stop()
	for until := time.Now().Add(s.lines.wait); ; {
		select {
		case <-it.done: // it has gone with a result
			s.lines.answered(it.key, it.joint, joint{next: it.stands(Captured), stored: it.stands(Postponed)})
			return it.err
		case <-it.turn:
			return s.lead(it)
		case now := <-look.C:
			if (now.Before(until) && it.call.Patient()) || !s.lines.leave(it) {
				continue
			}
			it.whole = true
			return s.follow(it, false)
		}
	}
}

// stands tells whether that is what became of a call.
func (it *callItem) stands(outcome PrepareOutcome) bool {
	return it.err == nil && it.prepared.Outcome == outcome
}

// lead has a call captured whose process is thought to be free. Where it is not, but runs here, the line goes on behind what is stored.
func (s *Store) lead(it *callItem) error {
	err := s.submit(it)
	switch {
	case it.stands(Captured):
	case it.stands(Postponed) && it.call.runsHere():
		s.lines.kept(it.key)
	default:
		s.lines.lost(it.key)
	}
	return err
}

// follow has a call stored whose process is thought to run here. counts: it is not yet among those that are stored.
func (s *Store) follow(it *callItem, counts bool) error {
	err := s.submit(it)
	switch {
	case !it.stands(Postponed):
	case !it.call.runsHere():
		s.lines.lost(it.key)
	case counts:
		s.lines.kept(it.key)
	}
	return err
}
